//! Texts whose characters may each be written in several ways.

use std::collections::HashSet;

use super::forms::MIN_DERIVED_BYTES;
use super::needle::{Found, GAP_BYTES, MAX_GAP_BYTES};

/// A way to write characters that not everybody applies to the same characters, so that each
/// one may be written encoded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    /// Inside a JSON string: `\n`, `\/`, `\u00e4`.
    Json,
    /// In URLs and forms: `%2F`, `%2f`, `+` for a blank.
    Percent,
}

/// A part of a text to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// This character.
    Char(char),
    /// A run of blanks.
    Gap,
}

/// A text in elements: runs of blanks with a line break in them are gaps.
pub(super) fn elements_of(text: &str) -> Vec<Element> {
    let mut elements = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\n', '\r']) {
        let head = rest[..at].trim_end_matches(is_gap_char);
        elements.extend(head.chars().map(Element::Char));
        elements.push(Element::Gap);
        rest = rest[at..].trim_start_matches(is_gap_char);
    }
    elements.extend(rest.chars().map(Element::Char));
    elements
}

fn is_gap_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(|byte| GAP_BYTES.contains(&byte))
}

/// Compares the beginning of a text with elements. What is shorter than a derived form may
/// be is no match.
pub(super) fn test_encoded(encoding: Encoding, elements: &[Element], text: &[u8]) -> Found {
    let mut at = 0;
    for element in elements {
        let found = match element {
            Element::Char(c) => test_char(encoding, *c, &text[at..]),
            Element::Gap => test_gap(encoding, &text[at..]),
        };
        match found {
            Found::Whole(length) => at += length,
            other => return other,
        }
    }
    if at < MIN_DERIVED_BYTES { Found::No } else { Found::Whole(at) }
}

fn test_char(encoding: Encoding, c: char, text: &[u8]) -> Found {
    let marks: &[u8] = match encoding {
        Encoding::Json => b"\\",
        Encoding::Percent => b"%+",
    };
    if text.first().is_some_and(|first| !marks.contains(first)) {
        return test_raw(c.encode_utf8(&mut [0; 4]).as_bytes(), text);
    }
    let mut best = Found::No;
    for way in ways_of(encoding, c) {
        match way.test(text) {
            // More text decides between this way and a shorter one.
            Found::Prefix => return Found::Prefix,
            Found::Whole(length) => {
                if !matches!(best, Found::Whole(other) if other >= length) {
                    best = Found::Whole(length);
                }
            }
            Found::No => {}
        }
    }
    best
}

fn test_raw(raw: &[u8], text: &[u8]) -> Found {
    let common = raw.len().min(text.len());
    match (raw[..common] == text[..common], common == raw.len()) {
        (false, _) => Found::No,
        (true, true) => Found::Whole(common),
        (true, false) => Found::Prefix,
    }
}

fn test_gap(encoding: Encoding, text: &[u8]) -> Found {
    let mut at = 0;
    while at <= MAX_GAP_BYTES {
        let one = GAP_BYTES.iter().map(|blank| test_char(encoding, char::from(*blank), &text[at..]));
        match one.max_by_key(|found| match found {
            Found::No => 0,
            Found::Whole(_) => 1,
            Found::Prefix => 2,
        }) {
            Some(Found::Whole(length)) => at += length,
            Some(Found::Prefix) => return Found::Prefix,
            Some(Found::No) | None => return if at == 0 { Found::No } else { Found::Whole(at) },
        }
    }
    Found::No
}

/// One way to write a character: bytes, of which some are hex digits in either case.
struct Way {
    bytes: Vec<u8>,
    ignore_case: bool,
}

impl Way {
    fn test(&self, text: &[u8]) -> Found {
        if !self.ignore_case {
            return test_raw(&self.bytes, text);
        }
        let text = &text[..self.bytes.len().min(text.len())];
        // The mark before the digits is `u`, never `U`.
        if text.contains(&b'U') {
            return Found::No;
        }
        test_raw(&self.bytes, &text.to_ascii_lowercase())
    }

    fn first_bytes(&self) -> Vec<Vec<u8>> {
        if self.ignore_case {
            vec![self.bytes.clone(), self.bytes.iter().map(|byte| upper_digit(*byte)).collect()]
        } else {
            vec![self.bytes.clone()]
        }
    }
}

fn upper_digit(byte: u8) -> u8 {
    if byte == b'u' { byte } else { byte.to_ascii_uppercase() }
}

fn ways_of(encoding: Encoding, c: char) -> Vec<Way> {
    let mut buffer = [0; 4];
    let raw = c.encode_utf8(&mut buffer).as_bytes();
    let mut ways = vec![Way { bytes: raw.to_vec(), ignore_case: false }];
    match encoding {
        Encoding::Json => {
            if let Some(letter) = json_letter(c) {
                ways.push(Way { bytes: vec![b'\\', letter], ignore_case: false });
            }
            let units =
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            ways.push(Way { bytes: units.into_bytes(), ignore_case: true });
        }
        Encoding::Percent => {
            if c == ' ' {
                ways.push(Way { bytes: vec![b'+'], ignore_case: false });
            }
            let bytes = raw.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
            ways.push(Way { bytes: bytes.into_bytes(), ignore_case: true });
        }
    }
    ways
}

fn json_letter(c: char) -> Option<u8> {
    Some(match c {
        '"' => b'"',
        '\\' => b'\\',
        '/' => b'/',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        _ => return None,
    })
}

/// Every way in which the first three bytes of a match can look.
pub(super) fn starts_of(encoding: Encoding, elements: &[Element]) -> HashSet<[u8; 3]> {
    let mut starts = HashSet::new();
    extend(encoding, elements, false, Vec::new(), &mut starts);
    starts
}

fn extend(
    encoding: Encoding,
    elements: &[Element],
    in_gap: bool,
    start: Vec<u8>,
    starts: &mut HashSet<[u8; 3]>,
) {
    if let [a, b, c, ..] = start[..] {
        starts.insert([a, b, c]);
        return;
    }
    let Some((element, rest)) = elements.split_first() else { return };
    match element {
        Element::Char(c) => add_ways(encoding, *c, rest, false, &start, starts),
        Element::Gap => {
            for blank in GAP_BYTES {
                add_ways(encoding, char::from(blank), elements, true, &start, starts);
            }
            if in_gap {
                extend(encoding, rest, false, start, starts);
            }
        }
    }
}

fn add_ways(
    encoding: Encoding,
    c: char,
    rest: &[Element],
    in_gap: bool,
    start: &[u8],
    starts: &mut HashSet<[u8; 3]>,
) {
    for bytes in ways_of(encoding, c).iter().flat_map(Way::first_bytes) {
        extend(encoding, rest, in_gap, [start, &bytes].concat(), starts);
    }
}
