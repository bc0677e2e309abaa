//! The neutral conversation as chat completions.

use std::borrow::Cow;

use serde::Serialize;
use trestle_contract::inference::{ChatMessage, Content, Effort, FileSource, ToolResultMessage};
use trestle_contract::json::JsonObject;

use crate::error::{ErrorClass, ModelError};
use crate::request::{
    self, EncodedRequest, FileBody, ModelRequest, Part, ToolNames, file_body, is_image, parts_of,
    text_of_file,
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    User {
        content: MessageContent<'a>,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum MessageContent<'a> {
    Text(&'a str),
    Items(Vec<Item<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: FileItem<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
struct FileItem<'a> {
    file_data: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CallFunction<'a>,
}

#[derive(Serialize)]
struct CallFunction<'a> {
    name: &'a str,
    arguments: String,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: ToolFunction<'a>,
}

#[derive(Serialize)]
struct ToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, JsonObject>,
}

/// Writes the request.
pub(crate) fn encode(request: &ModelRequest) -> Result<EncodedRequest, ModelError> {
    let names = ToolNames::of(request);
    let mut messages = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        encode_message(message, &names, &mut messages)?;
    }
    let tools = request.tools.iter().map(|tool| Tool {
        kind: "function",
        function: ToolFunction {
            name: names.write(&tool.name),
            description: &tool.description,
            parameters: request::object_schema(&tool.input_schema),
        },
    });
    let body = Body {
        model: &request.model,
        messages,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_completion_tokens: request.max_output_tokens,
        reasoning_effort: request.reasoning.as_ref().and_then(|reasoning| reasoning.effort).map(effort_word),
        tools: tools.collect(),
    };
    let body = serde_json::to_vec(&body)
        .map_err(|error| ModelError::new(ErrorClass::BadRequest, error.to_string()))?;
    let prompt_tokens = request::estimate_prompt_tokens(body.len(), &request.messages);
    Ok(EncodedRequest { body, names, prompt_tokens })
}

fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "none",
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "xhigh",
    }
}

fn encode_message<'a>(
    message: &'a ChatMessage,
    names: &'a ToolNames,
    messages: &mut Vec<Message<'a>>,
) -> Result<(), ModelError> {
    match message {
        ChatMessage::User { content: Content::Text(text) } => {
            messages.push(Message::User { content: MessageContent::Text(text) })
        }
        ChatMessage::User { content } => {
            let items = parts_of(content).into_iter().map(item).collect::<Result<_, _>>()?;
            messages.push(Message::User { content: MessageContent::Items(items) });
        }
        ChatMessage::Assistant { text, tool_calls } => messages.push(Message::Assistant {
            // Null is allowed beside tool calls only.
            content: if text.is_empty() && !tool_calls.is_empty() { None } else { Some(text) },
            tool_calls: tool_calls
                .iter()
                .map(|call| Call {
                    id: &call.id,
                    kind: "function",
                    function: CallFunction {
                        name: names.write(&call.name),
                        arguments: serde_json::Value::Object(call.input.clone()).to_string(),
                    },
                })
                .collect(),
        }),
        ChatMessage::ToolResults { results } => encode_results(results, messages)?,
    }
    Ok(())
}

/// Tool messages hold text only and must stand together, so the files of all results follow in one user message.
fn encode_results<'a>(
    results: &'a [ToolResultMessage],
    messages: &mut Vec<Message<'a>>,
) -> Result<(), ModelError> {
    let mut files: Vec<Item<'a>> = Vec::new();
    for result in results {
        let mut texts = Vec::new();
        let mut own_files = Vec::new();
        for part in parts_of(&result.content) {
            match part {
                Part::Text(text) => texts.push(text),
                Part::File(file) => own_files.push(file_item(file)?),
            }
        }
        let mut content = match texts.as_slice() {
            [] if own_files.is_empty() => Cow::Borrowed(""),
            [] => Cow::Borrowed("(the result is the file in the following message)"),
            [text] => Cow::Borrowed(*text),
            texts => Cow::Owned(texts.join("\n")),
        };
        if result.is_error && !starts_like_an_error(&content) {
            content = Cow::Owned(format!("Error: {content}"));
        }
        messages.push(Message::Tool { tool_call_id: &result.id, content });
        if !own_files.is_empty() {
            files
                .push(Item::Text { text: Cow::Owned(format!("Files returned by tool call {}:", result.id)) });
            files.append(&mut own_files);
        }
    }
    if !files.is_empty() {
        messages.push(Message::User { content: MessageContent::Items(files) });
    }
    Ok(())
}

/// The wire has no flag for failed tools, so the text must say it.
fn starts_like_an_error(text: &str) -> bool {
    text.trim_start().get(..5).is_some_and(|head| head.eq_ignore_ascii_case("error"))
}

fn item(part: Part<'_>) -> Result<Item<'_>, ModelError> {
    match part {
        Part::Text(text) => Ok(Item::Text { text: Cow::Borrowed(text) }),
        Part::File(file) => file_item(file),
    }
}

fn file_item(file: &FileSource) -> Result<Item<'_>, ModelError> {
    let body = file_body(file)?;
    let url = match body {
        FileBody::Base64 { mime_type, data } => {
            if !is_image(mime_type)
                && let Some(text) = text_of_file(mime_type, data)
            {
                let name = file.filename.as_deref().unwrap_or(mime_type);
                return Ok(Item::Text { text: Cow::Owned(format!("File {name}:\n{text}")) });
            }
            Cow::Owned(format!("data:{mime_type};base64,{data}"))
        }
        FileBody::Url(url) => Cow::Borrowed(url),
    };
    if is_image(&file.mime_type) {
        return Ok(Item::ImageUrl { image_url: ImageUrl { url } });
    }
    Ok(Item::File { file: FileItem { file_data: url, filename: file.filename.as_deref() } })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trestle_contract::inference::{Reasoning, ToolSpec};

    use super::*;

    fn body(messages: Value) -> Value {
        encode_with(&ModelRequest {
            model: "m/x:1".to_owned(),
            messages: serde_json::from_value(messages).unwrap(),
            ..ModelRequest::default()
        })
    }

    fn encode_with(request: &ModelRequest) -> Value {
        serde_json::from_slice(&encode(request).unwrap().body).unwrap()
    }

    #[test]
    fn a_plain_request_asks_for_a_stream_with_usage_and_keeps_the_model_name() {
        assert_eq!(
            body(json!([{"role": "user", "content": "hi"}])),
            json!({"model": "m/x:1", "messages": [{"role": "user", "content": "hi"}], "stream": true, "stream_options": {"include_usage": true}})
        );
    }

    #[test]
    fn each_kind_of_message_has_its_form() {
        let png = json!({"type": "file", "file": {"mimeType": "image/png", "data": "AA=="}});
        let pdf = json!({"type": "file", "file": {"mimeType": "application/pdf", "data": "BB==", "filename": "a.pdf"}});
        let remote = json!({"type": "file", "file": {"mimeType": "image/png", "url": "https://h/i.png"}});
        let csv =
            json!({"type": "file", "file": {"mimeType": "text/csv", "data": "YSxi", "filename": "a.csv"}});
        let call = json!({"id": "c1", "name": "f", "input": {"x": 1}});
        let table = [
            (
                "parts",
                json!({"role": "user", "content": [{"type": "text", "text": "see"}, png]}),
                json!([
                    {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
                ]),
            ),
            (
                "pdf",
                json!({"role": "user", "content": [pdf]}),
                json!([
                    {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,BB==", "filename": "a.pdf"}}]}
                ]),
            ),
            (
                "remote image",
                json!({"role": "user", "content": [remote]}),
                json!([
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h/i.png"}}]}
                ]),
            ),
            (
                "text file",
                json!({"role": "user", "content": [csv]}),
                json!([
                    {"role": "user", "content": [{"type": "text", "text": "File a.csv:\na,b"}]}
                ]),
            ),
            (
                "assistant text",
                json!({"role": "assistant", "text": "ok", "toolCalls": []}),
                json!([{"role": "assistant", "content": "ok"}]),
            ),
            (
                "assistant empty",
                json!({"role": "assistant", "text": "", "toolCalls": []}),
                json!([{"role": "assistant", "content": ""}]),
            ),
            (
                "assistant calls",
                json!({"role": "assistant", "text": "", "toolCalls": [call]}),
                json!([
                    {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}
                ]),
            ),
            (
                "result",
                json!({"role": "tool_results", "results": [{"id": "c1", "content": "r", "isError": false}]}),
                json!([
                    {"role": "tool", "tool_call_id": "c1", "content": "r"}
                ]),
            ),
            (
                "failed result",
                json!({"role": "tool_results", "results": [
                    {"id": "c1", "content": "no such file", "isError": true}, {"id": "c2", "content": "error: x", "isError": true}
                ]}),
                json!([
                    {"role": "tool", "tool_call_id": "c1", "content": "Error: no such file"}, {"role": "tool", "tool_call_id": "c2", "content": "error: x"}
                ]),
            ),
            (
                "files of results follow together",
                json!({"role": "tool_results", "results": [
                    {"id": "c1", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, png], "isError": false},
                    {"id": "c2", "content": [png], "isError": false},
                    {"id": "c3", "content": "plain", "isError": false}
                ]}),
                json!([
                    {"role": "tool", "tool_call_id": "c1", "content": "a\nb"},
                    {"role": "tool", "tool_call_id": "c2", "content": "(the result is the file in the following message)"},
                    {"role": "tool", "tool_call_id": "c3", "content": "plain"},
                    {"role": "user", "content": [
                        {"type": "text", "text": "Files returned by tool call c1:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                        {"type": "text", "text": "Files returned by tool call c2:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
                    ]}
                ]),
            ),
        ];
        for (name, message, want) in table {
            assert_eq!(body(json!([message]))["messages"], want, "{name}");
        }
    }

    #[test]
    fn reasoning_is_an_effort_word_and_a_bare_budget_sends_nothing() {
        let with = |effort, max_tokens| {
            encode_with(&ModelRequest {
                reasoning: Some(Reasoning { effort, max_tokens, exclude: Some(true) }),
                ..ModelRequest::default()
            })
        };
        assert_eq!(with(Some(Effort::High), None)["reasoning_effort"], "high");
        assert_eq!(with(Some(Effort::None), Some(9))["reasoning_effort"], "none");
        assert_eq!(with(None, Some(2000)).get("reasoning_effort"), None);
    }

    #[test]
    fn tools_are_functions_whose_parameters_are_objects() {
        let request = ModelRequest {
            tools: vec![ToolSpec {
                name: "a.b".to_owned(),
                description: "d".to_owned(),
                input_schema: serde_json::Map::new(),
            }],
            ..ModelRequest::default()
        };
        let tools = &encode_with(&request)["tools"];
        assert_eq!(tools[0]["type"], "function");
        assert_eq!(tools[0]["function"]["parameters"], json!({"type": "object", "properties": {}}));
        assert!(tools[0]["function"]["name"].as_str().unwrap().starts_with("a_b_"));
    }
}
