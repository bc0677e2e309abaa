//! One reading of a run's events for all who follow it. A thousand viewers of a run cost one look at the store for each
//! change, one decoding, and one copy of the bytes; each viewer holds a place in them and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::OnceCell;
use trestle_contract::event::Channel;
use trestle_contract::ids::RunId;
use trestle_store::{EventPage, StoreResult};

use crate::sse;

/// Frames read from the store at once.
pub(crate) const PAGE: u32 = 500;
/// Bytes that are kept behind the newest frames, for viewers that are a little late.
const TAIL_BYTES: usize = 256 * 1024;
/// History pages of a run that are looked after before those that nobody holds are dropped.
const PAGES: usize = 64;

/// Where a feed reads from.
#[async_trait::async_trait]
pub(crate) trait Source: Send + Sync {
    /// The frames after a cursor.
    async fn read(&self, run: &RunId, after: u64, limit: u32) -> StoreResult<EventPage>;
    /// The highest stored cursor.
    async fn last_cursor(&self, run: &RunId) -> StoreResult<u64>;
    /// Now, in the source's time.
    fn now_ms(&self) -> i64;
}

/// Frames that stand together, as the text of an event stream.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The cursor that its first frame follows.
    start: u64,
    /// The cursor of its last frame.
    end: u64,
    frames: Vec<Framed>,
    text: Bytes,
}

/// One frame of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Framed {
    pub(crate) cursor: u64,
    /// None for a kind that no channel knows.
    pub(crate) channel: Option<Channel>,
    /// Where its text ends in the batch.
    end: usize,
}

impl Batch {
    fn of(start: u64, page: &EventPage) -> Self {
        let mut text = Vec::with_capacity(page.frames.iter().map(|frame| frame.json.len() + 64).sum());
        let frames: Vec<Framed> = page
            .frames
            .iter()
            .map(|frame| {
                sse::event(&mut text, frame.cursor.get(), &frame.kind, &frame.json);
                Framed { cursor: frame.cursor.get(), channel: frame.channel().ok(), end: text.len() }
            })
            .collect();
        Self {
            start,
            end: frames.last().map_or(start, |frame| frame.cursor),
            frames,
            text: Bytes::from(text),
        }
    }

    /// The frames after a cursor, each with its text.
    pub(crate) fn after(&self, cursor: u64) -> impl Iterator<Item = (Framed, &[u8])> {
        let first = self.first_after(cursor);
        self.frames[first..]
            .iter()
            .enumerate()
            .map(move |(at, frame)| (*frame, &self.text[self.begin(first + at)..frame.end]))
    }

    /// The text of the frames after a cursor, at least one of them and else at most `limit` bytes, shared and not
    /// copied; and the cursor that it reaches.
    pub(crate) fn slice(&self, cursor: u64, limit: usize) -> Option<(Bytes, u64)> {
        let first = self.first_after(cursor);
        let begin = self.begin(first);
        let fitting = self.frames[first..].partition_point(|frame| frame.end - begin <= limit);
        let last = self.frames.get(first..)?.get(fitting.max(1) - 1)?;
        Some((self.text.slice(begin..last.end), last.cursor))
    }

    fn first_after(&self, cursor: u64) -> usize {
        self.frames.partition_point(|frame| frame.cursor <= cursor)
    }

    fn begin(&self, frame: usize) -> usize {
        frame.checked_sub(1).and_then(|before| self.frames.get(before)).map_or(0, |before| before.end)
    }
}

/// What the end of a run's events looked like at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tip {
    /// Nothing more will ever come.
    pub(crate) done: bool,
    /// Until when a frame is held back that is there already.
    pub(crate) held_until: Option<i64>,
}

impl Tip {
    fn of(page: &EventPage) -> Self {
        Self { done: page.done, held_until: page.held_until }
    }
}

/// What a look finds.
#[derive(Debug)]
pub(crate) enum Look {
    /// Frames after the cursor.
    Frames(Held),
    /// None, for now or for ever.
    Nothing(Tip),
}

/// A page of the history, read once as long as somebody holds it.
type Page = OnceCell<Arc<Batch>>;

/// A batch in use.
#[derive(Debug)]
pub(crate) struct Held {
    batch: Arc<Batch>,
    /// Keeps a page of the history findable for those who come to it later.
    _page: Option<Arc<Page>>,
}

impl Held {
    fn of(batch: Arc<Batch>) -> Self {
        Self { batch, _page: None }
    }
}

impl std::ops::Deref for Held {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

/// The feeds of all runs that somebody follows.
#[derive(Default)]
pub(crate) struct Feeds {
    runs: Mutex<HashMap<RunId, Weak<Feed>>>,
}

impl Feeds {
    /// The feed of a run. It lasts as long as somebody holds it.
    pub(crate) fn follow(&self, run: &RunId) -> Arc<Feed> {
        let mut runs = lock(&self.runs);
        if let Some(feed) = runs.get(run).and_then(Weak::upgrade) {
            return feed;
        }
        if runs.len().is_power_of_two() {
            runs.retain(|_, feed| feed.strong_count() > 0);
        }
        let feed = Arc::new(Feed::new(run.clone()));
        runs.insert(run.clone(), Arc::downgrade(&feed));
        feed
    }
}

/// The events of one run.
pub(crate) struct Feed {
    run: RunId,
    known: Mutex<Known>,
    /// Held while the store is asked for what comes after the newest frames.
    growing: tokio::sync::Mutex<()>,
}

/// What of the events is in memory.
#[derive(Default)]
struct Known {
    /// The newest frames: batches that follow each other without a gap, none of them empty.
    tail: VecDeque<Arc<Batch>>,
    /// Where the tail starts and ends; none before the first look.
    span: Option<(u64, u64)>,
    /// The end at the last look, and the version that the look was made at.
    tip: Option<(Tip, u64)>,
    /// Pages of the history that somebody holds, by the cursor that they follow.
    pages: HashMap<u64, Weak<Page>>,
}

/// Where a cursor lies.
enum Place {
    /// Before the tail.
    History,
    /// At its end: the store has to be asked.
    Tip,
    /// After it.
    Beyond,
    /// In it.
    Known(Look),
}

impl Feed {
    fn new(run: RunId) -> Self {
        Self { run, known: Mutex::default(), growing: tokio::sync::Mutex::new(()) }
    }

    /// What follows a cursor. `version` counts the changes that the caller has heard of: a look that was made at an
    /// earlier one is made again.
    pub(crate) async fn look(&self, source: &dyn Source, after: u64, version: u64) -> StoreResult<Look> {
        match self.place(after, version, source.now_ms()) {
            Place::Known(look) => return Ok(look),
            Place::History => return self.page(source, after).await,
            Place::Tip | Place::Beyond => {}
        }
        let _growing = self.growing.lock().await;
        match self.place(after, version, source.now_ms()) {
            Place::Known(look) => Ok(look),
            Place::History => self.page(source, after).await,
            Place::Tip => {
                let page = source.read(&self.run, after, PAGE).await?;
                Ok(self.grow(after, version, &page))
            }
            Place::Beyond => {
                let page = source.read(&self.run, after, PAGE).await?;
                // A reader from far ahead takes the tail with it, unless its cursor is none of this run's.
                if after <= source.last_cursor(&self.run).await? {
                    self.known().restart();
                    return Ok(self.grow(after, version, &page));
                }
                Ok(found(after, &page))
            }
        }
    }

    fn place(&self, after: u64, version: u64, now: i64) -> Place {
        let known = self.known();
        let Some((start, end)) = known.span else { return Place::Tip };
        if after < start {
            return Place::History;
        }
        if after < end {
            let at = known.tail.partition_point(|batch| batch.end <= after);
            return known
                .tail
                .get(at)
                .map_or(Place::History, |batch| Place::Known(Look::Frames(Held::of(Arc::clone(batch)))));
        }
        if after > end {
            return Place::Beyond;
        }
        match known.tip {
            Some((tip, seen)) if seen >= version && tip.held_until.is_none_or(|until| now < until) => {
                Place::Known(Look::Nothing(tip))
            }
            _ => Place::Tip,
        }
    }

    /// Puts a page that follows the tail behind it.
    fn grow(&self, after: u64, version: u64, page: &EventPage) -> Look {
        let mut known = self.known();
        // Where there is more, the next look is not satisfied by this one.
        known.tip = (!page.more).then(|| (Tip::of(page), version));
        let start = known.span.map_or(after, |(start, _)| start);
        if page.frames.is_empty() {
            known.span = Some((start, after));
            return Look::Nothing(Tip::of(page));
        }
        let batch = Arc::new(Batch::of(after, page));
        known.span = Some((start, batch.end));
        known.tail.push_back(Arc::clone(&batch));
        known.trim();
        Look::Frames(Held::of(batch))
    }

    /// A page of the history, read once for all who are at the same place.
    async fn page(&self, source: &dyn Source, after: u64) -> StoreResult<Look> {
        let page = self.known().page(after);
        let mut nothing = Tip { done: false, held_until: None };
        let read = page
            .get_or_try_init(|| async {
                let read = source.read(&self.run, after, PAGE).await.map_err(Some)?;
                if read.frames.is_empty() {
                    nothing = Tip::of(&read);
                    return Err(None);
                }
                Ok(Arc::new(Batch::of(after, &read)))
            })
            .await
            .cloned();
        match read {
            Ok(batch) => Ok(Look::Frames(Held { batch, _page: Some(page) })),
            Err(None) => Ok(Look::Nothing(nothing)),
            Err(Some(error)) => Err(error),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

impl Known {
    fn restart(&mut self) {
        self.tail.clear();
        self.span = None;
        self.tip = None;
    }

    /// Drops the oldest batches beyond the bytes that are kept; the newest one stays.
    fn trim(&mut self) {
        let mut bytes: usize = self.tail.iter().map(|batch| batch.text.len()).sum();
        while self.tail.len() > 1 && bytes > TAIL_BYTES {
            let Some(dropped) = self.tail.pop_front() else { break };
            bytes -= dropped.text.len();
        }
        if let (Some(first), Some((start, _))) = (self.tail.front(), &mut self.span) {
            *start = first.start;
        }
    }

    fn page(&mut self, after: u64) -> Arc<Page> {
        if let Some(page) = self.pages.get(&after).and_then(Weak::upgrade) {
            return page;
        }
        if self.pages.len() >= PAGES {
            self.pages.retain(|_, page| page.strong_count() > 0);
        }
        let page = Arc::new(Page::new());
        self.pages.insert(after, Arc::downgrade(&page));
        page
    }
}

fn found(after: u64, page: &EventPage) -> Look {
    if page.frames.is_empty() {
        Look::Nothing(Tip::of(page))
    } else {
        Look::Frames(Held::of(Arc::new(Batch::of(after, page))))
    }
}

/// Nothing panics while a lock is held, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
