//! The script: what the model says to whom. Described for people in `MODEL_SCRIPT.md`.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A whole script.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// The turns, in order.
    pub turns: Vec<ScriptTurn>,
    /// The name that the list of models shows.
    #[serde(default = "default_model")]
    pub model: String,
    /// When set, requests with another key are answered 401.
    #[serde(default)]
    pub api_key: Option<String>,
    /// Whether unmatched turns start again when all were used.
    #[serde(default = "yes", rename = "loop")]
    pub repeat_turns: bool,
    /// Wire quirks of every turn that sets none itself.
    #[serde(default)]
    pub wire: Wire,
}

impl Script {
    /// Reads a script from its JSON text.
    ///
    /// # Errors
    /// The parser's words, with line and column.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// A script of these turns with every default.
    #[must_use]
    pub fn of(turns: Vec<ScriptTurn>) -> Self {
        Self { turns, model: default_model(), api_key: None, repeat_turns: true, wire: Wire::default() }
    }

    /// A script that answers everything with this text.
    #[must_use]
    pub fn saying(text: &str) -> Self {
        Self::of(vec![ScriptTurn::text(text)])
    }
}

fn default_model() -> String {
    "scripted".to_owned()
}

fn yes() -> bool {
    true
}

/// One answer and when it is given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptTurn {
    /// Shown in the record of requests.
    pub name: Option<String>,
    /// When the turn answers; without it the turn is part of a queue.
    #[serde(rename = "match")]
    pub matcher: Option<Match>,
    /// How often it answers: without limit for a matched turn, once for a queued one.
    pub times: Option<u64>,
    /// Streamed thinking.
    pub reasoning: Option<String>,
    /// Streamed text.
    pub text: Option<String>,
    /// A JSON value, streamed as text.
    pub json: Option<Value>,
    /// The same text in many deltas.
    pub repeat: Option<Repeat>,
    /// Calls of tools.
    pub tool_calls: Vec<ScriptCall>,
    /// Characters a delta; a word a delta without it.
    pub chunk: Option<usize>,
    /// Token counts; a quarter of the characters without it.
    pub usage: Option<ScriptUsage>,
    /// How the turn ends when not naturally.
    pub stop: Option<Stop>,
    /// Milliseconds before the answer starts.
    pub delay_ms: u64,
    /// Milliseconds before each delta.
    pub delta_delay_ms: u64,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// Wire quirks of this turn.
    pub wire: Option<Wire>,
}

impl ScriptTurn {
    /// A turn that says this text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::default() }
    }

    /// A turn that calls one tool.
    #[must_use]
    pub fn call(name: &str, input: Value) -> Self {
        Self { tool_calls: vec![ScriptCall::new(name, input)], ..Self::default() }
    }

    /// A turn that fails with this fault.
    #[must_use]
    pub fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    /// The same turn, answering only what fits.
    #[must_use]
    pub fn when(mut self, matcher: Match) -> Self {
        self.matcher = Some(matcher);
        self
    }

    /// The same turn with this fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

/// The same text in many deltas.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    /// The text of one delta.
    pub text: String,
    /// How many deltas.
    pub times: u64,
    /// Puts the time of sending in each delta.
    #[serde(default)]
    pub stamp: bool,
}

/// One call of a tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptCall {
    /// The tool.
    pub name: String,
    /// Its input.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// The call's id; made up without it.
    #[serde(default)]
    pub id: Option<String>,
    /// Text sent as arguments instead of the input.
    #[serde(default)]
    pub arguments: Option<String>,
}

impl ScriptCall {
    /// A call of this tool; an input that is no object counts as empty.
    #[must_use]
    pub fn new(name: &str, input: Value) -> Self {
        Self {
            name: name.to_owned(),
            input: input.as_object().cloned().unwrap_or_default(),
            id: None,
            arguments: None,
        }
    }
}

/// Token counts of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptUsage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_write: u64,
}

/// An end that is not the natural one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The answer reached its maximal length.
    Length,
    /// A filter stopped it.
    ContentFilter,
    /// The model refused.
    Refusal,
}

/// One string or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Words {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words.as_slice(),
        }
        .iter()
        .map(String::as_str)
    }
}

impl From<&str> for Words {
    fn from(word: &str) -> Self {
        Self::One(word.to_owned())
    }
}

/// When a turn answers; all given members must fit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Match {
    /// Each occurs in the conversation.
    pub contains: Option<Words>,
    /// None occurs in the conversation.
    pub lacks: Option<Words>,
    /// Each occurs in the last message.
    pub last_contains: Option<Words>,
    /// Who spoke last.
    pub last: Option<Speaker>,
    /// A tool of this name is offered.
    pub tool: Option<String>,
    /// The request names this model.
    pub model: Option<String>,
    /// The wire of the request.
    pub protocol: Option<Protocol>,
}

impl Match {
    /// Fits when the conversation holds this text.
    #[must_use]
    pub fn containing(text: &str) -> Self {
        Self { contains: Some(text.into()), ..Self::default() }
    }

    /// Fits when this side spoke last.
    #[must_use]
    pub fn after(last: Speaker) -> Self {
        Self { last: Some(last), ..Self::default() }
    }
}

/// Who spoke last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The user.
    User,
    /// A tool: the last message holds tool results.
    Tool,
}

/// The wire of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// OpenAI chat completions.
    #[serde(rename = "openai")]
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
}

/// What goes wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// A status instead of an answer.
    Http(HttpFault),
    /// The connection is cut in the middle of the stream.
    Cut(FaultPlace),
    /// The stream ends without its terminal event.
    End(FaultPlace),
    /// An error event after status 200.
    Error(ErrorFault),
    /// Nothing more is sent.
    Silence(FaultPlace),
    /// Status 200 with a body as it is.
    Body(BodyFault),
}

impl Fault {
    /// The connection is cut after so many deltas.
    #[must_use]
    pub fn cut(after_deltas: u64) -> Self {
        Self::Cut(FaultPlace { after_deltas })
    }

    /// The stream ends early after so many deltas.
    #[must_use]
    pub fn end(after_deltas: u64) -> Self {
        Self::End(FaultPlace { after_deltas })
    }

    /// Silence after so many deltas.
    #[must_use]
    pub fn silence(after_deltas: u64) -> Self {
        Self::Silence(FaultPlace { after_deltas })
    }

    /// An `overloaded_error` event after so many deltas.
    #[must_use]
    pub fn error(after_deltas: u64) -> Self {
        Self::Error(ErrorFault { after_deltas, kind: overloaded(), message: "Overloaded".to_owned() })
    }

    /// This status.
    #[must_use]
    pub fn http(status: u16) -> Self {
        Self::Http(HttpFault { status, retry_after: None, message: None, code: None })
    }
}

/// A status instead of an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpFault {
    /// The status.
    pub status: u16,
    /// The text of the `Retry-After` header.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// The error's message.
    #[serde(default)]
    pub message: Option<String>,
    /// The error's code or type.
    #[serde(default)]
    pub code: Option<String>,
}

/// Where in the stream a fault happens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultPlace {
    /// After so many deltas of any kind.
    #[serde(default)]
    pub after_deltas: u64,
}

/// An error event after status 200.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorFault {
    /// After so many deltas of any kind.
    #[serde(default)]
    pub after_deltas: u64,
    /// The error's type.
    #[serde(default = "overloaded", rename = "type")]
    pub kind: String,
    /// The error's message.
    #[serde(default = "overloaded_message")]
    pub message: String,
}

fn overloaded() -> String {
    "overloaded_error".to_owned()
}

fn overloaded_message() -> String {
    "Overloaded".to_owned()
}

/// Status 200 with a body as it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BodyFault {
    /// The body.
    pub text: String,
    /// Its type; `text/event-stream` without it.
    #[serde(default)]
    pub content_type: Option<String>,
}

/// How the stream is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Wire {
    /// The line end.
    pub newline: Newline,
    /// A space after `data:`.
    pub space: bool,
    /// Bytes a write.
    pub split_bytes: Option<usize>,
    /// Comment lines and pings between events.
    pub comments: bool,
    /// Whether `[DONE]` is sent.
    pub done: bool,
    /// The `index` of tool call fragments.
    pub tool_index: ToolIndex,
    /// The `id` of tool call fragments.
    pub tool_id: ToolId,
    /// Mixes the fragments of parallel calls.
    pub interleave: bool,
    /// Characters of arguments a fragment; 0 sends them whole with the first.
    pub fragment: usize,
    /// Which chunk carries the usage.
    pub usage_on: UsageOn,
    /// Sends members as null that are usually left out.
    pub nulls: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            newline: Newline::Lf,
            space: true,
            split_bytes: None,
            comments: false,
            done: true,
            tool_index: ToolIndex::Counted,
            tool_id: ToolId::First,
            interleave: false,
            fragment: 8,
            usage_on: UsageOn::Own,
            nulls: false,
        }
    }
}

/// The line end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Newline {
    /// LF.
    Lf,
    /// CRLF.
    Crlf,
    /// CR.
    Cr,
}

impl Newline {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::Crlf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// The `index` of tool call fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolIndex {
    /// As documented.
    Counted,
    /// Always 0.
    Zero,
    /// Left out.
    Absent,
    /// Counted, but as a string.
    Text,
}

/// The `id` of tool call fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolId {
    /// On the first fragment of a call.
    First,
    /// On every fragment.
    Every,
    /// On none.
    Absent,
    /// On the first, and empty on the others.
    Empty,
}

/// Which chunk carries the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageOn {
    /// A last chunk without choices.
    Own,
    /// The chunk with the finish reason.
    Last,
    /// Running totals on each chunk.
    Every,
    /// None.
    None,
}
