//! The server over real sockets, with a real store in a temporary directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod artifacts;
mod bodies;
mod control;
mod deploy;
mod events;
mod idempotency;
mod lifetime;
mod openapi;
mod pool;
mod replay;
mod secrets;
mod workflows;
mod world;
