use std::collections::HashSet;

use super::encoded::{Element, Encoding, elements_of, starts_of, test_encoded};

/// The longest run of blanks that may stand for a line break of a secret. It bounds what a
/// stream holds back.
pub(super) const MAX_GAP_BYTES: usize = 4_096;

/// One text to look for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Needle {
    bytes: Box<[u8]>,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shape {
    /// Exactly these bytes.
    Plain,
    /// Between the segments, which end here, stands any run of blanks.
    Gapped(Box<[usize]>),
    /// Line breaks may stand between any two bytes, as tools wrap base64.
    Wrapped,
    /// Each character may be written in several ways.
    Encoded(Encoding, Box<[Element]>),
}

/// How a text begins, compared to a needle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// With the needle; this many bytes of it.
    Whole(usize),
    /// It ends while it is still equal: with more text it may become the needle.
    Prefix,
    /// With something else.
    No,
}

impl Needle {
    /// A needle of exactly this text, but that every run of blanks that holds a line break
    /// matches any run of blanks. A text with line breaks must not begin or end with a blank.
    pub(super) fn text(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(text.len());
        let mut ends = Vec::new();
        for element in elements_of(text) {
            match element {
                Element::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                Element::Gap => ends.push(bytes.len()),
            }
        }
        let shape = if ends.is_empty() {
            Shape::Plain
        } else {
            ends.push(bytes.len());
            Shape::Gapped(ends.into())
        };
        Self { bytes: bytes.into(), shape }
    }

    /// A needle whose characters may each be written as they are or encoded.
    pub(super) fn encoded(text: &str, encoding: Encoding) -> Self {
        let Self { bytes, .. } = Self::text(text);
        Self { bytes, shape: Shape::Encoded(encoding, elements_of(text).into()) }
    }

    /// A needle that tools may have broken into lines.
    pub(super) fn wrapped(text: String) -> Self {
        Self { bytes: text.into_bytes().into(), shape: Shape::Wrapped }
    }

    /// The bytes that must occur as they are or encoded, without blanks of gaps.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Compares the beginning of a text.
    pub(super) fn test(&self, text: &[u8]) -> Found {
        match &self.shape {
            Shape::Plain => segment(&self.bytes, text),
            Shape::Gapped(ends) => self.test_gapped(ends, text),
            Shape::Wrapped => self.test_wrapped(text),
            Shape::Encoded(encoding, elements) => test_encoded(*encoding, elements, text),
        }
    }

    fn test_gapped(&self, ends: &[usize], text: &[u8]) -> Found {
        let (mut at, mut start) = (0, 0);
        for (index, end) in ends.iter().enumerate() {
            if index > 0 {
                let gap = text[at..].iter().take_while(|byte| is_gap_byte(**byte)).count();
                if gap > MAX_GAP_BYTES {
                    return Found::No;
                }
                at += gap;
                if at == text.len() {
                    return Found::Prefix;
                }
                if gap == 0 {
                    return Found::No;
                }
            }
            match segment(&self.bytes[start..*end], &text[at..]) {
                Found::Whole(length) => at += length,
                other => return other,
            }
            start = *end;
        }
        Found::Whole(at)
    }

    fn test_wrapped(&self, text: &[u8]) -> Found {
        let (mut matched, mut breaks) = (0, 0);
        for (at, byte) in text.iter().enumerate() {
            if *byte == self.bytes[matched] {
                matched += 1;
                breaks = 0;
                if matched == self.bytes.len() {
                    return Found::Whole(at + 1);
                }
            } else if matched > 0 && breaks < 2 && matches!(byte, b'\r' | b'\n') {
                breaks += 1;
            } else {
                return Found::No;
            }
        }
        Found::Prefix
    }

    /// Every way in which the first three bytes of a match can look.
    pub(super) fn heads(&self) -> HashSet<[u8; 3]> {
        let b = &self.bytes;
        match &self.shape {
            Shape::Gapped(ends) if ends[0] == 1 => GAP_BYTES
                .iter()
                .flat_map(|first| [b[1]].into_iter().chain(GAP_BYTES).map(|second| [b[0], *first, second]))
                .collect(),
            Shape::Gapped(ends) if ends[0] == 2 => GAP_BYTES.iter().map(|gap| [b[0], b[1], *gap]).collect(),
            Shape::Plain | Shape::Gapped(_) => HashSet::from([[b[0], b[1], b[2]]]),
            Shape::Wrapped => {
                let mut heads = HashSet::from([[b[0], b[1], b[2]]]);
                for line in *b"\r\n" {
                    heads.insert([b[0], b[1], line]);
                    heads.extend([b[1], b'\r', b'\n'].map(|third| [b[0], line, third]));
                }
                heads
            }
            Shape::Encoded(encoding, elements) => starts_of(*encoding, elements),
        }
    }
}

fn segment(segment: &[u8], text: &[u8]) -> Found {
    let common = segment.len().min(text.len());
    if segment[..common] != text[..common] {
        Found::No
    } else if common == segment.len() {
        Found::Whole(common)
    } else {
        Found::Prefix
    }
}

/// The blanks that a gap is made of.
pub(super) const GAP_BYTES: [u8; 6] = *b" \t\n\r\x0b\x0c";

fn is_gap_byte(byte: u8) -> bool {
    GAP_BYTES.contains(&byte)
}
