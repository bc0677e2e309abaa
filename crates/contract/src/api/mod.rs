//! The public REST API under `/v1` (`docs/openapi.json`). Lenient, camelCase.

mod account;
mod deploy;
mod providers;
mod runners;
mod runs;
mod secrets;

pub use account::{Me, MeUser, Membership, Role};
pub use deploy::{
    ArtifactReference, DeployRequest, DeployResponse, DeployWarning, DeployedVersion, DeployedWorkflow,
    LastRun, ProgramFile, ProgramView, UploadUrlRequest, UploadUrlResponse, VersionRow, WorkflowDetail,
    WorkflowDisabled, WorkflowHead, WorkflowList, WorkflowRow, WorkflowState,
};
pub use providers::{CreateProviderRequest, ProviderList, ProviderResponse, ProviderRow, ProviderSource};
pub use runners::{
    EnrolRunnerRequest, EnrolRunnerResponse, EnrolledRunner, PoolList, PoolRow, RegistrationToken,
    RunnerList, RunnerRow, RunnerStatus,
};
pub use runs::{
    ArtifactRow, ArtifactRowList, ArtifactUrl, CancelledRun, EventList, GateList, GateRow, RespondRequest,
    RunDetail, RunDetailResponse, RunFailure, RunList, RunSummary, RunTriggered, StreamFailure,
    TriggerRequest, TriggeredRun,
};
pub use secrets::{
    CreateEnvironmentRequest, CreateSecretRequest, EnvironmentList, EnvironmentResponse, EnvironmentRow,
    RotateSecretRequest, SecretKind, SecretList, SecretResponse, SecretRow, SecretScope, SetVariableRequest,
    VariableList, VariableResponse, VariableRow,
};
