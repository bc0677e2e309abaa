//! Workflows and their versions.

use trestle_contract::ids::{VersionId, WorkflowId};
use trestle_contract::json::RawJson;

/// The organisation of this installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organisation {
    /// ULID, made at the first start.
    pub id: String,
    /// `local`.
    pub slug: String,
    /// When it was made, ms since the epoch.
    pub created_at: i64,
}

/// Which workflow a deploy is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeployTarget {
    /// The workflow of this slug; made if there is none.
    Slug(String),
    /// An existing workflow; its slug stays as it is.
    Workflow(WorkflowId),
}

/// A version to be deployed. The artifact's bytes are already in the blob store.
#[derive(Debug, Clone)]
pub struct NewVersion {
    /// The workflow.
    pub target: DeployTarget,
    /// SHA-256 (hex) over path, mode and content digest of every file. A version of the same
    /// workflow with the same identity and the same `deploy_options` is that version.
    pub identity: String,
    /// The stored manifest: descriptor plus derived schemas.
    pub manifest: RawJson,
    /// Title of the descriptor.
    pub title: Option<String>,
    /// Kinds of the descriptor's triggers, in their order, without repeats.
    pub trigger_kinds: Vec<String>,
    /// The program artifact.
    pub program: ProgramRow,
    /// The source files shown by the API (`[{path,content}]`), absent when too large.
    pub source_files: Option<RawJson>,
    /// Deploy options that live beside the manifest, as JSON; part of the version's sameness.
    pub deploy_options: Option<RawJson>,
    /// Warnings that each run of this version repeats.
    pub warnings: Vec<String>,
}

/// A program artifact as the API names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRow {
    /// SHA-256 of the archive, hex. Integrity only, not identity.
    pub digest: String,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Entry module inside the archive.
    pub entry: String,
    /// The SDK version that the artifact was built against, or `*`.
    pub sdk_version: String,
    /// Digest of the lock file, if there was one.
    pub lockfile_digest: Option<String>,
    /// Key of the archive in the blob store.
    pub blob_key: String,
}

/// What a deploy did.
#[derive(Debug, Clone)]
pub struct Deployed {
    /// The workflow after the deploy.
    pub workflow: WorkflowRow,
    /// The version that is current now.
    pub version: VersionRow,
    /// Whether the workflow was made by this deploy.
    pub workflow_created: bool,
    /// Whether a version was made (false: the content was deployed before).
    pub version_created: bool,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRow {
    /// Its id.
    pub id: WorkflowId,
    /// Its slug, fixed at creation.
    pub slug: String,
    /// Title of the current version.
    pub title: Option<String>,
    /// The version that new runs get.
    pub current_version: Option<VersionId>,
    /// Trigger kinds of the current version.
    pub trigger_kinds: Vec<String>,
    /// Creation, ms.
    pub created_at: i64,
    /// Last deploy, disable or enable, ms.
    pub updated_at: i64,
    /// Since when it takes no new runs, ms.
    pub disabled_at: Option<i64>,
}

/// A row of the workflow list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowListRow {
    /// The workflow.
    pub workflow: WorkflowRow,
    /// Status and creation time (ms) of its newest run.
    pub last_run: Option<(trestle_contract::event::RunStatus, i64)>,
}

/// One version of a workflow.
#[derive(Debug, Clone)]
pub struct VersionRow {
    /// Its id.
    pub id: VersionId,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// 1, 2, 3 … within the workflow.
    pub number: i64,
    /// Content identity, hex.
    pub identity: String,
    /// The stored manifest, byte for byte.
    pub manifest: RawJson,
    /// The program artifact.
    pub program: ProgramRow,
    /// The source files shown by the API.
    pub source_files: Option<RawJson>,
    /// Deploy options that live beside the manifest.
    pub deploy_options: Option<RawJson>,
    /// Warnings that each run repeats.
    pub warnings: Vec<String>,
    /// Creation, ms.
    pub created_at: i64,
}

/// A row of a workflow's version list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionListRow {
    /// Its id.
    pub id: VersionId,
    /// 1, 2, 3 …
    pub number: i64,
    /// Creation, ms.
    pub created_at: i64,
}
