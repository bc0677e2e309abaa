//! Writes a turn as events of an Anthropic message.

use serde_json::{Value, json};

use super::script::{ScriptUsage, Stop, UsageOn, Wire};
use super::speech::{Piece, Speech};
use super::wire::{Event, WireWriter};

pub(super) struct AnthropicWriter {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) wire: Wire,
    pub(super) stop: Option<Stop>,
    pub(super) block: Option<Block>,
    pub(super) blocks: usize,
    pub(super) call_blocks: Vec<usize>,
}

/// The block that text or thinking goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    Thinking,
    Text,
    Call,
}

impl AnthropicWriter {
    fn event(kind: &'static str, data: Value) -> Event {
        let mut event = json!({"type": kind});
        if let (Value::Object(event), Value::Object(data)) = (&mut event, data) {
            event.extend(data);
        }
        Event { name: Some(kind), data: event.to_string() }
    }

    /// Opens a block of this kind unless it is the one that is open.
    fn block(&mut self, block: Block, start: &Value, events: &mut Vec<Event>) {
        if self.block == Some(block) && block != Block::Call {
            return;
        }
        // Interleaved calls keep their blocks open until the end.
        if self.block.is_some_and(|open| open != Block::Call)
            || (self.block == Some(Block::Call) && !self.wire.interleave)
        {
            events.push(Self::event("content_block_stop", json!({"index": self.blocks - 1})));
        }
        self.block = Some(block);
        events
            .push(Self::event("content_block_start", json!({"index": self.blocks, "content_block": start})));
        self.blocks += 1;
    }

    fn stop_reason(&self, speech: &Speech) -> &'static str {
        match self.stop {
            Some(Stop::Length) => "max_tokens",
            Some(Stop::ContentFilter | Stop::Refusal) => "refusal",
            None if speech.calls.is_empty() => "end_turn",
            None => "tool_use",
        }
    }
}

fn usage(usage: ScriptUsage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write),
        "cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write, "output_tokens": output,
    })
}

impl WireWriter for AnthropicWriter {
    fn open(&mut self, speech: &Speech) -> Vec<Event> {
        let mut message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [], "stop_reason": null, "stop_sequence": null,
        });
        message["usage"] =
            if self.wire.usage_on == UsageOn::None { json!({}) } else { usage(speech.usage, 1) };
        vec![Self::event("message_start", json!({"message": message}))]
    }

    fn piece(&mut self, piece: &Piece, speech: &Speech, _: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let (index, delta) = match piece {
            Piece::Reasoning(text) => {
                self.block(
                    Block::Thinking,
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                    &mut events,
                );
                (self.blocks - 1, json!({"type": "thinking_delta", "thinking": text}))
            }
            Piece::Text(text) => {
                self.block(Block::Text, &json!({"type": "text", "text": ""}), &mut events);
                (self.blocks - 1, json!({"type": "text_delta", "text": text}))
            }
            Piece::Call { number, first, arguments } => {
                let call = &speech.calls[*number];
                if *first {
                    self.block(
                        Block::Call,
                        &json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}),
                        &mut events,
                    );
                    self.call_blocks.push(self.blocks - 1);
                }
                (self.call_blocks[*number], json!({"type": "input_json_delta", "partial_json": arguments}))
            }
        };
        events.push(Self::event("content_block_delta", json!({"index": index, "delta": delta})));
        events
    }

    fn close(&mut self, speech: &Speech) -> Vec<Event> {
        let mut events = Vec::new();
        if self.wire.interleave && self.block == Some(Block::Call) {
            events.extend(
                self.call_blocks
                    .iter()
                    .map(|index| Self::event("content_block_stop", json!({"index": index}))),
            );
        } else if self.block.is_some() {
            events.push(Self::event("content_block_stop", json!({"index": self.blocks - 1})));
        }
        let mut end = json!({"delta": {"stop_reason": self.stop_reason(speech), "stop_sequence": null}});
        end["usage"] = if self.wire.usage_on == UsageOn::None {
            json!({})
        } else {
            json!({"output_tokens": speech.usage.output})
        };
        events.push(Self::event("message_delta", end));
        events.push(Self::event("message_stop", json!({})));
        events
    }

    fn error(&self, kind: &str, message: &str) -> Event {
        Self::event("error", json!({"error": {"type": kind, "message": message}}))
    }

    fn ping(&self) -> Option<Event> {
        Some(Self::event("ping", json!({})))
    }

    fn whole(&mut self, speech: &mut Speech) -> Value {
        let stop_reason = self.stop_reason(speech);
        let (mut text, mut thinking) = (String::new(), String::new());
        while let Some(piece) = speech.next_piece() {
            match piece {
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Reasoning(piece) => thinking.push_str(&piece),
                Piece::Call { .. } => {}
            }
        }
        let mut content = Vec::new();
        if !thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": thinking, "signature": "scripted"}));
        }
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        for call in &speech.calls {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null, "usage": usage(speech.usage, speech.usage.output),
        })
    }
}
