//! Replacing secret values in everything that leaves a run.

mod encoded;
mod forms;
mod json;
mod needle;
mod set;
mod stream;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;
use trestle_contract::RawJson;

use set::{NeedleSet, Piece};

pub use forms::{MIN_DERIVED_BYTES, MIN_RAW_BYTES};
pub use stream::{StreamRedactor, TextRedactor};

/// What stands for a secret in a run's own output, result and errors.
pub const PROGRAM_PLACEHOLDER: &str = "[REDACTED]";

/// What stands where a secret was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// The same text for every secret.
    Fixed(Cow<'static, str>),
    /// `[redacted:NAME]` with the name the secret was added under.
    Labelled,
}

impl Default for Placeholder {
    fn default() -> Self {
        Self::Fixed(Cow::Borrowed(PROGRAM_PLACEHOLDER))
    }
}

/// The live set of a run's secrets, and the way to replace them.
///
/// Clones share the set: a secret added through one of them is replaced by all, and by every
/// stream that is open already, from then on. Values are found as they are and as they look
/// JSON-escaped, percent-encoded, shell-quoted or within base64; a line break in a value
/// stands for any run of blanks. Where several values fit, the one that starts first wins,
/// and of those the longest.
///
/// ```
/// use trestle_domain::{Placeholder, Redactor};
/// let redactor = Redactor::new(Placeholder::Labelled);
/// redactor.add("API_KEY", "s3cr3t/value");
/// assert_eq!(redactor.redact_str("a s3cr3t/value, as s3cr3t%2Fvalue"), "a [redacted:API_KEY], as [redacted:API_KEY]");
/// ```
#[derive(Clone)]
pub struct Redactor {
    shared: Arc<Shared>,
    placeholder: Placeholder,
}

#[derive(Default)]
struct Shared {
    secrets: Mutex<Vec<(String, String)>>,
    /// Readers take the set as it is; a writer changes it in place unless one is reading.
    set: RwLock<Arc<NeedleSet>>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(Placeholder::default())
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("placeholder", &self.placeholder).finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor that knows no secret yet.
    pub fn new(placeholder: Placeholder) -> Self {
        Self { shared: Arc::default(), placeholder }
    }

    /// The same live set with another placeholder.
    pub fn with_placeholder(&self, placeholder: Placeholder) -> Self {
        Self { shared: Arc::clone(&self.shared), placeholder }
    }

    /// Adds a secret under a name. Values shorter than [`MIN_RAW_BYTES`] without their outer
    /// blanks are not replaced anywhere: they would blot out ordinary text.
    ///
    /// A value that is a JSON document is also known by each of its strings and in its
    /// compact and indented layouts.
    pub fn add(&self, name: &str, value: &str) {
        let mut secrets = self.shared.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.iter().any(|(known, text)| known == name && text == value) {
            return;
        }
        secrets.push((name.to_owned(), value.to_owned()));
        let mut set = self.shared.set.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut set).add(name, value);
    }

    /// How many secrets were added so far. It only grows; who keeps redacted text can tell by
    /// it when to redact again.
    pub fn len(&self) -> usize {
        self.shared.secrets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no secret was added yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any known secret occurs in the text.
    pub fn finds_in(&self, text: &str) -> bool {
        let mut found = false;
        self.snapshot().scan(text.as_bytes(), true, |piece| found |= matches!(piece, Piece::Secret(..)));
        found
    }

    /// The text with every secret replaced.
    pub fn redact_str(&self, text: &str) -> String {
        into_text(self.redact_bytes(text.as_bytes()))
    }

    /// The bytes with every secret replaced; they need not be UTF-8.
    pub fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let set = self.snapshot();
        let mut out = Vec::with_capacity(bytes.len());
        set.scan(bytes, true, |piece| self.write(&set, bytes, piece, &mut out));
        out
    }

    /// A JSON text with the secrets replaced in its strings, its keys included, and all else
    /// kept byte for byte. A number that holds a secret becomes the placeholder as a string;
    /// so does the innermost array or object in which a secret spans several members.
    pub fn redact_json(&self, json: &RawJson) -> RawJson {
        let text = json::redact_json_text(self, json.get());
        RawJson::parse(&text).unwrap_or_else(|_| RawJson::null())
    }

    /// As [`Redactor::redact_json`] for a value in memory: secrets in strings, keys and
    /// numbers are replaced.
    pub fn redact_value(&self, value: &Value) -> Value {
        let text = json::redact_json_text(self, &value.to_string());
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// A redactor for one stream of bytes, such as a program's stdout.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// A redactor for one stream of text, such as the deltas of a model's answer.
    pub fn text_stream(&self) -> TextRedactor {
        TextRedactor::new(self.clone())
    }

    fn snapshot(&self) -> Arc<NeedleSet> {
        Arc::clone(&self.shared.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, set: &NeedleSet, text: &[u8], piece: Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(range) => out.extend_from_slice(&text[range]),
            Piece::Secret(label, _) => out.extend_from_slice(self.stand_in(set, label).as_bytes()),
        }
    }

    fn stand_in(&self, set: &NeedleSet, label: u32) -> Arc<str> {
        match &self.placeholder {
            Placeholder::Fixed(text) => set.stand_in(text),
            Placeholder::Labelled => set.stand_in(&format!("[redacted:{}]", set.label(label))),
        }
    }
}

/// Needles begin and end between characters, so what was text stays text.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let chunks = error.as_bytes().utf8_chunks();
        chunks
            .flat_map(|chunk| {
                chunk.valid().chars().chain((!chunk.invalid().is_empty()).then_some('\u{FFFD}'))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests;
