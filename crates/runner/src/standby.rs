use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use trestle_sandbox::Isolation;
use trestle_sandbox::slot::NodeRuntime;

use crate::slot_process::SlotProcess;
use crate::{Config, RunnerError};

/// Starts run processes, cold or ahead of time. Interpreters start one per core at a time: more at once only
/// makes each of them slower.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) config: Arc<Config>,
    pub(crate) isolation: Arc<dyn Isolation>,
    pub(crate) node: NodeRuntime,
    pub(crate) starts: Arc<Semaphore>,
}

impl Starter {
    pub(crate) fn new(config: Arc<Config>, isolation: Arc<dyn Isolation>, node: NodeRuntime) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { config, isolation, node, starts: Arc::new(Semaphore::new(cores)) }
    }

    /// Starts a run process that brings up its interpreter when it is told its run.
    pub(crate) async fn cold(&self) -> Result<SlotProcess, RunnerError> {
        SlotProcess::start(&self.config, self.isolation.as_ref(), &self.node, false).await
    }

    async fn prestarted(&self) -> Option<SlotProcess> {
        let _permit = self.starts.acquire().await.ok()?;
        let mut slot = match SlotProcess::start(&self.config, self.isolation.as_ref(), &self.node, true).await
        {
            Ok(slot) => slot,
            Err(error) => {
                tracing::warn!(%error, "prestart_failed");
                return None;
            }
        };
        if slot.ready().await {
            return Some(slot);
        }
        tracing::warn!("prestart_failed");
        slot.discard(self.config.timing.grace).await;
        None
    }
}

/// Run processes that stand by. Each serves one run; a new one is started for each that was taken: when its
/// run is over, or a moment after its start, so that the two do not compete for the cores.
pub(crate) struct Standby {
    ready: mpsc::Receiver<SlotProcess>,
    wanted: mpsc::Sender<()>,
    filler: tokio::task::JoinHandle<()>,
    refill_after: Duration,
}

/// Has a process that was taken replaced, a moment after this is dropped at the latest. It keeps nobody from
/// stopping.
#[derive(Debug)]
pub(crate) struct Refill {
    _over: oneshot::Sender<()>,
}

impl Refill {
    /// Asks when so much time has passed, or a quarter of it after the run's end: the news of the end go first.
    fn new(wanted: &mpsc::Sender<()>, after: Duration) -> Self {
        let wanted = wanted.downgrade();
        let (over, is_over) = oneshot::channel();
        tokio::spawn(async move {
            if tokio::time::timeout(after, is_over).await.is_ok() {
                tokio::time::sleep(after / 4).await;
            }
            if let Some(wanted) = wanted.upgrade() {
                let _ = wanted.try_send(());
            }
        });
        Self { _over: over }
    }
}

impl Standby {
    /// Brings up `count` processes in the background.
    pub(crate) fn start(starter: Starter, count: usize) -> Self {
        let (ready_sender, ready) = mpsc::channel(count.max(1));
        let (wanted, wanted_receiver) = mpsc::channel(count.max(1) * 2);
        for _ in 0..count {
            let _ = wanted.try_send(());
        }
        let refill_after = starter.config.timing.refill_after;
        let filler = tokio::spawn(fill(starter, wanted_receiver, ready_sender));
        Self { ready, wanted, filler, refill_after }
    }

    /// A process that stands by, if one does, and what has it replaced.
    pub(crate) fn take(&mut self) -> Option<(SlotProcess, Refill)> {
        let slot = self.ready.try_recv().ok()?;
        let refill = Refill::new(&self.wanted, self.refill_after);
        slot.is_alive().then_some((slot, refill))
    }

    /// Ends all that stand by.
    pub(crate) async fn stop(mut self, grace: Duration) {
        drop(self.wanted);
        self.ready.close();
        let mut ends = JoinSet::new();
        while let Some(slot) = self.ready.recv().await {
            ends.spawn(slot.discard(grace));
        }
        let _ = self.filler.await;
        ends.join_all().await;
    }
}

async fn fill(starter: Starter, mut wanted: mpsc::Receiver<()>, ready: mpsc::Sender<SlotProcess>) {
    let grace = starter.config.timing.grace;
    let mut starting = JoinSet::new();
    // Failures in a row: an interpreter that cannot stand by must not be started in a busy loop.
    let mut failures = 0_u32;
    loop {
        tokio::select! {
            request = wanted.recv() => match request {
                Some(()) if failures < 3 => {
                    let starter = starter.clone();
                    starting.spawn(async move { starter.prestarted().await });
                }
                Some(()) => {}
                None => break,
            },
            Some(started) = starting.join_next(), if !starting.is_empty() => match started {
                Ok(Some(slot)) => {
                    failures = 0;
                    if let Err(refused) = ready.send(slot).await {
                        refused.0.discard(grace).await;
                    }
                }
                _ => failures += 1,
            },
        }
    }
    while let Some(started) = starting.join_next().await {
        if let Ok(Some(slot)) = started {
            slot.discard(grace).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_taken_slot_is_replaced_once_when_its_run_is_over_or_after_a_moment() {
        let (wanted, mut asked) = mpsc::channel(4);
        let short = Refill::new(&wanted, Duration::from_millis(1));
        drop(short);
        assert_eq!(asked.recv().await, Some(()));

        let long = Refill::new(&wanted, Duration::from_millis(1));
        assert_eq!(asked.recv().await, Some(()), "a long run keeps nobody waiting");
        drop(long);
        let young = Refill::new(&wanted, HOUR);
        tokio::task::yield_now().await;
        assert!(
            asked.try_recv().is_err(),
            "its run has only begun, and the one before was asked for already"
        );
        drop(young);
    }

    #[tokio::test]
    async fn a_run_that_goes_on_does_not_hold_up_the_end_of_standing_by() {
        let (wanted, mut asked) = mpsc::channel(4);
        let running = Refill::new(&wanted, HOUR);
        drop(wanted);
        assert_eq!(asked.recv().await, None);
        drop(running);
    }
}
