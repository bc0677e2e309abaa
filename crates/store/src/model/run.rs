//! Runs: creation, rows, lists, ends.

use trestle_contract::event::RunStatus;
use trestle_contract::ids::{RunId, VersionId, WorkflowId};
use trestle_contract::json::RawJson;

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// The workflow.
    pub workflow: WorkflowId,
    /// A version of it; `None` pins the current one.
    pub version: Option<VersionId>,
    /// Program input; `None` when the caller gave none.
    pub input: Option<RawJson>,
    /// How it was triggered.
    pub trigger: Trigger,
    /// The actor object (`docs/protocol/control.md` §2.5), byte for byte.
    pub actor: RawJson,
    /// Environment, if one was chosen.
    pub environment: Option<String>,
    /// Resolved concurrency key.
    pub concurrency_key: Option<String>,
    /// Resolved workspace key.
    pub workspace_key: Option<String>,
    /// The run that this one retries.
    pub retried_from: Option<RunId>,
    /// Where it may run.
    pub placement: Placement,
    /// Set for a run started by another run. Needs that run's live fence.
    pub parent: Option<ParentLink>,
    /// Set for a request that carried an idempotency key: the key and the run are written in one
    /// transaction, so a repeat finds the run.
    pub idempotency: Option<IdempotencyKey>,
}

/// How a run was triggered.
#[derive(Debug, Clone)]
pub struct Trigger {
    /// `manual`, `cron`, `webhook`, …
    pub kind: String,
    /// The trigger's payload; the program's input when `input` is absent.
    pub payload: Option<RawJson>,
    /// The webhook request's shape.
    pub request: Option<RawJson>,
}

/// Where a run may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// `runs_on` as the offer shows it (string or object).
    pub runs_on: RawJson,
    /// Name of the pool that is asked.
    pub pool: String,
    /// Labels that the runner must have, all of them.
    pub labels: Vec<String>,
}

/// Link of a child to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentLink {
    /// The parent's fence.
    pub fence: super::lease::Fence,
    /// Identity of the child within the parent: a hash of slug, canonical input and ordinal, or of
    /// the program's own key. A second creation with it returns the first child.
    pub identity: String,
    /// Whether the parent waits for it.
    pub kind: ChildKind,
}

/// Whether a child lives for its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// Started by `workflows.call`: cancelled when the parent is cancelled or fails.
    Call,
    /// Started by `workflows.run`: lives on.
    Run,
}

/// An idempotency key of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Who asks; keys of different principals never meet.
    pub principal: String,
    /// The key.
    pub key: String,
    /// Hash over method, path and body. Another one under the same key is a conflict.
    pub request_hash: String,
}

/// What a creation did.
#[derive(Debug, Clone)]
pub struct CreatedRun {
    /// The run, new or found.
    pub run: RunRow,
    /// False when the run existed before (repeat of a key, re-attached child).
    pub created: bool,
}

/// A run with everything.
#[derive(Debug, Clone)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Organisation.
    pub organisation: String,
    /// Workflow.
    pub workflow: WorkflowId,
    /// Slug of the workflow.
    pub workflow_slug: String,
    /// Pinned version.
    pub version: VersionId,
    /// Number of the pinned version.
    pub version_number: i64,
    /// Status.
    pub status: RunStatus,
    /// 1-based try.
    pub attempt: u32,
    /// The newest fencing token.
    pub epoch: u64,
    /// Program input.
    pub input: Option<RawJson>,
    /// Trigger kind.
    pub trigger_kind: String,
    /// Trigger payload.
    pub trigger_payload: Option<RawJson>,
    /// Webhook request.
    pub trigger_request: Option<RawJson>,
    /// Actor object.
    pub actor: RawJson,
    /// Environment.
    pub environment: Option<String>,
    /// Concurrency key.
    pub concurrency_key: Option<String>,
    /// Workspace key.
    pub workspace_key: Option<String>,
    /// Parent run.
    pub parent: Option<RunId>,
    /// The run this one retries.
    pub retried_from: Option<RunId>,
    /// Where it may run.
    pub placement: Placement,
    /// Output as finalized (for a failed run the `{error}` object).
    pub output: Option<RawJson>,
    /// Error of a failed run.
    pub error: Option<RunFailure>,
    /// Creation, ms.
    pub created_at: i64,
    /// Since when it waits for a runner, ms.
    pub pending_since: Option<i64>,
    /// First run claim, ms.
    pub started_at: Option<i64>,
    /// End, ms.
    pub completed_at: Option<i64>,
    /// When a cancel was asked for, ms.
    pub cancel_requested_at: Option<i64>,
    /// Name of the worker that holds or last held it.
    pub worker: Option<String>,
    /// End of the run lease while it is held, ms.
    pub lease_until: Option<i64>,
    /// Totals of what it has used.
    pub totals: RunTotals,
    /// How often it was handed to a runner.
    pub dispatch_attempts: i64,
}

/// What a run has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTotals {
    /// Input tokens.
    pub tokens_in: i64,
    /// Output tokens.
    pub tokens_out: i64,
    /// Input tokens read from a cache; part of `tokens_in`.
    pub cached_tokens_in: i64,
    /// Input tokens written to a cache; part of `tokens_in`.
    pub cached_write_tokens: i64,
    /// Cost in millionths of a US dollar.
    pub cost_micros: i64,
    /// Compute time in vCPU-seconds.
    pub runtime_seconds: i64,
}

/// Error of a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunFailure {
    /// Code, SCREAMING_SNAKE.
    pub code: String,
    /// Message, already redacted.
    pub message: String,
    /// What the author can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why a run was aborted (`cancelled`, `credit_exhausted`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A row of a run list: no input, no output.
#[derive(Debug, Clone)]
pub struct RunListRow {
    /// Its id.
    pub id: RunId,
    /// Workflow.
    pub workflow: WorkflowId,
    /// Slug of the workflow.
    pub workflow_slug: String,
    /// Status.
    pub status: RunStatus,
    /// Trigger kind.
    pub trigger_kind: String,
    /// Try.
    pub attempt: u32,
    /// Parent run.
    pub parent: Option<RunId>,
    /// Concurrency key.
    pub concurrency_key: Option<String>,
    /// Workspace key.
    pub workspace_key: Option<String>,
    /// Creation, ms.
    pub created_at: i64,
    /// First run claim, ms.
    pub started_at: Option<i64>,
    /// End, ms.
    pub completed_at: Option<i64>,
    /// Totals.
    pub totals: RunTotals,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only of this workflow.
    pub workflow: Option<WorkflowId>,
    /// Only in this status.
    pub status: Option<RunStatus>,
    /// Only children of this run.
    pub parent: Option<RunId>,
    /// Position from a former page.
    pub after: Option<RunPosition>,
    /// At most so many rows; clamped to 1..=1000.
    pub limit: u32,
}

/// A position in the list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunPosition(pub i64);

/// One page of runs.
#[derive(Debug, Clone)]
pub struct RunPage {
    /// The rows, newest first.
    pub runs: Vec<RunListRow>,
    /// Where the next page starts, if there is one.
    pub next: Option<RunPosition>,
}

/// A run's result as its run process reports it.
#[derive(Debug, Clone)]
pub struct Finalize {
    /// The reporting session.
    pub fence: super::lease::Fence,
    /// What happened.
    pub outcome: Outcome,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It returned.
    Completed {
        /// Its value, byte for byte.
        output: RawJson,
    },
    /// It failed.
    Failed {
        /// The `{error}` object, byte for byte.
        output: RawJson,
        /// The error inside it.
        error: RunFailure,
    },
}

/// What a finalize did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finalized {
    /// The status that was stored (`cancelled` when the run was `cancelling`).
    pub status: RunStatus,
    /// True when this epoch had finalized before: nothing was changed.
    pub repeated: bool,
}

/// What a cancel request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The run had ended before; nothing was changed.
    AlreadyEnded(RunStatus),
    /// No process held the run; it is `cancelled`.
    Cancelled,
    /// A process holds it and has to end it; it is `cancelling`.
    Cancelling,
}
