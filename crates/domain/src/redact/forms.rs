use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};

use super::encoded::Encoding;
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
    let raw = Needle::text(text);
    if raw.bytes().len() < MIN_RAW_BYTES {
        return;
    }
    needles.push(raw);
    needles.push(Needle::encoded(text, Encoding::Percent));
    needles.push(Needle::encoded(text, Encoding::Json));
    let escaped = json_escaped(text);
    if escaped != text {
        // JSON within a string of JSON.
        needles.push(Needle::encoded(&escaped, Encoding::Json));
    }
    for form in shell_forms(text) {
        if form != text && form.len() >= MIN_DERIVED_BYTES {
            needles.push(Needle::text(&form));
        }
    }
    for variant in line_variants(text) {
        for form in base64_forms(variant.as_bytes()) {
            if form.len() >= MIN_DERIVED_BYTES {
                needles.push(Needle::wrapped(form));
            }
        }
    }
}

fn has_lines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// A text with the line ends it has, with those of Unix and with those of Windows.
fn line_variants(text: &str) -> Vec<String> {
    let mut variants = vec![text.to_owned()];
    if has_lines(text) {
        let unix = text.replace("\r\n", "\n");
        variants.push(unix.replace('\n', "\r\n"));
        variants.push(unix);
    }
    variants
}

/// The inside of the JSON string literal.
fn json_escaped(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    encode_units(&text.encode_utf16().collect::<Vec<_>>(), &mut literal);
    literal[1..literal.len() - 1].to_owned()
}

/// A text within single quotes (two ways to write one inside), double quotes, and bare.
fn shell_forms(text: &str) -> [String; 4] {
    [
        text.replace('\'', r"'\''"),
        text.replace('\'', "'\"'\"'"),
        backslashed(text, |c| matches!(c, '\\' | '"' | '$' | '`')),
        backslashed(text, |c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-./:=@%+,\n\r".contains(c)),
    ]
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
