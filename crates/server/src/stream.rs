//! A run's events, whole as a list and live as a stream. Both read the store
//! page by page as fast as the caller takes them, so a slow caller holds one
//! page and nothing else.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::watch;
use tokio::time::Instant;
use trestle_contract::event::{Channel, EventFrame};
use trestle_contract::ids::RunId;
use trestle_store::{EventPage, StoreError};

use crate::failure::{Answer, Failure, shown};
use crate::sse;
use crate::state::State;

/// Frames read from the store at once.
const PAGE: u32 = 500;
/// Bytes that one chunk of an answer grows to before it is sent.
const CHUNK: usize = 64 * 1024;

/// Which channels a reader asked for; all when it did not ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channels(Option<Vec<Channel>>);

impl Channels {
    /// Reads the value of `?channels=`.
    pub(crate) fn parse(value: Option<&str>) -> Answer<Self> {
        let Some(value) = value else {
            return Ok(Self(None));
        };
        let channels: Answer<Vec<Channel>> = value
            .split(',')
            .map(|name| {
                let name = name.trim();
                Channel::from_name(name).ok_or_else(|| {
                    Failure::invalid(format!("unknown channel `{}`", shown(name)))
                        .hint("channels are lifecycle, phase, output, log, agent")
                })
            })
            .collect();
        channels.map(|channels| Self(Some(channels)))
    }

    fn admit(&self, frame: &EventFrame) -> bool {
        match &self.0 {
            None => true,
            Some(channels) => frame.channel().is_ok_and(|channel| channels.contains(&channel)),
        }
    }
}

/// Reads a resume point: a cursor in decimal digits, or nothing.
pub(crate) fn resume_point(name: &str, value: Option<&str>) -> Answer<u64> {
    let Some(value) = value else { return Ok(0) };
    let value = value.trim();
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten().ok_or_else(|| {
        Failure::invalid(format!("{name} must be a cursor, not `{}`", shown(value)))
            .hint("a cursor is a whole number from 0 on")
    })
}

/// The resume point of a stream: `Last-Event-ID`, else the query, else 0.
pub(crate) fn stream_resume_point(headers: &HeaderMap, query: Option<&str>) -> Answer<u64> {
    match headers.get("last-event-id") {
        None => resume_point("since", query),
        Some(value) => {
            let value = value.to_str().unwrap_or("?");
            resume_point("Last-Event-ID", Some(value))
        }
    }
}

/// Marks an answer as a stream that nobody between may hold back or change.
pub(crate) fn unbuffered(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

type Bytestream = Pin<Box<dyn Stream<Item = Result<Bytes, StoreError>> + Send>>;

/// The event list: everything after `after`, ending with whether more will
/// ever come.
pub(crate) fn list(state: State, run: RunId, after: u64, channels: Channels, limit: Option<u32>) -> Response {
    let listing = Listing { state, run, after, channels, left: limit, phase: Phase::Start, any: false };
    let stream: Bytestream = Box::pin(stream::try_unfold(listing, Listing::step));
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    unbuffered(&mut response);
    response
}

enum Phase {
    Start,
    Pages,
    Over,
}

struct Listing {
    state: State,
    run: RunId,
    after: u64,
    channels: Channels,
    left: Option<u32>,
    phase: Phase,
    any: bool,
}

impl Listing {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        let mut out = Vec::with_capacity(CHUNK);
        match self.phase {
            Phase::Over => return Ok(None),
            Phase::Start => {
                out.extend_from_slice(b"{\"events\":[");
                self.phase = Phase::Pages;
            }
            Phase::Pages => {}
        }
        while out.len() < CHUNK {
            let page = self.state.store().read_events(&self.run, self.after, PAGE).await?;
            let cut = self.write(&mut out, &page);
            if cut || !page.more {
                let done = page.done && !cut;
                let end = format!("],\"done\":{done},\"resumeAfter\":{}}}", self.after);
                out.extend_from_slice(end.as_bytes());
                self.phase = Phase::Over;
                break;
            }
        }
        Ok(Some((Bytes::from(out), self)))
    }

    /// Writes the admitted frames of a page; says whether the limit cut it.
    fn write(&mut self, out: &mut Vec<u8>, page: &EventPage) -> bool {
        for frame in &page.frames {
            if self.channels.admit(frame) {
                if self.left == Some(0) {
                    return true;
                }
                self.left = self.left.map(|left| left - 1);
                if std::mem::replace(&mut self.any, true) {
                    out.push(b',');
                }
                out.extend_from_slice(format!("{{\"cursor\":{},\"event\":", frame.cursor).as_bytes());
                out.extend_from_slice(frame.json.as_bytes());
                out.push(b'}');
            }
            self.after = frame.cursor.get();
        }
        self.after = self.after.max(page.resume_after);
        false
    }
}

/// The live stream: replay after `after`, then live, until the run is done.
pub(crate) fn live(state: State, run: RunId, after: u64, channels: Channels) -> Response {
    // The watch starts before the first look, so no change is missed.
    let watch = state.hub().watch(&run);
    let now = Instant::now();
    let live = Live {
        keep_alive: state.config().intervals.keep_alive(),
        state,
        run,
        after,
        channels,
        watch,
        last_sent: now,
        ended: false,
        greeted: false,
        pending: VecDeque::new(),
    };
    let stream: Bytestream = Box::pin(stream::try_unfold(live, Live::step));
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    unbuffered(&mut response);
    response
}

struct Live {
    state: State,
    run: RunId,
    after: u64,
    channels: Channels,
    watch: watch::Receiver<u64>,
    keep_alive: Duration,
    last_sent: Instant,
    ended: bool,
    greeted: bool,
    pending: VecDeque<EventFrame>,
}

impl Live {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.greeted, true) {
            // The first bytes go out at once, so that the caller knows that
            // the stream is open before anything happens in the run.
            out.extend_from_slice(b"retry: 1000\n\n");
            return Ok(Some(self.sent(out)));
        }
        loop {
            if !self.pending.is_empty() {
                self.write(&mut out);
                return Ok(Some(self.sent(out)));
            }
            if self.state.shutdown().is_cancelled() {
                return Ok(None);
            }
            self.watch.mark_unchanged();
            let page = match self.state.store().read_events(&self.run, self.after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, run = %self.run, "a stream could not go on");
                    sse::stream_error(
                        &mut out,
                        "the server cannot read the events of this run at the moment",
                    );
                    self.ended = true;
                    return Ok(Some(self.sent(out)));
                }
            };
            let resume_after = page.resume_after;
            let moved = resume_after > self.after;
            self.pending = page.frames.into();
            if !self.pending.is_empty() {
                continue;
            }
            if moved {
                self.after = resume_after;
            }
            if page.done {
                return Ok(None);
            }
            if page.more {
                continue;
            }
            if !self.quiet(page.held_until).await {
                sse::keep_alive(&mut out);
                return Ok(Some(self.sent(out)));
            }
        }
    }

    /// Waits for a reason to look again (true), or for the time of the next
    /// keep-alive (false).
    async fn quiet(&mut self, held_until: Option<i64>) -> bool {
        let next = self.last_sent + self.keep_alive;
        let held = held_until.map(|at| {
            let wait = u64::try_from(at - self.state.now()).unwrap_or(0);
            Instant::now() + Duration::from_millis(wait.max(1))
        });
        let shutdown = self.state.shutdown().clone();
        tokio::select! {
            changed = self.watch.changed() => changed.is_ok(),
            () = shutdown.cancelled() => true,
            () = tokio::time::sleep_until(held.unwrap_or(next).min(next)) => {
                Instant::now() < next
            }
        }
    }

    /// Writes pending frames up to one chunk. Frames of other channels are
    /// not sent, but the reader's resume point still moves past them.
    fn write(&mut self, out: &mut Vec<u8>) {
        let mut unsent = None;
        while let Some(frame) = self.pending.pop_front() {
            self.after = frame.cursor.get();
            if self.channels.admit(&frame) {
                sse::event(out, frame.cursor.get(), &frame.kind, &frame.json);
                unsent = None;
                if out.len() >= CHUNK {
                    break;
                }
            } else {
                unsent = Some(frame.cursor.get());
            }
        }
        if let Some(cursor) = unsent {
            sse::advance(out, cursor);
        }
    }

    fn sent(mut self, out: Vec<u8>) -> (Bytes, Self) {
        self.last_sent = Instant::now();
        (Bytes::from(out), self)
    }
}
