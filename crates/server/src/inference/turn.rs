//! One turn under way, and the readers that follow it.
//!
//! No task stands between provider and client: whichever reader is polled drives the provider's stream, on its own thread, and writes what
//! comes into the log that all readers share. A client that reads slowly so slows the provider down; a second client of the same turn goes on
//! at its own pace. When the last reader goes, a turn with a key is drained by a task, and one without is broken off.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt as _};
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;
use trestle_contract::error::ErrorCode;
use trestle_models::{ErrorClass, ModelError, ModelEvent, ModelStream, TurnProgress};

use super::ledger::{Books, Outcome, TurnIdentity, error_line};
use super::log::{Kind, Position, TurnLog, Unread, frame};
use super::registry::Registry;
use crate::failure::Failure;

const PING: &[u8] = b"{\"t\":\"ping\"}\n";
/// A reader without a client needs no pings; it throws them away.
const DRAIN_PING: Duration = Duration::from_secs(3600);
const RESET: &[u8] = b"{\"t\":\"reset\"}\n";

/// One turn under way.
pub(super) struct Turn {
    pub(super) identity: TurnIdentity,
    books: Arc<Books>,
    progress: Arc<TurnProgress>,
    /// Thinking is not passed on.
    hide_reasoning: bool,
    tasks: TaskTracker,
    registry: Arc<Registry>,
    state: Mutex<TurnState>,
    /// Who waits for news, by reader. Apart from the state, because a wake may come while the state is locked.
    waiting: Mutex<HashMap<u64, Option<Waker>>>,
}

struct TurnState {
    source: Source,
    log: TurnLog,
    readers: u64,
}

enum Source {
    Streaming(ModelStream),
    Settling(BoxFuture<'static, Outcome>),
    Over(Outcome),
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        Wake::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers: Vec<Waker> = lock(&self.waiting).values_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Turn {
    pub(super) fn new(
        identity: TurnIdentity,
        books: Arc<Books>,
        stream: ModelStream,
        hide_reasoning: bool,
        tasks: TaskTracker,
        registry: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            identity,
            books,
            progress: stream.progress(),
            hide_reasoning,
            tasks,
            registry,
            state: Mutex::new(TurnState {
                source: Source::Streaming(stream),
                log: TurnLog::default(),
                readers: 0,
            }),
            waiting: Mutex::default(),
        })
    }

    /// A reader from the turn's start on, which sees a ping whenever `ping` passes without another frame.
    pub(super) fn read(self: &Arc<Self>, ping: Duration) -> Reader {
        let id = {
            let mut state = lock(&self.state);
            state.readers += 1;
            state.readers
        };
        lock(&self.waiting).insert(id, None);
        let now = Instant::now();
        Reader {
            turn: Arc::clone(self),
            id,
            position: Position::default(),
            first: None,
            ended: false,
            ping,
            last_frame: now,
            alarm: Box::pin(tokio::time::sleep_until(now + ping)),
        }
    }

    /// Breaks the turn off: the provider is stopped, what it may have charged is metered, readers get an error.
    pub(super) fn stop(self: &Arc<Self>, code: ErrorCode, message: &'static str) {
        let mut state = lock(&self.state);
        if !matches!(state.source, Source::Streaming(_)) {
            return;
        }
        let turn = Arc::clone(self);
        let settling = async move {
            turn.books.settle_broken(&turn.identity, &turn.progress).await;
            Outcome::Failed(Failure::new(code, message), error_line(code.as_str(), message))
        };
        state.source = Source::Settling(Box::pin(settling));
        drop(state);
        Wake::wake_by_ref(self);
    }

    /// Drives the provider's stream one step and writes what comes into the log.
    fn drive(self: &Arc<Self>, state: &mut TurnState, context: &mut Context<'_>) -> Poll<()> {
        let event = match &mut state.source {
            Source::Streaming(stream) => match stream.poll_next_unpin(context) {
                Poll::Ready(event) => event,
                Poll::Pending => return Poll::Pending,
            },
            Source::Settling(future) => {
                let Poll::Ready(outcome) = future.as_mut().poll(context) else { return Poll::Pending };
                state.source = Source::Over(outcome);
                self.registry.remove(&self.identity);
                return Poll::Ready(());
            }
            Source::Over(_) => return Poll::Ready(()),
        };
        match event {
            Some(Ok(ModelEvent::Delta(text))) => state.log.push(Kind::Text, &text),
            Some(Ok(ModelEvent::Reasoning(text))) => {
                if !self.hide_reasoning {
                    state.log.push(Kind::Reasoning, &text);
                }
            }
            Some(Ok(ModelEvent::Restarted)) => state.log.restart(),
            Some(Ok(ModelEvent::Done(completed))) => {
                let turn = Arc::clone(self);
                state.source = Source::Settling(Box::pin(async move {
                    turn.books.settle(&turn.identity, *completed, &turn.progress).await
                }));
            }
            Some(Err(error)) => state.source = Source::Settling(self.settle_failure(error)),
            None => {
                let error =
                    ModelError::new(ErrorClass::Interrupted, "the model's answer ended without a result");
                state.source = Source::Settling(self.settle_failure(error));
            }
        }
        Poll::Ready(())
    }

    fn settle_failure(self: &Arc<Self>, error: ModelError) -> BoxFuture<'static, Outcome> {
        let turn = Arc::clone(self);
        Box::pin(async move { turn.books.settle_failure(&turn.identity, &error, &turn.progress).await })
    }

    /// The last reader has gone.
    fn abandoned(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        match &state.source {
            Source::Over(_) => return,
            Source::Settling(_) => {}
            Source::Streaming(_) if self.identity.key.is_some() => {}
            Source::Streaming(_) => {
                let turn = Arc::clone(self);
                state.source = Source::Settling(Box::pin(async move {
                    turn.books.settle_broken(&turn.identity, &turn.progress).await;
                    let message = "the client went before the end of the turn";
                    Outcome::Failed(
                        Failure::new(ErrorCode::Cancelled, message),
                        error_line(ErrorCode::Cancelled.as_str(), message),
                    )
                }));
            }
        }
        drop(state);
        // Without a runtime the process is ending, and nothing can be finished.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut reader = self.read(DRAIN_PING);
            self.tasks.spawn_on(async move { while reader.next().await.is_some() {} }, &runtime);
        }
    }
}

/// One client's view of a turn: its frames, ending with exactly one terminal one.
pub(super) struct Reader {
    turn: Arc<Turn>,
    id: u64,
    position: Position,
    /// A frame that was taken before the stream began, to see how it begins.
    first: Option<Bytes>,
    ended: bool,
    ping: Duration,
    last_frame: Instant,
    alarm: Pin<Box<Sleep>>,
}

/// One step of a reader.
pub(super) enum Step {
    Line(Bytes),
    Failed(Failure, Bytes),
}

impl Reader {
    /// Puts back a frame that was taken to see how the turn begins.
    pub(super) fn put_back(&mut self, line: Bytes) {
        self.first = Some(line);
    }

    /// The next frame, or a ping when there was none for a while.
    pub(super) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Option<Step>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Step::Line(first)));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let turn = Arc::clone(&self.turn);
        let mut state = lock(&turn.state);
        // Registered before the source is polled: whoever is polled later takes over the source's waker, and its wake reaches all.
        lock(&turn.waiting).insert(self.id, Some(context.waker().clone()));
        let waker = Waker::from(Arc::clone(&turn));
        let mut shared = Context::from_waker(&waker);
        loop {
            if let Some(unread) = state.log.next(&mut self.position) {
                let line = match unread {
                    Unread::Reset => Bytes::from_static(RESET),
                    Unread::Piece(kind, text) => Bytes::from(frame(kind, text)),
                };
                if turn.identity.key.is_none() {
                    state.log.forget(&self.position);
                    self.position = state.log.after_forgetting(self.position);
                }
                drop(state);
                self.news(&turn);
                return Poll::Ready(Some(Step::Line(line)));
            }
            if let Source::Over(outcome) = &state.source {
                let step = match outcome.clone() {
                    Outcome::Result(line) => Step::Line(Bytes::from(line)),
                    Outcome::Failed(failure, line) => Step::Failed(failure, Bytes::from(line)),
                };
                self.ended = true;
                drop(state);
                self.news(&turn);
                return Poll::Ready(Some(step));
            }
            if turn.drive(&mut state, &mut shared).is_pending() {
                drop(state);
                return self.poll_ping(context);
            }
        }
    }

    /// A frame goes out. What was driven out of the source may be news to the other readers.
    fn news(&mut self, turn: &Arc<Turn>) {
        self.last_frame = Instant::now();
        lock(&turn.waiting).insert(self.id, None);
        Wake::wake_by_ref(turn);
    }

    fn poll_ping(&mut self, context: &mut Context<'_>) -> Poll<Option<Step>> {
        while self.alarm.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let due = self.last_frame + self.ping;
            if now >= due {
                self.last_frame = now;
                self.alarm.as_mut().reset(now + self.ping);
                return Poll::Ready(Some(Step::Line(Bytes::from_static(PING))));
            }
            self.alarm.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl Stream for Reader {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_step(context).map(|step| {
            step.map(|step| match step {
                Step::Line(line) | Step::Failed(_, line) => Ok(line),
            })
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let last = {
            let mut waiting = lock(&self.turn.waiting);
            waiting.remove(&self.id);
            waiting.is_empty()
        };
        if last {
            self.turn.abandoned();
        } else {
            // The reader that goes may have been the one that the source would wake.
            Wake::wake_by_ref(&self.turn);
        }
    }
}

/// Nothing panics while a lock is held, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
