use std::io;
use std::path::PathBuf;
use std::time::Duration;

use trestle_contract::error::ErrorCode;

/// Why the runner cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The control plane answered a pool call with another status than success.
    #[error("{operation} failed ({status}): {text}")]
    Refused {
        /// `register`, `poll`, `claim`, `heartbeat`, `deregister` or `release`.
        operation: &'static str,
        /// HTTP status.
        status: u16,
        /// The first 500 characters of the answer.
        text: String,
        /// How long the answer asks to wait.
        retry_after: Option<Duration>,
    },
    /// The control plane could not be reached, or did not answer in time.
    #[error("{operation} failed: {source}")]
    Unreachable {
        /// The operation, as above.
        operation: &'static str,
        /// What the connection said.
        #[source]
        source: reqwest::Error,
    },
    /// A success answer that is not of the pool protocol.
    #[error("Invalid {what}:\n  {problem}")]
    InvalidAnswer {
        /// `registration response`, `poll response`, `claim response` or `heartbeat response`.
        what: &'static str,
        /// What does not fit, with the place.
        problem: String,
    },
    /// The address of the control plane is no absolute HTTP address.
    #[error("{url} is no http or https address")]
    Address {
        /// What was given.
        url: String,
    },
    /// No identity is saved for this control plane and pool.
    #[error("no runner is registered at {url} in pool {pool}")]
    NotRegistered {
        /// Control plane.
        url: String,
        /// Pool.
        pool: String,
    },
    /// The identity saved under this name is of another origin: the same host by another scheme, say.
    #[error("the saved identity is of {saved}, not of {asked}")]
    OtherOrigin {
        /// The control plane that the identity was made for.
        saved: String,
        /// The one that was asked for.
        asked: String,
    },
    /// One run process after the other could not be started.
    #[error("{count} runs in a row could not be started, the last one because: {reason}")]
    CannotStart {
        /// How many.
        count: u32,
        /// Why the last one could not.
        reason: String,
    },
    /// A file or directory of the runner cannot be used.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// Another runner process works in the same directory.
    #[error("another runner works in {}", path.display())]
    WorkDirectoryLocked {
        /// The directory.
        path: PathBuf,
    },
    /// Node is missing or too old.
    #[error(transparent)]
    Interpreter(#[from] trestle_sandbox::InterpreterError),
    /// A process could not be started.
    #[error(transparent)]
    Sandbox(#[from] trestle_sandbox::SandboxError),
}

impl RunnerError {
    /// The stable code of the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { status: 401, .. } => ErrorCode::Unauthorized,
            Self::Refused { status: 403, .. } => ErrorCode::Forbidden,
            Self::Refused { status: 409, .. } => ErrorCode::Conflict,
            Self::NotRegistered { .. } => ErrorCode::NotFound,
            Self::OtherOrigin { .. } => ErrorCode::Conflict,
            Self::Interpreter(_) => ErrorCode::UnsupportedRuntime,
            Self::Address { .. } | Self::InvalidAnswer { .. } => ErrorCode::ValidationFailed,
            _ => ErrorCode::InternalError,
        }
    }

    /// What the person at the terminal can do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Refused { operation: "register", status: 401, .. } => {
                "registration tokens work once and for one hour: mint a new one with `trestle runner token`"
                    .to_owned()
            }
            Self::Refused { operation: "poll", status: 401, .. } => {
                "this runner was removed: register it again with a token from `trestle runner token`"
                    .to_owned()
            }
            Self::Refused { operation: "poll", status: 403, .. } => {
                "the control plane refuses this version: update trestle on this machine".to_owned()
            }
            Self::Unreachable { .. } => {
                "check --url, and that the server is running and reachable from here".to_owned()
            }
            Self::Address { .. } => {
                "give the origin of the server, for example http://127.0.0.1:7070".to_owned()
            }
            Self::NotRegistered { url, pool } => {
                format!(
                    "run `trestle runner register --url {url} --token TOKEN`, with a token from `trestle runner token --pool {pool}`"
                )
            }
            Self::OtherOrigin { saved, .. } => {
                format!("use --url {saved}, or keep this one's identity apart with --identity-dir")
            }
            Self::CannotStart { .. } => {
                "the runner gave the runs back and ended; look for a full disk, a missing interpreter, or limits of this user".to_owned()
            }
            Self::WorkDirectoryLocked { .. } => {
                "this identity is in use by another process: stop it, or register a second runner with its own --identity-dir".to_owned()
            }
            Self::Interpreter(error) => error.hint().to_owned(),
            Self::File { .. } => {
                "check that the directory exists and that this user may write there".to_owned()
            }
            _ => return None,
        })
    }

    /// How long to wait before the next try, if the control plane said so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the request may have been executed although no answer came, or will be if sent again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => matches!(status, 429 | 500..=599),
            _ => false,
        }
    }

    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
