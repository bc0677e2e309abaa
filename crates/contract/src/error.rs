//! The one list of error codes, and the HTTP error envelope (`docs/protocol/control.md` §1.3).

use crate::tolerant::objects;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! error_codes {
    ($( $(#[doc = $doc:literal])+ $name:ident = $text:literal, $status:literal, $reference:literal; )+) => {
        /// Every code that Trestle itself gives to a failure. A program may give codes of its own; on the wire a
        /// code is therefore a string.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ErrorCode {
            $( $(#[doc = $doc])+ #[serde(rename = $text)] $name, )+
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),+];

            /// The code as it is written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text),+ }
            }

            /// The HTTP status that carries it.
            pub const fn status(self) -> u16 {
                match self { $(ErrorCode::$name => $status),+ }
            }

            /// The stable reference of its documentation page.
            pub const fn reference(self) -> &'static str {
                match self { $(ErrorCode::$name => $reference),+ }
            }

            /// The code written as this text, if it is one of ours.
            pub fn from_code(text: &str) -> Option<Self> {
                match text { $($text => Some(ErrorCode::$name),)+ _ => None }
            }
        }
    };
}

error_codes! {
    /// A value does not have the shape or the content asked for.
    ValidationFailed = "VALIDATION_FAILED", 400, "TR0001";
    /// No valid credential.
    Unauthorized = "UNAUTHORIZED", 401, "TR0002";
    /// The credential does not allow it.
    Forbidden = "FORBIDDEN", 403, "TR0003";
    /// Nothing of that name or id.
    NotFound = "NOT_FOUND", 404, "TR0004";
    /// The path exists, the method does not.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, "TR0005";
    /// The state does not allow it: a lost race, a lost lease, a final run.
    Conflict = "CONFLICT", 409, "TR0006";
    /// An idempotency key came again with another body.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", 409, "TR0007";
    /// The workflow is disabled.
    WorkflowDisabled = "WORKFLOW_DISABLED", 409, "TR0008";
    /// The workflow already has as many runs as it may have.
    ConcurrencyLimit = "CONCURRENCY_LIMIT", 409, "TR0009";
    /// A body or a value above its size cap.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, "TR0010";
    /// Known, and not available here.
    Unsupported = "UNSUPPORTED", 422, "TR0011";
    /// A trigger of a kind that the workflow does not have.
    UnsupportedTrigger = "UNSUPPORTED_TRIGGER", 422, "TR0012";
    /// Too many requests.
    RateLimit = "RATE_LIMIT", 429, "TR0013";
    /// A fault of Trestle.
    InternalError = "INTERNAL_ERROR", 500, "TR0014";
    /// The service is starting, stopping or out of room.
    Unavailable = "UNAVAILABLE", 503, "TR0015";
    /// The listen address cannot be bound.
    ListenFailed = "LISTEN_FAILED", 500, "TR0016";
    /// The data directory is in use, not writable, or not one of ours.
    DataDirectory = "DATA_DIRECTORY", 500, "TR0017";
    /// No provider or model is configured for the request.
    ModelUnresolved = "MODEL_UNRESOLVED", 422, "TR0101";
    /// The model provider failed.
    ProviderError = "PROVIDER_ERROR", 502, "TR0102";
    /// A budget of the run is exceeded.
    BudgetExceeded = "BUDGET_EXCEEDED", 402, "TR0103";
    /// A tool failed.
    ToolError = "TOOL_ERROR", 500, "TR0104";
    /// The program threw.
    ProgramError = "PROGRAM_ERROR", 500, "TR0201";
    /// The run was cancelled.
    Cancelled = "CANCELLED", 409, "TR0202";
    /// A called workflow failed.
    ChildFailed = "CHILD_FAILED", 422, "TR0203";
    /// A called workflow was cancelled.
    ChildCancelled = "CHILD_CANCELLED", 422, "TR0204";
    /// The run lost its process too often.
    Crashed = "CRASHED", 500, "TR0205";
    /// The run was ended from outside.
    RunAborted = "RUN_ABORTED", 409, "TR0206";
    /// The program's artifact could not be fetched.
    ProgramFetchFailed = "PROGRAM_FETCH_FAILED", 502, "TR0207";
    /// The program's artifact does not have its digest.
    ProgramIntegrity = "PROGRAM_INTEGRITY", 500, "TR0208";
    /// The run process could not be set up.
    HostBuildFailed = "HOST_BUILD_FAILED", 500, "TR0209";
    /// No interpreter for the program.
    UnsupportedRuntime = "UNSUPPORTED_RUNTIME", 422, "TR0210";
    /// The run cannot be parked here.
    SuspendUnsupported = "SUSPEND_UNSUPPORTED", 422, "TR0211";
    /// A malformed frame of the host protocol.
    ProtocolError = "PROTOCOL_ERROR", 400, "TR0301";
    /// An unknown method of the host protocol.
    MethodNotFound = "METHOD_NOT_FOUND", 404, "TR0302";
    /// Parameters that do not fit the method.
    InvalidParams = "INVALID_PARAMS", 400, "TR0303";
    /// The host socket is gone.
    ConnectionClosed = "CONNECTION_CLOSED", 503, "TR0304";
    /// The model asked for an inline tool that the call did not declare.
    UnknownTool = "UNKNOWN_TOOL", 404, "TR0305";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ErrorCode {
    /// Whether a failure with this code ends the run whatever the program does (`docs/protocol/host.md` §10.3).
    pub const fn is_run_fatal(self) -> bool {
        matches!(self, Self::BudgetExceeded | Self::Cancelled)
    }
}

/// Whether a text has the form of an error code: `^[A-Z][A-Z0-9_]{0,63}$`.
pub fn is_error_code(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_uppercase()
        && bytes.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
}

/// One failure, as HTTP bodies carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct ErrorBody {
    /// The code; one of [`ErrorCode`] when Trestle made it.
    pub code: String,
    /// What happened, for people. Holds no secret and no stack.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The documentation page, `TRnnnn`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

impl ErrorBody {
    /// A failure of ours, with its reference.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: message.into(),
            hint: None,
            reference: Some(code.reference().to_owned()),
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The code, when it is one of ours.
    pub fn known(&self) -> Option<ErrorCode> {
        ErrorCode::from_code(&self.code)
    }
}

/// The envelope of every HTTP failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct ErrorEnvelope {
    /// The failure.
    pub error: ErrorBody,
}

impl From<ErrorBody> for ErrorEnvelope {
    fn from(error: ErrorBody) -> Self {
        Self { error }
    }
}

objects!(ErrorBody, ErrorEnvelope);
