//! The statements of each operation. Every function runs inside of one transaction of the writer, or
//! on a reader's connection.

pub(super) mod artifacts;
pub(super) mod claims;
pub(super) mod ends;
pub(super) mod events;
pub(super) mod idempotency;
pub(super) mod leases;
pub(super) mod open_brackets;
pub(super) mod providers;
pub(super) mod queue;
pub(super) mod run_state;
pub(super) mod runners;
pub(super) mod runs;
pub(super) mod secrets;
pub(super) mod settings;
pub(super) mod usage;
pub(super) mod workflows;
