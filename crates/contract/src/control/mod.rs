//! The runner control API: everything that one run process asks of the control plane (`docs/protocol/control.md`).
//!
//! Objects are lenient: unknown keys are dropped on both sides. Names are camelCase.

mod artifacts;
mod children;
mod gates;
mod journal;
mod run;
mod services;
mod usage;
mod workspace;

pub use artifacts::{
    ArtifactCommitRequest, ArtifactEncoding, ArtifactList, ArtifactPresignRequest, ArtifactPresignResponse,
    ArtifactSignRequest, ArtifactSignResponse, ArtifactSummary, ArtifactWriteRequest, ArtifactWriteResponse,
    MAX_ARTIFACT_BYTES, MAX_INLINE_ARTIFACT_BYTES,
};
pub use children::{
    ChildMode, ChildRequest, ChildResponse, ChildStatus, ScheduleCreated, ScheduleRequest, ScheduleTime,
};
pub use gates::{GateAnswers, HumanInputGate, InputRegistered, InputRequest};
pub use journal::{
    JournalKind, JournalLookup, JournalPut, JournalState, LeafCheckpoint, LeafTotals, SuspendKind,
    SuspendRequest,
};
pub use run::{
    CancelResponse, CreditResponse, Environment, FinalStatus, FinalizeRequest, Program, ReleaseRequest,
    RenewRequest, RenewResponse, Run, RunActor, RunClaimRequest, RunClaimResponse, RunError,
    RunTriggerRequest, RunUsage, VersionResponse,
};
pub use services::{
    LiveviewRequest, LiveviewWanted, McpTokenRequest, McpTokenResponse, OidcTokenRequest, OidcTokenResponse,
    ProvidersResponse, SearchDepth, SecretResolveRequest, SecretResolveResponse, WebSearchData, WebSearchHit,
    WebSearchRequest, WebSearchResponse,
};
pub use usage::{TelemetryRequest, TokenUsageRequest, UsageRequest};
pub use workspace::{
    HydrateUrlResponse, MAX_PACK_DIGESTS, ManifestReadRequest, ManifestReadResponse, ManifestWriteRequest,
    ManifestWriteResponse, PackDeleteRequest, PackDigests, PackExistsResponse, PackOperation,
    PackPresignRequest, PackPresignResponse, PersistUrlRequest, PersistUrlResponse, ReserveRefusal,
    ReserveRequest, ReserveResponse,
};

pub use crate::inference::{InferenceFrame, InferenceRequest};
