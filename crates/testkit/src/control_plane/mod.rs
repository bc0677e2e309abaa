//! A control plane for tests of runners and run processes: the pool API and the runner control API on a real socket.
//!
//! It checks every request strictly (types, unknown keys, credentials, headers) and remembers what it saw; it can
//! refuse, cut, hold or lose the answer of any call.

mod artifacts;
mod connection;
mod faults;
mod model;
mod plane;
mod pool;
mod routes;
mod run;
mod services;
mod state;

pub use faults::{Fault, Hold};
pub use model::ModelReply;
pub use plane::{FakeControlPlane, Options};
pub use state::{ChildOutcome, Exchange, FakeRun, Stage, StoredArtifact};
