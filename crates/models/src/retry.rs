//! When a failed attempt is made again, and after how long.

use std::time::{Duration, SystemTime};

use rand::RngExt;
use reqwest::header::HeaderMap;

/// How a turn is tried, and how long it may be silent.
#[derive(Debug, Clone)]
pub struct TurnPolicy {
    /// Requests of one turn, the first included.
    pub attempts: u32,
    /// How many of them may follow an answer of which a part was already delivered; each is announced by
    /// [`ModelEvent::Restarted`](crate::ModelEvent::Restarted).
    pub restarts: u32,
    /// First step of the back-off; it doubles with each attempt, and the wait is drawn evenly between zero and it.
    pub backoff: Duration,
    /// The longest back-off.
    pub longest_backoff: Duration,
    /// The longest wait that a provider may ask for; a longer one fails the turn with its length in the message.
    pub longest_retry_after: Duration,
    /// The longest silence before and within an answer.
    pub idle: Duration,
    /// The longest time that one turn may take with all attempts.
    pub deadline: Duration,
    /// The largest event of a stream, in bytes.
    pub largest_event: usize,
}

impl Default for TurnPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            restarts: 0,
            backoff: Duration::from_millis(500),
            longest_backoff: Duration::from_secs(20),
            longest_retry_after: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            deadline: Duration::from_secs(3600),
            largest_event: 16 * 1024 * 1024,
        }
    }
}

impl TurnPolicy {
    /// How long to wait before attempt `next` (2 for the first repetition).
    pub(crate) fn wait(&self, next: u32, retry_after: Option<Duration>) -> Duration {
        let step = self
            .backoff
            .saturating_mul(1_u32.checked_shl(next.saturating_sub(2)).unwrap_or(u32::MAX))
            .min(self.longest_backoff);
        let jitter = step.mul_f64(rand::rng().random::<f64>());
        match retry_after {
            // The asked time is the least; the jitter on top keeps many clients apart.
            Some(asked) => asked + jitter.min(self.backoff),
            None => jitter,
        }
    }
}

/// The wait that a provider asks for: milliseconds, seconds, or a date, which is measured against the answer's own date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    let asked = text("retry-after")?;
    if let Ok(seconds) = asked.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let until: SystemTime = date(asked)?;
    Some(until.duration_since(date(text("date")?)?).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_retry_after_is_read() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        let later = "Wed, 21 Oct 2015 07:28:30 GMT";
        let table = [
            (vec![("retry-after", "2")], Some(2_000)),
            (vec![("retry-after", "0.5")], Some(500)),
            (vec![("retry-after-ms", "1500"), ("retry-after", "9")], Some(1_500)),
            (vec![("retry-after", later), ("date", date)], Some(30_000)),
            (vec![("retry-after", date), ("date", later)], Some(0)),
            (vec![("retry-after", later)], None),
            (vec![("retry-after", "soon")], None),
            (vec![("retry-after", "-3")], None),
            (vec![], None),
        ];
        for (headers, want) in table {
            let map: HeaderMap =
                headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(retry_after(&map), want.map(Duration::from_millis), "{headers:?}");
        }
    }

    proptest! {
        #[test]
        fn waits_stay_within_their_doubling_step_and_never_below_what_was_asked(next in 2u32..60, asked in proptest::option::of(0u64..60_000)) {
            let policy = TurnPolicy::default();
            let asked = asked.map(Duration::from_millis);
            let wait = policy.wait(next, asked);
            match asked {
                Some(asked) => prop_assert!(wait >= asked && wait <= asked + policy.backoff),
                None => prop_assert!(wait <= policy.longest_backoff && wait <= policy.backoff.saturating_mul(1 << (next - 2).min(20))),
            }
        }
    }
}
