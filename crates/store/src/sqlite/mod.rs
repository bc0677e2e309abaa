//! The store on one SQLite file.

mod convert;
mod operations;
mod ops;
mod writer;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, SqlSafeStr as _, SqliteConnection};
use tokio::sync::{Mutex, broadcast, oneshot};
use trestle_domain::StoreClock;

use crate::data_dir::{DataDir, denied};
use crate::error::{StoreError, StoreResult};
use crate::options::StoreOptions;
use crate::store::Change;
use writer::{Durability, Tx, Writer};

/// Changes that a slow receiver may lag behind before it has to look at everything.
const CHANGES: usize = 4_096;

/// The store on one SQLite file: one writer, several readers.
pub struct SqliteStore {
    writer: Writer,
    readers: SqlitePool,
    clock: Arc<StoreClock>,
    changes: broadcast::Sender<Change>,
    /// The highest time stored before this opening: what was live then may have been live until now.
    known_until: i64,
    closing: Mutex<Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store of a data directory, making it when it is new.
    ///
    /// # Errors
    /// [`StoreError::Denied`] when the files may not be read and written, [`StoreError::Corrupt`]
    /// when they are none of ours, [`StoreError::Full`] when there is no room for a new one.
    pub async fn open(directory: &DataDir, options: StoreOptions) -> StoreResult<Self> {
        let path = directory.database();
        make_private(&path)?;
        let options = Arc::new(options);
        let connect = connect_options(&path, &options);
        let mut conn = connect.connect().await.map_err(|error| at(&path, error.into()))?;
        // `run` is not general enough for a future that is `Send`; this is what it calls.
        migrations().run_direct(None, &mut conn, false).await.map_err(|error| at(&path, error.into()))?;
        let known_until: i64 =
            sqlx::query_scalar("SELECT high_ms FROM store_clock WHERE one = 1").fetch_one(&mut conn).await?;
        let clock = Arc::new(StoreClock::open(&*options.wall, options.boot.clone(), known_until));
        let opening: Arc<str> = trestle_domain::new_ulid(&*clock).into();
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .min_connections(1)
            .acquire_timeout(Duration::from_secs(30))
            .test_before_acquire(false)
            .connect_with(connect.read_only(true).pragma("query_only", "on"))
            .await?;
        let (changes, _) = broadcast::channel(CHANGES);
        let tx = Tx::new(conn, clock.clone(), options, opening);
        let (writer, stop, task) = Writer::start(tx, changes.clone());
        let store =
            Self { writer, readers, clock, changes, known_until, closing: Mutex::new(Some((stop, task))) };
        store.write(Durability::Full, 0, |tx| Box::pin(ops::settings::make_organisation(tx))).await?;
        Ok(store)
    }

    async fn write<T, F>(&self, durability: Durability, bytes: usize, work: F) -> StoreResult<T>
    where
        F: for<'a> FnOnce(&'a mut Tx) -> BoxFuture<'a, StoreResult<T>> + Send + 'static,
        T: Send + 'static,
    {
        self.writer.write(durability, bytes, work).await
    }

    async fn reader(&self) -> StoreResult<sqlx::pool::PoolConnection<sqlx::Sqlite>> {
        Ok(self.readers.acquire().await?)
    }

    async fn shut_down(&self) {
        if let Some((stop, task)) = self.closing.lock().await.take() {
            // Readers first: whoever closes last puts the log into the database, and only the writer may.
            self.readers.close().await;
            // The writer listens until it has ended; if it has, there is nothing to stop.
            let _ = stop.send(());
            if let Err(error) = task.await {
                tracing::error!(%error, "the writer ended early");
            }
        }
    }
}

/// Makes the database file readable for its owner only, before SQLite makes it readable for all.
/// The files that SQLite puts beside it take over its mode.
fn make_private(path: &Path) -> StoreResult<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(|_| ())
        .map_err(|error| denied(path, &error))
}

fn connect_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    let mut connect = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        .statement_cache_capacity(256)
        .pragma("journal_size_limit", "67108864")
        .pragma("temp_store", "memory")
        .disable_statement_logging();
    if let Some(pages) = options.max_pages {
        connect = connect.pragma("max_page_count", pages.to_string());
    }
    connect
}

fn migrations() -> Migrator {
    let migration = |version, name, text: &'static str| {
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, text.into_sql_str(), false)
    };
    Migrator::with_migrations(vec![
        migration(1, "start", include_str!("../../migrations/0001_start.sql")),
        migration(
            2,
            "providers and brackets",
            include_str!("../../migrations/0002_providers_and_brackets.sql"),
        ),
        migration(3, "call depth", include_str!("../../migrations/0003_call_depth.sql")),
    ])
}

/// Puts the path into an error of opening.
fn at(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Denied { reason, .. } => StoreError::Denied { path: path.to_owned(), reason },
        StoreError::Corrupt(reason) => StoreError::Corrupt(format!("{}: {reason}", path.display())),
        other => other,
    }
}

/// A connection to read or write with.
pub(crate) type Conn = SqliteConnection;

#[cfg(test)]
mod plans;
