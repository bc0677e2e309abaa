//! The scripted model server, the fake control plane, the fault proxy and the clock of the tests.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod clock;
pub mod control_plane;
pub mod fault_proxy;
pub mod model_server;
