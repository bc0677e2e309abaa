//! Which parts of an event are free text, and may therefore hold a secret.

use trestle_contract::event::{EventBody, EventError, ToolReturn};
use trestle_contract::{NonEmptyString, RawObject};
use trestle_domain::Redactor;

/// The event with every known secret replaced in its free text. Identifiers and enumerations stay.
/// Texts of streams are redacted where the stream is read, because a secret may cross their borders.
pub(super) fn redact_body(redactor: &Redactor, body: EventBody) -> EventBody {
    let text = |text: String| redactor.redact_str(&text);
    let some = |found: Option<String>| found.map(|found| redactor.redact_str(&found));
    let label = |label: NonEmptyString| NonEmptyString::saturating(redactor.redact_str(label.as_str()));
    let error = |error: EventError| EventError {
        code: error.code,
        message: redactor.redact_str(&error.message),
        hint: error.hint.map(|hint| redactor.redact_str(&hint)),
    };
    match body {
        EventBody::RunStatus { status, error: found } => {
            EventBody::RunStatus { status, error: found.map(error) }
        }
        EventBody::Output { value } => EventBody::Output { value: redactor.redact_json(&value) },
        EventBody::Phase { name, id } => EventBody::Phase { name: label(name), id: label(id) },
        EventBody::HumanInputRequested { request_id, key, prompt } => {
            EventBody::HumanInputRequested { request_id, key, prompt: text(prompt) }
        }
        EventBody::EgressDenied { host, method, reason } => {
            EventBody::EgressDenied { host: label(host), method, reason: label(reason) }
        }
        EventBody::WorkspacePersistSkipped { reason, bytes, max_bytes, detail } => {
            EventBody::WorkspacePersistSkipped { reason, bytes, max_bytes, detail: some(detail) }
        }
        EventBody::TurnStarted { agent_id, agent_name } => {
            EventBody::TurnStarted { agent_id, agent_name: agent_name.map(label) }
        }
        EventBody::TurnEnded { agent_id, agent_name, reason, usage, error: found } => EventBody::TurnEnded {
            agent_id,
            agent_name: agent_name.map(label),
            reason,
            usage,
            error: found.map(error),
        },
        EventBody::ToolCallInputDelta { tool_call_id, partial_json } => {
            EventBody::ToolCallInputDelta { tool_call_id, partial_json: text(partial_json) }
        }
        EventBody::ToolCallInputComplete { tool_call_id, input } => {
            EventBody::ToolCallInputComplete { tool_call_id, input: object(redactor, &input) }
        }
        EventBody::ToolCallResult { tool_call_id, result } => EventBody::ToolCallResult {
            tool_call_id,
            result: ToolReturn {
                kind: result.kind,
                human_summary: some(result.human_summary),
                data: result.data.map(|data| object(redactor, &data)),
            },
        },
        EventBody::ToolCallError { tool_call_id, error: found } => {
            EventBody::ToolCallError { tool_call_id, error: error(found) }
        }
        EventBody::CompactionStarted { agent_id, agent_name, tokens, budget, context_tokens } => {
            EventBody::CompactionStarted {
                agent_id,
                agent_name: agent_name.map(label),
                tokens,
                budget,
                context_tokens,
            }
        }
        EventBody::CompactionEnded { agent_id, agent_name, tokens, reclaimed, method } => {
            EventBody::CompactionEnded {
                agent_id,
                agent_name: agent_name.map(label),
                tokens,
                reclaimed,
                method,
            }
        }
        // Streams, and events without free text.
        body @ (EventBody::ProgramOutput { .. }
        | EventBody::TextDelta { .. }
        | EventBody::ReasoningDelta { .. }
        | EventBody::ToolOutputDelta { .. }
        | EventBody::Suspended { .. }
        | EventBody::Resumed { .. }
        | EventBody::HumanInputResolved { .. }
        | EventBody::TextStart { .. }
        | EventBody::TextEnd { .. }
        | EventBody::TurnReset { .. }
        | EventBody::ToolCallStart { .. }
        | EventBody::ToolCallExecuting { .. }) => body,
    }
}

/// An object stays one: when a secret spans several of its members, all of it is replaced.
fn object(redactor: &Redactor, object: &RawObject) -> RawObject {
    RawObject::try_from(redactor.redact_json(object.as_json())).unwrap_or_else(|_| RawObject::empty())
}
