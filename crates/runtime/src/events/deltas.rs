//! Deltas of model answers and tool output: redacted across their borders, merged for a moment.

use std::collections::HashMap;

use tokio::time::Instant;
use trestle_contract::event::{EventBody, StandardStream};
use trestle_domain::{Redactor, TextRedactor};

/// Merged text is not held beyond this size, in bytes.
const LARGEST_MERGED: usize = 64 * 1024;

/// Which stream of text a delta belongs to, within its turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stream {
    Text { block: String },
    Reasoning,
    Tool { call: String, stream: StandardStream },
}

impl Stream {
    /// The stream and the text of a delta, taken out of it.
    fn of(body: &mut EventBody) -> Option<(Self, String)> {
        match body {
            EventBody::TextDelta { block_id, text } => {
                Some((Self::Text { block: std::mem::take(block_id) }, std::mem::take(text)))
            }
            EventBody::ReasoningDelta { text } => Some((Self::Reasoning, std::mem::take(text))),
            EventBody::ToolOutputDelta { tool_call_id, stream, text } => Some((
                Self::Tool { call: std::mem::take(tool_call_id), stream: *stream },
                std::mem::take(text),
            )),
            _ => None,
        }
    }

    fn body(&self, text: String) -> EventBody {
        match self {
            Self::Text { block } => EventBody::TextDelta { block_id: block.clone(), text },
            Self::Reasoning => EventBody::ReasoningDelta { text },
            Self::Tool { call, stream } => {
                EventBody::ToolOutputDelta { tool_call_id: call.clone(), stream: *stream, text }
            }
        }
    }

    /// Whether an event ends the stream: what is held back of it is shown before the event.
    fn is_ended_by(&self, body: &EventBody) -> bool {
        match (self, body) {
            (
                Self::Tool { call, .. },
                EventBody::ToolCallResult { tool_call_id, .. }
                | EventBody::ToolCallError { tool_call_id, .. },
            ) => call == tool_call_id,
            (Self::Tool { .. }, body) => matches!(body, EventBody::TurnEnded { .. }),
            (Self::Text { .. } | Self::Reasoning, _) => true,
        }
    }
}

#[derive(Debug)]
struct Pending {
    turn: String,
    stream: Stream,
    text: String,
    since: Instant,
}

/// The deltas that are not events yet.
#[derive(Debug, Default)]
pub(super) struct Deltas {
    pending: Vec<Pending>,
    redactors: HashMap<(String, Stream), TextRedactor>,
}

/// What becomes of an event that was handed in.
pub(super) enum Handed {
    /// It is a delta and waits for more.
    Kept,
    /// These are events now, in this order; the last one is the one handed in.
    Events(Vec<(String, EventBody)>),
}

impl Deltas {
    /// Takes an event of a turn. What waits of the same turn goes before it.
    pub(super) fn hand(&mut self, turn: &str, mut body: EventBody, redactor: &Redactor) -> Handed {
        if let Some((stream, text)) = Stream::of(&mut body) {
            return self.keep(turn, stream, text, redactor);
        }
        let mut events = self.take(|pending| pending.turn == turn);
        let ended: Vec<_> = self
            .redactors
            .keys()
            .filter(|(owner, stream)| owner == turn && stream.is_ended_by(&body))
            .cloned()
            .collect();
        for key in ended {
            if let Some(mut held) = self.redactors.remove(&key) {
                if matches!(body, EventBody::TurnReset {}) {
                    held.discard();
                }
                let rest = held.finish();
                if !rest.is_empty() {
                    events.push((turn.to_owned(), key.1.body(rest)));
                }
            }
        }
        events.push((turn.to_owned(), body));
        Handed::Events(events)
    }

    fn keep(&mut self, turn: &str, stream: Stream, text: String, redactor: &Redactor) -> Handed {
        let key = (turn.to_owned(), stream.clone());
        let shown = self.redactors.entry(key).or_insert_with(|| redactor.text_stream()).push(&text);
        if shown.is_empty() {
            return Handed::Kept;
        }
        // Only the newest text of a turn may grow: order within the turn is kept.
        if let Some(last) = self.pending.iter_mut().rfind(|pending| pending.turn == turn)
            && last.stream == stream
        {
            last.text.push_str(&shown);
            if last.text.len() < LARGEST_MERGED {
                return Handed::Kept;
            }
            return Handed::Events(self.take(|pending| pending.turn == turn));
        }
        self.pending.push(Pending { turn: turn.to_owned(), stream, text: shown, since: Instant::now() });
        Handed::Kept
    }

    /// When the oldest waiting text came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.since).min()
    }

    /// All that waits, as events.
    pub(super) fn take_all(&mut self) -> Vec<(String, EventBody)> {
        self.take(|_| true)
    }

    fn take(&mut self, wanted: impl Fn(&Pending) -> bool) -> Vec<(String, EventBody)> {
        self.pending
            .extract_if(.., |pending| wanted(pending))
            .map(|pending| (pending.turn, pending.stream.body(pending.text)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(block: &str, text: &str) -> EventBody {
        EventBody::TextDelta { block_id: block.into(), text: text.into() }
    }

    fn end() -> EventBody {
        EventBody::TextEnd { block_id: "text-1".into() }
    }

    fn events(handed: Handed) -> Vec<(String, EventBody)> {
        match handed {
            Handed::Kept => panic!("nothing came out"),
            Handed::Events(events) => events,
        }
    }

    #[test]
    fn deltas_of_one_block_merge_and_precede_what_follows() {
        let (mut deltas, redactor) = (Deltas::default(), Redactor::default());
        for part in ["a", "b", "c"] {
            assert!(matches!(deltas.hand("t", text("text-1", part), &redactor), Handed::Kept));
        }
        assert!(deltas.oldest().is_some());
        let out = events(deltas.hand("t", end(), &redactor));
        assert_eq!(out, [("t".to_owned(), text("text-1", "abc")), ("t".to_owned(), end())]);
        assert!(deltas.oldest().is_none());
    }

    #[test]
    fn interleaved_streams_of_a_turn_keep_their_order() {
        let (mut deltas, redactor) = (Deltas::default(), Redactor::default());
        deltas.hand("t", text("text-1", "a"), &redactor);
        deltas.hand("t", EventBody::ReasoningDelta { text: "r".into() }, &redactor);
        deltas.hand("u", text("text-1", "other"), &redactor);
        deltas.hand("t", text("text-1", "b"), &redactor);
        let out = events(deltas.hand("t", end(), &redactor));
        assert_eq!(
            out.into_iter().map(|(_, body)| body).collect::<Vec<_>>(),
            [text("text-1", "a"), EventBody::ReasoningDelta { text: "r".into() }, text("text-1", "b"), end()]
        );
        assert_eq!(deltas.take_all(), [("u".to_owned(), text("text-1", "other"))]);
    }

    #[test]
    fn a_secret_across_deltas_never_appears_and_what_is_held_back_is_shown_at_the_end() {
        let (mut deltas, redactor) = (Deltas::default(), Redactor::default());
        redactor.add("KEY", "canary-value");
        let mut shown = Vec::new();
        for part in ["x canary", "-val", "ue y cana"] {
            if let Handed::Events(out) = deltas.hand("t", text("text-1", part), &redactor) {
                shown.extend(out);
            }
            shown.extend(deltas.take_all());
        }
        shown.extend(events(deltas.hand("t", end(), &redactor)));
        let all: String =
            shown
                .iter()
                .filter_map(|(_, body)| {
                    if let EventBody::TextDelta { text, .. } = body { Some(text.as_str()) } else { None }
                })
                .collect();
        assert_eq!(all, "x [REDACTED] y cana");
    }

    #[test]
    fn a_reset_forgets_what_was_held_back() {
        let (mut deltas, redactor) = (Deltas::default(), Redactor::default());
        redactor.add("KEY", "canary-value");
        deltas.hand("t", text("text-1", "cana"), &redactor);
        let out = events(deltas.hand("t", EventBody::TurnReset {}, &redactor));
        assert_eq!(out, [("t".to_owned(), EventBody::TurnReset {})]);
        deltas.hand("t", text("text-1", "ry-value!"), &redactor);
        assert_eq!(deltas.take_all(), [("t".to_owned(), text("text-1", "ry-value!"))]);
    }
}
