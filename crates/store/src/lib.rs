//! Runs, leases, events and blobs on SQLite and local files.
//!
//! [`Store`] is the set of operations, each of them one transaction. [`SqliteStore`] implements it on
//! one file with one writer; [`Blobs`] keeps bytes beside it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod blobs;
mod data_dir;
mod error;
mod model;
mod options;
mod sqlite;
mod store;

pub use blobs::{BlobExpectation, BlobReader, Blobs, ListedBlob, StoredBlob};
pub use data_dir::DataDir;
pub use error::{Conflict, Entity, MAX_CALL_DEPTH, StoreError, StoreResult};
pub use model::*;
pub use options::StoreOptions;
pub use sqlite::SqliteStore;
pub use store::{Change, Store};
