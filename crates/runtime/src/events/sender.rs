use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use trestle_domain::Backoff;

use super::Emitter;
use crate::abort::{Abort, AbortReason};
use crate::control::ControlError;
use crate::timing::Timing;

/// A batch that is this full does not wait for more.
const FULL_BATCH: u64 = 16;
/// Most frames and bytes of one request when many wait.
const LARGEST_BATCH: (usize, usize) = (512, 1024 * 1024);

/// Delivers the frames of an [`Emitter`], one request at a time and in order.
pub(crate) struct TelemetrySender {
    emitter: Emitter,
    abort: Abort,
    window: Duration,
    idle: Duration,
    delta_window: Duration,
    backoff: Backoff,
}

enum Delivery {
    Done,
    /// The server will not take these frames, whatever happens.
    Refused(ControlError),
    /// The run is no longer ours.
    Displaced,
}

impl TelemetrySender {
    pub(crate) fn new(emitter: Emitter, abort: Abort, timing: &Timing) -> Self {
        let first = timing.retry_waits.first().copied().unwrap_or(Duration::from_millis(500));
        let longest = timing.retry_waits.last().copied().unwrap_or(first);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            emitter,
            abort,
            window: timing.telemetry_window,
            idle: timing.telemetry_idle,
            delta_window: timing.delta_window,
            backoff: Backoff::new(millis(first), millis(longest)),
        }
    }

    /// Sends until the emitter is closed. `post` makes one attempt to deliver a batch; what it holds is
    /// never given up for a server that is away, slow or overloaded.
    pub(crate) async fn run<F: Future<Output = Result<(), ControlError>>>(
        mut self,
        post: impl Fn(Vec<String>) -> F,
    ) {
        let mut last_sent: Option<Instant> = None;
        while self.wait_for_batch(last_sent).await {
            let batch = self.emitter.take(LARGEST_BATCH.0, LARGEST_BATCH.1);
            last_sent = Some(Instant::now());
            let taken = batch.len();
            if !self.deliver(batch, &post).await {
                self.emitter.close();
                self.abort.request(AbortReason::LeaseLost);
                return;
            }
            self.emitter.settle(taken);
        }
    }

    /// Waits until a batch is due; false when there will be none any more.
    async fn wait_for_batch(&self, last_sent: Option<Instant>) -> bool {
        loop {
            let now = Instant::now();
            let mut waiting = self.emitter.waiting();
            if waiting.oldest_delta.is_some_and(|since| since + self.delta_window <= now) {
                self.emitter.release_deltas();
                waiting = self.emitter.waiting();
            }
            let due = waiting.oldest.map(|oldest| {
                // After a pause a frame goes out nearly at once; under steady traffic it waits for company.
                let recently = last_sent.is_some_and(|sent| sent + self.window > oldest);
                if recently {
                    last_sent.map_or(oldest, |sent| sent + self.window)
                } else {
                    oldest + self.idle
                }
            });
            if waiting.frames > 0
                && (waiting.is_urgent || waiting.frames >= FULL_BATCH || due.is_some_and(|due| due <= now))
            {
                return true;
            }
            if waiting.is_closed {
                return false;
            }
            let next = [due, waiting.oldest_delta.map(|since| since + self.delta_window)]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                () = self.emitter.woken() => {}
                () = async { match next { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
            }
        }
    }

    /// True when the batch is settled: delivered, or refused frame by frame.
    async fn deliver<F: Future<Output = Result<(), ControlError>>>(
        &mut self,
        batch: Vec<String>,
        post: &impl Fn(Vec<String>) -> F,
    ) -> bool {
        // A batch that is refused as a whole is halved until the frame is found that causes it.
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match self.attempt(&part, post).await {
                Delivery::Done => {}
                Delivery::Displaced => return false,
                Delivery::Refused(error) => {
                    let mut first = part;
                    if first.len() == 1 {
                        tracing::warn!(%error, bytes = first.first().map_or(0, String::len), "an event was refused");
                        continue;
                    }
                    let second = first.split_off(first.len() / 2);
                    parts.push(second);
                    parts.push(first);
                }
            }
        }
        true
    }

    async fn attempt<F: Future<Output = Result<(), ControlError>>>(
        &mut self,
        part: &[String],
        post: &impl Fn(Vec<String>) -> F,
    ) -> Delivery {
        self.backoff.reset();
        loop {
            let error = match post(part.to_vec()).await {
                Ok(()) => return Delivery::Done,
                Err(error) => error,
            };
            match error.status() {
                Some(401 | 403 | 404 | 409 | 410) => return Delivery::Displaced,
                Some(408 | 425 | 429 | 500..) | None => {}
                Some(_) => return Delivery::Refused(error),
            }
            if self.emitter.waiting().is_closed {
                return Delivery::Done;
            }
            tracing::debug!(%error, "events are sent again");
            sleep(Duration::from_millis(self.backoff.next_ms())).await;
        }
    }
}

#[cfg(test)]
mod tests;
