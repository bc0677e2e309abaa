use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::error::Conflict;

/// A writer on a fresh database that counts its commits.
struct Bench {
    writer: Writer,
    commits: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    _directory: TempDir,
}

async fn bench(options: StoreOptions) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let mut conn = SqliteConnectOptions::new()
        .filename(directory.path().join("store.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .connect()
        .await
        .unwrap();
    for statement in [
        "CREATE TABLE store_clock (one INTEGER PRIMARY KEY, high_ms INTEGER NOT NULL)",
        "INSERT INTO store_clock VALUES (1, 0)",
        "CREATE TABLE notes (text TEXT PRIMARY KEY)",
    ] {
        sqlx::query(statement).execute(&mut conn).await.unwrap();
    }
    let commits = Arc::new(AtomicUsize::new(0));
    let counter = commits.clone();
    conn.lock_handle().await.unwrap().set_commit_hook(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        true
    });
    let tx = Tx::new(conn, Arc::new(StoreClock::system(0)), Arc::new(options), "opening".into());
    let (changes, _) = broadcast::channel(16);
    let (writer, stop, task) = Writer::start(tx, changes);
    Bench { writer, commits, stop: Some(stop), task, _directory: directory }
}

async fn note(tx: &mut Tx, text: &str) -> StoreResult<()> {
    sqlx::query("INSERT INTO notes (text) VALUES (?)").bind(text.to_owned()).execute(&mut tx.conn).await?;
    Ok(())
}

impl Bench {
    fn write<T, F>(&self, durability: Durability, work: F) -> JoinHandle<StoreResult<T>>
    where
        F: for<'a> FnOnce(&'a mut Tx) -> BoxFuture<'a, StoreResult<T>> + Send + 'static,
        T: Send + 'static,
    {
        let writer = self.writer.clone();
        tokio::spawn(async move { writer.write(durability, 0, work).await })
    }

    /// Keeps the writer busy until the returned handle is notified.
    async fn busy(&self) -> (Arc<Notify>, JoinHandle<StoreResult<()>>) {
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (inner_started, inner_go_on) = (started.clone(), go_on.clone());
        let task = self.write(Durability::Normal, move |_| {
            Box::pin(async move {
                inner_started.notify_one();
                inner_go_on.notified().await;
                Ok(())
            })
        });
        started.notified().await;
        (go_on, task)
    }

    /// Waits until so many operations wait in the queue.
    async fn queued(&self, count: usize) {
        let queue = &self.writer.queue;
        while queue.max_capacity() - queue.capacity() < count {
            tokio::task::yield_now().await;
        }
    }

    async fn notes(&self) -> Vec<String> {
        self.write(Durability::Normal, |tx| {
            Box::pin(async {
                Ok(sqlx::query_scalar("SELECT text FROM notes ORDER BY text").fetch_all(&mut tx.conn).await?)
            })
        })
        .await
        .unwrap()
        .unwrap()
    }
}

#[tokio::test]
async fn writes_that_wait_share_one_commit() {
    let bench = bench(StoreOptions::default()).await;
    let (go_on, busy) = bench.busy().await;
    let writes: Vec<_> = (0..50)
        .map(|index| {
            bench.write(Durability::Full, move |tx| {
                Box::pin(async move { note(tx, &format!("{index:02}")).await })
            })
        })
        .collect();
    bench.queued(50).await;
    go_on.notify_one();
    busy.await.unwrap().unwrap();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    assert_eq!(bench.commits.load(Ordering::SeqCst), 2, "one of the busy write, one of all the others");
    assert_eq!(bench.notes().await.len(), 50);
}

#[tokio::test]
async fn a_failing_write_undoes_itself_alone() {
    let bench = bench(StoreOptions::default()).await;
    let (go_on, busy) = bench.busy().await;
    let good = bench.write(Durability::Full, |tx| Box::pin(note(tx, "good")));
    let refused = bench.write(Durability::Full, |tx| {
        Box::pin(async {
            note(tx, "refused").await?;
            tx.changed(Change::Queue { pool: "refused".into() });
            Err::<(), _>(Conflict::Displaced.into())
        })
    });
    let broken = bench.write(Durability::Full, |tx| {
        Box::pin(async {
            note(tx, "broken").await?;
            panic!("a defect");
        })
    });
    let broken: JoinHandle<StoreResult<()>> = broken;
    let twice = bench.write(Durability::Full, |tx| {
        Box::pin(async {
            note(tx, "twice").await?;
            note(tx, "twice").await
        })
    });
    let last = bench.write(Durability::Full, |tx| Box::pin(note(tx, "last")));
    bench.queued(5).await;
    go_on.notify_one();
    busy.await.unwrap().unwrap();
    good.await.unwrap().unwrap();
    last.await.unwrap().unwrap();
    assert!(matches!(refused.await.unwrap(), Err(StoreError::Conflict(Conflict::Displaced))));
    assert!(matches!(broken.await.unwrap(), Err(StoreError::Unavailable(_))));
    assert!(twice.await.unwrap().is_err());
    assert_eq!(bench.notes().await, ["good", "last"]);
}

#[tokio::test]
async fn the_disk_is_synced_for_those_who_need_it() {
    let bench = bench(StoreOptions::default()).await;
    for (durability, level) in [(Durability::Normal, 1), (Durability::Full, 2), (Durability::Normal, 1)] {
        let seen: i64 = bench
            .write(durability, |tx| {
                Box::pin(async {
                    Ok(sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut tx.conn).await?)
                })
            })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(seen, level);
    }
}

#[tokio::test]
async fn what_was_accepted_is_written_before_the_end() {
    let mut bench = bench(StoreOptions::default()).await;
    let (go_on, busy) = bench.busy().await;
    let accepted: Vec<_> = (0..10)
        .map(|index| {
            bench.write(Durability::Full, move |tx| {
                Box::pin(async move { note(tx, &format!("{index}")).await })
            })
        })
        .collect();
    bench.queued(10).await;
    bench.stop.take().unwrap().send(()).unwrap();
    go_on.notify_one();
    busy.await.unwrap().unwrap();
    for write in accepted {
        write.await.unwrap().unwrap();
    }
    (&mut bench.task).await.unwrap();
    let refused = bench.write(Durability::Full, |tx| Box::pin(note(tx, "late"))).await.unwrap();
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn callers_wait_when_too_many_bytes_wait() {
    let bench = bench(StoreOptions { write_queue_bytes: 10 * 1024, ..StoreOptions::default() }).await;
    let (go_on, busy) = bench.busy().await;
    let large = |text: &'static str| {
        let writer = bench.writer.clone();
        async move { writer.write(Durability::Full, 8 * 1024, |tx| Box::pin(note(tx, text))).await }
    };
    let first = tokio::spawn(large("first"));
    bench.queued(1).await;
    let mut second = Box::pin(large("second"));
    assert!(futures_util::poll!(&mut second).is_pending());
    bench.queued(1).await;
    let queue = &bench.writer.queue;
    assert_eq!(queue.max_capacity() - queue.capacity(), 1, "the second one is not in the queue");
    go_on.notify_one();
    busy.await.unwrap().unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap();
    // One that is larger than everything allowed still goes through, alone.
    let huge = bench.writer.write(Durability::Full, 1 << 30, |tx| Box::pin(note(tx, "huge")));
    huge.await.unwrap();
    assert_eq!(bench.notes().await, ["first", "huge", "second"]);
}
