//! One run: control-API client, host socket, program process, events.
//!
//! A run process executes one run and exits. It gets its assignment, with the credentials, over an
//! inherited socket from its runner; it claims the run, fetches and starts the program, serves the
//! program's host calls, delivers events, and finalizes (`docs/protocol/control.md` §15).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod abort;
mod args;
mod budget;
mod control;
mod entry;
mod events;
mod finalize;
mod host;
mod inference;
mod lease;
mod prepare;
mod program;
mod runner_link;
mod session;
mod supervise;
mod timing;
mod watch;

pub use args::RunArgs;
pub use entry::{main, run};
pub use timing::Timing;
