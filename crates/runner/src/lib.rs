//! One machine of a pool: identity, poll, claim, slots, heartbeats, clean-up.
//!
//! A [`Runner`] asks its control plane for work ([`PoolClient`], `docs/protocol/pool.md`), hands each claimed run to a
//! run process over an inherited socket, keeps its lease, and leaves nothing behind.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod assignment;
mod capacity;
mod claim_env;
mod client;
mod config;
mod enroll;
mod error;
mod heartbeat;
mod identity;
mod offers;
mod pace;
mod run_output;
mod runner;
mod slot_process;
mod standby;
mod unsent_result;
mod work_directory;

pub use client::{Beaten, ClaimAnswer, Claimed, PoolClient};
pub use config::{Config, Timing, forwarded_env};
pub use enroll::{Enrolment, Registered, deregister, host_name, own_arch, own_os, redeem, register, save};
pub use error::RunnerError;
pub use identity::{Identity, IdentityDirectory, Joined};
pub use runner::{Ended, Handle, Runner};
