//! Claim, renew, release, finalize, version, cancel, credit (`docs/protocol/control.md` §2 and §5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::bounds::{EpochMs, Positive, Token};
use crate::event::{Cursor, RunStatus};
use crate::ids::{EnvironmentId, OrgId, RunId, VersionId, WorkerId, WorkflowId};
use crate::json::{RawJson, RawJsonError};
use crate::tolerant::{null_default, objects};

/// `POST claim`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunClaimRequest {
    /// Who claims: one name per run process.
    pub worker_id: WorkerId,
    /// How long the lease should last; the server may shorten it.
    pub lease_seconds: Positive,
}

/// `POST renew`, request: as for the claim.
pub type RenewRequest = RunClaimRequest;

/// `POST claim`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunClaimResponse {
    /// The run.
    pub run: Run,
    /// When the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<EpochMs>,
    /// Highest stored event cursor; absent or 0 when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_cursor: Option<u64>,
    /// Sequential number of the pinned version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_version: Option<u64>,
    /// Environment of the run; `null` is the organisation's base.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Highest sequence number of the run's journal; absent or 0 when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_journal_seq: Option<u64>,
    /// What this control plane does beyond the protocol of the original: `turnKey`, `wait`, `release`,
    /// `brokered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    /// What the run has used in earlier attempts: where the budgets of this one begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RunUsage>,
}

/// What a run has used so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunUsage {
    /// Cost of its model turns, in millionths of a US dollar.
    #[serde(default, deserialize_with = "null_default")]
    pub usd_micros: u64,
    /// Model tokens, read and written together.
    #[serde(default, deserialize_with = "null_default")]
    pub tokens: u64,
    /// Compute time in milliseconds.
    #[serde(default, deserialize_with = "null_default")]
    pub compute_ms: u64,
}

impl RunClaimResponse {
    /// Whether the control plane takes members beyond the protocol of the original.
    pub fn is_extended(&self) -> bool {
        self.capabilities.as_ref().is_some_and(|capabilities| !capabilities.is_empty())
    }

    /// The highest stored cursor, if any.
    pub fn resume_after(&self) -> Option<Cursor> {
        self.last_event_cursor.and_then(|value| Cursor::new(value).ok())
    }
}

/// An environment, by id and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct Environment {
    /// Its id.
    pub id: EnvironmentId,
    /// Its name.
    pub name: String,
}

/// `POST renew`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RenewResponse {
    /// New end of the lease.
    pub lease_until: EpochMs,
    /// Whether the run is to be cancelled; saves a poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<bool>,
    /// A fresh run token, which takes the place of the one that was sent. From control planes whose tokens end while
    /// their lease lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_token: Option<Token>,
}

/// A run, as its process sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Run {
    /// The run.
    pub id: RunId,
    /// Its organisation.
    pub org_id: OrgId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Its pinned version.
    pub workflow_version_id: VersionId,
    /// Its environment; `null` is the organisation's base.
    #[serde(default)]
    pub environment_id: Option<EnvironmentId>,
    /// Which try this is, from 1. Restarts raise it, wakes do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// The run that called this one.
    #[serde(default)]
    pub parent_run_id: Option<RunId>,
    /// Who started it.
    pub actor: RunActor,
    /// How it arrived: `cron`, `webhook`, `manual`.
    pub trigger_kind: String,
    /// The request of a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_request: Option<RawJson>,
    /// What the trigger brought; the input when `input` is null.
    #[serde(default)]
    pub trigger_payload: RawJson,
    /// Status.
    pub status: RunStatus,
    /// Resolved concurrency key.
    #[serde(default)]
    pub concurrency_key: Option<String>,
    /// Input.
    #[serde(default)]
    pub input: RawJson,
    /// Unused.
    #[serde(default)]
    pub config: RawJson,
    /// Return value of a completed run, `{"error": …}` of a failed one.
    #[serde(default)]
    pub output: RawJson,
    /// Unused.
    #[serde(default)]
    pub state: RawJson,
    /// End of the run lease.
    #[serde(default)]
    pub lease_until: Option<EpochMs>,
    /// Owner of the run lease.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// When a sleeping run wakes.
    #[serde(default)]
    pub next_wake_at: Option<EpochMs>,
    /// The called run that this one waits for.
    #[serde(default)]
    pub waiting_on_run_id: Option<RunId>,
    /// The run that this one repeats.
    #[serde(default)]
    pub retried_from_run_id: Option<RunId>,
    /// When it first ran.
    #[serde(default)]
    pub started_at: Option<EpochMs>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<EpochMs>,
    /// When it was created.
    pub created_at: EpochMs,
    /// Since when it waits for a runner.
    #[serde(default)]
    pub pending_since: Option<EpochMs>,
    /// Reserved.
    #[serde(default)]
    pub outcome_status: Option<String>,
    /// Reserved.
    #[serde(default)]
    pub outcome_reasoning: Option<String>,
    /// Model tokens read so far.
    #[serde(default, deserialize_with = "null_default")]
    pub tokens_in: u64,
    /// Model tokens written so far.
    #[serde(default, deserialize_with = "null_default")]
    pub tokens_out: u64,
    /// Compute time so far.
    #[serde(default, deserialize_with = "null_default")]
    pub runtime_seconds: u64,
    /// How often it was handed to a runner.
    #[serde(default, deserialize_with = "null_default")]
    pub dispatch_attempts: u64,
}

impl Run {
    /// The program's input: `input`, or what the trigger brought when that is null.
    pub fn program_input(&self) -> &RawJson {
        if self.input.is_null() { &self.trigger_payload } else { &self.input }
    }

    /// The webhook request, when it is whole and well formed. A malformed one is left out entirely.
    pub fn webhook_request(&self) -> Option<RunTriggerRequest> {
        self.trigger_request.as_ref().filter(|raw| raw.is_object()).and_then(|raw| raw.decode().ok())
    }
}

/// The HTTP request behind a webhook run. Credential headers are already taken out, names are lower case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct RunTriggerRequest {
    /// Method.
    pub method: String,
    /// Path.
    pub path: String,
    /// Query, as sent; of repeated keys the last.
    pub query: BTreeMap<String, String>,
    /// Headers.
    pub headers: BTreeMap<String, String>,
}

/// Who started a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(tag = "type", rename_all = "lowercase")]
#[serde(remote = "Self")]
pub enum RunActor {
    /// A person.
    User {
        /// The person.
        user_id: String,
    },
    /// A run that called this workflow.
    Workflow {
        /// The calling run.
        parent_run_id: String,
        /// Its workflow.
        parent_workflow_id: String,
        /// The synthetic principal `workflow:<workflow id>`, never a person.
        user_id: String,
    },
    /// A webhook.
    Webhook {
        /// Its name.
        source: String,
    },
    /// A schedule.
    Cron {
        /// Its rule.
        rule: String,
    },
    /// The end of another run.
    Event {
        /// The subscription.
        subscription_id: String,
        /// The run that ended.
        source_run_id: String,
        /// Its workflow.
        source_workflow_id: String,
        /// What happened to it.
        event_type: String,
        /// How many such links led here.
        event_chain_depth: u64,
    },
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum FinalStatus {
    /// It returned.
    Completed,
    /// It failed.
    Failed,
}

/// `POST finalize`, request. Answered 204.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct FinalizeRequest {
    /// How it ended.
    pub status: FinalStatus,
    /// The return value, or `{"error": RunError}`.
    #[serde(default)]
    pub output: RawJson,
    /// Owner of the run lease.
    pub worker_id: WorkerId,
}

impl FinalizeRequest {
    /// A program that returned.
    pub fn completed(worker_id: WorkerId, output: RawJson) -> Self {
        Self { status: FinalStatus::Completed, output, worker_id }
    }

    /// A run that failed.
    ///
    /// # Errors
    /// Never in practice: an error consists of strings.
    pub fn failed(worker_id: WorkerId, error: &RunError) -> Result<Self, RawJsonError> {
        #[derive(Serialize)]
        struct Output<'a> {
            error: &'a RunError,
        }
        Ok(Self { status: FinalStatus::Failed, output: RawJson::encode(&Output { error })?, worker_id })
    }

    /// The error of a failed run, when the output holds one.
    pub fn error(&self) -> Option<RunError> {
        #[derive(Deserialize)]
        struct Output {
            error: RunError,
        }
        match self.status {
            FinalStatus::Completed => None,
            FinalStatus::Failed => self.output.decode::<Output>().ok().map(|output| output.error),
        }
    }
}

/// Why a run failed. All texts are redacted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct RunError {
    /// Code.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why a run was aborted: `cancelled` or `credit_exhausted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST release`, request: the process gives the run back without an end. Answered 204; the run is queued again at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ReleaseRequest {
    /// Owner of the run lease.
    pub worker_id: WorkerId,
    /// Why, for the log.
    pub reason: String,
}

/// `GET version`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct VersionResponse {
    /// The workflow's manifest, with its schemas, as it was stored.
    pub manifest: RawJson,
    /// The program.
    pub program: Program,
}

/// A built program and where to fetch it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Program {
    /// Module to run, relative to the artifact's root.
    pub entry: String,
    /// SHA-256 of the tarball.
    pub digest: crate::ids::Digest,
    /// Version of the SDK that it was built against; `*` when unknown.
    pub sdk_version: String,
    /// Where to fetch it, without credentials.
    pub download_url: String,
}

/// `GET credit`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(remote = "Self")]
pub struct CreditResponse {
    /// Whether the run may go on.
    pub funded: bool,
}

/// `GET cancel`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct CancelResponse {
    /// Whether the run is to be cancelled. Absent reads as false.
    #[serde(default)]
    pub cancel_requested: bool,
}

objects!(
    RunClaimRequest,
    RunClaimResponse,
    RunUsage,
    Environment,
    RenewResponse,
    Run,
    RunTriggerRequest,
    RunActor,
    FinalizeRequest,
    RunError,
    ReleaseRequest,
    VersionResponse,
    Program,
    CreditResponse,
    CancelResponse
);
