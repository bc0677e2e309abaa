//! Values that several kinds of events share (`docs/protocol/events.md` §3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::decode::{EventDecodeError, Field, Fields};
use crate::bounds::Count;
use crate::json::RawObject;
use crate::tolerant::{objects, present};

/// A word that is none of a closed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown word {0}")]
pub struct UnknownWord(pub String);

/// Status of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Created, not yet ready to be leased.
    Queued,
    /// Ready to be leased.
    Pending,
    /// A program is running.
    Running,
    /// Parked until a time.
    Sleeping,
    /// Waiting for a human.
    AwaitingInput,
    /// Waiting for a called workflow.
    WaitingForChild,
    /// Asked to cancel, not yet ended.
    Cancelling,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Ended by request.
    Cancelled,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [RunStatus; 10] = [
        Self::Queued,
        Self::Pending,
        Self::Running,
        Self::Sleeping,
        Self::AwaitingInput,
        Self::WaitingForChild,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// As written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::AwaitingInput => "awaiting_input",
            Self::WaitingForChild => "waiting_for_child",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing can follow.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for RunStatus {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

/// The channel that a kind belongs to. The order is the order in messages to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Status, suspension, gates.
    Lifecycle,
    /// Markers of the program.
    Phase,
    /// The return value.
    Output,
    /// What the program prints, and notices.
    Log,
    /// Turns, texts and tools of agents.
    Agent,
}

/// What a reader is shown unless asked otherwise.
pub const DEFAULT_CHANNELS: [Channel; 3] = [Channel::Lifecycle, Channel::Phase, Channel::Output];

impl Channel {
    /// All channels, in order.
    pub const ALL: [Channel; 5] = [Self::Lifecycle, Self::Phase, Self::Output, Self::Log, Self::Agent];

    /// As written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Phase => "phase",
            Self::Output => "output",
            Self::Log => "log",
            Self::Agent => "agent",
        }
    }

    /// Reads a name.
    pub fn from_name(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.as_str() == text)
    }
}

impl std::fmt::Display for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which standard stream a text came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum StandardStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a suspended run waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    /// A time.
    Sleep,
    /// A human.
    HumanInput,
    /// A called workflow.
    Child,
}

/// Why a workspace was not stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Larger than one workspace may be.
    TooLarge,
    /// The organisation has no room left.
    StorageLimit,
    /// Something failed.
    Error,
}

/// How an agent's turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum TurnEndReason {
    /// It answered.
    Complete,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Error,
}

/// How a conversation was made shorter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum CompactionMethod {
    /// Stale repeated reads were dropped.
    Deduped,
    /// The oldest middle became a digest.
    Summarized,
    /// Nothing could be reclaimed.
    None,
}

/// Tokens of a turn. Cached tokens are a part of the input tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct TokenUsage {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub input_tokens: Option<Count>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub output_tokens: Option<Count>,
    /// Input written into the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cache_creation_tokens: Option<Count>,
    /// Input read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cache_read_tokens: Option<Count>,
    /// Input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub total_tokens: Option<Count>,
}

/// A failure, as events carry it. Never holds a documentation reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct EventError {
    /// Code, for machines; free text.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub hint: Option<String>,
}

/// The observer's copy of a tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ToolReturn {
    /// Kind of the result, such as `file_read` or `shell`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub kind: Option<String>,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub human_summary: Option<String>,
    /// Details; their keys are open.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub data: Option<RawObject>,
}

impl Field for TokenUsage {
    fn read<'a>(raw: &'a RawValue, key: &str, fields: &mut Fields<'a>) -> Result<Self, EventDecodeError> {
        fields.nested(raw, key, |inner| {
            Ok(Self {
                input_tokens: inner.optional("inputTokens")?,
                output_tokens: inner.optional("outputTokens")?,
                cache_creation_tokens: inner.optional("cacheCreationTokens")?,
                cache_read_tokens: inner.optional("cacheReadTokens")?,
                total_tokens: inner.optional("totalTokens")?,
            })
        })
    }
}

impl Field for EventError {
    fn read<'a>(raw: &'a RawValue, key: &str, fields: &mut Fields<'a>) -> Result<Self, EventDecodeError> {
        fields.nested(raw, key, |inner| {
            Ok(Self {
                code: inner.required("code")?,
                message: inner.required("message")?,
                hint: inner.optional("hint")?,
            })
        })
    }
}

impl Field for ToolReturn {
    fn read<'a>(raw: &'a RawValue, key: &str, fields: &mut Fields<'a>) -> Result<Self, EventDecodeError> {
        fields.nested(raw, key, |inner| {
            Ok(Self {
                kind: inner.optional("kind")?,
                human_summary: inner.optional("humanSummary")?,
                data: inner.optional("data")?,
            })
        })
    }
}

objects!(TokenUsage, EventError, ToolReturn);
