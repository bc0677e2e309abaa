//! The workflow descriptor: what an author writes in `workflow.jsonc` (`docs/protocol/descriptor.md`).
//!
//! Reading happens in one direction only: text → [`Document`] (JSONC with positions) → [`Descriptor`] (typed,
//! defaulted, every rule checked). A [`Descriptor`] that exists is valid. [`Manifest`] is what control planes store
//! and send to runners: the defaulted descriptor plus the two derived schemas.

mod cron;
mod jsonc;
mod manifest;
mod model;
mod problem;
mod read;
mod read_fields;
mod read_policy;
mod template;

#[cfg(test)]
mod samples;

pub use cron::{CronError, check_cron};
pub use jsonc::{Document, JsoncError, parse_jsonc};
pub use manifest::{Manifest, ParsedDescriptor, parse_descriptor};
pub use model::{
    Budget, CallableBy, CallerRole, Channel, Conclusion, Concurrency, Container, CronTrigger, Descriptor,
    Egress, EgressLevel, GithubEvent, GithubTrigger, Grant, HostedLabel, HostedRunner, HostedSize,
    IdTokenGrant, IssueEvent, IssueTrigger, Lane, Notification, NotifyOn, NotionEvent, NotionTrigger,
    Permissions, Persist, RunsOn, SecretGrant, SelfHosted, Trigger, WebhookTrigger, WorkflowRunTrigger,
    Workspace,
};
pub use problem::{DescriptorError, DescriptorErrors, DescriptorStage, Position, Warning};
pub use read_fields::secret_reference;
pub use template::{KeyError, KeyTemplate, TemplateProblem};

/// File names of a descriptor, in the order in which they are looked up (`docs/protocol/descriptor.md` §1).
pub const DESCRIPTOR_NAMES: [&str; 2] = ["workflow.jsonc", "workflow.json"];

/// Largest descriptor that is read, in bytes.
pub const MAX_DESCRIPTOR_BYTES: usize = 1024 * 1024;

/// Program files looked for when the descriptor names no `entry`, in order (`docs/protocol/descriptor.md` §7).
pub const DEFAULT_ENTRY_SOURCES: [&str; 11] = [
    "src/index.ts",
    "src/index.tsx",
    "src/index.mts",
    "src/index.js",
    "src/index.mjs",
    "index.ts",
    "index.tsx",
    "index.mts",
    "index.js",
    "index.mjs",
    "main.py",
];
