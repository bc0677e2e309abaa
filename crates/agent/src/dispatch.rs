use std::collections::HashSet;
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use trestle_contract::ErrorCode;
use trestle_contract::bounds::utf16_len;
use trestle_contract::event::{EventBody, EventError, ToolReturn};
use trestle_contract::inference::{Content, ToolCallRequest, ToolResultMessage};
use trestle_contract::json::{RawJson, RawObject};

use crate::leaf::Leaf;
use crate::plan::blocking;
use crate::tools::Runs;
use crate::{AgentError, ToolInvocation};

/// The longest summary of a result, in UTF-16 units.
const MAX_SUMMARY_UNITS: usize = 120;

/// Gives every call of a turn an id of its own; some providers leave them out or repeat them.
pub(crate) fn with_unique_ids(mut calls: Vec<ToolCallRequest>, iteration: u64) -> Vec<ToolCallRequest> {
    let mut known = HashSet::new();
    for (index, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || known.contains(&call.id) {
            call.id = format!("call-{iteration}-{}", index + 1);
        }
        known.insert(call.id.clone());
    }
    calls
}

impl Leaf<'_> {
    /// Runs all calls of a turn at once and returns their results in call order. A failure
    /// becomes a result, unless it ends the run: then the other calls are stopped.
    pub(crate) async fn run_tools(
        &self,
        calls: &[ToolCallRequest],
        turn: u64,
    ) -> Result<Vec<ToolResultMessage>, AgentError> {
        let mut results: Vec<Option<ToolResultMessage>> =
            calls.iter().map(|call| self.announce(call)).collect();
        let open = calls.iter().enumerate().filter(|(index, _)| results[*index].is_none());
        let mut running: FuturesUnordered<_> =
            open.map(|(index, call)| async move { (index, self.run_tool(call, turn).await) }).collect();
        let mut cancelled = pin!(self.host.cancelled());
        let mut fatal = None;
        while fatal.is_none() {
            match self.unless(&mut cancelled, running.next()).await {
                Ok(Some((index, outcome))) => {
                    let error = outcome.as_ref().err().filter(|error| error.is_run_fatal()).cloned();
                    results[index] = Some(self.settle(&calls[index], outcome));
                    fatal = error;
                }
                Ok(None) => break,
                Err(error) => fatal = Some(error),
            }
        }
        drop(running);
        let Some(fatal) = fatal else { return Ok(results.into_iter().flatten().collect()) };
        for (call, _) in calls.iter().zip(&results).filter(|(_, result)| result.is_none()) {
            let stopped = AgentError::new(ErrorCode::Cancelled, format!("stopped: {}", fatal.message));
            self.settle(call, Err(stopped));
        }
        Err(fatal)
    }

    /// Emits what is known before a call runs; the result when it cannot run at all.
    fn announce(&self, call: &ToolCallRequest) -> Option<ToolResultMessage> {
        self.emit(EventBody::ToolCallStart { tool_call_id: call.id.clone(), tool_name: call.name.clone() });
        let input = self.plan.redactor.redact_value(&serde_json::Value::Object(call.input.clone()));
        let input = RawObject::encode(&input).unwrap_or_else(|_| RawObject::empty());
        self.emit(EventBody::ToolCallInputComplete { tool_call_id: call.id.clone(), input });
        let problem = if let Some(text) = &call.invalid_input {
            let start: String = text.chars().take(200).collect();
            AgentError::invalid(
                format!("arguments were not a JSON object: {start}"),
                "send the call again with one",
            )
        } else if self.plan.tools.find(&call.name).is_none() {
            let names = self.plan.tools.names();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            AgentError::invalid(
                format!("there is no tool \"{}\"", call.name),
                format!("the tools are: {known}"),
            )
        } else {
            self.emit(EventBody::ToolCallExecuting { tool_call_id: call.id.clone() });
            return None;
        };
        Some(self.settle(call, Err(problem)))
    }

    /// Executes one call. This is the only place where a tool starts.
    async fn run_tool(&self, call: &ToolCallRequest, turn: u64) -> Result<String, AgentError> {
        let Some(tool) = self.plan.tools.find(&call.name) else { return Ok(String::new()) };
        match &tool.runs {
            Runs::Inline => {
                let invocation = ToolInvocation {
                    call_id: self.request.call_id.clone(),
                    agent_id: self.request.agent_id.as_str().to_owned(),
                    turn,
                    tool_call_id: call.id.clone(),
                    tool: call.name.clone(),
                    input: RawJson::from(&serde_json::Value::Object(call.input.clone())),
                };
                self.host.invoke_tool(invocation).await.map(|output| text_of(&output))
            }
            Runs::Skill(skills) => {
                let (skills, input) = (skills.clone(), call.input.clone());
                blocking(move || skills.read(&input)).await?
            }
        }
    }

    /// Emits how a call ended and makes the model's copy of it.
    fn settle(&self, call: &ToolCallRequest, outcome: Result<String, AgentError>) -> ToolResultMessage {
        let redactor = &self.plan.redactor;
        let tool_call_id = call.id.clone();
        let (content, is_error) = match outcome {
            Ok(text) => {
                let text = redactor.redact_str(&text);
                let result = ToolReturn { human_summary: Some(summary(&text)), ..ToolReturn::default() };
                self.emit(EventBody::ToolCallResult { tool_call_id, result });
                (text, false)
            }
            Err(error) => {
                let error = error.redacted(redactor);
                let hint = error.hint.as_ref().map(|hint| format!("\nHint: {hint}")).unwrap_or_default();
                let text = format!("Tool failed: {}{hint}", error.message);
                let error =
                    EventError { code: error.code.as_str().to_owned(), message: error.message, hint: None };
                self.emit(EventBody::ToolCallError { tool_call_id, error });
                (text, true)
            }
        };
        ToolResultMessage { id: call.id.clone(), content: Content::Text(content), is_error }
    }
}

/// What the model reads of an inline tool's output: a string as it is, nothing for `null`,
/// JSON for anything else.
fn text_of(output: &RawJson) -> String {
    if output.is_null() {
        return String::new();
    }
    output.decode::<String>().unwrap_or_else(|_| output.get().to_owned())
}

/// One line for observers.
fn summary(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    if utf16_len(&line) <= MAX_SUMMARY_UNITS {
        return line;
    }
    let mut units = 0;
    let cut = line.char_indices().find_map(|(at, c)| {
        units += c.len_utf16();
        (units > MAX_SUMMARY_UNITS - 3).then_some(at)
    });
    format!("{}…", &line[..cut.unwrap_or(line.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_become_texts() {
        for (output, text) in
            [("null", ""), ("\"a\\nb\"", "a\nb"), ("{\"b\": 1.50}", "{\"b\": 1.50}"), ("false", "false")]
        {
            assert_eq!(text_of(&RawJson::parse(output).unwrap()), text);
        }
    }

    #[test]
    fn summaries_are_one_line_of_bounded_length() {
        assert_eq!(summary("a\nb\r\nc"), "a b  c");
        let exact = "x".repeat(120);
        assert_eq!(summary(&exact), exact);
        assert_eq!(summary(&"x".repeat(121)), format!("{}…", "x".repeat(117)));
        assert_eq!(
            summary(&"😀".repeat(61)),
            format!("{}…", "😀".repeat(58)),
            "in UTF-16 units, at whole characters"
        );
    }

    #[test]
    fn ids_are_unique_within_a_turn() {
        let call = |id: &str| ToolCallRequest {
            id: id.to_owned(),
            name: "t".to_owned(),
            input: serde_json::Map::new(),
            invalid_input: None,
        };
        let calls = with_unique_ids(vec![call("a"), call(""), call("a"), call("b")], 7);
        assert_eq!(
            calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(),
            ["a", "call-7-2", "call-7-3", "b"]
        );
    }
}
