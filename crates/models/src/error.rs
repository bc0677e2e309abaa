//! What can go wrong with a model endpoint, in words for the author of a program.

use std::time::Duration;

/// What kind of failure it was; decides whether another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The endpoint's address or key is set wrongly on our side.
    Configuration,
    /// No connection: name not found, refused, TLS, timeout while connecting.
    Unreachable,
    /// The key was missing, wrong, or lacks a right (401, 403).
    Authentication,
    /// The address or the model is not known there (404).
    NotFound,
    /// Too many requests (429).
    RateLimited,
    /// Out of credit: waiting does not help.
    Quota,
    /// The provider's own trouble (5xx, 529, `overloaded_error`).
    Overloaded,
    /// The request was refused as wrong (other 4xx).
    BadRequest,
    /// The conversation is longer than the model's context window.
    ContextTooLong,
    /// The provider's safety system stopped the answer.
    ContentFilter,
    /// The answer is not what the wire format says.
    MalformedStream,
    /// The answer broke off before its terminal event.
    Interrupted,
    /// Nothing arrived for the idle timeout, or the turn's deadline passed.
    TimedOut,
}

impl ErrorClass {
    /// Whether the same request may succeed when it is sent again.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            Self::Unreachable
            | Self::RateLimited
            | Self::Overloaded
            | Self::MalformedStream
            | Self::Interrupted
            | Self::TimedOut => true,
            Self::Configuration
            | Self::Authentication
            | Self::NotFound
            | Self::Quota
            | Self::BadRequest
            | Self::ContextTooLong
            | Self::ContentFilter => false,
        }
    }

    /// What the author or operator can do about it.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Configuration => {
                Some("check the model's address and key in the server's settings (docs/guides/models.md)")
            }
            Self::Unreachable => {
                Some("check that the model server runs and that its address is right (TRESTLE_MODEL_URL)")
            }
            Self::Authentication => Some("check the key of the model endpoint (TRESTLE_MODEL_KEY)"),
            Self::NotFound => Some(
                "check the model's name and the address: an OpenAI-compatible address usually ends with /v1, an Anthropic one does not",
            ),
            Self::RateLimited => Some(
                "the provider limits the rate of requests: run fewer turns at once, or raise the limit there",
            ),
            Self::Quota => Some("the provider's account is out of credit or quota"),
            Self::ContextTooLong => {
                Some("shorten the prompt or the attachments, or choose a model with a larger context window")
            }
            Self::ContentFilter => Some(
                "the provider's safety system stopped this answer: rephrase the prompt, or choose another model",
            ),
            Self::MalformedStream => Some(
                "the endpoint does not speak the wire format that is set (TRESTLE_MODEL_PROVIDER), or its address is wrong",
            ),
            Self::TimedOut => Some("the model server accepted the request and then stayed silent"),
            Self::Overloaded | Self::BadRequest | Self::Interrupted => None,
        }
    }
}

/// A model call that failed for good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure.
    pub class: ErrorClass,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// A sentence for the author; holds no key.
    pub message: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// How many requests were sent.
    pub attempts: u32,
}

impl ModelError {
    /// An error of this class with this message.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, status: None, message: message.into(), retry_after: None, attempts: 0 }
    }

    /// What the author or operator can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        self.class.hint()
    }
}

/// Classifies an HTTP status and what the provider said with it.
pub(crate) fn classify(status: u16, kind: &str, message: &str) -> ErrorClass {
    let kind = kind.to_ascii_lowercase();
    let message = message.to_ascii_lowercase();
    if status != 429 && speaks_of_context(&kind, &message) {
        return ErrorClass::ContextTooLong;
    }
    if kind.contains("content_filter")
        || kind == "content_policy_violation"
        || message.contains("content management policy")
    {
        return ErrorClass::ContentFilter;
    }
    if status == 402
        || kind == "insufficient_quota"
        || kind == "billing_error"
        || message.contains("insufficient_quota")
        || message.contains("credit balance is too low")
    {
        return ErrorClass::Quota;
    }
    match status {
        401 | 403 => ErrorClass::Authentication,
        404 => ErrorClass::NotFound,
        429 => ErrorClass::RateLimited,
        408 | 409 | 425 => ErrorClass::Overloaded,
        500.. => ErrorClass::Overloaded,
        _ => ErrorClass::BadRequest,
    }
}

/// Classifies an error that came inside a stream after status 200.
pub(crate) fn classify_in_stream(kind: &str, message: &str) -> ErrorClass {
    let status = match kind.to_ascii_lowercase().as_str() {
        "authentication_error" | "permission_error" | "invalid_api_key" => 401,
        "not_found_error" | "model_not_found" => 404,
        "rate_limit_error" | "rate_limit_exceeded" | "429" => 429,
        "invalid_request_error" | "bad_request_error" | "request_too_large" | "400" => 400,
        "billing_error" | "402" => 402,
        _ => 500,
    };
    classify(status, kind, message)
}

fn speaks_of_context(kind: &str, message: &str) -> bool {
    kind == "context_length_exceeded"
        || [
            "maximum context length",
            "context window",
            "context length",
            "prompt is too long",
            "input is too long",
            "exceeds the maximum number of tokens",
            "exceed context limit",
            "exceeds the available context",
        ]
        .iter()
        .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_words_of_providers_give_their_class() {
        let table = [
            (401, "invalid_api_key", "Incorrect API key provided", ErrorClass::Authentication),
            (403, "permission_error", "no", ErrorClass::Authentication),
            (404, "model_not_found", "The model `x` does not exist", ErrorClass::NotFound),
            (
                429,
                "rate_limit_exceeded",
                "Rate limit reached for context window tier",
                ErrorClass::RateLimited,
            ),
            (429, "insufficient_quota", "You exceeded your current quota", ErrorClass::Quota),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API",
                ErrorClass::Quota,
            ),
            (402, "", "Payment required", ErrorClass::Quota),
            (400, "context_length_exceeded", "", ErrorClass::ContextTooLong),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 210000 tokens > 200000 maximum",
                ErrorClass::ContextTooLong,
            ),
            (400, "", "This model's maximum context length is 4096 tokens", ErrorClass::ContextTooLong),
            (400, "content_filter", "filtered", ErrorClass::ContentFilter),
            (400, "invalid_request_error", "bad role", ErrorClass::BadRequest),
            (422, "", "unprocessable", ErrorClass::BadRequest),
            (500, "api_error", "Internal server error", ErrorClass::Overloaded),
            (503, "", "no healthy upstream", ErrorClass::Overloaded),
            (529, "overloaded_error", "Overloaded", ErrorClass::Overloaded),
            (408, "", "Request timeout", ErrorClass::Overloaded),
        ];
        for (status, kind, message, want) in table {
            assert_eq!(classify(status, kind, message), want, "{status} {kind} {message}");
        }
    }

    #[test]
    fn errors_inside_a_stream_give_their_class() {
        let table = [
            ("overloaded_error", "Overloaded", ErrorClass::Overloaded),
            ("rate_limit_error", "slow down", ErrorClass::RateLimited),
            ("invalid_request_error", "prompt is too long", ErrorClass::ContextTooLong),
            ("invalid_request_error", "bad", ErrorClass::BadRequest),
            ("authentication_error", "key", ErrorClass::Authentication),
            ("server_error", "The server had an error", ErrorClass::Overloaded),
            ("", "", ErrorClass::Overloaded),
        ];
        for (kind, message, want) in table {
            assert_eq!(classify_in_stream(kind, message), want, "{kind} {message}");
        }
    }
}
