//! Who waits for a change of a run: event streams, cancel waits, child waits.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use trestle_contract::ids::RunId;
use trestle_store::Change;

use crate::dispatch::Dispatcher;

/// Watches share slots by hash. A wake for another run of the slot costs one
/// needless look, and no slot is ever made or removed.
const SLOTS: usize = 1024;

/// Wakes whoever waits for a change of a run.
pub(crate) struct Hub {
    slots: Vec<watch::Sender<u64>>,
    hasher: RandomState,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| watch::Sender::new(0)).collect(), hasher: RandomState::new() }
    }

    /// A watch that sees every change of `run` from now on. Take it before
    /// the first look at the store.
    pub(crate) fn watch(&self, run: &RunId) -> watch::Receiver<u64> {
        self.slot(run).subscribe()
    }

    fn slot(&self, run: &RunId) -> &watch::Sender<u64> {
        let index = usize::try_from(self.hasher.hash_one(run) % SLOTS as u64).unwrap_or(0);
        &self.slots[index]
    }

    fn wake(&self, run: &RunId) {
        self.slot(run).send_modify(|version| *version += 1);
    }

    fn wake_all(&self) {
        for slot in &self.slots {
            slot.send_modify(|version| *version += 1);
        }
    }
}

/// Passes the changes of the store on to whoever waits for them, until
/// shutdown.
pub(crate) async fn follow(
    mut changes: broadcast::Receiver<Change>,
    hub: Arc<Hub>,
    dispatcher: Dispatcher,
    shutdown: CancellationToken,
) {
    loop {
        let change = tokio::select! {
            () = shutdown.cancelled() => break,
            change = changes.recv() => change,
        };
        match change {
            Ok(Change::Run(run)) => hub.wake(&run),
            Ok(Change::Queue { pool }) => dispatcher.queue_changed(pool).await,
            Ok(Change::Runner(runner)) => dispatcher.runner_changed(runner).await,
            // Some changes were missed, so everybody looks again.
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::debug!(missed, "changes came faster than they were passed on");
                hub.wake_all();
                dispatcher.look_again().await;
            }
            Err(broadcast::error::RecvError::Closed) => break,
        }
    }
    hub.wake_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State was read before the listener was there (B4-23): here the watch comes first.
    #[tokio::test]
    async fn a_watch_sees_a_change_between_its_start_and_the_wait() {
        let hub = Hub::new();
        let run = RunId::new("r").unwrap();
        let mut watch = hub.watch(&run);
        assert!(!watch.has_changed().unwrap());
        hub.wake(&run);
        watch.changed().await.unwrap();
        hub.wake_all();
        watch.changed().await.unwrap();
    }

    /// A notice of a change is a hint (B4): whoever may have missed one looks
    /// again.
    #[tokio::test]
    async fn b4_22_missed_changes_make_everybody_look_again() {
        let data = tempfile::tempdir().unwrap();
        let data = trestle_store::DataDir::open(data.path()).unwrap();
        let options = trestle_store::StoreOptions::default();
        let store = trestle_store::SqliteStore::open(&data, options).await.unwrap();
        let shutdown = CancellationToken::new();
        let dispatcher = Dispatcher::start(Arc::new(store), shutdown.clone());
        let hub = Arc::new(Hub::new());
        let (changes, receiver) = broadcast::channel(1);
        let run = RunId::new("missed").unwrap();
        let mut watch = hub.watch(&run);
        for run in ["missed", "other", "third"] {
            changes.send(Change::Run(RunId::new(run).unwrap())).unwrap();
        }
        tokio::spawn(follow(receiver, Arc::clone(&hub), dispatcher, shutdown.clone()));
        watch.changed().await.unwrap();
        shutdown.cancel();
    }
}
