//! Cursors: the run-wide order of events (`docs/protocol/events.md` §2).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::body::{Event, channel_of};
use super::decode::{EventDecodeError, parse_lenient};
use super::values::{Channel, UnknownWord};
use crate::bounds::MAX_SAFE_INTEGER;
use crate::tolerant::objects;

/// Cursors of one block.
pub const STRIDE: u64 = 1_000_000;
/// The last position inside of a block.
pub const MAX_SEQ: u64 = STRIDE - 1;

/// Why a number is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The position is not between 1 and [`MAX_SEQ`].
    #[error("sequence number {0} is not between 1 and 999999")]
    Sequence(u64),
    /// The block is too large for the cursor to stay an exact integer in JSON.
    #[error("block {0} is too large")]
    Block(u64),
    /// Not an integer from 1 to 2^53 − 1.
    #[error("{0} is not a cursor")]
    Value(u64),
}

/// The place of an event in its run: `block × STRIDE + seq`, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Cursor(u64);

impl Cursor {
    /// The first cursor of a run.
    pub const FIRST: Cursor = Cursor(1);

    /// Checks a number.
    ///
    /// # Errors
    /// [`CursorError::Value`] for 0 and above 2^53 − 1.
    pub fn new(value: u64) -> Result<Self, CursorError> {
        if (1..=MAX_SAFE_INTEGER).contains(&value) { Ok(Self(value)) } else { Err(CursorError::Value(value)) }
    }

    /// Puts block and position together.
    ///
    /// # Errors
    /// [`CursorError::Sequence`] or [`CursorError::Block`] out of range.
    pub fn from_parts(block: u64, seq: u64) -> Result<Self, CursorError> {
        if !(1..=MAX_SEQ).contains(&seq) {
            return Err(CursorError::Sequence(seq));
        }
        block
            .checked_mul(STRIDE)
            .and_then(|base| base.checked_add(seq))
            .filter(|value| *value <= MAX_SAFE_INTEGER)
            .map(Self)
            .ok_or(CursorError::Block(block))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The block.
    pub const fn block(self) -> u64 {
        self.0 / STRIDE
    }

    /// The position inside of the block. 0 only for a foreign cursor that is a multiple of the stride.
    pub const fn seq(self) -> u64 {
        self.0 % STRIDE
    }

    /// The block in which a new session of a run starts, given the highest stored cursor.
    pub const fn block_after(highest: Option<Cursor>) -> u64 {
        match highest {
            None => 0,
            Some(cursor) => cursor.block() + 1,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = crate::bounds::Positive::deserialize(deserializer)?;
        Self::new(value.get()).map_err(de::Error::custom)
    }
}

impl JsonSchema for Cursor {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Cursor".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MAX_SAFE_INTEGER })
    }
}

/// An event and its place, as batches, snapshots and streams carry it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct StoredEvent {
    /// Its place.
    pub cursor: Cursor,
    /// The event.
    pub event: Event,
}

/// An event as text beside what its readers filter by: the form of hot paths, where nothing is parsed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFrame {
    /// Its place.
    pub cursor: Cursor,
    /// Its kind.
    pub kind: Arc<str>,
    /// The event's JSON, on one line.
    pub json: Arc<str>,
}

impl EventFrame {
    /// Writes an event.
    pub fn of(cursor: Cursor, event: &Event) -> Self {
        Self { cursor, kind: event.body.kind().into(), json: event.to_json().into() }
    }

    /// The channel of the kind.
    ///
    /// # Errors
    /// [`UnknownWord`] when no channel knows it.
    pub fn channel(&self) -> Result<Channel, UnknownWord> {
        channel_of(&self.kind).ok_or_else(|| UnknownWord(self.kind.to_string()))
    }

    /// Reads one element of a telemetry batch: a JSON text with `cursor` and `event`. The event is checked strictly;
    /// one that only has unknown keys too many is kept without them.
    ///
    /// # Errors
    /// [`EventDecodeError`] when it is no such object or the event does not pass the lenient reader.
    pub fn parse_batch_element(text: &str) -> Result<(Self, Event), EventDecodeError> {
        if text.trim_start().starts_with('[') {
            return Err(EventDecodeError::Invalid("an array".to_owned()));
        }
        #[derive(Deserialize)]
        struct Element<'a> {
            cursor: Cursor,
            #[serde(borrow)]
            event: &'a serde_json::value::RawValue,
        }
        let element: Element<'_> =
            serde_json::from_str(text).map_err(|error| EventDecodeError::Invalid(error.to_string()))?;
        let event = parse_lenient(element.event.get())?;
        Ok((Self::of(element.cursor, &event), event))
    }

    /// Writes one element of a telemetry batch.
    pub fn to_batch_element(&self) -> String {
        format!("{{\"cursor\":{},\"event\":{}}}", self.cursor, self.json)
    }
}

objects!(StoredEvent);
