//! What comes out of a model's answer, the same for both wires.

use std::collections::VecDeque;

use serde_json::Value;
use trestle_contract::inference::{ChatTurn, TokenCounts, ToolCallRequest};

use crate::error::{ErrorClass, ModelError};
use crate::request::ToolNames;
use crate::tool_calls::ToolCallAssembler;

/// One step of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer's text.
    Delta(String),
    /// A piece of the model's thinking.
    Reasoning(String),
    /// The answer broke off and is generated anew: everything since the start is void.
    Restarted,
    /// The whole turn. Always the last event.
    Done(Box<CompletedTurn>),
}

/// A turn that reached its end.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedTurn {
    /// Text, calls and counts.
    pub turn: ChatTurn,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What the provider says the turn cost, in millionths of a dollar; few say it.
    pub reported_cost_micros: Option<u64>,
    /// Counts of earlier attempts that the provider had begun to answer, reported or estimated.
    pub abandoned: Vec<TokenCounts>,
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// It had said what it wanted.
    Natural,
    /// It waits for tool results.
    ToolUse,
    /// The answer reached its maximal length.
    Length,
    /// A filter cut the answer off.
    ContentFilter,
    /// The model declined to answer.
    Refusal,
    /// The provider paused a long turn of its own tools.
    Pause,
    /// Anything else, in the provider's word.
    Other(String),
}

impl StopReason {
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "stop" | "end_turn" | "stop_sequence" | "eos" => Self::Natural,
            "tool_calls" | "function_call" | "tool_use" => Self::ToolUse,
            "length" | "max_tokens" | "model_context_window_exceeded" => Self::Length,
            "content_filter" => Self::ContentFilter,
            "refusal" => Self::Refusal,
            "pause_turn" => Self::Pause,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// Token counts and cost as a provider reports them over a stream: each later report replaces what it names, also with zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct UsageReport {
    pub(crate) counts: TokenCounts,
    pub(crate) cost_dollars: Option<f64>,
}

impl UsageReport {
    pub(crate) fn merge(&mut self, later: Self) {
        let counts = &mut self.counts;
        counts.input_tokens = later.counts.input_tokens.or(counts.input_tokens);
        counts.output_tokens = later.counts.output_tokens.or(counts.output_tokens);
        counts.cached_read_tokens = later.counts.cached_read_tokens.or(counts.cached_read_tokens);
        counts.cached_write_tokens = later.counts.cached_write_tokens.or(counts.cached_write_tokens);
        self.cost_dollars = later.cost_dollars.or(self.cost_dollars);
    }
}

/// The longest answer that is kept in memory, in bytes of text, thinking and arguments.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Collects an answer while it streams.
#[derive(Debug, Default)]
pub(crate) struct AnswerBuilder {
    text: String,
    reasoning_bytes: usize,
    pub(crate) calls: ToolCallAssembler,
    pub(crate) stop: Option<StopReason>,
    pub(crate) usage: UsageReport,
}

impl AnswerBuilder {
    pub(crate) fn text(&mut self, piece: &str, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.text.push_str(piece);
        events.push_back(ModelEvent::Delta(piece.to_owned()));
        self.check_size()
    }

    pub(crate) fn reasoning(
        &mut self,
        piece: &str,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.reasoning_bytes += piece.len();
        events.push_back(ModelEvent::Reasoning(piece.to_owned()));
        self.check_size()
    }

    pub(crate) fn check_size(&self) -> Result<(), ModelError> {
        if self.size() > MAX_ANSWER_BYTES {
            return Err(ModelError::new(
                ErrorClass::BadRequest,
                format!("the model's answer is larger than {} MiB", MAX_ANSWER_BYTES / 1024 / 1024),
            ));
        }
        Ok(())
    }

    /// Bytes of text, thinking and arguments so far.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + self.reasoning_bytes + self.calls.size()
    }

    /// The turn, when the wire has said that it is whole.
    pub(crate) fn finish(self, names: &ToolNames) -> Result<CompletedTurn, ModelError> {
        let tool_calls: Vec<ToolCallRequest> = self
            .calls
            .finish()
            .into_iter()
            .map(|call| {
                let name = names.read(call.name);
                match call.input {
                    Ok(input) => ToolCallRequest { id: call.id, name, input, invalid_input: None },
                    Err(text) => ToolCallRequest {
                        id: call.id,
                        name,
                        input: serde_json::Map::new(),
                        invalid_input: Some(text),
                    },
                }
            })
            .collect();
        let stop = match self.stop {
            Some(stop) => stop,
            None if tool_calls.is_empty() => StopReason::Natural,
            None => StopReason::ToolUse,
        };
        if self.text.is_empty() && tool_calls.is_empty() {
            match stop {
                StopReason::ContentFilter => {
                    return Err(ModelError::new(
                        ErrorClass::ContentFilter,
                        "the provider's content filter stopped the answer",
                    ));
                }
                StopReason::Refusal => {
                    return Err(ModelError::new(ErrorClass::ContentFilter, "the model refused to answer"));
                }
                StopReason::Natural
                | StopReason::ToolUse
                | StopReason::Length
                | StopReason::Pause
                | StopReason::Other(_) => {}
            }
        }
        Ok(CompletedTurn {
            // A model that says "tool calls" and makes none waits for nothing.
            turn: ChatTurn {
                text: self.text,
                wants_tools: !tool_calls.is_empty(),
                tool_calls,
                usage: self.usage.counts,
            },
            stop,
            reported_cost_micros: self.usage.cost_dollars.map(micros),
            abandoned: Vec::new(),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates when it is cast"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}

/// An error object as providers write it: `{"error": {"message", "type", "code"}}`, `{"error": "…"}`, `{"message": "…"}`, `{"detail": "…"}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderFault {
    pub(crate) kind: String,
    pub(crate) message: String,
}

impl ProviderFault {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let error = match &value["error"] {
            Value::Null => value,
            error => error,
        };
        if let Value::String(message) = error {
            return Some(Self { kind: String::new(), message: message.clone() });
        }
        let message = ["message", "detail", "msg"].iter().find_map(|name| match &error[name] {
            Value::String(message) => Some(message.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        });
        let word = |name: &str| match &error[name] {
            Value::String(word) if word != "error" => Some(word.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let kind = word("code").or_else(|| word("type"));
        if message.is_none() && kind.is_none() {
            return None;
        }
        Some(Self { kind: kind.unwrap_or_default(), message: message.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_later_report_replaces_what_it_names_and_zero_is_a_count() {
        let report = |input, output| UsageReport {
            counts: TokenCounts { input_tokens: input, output_tokens: output, ..TokenCounts::default() },
            cost_dollars: None,
        };
        let mut usage = report(Some(10), Some(1));
        usage.merge(report(None, Some(0)));
        assert_eq!(usage, report(Some(10), Some(0)));
        usage.merge(report(Some(12), None));
        assert_eq!(usage, report(Some(12), Some(0)));
    }

    #[test]
    fn error_objects_of_every_usual_form_are_understood() {
        let fault = |kind: &str, message: &str| {
            Some(ProviderFault { kind: kind.to_owned(), message: message.to_owned() })
        };
        let table = [
            (json!({"error": {"message": "m", "type": "t", "code": "c"}}), fault("c", "m")),
            (json!({"error": {"message": "m", "type": "t", "code": null}}), fault("t", "m")),
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
                fault("overloaded_error", "m"),
            ),
            (json!({"error": {"message": "m", "code": 502}}), fault("502", "m")),
            (json!({"error": "m"}), fault("", "m")),
            (json!({"message": "m"}), fault("", "m")),
            (json!({"detail": "m"}), fault("", "m")),
            (json!({"detail": [{"msg": "field required"}]}), fault("", r#"[{"msg":"field required"}]"#)),
            (json!({"object": "error", "message": "m", "code": 400}), fault("400", "m")),
            (json!({}), None),
            (json!([]), None),
        ];
        for (value, want) in table {
            assert_eq!(ProviderFault::read(&value), want, "{value}");
        }
    }

    #[test]
    fn a_filtered_answer_without_content_is_an_error_and_with_content_is_none() {
        for word in ["content_filter", "refusal"] {
            let empty = AnswerBuilder { stop: Some(StopReason::parse(word)), ..AnswerBuilder::default() };
            assert_eq!(empty.finish(&ToolNames::default()).unwrap_err().class, ErrorClass::ContentFilter);
            let mut partial =
                AnswerBuilder { stop: Some(StopReason::parse(word)), ..AnswerBuilder::default() };
            partial.text("some", &mut VecDeque::new()).unwrap();
            assert_eq!(partial.finish(&ToolNames::default()).unwrap().turn.text, "some");
        }
    }
}
