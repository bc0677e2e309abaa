//! Settings of a store.

use std::sync::Arc;

use trestle_domain::{BootClock, Clock, WallClock};

/// Intervals and bounds of a store. The defaults are those of a real installation.
#[derive(Clone)]
pub struct StoreOptions {
    /// Wall clock, read once at open.
    pub wall: Arc<dyn Clock>,
    /// Clock that runs on while the machine sleeps; time passes by it.
    pub boot: Arc<dyn Clock>,
    /// How long an offer stands before it is made to another runner, ms.
    pub offer_ms: i64,
    /// A runner that was heard of within this time lives, ms.
    pub runner_live_ms: i64,
    /// A write of the same artifact within this time is a repeat, ms.
    pub artifact_dedupe_ms: i64,
    /// How long an idempotency answer is kept, ms.
    pub idempotency_keep_ms: i64,
    /// How long an unfinished request blocks its key, ms.
    pub idempotency_hold_ms: i64,
    /// Connections for readers.
    pub readers: u32,
    /// Writes that may wait for the writer, beyond which callers wait.
    pub write_queue: usize,
    /// Bytes that may wait for the writer.
    pub write_queue_bytes: usize,
    /// Size limit of the database in pages of 4 KiB.
    pub max_pages: Option<u32>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            wall: Arc::new(WallClock),
            boot: Arc::new(BootClock),
            offer_ms: 5_000,
            runner_live_ms: 60_000,
            artifact_dedupe_ms: 5 * 60_000,
            idempotency_keep_ms: 24 * 3_600_000,
            idempotency_hold_ms: 60_000,
            readers: 4,
            write_queue: 1_024,
            write_queue_bytes: 256 * 1024 * 1024,
            max_pages: None,
        }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoreOptions").finish_non_exhaustive()
    }
}
