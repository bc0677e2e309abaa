//! SQLite shows the behaviour that every store shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod suite;

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use trestle_store::{DataDir, SqliteStore, Store, StoreOptions};

/// A data directory that goes with the test.
struct TempPlace {
    data: DataDir,
    _directory: TempDir,
}

impl TempPlace {
    fn factory() -> Arc<dyn suite::Factory> {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Self { data: DataDir::open(directory.path()).unwrap(), _directory: directory })
    }
}

#[async_trait]
impl suite::Factory for TempPlace {
    async fn open(&self, options: StoreOptions) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.data, options).await.unwrap())
    }

    fn fresh(&self) -> Arc<dyn suite::Factory> {
        Self::factory()
    }
}

behaviour_suite!(crate::TempPlace::factory());
