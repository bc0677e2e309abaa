//! Model turns through the control plane: the neutral conversation and the answer stream
//! (`docs/protocol/control.md` §7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;
use crate::json::JsonObject;
use crate::tolerant::objects;

/// `POST inference`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct InferenceRequest {
    /// Model, as the author wrote it; absent for the configured default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Provider, as the author wrote it; absent or `boardwalk` for the managed lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// How much to think. A value that is no object is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_ignored")]
    pub reasoning: Option<Reasoning>,
    /// Only models that can operate a screen may answer. Only a literal `true` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desktop_session: Option<bool>,
    /// Identity of this turn within the run: a repeat of an answered turn gets the stored answer and is not charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_key: Option<String>,
}

fn object_or_ignored<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Reasoning>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    if value.is_object() {
        serde_json::from_value(value).map(Some).map_err(serde::de::Error::custom)
    } else {
        Ok(None)
    }
}

/// How much a model should think. When both are given, effort wins over the token budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Reasoning {
    /// Named effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Token budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Do not return the reasoning text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<bool>,
}

/// Named reasoning effort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No reasoning.
    None,
    /// About a tenth of the answer's tokens.
    Minimal,
    /// About a fifth.
    Low,
    /// About half.
    Medium,
    /// About four fifths.
    High,
    /// Nearly all.
    Xhigh,
}

/// A tool that a model may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ToolSpec {
    /// Name, unique within the request.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its input.
    pub input_schema: JsonObject,
}

/// A tool call that a model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ToolCallRequest {
    /// The provider's id, echoed back with the result.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Its input.
    pub input: JsonObject,
    /// The arguments as the model wrote them, when they were no JSON object; `input` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_input: Option<String>,
}

/// A file in a conversation: its bytes or a URL. When both are given, the bytes win.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct FileSource {
    /// MIME type.
    pub mime_type: String,
    /// Bytes, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Where the provider can fetch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// File name, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(tag = "type", rename_all = "lowercase")]
#[serde(remote = "Self")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A file.
    File {
        /// The file.
        file: FileSource,
    },
}

/// Content of a message: a text, or parts. A text equals one text part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged)]
pub enum Content {
    /// A plain text.
    Text(String),
    /// Parts in order.
    Parts(Vec<ContentPart>),
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Content {
    /// The text of all text parts, joined by nothing.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    ContentPart::Text { text } => Some(text.as_str()),
                    ContentPart::File { .. } => None,
                })
                .collect(),
        }
    }
}

/// One message of the neutral conversation. There is no system role: the framing is the first user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[serde(remote = "Self")]
pub enum ChatMessage {
    /// From the user.
    User {
        /// Text or parts.
        content: Content,
    },
    /// From the model; text only.
    Assistant {
        /// What it said.
        text: String,
        /// What it asked for; each is answered by the following `tool_results`.
        tool_calls: Vec<ToolCallRequest>,
    },
    /// Answers to all tool calls of the message before.
    ToolResults {
        /// One per call.
        results: Vec<ToolResultMessage>,
    },
}

/// The answer to one tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ToolResultMessage {
    /// Id of the call.
    pub id: String,
    /// Text or parts.
    pub content: Content,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// What one model call cost, in tokens. Cached tokens are a part of the input tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct TokenCounts {
    /// Tokens read, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Part of the input that came from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_tokens: Option<u64>,
    /// Part of the input that was written into the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write_tokens: Option<u64>,
}

impl TokenCounts {
    /// Input plus output; unknown counts as 0.
    pub fn total(&self) -> u64 {
        self.input_tokens.unwrap_or(0).saturating_add(self.output_tokens.unwrap_or(0))
    }
}

/// One finished model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ChatTurn {
    /// What the model said.
    pub text: String,
    /// What it asked for.
    pub tool_calls: Vec<ToolCallRequest>,
    /// What it cost.
    #[serde(default)]
    pub usage: TokenCounts,
    /// Whether it waits for tool results. Only a literal `true` counts.
    #[serde(default, deserialize_with = "literal_true")]
    pub wants_tools: bool,
}

fn literal_true<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)? == serde_json::Value::Bool(true))
}

/// The terminal frame of a stream that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct InferenceResult {
    /// The authoritative turn.
    pub turn: ChatTurn,
    /// Which model answered, `provider/model`.
    pub model_ref: String,
    /// Exact cost in millionths of a US dollar; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Size of the model's context window in tokens; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
}

/// The failure of a stream that had begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct InferenceError {
    /// Error code.
    #[serde(default = "internal_error")]
    pub code: String,
    /// What happened, for people.
    #[serde(default = "generic_message")]
    pub message: String,
}

fn internal_error() -> String {
    ErrorCode::InternalError.as_str().to_owned()
}

fn generic_message() -> String {
    "the model call failed".to_owned()
}

/// One line of the answer stream. `(ping | delta | reasoning | reset)* (result | error)`, then the end.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(tag = "t", rename_all = "lowercase")]
pub enum InferenceFrame {
    /// A piece of the assistant's text.
    Delta {
        /// The piece.
        text: String,
    },
    /// A piece of reasoning; never part of the conversation.
    Reasoning {
        /// The piece.
        text: String,
    },
    /// Everything relayed so far for this call is void; the restarted turn follows.
    Reset,
    /// The turn.
    Result(Box<InferenceResult>),
    /// The failure.
    Error {
        /// What failed.
        error: InferenceError,
    },
    /// A sign of life. Frames of unknown kinds read as one.
    Ping,
}

/// A line that is no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed inference frame: {0}")]
pub struct InferenceFrameError(String);

impl InferenceFrame {
    /// Reads one line. Blank lines give `None`; unknown kinds give [`InferenceFrame::Ping`].
    ///
    /// # Errors
    /// When the line is no JSON object with a string `t`, or a `result` lacks what makes it one.
    pub fn parse_line(line: &str) -> Result<Option<Self>, InferenceFrameError> {
        #[derive(Deserialize)]
        struct Kind {
            t: String,
        }
        #[derive(Deserialize)]
        struct Text {
            #[serde(default, deserialize_with = "text_or_empty")]
            text: String,
        }
        #[derive(Deserialize)]
        struct Failure {
            #[serde(default)]
            error: Option<InferenceError>,
        }
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        if line.starts_with('[') {
            return Err(InferenceFrameError("an array".to_owned()));
        }
        let fault = |error: serde_json::Error| InferenceFrameError(error.to_string());
        let kind: Kind = serde_json::from_str(line).map_err(fault)?;
        Ok(Some(match kind.t.as_str() {
            "delta" => Self::Delta { text: serde_json::from_str::<Text>(line).map_err(fault)?.text },
            "reasoning" => Self::Reasoning { text: serde_json::from_str::<Text>(line).map_err(fault)?.text },
            "reset" => Self::Reset,
            "result" => Self::Result(Box::new(parse_result(line)?)),
            "error" => Self::Error {
                error: serde_json::from_str::<Failure>(line)
                    .ok()
                    .and_then(|failure| failure.error)
                    .unwrap_or_else(|| InferenceError { code: internal_error(), message: generic_message() }),
            },
            _ => Self::Ping,
        }))
    }

    /// Writes one line, with its line feed.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Text<'a> {
            t: &'static str,
            text: &'a str,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Terminal<'a> {
            t: &'static str,
            turn: &'a ChatTurn,
            model_ref: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            cost_micros: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            context_tokens: Option<u64>,
        }
        #[derive(Serialize)]
        struct Failure<'a> {
            t: &'static str,
            error: &'a InferenceError,
        }
        let line = match self {
            Self::Delta { text } => serde_json::to_string(&Text { t: "delta", text }),
            Self::Reasoning { text } => serde_json::to_string(&Text { t: "reasoning", text }),
            Self::Reset => return "{\"t\":\"reset\"}\n".to_owned(),
            Self::Ping => return "{\"t\":\"ping\"}\n".to_owned(),
            Self::Result(result) => serde_json::to_string(&Terminal {
                t: "result",
                turn: &result.turn,
                model_ref: &result.model_ref,
                cost_micros: result.cost_micros,
                context_tokens: result.context_tokens,
            }),
            Self::Error { error } => serde_json::to_string(&Failure { t: "error", error }),
        };
        // Strings, integers and maps with string keys always have a JSON form.
        let mut line = line.unwrap_or_else(|_| "{\"t\":\"ping\"}".to_owned());
        line.push('\n');
        line
    }

    /// Whether it ends the stream.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Result(_) | Self::Error { .. })
    }
}

fn parse_result(line: &str) -> Result<InferenceResult, InferenceFrameError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        turn: WireTurn,
        model_ref: String,
        #[serde(default)]
        cost_micros: Option<serde_json::Value>,
        #[serde(default)]
        context_tokens: Option<serde_json::Value>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireTurn {
        text: String,
        tool_calls: Vec<ToolCallRequest>,
        #[serde(default)]
        usage: Option<serde_json::Value>,
        #[serde(default, deserialize_with = "literal_true")]
        wants_tools: bool,
    }
    let wire: Wire = serde_json::from_str(line).map_err(|error| InferenceFrameError(error.to_string()))?;
    if wire.model_ref.is_empty() {
        return Err(InferenceFrameError("modelRef is empty".to_owned()));
    }
    let usage = wire.turn.usage.unwrap_or_default();
    let count = |key: &str| usage.get(key).and_then(positive_or_zero);
    Ok(InferenceResult {
        turn: ChatTurn {
            text: wire.turn.text,
            tool_calls: wire.turn.tool_calls,
            usage: TokenCounts {
                input_tokens: count("inputTokens"),
                output_tokens: count("outputTokens"),
                cached_read_tokens: count("cachedReadTokens"),
                cached_write_tokens: count("cachedWriteTokens"),
            },
            wants_tools: wire.turn.wants_tools,
        },
        model_ref: wire.model_ref,
        cost_micros: wire.cost_micros.as_ref().and_then(positive_or_zero).filter(|cost| *cost > 0),
        context_tokens: wire.context_tokens.as_ref().and_then(positive_or_zero).filter(|tokens| *tokens > 0),
    })
}

fn positive_or_zero(value: &serde_json::Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number.round() as u64))
}

fn text_or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        _ => String::new(),
    })
}

objects!(
    InferenceRequest,
    Reasoning,
    ToolSpec,
    ToolCallRequest,
    FileSource,
    ContentPart,
    ChatMessage,
    ToolResultMessage,
    TokenCounts,
    ChatTurn,
    InferenceResult,
    InferenceError
);
