use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
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

/// Run processes that stand by. Each serves one run; a new one is started for each that was taken.
pub(crate) struct Standby {
    ready: mpsc::Receiver<SlotProcess>,
    wanted: mpsc::Sender<()>,
    filler: tokio::task::JoinHandle<()>,
}

impl Standby {
    /// Brings up `count` processes in the background.
    pub(crate) fn start(starter: Starter, count: usize) -> Self {
        let (ready_sender, ready) = mpsc::channel(count.max(1));
        let (wanted, wanted_receiver) = mpsc::channel(count.max(1) * 2);
        for _ in 0..count {
            let _ = wanted.try_send(());
        }
        let filler = tokio::spawn(fill(starter, wanted_receiver, ready_sender));
        Self { ready, wanted, filler }
    }

    /// A process that stands by, if one does.
    pub(crate) fn take(&mut self) -> Option<SlotProcess> {
        let slot = self.ready.try_recv().ok()?;
        let _ = self.wanted.try_send(());
        slot.is_alive().then_some(slot)
    }

    /// Ends all that stand by.
    pub(crate) async fn stop(mut self, grace: std::time::Duration) {
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
