//! Why a run is being ended before its program ended by itself, and who needs to know.

use tokio::sync::watch;

/// Why the run is being ended from outside, in the order of precedence: a later one replaces an
/// earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AbortReason {
    /// The control plane asked for it. The first of these three stays.
    Cancelled,
    /// The organisation has no credit left.
    CreditExhausted,
    /// The run passed a limit of its budget that was looked at while the program ran.
    BudgetExceeded,
    /// The runner asks the run process to stop: the run is given back.
    Shutdown,
    /// The runner is gone: everything ends within two seconds.
    RunnerGone,
    /// The run belongs to somebody else now, or may: nothing is written any more.
    LeaseLost,
}

impl AbortReason {
    /// The word for it on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::CreditExhausted => "credit_exhausted",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Shutdown | Self::RunnerGone => "shutdown",
            Self::LeaseLost => "lease_lost",
        }
    }

    /// Whether the run's end is written by this process (`docs/protocol/control.md` §14).
    pub(crate) fn is_finalized_here(self) -> bool {
        matches!(self, Self::Cancelled | Self::CreditExhausted | Self::BudgetExceeded)
    }

    fn replaces(self, earlier: Self) -> bool {
        !(self.is_finalized_here() && earlier.is_finalized_here()) && self > earlier
    }
}

/// The one place that knows whether the run goes on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Abort {
    reason: watch::Sender<Option<AbortReason>>,
}

impl Default for Abort {
    fn default() -> Self {
        Self { reason: watch::Sender::new(None) }
    }
}

impl Abort {
    /// Asks for the end of the run.
    pub(crate) fn request(&self, reason: AbortReason) {
        let changed = self.reason.send_if_modified(|current| {
            let wins = current.is_none_or(|earlier| reason.replaces(earlier));
            if wins {
                *current = Some(reason);
            }
            wins
        });
        if changed {
            tracing::info!(reason = reason.word(), "the run is being ended");
        }
    }

    /// The reason, once there is one.
    pub(crate) fn reason(&self) -> Option<AbortReason> {
        *self.reason.borrow()
    }

    /// Waits for a reason.
    pub(crate) async fn wait(&self) -> AbortReason {
        self.wait_until(|_| true).await
    }

    /// Waits for a reason that replaces the given one.
    pub(crate) async fn wait_beyond(&self, known: AbortReason) -> AbortReason {
        self.wait_until(|reason| reason != known).await
    }

    /// Waits for a reason of a certain kind.
    pub(crate) async fn wait_until(&self, wanted: impl Fn(AbortReason) -> bool) -> AbortReason {
        let mut seen = self.reason.subscribe();
        loop {
            match *seen.borrow_and_update() {
                Some(reason) if wanted(reason) => return reason,
                _ => {}
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The result of `work`, or the reason if the run is ended first; `work` is dropped then.
    pub(crate) async fn race<T>(&self, work: impl Future<Output = T>) -> Result<T, AbortReason> {
        tokio::select! {
            biased;
            reason = self.wait() => Err(reason),
            result = work => Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_equal_causes_stays_and_a_lost_lease_wins() {
        let abort = Abort::default();
        assert_eq!(abort.reason(), None);
        abort.request(AbortReason::CreditExhausted);
        abort.request(AbortReason::Cancelled);
        abort.request(AbortReason::BudgetExceeded);
        assert_eq!(abort.reason(), Some(AbortReason::CreditExhausted));
        abort.request(AbortReason::LeaseLost);
        abort.request(AbortReason::RunnerGone);
        assert_eq!(abort.reason(), Some(AbortReason::LeaseLost));
    }

    #[tokio::test]
    async fn work_in_flight_is_dropped_by_an_abort_and_new_work_does_not_start() {
        let abort = Abort::default();
        let (result, ()) = tokio::join!(abort.race(std::future::pending::<()>()), async {
            abort.request(AbortReason::Cancelled);
        });
        assert_eq!(result, Err(AbortReason::Cancelled));
        assert_eq!(abort.race(async { 1 }).await, Err(AbortReason::Cancelled));
    }
}
