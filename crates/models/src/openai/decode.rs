//! Reads the chunks of a chat completion.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use trestle_contract::inference::TokenCounts;

use crate::error::{ErrorClass, ModelError, classify_in_stream};
use crate::lenient::{Amount, Count, JsonText, List, Object, Text};
use crate::request::ToolNames;
use crate::tool_calls::Fragment;
use crate::turn::{AnswerBuilder, CompletedTurn, ModelEvent, ProviderFault, StopReason, UsageReport};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: List<Choice<'a>>,
    usage: Object<Usage>,
    x_groq: Object<VendorUsage>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VendorUsage {
    usage: Object<Usage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Count,
    #[serde(borrow)]
    delta: Object<Delta<'a>>,
    #[serde(borrow)]
    message: Object<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
    usage: Object<Usage>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: TextParts<'a>,
    #[serde(borrow)]
    reasoning: Text<'a>,
    #[serde(borrow)]
    reasoning_content: Text<'a>,
    #[serde(borrow)]
    refusal: Text<'a>,
    #[serde(borrow)]
    tool_calls: List<CallFragment<'a>>,
    #[serde(borrow)]
    function_call: Object<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CallFragment<'a> {
    index: Count,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Object<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
    prompt_tokens_details: Object<PromptDetails>,
    prompt_cache_hit_tokens: Count,
    cached_tokens: Count,
    cache_creation_input_tokens: Count,
    cost: Amount,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

impl Usage {
    fn report(&self) -> UsageReport {
        let details = self.prompt_tokens_details.0.as_ref();
        UsageReport {
            counts: TokenCounts {
                input_tokens: self.prompt_tokens.0.or(self.input_tokens.0),
                output_tokens: self.completion_tokens.0.or(self.output_tokens.0),
                cached_read_tokens: details
                    .and_then(|details| details.cached_tokens.0)
                    .or(self.prompt_cache_hit_tokens.0)
                    .or(self.cached_tokens.0),
                cached_write_tokens: details
                    .and_then(|details| details.cache_write_tokens.0)
                    .or(self.cache_creation_input_tokens.0),
            },
            cost_dollars: self.cost.0,
        }
    }
}

/// A text, or the text parts of a list of parts.
#[derive(Debug, Default)]
struct TextParts<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for TextParts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct TextPart<'a> {
            #[serde(borrow)]
            text: Text<'a>,
        }
        struct PartsVisitor;
        impl<'de> Visitor<'de> for PartsVisitor {
            type Value = Vec<Cow<'de, str>>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(vec![Cow::Borrowed(text)])
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(vec![Cow::Owned(text.to_owned())])
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(part) = seq.next_element::<Object<TextPart<'de>>>()? {
                    texts.extend(part.0.and_then(|part| part.text.filled()));
                }
                Ok(texts)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                Ok(Vec::new())
            }
        }
        deserializer.deserialize_any(PartsVisitor).map(TextParts)
    }
}

/// Follows one chat completion, streamed or whole.
#[derive(Default)]
pub(crate) struct OpenAiDecoder {
    answer: AnswerBuilder,
    finished: bool,
    refused: bool,
}

impl OpenAiDecoder {
    pub(crate) fn answer(&self) -> &AnswerBuilder {
        &self.answer
    }

    /// Reads the data of one event; `true` when the stream has said that it is whole.
    pub(crate) fn read(
        &mut self,
        event: &str,
        data: &str,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<bool, ModelError> {
        let data = data.trim();
        if data == "[DONE]" {
            self.finished = true;
            return Ok(true);
        }
        if data.is_empty() {
            return Ok(false);
        }
        let chunk = serde_json::from_str::<Object<Chunk<'_>>>(data).map_err(|error| {
            ModelError::new(
                ErrorClass::MalformedStream,
                format!("the provider sent an event that is not JSON ({error})"),
            )
        })?;
        let Some(chunk) = chunk.0 else { return Ok(false) };
        if event == "error" {
            let value = serde_json::from_str::<Value>(data).unwrap_or_default();
            return Err(in_stream_error(&value));
        }
        if let Some(error) = chunk.error {
            return Err(in_stream_error(&error));
        }
        for usage in [chunk.x_groq.0.and_then(|vendor| vendor.usage.0), chunk.usage.0].into_iter().flatten() {
            self.answer.usage.merge(usage.report());
        }
        for choice in chunk.choices.0.into_iter().filter(|choice| choice.index.0.unwrap_or(0) == 0) {
            self.read_choice(choice, events)?;
        }
        Ok(false)
    }

    fn read_choice(
        &mut self,
        choice: Choice<'_>,
        events: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ModelError> {
        if let Some(error) = choice.error {
            return Err(in_stream_error(&error));
        }
        if let Some(usage) = choice.usage.0 {
            self.answer.usage.merge(usage.report());
        }
        for delta in [choice.delta.0, choice.message.0].into_iter().flatten() {
            self.read_delta(delta, events)?;
        }
        if let Some(reason) = choice.finish_reason.filled() {
            if reason == "error" {
                return Err(ModelError::new(
                    ErrorClass::Overloaded,
                    "the provider ended the answer with an error",
                ));
            }
            self.finished = true;
            self.answer.stop =
                Some(if self.refused { StopReason::Refusal } else { StopReason::parse(&reason) });
        }
        Ok(())
    }

    fn read_delta(&mut self, delta: Delta<'_>, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if let Some(piece) = delta.reasoning.filled().or_else(|| delta.reasoning_content.filled()) {
            self.answer.reasoning(&piece, events)?;
        }
        for piece in delta.content.0 {
            self.answer.text(&piece, events)?;
        }
        if let Some(piece) = delta.refusal.filled() {
            self.answer.text(&piece, events)?;
            self.refused = true;
        }
        for call in delta.tool_calls.0 {
            let function = call.function.0.unwrap_or_default();
            self.answer.calls.push(Fragment {
                index: call.index.0,
                id: call.id.0,
                name: function.name.0,
                arguments: function.arguments.0,
            });
        }
        if let Some(function) = delta.function_call.0 {
            self.answer.calls.push(Fragment {
                index: Some(0),
                id: None,
                name: function.name.0,
                arguments: function.arguments.0,
            });
        }
        self.answer.check_size()
    }

    /// Whether the answer is whole, even if the stream breaks off now: servers that never send `[DONE]` end after the finish reason.
    pub(crate) fn is_whole(&self) -> bool {
        self.finished
    }

    pub(crate) fn finish(self, names: &ToolNames) -> Result<CompletedTurn, ModelError> {
        self.answer.finish(names)
    }
}

fn in_stream_error(value: &Value) -> ModelError {
    let fault = ProviderFault::read(value).unwrap_or_default();
    let words = if fault.message.is_empty() { &fault.kind } else { &fault.message };
    ModelError::new(
        classify_in_stream(&fault.kind, &fault.message),
        format!("the provider broke off the answer: {words}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(chunks: &[&str]) -> (Vec<ModelEvent>, OpenAiDecoder) {
        let mut decoder = OpenAiDecoder::default();
        let mut events = VecDeque::new();
        for chunk in chunks {
            decoder.read("", chunk, &mut events).unwrap();
        }
        (events.into(), decoder)
    }

    fn finish(chunks: &[&str]) -> CompletedTurn {
        run(chunks).1.finish(&ToolNames::default()).unwrap()
    }

    #[test]
    fn text_and_both_spellings_of_reasoning_are_told_apart() {
        let (events, decoder) = run(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"r1"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"r2"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a\n"}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"b"}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        ]);
        assert_eq!(
            events,
            [
                ModelEvent::Reasoning("r1".into()),
                ModelEvent::Reasoning("r2".into()),
                ModelEvent::Delta("a\n".into()),
                ModelEvent::Delta("b".into()),
            ]
        );
        assert!(decoder.is_whole());
        assert_eq!(decoder.finish(&ToolNames::default()).unwrap().turn.text, "a\nb");
    }

    #[test]
    fn chunks_that_vendors_bend_lose_nothing() {
        let table = [
            ("null tool calls", r#"{"choices":[{"delta":{"content":"x","tool_calls":null}}]}"#),
            ("null usage", r#"{"choices":[{"delta":{"content":"x"}}],"usage":null}"#),
            (
                "odd counts",
                r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":-1,"completion_tokens":"many"}}"#,
            ),
            (
                "null finish",
                r#"{"choices":[{"delta":{"content":"x"},"finish_reason":null,"logprobs":null}]}"#,
            ),
            (
                "tool entry without function",
                r#"{"choices":[{"delta":{"content":"x","tool_calls":[{}, null, 3]}}]}"#,
            ),
            ("whole message", r#"{"object":"chat.completion","choices":[{"message":{"content":"x"}}]}"#),
            ("null error", r#"{"error":null,"choices":[{"delta":{"content":"x"}}]}"#),
            (
                "second choice",
                r#"{"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{"content":"y"}}]}"#,
            ),
        ];
        for (name, chunk) in table {
            assert_eq!(finish(&[chunk]).turn.text, "x", "{name}");
        }
        for nothing in
            [r#"{"choices":[{"delta":null}]}"#, r#"{"choices":null}"#, "{}", "null", "[]", "\"text\"", " "]
        {
            assert_eq!(run(&[nothing]).0, [], "{nothing}");
        }
    }

    #[test]
    fn usage_counts_on_any_chunk_the_last_one_wins_and_cached_parts_are_kept() {
        let table = [
            (
                "own chunk",
                vec![r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#],
                (Some(5), Some(2), None, None),
            ),
            (
                "with choices (42)",
                vec![
                    r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
                ],
                (Some(5), Some(2), Some(4), None),
            ),
            (
                "running totals",
                vec![
                    r#"{"usage":{"prompt_tokens":5,"completion_tokens":1}}"#,
                    r#"{"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
                ],
                (Some(5), Some(2), None, None),
            ),
            (
                "zero is a count",
                vec![
                    r#"{"usage":{"prompt_tokens":0,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}}"#,
                ],
                (Some(0), Some(0), Some(0), None),
            ),
            (
                "null later",
                vec![r#"{"usage":{"prompt_tokens":5,"completion_tokens":2}}"#, r#"{"usage":null}"#],
                (Some(5), Some(2), None, None),
            ),
            (
                "in the choice",
                vec![r#"{"choices":[{"delta":{},"usage":{"prompt_tokens":5,"completion_tokens":2}}]}"#],
                (Some(5), Some(2), None, None),
            ),
            (
                "vendor member",
                vec![r#"{"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2}}}"#],
                (Some(5), Some(2), None, None),
            ),
            (
                "cache hits",
                vec![r#"{"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_cache_hit_tokens":3}}"#],
                (Some(5), Some(2), Some(3), None),
            ),
            (
                "cache writes",
                vec![
                    r#"{"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":4}}}"#,
                ],
                (Some(5), Some(2), Some(1), Some(4)),
            ),
            ("none", vec!["{}"], (None, None, None, None)),
        ];
        for (name, chunks, (input_tokens, output_tokens, cached_read_tokens, cached_write_tokens)) in table {
            let want = TokenCounts { input_tokens, output_tokens, cached_read_tokens, cached_write_tokens };
            assert_eq!(finish(&chunks).turn.usage, want, "{name}");
        }
        assert_eq!(finish(&[r#"{"usage":{"cost":0.0123}}"#]).reported_cost_micros, Some(12_300));
    }

    #[test]
    fn tool_calls_ask_for_tools_also_without_their_finish_reason() {
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},"finish_reason":"stop"}]}"#;
        let turn = finish(&[call]).turn;
        assert!(turn.wants_tools);
        assert_eq!(turn.tool_calls[0].input["x"], 1);
        let object =
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}]}}]}"#;
        assert_eq!(finish(&[object]).turn.tool_calls[0].input["x"], 1);
        let legacy = r#"{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{}"}},"finish_reason":"function_call"}]}"#;
        assert_eq!(finish(&[legacy]).turn.tool_calls[0].name, "f");
        assert!(!finish(&[r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#]).turn.wants_tools);
    }

    #[test]
    fn broken_tool_arguments_are_kept_as_text_beside_an_empty_input() {
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"x\":"}}]},"finish_reason":"length"}]}"#;
        let completed = finish(&[call]);
        assert_eq!(completed.stop, StopReason::Length);
        assert_eq!(completed.turn.tool_calls[0].invalid_input.as_deref(), Some("{\"x\":"));
        assert!(completed.turn.tool_calls[0].input.is_empty());
    }

    #[test]
    fn errors_after_200_fail_the_turn() {
        let table = [
            ("", r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#, ErrorClass::Overloaded),
            ("", r#"{"error":"boom"}"#, ErrorClass::Overloaded),
            ("error", r#"{"message":"slow down","code":"rate_limit_exceeded"}"#, ErrorClass::RateLimited),
            (
                "",
                r#"{"choices":[{"error":{"code":502,"message":"upstream"},"finish_reason":"error"}]}"#,
                ErrorClass::Overloaded,
            ),
            ("", r#"{"choices":[{"finish_reason":"error"}]}"#, ErrorClass::Overloaded),
            (
                "",
                r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
                ErrorClass::ContextTooLong,
            ),
            ("", "<html>", ErrorClass::MalformedStream),
            ("", r#"{"choices":[{"#, ErrorClass::MalformedStream),
        ];
        for (event, data, class) in table {
            let error = OpenAiDecoder::default().read(event, data, &mut VecDeque::new()).unwrap_err();
            assert_eq!(error.class, class, "{data}");
        }
    }

    #[test]
    fn only_a_finish_reason_or_done_makes_an_answer_whole() {
        assert!(!run(&[r#"{"choices":[{"delta":{"content":"x"}}]}"#]).1.is_whole());
        assert!(!run(&[r#"{"choices":[{"delta":{"refusal":"no"}}]}"#]).1.is_whole());
        assert!(run(&["[DONE]"]).1.is_whole());
        let refused = finish(&[r#"{"choices":[{"delta":{"refusal":"no"},"finish_reason":"stop"}]}"#]);
        assert_eq!((refused.stop, refused.turn.text.as_str()), (StopReason::Refusal, "no"));
    }
}
