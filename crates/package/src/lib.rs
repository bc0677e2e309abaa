//! A workflow directory becomes a deterministic artifact.
//!
//! [`check`] tells what is wrong with a package, [`build`] packs it. [`artifact`] reads what somebody else packed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod artifact;

mod assets;
mod build;
mod decorators;
mod emit;
mod glob;
mod graph;
mod identity;
mod lines;
mod npm;
mod pack;
mod progress;
mod project;
mod references;
mod report;
mod resolve;
mod rewrite;
mod script;
mod support;
mod types;
mod validate;

pub use build::{Artifact, build, check};
pub use identity::{IdentityEntry, identity};
pub use progress::{Progress, Silent, Step};
pub use report::{BuildError, Diagnostic, Report, Severity, ShippedFile, ShippedPackage};
pub use support::{Unsupported, unsupported};
pub use types::Schemas;
pub use validate::{CronProblem, check_cron_inputs};
