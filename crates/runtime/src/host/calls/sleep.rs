use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use trestle_contract::host::{SleepArg, SleepParams};
use trestle_domain::MAX_SLEEP_MS;

use super::{Capabilities, HostFailure};

/// A timer stands still while the machine sleeps; looking at a clock that does not, this often, makes
/// up for it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Capabilities {
    /// Waits. Ends early only with the run.
    pub(super) async fn sleep(&self, params: SleepParams) -> Result<(), HostFailure> {
        self.budget.park()?;
        let length_ms = match params.arg {
            SleepArg::Milliseconds(length) | SleepArg::Duration { duration_ms: length } => whole_ms(length),
            SleepArg::Until { until } => {
                let until = parse_time(until.as_str())?;
                until.as_millisecond().saturating_sub(self.wall.now_ms())
            }
        };
        if length_ms > MAX_SLEEP_MS {
            return Err(HostFailure::invalid("a sleep may last at most 7 days")
                .with_hint("sleep several times, or let a schedule start the workflow again")
                .with_detail(&serde_json::json!({ "kind": "sleep_cap", "maxMs": MAX_SLEEP_MS })));
        }
        let until_ms = self.boot.now_ms().saturating_add(length_ms);
        loop {
            let left = until_ms.saturating_sub(self.boot.now_ms());
            let Ok(left) = u64::try_from(left) else { return Ok(()) };
            if left == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(left).min(LOOK_EVERY)).await;
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a float beyond the range saturates, and is over the cap")]
fn whole_ms(length: f64) -> i64 {
    length.ceil() as i64
}

/// An ISO 8601 time. Without a zone it is UTC, as everything else in a run.
fn parse_time(text: &str) -> Result<Timestamp, HostFailure> {
    let text = text.trim();
    let utc = |civil: DateTime| TimeZone::UTC.to_timestamp(civil).ok();
    text.parse::<Timestamp>()
        .ok()
        .or_else(|| text.parse::<DateTime>().ok().and_then(utc))
        .or_else(|| {
            text.parse::<Date>().ok().and_then(|date| utc(date.to_datetime(jiff::civil::Time::midnight())))
        })
        .ok_or_else(|| {
            HostFailure::invalid(format!("{text:?} is no time"))
                .with_hint("write it as ISO 8601, for example 2030-01-31T08:00:00Z")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let at = |text: &str| parse_time(text).unwrap().as_millisecond();
        assert_eq!(at("1970-01-01T00:00:01Z"), 1_000);
        assert_eq!(at("1970-01-01T01:00:01.500+01:00"), 1_500);
        assert_eq!(at("1970-01-01T00:00:02"), 2_000);
        assert_eq!(at("1970-01-02"), 86_400_000);
        assert_eq!(parse_time("tomorrow").unwrap_err().code(), "VALIDATION_FAILED");
        assert_eq!(parse_time("").unwrap_err().code(), "VALIDATION_FAILED");
    }

    #[test]
    fn a_part_of_a_millisecond_is_waited_for() {
        assert_eq!((whole_ms(0.0), whole_ms(0.2), whole_ms(5.0)), (0, 1, 5));
        assert_eq!(whole_ms(1e300), i64::MAX);
    }
}
