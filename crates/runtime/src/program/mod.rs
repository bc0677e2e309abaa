//! The program: its files, its environment, its interpreter, and how it ended.

mod artifact;
mod environment;
mod interpreter;
mod loader;
mod outcome;
mod sdk;

pub(crate) use artifact::{PrepareError, ProgramFiles, fetch};
pub(crate) use environment::{base_environment, needs_cold_start, program_environment};
pub(crate) use interpreter::NodeProcess;
pub(crate) use loader::{LoaderAssignment, LoaderChannel, LoaderFailure, LoaderReport};
pub(crate) use outcome::{Ending, Verdict, decide};
pub(crate) use sdk::{link_sdk, write_sdk};
