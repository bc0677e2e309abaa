use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use trestle_contract::event::{Cursor, Envelope, Event, EventBody, EventFrame};
use trestle_contract::{EpochMs, NonEmptyString, Positive, RunId};
use trestle_domain::{Clock, CursorAllocator, Redactor, Stamp};

use super::deltas::{Deltas, Handed};
use super::mirror::Mirror;
use super::redaction::redact_body;
use super::spool::Spool;

/// Bytes that may wait for delivery before producers have to wait.
const MOST_WAITING: u64 = 64 * 1024 * 1024;

/// Where everything that happens in a run becomes an event. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Emitter {
    shared: Arc<Shared>,
}

struct Shared {
    run: NonEmptyString,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    state: Mutex<State>,
    /// Something for the sender to look at.
    wake: Notify,
    /// Frames that are delivered or given up, counted.
    settled: watch::Sender<u64>,
}

struct State {
    cursors: CursorAllocator,
    deltas: Deltas,
    spool: Spool,
    mirror: Option<Mirror>,
    /// Time of the last event: a wall clock that is set back does not set events back.
    last_ms: i64,
    /// How far this machine's clock is behind the control plane's, whose own events come before these.
    behind_ms: i64,
    emitted: u64,
    oldest_frame: Option<Instant>,
    flush_until: u64,
    closed: bool,
}

/// What waits to be sent.
pub(super) struct Waiting {
    pub(super) frames: u64,
    pub(super) oldest: Option<Instant>,
    pub(super) oldest_delta: Option<Instant>,
    pub(super) is_urgent: bool,
    pub(super) is_closed: bool,
}

impl Emitter {
    /// An emitter whose cursors sort after `last_cursor` (0 for none); frames beyond memory are kept in
    /// `directory`.
    pub(crate) fn new(
        run: &RunId,
        last_cursor: u64,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        directory: PathBuf,
    ) -> Self {
        let state = State {
            cursors: CursorAllocator::resume_after(last_cursor),
            deltas: Deltas::default(),
            spool: Spool::new(directory),
            mirror: None,
            last_ms: 0,
            behind_ms: 0,
            emitted: 0,
            oldest_frame: None,
            flush_until: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                run: NonEmptyString::saturating(run.as_str()),
                clock,
                redactor,
                state: Mutex::new(state),
                wake: Notify::new(),
                settled: watch::Sender::new(0),
            }),
        }
    }

    /// Makes up for a clock that is behind the control plane's, which says that it is `server_ms` now.
    pub(crate) fn catch_up_with(&self, server_ms: i64) {
        self.state().behind_ms = server_ms.saturating_sub(self.shared.clock.now_ms()).max(0);
    }

    /// Shows everything from now on in this log too.
    pub(crate) fn mirror_to(&self, mirror: Mirror) {
        self.state().mirror = Some(mirror);
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.shared.redactor
    }

    /// Emits an event of the run itself.
    pub(crate) fn emit(&self, body: EventBody) {
        let run = self.shared.run.as_str().to_owned();
        self.emit_for(&run, body);
    }

    /// Emits an event of a turn. A `turn_started` opens a new block of cursors.
    pub(crate) fn emit_for(&self, turn: &str, body: EventBody) {
        let body = redact_body(&self.shared.redactor, body);
        let mut state = self.state();
        if state.closed {
            return;
        }
        if let Handed::Events(events) = state.deltas.hand(turn, body, &self.shared.redactor) {
            self.stamp(&mut state, events);
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    fn stamp(&self, state: &mut State, events: Vec<(String, EventBody)>) {
        for (turn, body) in events {
            let Stamp { cursor, seq } = match body {
                EventBody::TurnStarted { .. } => state.cursors.begin_turn(),
                _ => state.cursors.next(),
            };
            let Ok(cursor) = Cursor::new(cursor) else { continue };
            let now_ms = self.shared.clock.now_ms().saturating_add(state.behind_ms);
            state.last_ms = state.last_ms.max(now_ms);
            let event = Event {
                envelope: Envelope {
                    run_id: self.shared.run.clone(),
                    turn_id: NonEmptyString::saturating(turn.as_str()),
                    seq: Positive::saturating(seq),
                    t: EpochMs::saturating_signed(state.last_ms),
                },
                body,
            };
            if let Some(mirror) = &mut state.mirror {
                mirror.show(&event.body);
            }
            state.spool.push(EventFrame::of(cursor, &event).to_batch_element());
            state.emitted += 1;
            state.oldest_frame.get_or_insert_with(Instant::now);
        }
        if let Some(mirror) = &mut state.mirror {
            mirror.flush();
        }
    }

    /// Waits while too much is undelivered. Whoever reads a pipe or a stream waits here before reading
    /// on, so that the program or the model is slowed down and nothing is dropped.
    pub(crate) async fn room(&self) {
        let mut settled = self.shared.settled.subscribe();
        loop {
            {
                let state = self.state();
                if state.closed || state.spool.bytes() < MOST_WAITING {
                    return;
                }
            }
            if settled.changed().await.is_err() {
                return;
            }
        }
    }

    /// Has everything sent at once that was emitted before, and waits until it is delivered or given up.
    pub(crate) async fn flushed(&self) {
        let wanted = {
            let mut state = self.state();
            let events = state.deltas.take_all();
            self.stamp(&mut state, events);
            state.flush_until = state.emitted;
            state.emitted
        };
        self.shared.wake.notify_one();
        let mut settled = self.shared.settled.subscribe();
        // The sender lives as long as `self`.
        let _ = settled.wait_for(|settled| *settled >= wanted).await;
    }

    /// Refuses everything further and forgets what waits: nobody will take it.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.mirror = None;
        while !state.spool.take(usize::MAX, usize::MAX).is_empty() {}
        let emitted = state.emitted;
        drop(state);
        self.shared.settled.send_replace(emitted);
        self.shared.wake.notify_one();
    }

    /// As if so many events had been emitted and delivered.
    #[cfg(test)]
    pub(super) fn skip(&self, events: u64) {
        let mut state = self.state();
        for _ in 0..events {
            state.cursors.next();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn woken(&self) {
        self.shared.wake.notified().await;
    }

    pub(super) fn waiting(&self) -> Waiting {
        let state = self.state();
        let settled = *self.shared.settled.borrow();
        Waiting {
            frames: state.emitted.saturating_sub(settled),
            oldest: state.oldest_frame,
            oldest_delta: state.deltas.oldest(),
            is_urgent: settled < state.flush_until,
            is_closed: state.closed,
        }
    }

    /// Turns waiting deltas into frames.
    pub(super) fn release_deltas(&self) {
        let mut state = self.state();
        let events = state.deltas.take_all();
        self.stamp(&mut state, events);
    }

    pub(super) fn take(&self, most_frames: usize, most_bytes: usize) -> Vec<String> {
        let mut state = self.state();
        let frames = state.spool.take(most_frames, most_bytes);
        state.oldest_frame = (!state.spool.is_empty()).then(Instant::now);
        frames
    }

    /// Counts frames that were taken as delivered or given up.
    pub(super) fn settle(&self, frames: usize) {
        self.shared.settled.send_modify(|settled| *settled += frames as u64);
    }
}

impl std::fmt::Debug for Emitter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Emitter").field("run", &self.shared.run).finish_non_exhaustive()
    }
}
