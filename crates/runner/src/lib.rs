//! One machine of a pool: identity, poll, claim, slots, heartbeats, clean-up.
//!
//! A [`Runner`] asks its control plane for work ([`PoolClient`], `docs/protocol/pool.md`), hands each claimed run to a
//! run process over an inherited socket, keeps its lease, and leaves nothing behind.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod assignment;
mod capacity;
mod client;
mod config;
mod enroll;
mod error;
mod identity;
mod runner;
mod slot_process;
mod standby;
mod work_directory;

pub use client::{Claimed, PoolClient};
pub use config::{Config, Timing, forwarded_env};
pub use enroll::{Enrolment, deregister, host_name, redeem, register};
pub use error::RunnerError;
pub use identity::{Identity, IdentityDirectory};
pub use runner::{Ended, Handle, Runner};
