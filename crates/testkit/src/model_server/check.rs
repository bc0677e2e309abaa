//! Refuses what the vendors refuse, in their words and shapes.

use std::collections::HashSet;

use serde_json::Value;

/// Why a request is refused with 400.
pub(super) type Refusal = String;

/// Checks a chat completions request.
pub(super) fn check_openai(body: &Value) -> Result<(), Refusal> {
    const KNOWN: &[&str] = &[
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "user",
        "metadata",
        "store",
        "response_format",
        "logprobs",
        "top_logprobs",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "service_tier",
        "modalities",
        "verbosity",
        "prompt_cache_key",
        "safety_identifier",
    ];
    let members = body.as_object().ok_or("We could not parse the JSON body of your request.")?;
    if let Some(unknown) = members.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("Unrecognized request argument supplied: {unknown}"));
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("you must provide a model parameter".to_owned());
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err("The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned());
    }
    if let Some(effort) = body["reasoning_effort"].as_str()
        && !["none", "minimal", "low", "medium", "high", "xhigh"].contains(&effort)
    {
        return Err(format!(
            "Invalid value: '{effort}'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', and 'xhigh'."
        ));
    }
    for (index, tool) in list(&body["tools"]).iter().enumerate() {
        let function = &tool["function"];
        if tool["type"] != "function" || !plain_name(function["name"].as_str(), 64) {
            return Err(format!(
                "Invalid 'tools[{index}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
            ));
        }
        if !function["parameters"].is_null() && function["parameters"]["type"] != "object" {
            return Err(format!(
                "Invalid schema for function {}: schema must be a JSON Schema of 'type: \"object\"'.",
                function["name"]
            ));
        }
    }
    if body["tools"].as_array().is_some_and(Vec::is_empty) {
        return Err("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.".to_owned());
    }
    let messages = body["messages"].as_array().ok_or("Missing required parameter: 'messages'.")?;
    if messages.is_empty() {
        return Err("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.".to_owned());
    }
    check_openai_messages(messages)
}

fn check_openai_messages(messages: &[Value]) -> Result<(), Refusal> {
    let mut open: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return Err(unanswered(&open));
        }
        let content = &message["content"];
        match role {
            "system" | "developer" | "user" => {
                let valid = match content {
                    Value::String(_) => true,
                    Value::Array(items) => !items.is_empty() && items.iter().all(valid_item),
                    _ => false,
                };
                if !valid {
                    return Err(format!(
                        "Invalid value for 'messages[{index}].content': expected a string or an array of content parts."
                    ));
                }
            }
            "assistant" => {
                let calls = list(&message["tool_calls"]);
                if message["tool_calls"].as_array().is_some_and(Vec::is_empty) {
                    return Err(format!("Invalid 'messages[{index}].tool_calls': empty array."));
                }
                if content.is_null() && calls.is_empty() {
                    return Err(format!(
                        "Invalid value for 'content': expected a string, got null. (messages[{index}])"
                    ));
                }
                for call in calls {
                    let function = &call["function"];
                    let (Some(id), true) = (call["id"].as_str(), call["type"] == "function") else {
                        return Err(format!(
                            "Missing required parameter: 'messages[{index}].tool_calls[0].id'."
                        ));
                    };
                    if !plain_name(function["name"].as_str(), 64) || function["arguments"].as_str().is_none()
                    {
                        return Err(format!(
                            "Invalid type for 'messages[{index}].tool_calls[0].function': name and arguments must be strings."
                        ));
                    }
                    open.insert(id);
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return Err("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.".to_owned());
                }
                if !content.is_string() {
                    return Err(format!("Invalid value for 'messages[{index}].content': expected a string."));
                }
            }
            other => {
                return Err(format!(
                    "Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
                ));
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(unanswered(&open)) }
}

fn unanswered(open: &HashSet<&str>) -> String {
    let mut ids: Vec<&str> = open.iter().copied().collect();
    ids.sort_unstable();
    format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        ids.join(", ")
    )
}

fn valid_item(item: &Value) -> bool {
    match item["type"].as_str() {
        Some("text") => item["text"].is_string(),
        Some("image_url") => item["image_url"]["url"]
            .as_str()
            .is_some_and(|url| url.starts_with("https://") || url.starts_with("data:image/")),
        Some("file") => item["file"]["file_data"].is_string() || item["file"]["file_id"].is_string(),
        Some("input_audio") => true,
        _ => false,
    }
}

/// Checks a Messages request.
pub(super) fn check_anthropic(body: &Value) -> Result<(), Refusal> {
    const KNOWN: &[&str] = &[
        "model",
        "messages",
        "max_tokens",
        "stream",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "metadata",
        "service_tier",
        "container",
        "mcp_servers",
        "output_config",
    ];
    let members = body.as_object().ok_or("Input should be a valid dictionary")?;
    if let Some(unknown) = members.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("{unknown}: Extra inputs are not permitted"));
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: Field required".to_owned());
    }
    let max_tokens =
        body["max_tokens"].as_u64().filter(|count| *count > 0).ok_or("max_tokens: Field required")?;
    let thinking = body["thinking"]["type"] == "enabled";
    if thinking && refuses_budgets(body["model"].as_str().unwrap_or_default()) {
        return Err("\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.".to_owned());
    }
    if body["thinking"]["type"] == "adaptive" && !body["thinking"]["budget_tokens"].is_null() {
        return Err("thinking.adaptive.budget_tokens: Extra inputs are not permitted".to_owned());
    }
    if let Some(effort) = body["output_config"]["effort"].as_str()
        && !["low", "medium", "high", "xhigh", "max"].contains(&effort)
    {
        return Err(
            "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'".to_owned()
        );
    }
    if thinking {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1024 {
            return Err(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".to_owned()
            );
        }
        if budget >= max_tokens {
            return Err("`max_tokens` must be greater than `thinking.budget_tokens`.".to_owned());
        }
    }
    for (index, tool) in list(&body["tools"]).iter().enumerate() {
        if !plain_name(tool["name"].as_str(), 128) {
            return Err(format!(
                "tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            ));
        }
        if tool["input_schema"]["type"] != "object" {
            return Err(format!("tools.{index}.custom.input_schema.type: Input should be 'object'"));
        }
    }
    let marks = count_marks(body);
    if marks > 4 {
        return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
    }
    let messages = body["messages"]
        .as_array()
        .filter(|messages| !messages.is_empty())
        .ok_or("messages: at least one message is required")?;
    if messages[0]["role"] != "user" {
        return Err("messages: first message must use the \"user\" role".to_owned());
    }
    check_anthropic_messages(messages, thinking)
}

/// Models that only take adaptive thinking.
fn refuses_budgets(model: &str) -> bool {
    ["claude-opus-4-7", "claude-opus-4-8", "claude-mythos", "claude-fable"]
        .iter()
        .any(|name| model.starts_with(name))
        || ["claude-opus-5", "claude-sonnet-5", "claude-haiku-5"].iter().any(|name| model.starts_with(name))
}

fn check_anthropic_messages(messages: &[Value], thinking: bool) -> Result<(), Refusal> {
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let blocks = list(&message["content"]);
        if !message["content"].is_string() && blocks.is_empty() {
            return Err(format!(
                "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
            ));
        }
        for (number, block) in blocks.iter().enumerate() {
            check_block(block).map_err(|why| format!("messages.{index}.content.{number}.{why}"))?;
        }
        match message["role"].as_str() {
            Some("user") => {
                let answered: HashSet<&str> = blocks
                    .iter()
                    .filter(|block| block["type"] == "tool_result")
                    .filter_map(|block| block["tool_use_id"].as_str())
                    .collect();
                if let Some(missing) = open.iter().find(|id| !answered.contains(*id)) {
                    return Err(format!(
                        "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
                    ));
                }
                if let Some(extra) = answered.iter().find(|id| !open.contains(*id)) {
                    return Err(format!(
                        "messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {extra}."
                    ));
                }
                open.clear();
            }
            Some("assistant") => {
                if !open.is_empty() {
                    return Err(format!(
                        "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {}.",
                        open.join(", ")
                    ));
                }
                open = blocks
                    .iter()
                    .filter(|block| block["type"] == "tool_use")
                    .filter_map(|block| block["id"].as_str())
                    .collect();
                let starts_with_thinking = blocks
                    .first()
                    .is_some_and(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking");
                if thinking && !open.is_empty() && index + 2 == messages.len() && !starts_with_thinking {
                    return Err(format!(
                        "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
                    ));
                }
            }
            _ => return Err(format!("messages.{index}.role: Input should be 'user' or 'assistant'")),
        }
    }
    match open.first() {
        None => Ok(()),
        Some(id) => Err(format!(
            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}.",
            messages.len() - 1
        )),
    }
}

fn check_block(block: &Value) -> Result<(), Refusal> {
    let source = &block["source"];
    match block["type"].as_str() {
        Some("text") => match block["text"].as_str() {
            None => Err("text: Field required".to_owned()),
            Some(text) if text.trim().is_empty() => {
                Err("text: text content blocks must contain non-whitespace text".to_owned())
            }
            Some(_) => Ok(()),
        },
        Some("image") => {
            let media = source["media_type"].as_str().unwrap_or_default();
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"].contains(&media);
            check_source(
                source,
                known,
                "image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
            )
        }
        Some("document") => check_source(
            source,
            source["media_type"] == "application/pdf",
            "document.source.base64.media_type: Input should be 'application/pdf'",
        ),
        Some("tool_use") => {
            if !plain_name(block["id"].as_str(), 200)
                || !plain_name(block["name"].as_str(), 200)
                || !block["input"].is_object()
            {
                return Err("tool_use: id and name should match pattern '^[a-zA-Z0-9_-]+$', input should be a dictionary".to_owned());
            }
            Ok(())
        }
        Some("tool_result") => {
            if !plain_name(block["tool_use_id"].as_str(), 200) {
                return Err(
                    "tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'".to_owned()
                );
            }
            list(&block["content"]).iter().try_for_each(check_block)
        }
        Some("thinking" | "redacted_thinking") => Ok(()),
        _ => Err("type: Input tag does not match any of the expected tags".to_owned()),
    }
}

fn check_source(source: &Value, known_media: bool, words: &str) -> Result<(), Refusal> {
    match source["type"].as_str() {
        Some("base64") if !known_media => Err(words.to_owned()),
        Some("base64") if source["data"].as_str().is_some_and(|data| !data.is_empty()) => Ok(()),
        Some("text") if source["media_type"] == "text/plain" && source["data"].is_string() => Ok(()),
        Some("url")
            if source["url"]
                .as_str()
                .is_some_and(|url| url.starts_with("https://") || url.starts_with("http://")) =>
        {
            Ok(())
        }
        _ => Err("source: Input should be a valid source".to_owned()),
    }
}

fn count_marks(value: &Value) -> usize {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| usize::from(name == "cache_control") + count_marks(member))
            .sum(),
        Value::Array(items) => items.iter().map(count_marks).sum(),
        _ => 0,
    }
}

fn plain_name(name: Option<&str>, longest: usize) -> bool {
    name.is_some_and(|name| {
        (1..=longest).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn openai(messages: Value) -> Result<(), Refusal> {
        check_openai(
            &json!({"model": "m", "messages": messages, "stream": true, "stream_options": {"include_usage": true}}),
        )
    }

    fn anthropic(messages: Value) -> Result<(), Refusal> {
        check_anthropic(&json!({"model": "m", "max_tokens": 100, "messages": messages}))
    }

    #[test]
    fn openai_conversations_that_the_vendor_refuses_are_refused() {
        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
        let user = json!({"role": "user", "content": "q"});
        let answer = json!({"role": "tool", "tool_call_id": "a", "content": "r"});
        assert_eq!(openai(json!([user, call, answer, user])), Ok(()));
        for (name, messages) in [
            ("no message", json!([])),
            ("unanswered call", json!([user, call])),
            ("user before the answer", json!([user, call, user, answer])),
            ("answer to nothing", json!([user, answer])),
            ("answered twice", json!([user, call, answer, answer])),
            ("unknown role", json!([{"role": "tool_results", "content": "x"}])),
            ("assistant without anything", json!([user, {"role": "assistant", "content": null}])),
            ("empty parts", json!([{"role": "user", "content": []}])),
            (
                "picture in a tool message",
                json!([user, call, {"role": "tool", "tool_call_id": "a", "content": [{"type": "image_url"}]}]),
            ),
        ] {
            assert!(openai(messages).is_err(), "{name}");
        }
        assert!(check_openai(&json!({"model": "m", "messages": [user], "stream_options": {}})).is_err());
        assert!(check_openai(&json!({"model": "m", "messages": [user], "max_token": 3})).is_err());
        assert!(check_openai(&json!({"model": "m", "messages": [user], "tools": []})).is_err());
        assert!(check_openai(&json!({"messages": [user]})).is_err());
    }

    #[test]
    fn anthropic_conversations_that_the_vendor_refuses_are_refused() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "q"}]});
        let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]});
        let answer =
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]});
        assert_eq!(anthropic(json!([user, call, answer, user])), Ok(()));
        for (name, messages) in [
            ("no message", json!([])),
            ("assistant first", json!([call, answer])),
            ("unanswered call", json!([user, call])),
            ("no answer in the next message", json!([user, call, user])),
            ("answer to nothing", json!([answer])),
            ("blank text", json!([{"role": "user", "content": [{"type": "text", "text": " "}]}])),
            ("no content", json!([user, {"role": "assistant", "content": []}, user])),
            (
                "csv as base64",
                json!([{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": "text/csv", "data": "AA=="}}]}]),
            ),
            (
                "data URL as url",
                json!([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "data:image/png;base64,AA=="}}]}]),
            ),
        ] {
            assert!(anthropic(messages).is_err(), "{name}");
        }
        let with_thinking = |budget: u64, messages: Value| {
            check_anthropic(
                &json!({"model": "m", "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": budget}, "messages": messages}),
            )
        };
        assert_eq!(with_thinking(1024, json!([user])), Ok(()));
        assert!(with_thinking(1023, json!([user])).is_err());
        assert!(with_thinking(2000, json!([user])).is_err());
        assert!(with_thinking(1024, json!([user, call, answer])).is_err());
        let newer = |thinking: Value| {
            check_anthropic(
                &json!({"model": "claude-opus-5", "max_tokens": 2000, "thinking": thinking, "messages": [user]}),
            )
        };
        assert!(newer(json!({"type": "enabled", "budget_tokens": 1024})).is_err());
        assert!(newer(json!({"type": "adaptive", "budget_tokens": 1024})).is_err());
        assert_eq!(newer(json!({"type": "adaptive"})), Ok(()));
        assert!(check_anthropic(&json!({"model": "m", "messages": [user]})).is_err());
        assert!(
            check_anthropic(&json!({"model": "m", "max_tokens": 1, "messages": [user], "reasoning": {}}))
                .is_err()
        );
    }
}
