//! Reads the events of an Anthropic message.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;
use trestle_contract::inference::TokenCounts;

use crate::error::{ErrorClass, ModelError, classify_in_stream};
use crate::lenient::{Count, JsonText, List, Object, Text};
use crate::request::ToolNames;
use crate::tool_calls::Fragment;
use crate::turn::{AnswerBuilder, CompletedTurn, ModelEvent, ProviderFault, StopReason, UsageReport};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: Count,
    #[serde(borrow)]
    message: Object<Message<'a>>,
    #[serde(borrow)]
    content_block: Object<Block<'a>>,
    #[serde(borrow)]
    delta: Object<Delta<'a>>,
    usage: Object<Usage>,
    // A whole message carries these itself.
    #[serde(borrow)]
    content: List<Block<'a>>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    usage: Object<Usage>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: JsonText<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    partial_json: Text<'a>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

/// Follows one message, streamed or whole.
#[derive(Default)]
pub(crate) struct AnthropicDecoder {
    answer: AnswerBuilder,
    /// The uncached part of the prompt; the wire counts cached parts beside it.
    plain_input: Option<u64>,
    finished: bool,
}

impl AnthropicDecoder {
    pub(crate) fn answer(&self) -> &AnswerBuilder {
        &self.answer
    }

    /// Reads the data of one event; `true` when the stream has said that it is whole.
    pub(crate) fn read(&mut self, data: &str, events: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(false);
        }
        let event = serde_json::from_str::<Object<Event<'_>>>(data).map_err(|error| {
            ModelError::new(
                ErrorClass::MalformedStream,
                format!("the provider sent an event that is not JSON ({error})"),
            )
        })?;
        let Some(event) = event.0 else { return Ok(false) };
        match event.kind.0.as_deref() {
            Some("error") => return Err(in_stream_error(data)),
            Some("message_start") => {
                let message = event.message.0.unwrap_or_default();
                self.usage(message.usage.0);
                self.stop(message.stop_reason);
            }
            Some("content_block_start") => {
                self.start_block(event.index.0, event.content_block.0.unwrap_or_default(), events)?
            }
            Some("content_block_delta") => {
                self.read_delta(event.index.0, event.delta.0.unwrap_or_default(), events)?
            }
            Some("message_delta") => {
                self.usage(event.usage.0);
                self.stop(event.delta.0.unwrap_or_default().stop_reason);
            }
            Some("message_stop") => {
                self.finished = true;
                return Ok(true);
            }
            Some("message") => {
                self.usage(event.usage.0);
                for (index, block) in (0..).zip(event.content.0) {
                    self.start_block(Some(index), block, events)?;
                }
                self.stop(event.stop_reason);
                self.finished = true;
                return Ok(true);
            }
            Some(_) => {}
            None if data.contains("\"error\"") => return Err(in_stream_error(data)),
            None => {}
        }
        Ok(false)
    }

    fn start_block(
        &mut self,
        index: Option<u64>,
        block: Block<'_>,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        if block.kind.0.as_deref() == Some("tool_use") {
            self.answer.calls.push(Fragment {
                index,
                id: block.id.0,
                name: block.name.0,
                // A streamed block starts with an empty input and fills it with deltas.
                arguments: block.input.0.filter(|input| input != "{}"),
            });
            return self.answer.check_size();
        }
        if let Some(piece) = block.thinking.filled() {
            self.answer.reasoning(&piece, events)?;
        }
        if let Some(piece) = block.text.filled() {
            self.answer.text(&piece, events)?;
        }
        Ok(())
    }

    fn read_delta(
        &mut self,
        index: Option<u64>,
        delta: Delta<'_>,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        if let Some(piece) = delta.text.filled() {
            self.answer.text(&piece, events)?;
        }
        if let Some(piece) = delta.thinking.filled() {
            self.answer.reasoning(&piece, events)?;
        }
        if let Some(piece) = delta.partial_json.filled() {
            // Blocks of the provider's own tools also carry JSON; only calls that were opened as ours take it.
            self.answer.calls.append(index, &piece);
        }
        self.answer.check_size()
    }

    fn stop(&mut self, word: Text<'_>) {
        if let Some(word) = word.filled() {
            self.answer.stop = Some(StopReason::parse(&word));
        }
    }

    fn usage(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        self.plain_input = usage.input_tokens.0.or(self.plain_input);
        self.answer.usage.merge(UsageReport {
            counts: TokenCounts {
                input_tokens: None,
                output_tokens: usage.output_tokens.0,
                cached_read_tokens: usage.cache_read_input_tokens.0,
                cached_write_tokens: usage.cache_creation_input_tokens.0,
            },
            cost_dollars: None,
        });
        let counts = &mut self.answer.usage.counts;
        let parts = [self.plain_input, counts.cached_read_tokens, counts.cached_write_tokens];
        if parts.iter().any(Option::is_some) {
            counts.input_tokens = Some(parts.into_iter().flatten().fold(0, u64::saturating_add));
        }
    }

    /// Whether the answer is whole: this wire always says so.
    pub(crate) fn is_whole(&self) -> bool {
        self.finished
    }

    pub(crate) fn finish(self, names: &ToolNames) -> Result<CompletedTurn, ModelError> {
        self.answer.finish(names)
    }
}

fn in_stream_error(data: &str) -> ModelError {
    let value = serde_json::from_str::<Value>(data).unwrap_or_default();
    let fault = ProviderFault::read(&value).unwrap_or_default();
    let words = if fault.message.is_empty() { &fault.kind } else { &fault.message };
    ModelError::new(
        classify_in_stream(&fault.kind, &fault.message),
        format!("the provider broke off the answer: {words}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(events: &[&str]) -> (Vec<ModelEvent>, AnthropicDecoder, bool) {
        let mut decoder = AnthropicDecoder::default();
        let mut seen = VecDeque::new();
        let mut whole = false;
        for event in events {
            whole = decoder.read(event, &mut seen).unwrap();
        }
        (seen.into(), decoder, whole)
    }

    const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":7,"output_tokens":1}}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    #[test]
    fn a_turn_with_thinking_text_and_two_calls_is_put_together() {
        let (events, decoder, whole) = run(&[
            START,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"zz"}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"hi"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":42}}"#,
            STOP,
        ]);
        assert!(whole);
        assert_eq!(events, [ModelEvent::Reasoning("hm".into()), ModelEvent::Delta("hi".into())]);
        let completed = decoder.finish(&ToolNames::default()).unwrap();
        assert_eq!(completed.stop, StopReason::ToolUse);
        assert_eq!(completed.turn.text, "hi");
        assert_eq!(completed.turn.tool_calls.len(), 2);
        assert_eq!(completed.turn.tool_calls[0].input["x"], 1);
        assert!(completed.turn.tool_calls[1].input.is_empty());
        let usage = completed.turn.usage;
        assert_eq!((usage.input_tokens, usage.output_tokens), (Some(20), Some(42)));
        assert_eq!((usage.cached_read_tokens, usage.cached_write_tokens), (Some(10), Some(7)));
    }

    #[test]
    fn prompt_tokens_are_a_sum_a_plain_count_or_unknown() {
        let usage = |json: &str| {
            run(&[&format!(r#"{{"type":"message_start","message":{{"usage":{json}}}}}"#)])
                .1
                .answer
                .usage
                .counts
                .input_tokens
        };
        assert_eq!(usage(r#"{"input_tokens":3,"cache_read_input_tokens":4}"#), Some(7));
        assert_eq!(usage(r#"{"input_tokens":0}"#), Some(0));
        assert_eq!(usage(r#"{"output_tokens":1}"#), None);
        let later = run(&[
            START,
            r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":5,"output_tokens":2}}"#,
        ])
        .1;
        assert_eq!(later.answer.usage.counts.input_tokens, Some(22));
    }

    #[test]
    fn errors_after_200_fail_the_turn_and_nothing_but_message_stop_makes_it_whole() {
        let table = [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                ErrorClass::Overloaded,
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}"#,
                ErrorClass::ContextTooLong,
            ),
            (r#"{"error":{"message":"gateway"}}"#, ErrorClass::Overloaded),
            ("{\"type\":", ErrorClass::MalformedStream),
        ];
        for (data, class) in table {
            assert_eq!(
                AnthropicDecoder::default().read(data, &mut VecDeque::new()).unwrap_err().class,
                class,
                "{data}"
            );
        }
        let (_, decoder, whole) = run(&[
            START,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            "[DONE]",
            "null",
            r#"{"type":"new_kind"}"#,
        ]);
        assert!(!whole && !decoder.is_whole());
    }

    #[test]
    fn a_whole_message_is_read_like_a_stream() {
        let (events, decoder, whole) = run(&[
            r#"{"type":"message","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"a","name":"f","input":{"x":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#,
        ]);
        assert!(whole);
        assert_eq!(events, [ModelEvent::Delta("hi".into())]);
        assert_eq!(decoder.finish(&ToolNames::default()).unwrap().turn.tool_calls[0].input["x"], 1);
    }

    #[test]
    fn json_of_the_providers_own_tools_joins_no_call() {
        let (_, decoder, _) = run(&[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}"#,
            STOP,
        ]);
        let calls = decoder.finish(&ToolNames::default()).unwrap().turn.tool_calls;
        assert_eq!(calls.len(), 1);
        assert!(calls[0].input.is_empty());
    }
}
