use std::time::Duration;

use rand::RngExt as _;
use tokio::time::Instant;
use trestle_domain::{Disposition, Failure, Lane, disposition};

/// Whether a failed attempt is worth another. Every call of this process may arrive twice without acting
/// twice, so overload, internal errors and answers that cannot be read are tried again too.
pub(crate) fn is_worth_another(failure: Failure) -> bool {
    disposition(Lane::Control, failure) == Disposition::Retry
        || matches!(failure, Failure::Body | Failure::Status(408 | 425 | 429 | 500))
}

/// Whether a failure may be an outage: nobody answered, or somebody who stands in for the server did.
fn is_outage(failure: Failure) -> bool {
    matches!(failure, Failure::Transport | Failure::Status(429 | 502..=504))
}

/// How often and how far apart attempts are made.
#[derive(Debug, Clone)]
pub(crate) struct RetryPolicy {
    waits: Vec<Duration>,
    longest_asked_for: Duration,
    outage: Duration,
}

impl RetryPolicy {
    /// These waits between attempts; through an outage the last one is repeated for as long as `outage`,
    /// which is the length of the lease: what is shorter loses nothing.
    pub(crate) fn new(waits: Vec<Duration>, longest_asked_for: Duration, outage: Duration) -> Self {
        Self { waits, longest_asked_for, outage }
    }

    /// A single attempt.
    pub(crate) fn none() -> Self {
        Self::new(Vec::new(), Duration::ZERO, Duration::ZERO)
    }

    /// The attempts of one call, counted from now.
    pub(crate) fn begin(&self) -> Attempts {
        Attempts { policy: self.clone(), failed: 0, since: Instant::now() }
    }
}

/// The attempts of one call so far.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    failed: usize,
    since: Instant,
}

impl Attempts {
    /// The pause before the next attempt, after one that failed; `None` when there shall be no more.
    /// Half of a pause is random, so that many clients of one server do not come back in step; what
    /// the server asks for is the least.
    pub(crate) fn pause(&mut self, failure: Failure, asked_for: Option<Duration>) -> Option<Duration> {
        let policy = &self.policy;
        let goes_on = is_outage(failure) && self.since.elapsed() < policy.outage;
        let wait = match policy.waits.get(self.failed) {
            Some(wait) => *wait,
            None if goes_on => *policy.waits.last()?,
            None => return None,
        };
        self.failed += 1;
        let half = wait / 2;
        let jittered = half + half.mul_f64(rand::rng().random_range(0.0..=1.0));
        Some(jittered.max(asked_for.unwrap_or_default().min(policy.longest_asked_for)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_repeat_may_mend_is_repeated_and_an_answer_of_the_server_is_not() {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(is_worth_another(Failure::Status(status)), "{status}");
        }
        for status in [400, 401, 402, 403, 404, 409, 410, 413, 422, 501] {
            assert!(!is_worth_another(Failure::Status(status)), "{status}");
        }
        assert!(is_worth_another(Failure::Transport) && is_worth_another(Failure::Body));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_jittered_bounded_and_respect_retry_after() {
        let seconds = Duration::from_secs;
        let policy = RetryPolicy::new(vec![seconds(2), seconds(4)], seconds(30), Duration::ZERO);
        for _ in 0..200 {
            let wait = policy.begin().pause(Failure::Status(500), None).unwrap();
            assert!((seconds(1)..=seconds(2)).contains(&wait), "{wait:?}");
        }
        let mut attempts = policy.begin();
        assert_eq!(attempts.pause(Failure::Transport, Some(seconds(9))), Some(seconds(9)));
        assert_eq!(attempts.pause(Failure::Transport, Some(seconds(3_600))), Some(seconds(30)));
        assert_eq!(attempts.pause(Failure::Transport, None), None);
        assert_eq!(RetryPolicy::none().begin().pause(Failure::Transport, None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_sat_out_for_as_long_as_the_lease_and_an_error_of_the_server_is_not() {
        let seconds = Duration::from_secs;
        let policy = RetryPolicy::new(vec![seconds(1), seconds(10)], seconds(30), seconds(90));
        let mut attempts = policy.begin();
        let (mut count, since) = (0, Instant::now());
        while let Some(wait) = attempts.pause(Failure::Status(503), None) {
            tokio::time::sleep(wait).await;
            count += 1;
        }
        assert!(since.elapsed() >= seconds(90) && since.elapsed() <= seconds(101), "{:?}", since.elapsed());
        assert!((9..=20).contains(&count), "{count}");
        let mut attempts = policy.begin();
        let count = std::iter::from_fn(|| attempts.pause(Failure::Status(500), None)).count();
        assert_eq!(count, 2);
    }
}
