//! What can go wrong in the store, in words that a caller can act on.

use std::path::PathBuf;

/// The longest chain of runs that wait for each other by `call`, the first one included.
pub const MAX_CALL_DEPTH: u32 = 32;

/// The result of every store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why the store refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The thing that was named does not exist (any more).
    #[error("{0} not found")]
    NotFound(Entity),
    /// The request lost against the state of the store. Nothing was changed.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The disk (or the size limit of the database) is full. Nothing was changed.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The data on disk is not what was written.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The store is shutting down, or its disk answers with errors. A later attempt may succeed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Another process works on the data directory.
    #[error("{path} is in use by {holder}")]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// Who holds it, as far as the lock file tells (`process 4711`).
        holder: String,
    },
    /// The data directory or a file in it may not be read or written by this user.
    #[error("{path}: {reason}")]
    Denied {
        /// The file or directory.
        path: PathBuf,
        /// The reason in the words of the operating system.
        reason: String,
    },
    /// Bytes that were uploaded are not the bytes that were announced.
    #[error("{0}")]
    Mismatch(String),
    /// The argument breaks a rule of the operation.
    #[error("{0}")]
    Invalid(String),
}

/// What was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entity {
    /// A workflow, by id or slug.
    Workflow,
    /// A workflow version.
    Version,
    /// A run.
    Run,
    /// A pool assignment or its lease.
    Assignment,
    /// A runner.
    Runner,
    /// A runner pool.
    Pool,
    /// A registration token that is unknown, used or expired.
    RegistrationToken,
    /// A secret.
    Secret,
    /// A model provider.
    Provider,
    /// An artifact.
    Artifact,
    /// An announced upload.
    Upload,
    /// Stored bytes.
    Blob,
}

impl std::fmt::Display for Entity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Workflow => "workflow",
            Self::Version => "workflow version",
            Self::Run => "run",
            Self::Assignment => "assignment",
            Self::Runner => "runner",
            Self::Pool => "runner pool",
            Self::RegistrationToken => "registration token",
            Self::Secret => "secret",
            Self::Provider => "model provider",
            Self::Artifact => "artifact",
            Self::Upload => "upload",
            Self::Blob => "stored file",
        })
    }
}

/// Which state a request lost against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// Another runner has the assignment, or nobody may have it any more.
    #[error("the assignment is taken")]
    AssignmentTaken,
    /// The run process of this assignment has already made its run claim.
    #[error("the run was already claimed by its run process")]
    AlreadyClaimed,
    /// The caller's epoch is not the current one, or its lease has lapsed.
    #[error("the run has another owner")]
    Displaced,
    /// The run is in a terminal status.
    #[error("the run has ended")]
    RunEnded,
    /// The runner's assignment lease is gone.
    #[error("the lease is lost")]
    LeaseLost,
    /// The workflow takes no new runs.
    #[error("the workflow is disabled")]
    WorkflowDisabled,
    /// The workflow has no version that could run.
    #[error("the workflow has no version")]
    NoVersion,
    /// The idempotency key was used with another request.
    #[error("the idempotency key was used with another request")]
    IdempotencyKeyReused,
    /// The first request with this idempotency key has not been answered yet.
    #[error("a request with this idempotency key is in progress")]
    IdempotencyInProgress,
    /// The name is taken.
    #[error("the name is taken")]
    NameTaken,
    /// A workflow calls a workflow calls a workflow … more often than anybody means.
    #[error("workflows call each other more than {MAX_CALL_DEPTH} levels deep")]
    CalledTooDeep,
}
