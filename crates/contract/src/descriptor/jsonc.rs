//! JSON with comments and trailing commas (`docs/protocol/descriptor.md` §2).
//!
//! An own reader, because three needs meet here that the common crates do not join: numbers keep their text (a cron
//! trigger's `input` is program JSON), every value keeps its position, and what is tolerated (byte-order mark,
//! duplicate keys, a lone comma) is tolerated with a warning instead of silently or not at all.

use std::sync::Arc;

use serde_json::Value;

use super::problem::{Position, Warning};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 128;

/// The text is not JSONC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at {line}:{column}")]
pub struct JsoncError {
    /// What was found, and what was expected.
    pub message: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A JSON value that knows where it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Byte offset of the value's first character.
    pub(crate) offset: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeKind {
    Null,
    Bool(bool),
    /// The number's own text, a valid JSON number.
    Number(String),
    String(String),
    Array(Vec<Node>),
    /// In source order, without duplicates: of equal keys the last one stays.
    Object(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) key_offset: usize,
    pub(crate) value: Node,
}

impl Node {
    /// What the value is, as an author would say it.
    pub(crate) fn describe(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "null",
            NodeKind::Bool(_) => "a boolean",
            NodeKind::Number(_) => "a number",
            NodeKind::String(_) => "a string",
            NodeKind::Array(_) => "an array",
            NodeKind::Object(_) => "an object",
        }
    }

    /// Strict JSON of this value: comments gone, numbers as they were written.
    pub(crate) fn write_json(&self, out: &mut String) {
        match &self.kind {
            NodeKind::Null => out.push_str("null"),
            NodeKind::Bool(true) => out.push_str("true"),
            NodeKind::Bool(false) => out.push_str("false"),
            NodeKind::Number(text) => out.push_str(text),
            NodeKind::String(text) => write_string(text, out),
            NodeKind::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            NodeKind::Object(members) => {
                out.push('{');
                for (index, member) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(&member.key, out);
                    out.push(':');
                    member.value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    // A string always serialises; the empty fallback cannot be reached.
    out.push_str(&serde_json::to_string(text).unwrap_or_else(|_| String::from("\"\"")));
}

/// JSONC text that was read, with the positions of all values.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(crate) root: Node,
    text: Arc<str>,
    warnings: Vec<Warning>,
}

impl Document {
    /// Reads JSONC.
    ///
    /// # Errors
    /// [`JsoncError`] with line and column for anything that is not JSONC: also text that is not UTF-8, nesting
    /// beyond 128 levels, and more than one value.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsoncError> {
        let mut reader = Reader::new(bytes)?;
        reader.skip_blank()?;
        if reader.peek().is_none() {
            return Err(reader.error("the text is empty, a JSON value was expected"));
        }
        let root = reader.value(0)?;
        reader.skip_blank()?;
        if reader.peek().is_some() {
            return Err(reader.error(&format!("unexpected {} after the end of the value", reader.found())));
        }
        let (text, mut warnings) = (Arc::from(reader.text), reader.warnings);
        warnings.sort_by_key(|warning| warning.position);
        Ok(Self { root, text, warnings })
    }

    /// What was tolerated: byte-order mark, duplicate keys, lone commas.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Strict JSON of the document, keys in source order, numbers as written.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        self.root.write_json(&mut out);
        out
    }

    /// The value at a path whose segments are joined with `.` (`(root)` or the empty path is the document).
    #[must_use]
    pub fn locate(&self, path: &str) -> Option<Position> {
        let mut node = &self.root;
        if !path.is_empty() && path != "(root)" {
            for segment in path.split('.') {
                node = match &node.kind {
                    NodeKind::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
                    NodeKind::Object(members) => &members.iter().find(|member| member.key == segment)?.value,
                    _ => return None,
                };
            }
        }
        Some(self.position(node.offset))
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        position_in(&self.text, offset)
    }
}

/// Reads JSONC into a plain value, with what was tolerated on the way.
///
/// # Errors
/// As [`Document::parse`].
pub fn parse_jsonc(bytes: &[u8]) -> Result<(Value, Vec<Warning>), JsoncError> {
    let document = Document::parse(bytes)?;
    let value = serde_json::from_str(&document.to_json()).map_err(|error| {
        // Only a number beyond every range ends here; everything else was checked while reading.
        JsoncError { message: error.to_string(), line: 1, column: 1 }
    })?;
    Ok((value, document.warnings))
}

pub(crate) fn position_in(text: &str, offset: usize) -> Position {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let mut line = 1_u32;
    let mut column = 1_u32;
    let mut index = 0;
    while index < before.len() {
        match before[index] {
            b'\n' => {
                line += 1;
                column = 1;
            }
            // CRLF is one line end, a lone CR is one too.
            b'\r' if text.as_bytes().get(index + 1) == Some(&b'\n') => {}
            b'\r' => {
                line += 1;
                column = 1;
            }
            byte if byte & 0xC0 != 0x80 => column += 1,
            _ => {}
        }
        index += 1;
    }
    Position { line, column }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    warnings: Vec<Warning>,
}

impl<'t> Reader<'t> {
    fn new(bytes: &'t [u8]) -> Result<Self, JsoncError> {
        let (bytes, has_mark) = match bytes.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let position = position_in(valid, valid.len());
            JsoncError {
                message: "the file is not UTF-8 text".into(),
                line: position.line,
                column: position.column,
            }
        })?;
        let mut reader = Self { text, at: 0, warnings: Vec::new() };
        if has_mark {
            reader.warn(0, "the file starts with a byte-order mark; it is ignored");
        }
        Ok(reader)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn warn(&mut self, offset: usize, message: &str) {
        let position = Some(position_in(self.text, offset));
        self.warnings.push(Warning { path: "(root)".into(), position, message: message.into() });
    }

    fn error_at(&self, offset: usize, message: &str) -> JsoncError {
        let position = position_in(self.text, offset);
        JsoncError { message: message.into(), line: position.line, column: position.column }
    }

    fn error(&self, message: &str) -> JsoncError {
        self.error_at(self.at, message)
    }

    /// The next character, for messages.
    fn found(&self) -> String {
        match self.text[self.at..].chars().next() {
            None => "end of file".into(),
            Some('#') => "`#` (comments start with `//`)".into(),
            Some('\'') => "`'` (strings use double quotes)".into(),
            Some(character) if character.is_control() => {
                format!("control character U+{:04X}", character as u32)
            }
            Some(character) => format!("`{character}`"),
        }
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Result<(), JsoncError> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b'/' => match bytes.get(self.at + 1) {
                    Some(b'/') => {
                        let rest = &bytes[self.at..];
                        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                        self.at += length.unwrap_or(rest.len());
                    }
                    Some(b'*') => {
                        let end = self.text[self.at + 2..].find("*/");
                        let end = end.ok_or_else(|| self.error("this comment is never closed with `*/`"))?;
                        self.at += end + 4;
                    }
                    _ => return Err(self.error("unexpected `/`, a comment starts with `//` or `/*`")),
                },
                _ => break,
            }
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node, JsoncError> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let offset = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => NodeKind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => NodeKind::Number(self.number()?),
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.word()?,
            _ => return Err(self.error(&format!("unexpected {}, a JSON value was expected", self.found()))),
        };
        Ok(Node { kind, offset })
    }

    fn word(&mut self) -> Result<NodeKind, JsoncError> {
        let rest = &self.text[self.at..];
        let length = rest.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let kind = match &rest[..length] {
            "null" => NodeKind::Null,
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            other => {
                return Err(self.error(&format!("`{other}` is not a JSON value; text goes in double quotes")));
            }
        };
        self.at += length;
        Ok(kind)
    }

    fn number(&mut self) -> Result<String, JsoncError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let digits =
            |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut at = start + usize::from(bytes[start] == b'-');
        let whole = at;
        at = digits(at);
        let leading_zero = bytes.get(whole) == Some(&b'0') && at > whole + 1;
        let mut valid = at > whole && !leading_zero;
        if bytes.get(at) == Some(&b'.') {
            let end = digits(at + 1);
            valid &= end > at + 1;
            at = end;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at + 1 + sign);
            valid &= end > at + 1 + sign;
            at = end;
        }
        let followed =
            bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'));
        if !valid || followed {
            return Err(self.error("this is not a JSON number (plain decimal, no leading zero, no `0x`)"));
        }
        self.at = at;
        Ok(self.text[start..at].to_owned())
    }

    fn string(&mut self) -> Result<String, JsoncError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                None => return Err(self.error_at(start, "this string is never closed with `\"`")),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(0..=0x1F) => {
                    return Err(
                        self.error_at(end, "a string cannot hold a raw line end or control character")
                    );
                }
                Some(_) => end += 1,
            }
        }
        // Everything but escapes was checked above, so what serde_json refuses is an escape.
        let text = serde_json::from_str::<String>(&self.text[start..=end])
            .map_err(|_| self.error_at(start, "this string holds an invalid escape sequence"))?;
        self.at = end + 1;
        Ok(text)
    }

    fn array(&mut self, depth: usize) -> Result<NodeKind, JsoncError> {
        let start = self.at;
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blank()?;
        if self.lone_comma(b']')? {
            return Ok(NodeKind::Array(items));
        }
        loop {
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(NodeKind::Array(items));
            }
            if self.peek().is_none() {
                return Err(self.error_at(start, "this array is never closed with `]`"));
            }
            items.push(self.value(depth + 1)?);
            self.separator(b']', "]", start)?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<NodeKind, JsoncError> {
        let start = self.at;
        self.at += 1;
        let mut members: Vec<Member> = Vec::new();
        self.skip_blank()?;
        if self.lone_comma(b'}')? {
            return Ok(NodeKind::Object(members));
        }
        loop {
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(NodeKind::Object(members));
                }
                Some(b'"') => {}
                None => return Err(self.error_at(start, "this object is never closed with `}`")),
                Some(_) => {
                    return Err(self.error(&format!(
                        "unexpected {}, a key in double quotes was expected",
                        self.found()
                    )));
                }
            }
            let member = self.member(depth)?;
            if let Some(index) = members.iter().position(|known| known.key == member.key) {
                let message = format!("the key \"{}\" appears twice; the last one counts", member.key);
                self.warn(member.key_offset, &message);
                members.remove(index);
            }
            members.push(member);
            self.separator(b'}', "}", start)?;
        }
    }

    fn member(&mut self, depth: usize) -> Result<Member, JsoncError> {
        let key_offset = self.at;
        let key = self.string()?;
        self.skip_blank()?;
        if self.peek() != Some(b':') {
            return Err(self.error(&format!("unexpected {}, `:` was expected after the key", self.found())));
        }
        self.at += 1;
        self.skip_blank()?;
        Ok(Member { key, key_offset, value: self.value(depth + 1)? })
    }

    /// After an element: a comma (a trailing one is fine) or the closing bracket, which stays unread.
    fn separator(&mut self, close: u8, close_text: &str, start: usize) -> Result<(), JsoncError> {
        self.skip_blank()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.skip_blank()
            }
            Some(byte) if byte == close => Ok(()),
            None => Err(self.error_at(start, &format!("this is never closed with `{close_text}`"))),
            Some(_) => {
                Err(self.error(&format!("unexpected {}, `,` or `{close_text}` was expected", self.found())))
            }
        }
    }

    /// `[,]` and `{,}`: read as empty, because the format's first reader did so.
    fn lone_comma(&mut self, close: u8) -> Result<bool, JsoncError> {
        if self.peek() != Some(b',') {
            return Ok(false);
        }
        let comma = self.at;
        self.at += 1;
        self.skip_blank()?;
        if self.peek() != Some(close) {
            return Err(self.error_at(comma, "unexpected `,`, a value was expected before it"));
        }
        self.at += 1;
        self.warn(comma, "a comma without a value before it; it is ignored");
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        Document::parse(text.as_bytes()).unwrap().to_json()
    }

    fn failure(text: &str) -> JsoncError {
        Document::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn comments_and_trailing_commas_are_read_silently() {
        let text = "// a\n{ /* b\n */ \"a\": [1, 2, ], // c\r\n \"b\": \"// no /* comment */ ,]\", }\n";
        let document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(document.to_json(), r#"{"a":[1,2],"b":"// no /* comment */ ,]"}"#);
        assert_eq!(document.warnings(), []);
    }

    #[test]
    fn lone_commas_are_empty_containers_with_a_warning() {
        for (text, expected) in [("[,]", "[]"), ("{ , }", "{}"), (r#"{"a":[/*x*/,]}"#, r#"{"a":[]}"#)] {
            let document = Document::parse(text.as_bytes()).unwrap();
            assert_eq!(document.to_json(), expected);
            assert_eq!(document.warnings().len(), 1, "{text}");
        }
        for text in ["[1,,]", "[,,]", r#"{"a":1,,}"#, "[,1]"] {
            assert!(failure(text).message.contains("`,`"), "{text}: {:?}", failure(text));
        }
    }

    #[test]
    fn a_byte_order_mark_is_ignored_with_a_warning() {
        let document = Document::parse(b"\xEF\xBB\xBF{}").unwrap();
        assert_eq!(document.to_json(), "{}");
        assert!(document.warnings()[0].message.contains("byte-order mark"));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts_with_a_warning_at_the_second() {
        let document = Document::parse(b"{\n \"a\": 1,\n \"b\": 2,\n \"a\": 3 }").unwrap();
        assert_eq!(document.to_json(), r#"{"b":2,"a":3}"#);
        assert_eq!(document.warnings()[0].position, Some(Position { line: 4, column: 2 }));
    }

    #[test]
    fn what_is_not_jsonc_is_refused_with_line_and_column() {
        for (text, line, column, part) in [
            ("", 1, 1, "empty"),
            ("  // only a comment", 1, 20, "empty"),
            ("# note\n{}", 1, 1, "comments start with `//`"),
            ("{\n  'a': 1 }", 2, 3, "double quotes"),
            ("{ a: 1 }", 1, 3, "key in double quotes"),
            ("[NaN]", 1, 2, "`NaN`"),
            ("[0x10]", 1, 2, "JSON number"),
            ("[01]", 1, 2, "JSON number"),
            ("[1.]", 1, 2, "JSON number"),
            ("[.5]", 1, 2, "`.`"),
            ("{} {}", 1, 4, "after the end"),
            ("{\n/* never", 2, 1, "never closed"),
            ("{\"a\": \"x\n\"}", 1, 9, "control character"),
            ("{\"a\": \"x", 1, 7, "never closed"),
            ("[1", 1, 1, "never closed"),
            ("{\"a\" 1}", 1, 6, "`:` was expected"),
            ("[\"\\x\"]", 1, 2, "escape"),
            ("é /", 1, 1, "`é`"),
        ] {
            let error = failure(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn columns_count_characters_and_all_line_ends() {
        assert_eq!(failure("{\r\n\"é😀\": !}").column, 7);
        assert_eq!(failure("{\r\"a\": !}").line, 2);
        // A line separator inside a comment does not end the comment.
        assert_eq!(json("[ // a\u{2028} b\n1]"), "[1]");
    }

    #[test]
    fn text_that_is_not_utf8_is_refused_where_it_stops() {
        let error = Document::parse(b"{\n\"\xFF\"}").unwrap_err();
        assert_eq!((error.line, error.column), (2, 2));
    }

    #[test]
    fn numbers_keep_their_text() {
        assert_eq!(json("[9007199254740993, 1.50, -0, 1e400]"), "[9007199254740993,1.50,-0,1e400]");
    }

    #[test]
    fn deep_nesting_is_refused_not_a_crash() {
        let text = "[".repeat(100_000);
        assert!(failure(&text).message.contains("nested deeper"));
    }

    #[test]
    fn values_are_found_by_path() {
        let document = Document::parse(b"{\n \"a\": [\n  {\"b\": 1}]}").unwrap();
        assert_eq!(document.locate("a.0.b"), Some(Position { line: 3, column: 9 }));
        assert_eq!(document.locate("a.1"), None);
        assert_eq!(document.locate("(root)"), Some(Position { line: 1, column: 1 }));
    }
}
