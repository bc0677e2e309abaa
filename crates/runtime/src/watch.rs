//! What a run process asks and reports at intervals while its program runs. A tick that is due while
//! the one before is still busy is left out, so that nothing queues up behind a slow answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use trestle_contract::control::UsageRequest;
use trestle_contract::{NonEmptyString, Positive};
use trestle_domain::Clock;

use crate::abort::{Abort, AbortReason};
use crate::control::ControlClient;

/// Asks for a cancel until one arrives: with one request that the server holds open where it can.
pub(crate) async fn watch_cancel(client: ControlClient, abort: Abort) {
    let poll = client.timing().cancel_poll;
    loop {
        let asked = Instant::now();
        match client.cancel().await {
            Ok(answer) if answer.cancel_requested => {
                abort.request(AbortReason::Cancelled);
                return;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the question for a cancel was not answered"),
        }
        // A server that holds the request has used up the pause already.
        sleep(poll.saturating_sub(asked.elapsed())).await;
    }
}

/// Asks whether the organisation can still pay.
pub(crate) async fn watch_credit(client: ControlClient, abort: Abort) {
    let every = client.timing().credit_poll;
    let ask = || {
        let client = client.clone();
        async move {
            match client.credit().await {
                Ok(answer) => answer.funded,
                Err(error) => {
                    tracing::debug!(%error, "the question for credit was not answered");
                    true
                }
            }
        }
    };
    at_intervals(every, ask).await;
    abort.request(AbortReason::CreditExhausted);
}

/// Does something at intervals for as long as it says so. What is due while it is still at it is left out.
async fn at_intervals<F: Future<Output = bool>>(every: Duration, work: impl Fn() -> F) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !work().await {
            return;
        }
    }
}

/// Reports compute time. The number of a report advances only when it was taken, and each carries the
/// whole sum, so that a report whose answer was lost loses no second.
#[derive(Clone)]
pub(crate) struct UsageMeter {
    shared: Arc<Shared>,
}

struct Shared {
    client: ControlClient,
    clock: Arc<dyn Clock>,
    prefix: String,
    claimed_ms: i64,
    tells_total: bool,
    booked_seconds: Mutex<u64>,
    number: AtomicU64,
}

impl UsageMeter {
    /// A meter that starts at the claim; `tells_total` where the control plane takes the sum too.
    pub(crate) fn new(
        client: ControlClient,
        clock: Arc<dyn Clock>,
        run: &str,
        claimed_ms: i64,
        tells_total: bool,
    ) -> Self {
        let prefix = format!("{run}:{}:rt", uuid::Uuid::new_v4());
        let shared = Shared {
            client,
            clock,
            prefix,
            claimed_ms,
            tells_total,
            booked_seconds: Mutex::new(0),
            number: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Time since the claim.
    pub(crate) fn milliseconds(&self) -> u64 {
        let elapsed = self.shared.clock.now_ms().saturating_sub(self.shared.claimed_ms);
        u64::try_from(elapsed).unwrap_or(0)
    }

    /// Reports what is not reported yet, until it is taken.
    pub(crate) async fn deliver(&self) {
        let pause = self.shared.client.timing().finalize_backoff / 10;
        while !self.flush().await {
            sleep(pause).await;
        }
    }

    /// Reports what is not reported yet. False when it was not taken and may be another time.
    async fn flush(&self) -> bool {
        let mut booked = self.shared.booked_seconds.lock().await;
        // Rounded to whole seconds as a sum, so that nothing is lost between reports.
        let total = self.milliseconds().saturating_add(500) / 1_000;
        let delta = total.saturating_sub(*booked);
        if delta < 1 {
            return true;
        }
        let number = self.shared.number.load(Ordering::SeqCst);
        let request = UsageRequest {
            runtime_seconds: Positive::saturating(delta),
            identifier: NonEmptyString::saturating(format!("{}:{number}", self.shared.prefix)),
            total_seconds: self.shared.tells_total.then_some(total),
        };
        match self.shared.client.usage(&request).await {
            Ok(()) => {
                *booked = total;
                self.shared.number.store(number + 1, Ordering::SeqCst);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "compute time was not reported; the next report carries it");
                error.is_final()
            }
        }
    }

    /// Reports at intervals.
    pub(crate) async fn run(self, every: Duration) {
        let report = || {
            let meter = self.clone();
            async move {
                meter.flush().await;
                true
            }
        };
        at_intervals(every, report).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn questions_at_intervals_do_not_queue_up_behind_a_slow_answer() {
        let second = Duration::from_secs(1);
        let asked = std::cell::RefCell::new(Vec::new());
        let begun = Instant::now();
        let ask = || async {
            asked.borrow_mut().push(begun.elapsed().as_secs());
            if asked.borrow().len() == 1 {
                sleep(second * 10).await;
            }
            asked.borrow().len() < 4
        };
        at_intervals(second, ask).await;
        assert_eq!(*asked.borrow(), [1, 11, 12, 13], "what was due in between is left out");
    }
}
