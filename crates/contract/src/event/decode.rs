//! Reading events from their text: strict for producers, lenient for readers (`docs/protocol/events.md` §5).

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::body::{Envelope, Event, EventBody};
use crate::bounds::{EpochMs, NonEmptyString, Positive};
use crate::json::{RawJson, RawObject};

/// Why a text is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventDecodeError {
    /// Something other than an unknown key is wrong.
    #[error("invalid event: {0}")]
    Invalid(String),
    /// Only unknown keys are wrong; a lenient reader drops them.
    #[error("unknown key {0}")]
    UnknownKey(String),
}

/// Reads an event as consumers do: unknown keys are dropped at any depth where objects are closed, everything else
/// must hold.
///
/// # Errors
/// [`EventDecodeError::Invalid`] for everything but unknown keys; the frame is then to be dropped.
pub fn parse_lenient(text: &str) -> Result<Event, EventDecodeError> {
    decode(text, Mode::Lenient)
}

impl Event {
    /// Reads an event as producers must write it: an unknown or repeated key is an error.
    ///
    /// # Errors
    /// [`EventDecodeError`].
    pub fn parse(text: &str) -> Result<Self, EventDecodeError> {
        decode(text, Mode::Strict)
    }
}

impl<'de> Deserialize<'de> for Event {
    /// Strict, as [`Event::parse`]; from `serde_json` only.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(de::Error::custom)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Strict,
    Lenient,
}

fn decode(text: &str, mode: Mode) -> Result<Event, EventDecodeError> {
    let mut fields = Fields::parse(text, mode)?;
    let kind: String = fields.required("kind")?;
    let envelope = Envelope {
        run_id: fields.required::<NonEmptyString>("runId")?,
        turn_id: fields.required::<NonEmptyString>("turnId")?,
        seq: fields.required::<Positive>("seq")?,
        t: fields.required::<EpochMs>("t")?,
    };
    let body = EventBody::from_fields(&kind, &mut fields)?;
    fields.finish()?;
    Ok(Event { envelope, body })
}

/// The keys of one closed object, taken out one by one; what is left over is unknown.
pub(super) struct Fields<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
    mode: Mode,
    unknown: Option<String>,
}

impl<'a> Fields<'a> {
    fn parse(text: &'a str, mode: Mode) -> Result<Self, EventDecodeError> {
        let Entries(read) =
            serde_json::from_str(text).map_err(|error| EventDecodeError::Invalid(error.to_string()))?;
        let mut entries: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(read.len());
        for (key, value) in read {
            match entries.iter_mut().find(|(name, _)| *name == key) {
                None => entries.push((key, value)),
                Some(_) if mode == Mode::Strict => {
                    return Err(EventDecodeError::Invalid(format!("repeated key {key}")));
                }
                // A reader of JSON objects keeps the last of repeated keys.
                Some(entry) => entry.1 = value,
            }
        }
        Ok(Self { entries, mode, unknown: None })
    }

    fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let index = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.swap_remove(index).1)
    }

    /// A key that must be present.
    pub(super) fn required<T: Field>(&mut self, key: &str) -> Result<T, EventDecodeError> {
        let raw = self.take(key).ok_or_else(|| EventDecodeError::Invalid(format!("missing key {key}")))?;
        T::read(raw, key, self)
    }

    /// A key that may be absent, and is not `null` when present.
    pub(super) fn optional<T: Field>(&mut self, key: &str) -> Result<Option<T>, EventDecodeError> {
        match self.take(key) {
            None => Ok(None),
            Some(raw) => T::read(raw, key, self).map(Some),
        }
    }

    fn note_unknown(&mut self, key: String) {
        self.unknown.get_or_insert(key);
    }

    /// A closed object nested under a key.
    pub(super) fn nested<T>(
        &mut self,
        raw: &'a RawValue,
        key: &str,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T, EventDecodeError>,
    ) -> Result<T, EventDecodeError> {
        let mut inner = Fields::parse(raw.get(), self.mode)
            .map_err(|error| EventDecodeError::Invalid(format!("{key}: {error}")))?;
        let value = read(&mut inner)?;
        if let Some(unknown) = inner.leftover() {
            self.note_unknown(format!("{key}.{unknown}"));
        }
        Ok(value)
    }

    fn leftover(&mut self) -> Option<String> {
        self.unknown.take().or_else(|| self.entries.first().map(|(key, _)| key.to_string()))
    }

    /// Ends the object: in strict mode nothing may be left.
    fn finish(mut self) -> Result<(), EventDecodeError> {
        match (self.mode, self.leftover()) {
            (Mode::Strict, Some(key)) => Err(EventDecodeError::UnknownKey(key)),
            _ => Ok(()),
        }
    }
}

/// A value that a key of an event may hold.
pub(super) trait Field: Sized {
    fn read<'a>(raw: &'a RawValue, key: &str, fields: &mut Fields<'a>) -> Result<Self, EventDecodeError>;
}

fn plain<'a, T: Deserialize<'a>>(raw: &'a RawValue, key: &str) -> Result<T, EventDecodeError> {
    serde_json::from_str(raw.get()).map_err(|error| EventDecodeError::Invalid(format!("{key}: {error}")))
}

macro_rules! plain_fields {
    ($($type:ty),+ $(,)?) => { $(
        impl Field for $type {
            fn read<'a>(raw: &'a RawValue, key: &str, _: &mut Fields<'a>) -> Result<Self, EventDecodeError> {
                plain(raw, key)
            }
        }
    )+ };
}

plain_fields!(
    String,
    NonEmptyString,
    EpochMs,
    Positive,
    RawJson,
    RawObject,
    super::values::RunStatus,
    super::values::SuspendReason,
    super::values::SkipReason,
    super::values::StandardStream,
    super::values::TurnEndReason,
    super::values::CompactionMethod,
);

struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::with_capacity(12);
                while let Some(Key(key)) = map.next_key()? {
                    entries.push((key, map.next_value::<&'de RawValue>()?));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Borrows a key when it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}
