//! The part of a run that rules are judged by, and who may speak for it.

use sqlx::sqlite::SqliteRow;
use trestle_contract::event::RunStatus;
use trestle_contract::ids::RunId;
use trestle_domain::{Admission, Call, RunAccess, RunEvent, admit, transition};

use crate::error::{Conflict, Entity, StoreError, StoreResult};
use crate::model::Fence;
use crate::sqlite::Conn;
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;

/// The state of a run inside of a transaction.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    pub(crate) number: i64,
    pub(crate) id: RunId,
    pub(crate) status: RunStatus,
    pub(crate) attempt: u32,
    pub(crate) lost_attempts: u32,
    pub(crate) epoch: u64,
    pub(crate) claimed_epoch: Option<u64>,
    pub(crate) worker: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) ordered_telemetry: bool,
    pub(crate) session_base: u64,
    pub(crate) finalized_epoch: Option<u64>,
    pub(crate) completed_at: Option<i64>,
    pub(crate) parent: Option<i64>,
    pub(crate) pool: String,
    pub(crate) labels: String,
    pub(crate) pool_lease_until: Option<i64>,
    pub(crate) run_lease_until: Option<i64>,
}

const BY_ID: &str = "
    SELECT r.*, a.expires_at AS pool_lease_until, s.expires_at AS run_lease_until
    FROM runs r
    LEFT JOIN leases a ON a.run = r.number AND a.kind = 0
    LEFT JOIN leases s ON s.run = r.number AND s.kind = 1
    WHERE r.id = ?";

const BY_NUMBER: &str = "
    SELECT r.*, a.expires_at AS pool_lease_until, s.expires_at AS run_lease_until
    FROM runs r
    LEFT JOIN leases a ON a.run = r.number AND a.kind = 0
    LEFT JOIN leases s ON s.run = r.number AND s.kind = 1
    WHERE r.number = ?";

fn optional_epoch(row: &SqliteRow, name: &str) -> StoreResult<Option<u64>> {
    Ok(row.number_if_any(name)?.and_then(|epoch| u64::try_from(epoch).ok()))
}

fn state(row: &SqliteRow) -> StoreResult<RunState> {
    Ok(RunState {
        number: row.number("number")?,
        id: row.id("id")?,
        status: row.status("status")?,
        attempt: row.small("attempt")?,
        lost_attempts: row.small("lost_attempts")?,
        epoch: row.unsigned("epoch")?,
        claimed_epoch: optional_epoch(row, "claimed_epoch")?,
        worker: row.text_if_any("worker")?,
        session: row.text_if_any("session")?,
        ordered_telemetry: row.flag("ordered_telemetry")?,
        session_base: row.unsigned("session_base")?,
        finalized_epoch: optional_epoch(row, "finalized_epoch")?,
        completed_at: row.number_if_any("completed_at")?,
        parent: row.number_if_any("parent")?,
        pool: row.text("pool")?,
        labels: row.text("labels")?,
        pool_lease_until: row.number_if_any("pool_lease_until")?,
        run_lease_until: row.number_if_any("run_lease_until")?,
    })
}

impl RunState {
    pub(crate) async fn by_id(conn: &mut Conn, id: &RunId) -> StoreResult<Self> {
        sqlx::query(BY_ID)
            .bind(id.as_str())
            .fetch_optional(conn)
            .await?
            .map_or(Err(StoreError::NotFound(Entity::Run)), |row| state(&row))
    }

    pub(crate) async fn by_number(conn: &mut Conn, number: i64) -> StoreResult<Self> {
        sqlx::query(BY_NUMBER)
            .bind(number)
            .fetch_optional(conn)
            .await?
            .map_or(Err(StoreError::NotFound(Entity::Run)), |row| state(&row))
    }

    /// The facts that a call with a token of this epoch is judged by.
    pub(crate) fn access(&self, token_epoch: u64) -> RunAccess {
        RunAccess {
            status: self.status,
            token_epoch,
            epoch: self.epoch,
            finalized: self.finalized_epoch.zip(self.completed_at),
            pool_lease_until: self.pool_lease_until,
            run_lease_until: self.run_lease_until,
        }
    }

    /// Whether the run claim of the current epoch was made.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed_epoch == Some(self.epoch)
    }

    /// Whether a run process holds it under live leases.
    pub(crate) fn is_held(&self, now: i64) -> bool {
        let live = |until: Option<i64>| until.is_some_and(|until| !trestle_domain::expired(until, now));
        self.is_claimed() && live(self.pool_lease_until) && live(self.run_lease_until)
    }

    /// The status after an event.
    pub(crate) fn after(&self, event: RunEvent) -> StoreResult<RunStatus> {
        transition(self.status, event).map_err(|refusal| {
            StoreError::Conflict(match refusal {
                trestle_domain::RunRefusal::Ended(_) => Conflict::RunEnded,
                trestle_domain::RunRefusal::OutOfPlace(..) => Conflict::Displaced,
            })
        })
    }
}

/// The run of a fence, if the call is admitted.
pub(crate) async fn admitted(tx: &mut Tx, fence: &Fence, call: Call) -> StoreResult<(RunState, Admission)> {
    let run = RunState::by_id(&mut tx.conn, &fence.run).await?;
    match admit(&run.access(fence.epoch), call, tx.now) {
        Admission::Conflict | Admission::Unknown => Err(refusal(&run)),
        admission => Ok((run, admission)),
    }
}

/// The run of a fence that is current.
pub(crate) async fn held(tx: &mut Tx, fence: &Fence) -> StoreResult<RunState> {
    Ok(admitted(tx, fence, Call::Ordinary).await?.0)
}

fn refusal(run: &RunState) -> StoreError {
    StoreError::Conflict(if run.status.is_terminal() { Conflict::RunEnded } else { Conflict::Displaced })
}
