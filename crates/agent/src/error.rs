use thiserror::Error;
use trestle_contract::ErrorCode;
use trestle_contract::json::RawJson;
use trestle_domain::Redactor;

/// Why an `agent()` call, or something that it asked its host for, failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{code}: {message}")]
pub struct AgentError {
    /// What kind of failure it is. `BUDGET_EXCEEDED` and `CANCELLED` end the run.
    pub code: ErrorCode,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Why the run was aborted, beside `CANCELLED`.
    pub reason: Option<String>,
    /// Further facts for the program, such as a child's id.
    pub detail: Option<RawJson>,
}

impl AgentError {
    /// A failure without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, reason: None, detail: None }
    }

    /// The same failure with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure of a run that was aborted for this reason (`cancelled`,
    /// `credit_exhausted`, `lease_lost`).
    pub fn cancelled(reason: &str) -> Self {
        let mut error = Self::new(ErrorCode::Cancelled, format!("the run was aborted: {reason}"));
        error.reason = Some(reason.to_owned());
        error
    }

    /// Whether it ends the run, so that no model gets to see it.
    pub fn is_run_fatal(&self) -> bool {
        self.code.is_run_fatal()
    }

    pub(crate) fn redacted(mut self, redactor: &Redactor) -> Self {
        self.message = redactor.redact_str(&self.message);
        self.hint = self.hint.map(|hint| redactor.redact_str(&hint));
        self.detail = self.detail.map(|detail| redactor.redact_json(&detail));
        self
    }

    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationFailed, message).with_hint(hint)
    }

    pub(crate) fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unsupported, message).with_hint(hint)
    }
}
