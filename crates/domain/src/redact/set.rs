use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::forms::needles_of;
use super::needle::{Found, Needle};

/// What stands for a secret when the wanted placeholder could itself show one.
const STAND_INS: [&str; 6] = ["***", "###", "___", "███", "▒▒▒", "◆◆◆"];

const FILTER_BITS: u32 = 16;

/// All needles of all secrets, ready to be searched for.
#[derive(Default)]
pub(super) struct NeedleSet {
    needles: Vec<(Needle, u32)>,
    labels: Vec<Arc<str>>,
    /// One bit for each hash of three bytes with which a needle can begin; it settles nearly
    /// every position of ordinary text.
    filter: Vec<u64>,
    heads: HashMap<[u8; 3], Vec<u32>>,
    firsts: HashMap<u8, Vec<u32>>,
    stand_ins: Mutex<HashMap<String, Arc<str>>>,
}

/// A part of a scanned text.
pub(super) enum Piece {
    /// Bytes that are no secret.
    Text(Range<usize>),
    /// A secret, by the number of its label and where it stands.
    Secret(u32, Range<usize>),
}

/// What begins at a position.
enum Here {
    Nothing,
    Undecided,
    Secret { length: usize, label: u32 },
}

impl Clone for NeedleSet {
    fn clone(&self) -> Self {
        Self {
            needles: self.needles.clone(),
            labels: self.labels.clone(),
            filter: self.filter.clone(),
            heads: self.heads.clone(),
            firsts: self.firsts.clone(),
            stand_ins: Mutex::default(),
        }
    }
}

impl NeedleSet {
    /// Adds a secret with all its forms.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        if self.filter.is_empty() {
            self.filter = vec![0; 1 << (FILTER_BITS - 6)];
        }
        let label = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        self.labels.push(Arc::from(name));
        for needle in needles_of(value) {
            self.insert(needle, label);
        }
        // What was safe to show may spell the new secret.
        self.stand_ins = Mutex::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    fn insert(&mut self, needle: Needle, label: u32) {
        let heads = needle.heads();
        let same_head = heads.iter().next().and_then(|head| self.heads.get(head));
        if same_head.is_some_and(|known| known.iter().any(|index| self.needles[*index as usize].0 == needle))
        {
            return;
        }
        let index = u32::try_from(self.needles.len()).unwrap_or(u32::MAX);
        for head in heads {
            let bit = filter_bit(head);
            self.filter[bit >> 6] |= 1 << (bit & 63);
            self.heads.entry(head).or_default().push(index);
            let first = self.firsts.entry(head[0]).or_default();
            if first.last() != Some(&index) {
                first.push(index);
            }
        }
        self.needles.push((needle, label));
    }

    pub(super) fn label(&self, label: u32) -> &str {
        self.labels.get(label as usize).map_or("secret", |name| name)
    }

    /// Cuts a text into pieces from the left and returns where it stopped: the end, or, when
    /// more text may follow, the first byte whose fate depends on that.
    pub(super) fn scan(&self, text: &[u8], complete: bool, mut emit: impl FnMut(Piece)) -> usize {
        if self.needles.is_empty() {
            emit(Piece::Text(0..text.len()));
            return text.len();
        }
        let (mut at, mut plain) = (0, 0);
        while at < text.len() {
            match self.here(text, at, complete) {
                Here::Nothing => at += 1,
                Here::Undecided => break,
                Here::Secret { length, label } => {
                    if plain < at {
                        emit(Piece::Text(plain..at));
                    }
                    emit(Piece::Secret(label, at..at + length));
                    at += length;
                    plain = at;
                }
            }
        }
        if plain < at {
            emit(Piece::Text(plain..at));
        }
        at
    }

    fn here(&self, text: &[u8], at: usize, complete: bool) -> Here {
        let candidates = match text[at..] {
            [a, b, c, ..] => {
                let bit = filter_bit([a, b, c]);
                if self.filter[bit >> 6] & (1 << (bit & 63)) == 0 {
                    return Here::Nothing;
                }
                self.heads.get(&[a, b, c])
            }
            [a, ..] if !complete => self.firsts.get(&a),
            _ => None,
        };
        let mut best = Here::Nothing;
        let mut longest = 0;
        for index in candidates.into_iter().flatten() {
            let (needle, label) = &self.needles[*index as usize];
            match needle.test(&text[at..]) {
                Found::Whole(length) if length > longest => {
                    longest = length;
                    best = Here::Secret { length, label: *label };
                }
                // A longer secret may be on its way here.
                Found::Prefix if !complete => return Here::Undecided,
                Found::Whole(_) | Found::Prefix | Found::No => {}
            }
        }
        best
    }

    /// What to write for a secret: the wanted text, or another one if with the wanted text,
    /// or with it and what stands around it, a known secret could be read.
    pub(super) fn stand_in(&self, wanted: &str) -> Arc<str> {
        let mut known = self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(wanted) {
            return Arc::clone(text);
        }
        let safe = std::iter::once(wanted).chain(STAND_INS).find(|text| !self.may_show(text));
        let text: Arc<str> = Arc::from(safe.unwrap_or(STAND_INS[0]));
        known.insert(wanted.to_owned(), Arc::clone(&text));
        text
    }

    fn may_show(&self, stand_in: &str) -> bool {
        let text = stand_in.as_bytes();
        self.needles.iter().any(|(needle, _)| {
            let needle = needle.bytes();
            contains(text, needle)
                || contains(needle, text)
                || (1..text.len().min(needle.len()))
                    .any(|n| text.ends_with(&needle[..n]) || text.starts_with(&needle[needle.len() - n..]))
        })
    }
}

fn filter_bit([a, b, c]: [u8; 3]) -> usize {
    let word = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
    (word.wrapping_mul(0x9E37_79B1) >> (32 - FILTER_BITS)) as usize
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && memchr::memmem::find(text, part).is_some()
}
