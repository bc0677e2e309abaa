//! Runs, leases, events and blobs on SQLite and local files.
//!
//! [`Store`] is the set of operations, each of them one transaction. [`SqliteStore`] implements it on
//! one file with one writer; [`Blobs`] keeps bytes beside it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod model;
mod store;

pub use error::{Conflict, Entity, StoreError, StoreResult};
pub use model::*;
pub use store::{Change, Store};
