//! Rows and arguments of the store's operations.

mod artifact;
mod event;
mod idempotency;
mod lease;
mod provider;
mod run;
mod runner;
mod secret;
mod usage;
mod workflow;

pub use artifact::{ArtifactRow, NewArtifact, NewUpload, UploadPurpose, UploadRow, WrittenArtifact};
pub use event::{EventPage, TelemetryBatch};
pub use idempotency::{IdempotencyStart, StoredAnswer};
pub use lease::{
    AssignmentClaim, CancelState, ClaimedAssignment, ClaimedRun, Fence, Heartbeat, HeartbeatAnswer,
    LeaseMode, Offer, ReleaseReason, Releaser, RunClaim, SweepReport, TakenBack,
};
pub use provider::{NewProvider, ProviderRow};
pub use run::{
    CancelOutcome, ChildKind, CreatedRun, Finalize, Finalized, IdempotencyKey, NewRun, Outcome, ParentLink,
    Placement, RunFailure, RunFilter, RunListRow, RunPage, RunPosition, RunRow, RunTotals, Trigger,
};
pub use runner::{NewRunner, PoolRow, RegistrationTokenRow, RunnerRow, TokenHash};
pub use secret::{IfExists, NewSecret, SecretRow};
pub use usage::{ComputeUsage, Metered, RelayTurn, TokenReport, TurnMeter, TurnRow, TurnTokens};
pub use workflow::{
    DeployTarget, Deployed, NewVersion, Organisation, ProgramRow, VersionListRow, VersionRow,
    WorkflowListRow, WorkflowRow,
};
