//! Run events: the one ordered stream of a run (`docs/protocol/events.md`).
//!
//! [`Event::parse`] is what producers must pass, [`parse_lenient`] what readers use. Both work on the text, so that
//! program JSON inside of an event survives byte for byte.

mod body;
mod cursor;
mod decode;
mod values;

pub use body::{Envelope, Event, EventBody, channel_of};
pub use cursor::{Cursor, CursorError, EventFrame, MAX_SEQ, STRIDE, StoredEvent};
pub use decode::{EventDecodeError, parse_lenient};
pub use values::{
    Channel, CompactionMethod, DEFAULT_CHANNELS, EventError, RunStatus, SkipReason, StandardStream,
    SuspendReason, TokenUsage, ToolReturn, TurnEndReason, UnknownWord,
};
