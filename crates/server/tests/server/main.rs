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
mod lost_answers;
mod openapi;
mod pool;
mod pool_bad_days;
mod providers;
mod replay;
mod rows;
mod secrets;
mod tails;
mod workflows;
mod world;
