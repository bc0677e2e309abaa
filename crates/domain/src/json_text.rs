//! A reader of JSON text that keeps what `serde_json` cannot: the exact place of each token,
//! and strings with lone surrogates.

use std::ops::Range;

/// One token of a JSON text; the range covers it with its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// `{ } [ ] , :`
    Mark(u8, usize),
    /// A string literal.
    Text(Range<usize>),
    /// A number, `true`, `false` or `null`.
    Word(Range<usize>),
}

/// Splits a JSON text into tokens. The text need not be valid JSON as a whole: what is no
/// token ends the iteration, so callers that care check for validity themselves.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let start = at;
        match *bytes.get(at)? {
            mark @ (b'{' | b'}' | b'[' | b']' | b',' | b':') => {
                at += 1;
                Some(Token::Mark(mark, start))
            }
            b'"' => {
                at += 1;
                loop {
                    match *bytes.get(at)? {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
                at += 1;
                Some(Token::Text(start..at))
            }
            _ => {
                while bytes
                    .get(at)
                    .is_some_and(|byte| !b"{}[],:\"".contains(byte) && !byte.is_ascii_whitespace())
                {
                    at += 1;
                }
                Some(Token::Word(start..at))
            }
        }
    })
}

/// Decodes a string literal with its quotes into UTF-16 units; none if it is no JSON string.
pub(crate) fn decode_units(literal: &str) -> Option<Vec<u16>> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut units = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    let mut buffer = [0_u16; 2];
    while let Some(c) = chars.next() {
        match c {
            '\\' => units.push(match chars.next()? {
                '"' => 0x22,
                '\\' => 0x5c,
                '/' => 0x2f,
                'b' => 0x08,
                'f' => 0x0c,
                'n' => 0x0a,
                'r' => 0x0d,
                't' => 0x09,
                'u' => {
                    let rest = chars.as_str();
                    let digits =
                        rest.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
                    chars = rest[4..].chars();
                    u16::from_str_radix(digits, 16).ok()?
                }
                _ => return None,
            }),
            '"' => return None,
            c if c < ' ' => return None,
            c => units.extend_from_slice(c.encode_utf16(&mut buffer)),
        }
    }
    Some(units)
}

/// Writes UTF-16 units as `JSON.stringify` does: short escapes, `\u00xx` for other control
/// characters, `\udxxx` for lone surrogates, all else as it is.
pub(crate) fn encode_units(units: &[u16], out: &mut String) {
    out.push('"');
    for item in char::decode_utf16(units.iter().copied()) {
        match item {
            Ok('"') => out.push_str("\\\""),
            Ok('\\') => out.push_str("\\\\"),
            Ok('\u{8}') => out.push_str("\\b"),
            Ok('\u{c}') => out.push_str("\\f"),
            Ok('\n') => out.push_str("\\n"),
            Ok('\r') => out.push_str("\\r"),
            Ok('\t') => out.push_str("\\t"),
            Ok(c) if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            Ok(c) => out.push(c),
            Err(lone) => out.push_str(&format!("\\u{:04x}", lone.unpaired_surrogate())),
        }
    }
    out.push('"');
}

/// The text without the blanks between its tokens.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for token in tokens(text) {
        match token {
            Token::Mark(mark, _) => out.push(char::from(mark)),
            Token::Text(range) | Token::Word(range) => out.push_str(&text[range]),
        }
    }
    out
}

/// The text with one line per member, indented by two blanks a level.
pub(crate) fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let mut empty = false;
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for token in tokens(text) {
        let closes = matches!(token, Token::Mark(b'}' | b']', _));
        if std::mem::take(&mut empty) && !closes {
            line(&mut out, depth);
        } else if closes && !out.ends_with(['{', '[']) {
            line(&mut out, depth.saturating_sub(1));
        }
        match token {
            Token::Mark(mark @ (b'{' | b'['), _) => {
                out.push(char::from(mark));
                depth += 1;
                empty = true;
            }
            Token::Mark(mark @ (b'}' | b']'), _) => {
                out.push(char::from(mark));
                depth = depth.saturating_sub(1);
            }
            Token::Mark(b':', _) => out.push_str(": "),
            Token::Mark(_, _) => {
                out.push(',');
                line(&mut out, depth);
            }
            Token::Text(range) | Token::Word(range) => out.push_str(&text[range]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_with_lone_surrogates_and_every_escape() {
        let literal = r#""a\u0041\ud83d\ude00\ud800\n\/é""#;
        let units = decode_units(literal).unwrap();
        let mut out = String::new();
        encode_units(&units, &mut out);
        assert_eq!(out, r#""aA😀\ud800\n/é""#);
        for bad in [r#""\x""#, r#""\u12""#, r#""\u+123""#, r#""a"#, "\"\n\"", r#""a"b""#] {
            assert_eq!(decode_units(bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_are_laid_out_again_without_touching_tokens() {
        let text = r#" { "a" : [ 1.50 , {} , "x , y" , [ ] ] , "b" : null } "#;
        assert_eq!(compact(text), r#"{"a":[1.50,{},"x , y",[]],"b":null}"#);
        assert_eq!(
            pretty(text),
            "{\n  \"a\": [\n    1.50,\n    {},\n    \"x , y\",\n    []\n  ],\n  \"b\": null\n}"
        );
    }
}
