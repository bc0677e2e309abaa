//! The one writer: it drains its queue, writes all of it in one transaction, and answers after the
//! commit. A sync of the disk is thus shared by everybody who waits for one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use trestle_domain::{Clock as _, StoreClock};

use crate::error::{StoreError, StoreResult};
use crate::options::StoreOptions;
use crate::store::Change;

/// Operations that share one transaction at most.
const BATCH: usize = 128;
/// Unit of the byte budget of the queue.
const BUDGET_UNIT: usize = 1024;

/// What a commit has to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Also a power cut: the disk is synced.
    Full,
    /// The death of any process. A power cut may undo it.
    Normal,
}

/// What an operation works with.
pub(crate) struct Tx {
    pub(crate) conn: SqliteConnection,
    /// The store's time at the start of the operation.
    pub(crate) now: i64,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) options: Arc<StoreOptions>,
    /// Names this opening of the store.
    pub(crate) opening: Arc<str>,
    changes: Vec<Change>,
}

impl Tx {
    pub(crate) fn new(
        conn: SqliteConnection,
        clock: Arc<StoreClock>,
        options: Arc<StoreOptions>,
        opening: Arc<str>,
    ) -> Self {
        Self { conn, now: clock.now_ms(), clock, options, opening, changes: Vec::new() }
    }

    /// Announces something after the commit.
    pub(crate) fn changed(&mut self, change: Change) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// A fresh ULID.
    pub(crate) fn fresh_id(&self) -> String {
        trestle_domain::new_ulid(&*self.clock)
    }
}

/// An operation as the queue carries it.
#[async_trait]
trait Operation: Send {
    /// Does the work; the result is kept until `answer`.
    async fn run(&mut self, tx: &mut Tx) -> StoreResult<()>;
    /// Tells the caller, after the commit or the failure of it.
    fn answer(self: Box<Self>, commit: StoreResult<()>);
}

struct Call<F, T> {
    work: Option<F>,
    result: Option<StoreResult<T>>,
    caller: oneshot::Sender<StoreResult<T>>,
}

#[async_trait]
impl<F, T> Operation for Call<F, T>
where
    F: for<'a> FnOnce(&'a mut Tx) -> BoxFuture<'a, StoreResult<T>> + Send,
    T: Send,
{
    async fn run(&mut self, tx: &mut Tx) -> StoreResult<()> {
        let Some(work) = self.work.take() else {
            return Err(StoreError::Unavailable("the operation was started twice".into()));
        };
        let result = AssertUnwindSafe(work(tx))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the operation stopped by a defect".into())));
        let outcome = result.as_ref().map(|_| ()).map_err(Clone::clone);
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, commit: StoreResult<()>) {
        let result = match (commit, self.result) {
            (Ok(()), Some(result)) => result,
            (Err(error), Some(Ok(_)) | None) => Err(error),
            (Err(_), Some(Err(error))) => Err(error),
            (Ok(()), None) => Err(StoreError::Unavailable("the operation was not started".into())),
        };
        // A caller that went away does not need its answer.
        let _ = self.caller.send(result);
    }
}

struct Queued {
    operation: Box<dyn Operation>,
    durability: Durability,
    _budget: OwnedSemaphorePermit,
}

/// The way to the writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Queued>,
    budget: Arc<Semaphore>,
    budget_units: usize,
}

impl Writer {
    /// Starts the writer's task. It ends when every `Writer` is gone, or when the returned sender
    /// fires; what was accepted before is still written.
    pub(crate) fn start(
        tx: Tx,
        changes: broadcast::Sender<Change>,
    ) -> (Self, oneshot::Sender<()>, JoinHandle<()>) {
        let (queue, receiver) = mpsc::channel(tx.options.write_queue.max(1));
        let (stop, stopped) = oneshot::channel();
        let budget_units = (tx.options.write_queue_bytes / BUDGET_UNIT).clamp(1, Semaphore::MAX_PERMITS);
        let budget = Arc::new(Semaphore::new(budget_units));
        let task = tokio::spawn(write_all(tx, receiver, stopped, changes));
        (Self { queue, budget, budget_units }, stop, task)
    }

    /// Does the work in a transaction and waits for its commit. `bytes` is the size of what the
    /// work carries.
    pub(crate) async fn write<T, F>(&self, durability: Durability, bytes: usize, work: F) -> StoreResult<T>
    where
        F: for<'a> FnOnce(&'a mut Tx) -> BoxFuture<'a, StoreResult<T>> + Send + 'static,
        T: Send + 'static,
    {
        let units = (bytes / BUDGET_UNIT + 1).min(self.budget_units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let budget = self.budget.clone().acquire_many_owned(units).await.map_err(|_| closed())?;
        let (caller, answer) = oneshot::channel();
        let operation = Box::new(Call { work: Some(work), result: None, caller });
        self.queue.send(Queued { operation, durability, _budget: budget }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

async fn write_all(
    mut tx: Tx,
    mut queue: mpsc::Receiver<Queued>,
    mut stop: oneshot::Receiver<()>,
    changes: broadcast::Sender<Change>,
) {
    let mut synchronous = None;
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            received = queue.recv_many(&mut batch, BATCH) => {
                if received == 0 {
                    break;
                }
            }
            // Also when the sender is gone without a word: then the store itself is.
            _ = &mut stop, if !queue.is_closed() => {
                queue.close();
                continue;
            }
        }
        tx.changes.clear();
        let durability = if batch.iter().any(|queued| queued.durability == Durability::Full) {
            Durability::Full
        } else {
            Durability::Normal
        };
        let commit = write_batch(&mut tx, &mut batch, durability, &mut synchronous).await;
        if let Err(error) = &commit {
            tracing::error!(%error, operations = batch.len(), "a transaction was lost");
            // Ends a transaction that is still open; without one there is nothing to end.
            let _ = sqlx::query("ROLLBACK").execute(&mut tx.conn).await;
        }
        if commit.is_ok() {
            // Before the answers: whoever has its answer has had the news of it too.
            for change in tx.changes.drain(..) {
                if let Change::Run(run) = &change {
                    tracing::trace!(%run, "committed");
                }
                // Without receivers there is nobody to wake.
                let _ = changes.send(change);
            }
        }
        for queued in batch.drain(..) {
            queued.operation.answer(commit.clone());
        }
    }
    if let Err(error) = sqlx::Connection::close(tx.conn).await {
        tracing::warn!(%error, "the database did not close cleanly");
    }
}

async fn write_batch(
    tx: &mut Tx,
    batch: &mut [Queued],
    durability: Durability,
    synchronous: &mut Option<Durability>,
) -> StoreResult<()> {
    if *synchronous != Some(durability) {
        *synchronous = None;
        let pragma = match durability {
            Durability::Full => "PRAGMA synchronous = FULL",
            Durability::Normal => "PRAGMA synchronous = NORMAL",
        };
        sqlx::query(pragma).execute(&mut tx.conn).await?;
        *synchronous = Some(durability);
    }
    sqlx::query("BEGIN IMMEDIATE").execute(&mut tx.conn).await?;
    let mut wrote = false;
    let shared = batch.len() > 1;
    for queued in batch.iter_mut() {
        wrote |= run_operation(tx, queued, shared).await?;
    }
    if !wrote {
        sqlx::query("ROLLBACK").execute(&mut tx.conn).await?;
        return Ok(());
    }
    sqlx::query("UPDATE store_clock SET high_ms = max(high_ms, ?) WHERE one = 1")
        .bind(tx.now)
        .execute(&mut tx.conn)
        .await?;
    sqlx::query("COMMIT").execute(&mut tx.conn).await?;
    Ok(())
}

/// Runs one operation; says whether it succeeded. Its own failure undoes it alone; an error means
/// that the whole transaction is lost.
async fn run_operation(tx: &mut Tx, queued: &mut Queued, shared: bool) -> StoreResult<bool> {
    if shared {
        sqlx::query("SAVEPOINT operation").execute(&mut tx.conn).await?;
    }
    let announced = tx.changes.len();
    tx.now = tx.clock.now_ms();
    let outcome = queued.operation.run(tx).await;
    match outcome {
        Ok(()) => {
            if shared {
                sqlx::query("RELEASE operation").execute(&mut tx.conn).await?;
            }
            Ok(true)
        }
        // The database may have ended the transaction by itself: nothing of it can be kept.
        Err(error @ (StoreError::Full(_) | StoreError::Corrupt(_) | StoreError::Unavailable(_))) => {
            tx.changes.truncate(announced);
            if shared {
                sqlx::query("ROLLBACK TO operation").execute(&mut tx.conn).await.map_err(|_| error)?;
                sqlx::query("RELEASE operation").execute(&mut tx.conn).await?;
            }
            Ok(false)
        }
        Err(_) => {
            tx.changes.truncate(announced);
            if shared {
                sqlx::query("ROLLBACK TO operation").execute(&mut tx.conn).await?;
                sqlx::query("RELEASE operation").execute(&mut tx.conn).await?;
            }
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests;
