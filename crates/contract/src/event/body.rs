//! The 26 kinds of events and their channels (`docs/protocol/events.md` §4).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::decode::{EventDecodeError, Fields};
use super::values::{
    Channel, CompactionMethod, EventError, RunStatus, SkipReason, StandardStream, SuspendReason, TokenUsage,
    ToolReturn, TurnEndReason,
};
use crate::bounds::{Count, EpochMs, NonEmptyString, Positive};
use crate::json::{RawJson, RawObject};

/// What every event carries beside its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The run.
    pub run_id: NonEmptyString,
    /// The agent turn that the event belongs to; the run's id for events of the run itself.
    pub turn_id: NonEmptyString,
    /// Position inside of the cursor block.
    pub seq: Positive,
    /// When it was stamped.
    pub t: EpochMs,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What every event carries.
    pub envelope: Envelope,
    /// Its kind and what goes with it.
    pub body: EventBody,
}

impl Event {
    /// The event's JSON, on one line.
    pub fn to_json(&self) -> String {
        // An event consists of strings, integers and raw JSON: it always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("runId", &self.envelope.run_id)?;
        map.serialize_entry("turnId", &self.envelope.turn_id)?;
        map.serialize_entry("seq", &self.envelope.seq)?;
        map.serialize_entry("t", &self.envelope.t)?;
        map.serialize_entry("kind", self.body.kind())?;
        self.body.serialize_fields(&mut map)?;
        map.end()
    }
}

/// The channel of a kind; `None` when no channel knows it.
pub fn channel_of(kind: &str) -> Option<Channel> {
    EventBody::CHANNELS.iter().find(|(name, _)| *name == kind).map(|(_, channel)| *channel)
}

macro_rules! field_type {
    (required $type:ty) => { $type };
    (optional $type:ty) => { Option<$type> };
}

macro_rules! write_field {
    ($map:ident required $wire:literal $value:ident) => {
        $map.serialize_entry($wire, $value)?;
    };
    ($map:ident optional $wire:literal $value:ident) => {
        if let Some(value) = $value {
            $map.serialize_entry($wire, value)?;
        }
    };
}

macro_rules! describe_field {
    ($generator:ident $properties:ident $required:ident required $wire:literal $type:ty) => {
        $properties.insert($wire.to_owned(), $generator.subschema_for::<$type>().to_value());
        $required.push($wire.into());
    };
    ($generator:ident $properties:ident $required:ident optional $wire:literal $type:ty) => {
        $properties.insert($wire.to_owned(), $generator.subschema_for::<$type>().to_value());
    };
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident = $kind:literal on $channel:ident {
            $( $(#[doc = $field_doc:literal])+ $field:ident: $presence:ident $type:ty = $wire:literal, )*
        }
    )+) => {
        /// The kind of an event and the keys that go with it.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum EventBody {
            $( $(#[doc = $doc])+ $variant { $( $(#[doc = $field_doc])+ $field: field_type!($presence $type), )* }, )+
        }

        impl EventBody {
            /// Every kind with its channel.
            pub const CHANNELS: &'static [(&'static str, Channel)] = &[$(($kind, Channel::$channel)),+];

            /// The kind, as written on the wire.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $kind),+ }
            }

            /// The channel.
            pub const fn channel(&self) -> Channel {
                match self { $(Self::$variant { .. } => Channel::$channel),+ }
            }

            fn serialize_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self {
                    $( Self::$variant { $($field),* } => { let _ = &map; $( write_field!(map $presence $wire $field); )* } )+
                }
                Ok(())
            }

            pub(super) fn from_fields(kind: &str, fields: &mut Fields<'_>) -> Result<Self, EventDecodeError> {
                match kind {
                    $( $kind => Ok(Self::$variant { $($field: fields.$presence($wire)?),* }), )+
                    _ => Err(EventDecodeError::Invalid(format!("unknown kind {kind}"))),
                }
            }
        }

        impl JsonSchema for Event {
            fn schema_name() -> Cow<'static, str> {
                "Event".into()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut kinds: Vec<serde_json::Value> = Vec::new();
                $( {
                    let mut properties = serde_json::Map::new();
                    let mut required: Vec<serde_json::Value> = Vec::new();
                    describe_field!(generator properties required required "runId" NonEmptyString);
                    describe_field!(generator properties required required "turnId" NonEmptyString);
                    describe_field!(generator properties required required "seq" Positive);
                    describe_field!(generator properties required required "t" EpochMs);
                    properties.insert("kind".to_owned(), serde_json::json!({ "const": $kind }));
                    required.push("kind".into());
                    $( describe_field!(generator properties required $presence $wire $type); )*
                    kinds.push(serde_json::json!({
                        "type": "object",
                        "title": $kind,
                        "properties": properties,
                        "required": required,
                        "additionalProperties": false,
                    }));
                } )+
                json_schema!({ "oneOf": kinds })
            }
        }
    };
}

events! {
    /// The run has a new status.
    RunStatus = "run_status" on Lifecycle {
        /// The status.
        status: required RunStatus = "status",
        /// Why it failed.
        error: optional EventError = "error",
    }
    /// The run gave up its host.
    Suspended = "suspended" on Lifecycle {
        /// What it waits for.
        reason: required SuspendReason = "reason",
        /// Earliest deadline of everything awaited.
        wake_at: optional EpochMs = "wakeAt",
    }
    /// The run goes on.
    Resumed = "resumed" on Lifecycle {}
    /// A gate opened.
    HumanInputRequested = "human_input_requested" on Lifecycle {
        /// Identity of the request.
        request_id: required NonEmptyString = "requestId",
        /// Key of the gate.
        key: required NonEmptyString = "key",
        /// The question.
        prompt: required String = "prompt",
    }
    /// A gate was answered. The answer itself is not told.
    HumanInputResolved = "human_input_resolved" on Lifecycle {
        /// Identity of the request.
        request_id: required NonEmptyString = "requestId",
        /// Key of the gate.
        key: required NonEmptyString = "key",
    }
    /// A marker of the program: everything after it belongs to it until the next one.
    Phase = "phase" on Phase {
        /// Name, for people.
        name: required NonEmptyString = "name",
        /// Identity.
        id: required NonEmptyString = "id",
    }
    /// The return value.
    Output = "output" on Output {
        /// Any JSON, byte for byte.
        value: required RawJson = "value",
    }
    /// What the program printed.
    ProgramOutput = "program_output" on Log {
        /// Where to.
        stream: required StandardStream = "stream",
        /// What.
        text: required String = "text",
    }
    /// A request to the outside was refused.
    EgressDenied = "egress_denied" on Log {
        /// Host, without port.
        host: required NonEmptyString = "host",
        /// HTTP method.
        method: optional String = "method",
        /// Why.
        reason: required NonEmptyString = "reason",
    }
    /// The workspace of this run was not stored.
    WorkspacePersistSkipped = "workspace_persist_skipped" on Log {
        /// Why.
        reason: required SkipReason = "reason",
        /// Its size.
        bytes: optional Count = "bytes",
        /// The size allowed.
        max_bytes: optional Positive = "maxBytes",
        /// More about it.
        detail: optional String = "detail",
    }
    /// An agent began.
    TurnStarted = "turn_started" on Agent {
        /// The agent.
        agent_id: required NonEmptyString = "agentId",
        /// Its name, for people.
        agent_name: optional NonEmptyString = "agentName",
    }
    /// An agent ended.
    TurnEnded = "turn_ended" on Agent {
        /// The agent.
        agent_id: required NonEmptyString = "agentId",
        /// Its name, for people.
        agent_name: optional NonEmptyString = "agentName",
        /// How.
        reason: required TurnEndReason = "reason",
        /// What it cost.
        usage: optional TokenUsage = "usage",
        /// Why it failed.
        error: optional EventError = "error",
    }
    /// A text begins.
    TextStart = "text_start" on Agent {
        /// The text's block.
        block_id: required String = "blockId",
    }
    /// A piece of a text.
    TextDelta = "text_delta" on Agent {
        /// The text's block.
        block_id: required String = "blockId",
        /// The piece.
        text: required String = "text",
    }
    /// A text ends.
    TextEnd = "text_end" on Agent {
        /// The text's block.
        block_id: required String = "blockId",
    }
    /// A piece of reasoning.
    ReasoningDelta = "reasoning_delta" on Agent {
        /// The piece.
        text: required String = "text",
    }
    /// The open block of this turn is void.
    TurnReset = "turn_reset" on Agent {}
    /// A tool call begins.
    ToolCallStart = "tool_call_start" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// The tool.
        tool_name: required String = "toolName",
    }
    /// A piece of a tool's input. Reserved.
    ToolCallInputDelta = "tool_call_input_delta" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// The piece.
        partial_json: required String = "partialJson",
    }
    /// A tool's input is known.
    ToolCallInputComplete = "tool_call_input_complete" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// The input, byte for byte.
        input: required RawObject = "input",
    }
    /// A tool runs.
    ToolCallExecuting = "tool_call_executing" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
    }
    /// A tool printed something.
    ToolOutputDelta = "tool_output_delta" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// Where to.
        stream: required StandardStream = "stream",
        /// What.
        text: required String = "text",
    }
    /// A tool answered.
    ToolCallResult = "tool_call_result" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// The answer.
        result: required ToolReturn = "result",
    }
    /// A tool failed.
    ToolCallError = "tool_call_error" on Agent {
        /// The call.
        tool_call_id: required String = "toolCallId",
        /// Why.
        error: required EventError = "error",
    }
    /// A conversation is being made shorter.
    CompactionStarted = "compaction_started" on Agent {
        /// The agent.
        agent_id: required NonEmptyString = "agentId",
        /// Its name, for people.
        agent_name: optional NonEmptyString = "agentName",
        /// Tokens of the conversation.
        tokens: required Count = "tokens",
        /// Tokens allowed.
        budget: required Count = "budget",
        /// The model's window; absent when unknown.
        context_tokens: optional Positive = "contextTokens",
    }
    /// A conversation was made shorter.
    CompactionEnded = "compaction_ended" on Agent {
        /// The agent.
        agent_id: required NonEmptyString = "agentId",
        /// Its name, for people.
        agent_name: optional NonEmptyString = "agentName",
        /// Tokens of the conversation.
        tokens: required Count = "tokens",
        /// Tokens freed.
        reclaimed: required Count = "reclaimed",
        /// How.
        method: required CompactionMethod = "method",
    }
}
