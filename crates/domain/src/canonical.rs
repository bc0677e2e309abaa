use serde_json::Value;
use thiserror::Error;

use crate::js_number::js_number_text;
use crate::json_text::{Token, decode_units, encode_units, tokens};

const MAX_DEPTH: usize = 512;

/// Why a text has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CanonicalError {
    /// The text is not JSON.
    #[error("the text is not JSON")]
    NotJson,
    /// It nests deeper than 512 levels.
    #[error("the JSON nests deeper than 512 levels")]
    TooDeep,
}

/// The canonical form of a JSON text, by which two inputs are the same or not: no blanks,
/// object keys sorted by UTF-16 code unit with the last duplicate kept, numbers as JavaScript
/// writes the double they denote, strings as `JSON.stringify` escapes them.
/// See `docs/protocol/host.md §5.2`.
///
/// ```
/// use trestle_domain::canonical_json;
/// assert_eq!(canonical_json(r#"{ "b": 1.0, "a": "\u0041" }"#)?, r#"{"a":"A","b":1}"#);
/// # Ok::<(), trestle_domain::CanonicalError>(())
/// ```
pub fn canonical_json(text: &str) -> Result<String, CanonicalError> {
    let mut reader = Reader { text, tokens: tokens(text).peekable(), read_to: 0 };
    let node = reader.value(0)?;
    if reader.tokens.next().is_some()
        || !text[reader.read_to..].bytes().all(|byte| byte.is_ascii_whitespace())
    {
        return Err(CanonicalError::NotJson);
    }
    let mut out = String::with_capacity(text.len());
    node.write(&mut out);
    Ok(out)
}

/// The canonical form of a value that is in memory already. Large integers were rounded or
/// not by whoever parsed it; prefer [`canonical_json`] for what came as text.
pub fn canonical_value(value: &Value) -> Result<String, CanonicalError> {
    canonical_json(&value.to_string())
}

enum Node {
    Word(&'static str),
    Number(f64),
    Text(Vec<u16>),
    Array(Vec<Node>),
    Object(std::collections::BTreeMap<Vec<u16>, Node>),
}

impl Node {
    fn write(&self, out: &mut String) {
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Number(number) => out.push_str(&js_number_text(*number)),
            Self::Text(units) => encode_units(units, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    encode_units(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

struct Reader<'a, I: Iterator<Item = Token>> {
    text: &'a str,
    tokens: std::iter::Peekable<I>,
    read_to: usize,
}

impl<I: Iterator<Item = Token>> Reader<'_, I> {
    fn token(&mut self) -> Result<Token, CanonicalError> {
        let token = self.tokens.next().ok_or(CanonicalError::NotJson)?;
        self.read_to = match &token {
            Token::Mark(_, at) => at + 1,
            Token::Text(range) | Token::Word(range) => range.end,
        };
        Ok(token)
    }

    fn value(&mut self, depth: usize) -> Result<Node, CanonicalError> {
        match self.token()? {
            Token::Text(range) => {
                decode_units(&self.text[range]).map(Node::Text).ok_or(CanonicalError::NotJson)
            }
            Token::Word(range) => word(&self.text[range]),
            Token::Mark(b'[' | b'{', _) if depth >= MAX_DEPTH => Err(CanonicalError::TooDeep),
            Token::Mark(b'[', _) => self.array(depth),
            Token::Mark(b'{', _) => self.object(depth),
            Token::Mark(..) => Err(CanonicalError::NotJson),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node, CanonicalError> {
        let mut items = Vec::new();
        if matches!(self.tokens.peek(), Some(Token::Mark(b']', _))) {
            self.token()?;
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            match self.token()? {
                Token::Mark(b',', _) => {}
                Token::Mark(b']', _) => return Ok(Node::Array(items)),
                _ => return Err(CanonicalError::NotJson),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, CanonicalError> {
        let mut members = std::collections::BTreeMap::new();
        if matches!(self.tokens.peek(), Some(Token::Mark(b'}', _))) {
            self.token()?;
            return Ok(Node::Object(members));
        }
        loop {
            let Token::Text(range) = self.token()? else { return Err(CanonicalError::NotJson) };
            let key = decode_units(&self.text[range]).ok_or(CanonicalError::NotJson)?;
            if !matches!(self.token()?, Token::Mark(b':', _)) {
                return Err(CanonicalError::NotJson);
            }
            let value = self.value(depth + 1)?;
            members.insert(key, value);
            match self.token()? {
                Token::Mark(b',', _) => {}
                Token::Mark(b'}', _) => return Ok(Node::Object(members)),
                _ => return Err(CanonicalError::NotJson),
            }
        }
    }
}

fn word(text: &str) -> Result<Node, CanonicalError> {
    match text {
        "null" => Ok(Node::Word("null")),
        "true" => Ok(Node::Word("true")),
        "false" => Ok(Node::Word("false")),
        _ if is_json_number(text) => text.parse().map(Node::Number).map_err(|_| CanonicalError::NotJson),
        _ => Err(CanonicalError::NotJson),
    }
}

fn is_json_number(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or(text);
    let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (whole, mut rest) = rest.split_at(split);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
        return false;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(after) = rest.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if end == 0 {
            return false;
        }
        rest = &after[end..];
    }
    match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_that_denote_the_same_value_are_one() {
        for (text, canonical) in [
            (" null ", "null"),
            ("[1.0, 1, 1e0, 10e-1]", "[1,1,1,1]"),
            ("9007199254740993", "9007199254740992"),
            ("-0", "0"),
            (r#"{"b":1,"a":2,"b":3}"#, r#"{"a":2,"b":3}"#),
            (r#"{"\u00e9":"\u0041\/"}"#, r#"{"é":"A/"}"#),
            (r#""\ud800""#, r#""\ud800""#),
            ("\"\\u0000\\u001f\u{7f}\"", "\"\\u0000\\u001f\u{7f}\""),
            ("1e400", "null"),
        ] {
            assert_eq!(canonical_json(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn keys_are_sorted_by_utf16_units_and_not_by_code_points() {
        // U+FF5E is above the surrogates that U+1F600 starts with, but below it as a code point.
        assert_eq!(canonical_json(r#"{"～":1,"😀":2}"#).unwrap(), r#"{"😀":2,"～":1}"#);
    }

    #[test]
    fn what_is_not_json_has_no_canonical_form() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "tru",
            "NaN",
            "[1 2]",
            "1 2",
            "\"a",
            "'a'",
            "{\"a\" 1}",
            "[}",
            "\"\\q\"",
            "null\"",
        ] {
            assert_eq!(canonical_json(text), Err(CanonicalError::NotJson), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(canonical_json(&nested(512)).is_ok());
        assert_eq!(canonical_json(&nested(513)), Err(CanonicalError::TooDeep));
        assert_eq!(canonical_json(&nested(100_000)), Err(CanonicalError::TooDeep));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e300..1e300_f64).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,4}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_a_fixed_point(value in json()) {
            let once = canonical_value(&value).unwrap();
            prop_assert_eq!(canonical_json(&once).unwrap(), once);
        }

        #[test]
        fn layout_and_key_order_do_not_matter(value in json()) {
            let Value::Object(members) = &value else { return Ok(()) };
            let reversed: Vec<String> = members.iter().rev()
                .map(|(key, value)| format!("{}\t:\n{value:#}", Value::from(key.as_str()))).collect();
            let text = format!(" {{ {} }}", reversed.join(" , "));
            prop_assert_eq!(canonical_json(&text).unwrap(), canonical_value(&value).unwrap());
        }

        #[test]
        fn exactly_what_serde_takes_for_json_has_a_form(text in r#"[\[\]{},:" 0-9eE.+\-a-z\\]{0,12}"#) {
            let expected = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            // serde_json checks escapes only when it decodes; lone surrogates are fine for both here.
            prop_assert_eq!(canonical_json(&text).is_ok(), expected, "{}", text);
        }
    }
}
