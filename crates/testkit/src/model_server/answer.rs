//! The body of a streamed answer, with its delays, faults and quirks.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::record::{Entry, Outcome};
use super::script::{Fault, Wire};
use super::speech::Speech;
use super::wire::{WireWriter, encode, encode_comment};

/// An answer under way.
pub(super) struct Answer {
    pub(super) writer: Box<dyn WireWriter>,
    pub(super) speech: Speech,
    pub(super) wire: Wire,
    pub(super) fault: Option<Fault>,
    pub(super) delta_delay: Duration,
    pub(super) entry: Entry,
    pub(super) deltas: u64,
    pub(super) stage: Stage,
    pub(super) waiting: VecDeque<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Opening,
    Speaking,
    /// Everything is written; what waits is sent, then this happens.
    Closing,
    Cutting,
    Silent,
    /// The stream ends although the answer is not whole.
    Breaking,
}

impl Drop for Answer {
    fn drop(&mut self) {
        let outcome = match self.stage {
            Stage::Closing if self.waiting.is_empty() => Outcome::Complete,
            Stage::Breaking | Stage::Cutting if self.waiting.is_empty() => Outcome::Fault,
            Stage::Opening
            | Stage::Speaking
            | Stage::Closing
            | Stage::Cutting
            | Stage::Silent
            | Stage::Breaking => Outcome::ClientGone,
        };
        self.entry.over(outcome);
    }
}

impl Answer {
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
        stream::unfold(self, |mut answer| async move { answer.next().await.map(|bytes| (bytes, answer)) })
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(bytes) = self.waiting.pop_front() {
                if self.wire.split_bytes.is_some() {
                    // Lets the connection write this piece before the next.
                    tokio::task::yield_now().await;
                }
                return Some(Ok(bytes));
            }
            match self.stage {
                Stage::Opening => {
                    self.entry.first_byte(self.speech.usage);
                    let events = self.writer.open(&self.speech);
                    self.stage = Stage::Speaking;
                    if !self.check_fault() {
                        self.write(&events);
                    }
                }
                Stage::Speaking => self.speak().await,
                Stage::Closing | Stage::Breaking => return None,
                Stage::Cutting => {
                    // What was sent before leaves the machine before the connection goes.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    return Some(Err(std::io::Error::new(
                        std::io::ErrorKind::ConnectionReset,
                        "cut by the script",
                    )));
                }
                Stage::Silent => std::future::pending::<()>().await,
            }
        }
    }

    async fn speak(&mut self) {
        let Some(piece) = self.speech.next_piece() else {
            self.stage = Stage::Closing;
            let events = self.writer.close(&self.speech);
            self.write(&events);
            return;
        };
        if !self.delta_delay.is_zero() {
            tokio::time::sleep(self.delta_delay).await;
        }
        self.deltas += 1;
        let events = self.writer.piece(&piece, &self.speech, self.deltas);
        self.write(&events);
        self.entry.delta();
        self.check_fault();
    }

    /// Enters the fault's stage when its place is reached.
    fn check_fault(&mut self) -> bool {
        let reached = |after: u64| self.deltas >= after;
        let stage = match &self.fault {
            Some(Fault::Cut(place)) if reached(place.after_deltas) => Stage::Cutting,
            Some(Fault::End(place)) if reached(place.after_deltas) => Stage::Breaking,
            Some(Fault::Silence(place)) if reached(place.after_deltas) => Stage::Silent,
            Some(Fault::Error(fault)) if reached(fault.after_deltas) => {
                let event = self.writer.error(&fault.kind, &fault.message);
                self.write(&[event]);
                Stage::Breaking
            }
            _ => return false,
        };
        self.stage = stage;
        true
    }

    fn write(&mut self, events: &[super::wire::Event]) {
        let mut bytes = Vec::new();
        if self.wire.comments {
            encode_comment(&self.wire, &mut bytes);
            encode(self.writer.ping().as_slice(), &self.wire, &mut bytes);
        }
        encode(events, &self.wire, &mut bytes);
        match self.wire.split_bytes {
            Some(size) => self.waiting.extend(bytes.chunks(size.max(1)).map(Bytes::copy_from_slice)),
            None => self.waiting.push_back(Bytes::from(bytes)),
        }
    }
}
