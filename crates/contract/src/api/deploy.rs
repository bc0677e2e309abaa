//! Workflows and their versions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::EpochMs;
use crate::event::RunStatus;
use crate::ids::{Digest, Slug, VersionId, WorkflowId};
use crate::json::RawJson;
use crate::tolerant::objects;

/// An uploaded artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactReference {
    /// SHA-256 of the tarball.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Module to run, relative to the artifact's root.
    pub entry: String,
    /// Version of the SDK that it was built against; `*` when unknown.
    pub sdk_version: String,
    /// SHA-256 of the lock file; `null` when there is none.
    #[serde(default)]
    pub lockfile_digest: Option<String>,
}

/// `POST /v1/orgs/{slug}/workflows/artifact-upload-url`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct UploadUrlRequest {
    /// SHA-256 of the tarball.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// `POST /v1/orgs/{slug}/workflows/artifact-upload-url`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct UploadUrlResponse {
    /// Where to PUT the bytes, without credentials.
    pub upload_url: String,
    /// Content type to send.
    pub content_type: String,
}

/// `POST /v1/orgs/{slug}/workflows` and `PATCH /v1/workflows/{id}`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct DeployRequest {
    /// The uploaded artifact. Slug, triggers and policy are read from its descriptor.
    pub artifact: ArtifactReference,
    /// Deploy although the descriptor asks for what this server does not have; each run then warns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unsupported: bool,
}

/// `POST /v1/orgs/{slug}/workflows` and `PATCH /v1/workflows/{id}`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct DeployResponse {
    /// The workflow.
    pub workflow: DeployedWorkflow,
    /// The version that is now current.
    pub version: DeployedVersion,
    /// What the author should know.
    #[serde(default)]
    pub warnings: Vec<DeployWarning>,
}

/// A workflow after a deploy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct DeployedWorkflow {
    /// The workflow.
    pub id: WorkflowId,
    /// Its slug; never changes.
    pub slug: Slug,
    /// Its current version.
    pub current_version_id: Option<VersionId>,
}

/// A version after a deploy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct DeployedVersion {
    /// The version.
    pub id: VersionId,
    /// Its number within the workflow, from 1.
    pub number: u64,
}

/// Something that the author should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct DeployWarning {
    /// The text.
    pub message: String,
    /// Path of the descriptor's field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The last run of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct LastRun {
    /// Its status.
    pub status: RunStatus,
    /// When it was created.
    pub at: EpochMs,
}

/// One row of the list of workflows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct WorkflowRow {
    /// The workflow.
    pub id: WorkflowId,
    /// Its slug.
    pub slug: Slug,
    /// Its title.
    #[serde(default)]
    pub title: Option<String>,
    /// Its current version.
    pub current_version_id: Option<VersionId>,
    /// What can start it.
    #[serde(default)]
    pub trigger_kinds: Vec<String>,
    /// When it was last deployed.
    #[serde(default)]
    pub updated_at: Option<EpochMs>,
    /// Its last run.
    #[serde(default)]
    pub last_run: Option<LastRun>,
    /// Since when it is disabled.
    #[serde(default)]
    pub disabled_at: Option<EpochMs>,
}

/// `GET /v1/orgs/{slug}/workflows`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct WorkflowList {
    /// All of them, by slug.
    pub workflows: Vec<WorkflowRow>,
}

/// The head of a workflow's details.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct WorkflowHead {
    /// The workflow.
    pub id: WorkflowId,
    /// Its slug.
    pub slug: Slug,
    /// Its current version.
    pub current_version_id: Option<VersionId>,
    /// Since when it is disabled.
    #[serde(default)]
    pub disabled_at: Option<EpochMs>,
}

/// One source file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ProgramFile {
    /// Path within the package.
    pub path: String,
    /// Its text.
    pub content: String,
}

/// The program of a workflow's current version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ProgramView {
    /// Module to run.
    #[serde(default)]
    pub entry: Option<String>,
    /// Source files; absent when they are too large to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<ProgramFile>>,
}

/// One row of the list of versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct VersionRow {
    /// The version.
    pub id: VersionId,
    /// Its number within the workflow.
    pub number: u64,
    /// When it was deployed.
    #[serde(default)]
    pub created_at: EpochMs,
}

/// `GET /v1/workflows/{id}`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct WorkflowDetail {
    /// The workflow.
    pub workflow: WorkflowHead,
    /// Manifest of its current version, with its schemas.
    #[serde(default)]
    pub manifest: RawJson,
    /// Program of its current version.
    pub program: ProgramView,
    /// Newest first.
    #[serde(default)]
    pub versions: Vec<VersionRow>,
}

/// Whether a workflow is disabled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct WorkflowDisabled {
    /// The workflow.
    pub id: WorkflowId,
    /// Since when; `null` when it is enabled.
    pub disabled_at: Option<EpochMs>,
}

/// `POST /v1/workflows/{id}/disable` and `/enable`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct WorkflowState {
    /// The workflow.
    pub workflow: WorkflowDisabled,
}

objects!(
    ArtifactReference,
    UploadUrlRequest,
    UploadUrlResponse,
    DeployRequest,
    DeployResponse,
    DeployedWorkflow,
    DeployedVersion,
    DeployWarning,
    LastRun,
    WorkflowRow,
    WorkflowList,
    WorkflowHead,
    ProgramFile,
    ProgramView,
    VersionRow,
    WorkflowDetail,
    WorkflowDisabled,
    WorkflowState
);
