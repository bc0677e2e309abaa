//! The neutral request and what both wires need to encode it.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trestle_contract::inference::{ChatMessage, Content, ContentPart, FileSource, Reasoning, ToolSpec};

use crate::error::{ErrorClass, ModelError};

/// One model turn, before it is written for a wire.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The model's name, handed to the endpoint as it is.
    pub model: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools on offer.
    pub tools: Vec<ToolSpec>,
    /// How much the model shall think.
    pub reasoning: Option<Reasoning>,
    /// The longest answer in tokens. Anthropic needs a number and gets [`DEFAULT_MAX_OUTPUT_TOKENS`] without one.
    pub max_output_tokens: Option<u64>,
}

/// The longest answer that is asked for where the wire needs a number and none is known.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 8192;

/// A request written for a wire.
pub(crate) struct EncodedRequest {
    pub(crate) body: Vec<u8>,
    pub(crate) names: ToolNames,
    /// Rough number of tokens of the prompt.
    pub(crate) prompt_tokens: u64,
}

/// Rough tokens of one file, whatever its size: an image costs about that much.
const TOKENS_A_FILE: u64 = 1500;

/// A rough count for a body of this size that holds these messages' files.
pub(crate) fn estimate_prompt_tokens(body_length: usize, messages: &[ChatMessage]) -> u64 {
    let files = || messages.iter().flat_map(contents).flat_map(files_of);
    let file_bytes: usize =
        files().map(|file| file.data.as_ref().or(file.url.as_ref()).map_or(0, String::len)).sum();
    let text = body_length.saturating_sub(file_bytes) as u64;
    text / 4 + TOKENS_A_FILE * files().count() as u64
}

/// A rough count for a text of so many bytes.
pub(crate) fn estimate_text_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

fn contents(message: &ChatMessage) -> Vec<&Content> {
    match message {
        ChatMessage::User { content } => vec![content],
        ChatMessage::Assistant { .. } => Vec::new(),
        ChatMessage::ToolResults { results } => results.iter().map(|result| &result.content).collect(),
    }
}

fn files_of(content: &Content) -> impl Iterator<Item = &FileSource> {
    let parts = match content {
        Content::Text(_) => &[][..],
        Content::Parts(parts) => parts.as_slice(),
    };
    parts.iter().filter_map(|part| match part {
        ContentPart::File { file } => Some(file),
        ContentPart::Text { .. } => None,
    })
}

/// A content as parts; a bare text equals one text part.
pub(crate) fn parts_of(content: &Content) -> Vec<Part<'_>> {
    match content {
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                ContentPart::Text { text } => Part::Text(text),
                ContentPart::File { file } => Part::File(file),
            })
            .collect(),
    }
}

/// One part of a content.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    File(&'a FileSource),
}

/// What a file is, for an encoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileBody<'a> {
    Base64 { mime_type: &'a str, data: &'a str },
    Url(&'a str),
}

/// The body of a file: `data` wins over `url`, and a `data:` URL is data.
pub(crate) fn file_body(file: &FileSource) -> Result<FileBody<'_>, ModelError> {
    let wrong = |why: &str| {
        let name = file.filename.as_deref().unwrap_or(&file.mime_type);
        ModelError::new(ErrorClass::BadRequest, format!("attachment {name:?} {why}"))
    };
    if let Some(data) = &file.data {
        return Ok(FileBody::Base64 { mime_type: &file.mime_type, data });
    }
    let url = file.url.as_deref().ok_or_else(|| wrong("has neither data nor url"))?;
    let Some(rest) = strip_scheme(url, "data:") else {
        if strip_scheme(url, "https://").is_none() && strip_scheme(url, "http://").is_none() {
            return Err(wrong("has a url that is neither https nor data"));
        }
        return Ok(FileBody::Url(url));
    };
    let (header, data) = rest.split_once(',').ok_or_else(|| wrong("has a data: URL without a comma"))?;
    let mut parameters = header.split(';');
    let mime_type = parameters.next().filter(|mime| !mime.is_empty()).unwrap_or(&file.mime_type);
    if !parameters.any(|parameter| parameter.eq_ignore_ascii_case("base64")) {
        return Err(wrong("has a data: URL that is not base64"));
    }
    Ok(FileBody::Base64 { mime_type, data })
}

fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let head = url.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
}

/// Whether files of this type are pictures.
pub(crate) fn is_image(mime_type: &str) -> bool {
    mime_type.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("image/"))
}

/// The text of a file whose type says that it is text; providers take such files as text only.
pub(crate) fn text_of_file(mime_type: &str, data: &str) -> Option<String> {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let textual = essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(
            essence.as_str(),
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/x-ndjson"
                | "application/javascript"
                | "application/toml"
        );
    if !textual {
        return None;
    }
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

/// Names of tools as a provider accepts them, and the way back.
///
/// Providers allow letters, digits, `_` and `-` up to a length; other names (an MCP tool called `fs.read`, for one) are written with `_`
/// and a hash of the real name.
#[derive(Debug, Default, Clone)]
pub(crate) struct ToolNames {
    written: HashMap<String, String>,
    real: HashMap<String, String>,
}

impl ToolNames {
    /// Longest name that every provider takes.
    const MAX_LENGTH: usize = 64;

    pub(crate) fn of(request: &ModelRequest) -> Self {
        let offered = request.tools.iter().map(|tool| tool.name.as_str());
        let called = request.messages.iter().flat_map(|message| match message {
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
            ChatMessage::User { .. } | ChatMessage::ToolResults { .. } => &[],
        });
        let mut names = Self::default();
        for name in offered.chain(called.map(|call| call.name.as_str())) {
            if is_plain(name) || names.written.contains_key(name) {
                continue;
            }
            let written = written_name(name);
            names.real.insert(written.clone(), name.to_owned());
            names.written.insert(name.to_owned(), written);
        }
        names
    }

    pub(crate) fn write<'a>(&'a self, name: &'a str) -> &'a str {
        self.written.get(name).map_or(name, String::as_str)
    }

    pub(crate) fn read(&self, name: String) -> String {
        self.real.get(&name).cloned().unwrap_or(name)
    }
}

fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_plain(name: &str) -> bool {
    (1..=ToolNames::MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_plain_byte)
}

fn written_name(name: &str) -> String {
    // FNV-1a: must not change between processes, since the conversation holds names of earlier turns.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let head: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .take(ToolNames::MAX_LENGTH - 9)
        .collect();
    format!("{head}_{:08x}", hash >> 32)
}

/// An id of a tool call with only the characters that every provider takes back.
pub(crate) fn plain_id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.bytes().all(is_plain_byte) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(written_name(id))
}

/// A schema that says what providers insist on: that the input is an object.
pub(crate) fn object_schema(
    schema: &trestle_contract::json::JsonObject,
) -> Cow<'_, trestle_contract::json::JsonObject> {
    if schema.get("type").is_some_and(|kind| kind == "object") {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    schema.insert("type".to_owned(), "object".into());
    schema.entry("properties").or_insert_with(|| serde_json::Value::Object(serde_json::Map::new()));
    Cow::Owned(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(data: Option<&str>, url: Option<&str>) -> FileSource {
        FileSource {
            mime_type: "image/png".to_owned(),
            data: data.map(str::to_owned),
            url: url.map(str::to_owned),
            filename: None,
        }
    }

    #[test]
    fn a_file_is_data_or_url_and_data_urls_are_data() {
        let data = |mime_type, data| FileBody::Base64 { mime_type, data };
        assert_eq!(file_body(&file(Some("AA=="), Some("https://x"))).unwrap(), data("image/png", "AA=="));
        assert_eq!(
            file_body(&file(None, Some("data:image/gif;base64,BB=="))).unwrap(),
            data("image/gif", "BB==")
        );
        assert_eq!(
            file_body(&file(None, Some("DATA:;charset=x;BASE64,CC=="))).unwrap(),
            data("image/png", "CC==")
        );
        assert_eq!(
            file_body(&file(None, Some("https://h/i.png"))).unwrap(),
            FileBody::Url("https://h/i.png")
        );
        for url in [
            None,
            Some("file:///etc/passwd"),
            Some("data:image/png"),
            Some("data:text/plain,hello"),
            Some(""),
        ] {
            assert_eq!(file_body(&file(None, url)).unwrap_err().class, ErrorClass::BadRequest, "{url:?}");
        }
    }

    #[test]
    fn names_that_no_provider_takes_go_out_plain_and_come_back_real() {
        let tool = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input_schema: serde_json::Map::new(),
        };
        let long = "x".repeat(100);
        let request = ModelRequest {
            tools: vec![tool("read"), tool("fs.read"), tool("fs/read"), tool("é"), tool(&long), tool("")],
            ..ModelRequest::default()
        };
        let names = ToolNames::of(&request);
        assert_eq!(names.write("read"), "read");
        let mut seen = std::collections::HashSet::new();
        for tool in &request.tools {
            let written = names.write(&tool.name).to_owned();
            assert!(is_plain(&written), "{written}");
            assert!(seen.insert(written.clone()), "{written} twice");
            assert_eq!(names.read(written), tool.name);
        }
        assert_eq!(names.read("unknown".to_owned()), "unknown");
    }

    #[test]
    fn text_files_are_read_as_text_and_others_are_not() {
        let data = STANDARD.encode("a,b\n");
        assert_eq!(text_of_file("text/csv; charset=utf-8", &data).as_deref(), Some("a,b\n"));
        assert_eq!(text_of_file("application/json", &data).as_deref(), Some("a,b\n"));
        assert_eq!(text_of_file("application/pdf", &data), None);
        assert_eq!(text_of_file("text/plain", &STANDARD.encode([0xff, 0xfe])), None);
        assert_eq!(text_of_file("text/plain", "not base64!"), None);
    }

    #[test]
    fn the_size_of_a_picture_does_not_count_as_text() {
        let messages = [ChatMessage::User {
            content: Content::Parts(vec![ContentPart::File { file: file(Some(&"A".repeat(400_000)), None) }]),
        }];
        assert_eq!(estimate_prompt_tokens(400_400, &messages), 100 + TOKENS_A_FILE);
    }
}
