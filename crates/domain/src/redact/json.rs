use std::ops::Range;

use super::Redactor;
use super::set::{NeedleSet, Piece};
use crate::json_text::{Token, decode_units, encode_units, tokens};

/// Replaces secrets in a JSON text and keeps it JSON.
pub(super) fn redact_json_text(redactor: &Redactor, text: &str) -> String {
    let set = redactor.snapshot();
    if set.is_empty() {
        return text.to_owned();
    }
    let mut out = redact_tokens(redactor, &set, text);
    // Each round replaces one container by a string, so there are at most as many rounds as
    // containers.
    while let Some((range, label)) = spanning_secret(&set, &out) {
        let stand_in = literal_of(&redactor.stand_in(&set, label));
        out.replace_range(range, &stand_in);
    }
    out
}

fn redact_tokens(redactor: &Redactor, set: &NeedleSet, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for token in tokens(text) {
        let (range, replaced) = match token {
            Token::Mark(..) => continue,
            Token::Text(range) => {
                let replaced = redact_literal(redactor, set, &text[range.clone()]);
                (range, replaced)
            }
            Token::Word(range) if is_number(&text[range.clone()]) => {
                let label = first_secret(set, &text.as_bytes()[range.clone()]);
                (range, label.map(|label| literal_of(&redactor.stand_in(set, label))))
            }
            Token::Word(_) => continue,
        };
        if let Some(replaced) = replaced {
            out.push_str(&text[copied..range.start]);
            out.push_str(&replaced);
            copied = range.end;
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// The literal with its secrets replaced, or none when it holds none.
fn redact_literal(redactor: &Redactor, set: &NeedleSet, literal: &str) -> Option<String> {
    let units = decode_units(literal)?;
    let bytes = wtf8(&units);
    let mut out = Vec::with_capacity(bytes.len());
    let mut found = None;
    set.scan(&bytes, true, |piece| {
        if let Piece::Secret(label, _) = piece {
            found = Some(label);
        }
        redactor.write(set, &bytes, piece, &mut out);
    });
    let replaced = found.map(|_| {
        let mut text = String::new();
        encode_units(&from_wtf8(&out), &mut text);
        text
    });
    // A secret can also be read in the escapes of a literal that does not denote it.
    let written = replaced.as_deref().unwrap_or(literal);
    match first_secret(set, written.as_bytes()) {
        Some(label) => Some(literal_of(&redactor.stand_in(set, label))),
        None => replaced,
    }
}

fn literal_of(text: &str) -> String {
    let mut out = String::new();
    encode_units(&text.encode_utf16().collect::<Vec<_>>(), &mut out);
    out
}

fn is_number(word: &str) -> bool {
    !matches!(word, "true" | "false" | "null")
}

fn first_secret(set: &NeedleSet, bytes: &[u8]) -> Option<u32> {
    let mut found = None;
    set.scan(bytes, true, |piece| {
        if let Piece::Secret(label, _) = piece {
            found.get_or_insert(label);
        }
    });
    found
}

/// The innermost container around a secret that spans several tokens of the text.
fn spanning_secret(set: &NeedleSet, text: &str) -> Option<(Range<usize>, u32)> {
    let mut secrets = Vec::new();
    set.scan(text.as_bytes(), true, |piece| {
        if let Piece::Secret(label, range) = piece {
            secrets.push((range, label));
        }
    });
    secrets.into_iter().find_map(|(secret, label)| enclosing(text, &secret).map(|range| (range, label)))
}

/// The innermost array or object that holds the range; none when the range lies within one
/// of the words `true`, `false` and `null`, which tell nothing.
fn enclosing(text: &str, inner: &Range<usize>) -> Option<Range<usize>> {
    let mut open = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Mark(b'{' | b'[', at) => open.push(at),
            Token::Mark(b'}' | b']', at) => {
                let start = open.pop()?;
                if start <= inner.start && inner.end <= at + 1 {
                    return Some(start..at + 1);
                }
            }
            Token::Word(word) if word.start <= inner.start && inner.end <= word.end => return None,
            Token::Mark(..) | Token::Word(_) | Token::Text(_) => {}
        }
    }
    None
}

/// UTF-16 units as bytes: UTF-8, with lone surrogates encoded as if they were characters.
fn wtf8(units: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(units.len());
    let mut buffer = [0; 4];
    for item in char::decode_utf16(units.iter().copied()) {
        match item {
            Ok(c) => out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            Err(lone) => {
                let [high, low] = lone.unpaired_surrogate().to_be_bytes();
                out.extend([0xE0 | high >> 4, 0x80 | (high & 0x0F) << 2 | low >> 6, 0x80 | low & 0x3F]);
            }
        }
    }
    out
}

fn from_wtf8(bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    // No UTF-8 holds 0xED before a byte of 0xA0 and above, so a lone surrogate is unmistakable.
    while let Some(at) = rest.windows(3).position(|w| w[0] == 0xED && w[1] >= 0xA0) {
        units.extend(super::into_text(rest[..at].to_vec()).encode_utf16());
        units.push(0xD000 | u16::from(rest[at + 1] & 0x3F) << 6 | u16::from(rest[at + 2] & 0x3F));
        rest = &rest[at + 3..];
    }
    units.extend(super::into_text(rest.to_vec()).encode_utf16());
    units
}
