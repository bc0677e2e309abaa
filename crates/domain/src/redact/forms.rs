use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};

use super::needle::Needle;
use crate::json_text::{Token, compact, decode_units, encode_units, pretty, tokens};

/// Values below this many bytes are not replaced.
pub const MIN_RAW_BYTES: usize = 4;
/// Encoded forms below this many bytes are not replaced.
pub const MIN_DERIVED_BYTES: usize = 8;

/// How deep JSON documents within the strings of JSON documents are followed.
const MAX_NESTED_DOCUMENTS: usize = 3;

/// Everything to look for on behalf of one secret value.
pub(super) fn needles_of(value: &str) -> Vec<Needle> {
    let mut needles = Vec::new();
    collect(value, MAX_NESTED_DOCUMENTS, &mut needles);
    needles
}

fn collect(value: &str, nested: usize, needles: &mut Vec<Needle>) {
    let trimmed = value.trim();
    if !has_lines(value) {
        text_needles(value, needles);
    }
    if trimmed != value || has_lines(value) {
        text_needles(trimmed, needles);
    }
    if nested > 0 && trimmed.starts_with(['{', '[', '"']) && is_json(trimmed) {
        for layout in [compact(trimmed), pretty(trimmed), spaced(trimmed)] {
            text_needles(&layout, needles);
        }
        for leaf in string_leaves(trimmed) {
            collect(&leaf, nested - 1, needles);
        }
    }
}

/// The needles of a text itself: as it is and in every encoding.
fn text_needles(text: &str, needles: &mut Vec<Needle>) {
    if text.trim().is_empty() {
        return;
    }
    let raw = if has_lines(text) { Needle::lines(text) } else { Needle::plain(text.as_bytes().to_vec()) };
    if raw.bytes().len() < MIN_RAW_BYTES {
        return;
    }
    needles.push(raw);
    let unix = text.replace("\r\n", "\n");
    let mut variants = vec![text.to_owned()];
    if has_lines(text) {
        variants.extend([unix.clone(), unix.replace('\n', "\r\n")]);
        variants.dedup();
    }
    for variant in &variants {
        for form in quoted_forms(variant) {
            if form.len() >= MIN_DERIVED_BYTES && form != *variant {
                // Quoting for a shell keeps line breaks, so the quoted form has them too.
                let needle = if has_lines(&form) { Needle::lines(&form) } else { Needle::plain(form.into_bytes()) };
                needles.push(needle);
            }
        }
        for form in base64_forms(variant.as_bytes()) {
            if form.len() >= MIN_DERIVED_BYTES {
                needles.push(Needle::wrapped(form.into_bytes()));
            }
        }
    }
}

fn has_lines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn quoted_forms(text: &str) -> Vec<String> {
    let json = json_escape(text, |_| false);
    let mut forms = vec![
        json_escape(&json, |_| false),
        json.replace('/', "\\/"),
        json_escape(text, |c| !c.is_ascii()),
        json_escape(text, |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')),
        json,
        // 'it'\''s' and 'it'"'"'s'
        text.replace('\'', r"'\''"),
        text.replace('\'', "'\"'\"'"),
        backslashed(text, |c| matches!(c, '\\' | '"' | '$' | '`')),
        backslashed(text, |c| !c.is_alphanumeric() && c.is_ascii() && !"_-./:=@%+,\n".contains(c)),
    ];
    for safe in ["-_.!~*'()", "-_.~", "-_.~/"] {
        for upper in [true, false] {
            let encoded = percent_encode(text, safe, upper);
            forms.push(encoded.replace("%20", "+"));
            forms.push(encoded);
        }
    }
    forms
}

/// The inside of a JSON string literal; `also` tells which further characters become `\uxxxx`.
fn json_escape(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0_u16; 2];
    let mut literal = String::new();
    for c in text.chars() {
        if also(c) {
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            literal.clear();
            encode_units(c.encode_utf16(&mut units), &mut literal);
            out.push_str(&literal[1..literal.len() - 1]);
        }
    }
    out
}

fn backslashed(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if special(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn percent_encode(text: &str, safe: &str, upper: bool) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || safe.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else if upper {
            out.push_str(&format!("%{byte:02X}"));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

/// The characters of base64 that bytes produce whatever stands before and after them, for
/// each of the three places in a group of three where they can begin.
fn base64_forms(bytes: &[u8]) -> Vec<String> {
    let mut forms = Vec::with_capacity(6);
    for (offset, mixed) in [(0, 0), (1, 2), (2, 3)] {
        let mut padded = vec![0; offset];
        padded.extend_from_slice(bytes);
        let whole = padded.len() * 8 / 6;
        for encoded in [BASE64_STANDARD_NO_PAD.encode(&padded), BASE64_URL_SAFE_NO_PAD.encode(&padded)] {
            forms.push(encoded.get(mixed..whole).unwrap_or_default().to_owned());
        }
    }
    forms
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A document as Python's `json.dumps` lays it out: one line, a blank after `,` and `:`.
fn spaced(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    for token in tokens(text) {
        match token {
            Token::Mark(mark @ (b',' | b':'), _) => {
                out.push(char::from(mark));
                out.push(' ');
            }
            Token::Mark(mark, _) => out.push(char::from(mark)),
            Token::Text(range) | Token::Word(range) => out.push_str(&text[range]),
        }
    }
    out
}

/// The string values of a document; its keys are names, not secrets.
fn string_leaves(text: &str) -> Vec<String> {
    let mut leaves = Vec::new();
    let mut last: Option<String> = None;
    for token in tokens(text) {
        match token {
            Token::Text(range) => {
                leaves.extend(last.take());
                last = decode_units(&text[range]).and_then(|units| String::from_utf16(&units).ok());
            }
            Token::Mark(b':', _) => last = None,
            _ => leaves.extend(last.take()),
        }
    }
    leaves.extend(last);
    leaves
}
