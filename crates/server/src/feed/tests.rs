use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use proptest::prelude::*;
use trestle_contract::event::{Cursor, EventFrame};
use trestle_store::StoreError;

use super::*;

/// Events in memory, which count how often they are read.
#[derive(Default)]
struct Log {
    frames: Mutex<Vec<EventFrame>>,
    reads: AtomicUsize,
    now: AtomicI64,
    held_until: Mutex<Option<i64>>,
    done: Mutex<bool>,
    failing: Mutex<bool>,
}

#[async_trait::async_trait]
impl Source for Log {
    async fn read(&self, _: &RunId, after: u64, limit: u32) -> StoreResult<EventPage> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        // Whoever asks at the same time gets the chance to.
        tokio::task::yield_now().await;
        if *lock(&self.failing) {
            return Err(StoreError::Unavailable("planted".to_owned()));
        }
        let frames = lock(&self.frames);
        let later = frames.iter().filter(|frame| frame.cursor.get() > after);
        let page: Vec<EventFrame> = later.clone().take(limit as usize).cloned().collect();
        let more = later.count() > page.len();
        Ok(EventPage {
            resume_after: page.last().map_or(after, |frame| frame.cursor.get()),
            frames: page,
            done: *lock(&self.done) && !more,
            more,
            held_until: *lock(&self.held_until),
        })
    }

    async fn last_cursor(&self, _: &RunId) -> StoreResult<u64> {
        Ok(lock(&self.frames).last().map_or(0, |frame| frame.cursor.get()))
    }

    fn now_ms(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }
}

impl Log {
    fn append(&self, cursors: impl IntoIterator<Item = u64>, text: &str) {
        let frames = cursors.into_iter().map(|cursor| EventFrame {
            cursor: Cursor::new(cursor).unwrap(),
            kind: "program_output".into(),
            json: format!("{{\"c\":{cursor},\"text\":\"{text}\"}}").into(),
        });
        lock(&self.frames).extend(frames);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

fn feed() -> Feed {
    Feed::new(RunId::new("r").unwrap())
}

/// Follows a feed to its end, and answers the cursors in the text that it got.
async fn follow(feed: &Feed, log: &Log, mut after: u64, version: u64, limit: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Look::Frames(held) = feed.look(log, after, version).await.unwrap() {
        while let Some((text, reached)) = held.slice(after, limit) {
            let text = std::str::from_utf8(&text).unwrap().to_owned();
            seen.extend(
                text.lines()
                    .filter_map(|line| line.strip_prefix("id: "))
                    .map(|id| id.parse::<u64>().unwrap()),
            );
            assert_eq!(seen.last(), Some(&reached));
            after = reached;
            tokio::task::yield_now().await;
        }
    }
    seen
}

#[tokio::test]
async fn a_thousand_followers_cost_one_look_a_change() {
    let log = Log::default();
    let feed = feed();
    log.append(1..=10, "a");
    let everyone = || futures_util::future::join_all((0..1000).map(|_| follow(&feed, &log, 0, 1, 1 << 20)));
    for seen in everyone().await {
        assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    }
    assert_eq!(log.reads(), 1);
    let mut last = 10;
    for change in 2..=20_u64 {
        let from = change * 10;
        log.append(from..from + 3, "b");
        let before = log.reads();
        // Some are late: they start where the others were long ago.
        let readers = (0..1000_u64)
            .map(|reader| follow(&feed, &log, if reader % 10 == 0 { 5 } else { last }, change, 7));
        for (reader, seen) in futures_util::future::join_all(readers).await.into_iter().enumerate() {
            assert!(seen.ends_with(&[from, from + 1, from + 2]), "{seen:?}");
            assert!(reader % 10 != 0 || seen.starts_with(&[6, 7, 8, 9, 10]));
        }
        assert_eq!(log.reads() - before, 1, "change {change}");
        last = from + 2;
    }
}

#[tokio::test]
async fn a_long_history_is_read_once_for_those_who_read_it_together() {
    let log = Log::default();
    let feed = feed();
    log.append(1..=5_000, &"x".repeat(1000));
    let all: Vec<u64> = (1..=5_000).collect();
    let readers = (0..50).map(|_| follow(&feed, &log, 0, 1, 64 * 1024));
    for seen in futures_util::future::join_all(readers).await {
        assert!(seen == all);
    }
    // Ten pages and the end; those who come a little late to a page may read it again.
    assert!(log.reads() <= 30, "{}", log.reads());
    // What is kept for everybody is bounded, however long the history.
    let known = lock(&feed.known);
    let kept: usize = known.tail.iter().map(|batch| batch.text.len()).sum();
    assert!(known.tail.len() == 1 || kept <= TAIL_BYTES, "{kept}");
}

#[tokio::test]
async fn a_reader_from_far_ahead_takes_the_newest_frames_with_it() {
    let log = Log::default();
    let feed = feed();
    log.append(1..=3_000, "a");
    // The first one is at the beginning of the history.
    let Look::Frames(_) = feed.look(&log, 0, 1).await.unwrap() else { panic!() };
    let Look::Nothing(_) = feed.look(&log, 3_000, 1).await.unwrap() else { panic!() };
    let before = log.reads();
    for _ in 0..100 {
        assert!(matches!(feed.look(&log, 3_000, 1).await.unwrap(), Look::Nothing(_)));
    }
    assert_eq!(log.reads(), before);
    assert_eq!(follow(&feed, &log, 500, 1, 1000).await, (501..=3_000).collect::<Vec<_>>());
    // A cursor that the run never had moves nobody.
    assert!(matches!(feed.look(&log, 9_000_000, 1).await.unwrap(), Look::Nothing(_)));
    let before = log.reads();
    assert!(matches!(feed.look(&log, 3_000, 1).await.unwrap(), Look::Nothing(_)));
    assert_eq!(log.reads(), before);
}

#[tokio::test]
async fn a_held_frame_is_looked_for_again_when_its_time_has_come() {
    let log = Log::default();
    let feed = feed();
    log.append([1], "a");
    *lock(&log.held_until) = Some(100);
    assert_eq!(follow(&feed, &log, 0, 1, 1000).await, [1]);
    let before = log.reads();
    assert!(
        matches!(feed.look(&log, 1, 1).await.unwrap(), Look::Nothing(tip) if tip.held_until == Some(100))
    );
    assert_eq!(log.reads(), before);
    log.now.store(100, Ordering::SeqCst);
    log.append([5], "b");
    *lock(&log.held_until) = None;
    *lock(&log.done) = true;
    assert_eq!(follow(&feed, &log, 1, 1, 1000).await, [5]);
    assert!(matches!(feed.look(&log, 5, 1).await.unwrap(), Look::Nothing(tip) if tip.done));
}

#[tokio::test]
async fn a_failing_store_fails_one_look_and_not_the_feed() {
    let log = Log::default();
    let feed = feed();
    *lock(&log.failing) = true;
    assert!(feed.look(&log, 0, 1).await.is_err());
    *lock(&log.failing) = false;
    log.append(1..=600, "a");
    assert_eq!(follow(&feed, &log, 0, 1, 1000).await.len(), 600);
    *lock(&log.failing) = true;
    lock(&feed.known).span = Some((600, 600));
    assert!(feed.look(&log, 3, 1).await.is_err(), "a page of the history");
    *lock(&log.failing) = false;
    assert!(matches!(feed.look(&log, 3, 1).await.unwrap(), Look::Frames(_)));
}

#[test]
fn feeds_go_with_their_last_follower() {
    let feeds = Feeds::default();
    let run = RunId::new("r").unwrap();
    let first = feeds.follow(&run);
    assert!(Arc::ptr_eq(&first, &feeds.follow(&run)));
    drop(first);
    for other in 0..100 {
        feeds.follow(&RunId::new(format!("r{other}")).unwrap());
    }
    assert!(lock(&feeds.runs).len() < 70);
}

proptest! {
    /// Whoever reads from any cursor, in chunks of any size, while frames come in any portions, gets each later frame
    /// once and in order.
    #[test]
    fn nothing_is_missed_and_nothing_repeated(
        portions in prop::collection::vec(1_u64..700, 1..6),
        starts in prop::collection::vec(0_u64..2_000, 1..8),
        limit in 1_usize..5_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let log = Log::default();
            let feed = feed();
            let mut last = 0;
            let mut seen: Vec<Vec<u64>> = vec![Vec::new(); starts.len()];
            for (version, portion) in (1..).zip(&portions) {
                log.append(last + 1..=last + portion, "some text");
                last += portion;
                let readers = starts.iter().zip(&mut seen).map(|(start, seen)| {
                    let (feed, log) = (&feed, &log);
                    async move {
                        let after = seen.last().copied().unwrap_or(*start);
                        seen.extend(follow(feed, log, after, version, limit).await);
                    }
                });
                futures_util::future::join_all(readers).await;
            }
            for (start, seen) in starts.iter().zip(seen) {
                assert!(seen == (*start + 1..=last).collect::<Vec<_>>(), "after {start} of {last}");
            }
        });
    }
}
