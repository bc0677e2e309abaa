use std::time::Duration;

use rand::RngExt as _;
use trestle_domain::{Disposition, Failure, Lane, disposition};

/// Which failures of an endpoint are worth another attempt, beyond what holds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retryable {
    /// A repeat changes nothing that the first one has not changed: also overload, internal errors
    /// and answers that broke off are tried again.
    Repeatable,
    /// A repeat may act twice: only failures before or instead of the server's own answer.
    Once,
}

impl Retryable {
    pub(crate) fn is_worth_another(self, failure: Failure) -> bool {
        if disposition(Lane::Control, failure) == Disposition::Retry {
            return true;
        }
        match (self, failure) {
            (Self::Repeatable, Failure::Body | Failure::Status(408 | 425 | 429 | 500)) => true,
            (Self::Once, _) | (Self::Repeatable, Failure::Status(_) | Failure::Transport) => false,
        }
    }
}

/// How often and how far apart attempts are made.
#[derive(Debug, Clone)]
pub(crate) struct RetryPolicy {
    waits: Vec<Duration>,
    longest_asked_for: Duration,
}

impl RetryPolicy {
    pub(crate) fn new(waits: Vec<Duration>, longest_asked_for: Duration) -> Self {
        Self { waits, longest_asked_for }
    }

    /// A single attempt.
    pub(crate) fn none() -> Self {
        Self { waits: Vec::new(), longest_asked_for: Duration::ZERO }
    }

    /// The pause before attempt `attempt` (the first one is 0); `None` when there shall be no more.
    /// Half of a pause is random, so that many clients of one server do not come back in step; what
    /// the server asks for is the least.
    pub(crate) fn wait_before(&self, attempt: usize, asked_for: Option<Duration>) -> Option<Duration> {
        let wait = *self.waits.get(attempt.checked_sub(1)?)?;
        let half = wait / 2;
        let jittered = half + half.mul_f64(rand::rng().random_range(0.0..=1.0));
        Some(jittered.max(asked_for.unwrap_or_default().min(self.longest_asked_for)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_is_retried_only_where_a_repeat_is_harmless() {
        for status in [408, 425, 429, 500] {
            assert!(Retryable::Repeatable.is_worth_another(Failure::Status(status)), "{status}");
            assert!(!Retryable::Once.is_worth_another(Failure::Status(status)), "{status}");
        }
        for status in [502, 503, 504] {
            assert!(Retryable::Once.is_worth_another(Failure::Status(status)), "{status}");
        }
        for status in [400, 401, 402, 403, 404, 409, 410, 413, 422, 501] {
            assert!(!Retryable::Repeatable.is_worth_another(Failure::Status(status)), "{status}");
        }
        assert!(Retryable::Once.is_worth_another(Failure::Transport));
        assert!(!Retryable::Once.is_worth_another(Failure::Body));
    }

    #[test]
    fn waits_are_jittered_bounded_and_respect_retry_after() {
        let seconds = Duration::from_secs;
        let policy = RetryPolicy::new(vec![seconds(2), seconds(4)], seconds(30));
        for _ in 0..200 {
            let wait = policy.wait_before(1, None).unwrap();
            assert!((seconds(1)..=seconds(2)).contains(&wait), "{wait:?}");
        }
        assert_eq!(policy.wait_before(2, Some(seconds(9))), Some(seconds(9)));
        assert_eq!(policy.wait_before(2, Some(seconds(3_600))), Some(seconds(30)));
        assert_eq!(policy.wait_before(3, None), None);
        assert_eq!(RetryPolicy::none().wait_before(1, None), None);
    }
}
