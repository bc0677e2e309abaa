//! The runner against a control plane in memory: real sockets, real processes (shell scripts that speak the
//! slot protocol in place of run processes).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claims;
mod drain;
mod enrolment;
mod leases;
mod machines;
mod polling;
mod processes;
mod results;
mod support;
