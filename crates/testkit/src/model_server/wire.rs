//! What both wires have in common: events and how they are written as bytes.

use serde_json::Value;

use super::script::Wire;
use super::speech::{Piece, Speech};

/// One server-sent event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: Option<&'static str>,
    pub(super) data: String,
}

/// Writes a turn for one wire.
pub(super) trait WireWriter: Send {
    /// Events before the first delta.
    fn open(&mut self, speech: &Speech) -> Vec<Event>;
    /// Events of one delta; `deltas` counts it.
    fn piece(&mut self, piece: &Piece, speech: &Speech, deltas: u64) -> Vec<Event>;
    /// Events after the last delta.
    fn close(&mut self, speech: &Speech) -> Vec<Event>;
    /// The event of a failure in the middle of the stream.
    fn error(&self, kind: &str, message: &str) -> Event;
    /// A sign of life.
    fn ping(&self) -> Option<Event>;
    /// The answer in one document.
    fn whole(&mut self, speech: &mut Speech) -> Value;
}

/// Events as the bytes of the stream.
pub(super) fn encode(events: &[Event], wire: &Wire, bytes: &mut Vec<u8>) {
    let end = wire.newline.as_str();
    let space = if wire.space { " " } else { "" };
    for event in events {
        if let Some(name) = event.name {
            bytes.extend_from_slice(format!("event:{space}{name}{end}").as_bytes());
        }
        bytes.extend_from_slice(format!("data:{space}{}{end}{end}", event.data).as_bytes());
    }
}

/// A comment line, which readers must skip.
pub(super) fn encode_comment(wire: &Wire, bytes: &mut Vec<u8>) {
    let end = wire.newline.as_str();
    bytes.extend_from_slice(format!(": still here{end}{end}").as_bytes());
}
