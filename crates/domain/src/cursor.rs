/// Cursors per block: `cursor = block · 1,000,000 + seq` with `1 ≤ seq ≤ 999,999`. See
/// `docs/protocol/events.md §2`.
pub const CURSOR_STRIDE: u64 = 1_000_000;

/// How long a reader waits for a cursor that is missing below what it could show: a sender
/// that lost a frame for good must not stop the stream.
pub const CURSOR_GAP_MS: i64 = 3_000;

/// The place of one frame in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The cursor beside the event.
    pub cursor: u64,
    /// The `seq` inside the event.
    pub seq: u64,
}

/// Hands out the cursors of one run; one allocator per session, shared by all its senders.
///
/// ```
/// use trestle_domain::CursorAllocator;
/// let mut cursors = CursorAllocator::resume_after(0);
/// assert_eq!(cursors.next().cursor, 1);
/// assert_eq!(cursors.begin_turn().cursor, 1_000_001);
/// assert_eq!(CursorAllocator::resume_after(2_000_004).next().cursor, 3_000_001);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorAllocator {
    block: u64,
    seq: u64,
}

impl CursorAllocator {
    /// An allocator that sorts after everything stored: `highest` is the run's highest stored
    /// cursor, 0 for none.
    pub const fn resume_after(highest: u64) -> Self {
        let block = if highest == 0 { 0 } else { highest / CURSOR_STRIDE + 1 };
        Self { block, seq: 0 }
    }

    /// The place of the next frame. A full block rolls over into a new one.
    #[allow(clippy::should_implement_trait, reason = "cursors never end, so this is no iterator")]
    pub fn next(&mut self) -> Stamp {
        if self.seq + 1 >= CURSOR_STRIDE {
            self.block += 1;
            self.seq = 0;
        }
        self.seq += 1;
        Stamp { cursor: self.block.saturating_mul(CURSOR_STRIDE).saturating_add(self.seq), seq: self.seq }
    }

    /// Opens a new block and returns the place of its first frame, which is the `turn_started`.
    pub fn begin_turn(&mut self) -> Stamp {
        self.block += 1;
        self.seq = 0;
        self.next()
    }
}

/// Where the terminal frame of a run goes: the first place of the block after the highest
/// cursor, so that frames which arrive late keep lower cursors.
pub const fn terminal_cursor(highest: u64) -> Stamp {
    Stamp { cursor: (highest / CURSOR_STRIDE + 1) * CURSOR_STRIDE + 1, seq: 1 }
}

/// In which order a session's frames reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The sender has one batch in flight at a time: a new block says that the last one is
    /// complete.
    InOrder,
    /// Batches may overtake each other: the end of a block may come after the start of the
    /// next one.
    AnyOrder,
}

/// Whether a stored frame may be shown to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It may; the watermark has passed it.
    Shown,
    /// A frame below it may still arrive: look again at this time (ms, the store's clock).
    Until(i64),
}

/// The highest cursor that readers may see. Below it no frame can appear any more that they
/// would miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    passed: u64,
}

impl Watermark {
    /// A watermark that stands at `passed` (0: nothing shown yet).
    pub const fn at(passed: u64) -> Self {
        Self { passed }
    }

    /// The highest cursor that was shown.
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    /// Offers the next stored frame in cursor order, which was stored at `stored_ms`. When it
    /// may be shown the watermark moves to it.
    pub fn offer(&mut self, cursor: u64, stored_ms: i64, delivery: Delivery, now_ms: i64) -> Visibility {
        let ready_ms = stored_ms.saturating_add(CURSOR_GAP_MS);
        if follows(self.passed, cursor, delivery) || now_ms >= ready_ms {
            self.passed = self.passed.max(cursor);
            Visibility::Shown
        } else {
            Visibility::Until(ready_ms)
        }
    }
}

/// Whether nothing can lie between two neighbouring cursors of the store.
fn follows(previous: u64, next: u64, delivery: Delivery) -> bool {
    if next <= previous.saturating_add(1) {
        return true;
    }
    let starts_block = next % CURSOR_STRIDE == 1;
    let blocks_apart = (next / CURSOR_STRIDE).saturating_sub(previous / CURSOR_STRIDE);
    let block_full = previous % CURSOR_STRIDE == CURSOR_STRIDE - 1;
    starts_block && (previous == 0 || blocks_apart == 1) && (delivery == Delivery::InOrder || block_full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_block_rolls_over_before_it_overflows() {
        let mut cursors = CursorAllocator { block: 3, seq: CURSOR_STRIDE - 2 };
        assert_eq!(cursors.next(), Stamp { cursor: 3_999_999, seq: 999_999 });
        assert_eq!(cursors.next(), Stamp { cursor: 4_000_001, seq: 1 });
    }

    #[test]
    fn a_new_run_starts_at_one_and_a_resumed_one_in_a_new_block() {
        assert_eq!(CursorAllocator::resume_after(0).next(), Stamp { cursor: 1, seq: 1 });
        assert_eq!(CursorAllocator::resume_after(1).next(), Stamp { cursor: 1_000_001, seq: 1 });
        assert_eq!(CursorAllocator::resume_after(0).begin_turn(), Stamp { cursor: 1_000_001, seq: 1 });
    }

    #[test]
    fn the_terminal_frame_opens_the_block_after_the_highest() {
        assert_eq!(terminal_cursor(0), Stamp { cursor: 1_000_001, seq: 1 });
        assert_eq!(terminal_cursor(2_999_999), Stamp { cursor: 3_000_001, seq: 1 });
        assert_eq!(terminal_cursor(3_000_001), Stamp { cursor: 4_000_001, seq: 1 });
    }

    #[test]
    fn a_gap_stops_readers_for_three_seconds_and_no_longer() {
        let mut mark = Watermark::at(5);
        assert_eq!(mark.offer(7, 1_000, Delivery::InOrder, 1_000), Visibility::Until(4_000));
        assert_eq!(mark.offer(7, 1_000, Delivery::InOrder, 3_999), Visibility::Until(4_000));
        assert_eq!(mark.passed(), 5);
        assert_eq!(mark.offer(7, 1_000, Delivery::InOrder, 4_000), Visibility::Shown);
        assert_eq!(mark.passed(), 7);
    }

    #[test]
    fn a_new_block_is_a_gap_only_when_batches_may_overtake() {
        let shown = |previous, next, delivery| {
            Watermark::at(previous).offer(next, 0, delivery, 0) == Visibility::Shown
        };
        assert!(shown(0, 1, Delivery::AnyOrder));
        assert!(shown(0, 1_000_001, Delivery::InOrder));
        assert!(!shown(0, 1_000_001, Delivery::AnyOrder));
        assert!(shown(5, 1_000_001, Delivery::InOrder));
        assert!(!shown(5, 1_000_001, Delivery::AnyOrder));
        assert!(shown(999_999, 1_000_001, Delivery::AnyOrder));
        assert!(!shown(5, 1_000_002, Delivery::InOrder));
        assert!(!shown(5, 2_000_001, Delivery::InOrder), "a whole block is missing");
        assert!(!shown(0, 2, Delivery::InOrder));
    }

    proptest! {
        #[test]
        fn cursors_strictly_increase_over_turns_and_sessions(
            start in 0_u64..5_000_000, steps in prop::collection::vec(0_u8..4, 1..200), near_end in any::<bool>(),
        ) {
            let mut highest = start;
            let mut cursors = CursorAllocator::resume_after(start);
            if near_end {
                cursors.seq = CURSOR_STRIDE - 50;
            }
            for step in steps {
                let stamp = match step {
                    0 => cursors.begin_turn(),
                    1 => {
                        cursors = CursorAllocator::resume_after(highest);
                        cursors.next()
                    }
                    _ => cursors.next(),
                };
                prop_assert!(stamp.cursor > highest);
                prop_assert_eq!(stamp.cursor % CURSOR_STRIDE, stamp.seq);
                prop_assert!((1..CURSOR_STRIDE).contains(&stamp.seq));
                highest = stamp.cursor;
            }
            prop_assert!(terminal_cursor(highest).cursor > highest);
        }

        /// Batches of a session arrive in any order, each within the waiting time; a reader
        /// that reads up to the watermark at every instant sees each frame once, in order.
        #[test]
        fn a_reader_up_to_the_watermark_misses_nothing(
            turns in prop::collection::vec(any::<bool>(), 1..40),
            delays in prop::collection::vec(0_i64..CURSOR_GAP_MS, 40),
            looks in prop::collection::vec(0_i64..4_000, 1..30),
        ) {
            let mut cursors = CursorAllocator::resume_after(0);
            let mut frames: Vec<(u64, i64)> = Vec::new();
            for (index, turn) in turns.iter().enumerate() {
                let stamp = if *turn { cursors.begin_turn() } else { cursors.next() };
                frames.push((stamp.cursor, delays[index]));
            }
            let mut looks = looks;
            looks.sort_unstable();
            looks.push(20_000);
            let mut mark = Watermark::default();
            let mut seen = Vec::new();
            for now in looks {
                let visible: Vec<_> = frames.iter().filter(|(cursor, at)| *at <= now && *cursor > mark.passed()).copied().collect();
                for (cursor, stored) in visible {
                    if mark.offer(cursor, stored, Delivery::AnyOrder, now) != Visibility::Shown {
                        break;
                    }
                    seen.push(cursor);
                }
            }
            prop_assert_eq!(seen, frames.iter().map(|(cursor, _)| *cursor).collect::<Vec<_>>());
        }
    }
}
