//! A run's events, whole as a list and live as a stream. A list reads the
//! store page by page as fast as the caller takes it; a stream follows the
//! run's feed. A slow caller holds one page and nothing else.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::watch;
use tokio::time::Instant;
use trestle_contract::event::Channel;
use trestle_contract::ids::RunId;
use trestle_store::{EventPage, StoreError};

use crate::failure::{Answer, Failure, shown};
use crate::feed::{Feed, Held, Look, PAGE};
use crate::sse;
use crate::state::State;

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

    fn are_all(&self) -> bool {
        self.0.is_none()
    }

    fn admit(&self, channel: Option<Channel>) -> bool {
        match &self.0 {
            None => true,
            Some(channels) => channel.is_some_and(|channel| channels.contains(&channel)),
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
            if self.channels.admit(frame.channel().ok()) {
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
    let live = Live {
        keep_alive: state.config().intervals.keep_alive(),
        feed: state.feeds().follow(&run),
        state,
        run,
        after,
        channels,
        watch,
        last_sent: Instant::now(),
        ended: false,
        greeted: false,
        pending: None,
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
    feed: Arc<Feed>,
    after: u64,
    channels: Channels,
    watch: watch::Receiver<u64>,
    keep_alive: Duration,
    last_sent: Instant,
    ended: bool,
    greeted: bool,
    /// What is being sent. Its bytes belong to all viewers of the run.
    pending: Option<Held>,
}

impl Live {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.greeted, true) {
            // The first bytes go out at once, so that the caller knows that
            // the stream is open before anything happens in the run.
            return Ok(Some(self.sent(Bytes::from_static(b"retry: 1000\n\n"))));
        }
        loop {
            if let Some(chunk) = self.next_chunk() {
                return Ok(Some(self.sent(chunk)));
            }
            if self.state.shutdown().is_cancelled() {
                return Ok(None);
            }
            let version = *self.watch.borrow_and_update();
            let look = self.feed.look(&self.state, self.after, version).await;
            match look {
                Ok(Look::Frames(held)) => self.pending = Some(held),
                Ok(Look::Nothing(tip)) if tip.done => return Ok(None),
                Ok(Look::Nothing(tip)) => {
                    if !self.quiet(tip.held_until).await {
                        return Ok(Some(self.sent(Bytes::from_static(sse::KEEP_ALIVE))));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, run = %self.run, "a stream could not go on");
                    let mut out = Vec::new();
                    sse::stream_error(
                        &mut out,
                        "the server cannot read the events of this run at the moment",
                    );
                    self.ended = true;
                    return Ok(Some(self.sent(Bytes::from(out))));
                }
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

    /// The next chunk of what is being sent.
    fn next_chunk(&mut self) -> Option<Bytes> {
        let held = self.pending.take()?;
        if self.channels.are_all() {
            let (chunk, reached) = held.slice(self.after, CHUNK)?;
            self.after = reached;
            self.pending = Some(held);
            return Some(chunk);
        }
        // Frames of other channels are not sent, but the reader's resume
        // point still moves past them.
        let mut out = Vec::new();
        let (mut after, mut unsent) = (self.after, false);
        for (frame, text) in held.after(self.after) {
            after = frame.cursor;
            unsent = !self.channels.admit(frame.channel);
            if !unsent {
                out.extend_from_slice(text);
                if out.len() >= CHUNK {
                    break;
                }
            }
        }
        if after == self.after {
            return None;
        }
        self.after = after;
        if unsent {
            sse::advance(&mut out, after);
        }
        self.pending = Some(held);
        Some(Bytes::from(out))
    }

    fn sent(mut self, out: Bytes) -> (Bytes, Self) {
        self.last_sent = Instant::now();
        (out, self)
    }
}
