//! Holding the run's lease, and letting go before it can have expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until};
use trestle_contract::control::RenewResponse;
use trestle_domain::{Clock, Redactor, worker_deadline};
use trestle_sandbox::slot::LeaseTerms;

use crate::abort::{Abort, AbortReason};
use crate::control::{ControlClient, ControlError, Granted};
use crate::timing::Timing;

/// Renewals that may wait for their answers at once.
const MOST_RENEWALS: usize = 4;

/// Until when this process may act for its run, on a clock that runs on while the machine sleeps.
#[derive(Clone)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    length_ms: i64,
    margin_ms: i64,
    deadline_ms: AtomicI64,
}

impl Lease {
    pub(crate) fn new(clock: Arc<dyn Clock>, terms: LeaseTerms, timing: &Timing) -> Self {
        let length_ms = i64::try_from(terms.seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let margin_ms = i64::try_from(timing.fence_margin.as_millis()).unwrap_or(i64::MAX);
        let shared = Shared { clock, length_ms, margin_ms, deadline_ms: AtomicI64::new(i64::MAX) };
        Self { shared: Arc::new(shared) }
    }

    /// The moment to remember before a request that grants or renews the lease is sent.
    pub(crate) fn before_request(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// Counts the lease from the moment before the request that was answered; `length_ms` is the granted
    /// length where the server told it.
    pub(crate) fn granted(&self, sent_ms: i64, length_ms: Option<i64>) {
        let length_ms = length_ms.unwrap_or(self.shared.length_ms);
        let deadline = worker_deadline(sent_ms, length_ms, self.shared.margin_ms);
        self.shared.deadline_ms.store(deadline, Ordering::SeqCst);
    }

    /// Whether nothing may be done for the run any more.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.clock.now_ms() >= self.shared.deadline_ms.load(Ordering::SeqCst)
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        let left = self.shared.deadline_ms.load(Ordering::SeqCst).saturating_sub(self.shared.clock.now_ms());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// Renews until the lease is lost. Runs from right after the claim until after finalize. A fresh run
    /// token is known to `redactor` before it is used.
    pub(crate) async fn keep(
        self,
        client: ControlClient,
        renew_every: Duration,
        abort: Abort,
        redactor: Redactor,
    ) {
        tokio::join!(
            self.renew(&client, renew_every, &abort, &redactor),
            self.fence(client.timing().fence_check, &abort)
        );
    }

    /// Gives up by the clock, also when a renewal hangs. Looks often instead of setting one timer, because
    /// timers stop while the machine sleeps and this clock does not.
    async fn fence(&self, every: Duration, abort: &Abort) {
        while !self.is_over() {
            sleep(every.min(self.left()).max(Duration::from_millis(1))).await;
        }
        tracing::warn!("the lease could not be renewed in time");
        abort.request(AbortReason::LeaseLost);
    }

    /// An attempt that is not answered does not hold up the next: through a network that swallows
    /// requests, the first one that gets through counts. An answer ends the others.
    async fn renew(&self, client: &ControlClient, renew_every: Duration, abort: &Abort, redactor: &Redactor) {
        let hasty = renew_every / 5;
        let mut under_way: FuturesUnordered<
            BoxFuture<'_, (i64, Result<Granted<RenewResponse>, ControlError>)>,
        > = FuturesUnordered::new();
        let mut next = Instant::now() + renew_every;
        loop {
            tokio::select! {
                biased;
                Some((sent, answer)) = under_way.next() => match answer {
                    Ok(granted) => {
                        under_way.clear();
                        next = Instant::now() + renew_every;
                        self.renewed(sent, granted, client, abort, redactor);
                    }
                    Err(error) if error.is_displaced() => {
                        tracing::warn!(%error, "the lease was taken away");
                        abort.request(AbortReason::LeaseLost);
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "the lease was not renewed; it is tried again"),
                },
                () = sleep_until(next), if under_way.len() < MOST_RENEWALS => {
                    let sent = self.before_request();
                    under_way.push(async move { (sent, client.renew().await) }.boxed());
                    next = Instant::now() + hasty;
                }
            }
        }
    }

    fn renewed(
        &self,
        sent: i64,
        granted: Granted<RenewResponse>,
        client: &ControlClient,
        abort: &Abort,
        redactor: &Redactor,
    ) {
        self.granted(sent, granted.length_ms);
        if let Some(token) = granted.answer.run_token {
            redactor.add("run token", token.expose());
            if let Err(message) = client.adopt_token(token.expose()) {
                tracing::warn!(message, "the fresh run token cannot be used");
            }
        }
        if granted.answer.cancel_requested == Some(true) {
            abort.request(AbortReason::Cancelled);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lease").field("left", &self.left()).finish()
    }
}

#[cfg(test)]
mod tests {
    use trestle_domain::ManualClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_process_lets_go_by_the_clock_that_runs_while_the_machine_sleeps() {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let terms = LeaseTerms { seconds: 90, renew_every_ms: 15_000 };
        let lease = Lease::new(clock.clone(), terms, &Timing::default());
        assert!(!lease.is_over(), "nothing is lost before the claim");
        let sent = lease.before_request();
        clock.advance(4_000);
        lease.granted(sent, None);
        // 90 s from before the request, less the larger of 5 s and a tenth.
        assert_eq!(lease.left(), Duration::from_secs(90 - 9 - 4));
        let abort = Abort::default();
        let fence = lease.fence(Duration::from_millis(500), &abort);
        tokio::pin!(fence);
        let tick = tokio::time::timeout(Duration::from_secs(30), &mut fence).await;
        assert!(tick.is_err(), "no time has passed on the clock that counts");
        clock.advance(77_000);
        fence.await;
        assert_eq!(abort.reason(), Some(AbortReason::LeaseLost));
    }
}
