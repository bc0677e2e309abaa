//! Guards against an agent that goes in circles: first a note to the model, then the end.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use trestle_contract::ErrorCode;
use trestle_contract::inference::{Content, ContentPart, ToolCallRequest, ToolResultMessage};

use crate::AgentError;

/// Tools that only look at things; asking them again and seeing the same is no progress.
const GATHERING: [&str; 11] = [
    "read",
    "ls",
    "grep",
    "glob",
    "diagnostics",
    "navigate",
    "clock",
    "todo",
    "webfetch",
    "web_search",
    "screenshot",
];

const REPEAT_WINDOW: usize = 6;
const REPEAT_NOTE: usize = 3;
const REPEAT_END: usize = 5;
const FAILURES_NOTE: u32 = 3;
const FAILURES_END: u32 = 5;
const STALE_NOTE: u32 = 4;
const STALE_END: u32 = 8;
/// With so many turns left the model is asked to come to an end.
const COUNTDOWN: u64 = 3;
const REMINDER_EVERY: u64 = 20;

/// The state of all guards over one leaf.
pub(crate) struct Guards {
    limit: u64,
    signatures: VecDeque<u64>,
    failed_turns: u32,
    stale_turns: u32,
    seen: HashSet<u64>,
}

/// How often the same calls were made lately.
#[derive(Clone, Copy)]
pub(crate) struct Repetition(usize);

impl Guards {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, signatures: VecDeque::new(), failed_turns: 0, stale_turns: 0, seen: HashSet::new() }
    }

    /// Looks at the calls of a turn before they run.
    pub(crate) fn before_tools(&mut self, calls: &[ToolCallRequest]) -> Result<Repetition, AgentError> {
        let mut parts: Vec<String> = calls
            .iter()
            .map(|call| format!("{}:{}", call.name, serde_json::Value::Object(call.input.clone())))
            .collect();
        parts.sort();
        let signature = hash_of(&parts);
        self.signatures.push_back(signature);
        if self.signatures.len() > REPEAT_WINDOW {
            self.signatures.pop_front();
        }
        let count = self.signatures.iter().filter(|known| **known == signature).count();
        if count >= REPEAT_END {
            return Err(stopped(&format!(
                "it kept repeating the same tool call ({count} times in {REPEAT_WINDOW} turns)"
            )));
        }
        Ok(Repetition(count))
    }

    /// Looks at the results and says what to tell the model.
    pub(crate) fn after_tools(
        &mut self,
        calls: &[ToolCallRequest],
        results: &[ToolResultMessage],
        iteration: u64,
        repetition: Repetition,
    ) -> Result<Vec<String>, AgentError> {
        let failing = self.count_failures(results);
        let stale = self.count_stale(calls, results);
        if self.failed_turns >= FAILURES_END {
            return Err(stopped(&format!(
                "it made {FAILURES_END} turns of consecutive tool calls that all failed"
            )));
        }
        if self.stale_turns >= STALE_END {
            return Err(stopped(&format!(
                "it made {STALE_END} turns of tool calls without surfacing anything new"
            )));
        }
        let mut notes = Vec::new();
        if repetition.0 == REPEAT_NOTE {
            notes.push("[note: repeated-calls] The last turns made the same calls with the same inputs, and the result will not change. Change the inputs, use another tool, or answer with what you know.".to_owned());
        }
        if failing && self.failed_turns == FAILURES_NOTE {
            notes.push("[note: failing-calls] All recent tool calls failed. Read the current state again, correct the inputs, use another tool, or answer with what exists.".to_owned());
        }
        if stale && self.stale_turns == STALE_NOTE {
            notes.push("[note: nothing-new] The last turns brought nothing new. Act on what you know, or change the approach.".to_owned());
        }
        notes.extend(self.reminder(iteration));
        Ok(notes)
    }

    /// Whether this turn failed as a whole.
    fn count_failures(&mut self, results: &[ToolResultMessage]) -> bool {
        let failed = !results.is_empty() && results.iter().all(|result| result.is_error);
        self.failed_turns = if failed { self.failed_turns + 1 } else { 0 };
        failed
    }

    /// Whether this turn only gathered what was known. A turn without a success tells nothing.
    fn count_stale(&mut self, calls: &[ToolCallRequest], results: &[ToolResultMessage]) -> bool {
        let successes: Vec<_> = calls.iter().zip(results).filter(|(_, result)| !result.is_error).collect();
        if successes.is_empty() {
            return false;
        }
        let mut progress = false;
        for (call, result) in successes {
            progress |=
                !GATHERING.contains(&call.name.as_str()) || self.seen.insert(observation(&result.content));
        }
        self.stale_turns = if progress { 0 } else { self.stale_turns + 1 };
        !progress
    }

    fn reminder(&self, iteration: u64) -> Option<String> {
        if self.limit.checked_sub(iteration) == Some(COUNTDOWN) {
            Some(format!(
                "[note: countdown] {COUNTDOWN} tool turns remain. Finish what matters most now, then answer."
            ))
        } else if iteration.is_multiple_of(REMINDER_EVERY) {
            Some(format!(
                "[note: turns-taken] {iteration} tool turns so far. Stop and answer if you are ready; go on if you make progress."
            ))
        } else {
            None
        }
    }
}

/// What a result showed. Files count by their bytes: two screenshots of one size may differ.
fn observation(content: &Content) -> u64 {
    match content {
        Content::Text(text) => hash_of(&("text", text.trim())),
        Content::Parts(parts) => {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| match part {
                    ContentPart::Text { text } => ("text", text.trim(), None, None),
                    ContentPart::File { file } => {
                        ("file", file.mime_type.as_str(), file.data.as_ref(), file.url.as_ref())
                    }
                })
                .collect();
            hash_of(&parts)
        }
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn stopped(why: &str) -> AgentError {
    AgentError::new(ErrorCode::ProgramError, format!("the agent was stopped: {why}")).with_hint(
        "make the task or the tools' answers clearer, or set maxIterations to stop with an answer earlier",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(name: &str, input: &serde_json::Value) -> ToolCallRequest {
        let input = input.as_object().unwrap().clone();
        ToolCallRequest { id: "c".to_owned(), name: name.to_owned(), input, invalid_input: None }
    }

    fn result(text: &str, is_error: bool) -> ToolResultMessage {
        ToolResultMessage { id: "c".to_owned(), content: text.into(), is_error }
    }

    fn turn(
        guards: &mut Guards,
        iteration: u64,
        name: &str,
        input: u64,
        answer: &str,
        failed: bool,
    ) -> Result<Vec<String>, AgentError> {
        let calls = [call(name, &json!({ "n": input }))];
        let repetition = guards.before_tools(&calls)?;
        guards.after_tools(&calls, &[result(answer, failed)], iteration, repetition)
    }

    fn marks(notes: &[String]) -> Vec<&str> {
        notes.iter().filter_map(|note| note.strip_prefix("[note: ")?.split(']').next()).collect()
    }

    #[test]
    fn the_same_call_is_noted_at_three_and_ends_at_five() {
        let mut guards = Guards::new(500);
        let mut seen = Vec::new();
        for iteration in 1..=4 {
            seen.push(
                marks(&turn(&mut guards, iteration, "do", 1, &iteration.to_string(), false).unwrap())
                    .join(","),
            );
        }
        assert_eq!(seen, ["", "", "repeated-calls", ""]);
        let error = turn(&mut guards, 5, "do", 1, "5", false).unwrap_err();
        assert_eq!(error.code, ErrorCode::ProgramError);
        assert!(error.message.contains("repeating the same tool call"));
    }

    #[test]
    fn the_same_calls_in_another_order_are_the_same_and_old_ones_are_forgotten() {
        let mut guards = Guards::new(500);
        let (a, b) = (call("a", &json!({"x": 1})), call("b", &json!({})));
        assert_eq!(guards.before_tools(&[a.clone(), b.clone()]).unwrap().0, 1);
        assert_eq!(guards.before_tools(&[b.clone(), a.clone()]).unwrap().0, 2);
        for n in 0..6 {
            guards.before_tools(&[call("c", &json!({ "n": n }))]).unwrap();
        }
        assert_eq!(guards.before_tools(&[a, b]).unwrap().0, 1);
    }

    #[test]
    fn failing_turns_are_noted_at_three_and_end_at_five() {
        let mut guards = Guards::new(500);
        for (iteration, expected) in [(1, ""), (2, ""), (3, "failing-calls"), (4, "")] {
            let notes = turn(&mut guards, iteration, "do", iteration, "no", true).unwrap();
            assert_eq!(marks(&notes).join(","), expected);
        }
        let error = turn(&mut guards, 5, "do", 5, "no", true).unwrap_err();
        assert!(error.message.contains("consecutive tool calls that all failed"));
        let mut guards = Guards::new(500);
        for iteration in 1..=20 {
            turn(&mut guards, iteration, "do", iteration, "x", iteration % 4 != 0).unwrap();
        }
    }

    #[test]
    fn gathering_the_same_is_noted_at_four_and_ends_at_eight() {
        let mut guards = Guards::new(500);
        let mut seen = Vec::new();
        for iteration in 1..=8 {
            seen.push(
                marks(&turn(&mut guards, iteration, "read", iteration, " same ", false).unwrap()).join(","),
            );
        }
        assert_eq!(seen, ["", "", "", "", "nothing-new", "", "", ""], "the first one is new");
        let error = turn(&mut guards, 9, "read", 9, "same", false).unwrap_err();
        assert!(error.message.contains("surfacing anything new"));
    }

    #[test]
    fn anything_but_gathering_is_progress_and_failures_tell_nothing() {
        let mut guards = Guards::new(500);
        for iteration in 1..=40 {
            turn(&mut guards, iteration, "send", iteration, "same", false).unwrap();
        }
        let mut guards = Guards::new(500);
        for iteration in 1..=5 {
            turn(&mut guards, iteration, "read", iteration, "same", false).unwrap();
        }
        assert_eq!(guards.stale_turns, STALE_NOTE);
        let notes = turn(&mut guards, 6, "read", 6, "no", true).unwrap();
        assert!(notes.is_empty(), "a failed turn does not repeat the note: {notes:?}");
    }

    #[test]
    fn screenshots_of_one_size_are_told_apart_by_their_bytes() {
        let shot = |data: &str| {
            Content::Parts(vec![ContentPart::File {
                file: trestle_contract::inference::FileSource {
                    mime_type: "image/png".to_owned(),
                    data: Some(data.to_owned()),
                    url: None,
                    filename: None,
                },
            }])
        };
        assert_ne!(observation(&shot("aaaa")), observation(&shot("aaab")));
        assert_eq!(observation(&shot("aaaa")), observation(&shot("aaaa")));
    }

    #[test]
    fn the_model_hears_about_the_end_of_its_turns() {
        let guards = Guards::new(10);
        assert!(guards.reminder(7).unwrap().contains("3 tool turns remain"));
        assert_eq!(guards.reminder(8), None);
        let guards = Guards::new(500);
        assert!(guards.reminder(20).unwrap().contains("20 tool turns"));
        assert!(guards.reminder(40).is_some() && guards.reminder(21).is_none());
        let guards = Guards::new(3);
        assert!((1..=3).all(|iteration| guards.reminder(iteration).is_none()));
        let guards = Guards::new(23);
        assert!(guards.reminder(20).unwrap().contains("countdown"));
    }
}
