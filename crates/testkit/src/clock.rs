//! Time in tests: one divisor for every interval, clocks that are moved by hand, and waiting on conditions.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

pub use trestle_domain::ManualClock;
use trestle_domain::{Clock, WallClock};

/// Divides every interval of a test by the same number, so that their order stays what it is in production.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeScale(u32);

impl TimeScale {
    /// As in production.
    pub const REAL: TimeScale = TimeScale(1);
    /// What tests of faults run at: fifty times faster.
    pub const FAULTS: TimeScale = TimeScale(50);

    /// A scale by this divisor; 0 counts as 1.
    pub const fn divided_by(divisor: u32) -> Self {
        Self(if divisor == 0 { 1 } else { divisor })
    }

    /// The divisor.
    pub const fn divisor(self) -> u32 {
        self.0
    }

    /// The interval of a test for an interval of production. One that is not zero stays at least a millisecond.
    pub fn scale(self, interval: Duration) -> Duration {
        let scaled = interval / self.0;
        if interval.is_zero() { interval } else { scaled.max(Duration::from_millis(1)) }
    }

    /// As [`TimeScale::scale`], in milliseconds.
    pub fn scale_ms(self, milliseconds: u64) -> u64 {
        u64::try_from(self.scale(Duration::from_millis(milliseconds)).as_millis()).unwrap_or(u64::MAX)
    }

    /// The time of production that a measured time of a test stands for.
    pub fn unscale(self, measured: Duration) -> Duration {
        measured * self.0
    }
}

/// A clock that lies: it stands still or is off by some time, while the clock behind it goes on.
pub struct LyingClock<C = WallClock> {
    truth: C,
    offset_ms: AtomicI64,
    stands: AtomicBool,
    stands_at_ms: AtomicI64,
}

impl<C: Clock> LyingClock<C> {
    /// A clock that tells the truth until it is told to lie.
    pub fn new(truth: C) -> Self {
        Self {
            truth,
            offset_ms: AtomicI64::new(0),
            stands: AtomicBool::new(false),
            stands_at_ms: AtomicI64::new(0),
        }
    }

    /// From now on it is off by so much more; negative values set it back.
    pub fn jump(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// From now on it stands still.
    pub fn stop(&self) {
        self.stands_at_ms.store(self.now_ms(), Ordering::SeqCst);
        self.stands.store(true, Ordering::SeqCst);
    }

    /// From now on it tells the truth again.
    pub fn tell_the_truth(&self) {
        self.offset_ms.store(0, Ordering::SeqCst);
        self.stands.store(false, Ordering::SeqCst);
    }
}

impl<C: Clock> Clock for LyingClock<C> {
    fn now_ms(&self) -> i64 {
        if self.stands.load(Ordering::SeqCst) {
            self.stands_at_ms.load(Ordering::SeqCst)
        } else {
            self.truth.now_ms().saturating_add(self.offset_ms.load(Ordering::SeqCst))
        }
    }
}

impl<C> fmt::Debug for LyingClock<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LyingClock").field("offset_ms", &self.offset_ms).finish_non_exhaustive()
    }
}

/// Something that a test waited for did not happen in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not within {limit:?}: {what}")]
pub struct NotInTime {
    /// What was waited for.
    pub what: String,
    /// For how long.
    pub limit: Duration,
}

/// Waits for a future, but no longer than the limit.
///
/// # Errors
/// [`NotInTime`] with the description of what was waited for.
pub async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output, NotInTime> {
    tokio::time::timeout(limit, future).await.map_err(|_| NotInTime { what: what.to_owned(), limit })
}

/// Waits until a condition holds that nothing announces (a file, a process), looking every few milliseconds.
///
/// # Errors
/// [`NotInTime`] with the description of what was waited for.
pub async fn until(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> Result<(), NotInTime> {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    within(limit, what, async {
        loop {
            looks.tick().await;
            if condition() {
                return;
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_keeps_the_order_of_intervals() {
        let scale = TimeScale::FAULTS;
        assert_eq!(scale.scale(Duration::from_secs(90)), Duration::from_millis(1800));
        assert_eq!(scale.scale_ms(5_000), 100);
        assert_eq!(scale.scale(Duration::from_millis(3)), Duration::from_millis(1));
        assert_eq!(scale.scale(Duration::ZERO), Duration::ZERO);
        assert_eq!(scale.unscale(Duration::from_millis(100)), Duration::from_secs(5));
        assert_eq!(TimeScale::REAL.scale_ms(7), 7);
        assert_eq!(TimeScale::divided_by(0), TimeScale::REAL);
    }

    #[test]
    fn a_lying_clock_jumps_and_stands_while_the_truth_goes_on() {
        let truth = std::sync::Arc::new(ManualClock::new(1_000));
        let clock = LyingClock::new(std::sync::Arc::clone(&truth));
        assert_eq!(clock.now_ms(), 1_000);
        clock.jump(-400);
        assert_eq!(clock.now_ms(), 600);
        clock.stop();
        truth.advance(5_000);
        assert_eq!(clock.now_ms(), 600);
        clock.tell_the_truth();
        assert_eq!(clock.now_ms(), 6_000);
    }

    #[tokio::test]
    async fn waiting_ends_with_the_condition_or_with_its_name() {
        let mut looks = 0;
        until(Duration::from_secs(5), "three looks", || {
            looks += 1;
            looks == 3
        })
        .await
        .unwrap();
        let error = until(Duration::from_millis(20), "pigs to fly", || false).await.unwrap_err();
        assert!(error.to_string().contains("pigs to fly"));
        assert_eq!(within(Duration::from_secs(1), "a value", async { 7 }).await, Ok(7));
    }
}
