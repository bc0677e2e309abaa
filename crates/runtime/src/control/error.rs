use trestle_contract::{ErrorBody, ErrorEnvelope};

/// Why a call did not give what was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ControlError {
    /// The control plane answered with another status than the expected one.
    #[error("{operation}: the control plane answered {status}{}", describe(body.as_ref()))]
    Status { operation: &'static str, status: u16, body: Option<ErrorBody> },
    /// No usable answer after all attempts.
    #[error("{operation}: the control plane cannot be reached: {message}")]
    Unreachable { operation: &'static str, message: String },
    /// The answer does not have the agreed shape.
    #[error("{operation}: the control plane's answer cannot be read: {message}")]
    Shape { operation: &'static str, message: String },
}

fn describe(body: Option<&ErrorBody>) -> String {
    body.map(|body| format!(" ({}: {})", body.code, body.message)).unwrap_or_default()
}

impl ControlError {
    pub(crate) fn from_answer(operation: &'static str, status: u16, body: &[u8]) -> Self {
        let body = serde_json::from_slice::<ErrorEnvelope>(body).ok().map(|envelope| envelope.error);
        Self::Status { operation, status, body }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Shape { .. } => None,
        }
    }

    pub(crate) fn body(&self) -> Option<&ErrorBody> {
        match self {
            Self::Status { body, .. } => body.as_ref(),
            Self::Unreachable { .. } | Self::Shape { .. } => None,
        }
    }

    /// Whether a repeat would get the same answer.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.status(), Some(status) if !matches!(status, 408 | 425 | 429 | 500..))
    }

    /// Whether the answer says that this process no longer speaks for the run.
    pub(crate) fn is_displaced(&self) -> bool {
        matches!(self.status(), Some(401 | 403 | 404 | 409 | 410))
    }
}
