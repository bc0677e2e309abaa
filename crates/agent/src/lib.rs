//! The agent loop; it reaches the world through its [`Host`] trait alone.
//!
//! One call of [`run_leaf`] is one `agent()` of a program: it frames the prompt, calls the
//! model turn by turn, runs the tools that the model asks for, and returns the answer. It
//! knows neither the control plane nor how a model is reached. See `docs/protocol/agent.md`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answer;
mod collation;
mod dispatch;
mod error;
mod files;
mod framing;
mod guards;
mod host;
mod leaf;
mod options;
mod plan;
mod schema;
mod skill;
mod tools;
mod transcript;
mod turn;

pub use error::AgentError;
pub use files::{Entry, EntryKind, FileTree};
pub use host::{FrameStream, Host, ModelCall, ModelCallKind, ModelUsage, ToolInvocation};
pub use leaf::{LeafRequest, run_leaf};
