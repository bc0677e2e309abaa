//! Frames: requests, notifications, results and failures (`docs/protocol/host.md` §1).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::bounds::{MAX_SAFE_INTEGER, NonEmptyString};
use crate::error::{ErrorBody, ErrorCode};
use crate::json::{RawJson, RawObject};
use crate::tolerant::{objects, present};

/// Identity of a request: an integer or a text that is not empty. A reply repeats it with the same JSON type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => fmt::Display::fmt(number, f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl de::Visitor<'_> for IdVisitor {
            type Value = RequestId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a text that is not empty")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RequestId, E> {
                if value.unsigned_abs() <= MAX_SAFE_INTEGER {
                    Ok(RequestId::Number(value))
                } else {
                    Err(E::invalid_value(de::Unexpected::Signed(value), &self))
                }
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RequestId, E> {
                match i64::try_from(value) {
                    Ok(value) => self.visit_i64(value),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(value), &self)),
                }
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<RequestId, E> {
                if value.fract() == 0.0 && value.abs() <= MAX_SAFE_INTEGER as f64 {
                    Ok(RequestId::Number(value as i64))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(value), &self))
                }
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<RequestId, E> {
                if value.is_empty() {
                    Err(E::invalid_value(de::Unexpected::Str(value), &self))
                } else {
                    Ok(RequestId::Text(value.to_owned()))
                }
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A failure, as the host protocol carries it. The code is a text, never a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HostErrorBody {
    /// Code: one of [`ErrorCode`], or one of the program's own.
    pub code: NonEmptyString,
    /// What happened, for people.
    pub message: String,
    /// More: `hint`, `reason`, `detail`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub data: Option<RawJson>,
}

#[derive(Default, Serialize, Deserialize)]
struct FailureData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<RawJson>,
}

impl HostErrorBody {
    /// A failure of ours.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::with_code(code.as_str(), message)
    }

    /// A failure with any code; an empty one becomes [`ErrorCode::InternalError`].
    pub fn with_code(code: &str, message: impl Into<String>) -> Self {
        let code = if code.is_empty() { ErrorCode::InternalError.as_str() } else { code };
        Self { code: NonEmptyString::saturating(code), message: message.into(), data: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.change(|data| data.hint = Some(hint))
    }

    /// Adds the reason of an abort.
    #[must_use]
    pub fn with_reason(self, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        self.change(|data| data.reason = Some(reason))
    }

    /// Adds details.
    #[must_use]
    pub fn with_detail(self, detail: &serde_json::Value) -> Self {
        let detail = RawJson::from(detail);
        self.change(|data| data.detail = Some(detail))
    }

    fn change(mut self, change: impl FnOnce(&mut FailureData)) -> Self {
        let mut data: FailureData =
            self.data.as_ref().and_then(|data| data.decode().ok()).unwrap_or_default();
        change(&mut data);
        self.data = RawJson::encode(&data).ok();
        self
    }

    /// The hint, if there is one.
    pub fn hint(&self) -> Option<String> {
        self.data.as_ref()?.decode::<FailureData>().ok()?.hint.filter(|hint| !hint.is_empty())
    }

    /// The details, if there are any.
    pub fn detail(&self) -> Option<RawJson> {
        self.data.as_ref()?.decode::<FailureData>().ok()?.detail
    }
}

impl From<&ErrorBody> for HostErrorBody {
    /// Documentation references do not travel on this protocol.
    fn from(error: &ErrorBody) -> Self {
        let body = Self::with_code(&error.code, error.message.clone());
        match &error.hint {
            Some(hint) => body.with_hint(hint.clone()),
            None => body,
        }
    }
}

/// One line of the host protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum HostFrame {
    /// Wants a reply.
    Request {
        /// Identity, repeated by the reply.
        id: RequestId,
        /// What is asked for.
        method: String,
        /// With what; every method wants at least `{}`.
        params: Option<RawJson>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
        /// With what.
        params: Option<RawJson>,
    },
    /// A reply that succeeded.
    Success {
        /// Identity of the request.
        id: RequestId,
        /// The result.
        result: RawJson,
    },
    /// A reply that failed.
    Failure {
        /// Identity of the request; `None` when it could not be read.
        id: Option<RequestId>,
        /// Why.
        error: HostErrorBody,
    },
}

/// Why a line is no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not JSON: to be dropped.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, and none of the four frames: to be answered `PROTOCOL_ERROR` with `id: null`.
    #[error("not a frame: {0}")]
    NotAFrame(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    jsonrpc: String,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    method: Option<NonEmptyString>,
    #[serde(default, deserialize_with = "present")]
    params: Option<RawJson>,
    #[serde(default, deserialize_with = "present")]
    result: Option<RawJson>,
    #[serde(default, deserialize_with = "present")]
    error: Option<HostErrorBody>,
}

impl HostFrame {
    /// Reads one line. Blanks around it are ignored; a blank line gives `None`.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse_line(line: &str) -> Result<Option<Self>, FrameError> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        if line.starts_with('[') && serde_json::from_str::<&RawValue>(line).is_ok() {
            return Err(FrameError::NotAFrame("an array".to_owned()));
        }
        let wire: Wire<'_> =
            serde_json::from_str(line).map_err(|error| match serde_json::from_str::<&RawValue>(line) {
                Ok(_) => FrameError::NotAFrame(error.to_string()),
                Err(error) => FrameError::NotJson(error.to_string()),
            })?;
        Self::from_wire(wire).map(Some).map_err(|reason| FrameError::NotAFrame(reason.to_owned()))
    }

    fn from_wire(wire: Wire<'_>) -> Result<Self, &'static str> {
        if wire.jsonrpc != "2.0" {
            return Err("jsonrpc is not \"2.0\"");
        }
        let read_id = |raw: &RawValue| {
            serde_json::from_str::<RequestId>(raw.get()).map_err(|_| "id is neither an integer nor a text")
        };
        match wire {
            Wire { method: Some(method), params, id, result: None, error: None, .. } => Ok(match id {
                Some(raw) => Self::Request { id: read_id(raw)?, method: method.into_string(), params },
                None => Self::Notification { method: method.into_string(), params },
            }),
            Wire { method: None, params: None, id: Some(raw), result: Some(result), error: None, .. } => {
                Ok(Self::Success { id: read_id(raw)?, result })
            }
            Wire { method: None, params: None, id: Some(raw), result: None, error: Some(error), .. } => {
                let id = if raw.get() == "null" { None } else { Some(read_id(raw)?) };
                Ok(Self::Failure { id, error })
            }
            _ => Err("neither a request, a notification, a result nor a failure"),
        }
    }

    /// Writes one line, with its line feed.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Call<'a> {
            jsonrpc: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a RequestId>,
            method: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<&'a RawJson>,
        }
        #[derive(Serialize)]
        struct Success<'a> {
            jsonrpc: &'static str,
            id: &'a RequestId,
            result: &'a RawJson,
        }
        #[derive(Serialize)]
        struct Failure<'a> {
            jsonrpc: &'static str,
            id: Option<&'a RequestId>,
            error: &'a HostErrorBody,
        }
        let jsonrpc = "2.0";
        let line = match self {
            Self::Request { id, method, params } => {
                serde_json::to_string(&Call { jsonrpc, id: Some(id), method, params: params.as_ref() })
            }
            Self::Notification { method, params } => {
                serde_json::to_string(&Call { jsonrpc, id: None, method, params: params.as_ref() })
            }
            Self::Success { id, result } => serde_json::to_string(&Success { jsonrpc, id, result }),
            Self::Failure { id, error } => {
                serde_json::to_string(&Failure { jsonrpc, id: id.as_ref(), error })
            }
        };
        // Texts, integers and raw JSON always have a JSON form.
        one_line(line.unwrap_or_default())
    }

    /// A result.
    ///
    /// # Errors
    /// When the result has no JSON form or nests too deeply.
    pub fn success<T: Serialize>(id: RequestId, result: &T) -> Result<Self, crate::json::RawJsonError> {
        Ok(Self::Success { id, result: RawJson::encode(result)? })
    }

    /// The empty result `{}`.
    pub fn done(id: RequestId) -> Self {
        Self::Success { id, result: RawObject::empty().as_json().clone() }
    }

    /// A failure.
    pub fn failure(id: RequestId, error: HostErrorBody) -> Self {
        Self::Failure { id: Some(id), error }
    }
}

/// Program JSON may hold line breaks between its tokens; on this protocol a line is a frame. Inside of strings JSON
/// has no raw line breaks, so blanks in their place change nothing.
fn one_line(mut line: String) -> String {
    if line.contains(['\n', '\r']) {
        line = line.replace(['\n', '\r'], " ");
    }
    line.push('\n');
    line
}

objects!(HostErrorBody);
