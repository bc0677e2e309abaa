use trestle_contract::host::HostErrorBody;
use trestle_contract::{ErrorBody, ErrorCode};

use crate::abort::AbortReason;
use crate::control::ControlError;

/// A host call that failed; what the program gets to see of it.
#[derive(Debug, Clone)]
pub(crate) struct HostFailure(pub(crate) HostErrorBody);

impl HostFailure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(HostErrorBody::new(code, message))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationFailed, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InternalError, message)
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self(self.0.with_hint(hint))
    }

    pub(crate) fn with_detail(self, detail: &serde_json::Value) -> Self {
        Self(self.0.with_detail(detail))
    }

    /// The run is being ended: no call succeeds any more.
    pub(crate) fn aborted(reason: AbortReason) -> Self {
        let code = match reason {
            AbortReason::BudgetExceeded => ErrorCode::BudgetExceeded,
            _ => ErrorCode::Cancelled,
        };
        let message = match reason {
            AbortReason::Cancelled => "the run was cancelled",
            AbortReason::CreditExhausted => "the run was ended: no credit is left",
            AbortReason::Shutdown | AbortReason::RunnerGone => {
                "the runner is stopping; the run starts again elsewhere"
            }
            AbortReason::BudgetExceeded => "the run was ended: its budget is used up",
            AbortReason::LeaseLost => "the run was taken over by another runner",
        };
        Self(HostErrorBody::new(code, message).with_reason(reason.word()))
    }

    pub(crate) fn code(&self) -> &str {
        self.0.code.as_str()
    }
}

impl From<ControlError> for HostFailure {
    /// The control plane's own code, message and hint where it sent an envelope.
    fn from(error: ControlError) -> Self {
        match error.body() {
            Some(body) => Self(HostErrorBody::from(body)),
            None => Self::internal(error.to_string()),
        }
    }
}

impl From<&ErrorBody> for HostFailure {
    fn from(body: &ErrorBody) -> Self {
        Self(HostErrorBody::from(body))
    }
}

impl std::fmt::Display for HostFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.0.code, self.0.message)
    }
}
