//! What has to happen although nobody asks: lapsed leases, abandoned uploads,
//! outlived rows.

use std::time::Duration;

use crate::state::State;

/// Leases taken back in one transaction.
const BATCH: u32 = 256;
/// Sweeps for leases between two sweeps for the rest.
const REST_EVERY: u32 = 30;

/// Sweeps until shutdown. A lease is looked at when it lapses, and every
/// sweep period in any case.
pub(crate) async fn sweep(state: State) {
    let period = state.config().intervals.sweep_ms;
    let mut round = 0_u32;
    loop {
        let next = leases(&state).await;
        if round.is_multiple_of(REST_EVERY) {
            rest(&state).await;
        }
        round = round.wrapping_add(1);
        let wait = next
            .map(|at| u64::try_from(at - state.now()).unwrap_or(0))
            .map_or(period, |wait| wait.clamp(1, period));
        tokio::select! {
            () = state.shutdown().cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(wait)) => {}
        }
    }
}

/// Takes back lapsed leases; answers when the next one lapses.
async fn leases(state: &State) -> Option<i64> {
    loop {
        match state.store().sweep_leases(BATCH).await {
            Ok(report) => {
                let full = report.taken_back.len() >= BATCH as usize;
                for (run, fate) in report.taken_back {
                    tracing::warn!(%run, ?fate, "a run was taken back because its lease lapsed");
                    state.relay().stop_run(&run);
                }
                for runner in report.drained {
                    tracing::warn!(%runner, "a runner was drained: it lost too many leases in a row");
                }
                if !full {
                    return report.next_expiry;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the sweep for lapsed leases failed");
                return None;
            }
        }
    }
}

async fn rest(state: &State) {
    let _removing = state.uploads().write().await;
    match state.store().sweep_uploads().await {
        Ok(keys) => {
            for key in keys {
                if let Err(error) = state.blobs().delete(&key).await {
                    tracing::warn!(%error, %key, "an abandoned upload could not be removed");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "the sweep for abandoned uploads failed"),
    }
    if let Err(error) = state.store().sweep_expired_rows().await {
        tracing::warn!(%error, "the sweep for outlived rows failed");
    }
}
