//! Every wire type of Trestle, once.
//!
//! One module per protocol; the facts that the types encode are written down in `docs/protocol/*.md`.
//! Pool, host and event objects are closed on the producing side: an unknown key is an error. The runner
//! control API and the public API are lenient: an unknown key is dropped.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api;
pub mod bounds;
pub mod control;
pub mod descriptor;
pub mod error;
pub mod event;
pub mod host;
pub mod ids;
pub mod inference;
pub mod json;
pub mod pool;

mod tolerant;

pub use bounds::{
    BoundedInt, BoundedString, Count, EpochMs, MAX_SAFE_INTEGER, NonEmptyString, Positive, RangeError, Token,
};
pub use error::{ErrorBody, ErrorCode, ErrorEnvelope};
pub use event::RunStatus;
pub use ids::{
    ArtifactId, AssignmentId, Digest, EnvironmentId, IdError, LeaseId, OrgId, PoolId, PoolName, RunId,
    RunnerId, ScheduleId, SecretId, SecretName, Slug, UploadId, UserId, VersionId, WorkerId, WorkflowId,
};
pub use json::{RawJson, RawJsonError, RawObject};
