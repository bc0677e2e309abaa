//! The control plane: HTTP surfaces, dispatcher, relay, vault.
//!
//! [`Server::start`] serves a store that is open already; [`Handle`] stops it.
//! The surfaces are described in `docs/protocol/`, and all their routes in
//! `docs/openapi.json`, which [`openapi`] makes.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod api;
mod auth;
mod blobs;
mod body;
mod config;
mod control;
mod dispatch;
mod error;
mod extract;
mod failure;
mod feed;
mod health;
mod hub;
mod idempotency;
mod inference;
mod keys;
mod launch;
mod listener;
mod openapi;
mod parked;
mod pool;
mod providers;
mod router;
mod routes;
mod signed_url;
mod sse;
mod start;
mod state;
mod stream;
mod sweeper;
mod vault;
mod wait;

pub use config::{Config, Intervals, Limits};
pub use error::Error;
pub use inference::{ModelConfig, ModelKey};
pub use openapi::openapi;
pub use start::{Handle, Server};
