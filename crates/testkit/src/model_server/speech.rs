//! What a turn says, cut into the pieces that a stream carries.

use std::collections::VecDeque;

use super::conversation::Conversation;
use super::script::{ScriptTurn, ScriptUsage, Wire};

/// One delta of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Reasoning(String),
    Text(String),
    /// A fragment of the call with this number.
    Call {
        number: usize,
        first: bool,
        arguments: String,
    },
}

/// A turn ready to be spoken.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) calls: Vec<SpokenCall>,
    pub(super) usage: ScriptUsage,
    pieces: VecDeque<Piece>,
    repeat: Option<(String, u64, bool)>,
    after_repeat: VecDeque<Piece>,
}

/// A call with its id and the text of its arguments.
#[derive(Debug, Clone)]
pub(super) struct SpokenCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Speech {
    pub(super) fn of(
        turn: &ScriptTurn,
        wire: &Wire,
        conversation: &Conversation,
        request_number: u64,
    ) -> Self {
        let calls: Vec<SpokenCall> = turn
            .tool_calls
            .iter()
            .enumerate()
            .map(|(number, call)| SpokenCall {
                id: call.id.clone().unwrap_or_else(|| format!("call_{request_number}_{number}")),
                name: call.name.clone(),
                arguments: call
                    .arguments
                    .clone()
                    .unwrap_or_else(|| serde_json::Value::Object(call.input.clone()).to_string()),
            })
            .collect();
        let mut text = turn.text.clone().unwrap_or_default();
        if let Some(json) = &turn.json {
            text.push_str(&json.to_string());
        }
        let mut pieces: VecDeque<Piece> = VecDeque::new();
        pieces.extend(
            cut(turn.reasoning.as_deref().unwrap_or_default(), turn.chunk).into_iter().map(Piece::Reasoning),
        );
        pieces.extend(cut(&text, turn.chunk).into_iter().map(Piece::Text));
        let repeated =
            turn.repeat.as_ref().map_or(0, |repeat| (repeat.text.len() as u64).saturating_mul(repeat.times));
        let spoken = (text.len()
            + turn.reasoning.as_ref().map_or(0, String::len)
            + calls.iter().map(|call| call.arguments.len()).sum::<usize>()) as u64;
        Self {
            usage: turn.usage.unwrap_or(ScriptUsage {
                input: (conversation.text.len() as u64).div_ceil(4),
                output: spoken.saturating_add(repeated).div_ceil(4),
                ..ScriptUsage::default()
            }),
            pieces,
            repeat: turn.repeat.as_ref().map(|repeat| (repeat.text.clone(), repeat.times, repeat.stamp)),
            after_repeat: fragments(&calls, wire),
            calls,
        }
    }

    /// The next delta.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        if let Some(piece) = self.pieces.pop_front() {
            return Some(piece);
        }
        if let Some((text, left, stamp)) = &mut self.repeat
            && *left > 0
        {
            *left -= 1;
            return Some(Piece::Text(if *stamp {
                format!("@{} {text}", microseconds())
            } else {
                text.clone()
            }));
        }
        self.after_repeat.pop_front()
    }
}

/// Microseconds since 1970, so that another process can tell how long a delta travelled.
#[expect(clippy::disallowed_methods, reason = "compared between processes, never used for a decision")]
fn microseconds() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

/// Cuts a text into words, or into pieces of so many characters.
fn cut(text: &str, chunk: Option<usize>) -> Vec<String> {
    if let Some(size) = chunk {
        let characters: Vec<char> = text.chars().collect();
        return characters.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect();
    }
    text.split_inclusive(' ').map(str::to_owned).collect()
}

fn fragments(calls: &[SpokenCall], wire: &Wire) -> VecDeque<Piece> {
    let mut lists: Vec<VecDeque<Piece>> = calls
        .iter()
        .enumerate()
        .map(|(number, call)| {
            let whole = wire.fragment == 0;
            let mut list = VecDeque::from([Piece::Call {
                number,
                first: true,
                arguments: if whole { call.arguments.clone() } else { String::new() },
            }]);
            if !whole {
                list.extend(
                    cut(&call.arguments, Some(wire.fragment)).into_iter().map(|arguments| Piece::Call {
                        number,
                        first: false,
                        arguments,
                    }),
                );
            }
            list
        })
        .collect();
    if !wire.interleave {
        return lists.into_iter().flatten().collect();
    }
    let mut mixed = VecDeque::new();
    while lists.iter().any(|list| !list.is_empty()) {
        mixed.extend(lists.iter_mut().filter_map(VecDeque::pop_front));
    }
    mixed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::script::{Protocol, Repeat};
    use super::*;

    #[test]
    fn the_pieces_are_the_whole_of_what_the_turn_says() {
        let turn = ScriptTurn {
            reasoning: Some("let me see".to_owned()),
            text: Some("grüße an alle ".to_owned()),
            repeat: Some(Repeat { text: "tick ".to_owned(), times: 3, stamp: false }),
            tool_calls: vec![super::super::script::ScriptCall::new("f", json!({"x": "1234567890"}))],
            chunk: Some(3),
            ..ScriptTurn::default()
        };
        let conversation = Conversation::of(Protocol::OpenAi, &json!({"messages": []}));
        let mut speech = Speech::of(&turn, &Wire::default(), &conversation, 1);
        let (mut reasoning, mut text, mut arguments) = (String::new(), String::new(), String::new());
        while let Some(piece) = speech.next_piece() {
            match piece {
                Piece::Reasoning(piece) => reasoning.push_str(&piece),
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Call { arguments: piece, .. } => arguments.push_str(&piece),
            }
        }
        assert_eq!(reasoning, "let me see");
        assert_eq!(text, "grüße an alle tick tick tick ");
        assert_eq!(arguments, r#"{"x":"1234567890"}"#);
    }
}
