//! Writes a turn as chat completion chunks.

use serde_json::{Map, Value, json};

use super::script::{ScriptUsage, Stop, ToolId, ToolIndex, UsageOn, Wire};
use super::speech::{Piece, Speech};
use super::wire::{Event, WireWriter};

pub(super) struct OpenAiWriter {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) wire: Wire,
    pub(super) include_usage: bool,
    pub(super) stop: Option<Stop>,
}

impl OpenAiWriter {
    fn chunk(&self, choices: &Value, usage: Option<Value>) -> Event {
        let mut chunk = json!({"id": self.id, "object": "chat.completion.chunk", "created": 1_700_000_000, "model": self.model, "choices": choices});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        } else if self.include_usage && self.wire.usage_on == UsageOn::Own {
            chunk["usage"] = Value::Null;
        }
        Event { name: None, data: chunk.to_string() }
    }

    fn delta(&self, mut delta: Map<String, Value>, usage: Option<Value>) -> Event {
        if self.wire.nulls {
            for name in ["content", "tool_calls", "function_call", "reasoning_content", "refusal"] {
                delta.entry(name).or_insert(Value::Null);
            }
        }
        let mut choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        if self.wire.nulls {
            choice["logprobs"] = Value::Null;
        }
        self.chunk(&json!([choice]), usage)
    }

    fn finish_reason(&self, speech: &Speech) -> &'static str {
        match self.stop {
            Some(Stop::Length) => "length",
            Some(Stop::ContentFilter | Stop::Refusal) => "content_filter",
            None if speech.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }
}

fn usage(usage: ScriptUsage, output: u64) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": output, "total_tokens": usage.input + output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    })
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl WireWriter for OpenAiWriter {
    fn open(&mut self, _: &Speech) -> Vec<Event> {
        vec![self.delta(members(json!({"role": "assistant", "content": ""})), None)]
    }

    fn piece(&mut self, piece: &Piece, speech: &Speech, deltas: u64) -> Vec<Event> {
        let running = (self.wire.usage_on == UsageOn::Every).then(|| usage(speech.usage, deltas));
        let delta = match piece {
            Piece::Reasoning(text) => json!({"reasoning_content": text}),
            Piece::Text(text) => json!({"content": text}),
            Piece::Call { number, first, arguments } => {
                let call = &speech.calls[*number];
                let mut fragment = json!({"function": {"arguments": arguments}});
                match self.wire.tool_index {
                    ToolIndex::Counted => fragment["index"] = json!(number),
                    ToolIndex::Zero => fragment["index"] = json!(0),
                    ToolIndex::Text => fragment["index"] = json!(number.to_string()),
                    ToolIndex::Absent => {}
                }
                match (self.wire.tool_id, first) {
                    (ToolId::First | ToolId::Empty, true) | (ToolId::Every, _) => {
                        fragment["id"] = json!(call.id)
                    }
                    (ToolId::Empty, false) => fragment["id"] = json!(""),
                    (ToolId::First, false) | (ToolId::Absent, _) => {}
                }
                if *first {
                    fragment["type"] = json!("function");
                    fragment["function"]["name"] = json!(call.name);
                }
                json!({"tool_calls": [fragment]})
            }
        };
        vec![self.delta(members(delta), running)]
    }

    fn close(&mut self, speech: &Speech) -> Vec<Event> {
        let total = usage(speech.usage, speech.usage.output);
        let on_last = matches!(self.wire.usage_on, UsageOn::Last | UsageOn::Every).then(|| total.clone());
        let choice = json!([{"index": 0, "delta": {}, "finish_reason": self.finish_reason(speech)}]);
        let mut events = vec![self.chunk(&choice, on_last)];
        if self.include_usage && self.wire.usage_on == UsageOn::Own {
            events.push(self.chunk(&json!([]), Some(total)));
        }
        if self.wire.done {
            events.push(Event { name: None, data: "[DONE]".to_owned() });
        }
        events
    }

    fn error(&self, kind: &str, message: &str) -> Event {
        Event {
            name: None,
            data: json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
                .to_string(),
        }
    }

    fn ping(&self) -> Option<Event> {
        None
    }

    fn whole(&mut self, speech: &mut Speech) -> Value {
        let finish_reason = self.finish_reason(speech);
        let (mut text, mut reasoning) = (String::new(), String::new());
        while let Some(piece) = speech.next_piece() {
            match piece {
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Reasoning(piece) => reasoning.push_str(&piece),
                Piece::Call { .. } => {}
            }
        }
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        if !speech.calls.is_empty() {
            message["tool_calls"] = speech
                .calls
                .iter()
                .map(|call| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
                .collect();
        }
        json!({
            "id": self.id, "object": "chat.completion", "created": 1_700_000_000, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": null}],
            "usage": usage(speech.usage, speech.usage.output),
        })
    }
}
