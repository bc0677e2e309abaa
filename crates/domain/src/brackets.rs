//! What a run's agents have begun and not ended: when their process is lost, somebody else has to end it, or a viewer
//! shows an agent at work for ever.

use trestle_contract::event::{CompactionMethod, Event, EventBody, EventError, TurnEndReason};
use trestle_contract::{Count, NonEmptyString};

/// Why the process that should have closed its brackets cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BracketEnd {
    /// It is gone without a word.
    Lost,
    /// It gave the run back, or the run was cancelled.
    Cancelled,
}

impl BracketEnd {
    fn error(self) -> EventError {
        let (code, message) = match self {
            Self::Lost => ("CRASHED", "the run process was lost"),
            Self::Cancelled => ("CANCELLED", "the run process was stopped"),
        };
        EventError { code: code.to_owned(), message: message.to_owned(), hint: None }
    }
}

/// The agent of a turn.
#[derive(Debug, Clone)]
struct Agent {
    id: NonEmptyString,
    name: Option<NonEmptyString>,
}

/// What of a turn is open.
#[derive(Debug)]
struct Turn {
    id: NonEmptyString,
    /// None when its beginning was never seen.
    agent: Option<Agent>,
    blocks: Vec<String>,
    tools: Vec<String>,
    compaction: Option<(Agent, Count)>,
}

impl Turn {
    fn is_closed(&self) -> bool {
        self.agent.is_none() && self.blocks.is_empty() && self.tools.is_empty() && self.compaction.is_none()
    }
}

/// The open brackets of a run, told its events in their order.
#[derive(Debug, Default)]
pub struct OpenBrackets {
    turns: Vec<Turn>,
}

impl OpenBrackets {
    /// The kinds that open or close something; others need not be told.
    pub const KINDS: [&'static str; 9] = [
        "turn_started",
        "turn_ended",
        "text_start",
        "text_end",
        "tool_call_start",
        "tool_call_result",
        "tool_call_error",
        "compaction_started",
        "compaction_ended",
    ];

    /// Takes the next event.
    pub fn see(&mut self, event: &Event) {
        let turn_id = &event.envelope.turn_id;
        match &event.body {
            EventBody::TurnStarted { agent_id, agent_name } => {
                self.turn(turn_id).agent = Some(Agent { id: agent_id.clone(), name: agent_name.clone() });
            }
            EventBody::TurnEnded { .. } => self.turns.retain(|turn| turn.id != *turn_id),
            EventBody::TextStart { block_id } => open_one(&mut self.turn(turn_id).blocks, block_id),
            EventBody::TextEnd { block_id } => {
                self.close(turn_id, |turn| turn.blocks.retain(|block| block != block_id));
            }
            EventBody::ToolCallStart { tool_call_id, .. } => {
                open_one(&mut self.turn(turn_id).tools, tool_call_id);
            }
            EventBody::ToolCallResult { tool_call_id, .. }
            | EventBody::ToolCallError { tool_call_id, .. } => {
                self.close(turn_id, |turn| turn.tools.retain(|call| call != tool_call_id));
            }
            EventBody::CompactionStarted { agent_id, agent_name, tokens, .. } => {
                let agent = Agent { id: agent_id.clone(), name: agent_name.clone() };
                self.turn(turn_id).compaction = Some((agent, *tokens));
            }
            EventBody::CompactionEnded { .. } => self.close(turn_id, |turn| turn.compaction = None),
            _ => {}
        }
    }

    /// What closes everything: the latest turn first, and in each turn its parts before itself.
    #[must_use]
    pub fn closers(self, end: BracketEnd) -> Vec<(NonEmptyString, EventBody)> {
        let mut closers = Vec::new();
        for turn in self.turns.into_iter().rev() {
            let mut close = |body| closers.push((turn.id.clone(), body));
            for block_id in turn.blocks {
                close(EventBody::TextEnd { block_id });
            }
            for tool_call_id in turn.tools {
                close(EventBody::ToolCallError { tool_call_id, error: end.error() });
            }
            if let Some((agent, tokens)) = turn.compaction {
                close(EventBody::CompactionEnded {
                    agent_id: agent.id,
                    agent_name: agent.name,
                    tokens,
                    reclaimed: Count::default(),
                    method: CompactionMethod::None,
                });
            }
            if let Some(agent) = turn.agent {
                let (reason, error) = match end {
                    BracketEnd::Lost => (TurnEndReason::Error, Some(end.error())),
                    BracketEnd::Cancelled => (TurnEndReason::Cancelled, None),
                };
                close(EventBody::TurnEnded {
                    agent_id: agent.id,
                    agent_name: agent.name,
                    reason,
                    usage: None,
                    error,
                });
            }
        }
        closers
    }

    fn turn(&mut self, id: &NonEmptyString) -> &mut Turn {
        let index = self.turns.iter().position(|turn| turn.id == *id).unwrap_or_else(|| {
            let turn =
                Turn { id: id.clone(), agent: None, blocks: Vec::new(), tools: Vec::new(), compaction: None };
            self.turns.push(turn);
            self.turns.len() - 1
        });
        &mut self.turns[index]
    }

    fn close(&mut self, id: &NonEmptyString, close: impl FnOnce(&mut Turn)) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == *id) {
            close(turn);
        }
        self.turns.retain(|turn| !turn.is_closed());
    }
}

fn open_one(open: &mut Vec<String>, id: &str) {
    if !open.iter().any(|one| one == id) {
        open.push(id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn event(turn: &str, body: &Value) -> Event {
        let mut event = json!({ "runId": "r", "turnId": turn, "seq": 1, "t": 0 });
        event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        Event::parse(&event.to_string()).unwrap()
    }

    fn brackets(events: &[(&str, Value)]) -> OpenBrackets {
        let mut open = OpenBrackets::default();
        for (turn, body) in events {
            open.see(&event(turn, body));
        }
        open
    }

    fn kinds(closers: &[(NonEmptyString, EventBody)]) -> Vec<(&str, &str)> {
        closers.iter().map(|(turn, body)| (turn.as_str(), body.kind())).collect()
    }

    #[test]
    fn a_lost_process_leaves_its_open_turns_to_be_closed_from_the_inside_out() {
        let events = [
            ("a", json!({ "kind": "turn_started", "agentId": "agent-1", "agentName": "main" })),
            ("a", json!({ "kind": "text_start", "blockId": "text-1" })),
            ("a", json!({ "kind": "text_end", "blockId": "text-1" })),
            ("a", json!({ "kind": "tool_call_start", "toolCallId": "c", "toolName": "sub" })),
            ("b", json!({ "kind": "turn_started", "agentId": "agent-2" })),
            ("b", json!({ "kind": "compaction_started", "agentId": "agent-2", "tokens": 9, "budget": 5 })),
            ("b", json!({ "kind": "text_start", "blockId": "text-1" })),
            ("d", json!({ "kind": "turn_started", "agentId": "agent-3" })),
            ("d", json!({ "kind": "turn_ended", "agentId": "agent-3", "reason": "complete" })),
        ];
        let closers = brackets(&events).closers(BracketEnd::Lost);
        assert_eq!(
            kinds(&closers),
            [
                ("b", "text_end"),
                ("b", "compaction_ended"),
                ("b", "turn_ended"),
                ("a", "tool_call_error"),
                ("a", "turn_ended")
            ]
        );
        let EventBody::TurnEnded { agent_id, agent_name, reason, error, .. } = &closers[4].1 else {
            panic!()
        };
        assert_eq!(agent_id.as_str(), "agent-1");
        assert_eq!(agent_name.as_ref().unwrap().as_str(), "main");
        assert_eq!((*reason, error.as_ref().unwrap().code.as_str()), (TurnEndReason::Error, "CRASHED"));
        let cancelled = brackets(&events).closers(BracketEnd::Cancelled);
        let EventBody::TurnEnded { reason, error, .. } = &cancelled[4].1 else { panic!() };
        assert_eq!((*reason, error), (TurnEndReason::Cancelled, &None));
    }

    #[test]
    fn every_bracket_kind_is_named() {
        let named: std::collections::BTreeSet<&str> = OpenBrackets::KINDS.into();
        let bracket = |kind: &&str| {
            kind.ends_with("_started")
                || kind.ends_with("_ended")
                || matches!(*kind, "text_start" | "text_end" | "tool_call_start")
                || matches!(*kind, "tool_call_result" | "tool_call_error")
        };
        let found = EventBody::CHANNELS.iter().map(|(kind, _)| *kind).filter(bracket).collect();
        assert_eq!(named, found);
    }

    fn any_body() -> impl Strategy<Value = (usize, Value)> {
        let body = prop_oneof![
            Just(json!({ "kind": "turn_started", "agentId": "x" })),
            Just(json!({ "kind": "turn_ended", "agentId": "x", "reason": "complete" })),
            (0_u8..3).prop_map(|block| json!({ "kind": "text_start", "blockId": block.to_string() })),
            (0_u8..3).prop_map(|block| json!({ "kind": "text_end", "blockId": block.to_string() })),
            (0_u8..3).prop_map(
                |call| json!({ "kind": "tool_call_start", "toolCallId": call.to_string(), "toolName": "t" })
            ),
            (0_u8..3).prop_map(
                |call| json!({ "kind": "tool_call_result", "toolCallId": call.to_string(), "result": {} })
            ),
            Just(json!({ "kind": "compaction_started", "agentId": "x", "tokens": 1, "budget": 1 })),
            Just(
                json!({ "kind": "compaction_ended", "agentId": "x", "tokens": 1, "reclaimed": 0, "method": "none" })
            ),
            Just(json!({ "kind": "reasoning_delta", "text": "t" })),
        ];
        (0_usize..3, body)
    }

    proptest! {
        #[test]
        fn after_the_closers_nothing_is_open(events in prop::collection::vec(any_body(), 0..40)) {
            let turns = ["a", "b", "c"];
            let events: Vec<(&str, Value)> = events.into_iter().map(|(turn, body)| (turns[turn], body)).collect();
            let closers = brackets(&events).closers(BracketEnd::Lost);
            let mut again = brackets(&events);
            for (turn, body) in closers {
                let envelope = event(turn.as_str(), &json!({ "kind": "resumed" })).envelope;
                again.see(&Event { envelope, body });
            }
            prop_assert!(again.closers(BracketEnd::Lost).is_empty());
        }
    }
}
