//! The command line as a client: the `/v1` API, the commands, the event renderer and the scaffold.
//!
//! Data goes to standard output, everything else to standard error; a failure has a code, a message and a hint.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod client;
pub mod commands;
mod error;
mod event_stream;
mod pretty_json;
mod progress;
mod renderer;
mod server_address;
mod terminal;

pub use client::Client;
pub use error::{CliError, EXIT_CANCELLED, EXIT_COMPLETED, EXIT_FAILED, EXIT_USAGE};
pub use event_stream::{FollowedEvent, RunEnd, follow};
pub use pretty_json::pretty_json;
pub use progress::BuildSteps;
pub use renderer::{Renderer, Selection, output_text};
pub use server_address::{AddressSources, ServerAddress};
pub use terminal::{Step, Terminal};
