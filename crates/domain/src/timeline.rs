/// How hard a cancelled run is being ended at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelStage {
    /// Host calls, streams, shells and sleeps are aborted and the program is notified.
    Abort,
    /// The process tree was asked to terminate (TERM).
    Terminate,
    /// The process tree is killed (KILL).
    Kill,
}

/// When each step of a cancel happens, in milliseconds after the answer that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelTimeline {
    /// All work in flight is aborted by then.
    pub aborted_by_ms: i64,
    /// TERM is sent.
    pub terminate_ms: i64,
    /// KILL is sent.
    pub kill_ms: i64,
    /// The run is `cancelled` by then.
    pub settled_by_ms: i64,
}

impl Default for CancelTimeline {
    fn default() -> Self {
        Self { aborted_by_ms: 1_000, terminate_ms: 5_000, kill_ms: 7_000, settled_by_ms: 8_000 }
    }
}

impl CancelTimeline {
    /// The same steps `divisor` times as fast; for tests. A divisor of 0 counts as 1.
    pub fn scaled(self, divisor: i64) -> Self {
        let divisor = divisor.max(1);
        Self {
            aborted_by_ms: self.aborted_by_ms / divisor,
            terminate_ms: self.terminate_ms / divisor,
            kill_ms: self.kill_ms / divisor,
            settled_by_ms: self.settled_by_ms / divisor,
        }
    }

    /// The stage that holds `elapsed_ms` after the cancel arrived.
    pub fn stage(&self, elapsed_ms: i64) -> CancelStage {
        if elapsed_ms >= self.kill_ms {
            CancelStage::Kill
        } else if elapsed_ms >= self.terminate_ms {
            CancelStage::Terminate
        } else {
            CancelStage::Abort
        }
    }

    /// Milliseconds until the next stage, or none when the last one holds.
    pub fn until_next(&self, elapsed_ms: i64) -> Option<i64> {
        match self.stage(elapsed_ms) {
            CancelStage::Abort => Some(self.terminate_ms - elapsed_ms),
            CancelStage::Terminate => Some(self.kill_ms - elapsed_ms),
            CancelStage::Kill => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_escalates_at_five_and_seven_seconds() {
        let timeline = CancelTimeline::default();
        for (elapsed, stage, next) in [
            (0, CancelStage::Abort, Some(5_000)),
            (4_999, CancelStage::Abort, Some(1)),
            (5_000, CancelStage::Terminate, Some(2_000)),
            (6_999, CancelStage::Terminate, Some(1)),
            (7_000, CancelStage::Kill, None),
            (60_000, CancelStage::Kill, None),
        ] {
            assert_eq!(timeline.stage(elapsed), stage, "{elapsed}");
            assert_eq!(timeline.until_next(elapsed), next, "{elapsed}");
        }
        assert!(timeline.kill_ms < timeline.settled_by_ms);
    }

    #[test]
    fn a_scaled_timeline_keeps_its_order() {
        let timeline = CancelTimeline::default().scaled(50);
        assert_eq!((timeline.terminate_ms, timeline.kill_ms), (100, 140));
        assert_eq!(CancelTimeline::default().scaled(0), CancelTimeline::default());
    }
}
