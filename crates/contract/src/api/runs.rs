//! Runs, their events, gates and artifacts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::EpochMs;
use crate::event::{RunStatus, StoredEvent};
use crate::ids::{ArtifactId, RunId, WorkflowId};
use crate::json::RawJson;
use crate::tolerant::{objects, present};

/// `POST /v1/orgs/{slug}/workflows/{id}/runs`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct TriggerRequest {
    /// The input, byte for byte; `null` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub input: Option<RawJson>,
    /// Name of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

/// A run just created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct TriggeredRun {
    /// The run.
    pub id: RunId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Its status.
    pub status: RunStatus,
    /// Reserved.
    pub outcome_status: Option<String>,
    /// When it first ran.
    pub started_at: Option<EpochMs>,
    /// When it ended.
    pub completed_at: Option<EpochMs>,
}

/// `POST /v1/orgs/{slug}/workflows/{id}/runs`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct RunTriggered {
    /// The run.
    pub run: TriggeredRun,
}

/// One row of a list of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// The workflow's slug.
    #[serde(default)]
    pub workflow_slug: Option<String>,
    /// Its status.
    pub status: RunStatus,
    /// Reserved.
    #[serde(default)]
    pub outcome_status: Option<String>,
    /// How it arrived: `cron`, `webhook`, `manual`.
    #[serde(default)]
    pub trigger_kind: Option<String>,
    /// When it was created.
    #[serde(default)]
    pub created_at: EpochMs,
    /// When it first ran.
    #[serde(default)]
    pub started_at: Option<EpochMs>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<EpochMs>,
    /// Compute time.
    #[serde(default)]
    pub runtime_seconds: u64,
    /// Resolved concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Resolved workspace key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_key: Option<String>,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct RunFailure {
    /// Code.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunDetail {
    /// The run.
    pub id: RunId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// The workflow's slug.
    #[serde(default)]
    pub workflow_slug: Option<String>,
    /// Number of the workflow's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_version: Option<u64>,
    /// Its status.
    pub status: RunStatus,
    /// Reserved.
    #[serde(default)]
    pub outcome_status: Option<String>,
    /// How it arrived: `cron`, `webhook`, `manual`.
    #[serde(default)]
    pub trigger_kind: Option<String>,
    /// When it was created.
    #[serde(default)]
    pub created_at: EpochMs,
    /// When it first ran.
    #[serde(default)]
    pub started_at: Option<EpochMs>,
    /// When it ended.
    #[serde(default)]
    pub completed_at: Option<EpochMs>,
    /// Compute time.
    #[serde(default)]
    pub runtime_seconds: u64,
    /// Model tokens read.
    #[serde(default)]
    pub tokens_in: u64,
    /// Model tokens written.
    #[serde(default)]
    pub tokens_out: u64,
    /// Part of the tokens read that came from a provider's cache.
    #[serde(default)]
    pub cached_tokens_in: u64,
    /// Part of the tokens read that was written into a provider's cache.
    #[serde(default)]
    pub cached_write_tokens: u64,
    /// Cost of the model calls; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Resolved concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Resolved workspace key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_key: Option<String>,
    /// Which try it is at, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// The run that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Its input, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub input: Option<RawJson>,
    /// Its return value, byte for byte; absent until it completed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub output: Option<RawJson>,
    /// Why it failed.
    pub error: Option<RunFailure>,
}

/// `GET /v1/runs/{id}`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct RunDetailResponse {
    /// The run.
    pub run: RunDetail,
}

/// `GET /v1/orgs/{slug}/runs` and `GET /v1/orgs/{slug}/workflows/{id}/runs`, response; newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunList {
    /// The rows.
    pub runs: Vec<RunSummary>,
    /// For the next page; `null` on the last.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// A run after a cancel; the reference answer is 204 without a body.
pub type CancelledRun = TriggeredRun;

/// `GET /v1/runs/{id}/events`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct EventList {
    /// Ascending by cursor.
    pub events: Vec<StoredEvent>,
    /// Whether the run has ended and no event will follow.
    #[serde(default)]
    pub done: bool,
    /// Where to ask on: the highest cursor looked at, filtered events included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<u64>,
}

/// Data of the `stream_error` message of an event stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct StreamFailure {
    /// What happened, for people.
    pub message: String,
}

/// One open or answered gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct GateRow {
    /// The run.
    pub run_id: RunId,
    /// Key of the gate.
    pub key: String,
    /// The question.
    #[serde(default)]
    pub prompt: String,
    /// Form of the answer.
    #[serde(default)]
    pub input: RawJson,
    /// Who may answer.
    #[serde(default)]
    pub assignees: Option<Vec<String>>,
    /// `pending`, `resolved`, `expired`, `cancelled`.
    pub status: String,
    /// When it was opened.
    #[serde(default)]
    pub created_at: EpochMs,
}

/// `GET /v1/runs/{id}/inputs` and `GET /v1/orgs/{slug}/inputs`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct GateList {
    /// The gates.
    pub inputs: Vec<GateRow>,
}

/// `POST /v1/runs/{id}/inputs/{key}`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct RespondRequest {
    /// To a text or a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// To a multiselect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
    /// A text that is none of the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

/// One artifact of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactRow {
    /// The artifact.
    pub id: ArtifactId,
    /// File name.
    pub name: String,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The author's own facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawJson>,
    /// When it was written.
    pub created_at: EpochMs,
}

/// `GET /v1/runs/{id}/artifacts`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ArtifactRowList {
    /// Oldest first.
    pub artifacts: Vec<ArtifactRow>,
}

/// Where to read an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactUrl {
    /// Address, without credentials.
    pub signed_url: String,
    /// Until when it works.
    pub expires_at: EpochMs,
}

objects!(
    TriggerRequest,
    TriggeredRun,
    RunTriggered,
    RunSummary,
    RunFailure,
    RunDetail,
    RunDetailResponse,
    RunList,
    EventList,
    StreamFailure,
    GateRow,
    GateList,
    RespondRequest,
    ArtifactRow,
    ArtifactRowList,
    ArtifactUrl
);
