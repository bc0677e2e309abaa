//! What a caller is told when a request fails: a public half in the envelope,
//! and a private half that only the log sees.

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use trestle_contract::error::{ErrorBody, ErrorCode, ErrorEnvelope};

/// A refused or failed request.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Told>);

#[derive(Debug, Clone)]
struct Told {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
    status: Option<StatusCode>,
    challenge: bool,
}

/// What every handler returns.
pub(crate) type Answer<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Told { code, message: message.into(), hint: None, status: None, challenge: false }))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Another status than the usual one of the code.
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.0.status = Some(status);
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationFailed, message)
    }

    pub(crate) fn not_found(what: &str, name: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("{what} `{}` not found", shown(name)))
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Forbidden, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unsupported, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        let mut failure = Self::new(ErrorCode::Unauthorized, message);
        failure.0.challenge = true;
        failure
    }

    pub(crate) fn too_large(limit: u64) -> Self {
        Self::new(ErrorCode::PayloadTooLarge, format!("the request body exceeds {limit} bytes"))
    }

    /// A failure of the server itself. The cause goes to the log; the caller
    /// learns only that it happened.
    pub(crate) fn internal(cause: impl Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(ErrorCode::InternalError, "the server failed on this request")
            .hint("try again; the cause is in the log of the server")
    }

    pub(crate) fn http_status(&self) -> StatusCode {
        self.0.status.unwrap_or_else(|| {
            StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        })
    }
}

/// A caller's own text, cut so that an error stays readable.
pub(crate) fn shown(text: &str) -> String {
    const LIMIT: usize = 120;
    let mut shown: String = text
        .chars()
        .take(LIMIT)
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect();
    if text.chars().nth(LIMIT).is_some() {
        shown.push('\u{2026}');
    }
    shown
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.http_status();
        let envelope = ErrorEnvelope {
            error: ErrorBody { hint: self.0.hint, ..ErrorBody::new(self.0.code, self.0.message) },
        };
        let body = serde_json::to_vec(&envelope).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        if self.0.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

impl From<trestle_store::StoreError> for Failure {
    fn from(error: trestle_store::StoreError) -> Self {
        use trestle_store::{Conflict, Entity, StoreError};
        match error {
            StoreError::NotFound(Entity::RegistrationToken) => {
                Self::unauthorized("the registration token is unknown, used or expired")
                    .hint("get a new one: trestle runner token")
            }
            StoreError::NotFound(entity) => Self::new(ErrorCode::NotFound, format!("{entity} not found")),
            StoreError::Conflict(conflict) => {
                let code = match conflict {
                    Conflict::WorkflowDisabled => ErrorCode::WorkflowDisabled,
                    Conflict::IdempotencyKeyReused => ErrorCode::IdempotencyKeyReused,
                    _ => ErrorCode::Conflict,
                };
                let failure = Self::new(code, conflict.to_string());
                match conflict {
                    Conflict::WorkflowDisabled => failure.hint("enable it: POST /v1/workflows/{id}/enable"),
                    Conflict::CalledTooDeep => failure.hint(
                        "look for a workflow that calls itself; workflows.run starts one without waiting",
                    ),
                    Conflict::IdempotencyKeyReused => {
                        failure.hint("take a new Idempotency-Key for another request")
                    }
                    _ => failure,
                }
            }
            StoreError::Invalid(message) | StoreError::Mismatch(message) => Self::invalid(message),
            StoreError::Full(cause) => {
                tracing::error!(%cause, "the store is full");
                Self::new(ErrorCode::Unavailable, "the server is out of disk space")
                    .hint("free space on the disk of the data directory")
            }
            StoreError::Unavailable(cause) => {
                tracing::error!(%cause, "the store is not available");
                Self::new(ErrorCode::Unavailable, "the store is not available at the moment")
            }
            other => Self::internal(other),
        }
    }
}
