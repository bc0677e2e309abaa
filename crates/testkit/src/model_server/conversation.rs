//! What a script can match in a request of either wire.

use serde_json::Value;

use super::script::{Match, Protocol, ScriptTurn, Speaker};

/// The parts of a request that decide which turn answers.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) protocol: Protocol,
    pub(super) model: String,
    pub(super) text: String,
    pub(super) last_text: String,
    pub(super) last: Speaker,
    pub(super) tools: Vec<String>,
}

impl Conversation {
    /// Reads a request that was already found valid.
    pub(super) fn of(protocol: Protocol, body: &Value) -> Self {
        let empty = Vec::new();
        let messages = body["messages"].as_array().unwrap_or(&empty);
        let mut text = String::new();
        collect_text(&body["system"], &mut text);
        for message in messages {
            collect_text(message, &mut text);
        }
        let mut last_text = String::new();
        if let Some(message) = messages.last() {
            collect_text(message, &mut last_text);
        }
        let tools = body["tools"].as_array().unwrap_or(&empty);
        Self {
            protocol,
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            text,
            last_text,
            last: last_speaker(protocol, messages),
            tools: tools.iter().filter_map(tool_name).collect(),
        }
    }

    fn fits(&self, matcher: &Match) -> bool {
        let holds = |words: &Option<super::script::Words>, text: &str| {
            words.as_ref().is_none_or(|words| words.iter().all(|word| text.contains(word)))
        };
        holds(&matcher.contains, &self.text)
            && holds(&matcher.last_contains, &self.last_text)
            && matcher.lacks.as_ref().is_none_or(|words| words.iter().all(|word| !self.text.contains(word)))
            && matcher.last.is_none_or(|last| last == self.last)
            && matcher.tool.as_ref().is_none_or(|tool| self.tools.contains(tool))
            && matcher.model.as_ref().is_none_or(|model| *model == self.model)
            && matcher.protocol.is_none_or(|protocol| protocol == self.protocol)
    }
}

/// Picks the turn that answers and counts it as used.
pub(super) fn choose(
    turns: &[ScriptTurn],
    used: &mut [u64],
    repeat_turns: bool,
    conversation: &Conversation,
) -> Option<usize> {
    let matched = turns.iter().enumerate().find(|(number, turn)| {
        turn.matcher.as_ref().is_some_and(|matcher| conversation.fits(matcher))
            && turn.times.is_none_or(|times| used[*number] < times)
    });
    if let Some((number, _)) = matched {
        used[number] += 1;
        return Some(number);
    }
    let queued = |used: &[u64]| {
        turns
            .iter()
            .enumerate()
            .find(|(number, turn)| turn.matcher.is_none() && used[*number] < turn.times.unwrap_or(1))
            .map(|(number, _)| number)
    };
    let number = queued(used).or_else(|| {
        if !repeat_turns {
            return None;
        }
        for (count, turn) in used.iter_mut().zip(turns) {
            if turn.matcher.is_none() {
                *count = 0;
            }
        }
        queued(used)
    })?;
    used[number] += 1;
    Some(number)
}

fn tool_name(tool: &Value) -> Option<String> {
    tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()).map(str::to_owned)
}

fn last_speaker(protocol: Protocol, messages: &[Value]) -> Speaker {
    let is_tool = |message: &Value| match protocol {
        Protocol::OpenAi => message["role"] == "tool",
        Protocol::Anthropic => message["content"]
            .as_array()
            .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result")),
    };
    match messages {
        [.., last] if is_tool(last) => Speaker::Tool,
        // Files of tool results follow them in a user message of their own on the OpenAI wire.
        [.., before, last] if protocol == Protocol::OpenAi && is_tool(before) && has_file(last) => {
            Speaker::Tool
        }
        _ => Speaker::User,
    }
}

fn has_file(message: &Value) -> bool {
    message["content"].as_array().is_some_and(|items| items.iter().any(|item| item["type"] != "text"))
}

/// Every string of a message but file data, each on a line; tool arguments are taken as they are.
fn collect_text(value: &Value, text: &mut String) {
    match value {
        Value::String(string) => {
            text.push_str(string);
            text.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| collect_text(item, text)),
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "role" | "type" | "id" | "tool_call_id" | "tool_use_id" | "data" | "url"
                    | "file_data" | "cache_control" | "media_type" => {}
                    "input" => {
                        text.push_str(&member.to_string());
                        text.push('\n');
                    }
                    _ => collect_text(member, text),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conversation(text: &str) -> Conversation {
        Conversation::of(
            Protocol::OpenAi,
            &json!({"model": "m", "messages": [{"role": "user", "content": text}]}),
        )
    }

    #[test]
    fn matched_turns_come_first_and_queued_ones_in_order_and_again() {
        let turns = [
            ScriptTurn::text("one"),
            ScriptTurn::text("special").when(Match::containing("magic")),
            ScriptTurn::text("two"),
        ];
        let mut used = [0; 3];
        let mut ask = |text: &str| choose(&turns, &mut used, true, &conversation(text));
        assert_eq!(ask("x"), Some(0));
        assert_eq!(ask("some magic here"), Some(1));
        assert_eq!(ask("x"), Some(2));
        assert_eq!(ask("magic"), Some(1));
        assert_eq!(ask("x"), Some(0));
    }

    #[test]
    fn a_script_that_does_not_loop_runs_out() {
        let turns = [ScriptTurn::text("one")];
        let mut used = [0; 1];
        assert_eq!(choose(&turns, &mut used, false, &conversation("x")), Some(0));
        assert_eq!(choose(&turns, &mut used, false, &conversation("x")), None);
    }

    #[test]
    fn the_speaker_is_known_on_both_wires_also_with_files_after_the_results() {
        let openai =
            json!([{"role": "tool", "content": "r"}, {"role": "user", "content": [{"type": "image_url"}]}]);
        assert_eq!(last_speaker(Protocol::OpenAi, openai.as_array().unwrap()), Speaker::Tool);
        let anthropic = json!([{"role": "user", "content": [{"type": "tool_result", "content": "r"}]}]);
        assert_eq!(last_speaker(Protocol::Anthropic, anthropic.as_array().unwrap()), Speaker::Tool);
        let user = json!([{"role": "user", "content": [{"type": "text", "text": "t"}]}]);
        assert_eq!(last_speaker(Protocol::Anthropic, user.as_array().unwrap()), Speaker::User);
        assert_eq!(last_speaker(Protocol::OpenAi, user.as_array().unwrap()), Speaker::User);
    }
}
