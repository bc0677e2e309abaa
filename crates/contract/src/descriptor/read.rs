//! The reader that every field of the descriptor goes through: it collects problems instead of stopping at the first.

use std::sync::Arc;

use super::jsonc::{Document, Member, Node, NodeKind, position_in};
use super::problem::{DescriptorError, Warning};
use super::template::KeyTemplate;
use crate::bounds::{MAX_SAFE_INTEGER, utf16_len};

pub(super) const ROOT: &str = "(root)";

/// Joins a path and a segment.
pub(super) fn join(path: &str, segment: impl std::fmt::Display) -> String {
    if path == ROOT { segment.to_string() } else { format!("{path}.{segment}") }
}

pub(super) struct Reader {
    text: Arc<str>,
    pub(super) problems: Vec<DescriptorError>,
    pub(super) warnings: Vec<Warning>,
}

/// The length of a text in UTF-16 units.
#[derive(Clone, Copy)]
pub(super) struct Length {
    pub(super) low: usize,
    pub(super) high: usize,
}

pub(super) const fn length(low: usize, high: usize) -> Length {
    Length { low, high }
}

impl Reader {
    pub(super) fn new(document: &Document) -> Self {
        Self { text: document.text(), problems: Vec::new(), warnings: document.warnings().to_vec() }
    }

    pub(super) fn problem(
        &mut self,
        path: &str,
        offset: usize,
        message: impl Into<String>,
        hint: Option<&str>,
    ) {
        self.problems.push(DescriptorError {
            path: path.to_owned(),
            position: Some(position_in(&self.text, offset)),
            message: message.into(),
            hint: hint.map(str::to_owned),
        });
    }

    pub(super) fn warn(&mut self, path: &str, offset: usize, message: impl Into<String>) {
        let position = Some(position_in(&self.text, offset));
        self.warnings.push(Warning { path: path.to_owned(), position, message: message.into() });
    }

    /// The value is of another type than the field needs.
    pub(super) fn mismatch(&mut self, path: &str, node: &Node, expected: &str) {
        let hint = match node.kind {
            NodeKind::Null => Some("null is not the same as absent: leave the key out"),
            _ => None,
        };
        self.problem(path, node.offset, format!("expected {expected}, found {}", node.describe()), hint);
    }

    pub(super) fn text<'n>(&mut self, path: &str, node: &'n Node, bounds: Length) -> Option<&'n str> {
        let NodeKind::String(text) = &node.kind else {
            self.mismatch(path, node, "a string");
            return None;
        };
        let units = utf16_len(text);
        if units < bounds.low {
            let message = match units {
                0 => "must not be empty".to_owned(),
                _ => format!("must have at least {} characters", bounds.low),
            };
            self.problem(path, node.offset, message, None);
            return None;
        }
        if units > bounds.high {
            let message = format!("must have at most {} characters (UTF-16 units), has {units}", bounds.high);
            self.problem(path, node.offset, message, None);
            return None;
        }
        Some(text)
    }

    /// Letters, digits and hyphens, 1 to 100: slugs and webhook names.
    pub(super) fn slug(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node, length(1, 100))?;
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Some(text.to_owned());
        }
        let suggestion: String = text
            .chars()
            .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
            .collect();
        let hint = format!("for example \"{}\"", suggestion.trim_matches('-'));
        self.problem(path, node.offset, "may hold only letters, digits and hyphens", Some(&hint));
        None
    }

    /// A path inside the package or workspace (`docs/protocol/descriptor.md` §4.1).
    pub(super) fn relative_path(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node, length(1, 512))?;
        let before = self.problems.len();
        if text.starts_with('/') {
            self.problem(
                path,
                node.offset,
                "must be relative, found a leading `/`",
                Some("write it without the `/`"),
            );
        }
        if text.contains('\\') {
            self.problem(path, node.offset, "must not contain `\\`", Some("separate folders with `/`"));
        }
        let segments: Vec<&str> = text.split('/').collect();
        if segments.contains(&"") {
            let hint = "write `dir/**` for everything in a folder, or `dir` for the folder itself";
            self.problem(path, node.offset, "must not contain an empty segment", Some(hint));
        }
        if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
            let hint = match text.strip_prefix("./") {
                Some(rest) => format!("write `{rest}`"),
                None => "paths stay inside their root and are written from it".to_owned(),
            };
            self.problem(path, node.offset, "must not contain a `.` or `..` segment", Some(&hint));
        }
        (self.problems.len() == before).then(|| text.to_owned())
    }

    pub(super) fn boolean(&mut self, path: &str, node: &Node) -> Option<bool> {
        if let NodeKind::Bool(value) = node.kind {
            return Some(value);
        }
        self.mismatch(path, node, "a boolean");
        None
    }

    /// A finite number above 0.
    pub(super) fn positive(&mut self, path: &str, node: &Node) -> Option<f64> {
        let NodeKind::Number(text) = &node.kind else {
            self.mismatch(path, node, "a number");
            return None;
        };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Some(number),
            Ok(number) if number.is_finite() => {
                self.problem(
                    path,
                    node.offset,
                    "must be greater than 0",
                    Some("leave the key out for no limit"),
                );
                None
            }
            _ => {
                self.problem(path, node.offset, "is too large for a number", None);
                None
            }
        }
    }

    /// A whole number from 1 to 2^53 − 1; `1.0` is one.
    pub(super) fn positive_whole(&mut self, path: &str, node: &Node) -> Option<u64> {
        let number = self.positive(path, node)?;
        if number.fract() != 0.0 {
            self.problem(path, node.offset, "must be a whole number", None);
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exact")]
        if number > MAX_SAFE_INTEGER as f64 {
            self.problem(path, node.offset, format!("must be at most {MAX_SAFE_INTEGER}"), None);
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        Some(number as u64)
    }

    /// One word of a closed list.
    pub(super) fn word<T: Copy>(&mut self, path: &str, node: &Node, words: &[(&str, T)]) -> Option<T> {
        let NodeKind::String(text) = &node.kind else {
            self.mismatch(path, node, &format!("one of {}", listed(words.iter().map(|(word, _)| *word))));
            return None;
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| word == text) {
            return Some(*value);
        }
        let names = || words.iter().map(|(word, _)| *word);
        let hint = closest(text, names()).map(|word| format!("did you mean \"{word}\"?"));
        let message = format!("\"{text}\" is not one of {}", listed(names()));
        self.problem(path, node.offset, message, hint.as_deref());
        None
    }

    /// The items of an array with a bounded count, each read by `read`; all problems are collected.
    pub(super) fn list<T>(
        &mut self,
        path: &str,
        node: &Node,
        count: Length,
        mut read: impl FnMut(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let NodeKind::Array(items) = &node.kind else {
            self.mismatch(path, node, "an array");
            return None;
        };
        if items.len() < count.low {
            self.problem(path, node.offset, format!("must have at least {} item", count.low), None);
        }
        if items.len() > count.high {
            let message = format!("must have at most {} items, has {}", count.high, items.len());
            self.problem(path, node.offset, message, None);
        }
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            values.extend(read(self, &join(path, index), item));
        }
        (values.len() == items.len()).then_some(values)
    }

    pub(super) fn fields<'n>(&mut self, path: &str, node: &'n Node) -> Option<Fields<'n>> {
        let NodeKind::Object(members) = &node.kind else {
            self.mismatch(path, node, "an object");
            return None;
        };
        Some(Fields { path: path.to_owned(), offset: node.offset, members, known: Vec::new() })
    }

    /// A key template of 1 to 200 units.
    pub(super) fn template(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node, length(1, 200))?;
        let Err(problems) = KeyTemplate::parse(text) else {
            return Some(text.to_owned());
        };
        for problem in problems {
            let hint = "for example `${input.tenant ?? 'none'}`";
            self.problem(path, node.offset, format!("the template is invalid {problem}"), Some(hint));
        }
        None
    }
}

/// The members of an object while they are read; what was never asked for is unknown.
pub(super) struct Fields<'n> {
    pub(super) path: String,
    pub(super) offset: usize,
    members: &'n [Member],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// A member, if it is there.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'n Node> {
        self.known.push(key);
        self.members.iter().find(|member| member.key == key).map(|member| &member.value)
    }

    pub(super) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// A member that must be there, read by `read`.
    pub(super) fn required<T>(
        &mut self,
        reader: &mut Reader,
        key: &'static str,
        read: impl FnOnce(&mut Reader, &str, &'n Node) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(key);
        match self.get(key) {
            Some(node) => read(reader, &path, node),
            None => {
                reader.problem(&path, self.offset, "is required", None);
                None
            }
        }
    }

    /// A member that may be missing, read by `read`. A problem leaves `None` behind, and is remembered by the reader.
    pub(super) fn optional<T>(
        &mut self,
        reader: &mut Reader,
        key: &'static str,
        read: impl FnOnce(&mut Reader, &str, &'n Node) -> Option<T>,
    ) -> Option<T> {
        let path = self.path(key);
        self.get(key).and_then(|node| read(reader, &path, node))
    }

    /// Reports all unknown keys as one problem of this object.
    pub(super) fn finish(self, reader: &mut Reader) {
        let unknown: Vec<&Member> =
            self.members.iter().filter(|member| !self.known.contains(&member.key.as_str())).collect();
        let Some(first) = unknown.first() else { return };
        let names: Vec<String> = unknown.iter().map(|member| format!("\"{}\"", member.key)).collect();
        let message = match names.len() {
            1 => format!("Unrecognized key: {}", names[0]),
            _ => format!("Unrecognized keys: {}", names.join(", ")),
        };
        let hint = self.hint_for(&first.key);
        reader.problem(&self.path, first.key_offset, message, hint.as_deref());
    }

    fn hint_for(&self, key: &str) -> Option<String> {
        if self.path == ROOT
            && let Some(hint) = retired_root_key(key)
        {
            return Some(hint.to_owned());
        }
        let known = self.known.iter().copied();
        if let Some(word) = closest(key, known.clone()) {
            return Some(format!("did you mean \"{word}\"?"));
        }
        match self.known.len() {
            0 => None,
            1 if self.known[0] == "kind" => Some("this trigger takes no further keys".into()),
            _ => Some(format!("known keys are {}", listed(known))),
        }
    }
}

/// Advice for keys that other formats have at the root.
fn retired_root_key(key: &str) -> Option<&'static str> {
    match key {
        "name" | "id" => Some("the workflow's identity is \"slug\", its label is \"title\""),
        "version" => Some("versions are numbered at deploy"),
        "secrets" => Some("list readable secrets under \"permissions\": { \"secrets\": [{ \"name\": … }] }"),
        "timeout" => Some("bound a run with \"budget\": { \"max_compute_seconds\": … }"),
        "tools" | "mcp" | "memory" | "instructions" | "skills" => {
            Some("options of agents are passed to agent() in the program")
        }
        "input" => Some("the input's shape is the type of run's first parameter"),
        _ => None,
    }
}

/// Words as a sentence lists them.
pub(super) fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// The word that was probably meant: at most two typing errors away, and closer than half of its length.
pub(super) fn closest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let lower = text.to_ascii_lowercase();
    words
        .map(|word| (distance(&lower, word), word))
        .filter(|(distance, word)| *distance <= 2 && distance * 2 < word.len())
        .min()
        .map(|(_, word)| word)
}

/// Edits (insert, delete, replace) between two texts.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
