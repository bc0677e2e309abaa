//! Every type that a body, a frame or an event may have at its root.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trestle_contract::{api, control, error, event, host, inference, pool};

/// Reads a text as one type and writes it again.
pub(crate) type RoundTrip = fn(&str) -> Result<Value, String>;

pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) round_trip: RoundTrip,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    /// Whether an unknown key is refused.
    pub(crate) closed: bool,
    pub(crate) entries: Vec<Entry>,
}

fn round_trip<T: Serialize + DeserializeOwned>(text: &str) -> Result<Value, String> {
    let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    serde_json::to_value(&value).map_err(|error| error.to_string())
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

macro_rules! entries {
    ($module:ident: $($name:ident),+ $(,)?) => {
        vec![$(Entry {
            name: stringify!($name),
            round_trip: round_trip::<$module::$name>,
            schema: schema::<$module::$name>,
        }),+]
    };
}

pub(crate) fn protocols() -> Vec<Protocol> {
    vec![
        Protocol {
            name: "pool",
            closed: true,
            entries: entries!(pool: RegisterRequest, RegisterResponse, Declaration, PollResponse, ClaimResponse,
                HeartbeatRequest, HeartbeatResponse, DeregisterRequest, LeaseReleaseRequest),
        },
        Protocol { name: "event", closed: true, entries: entries!(event: Event) },
        Protocol {
            name: "host",
            closed: true,
            entries: entries!(host: BootstrapResult, Empty, ReportReturnParams, AgentParams, AgentResult, CallParams,
                CallResult, WorkflowRunResult, ScheduleParams, ScheduleResult, SleepParams, HumanInputParams,
                HumanInputReply, SecretGetParams, SecretGetResult, ArtifactWriteParams, ArtifactWriteResult,
                OpenBrowserParams, OpenDesktopParams, SessionResult, SessionParams, BrowserNavigateParams,
                BrowserUrlResult, BrowserTitleResult, BrowserScreenshotParams, BrowserSinceParams,
                BrowserConsoleResult, BrowserNetworkResult, BrowserEvalParams, BrowserEvalResult, ShellParams,
                ShellResult, IdTokenParams, TokenResult, UsageSnapshot, PhaseParams, ToolInvokeParams,
                ToolInvokeResult, CancelParams, ToolCancelParams, HostErrorBody),
        },
        Protocol {
            name: "control",
            closed: false,
            entries: entries!(control: RunClaimRequest, RunClaimResponse, RunActor, RunTriggerRequest, RenewResponse,
                FinalizeRequest, RunError, ReleaseRequest, VersionResponse, CreditResponse, CancelResponse,
                UsageRequest, TokenUsageRequest, TelemetryRequest, SecretResolveRequest, SecretResolveResponse,
                OidcTokenRequest, OidcTokenResponse, McpTokenRequest, McpTokenResponse, WebSearchRequest,
                WebSearchResponse, ProvidersResponse, LiveviewRequest, LiveviewWanted, ArtifactWriteRequest,
                ArtifactWriteResponse, ArtifactPresignRequest, ArtifactPresignResponse, ArtifactCommitRequest,
                ArtifactList, ArtifactSignRequest, ArtifactSignResponse, ReserveRequest, ReserveResponse,
                ManifestReadRequest, ManifestReadResponse, ManifestWriteRequest, ManifestWriteResponse, PackDigests,
                PackExistsResponse, PackPresignRequest, PackPresignResponse, HydrateUrlResponse, PersistUrlRequest,
                PersistUrlResponse, ChildRequest, ChildResponse, ChildStatus, ScheduleRequest, ScheduleCreated,
                InputRequest, InputRegistered, GateAnswers, JournalLookup, JournalPut, SuspendRequest),
        },
        Protocol {
            name: "inference",
            closed: false,
            entries: entries!(inference: InferenceRequest, InferenceResult, InferenceError),
        },
        Protocol { name: "api", closed: false, entries: api_entries() },
    ]
}

fn api_entries() -> Vec<Entry> {
    let mut entries = entries!(api: Me, UploadUrlRequest, UploadUrlResponse, DeployRequest, DeployResponse,
        WorkflowList, WorkflowDetail, WorkflowState, TriggerRequest, RunTriggered, RunDetailResponse, RunList, EventList,
        StreamFailure, GateList, RespondRequest, ArtifactRowList, ArtifactUrl, SecretList, SecretResponse,
        CreateSecretRequest, RotateSecretRequest, EnvironmentList, CreateEnvironmentRequest, EnvironmentResponse,
        VariableList, SetVariableRequest, VariableResponse, EnrolRunnerRequest, EnrolRunnerResponse,
        RegistrationToken, RunnerList, PoolList, ProviderList, CreateProviderRequest, ProviderResponse);
    entries.extend(entries!(error: ErrorEnvelope));
    entries
}
