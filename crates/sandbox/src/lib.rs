//! Starting and ending process trees without leaving anything behind.
//!
//! [`Isolation`] starts a process in its own session, [`Process`] waits for it and ends it together
//! with everything that it started, and [`slot`] holds the messages that a runner and a run process
//! exchange over an inherited socket.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod host;
mod interpreter;
mod process;
mod registry;
mod resident;
pub mod slot;
mod spawn;
mod system;
mod tree;

pub use error::SandboxError;
pub use host::{HostIsolation, Isolation};
pub use interpreter::{INTENDED_NODE, InterpreterError, OLDEST_NODE, find_node};
pub use process::{Exit, Pipes, Process, ProcessSpec, Stdio, Terminated};
pub use registry::{end_adopted, end_all_descendants, reap_adopted, watch_adopted};
pub use resident::give_back_start_up_pages;
pub use system::{become_subreaper, inherited, refuse_inspection, unix_pair};
pub use tree::{ProcessIdentity, end_tree};
