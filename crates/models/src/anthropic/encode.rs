//! The neutral conversation as Anthropic Messages.

use std::borrow::Cow;

use serde::Serialize;
use trestle_contract::inference::{ChatMessage, Content, FileSource};
use trestle_contract::json::JsonObject;

use super::thinking::ThinkingSettings;
use crate::error::{ErrorClass, ModelError};
use crate::request::{
    self, EncodedRequest, FileBody, ModelRequest, Part, ToolNames, file_body, is_image, parts_of, plain_id,
    text_of_file,
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(flatten)]
    thinking: ThinkingSettings,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    body: BlockBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockBody<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: &'a JsonObject,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<ResultContent<'a>>,
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Text { media_type: &'static str, data: String },
    Url { url: &'a str },
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Cow<'a, JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> From<BlockBody<'a>> for Block<'a> {
    fn from(body: BlockBody<'a>) -> Self {
        Self { body, cache_control: None }
    }
}

/// Writes the request.
pub(crate) fn encode(request: &ModelRequest) -> Result<EncodedRequest, ModelError> {
    let names = ToolNames::of(request);
    let mut messages = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        messages.extend(encode_message(message, &names)?);
    }
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: names.write(&tool.name),
            description: &tool.description,
            input_schema: request::object_schema(&tool.input_schema),
            cache_control: None,
        })
        .collect();
    let is_conversation =
        request.messages.iter().any(|message| matches!(message, ChatMessage::Assistant { .. }));
    if is_conversation || !tools.is_empty() {
        mark_for_caching(&mut messages, &mut tools);
    }
    let body = Body {
        model: &request.model,
        stream: true,
        thinking: ThinkingSettings::of(request),
        messages,
        tools,
    };
    let body = serde_json::to_vec(&body)
        .map_err(|error| ModelError::new(ErrorClass::BadRequest, error.to_string()))?;
    let prompt_tokens = request::estimate_prompt_tokens(body.len(), &request.messages);
    Ok(EncodedRequest { body, names, prompt_tokens })
}

fn encode_message<'a>(
    message: &'a ChatMessage,
    names: &'a ToolNames,
) -> Result<Option<Message<'a>>, ModelError> {
    let (role, content) = match message {
        ChatMessage::User { content } => {
            let mut blocks = blocks(content)?;
            if blocks.is_empty() {
                blocks.push(BlockBody::Text { text: "(no content)" }.into());
            }
            ("user", blocks)
        }
        ChatMessage::Assistant { text, tool_calls } => {
            let mut blocks: Vec<Block<'_>> = text_block(text).into_iter().collect();
            blocks.extend(tool_calls.iter().map(|call| {
                Block::from(BlockBody::ToolUse {
                    id: plain_id(&call.id),
                    name: names.write(&call.name),
                    input: &call.input,
                })
            }));
            // An answer that said nothing is refused as a message; without it two user messages follow each other, which is allowed.
            if blocks.is_empty() {
                return Ok(None);
            }
            ("assistant", blocks)
        }
        ChatMessage::ToolResults { results } => {
            let mut blocks = Vec::with_capacity(results.len());
            for result in results {
                blocks.push(Block::from(BlockBody::ToolResult {
                    tool_use_id: plain_id(&result.id),
                    content: result_content(&result.content)?,
                    is_error: result.is_error,
                }));
            }
            if blocks.is_empty() {
                return Ok(None);
            }
            ("user", blocks)
        }
    };
    Ok(Some(Message { role, content }))
}

fn result_content(content: &Content) -> Result<Option<ResultContent<'_>>, ModelError> {
    if let Content::Text(text) = content {
        return Ok((!text.is_empty()).then_some(ResultContent::Text(text)));
    }
    let blocks = blocks(content)?;
    Ok((!blocks.is_empty()).then_some(ResultContent::Blocks(blocks)))
}

/// Text without anything to read in it is refused as a block.
fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then(|| BlockBody::Text { text }.into())
}

fn blocks(content: &Content) -> Result<Vec<Block<'_>>, ModelError> {
    let mut blocks = Vec::new();
    for part in parts_of(content) {
        match part {
            Part::Text(text) => blocks.extend(text_block(text)),
            Part::File(file) => blocks.push(file_block(file)?),
        }
    }
    Ok(blocks)
}

fn file_block(file: &FileSource) -> Result<Block<'_>, ModelError> {
    let image = is_image(&file.mime_type);
    let source = match file_body(file)? {
        FileBody::Base64 { mime_type, data } => {
            match if image { None } else { text_of_file(mime_type, data) } {
                Some(data) => Source::Text { media_type: "text/plain", data },
                None => Source::Base64 { media_type: mime_type, data },
            }
        }
        FileBody::Url(url) => Source::Url { url },
    };
    Ok(if image {
        BlockBody::Image { source }.into()
    } else {
        BlockBody::Document { source, title: file.filename.as_deref() }.into()
    })
}

/// At most three marks: the tools, the first message and the rolling end.
fn mark_for_caching(messages: &mut [Message<'_>], tools: &mut [Tool<'_>]) {
    let mark = Some(CacheControl::Ephemeral);
    if let Some(tool) = tools.last_mut() {
        tool.cache_control = mark;
    }
    if let Some(block) = messages.first_mut().and_then(|message| message.content.last_mut()) {
        block.cache_control = mark;
    }
    if let Some(block) = messages.last_mut().and_then(|message| message.content.last_mut()) {
        block.cache_control = mark;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trestle_contract::inference::ToolSpec;

    use super::*;

    fn request(messages: Value) -> ModelRequest {
        ModelRequest {
            model: "m".to_owned(),
            messages: serde_json::from_value(messages).unwrap(),
            ..ModelRequest::default()
        }
    }

    fn encoded(request: &ModelRequest) -> Value {
        serde_json::from_slice(&encode(request).unwrap().body).unwrap()
    }

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: "d".to_owned(), input_schema: serde_json::Map::new() }
    }

    #[test]
    fn a_single_question_is_sent_without_marks() {
        assert_eq!(
            encoded(&request(json!([{"role": "user", "content": "hi"}]))),
            json!({"model": "m", "stream": true, "max_tokens": 8192, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})
        );
    }

    #[test]
    fn each_kind_of_message_has_its_form() {
        let png = json!({"type": "file", "file": {"mimeType": "image/png", "data": "AA=="}});
        let pdf = json!({"type": "file", "file": {"mimeType": "application/pdf", "data": "BB==", "filename": "a.pdf"}});
        let csv =
            json!({"type": "file", "file": {"mimeType": "text/csv", "data": "YSxi", "filename": "a.csv"}});
        let remote = json!({"type": "file", "file": {"mimeType": "image/png", "url": "https://h/i.png"}});
        let inline =
            json!({"type": "file", "file": {"mimeType": "image/png", "url": "data:image/gif;base64,CC=="}});
        let image =
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
        let user = |content: Value| json!({"role": "user", "content": content});
        let results = |result: Value| json!({"role": "tool_results", "results": [result]});
        let table = [
            ("image", user(json!([png])), user(json!([image]))),
            (
                "document",
                user(json!([pdf])),
                user(json!([
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BB=="}, "title": "a.pdf"}
                ])),
            ),
            (
                "text document",
                user(json!([csv])),
                user(json!([
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "a.csv"}
                ])),
            ),
            (
                "remote image",
                user(json!([remote])),
                user(json!([{"type": "image", "source": {"type": "url", "url": "https://h/i.png"}}])),
            ),
            (
                "data URL",
                user(json!([inline])),
                user(json!([
                    {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "CC=="}}
                ])),
            ),
            ("empty text parts", user(json!([{"type": "text", "text": " "}, png])), user(json!([image]))),
            ("nothing at all", user(json!("")), user(json!([{"type": "text", "text": "(no content)"}]))),
            (
                "text result",
                results(json!({"id": "c", "content": "r", "isError": true})),
                user(json!([
                    {"type": "tool_result", "tool_use_id": "c", "content": "r", "is_error": true}
                ])),
            ),
            (
                "empty result",
                results(json!({"id": "c", "content": "", "isError": false})),
                user(json!([
                    {"type": "tool_result", "tool_use_id": "c", "is_error": false}
                ])),
            ),
            (
                "image result",
                results(
                    json!({"id": "c", "content": [{"type": "text", "text": "t"}, png], "isError": false}),
                ),
                user(json!([
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "t"}, image], "is_error": false}
                ])),
            ),
            (
                "id of another provider",
                results(json!({"id": "call:1", "content": "r", "isError": false})),
                user(json!([
                    {"type": "tool_result", "tool_use_id": plain_id("call:1"), "content": "r", "is_error": false}
                ])),
            ),
        ];
        for (name, message, want) in table {
            assert_eq!(encoded(&request(json!([message])))["messages"], json!([want]), "{name}");
        }
    }

    #[test]
    fn an_assistant_message_is_text_and_calls_and_vanishes_when_it_says_nothing() {
        let conversation = |text: &str, calls: Value| {
            request(
                json!([{"role": "user", "content": "q"}, {"role": "assistant", "text": text, "toolCalls": calls}, {"role": "user", "content": "more"}]),
            )
        };
        let full = encoded(&conversation("ok", json!([{"id": "c", "name": "f", "input": {"x": 1}}])));
        assert_eq!(
            full["messages"][1],
            json!({"role": "assistant", "content": [
                {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}
            ]})
        );
        assert_eq!(encoded(&conversation("", json!([])))["messages"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn tools_the_first_and_the_last_message_are_marked_and_the_end_rolls() {
        let mut conversation = request(json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "text": "", "toolCalls": [{"id": "a", "name": "f", "input": {}}, {"id": "b", "name": "f", "input": {}}]},
            {"role": "tool_results", "results": [{"id": "a", "content": "1", "isError": false}, {"id": "b", "content": "2", "isError": false}]}
        ]));
        conversation.tools = vec![tool("f"), tool("g")];
        let body = encoded(&conversation);
        let mark = json!({"type": "ephemeral"});
        assert_eq!(body["tools"][1]["cache_control"], mark);
        assert_eq!(body["messages"][0]["content"][0]["cache_control"], mark);
        assert_eq!(body["messages"][2]["content"][1]["cache_control"], mark);
        assert_eq!(body.to_string().matches("cache_control").count(), 3);
        conversation.tools.clear();
        assert_eq!(encoded(&conversation).to_string().matches("cache_control").count(), 2);
        let mut single = request(json!([{"role": "user", "content": "q"}]));
        single.tools = vec![tool("f")];
        assert_eq!(encoded(&single).to_string().matches("cache_control").count(), 2);
    }
}
