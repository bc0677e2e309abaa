//! Keeping leases, losing them, and taking runs back.

use trestle_contract::event::RunStatus;
use trestle_contract::ids::{LeaseId, RunId, RunnerId};
use trestle_domain::{
    Admission, BracketEnd, Call, LossOutcome, RunEvent, admit, after_loss, boot_extension, renewed_until,
};

use super::ends::{End, end_run};
use super::run_state::{RunState, held};
use super::{events, queue};
use crate::error::{Conflict, StoreError, StoreResult};
use crate::model::{
    CancelState, Fence, Heartbeat, HeartbeatAnswer, LeaseMode, ReleaseReason, Releaser, RunFailure,
    SweepReport, TakenBack,
};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, signed};
use crate::sqlite::writer::Tx;
use crate::store::Change;

pub(crate) const ASSIGNMENT_LEASE: i64 = 0;
pub(crate) const RUN_LEASE: i64 = 1;

pub(crate) fn mode_number(mode: LeaseMode) -> i64 {
    match mode {
        LeaseMode::Active => 0,
        LeaseMode::Lent => 1,
        LeaseMode::Parked => 2,
    }
}

/// An assignment that was claimed at some time.
pub(crate) struct HeldAssignment {
    pub(crate) id: String,
    pub(crate) run: i64,
    pub(crate) runner: String,
    pub(crate) lease: LeaseId,
    pub(crate) epoch: u64,
    pub(crate) mode: i64,
    pub(crate) created_at: i64,
    pub(crate) open: bool,
}

fn held_assignment(row: &sqlx::sqlite::SqliteRow) -> StoreResult<HeldAssignment> {
    Ok(HeldAssignment {
        id: row.text("id")?,
        run: row.number("run")?,
        runner: row.text("runner")?,
        lease: row.id("lease")?,
        epoch: row.unsigned("epoch")?,
        mode: row.number("mode")?,
        created_at: row.number("created_at")?,
        open: row.number_if_any("closed_at")?.is_none(),
    })
}

pub(crate) async fn run_of_assignment(tx: &mut Tx, id: &str) -> StoreResult<Option<HeldAssignment>> {
    sqlx::query("SELECT * FROM assignments WHERE id = ?")
        .bind(id)
        .fetch_optional(&mut tx.conn)
        .await?
        .map(|row| held_assignment(&row))
        .transpose()
}

/// The open assignment under a lease of this runner.
async fn by_lease(tx: &mut Tx, runner: &RunnerId, lease: &LeaseId) -> StoreResult<HeldAssignment> {
    let row = sqlx::query("SELECT * FROM assignments WHERE lease = ?")
        .bind(lease.as_str())
        .fetch_optional(&mut tx.conn)
        .await?;
    match row.map(|row| held_assignment(&row)).transpose()? {
        Some(found) if found.open && found.runner == runner.as_str() => Ok(found),
        _ => Err(Conflict::LeaseLost.into()),
    }
}

/// Starts or prolongs a lease; answers its end. `until` is its present end, which it never falls below.
pub(crate) async fn put_lease(
    tx: &mut Tx,
    run: i64,
    kind: i64,
    epoch: u64,
    length_ms: i64,
    until: Option<i64>,
) -> StoreResult<i64> {
    let expires_at = renewed_until(until.unwrap_or(tx.now), length_ms, tx.now);
    sqlx::query(
        "INSERT INTO leases (run, kind, epoch, length_ms, expires_at) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (run, kind) DO UPDATE SET epoch = excluded.epoch, length_ms = excluded.length_ms,
            expires_at = excluded.expires_at",
    )
    .bind(run)
    .bind(kind)
    .bind(signed(epoch)?)
    .bind(length_ms)
    .bind(expires_at)
    .execute(&mut tx.conn)
    .await?;
    Ok(expires_at)
}

pub(crate) async fn renew(tx: &mut Tx, fence: &Fence, lease_ms: i64) -> StoreResult<i64> {
    let run = held(tx, fence).await?;
    if run.run_lease_until.is_none() {
        return Err(Conflict::Displaced.into());
    }
    put_lease(tx, run.number, RUN_LEASE, run.epoch, lease_ms, run.run_lease_until).await
}

pub(crate) async fn heartbeat(tx: &mut Tx, beat: Heartbeat) -> StoreResult<HeartbeatAnswer> {
    let assignment = by_lease(tx, &beat.runner, &beat.lease).await?;
    let run = RunState::by_number(&mut tx.conn, assignment.run).await?;
    let fresh = admit(&run.access(assignment.epoch), Call::Ordinary, tx.now) == Admission::Allow;
    if !fresh || run.id != beat.run {
        return Err(Conflict::LeaseLost.into());
    }
    let lease_expires_at =
        put_lease(tx, run.number, ASSIGNMENT_LEASE, run.epoch, beat.lease_ms, run.pool_lease_until).await?;
    super::runners::touch(tx, &beat.runner, None).await?;
    let drain: Option<String> = sqlx::query_scalar("SELECT drain_reason FROM runners WHERE id = ?")
        .bind(beat.runner.as_str())
        .fetch_one(&mut tx.conn)
        .await?;
    Ok(HeartbeatAnswer {
        lease_expires_at,
        cancel: run.status == RunStatus::Cancelling,
        drain: drain.is_some(),
    })
}

pub(crate) async fn set_mode(
    tx: &mut Tx,
    runner: &RunnerId,
    lease: &LeaseId,
    mode: LeaseMode,
) -> StoreResult<()> {
    let assignment = by_lease(tx, runner, lease).await?;
    let (before, after) = (assignment.mode, mode_number(mode));
    if before == after {
        return Ok(());
    }
    sqlx::query("UPDATE assignments SET mode = ? WHERE id = ?")
        .bind(after)
        .bind(&assignment.id)
        .execute(&mut tx.conn)
        .await?;
    count_leases(tx, &assignment.runner, before, -1).await?;
    count_leases(tx, &assignment.runner, after, 1).await
}

async fn count_leases(tx: &mut Tx, runner: &str, mode: i64, by: i64) -> StoreResult<()> {
    let statement = if mode == mode_number(LeaseMode::Active) {
        "UPDATE runners SET active_leases = active_leases + ? WHERE id = ?"
    } else {
        "UPDATE runners SET waiting_leases = waiting_leases + ? WHERE id = ?"
    };
    sqlx::query(statement).bind(by).bind(runner).execute(&mut tx.conn).await?;
    Ok(())
}

/// Closes both leases of a run and frees the slot. Answers the assignment that was open.
pub(crate) async fn close_leases(
    tx: &mut Tx,
    run: &RunState,
    outcome: &str,
) -> StoreResult<Option<HeldAssignment>> {
    sqlx::query("DELETE FROM leases WHERE run = ?").bind(run.number).execute(&mut tx.conn).await?;
    let row = sqlx::query("SELECT * FROM assignments WHERE run = ? AND closed_at IS NULL")
        .bind(run.number)
        .fetch_optional(&mut tx.conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let assignment = held_assignment(&row)?;
    sqlx::query("UPDATE assignments SET closed_at = ?, outcome = ? WHERE id = ?")
        .bind(tx.now)
        .bind(outcome)
        .bind(&assignment.id)
        .execute(&mut tx.conn)
        .await?;
    count_leases(tx, &assignment.runner, assignment.mode, -1).await?;
    Ok(Some(assignment))
}

/// How a run was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// A lease lapsed: nobody was heard of.
    Lapsed,
    /// Somebody told so.
    Told(ReleaseReason),
}

impl Loss {
    /// Whether it counts towards the attempts that a run may lose.
    fn counts(self) -> bool {
        self != Self::Told(ReleaseReason::Handback)
    }

    /// How what the process left open is closed.
    fn brackets(self) -> BracketEnd {
        if self.counts() { BracketEnd::Lost } else { BracketEnd::Cancelled }
    }

    fn outcome(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Told(ReleaseReason::Died) => "died",
            Self::Told(ReleaseReason::Handback) => "handed back",
        }
    }
}

/// Takes a run away from whoever holds it.
async fn take_back(tx: &mut Tx, run: &RunState, loss: Loss) -> StoreResult<(TakenBack, Option<RunnerId>)> {
    if run.status.is_terminal() {
        close_leases(tx, run, loss.outcome()).await?;
        return Ok((TakenBack::AlreadyEnded, None));
    }
    let assignment = close_leases(tx, run, loss.outcome()).await?;
    let mut drained = None;
    if let Some(assignment) = &assignment
        && loss.counts()
    {
        drained = count_loss(tx, run, assignment, loss).await?;
    }
    let mut run = run.clone();
    if loss.counts() {
        run.lost_attempts += 1;
    }
    let taken = match (run.after(RunEvent::Requeue)?, after_loss(run.lost_attempts.max(1))) {
        (RunStatus::Cancelled, _) => {
            end_run(tx, &run, End::by_server(RunStatus::Cancelled, None)).await?;
            TakenBack::Cancelled
        }
        (_, LossOutcome::Crash) if loss.counts() => {
            let status = run.after(RunEvent::Abandon)?;
            end_run(tx, &run, End::by_server(status, Some(crash(run.lost_attempts)))).await?;
            TakenBack::Crashed
        }
        (status, _) => {
            requeue(tx, &run, status, loss).await?;
            TakenBack::Requeued
        }
    };
    Ok((taken, drained))
}

fn crash(attempts: u32) -> RunFailure {
    RunFailure {
        code: "CRASHED".into(),
        message: format!("the run process was lost {attempts} times without a result"),
        hint: Some("look for what ends the process: memory, a native module, or the runner's own log".into()),
        reason: None,
    }
}

async fn requeue(tx: &mut Tx, run: &RunState, status: RunStatus, loss: Loss) -> StoreResult<()> {
    // A try that never started and was not lost is not counted as one.
    let next = if loss.counts() || run.is_claimed() { run.attempt + 1 } else { run.attempt };
    sqlx::query(
        "UPDATE runs SET status = ?, attempt = ?, lost_attempts = ?, epoch = epoch + 1, pending_since = ?
         WHERE number = ?",
    )
    .bind(status.as_str())
    .bind(next)
    .bind(run.lost_attempts)
    .bind(tx.now)
    .bind(run.number)
    .execute(&mut tx.conn)
    .await?;
    super::open_brackets::close(tx, run, loss.brackets()).await?;
    if run.status != status {
        events::append_status(tx, run, status, None, true).await?;
    }
    queue::enqueue(tx, run.number, &run.pool, &run.labels).await?;
    tx.changed(Change::Run(run.id.clone()));
    Ok(())
}

/// Notes who lost the run. Answers the runner when it has to drain now.
async fn count_loss(
    tx: &mut Tx,
    run: &RunState,
    assignment: &HeldAssignment,
    loss: Loss,
) -> StoreResult<Option<RunnerId>> {
    sqlx::query(
        "INSERT INTO lost_attempts (run, runner, count) VALUES (?, ?, 1)
         ON CONFLICT (run, runner) DO UPDATE SET count = count + 1",
    )
    .bind(run.number)
    .bind(&assignment.runner)
    .execute(&mut tx.conn)
    .await?;
    if loss != Loss::Lapsed {
        return Ok(None);
    }
    // Leases taken before the last loss went in the same outage: they are one loss in the row.
    let row = sqlx::query(
        "UPDATE runners SET lost_in_row = lost_in_row + 1, last_loss_at = ?
         WHERE id = ? AND last_loss_at <= ? RETURNING lost_in_row, drain_reason",
    )
    .bind(tx.now)
    .bind(&assignment.runner)
    .bind(assignment.created_at)
    .fetch_optional(&mut tx.conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let losses = row.small("lost_in_row")?;
    if !trestle_domain::must_drain(losses) || row.text_if_any("drain_reason")?.is_some() {
        return Ok(None);
    }
    let id =
        RunnerId::new(assignment.runner.clone()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let reason = format!("lost {losses} leases in a row: it answers too late or not at all");
    super::runners::drain(tx, &id, &reason).await?;
    Ok(Some(id))
}

pub(crate) async fn release(tx: &mut Tx, by: Releaser, reason: ReleaseReason) -> StoreResult<TakenBack> {
    let run = match by {
        Releaser::Session(fence) => held(tx, &fence).await?,
        Releaser::Runner { runner, lease } => {
            let assignment = by_lease(tx, &runner, &lease).await?;
            RunState::by_number(&mut tx.conn, assignment.run).await?
        }
    };
    Ok(take_back(tx, &run, Loss::Told(reason)).await?.0)
}

pub(crate) const LAPSED: &str = "SELECT run FROM leases WHERE expires_at <= ? ORDER BY expires_at LIMIT ?";
pub(crate) const NEXT_EXPIRY: &str = "SELECT min(expires_at) FROM leases";

pub(crate) async fn sweep(tx: &mut Tx, limit: u32) -> StoreResult<SweepReport> {
    let lapsed: Vec<i64> =
        sqlx::query_scalar(LAPSED).bind(tx.now).bind(i64::from(limit)).fetch_all(&mut tx.conn).await?;
    let mut report = SweepReport::default();
    let mut swept = std::collections::BTreeSet::new();
    // Both leases of a run may have lapsed; it is taken back once.
    for number in lapsed.into_iter().filter(|number| swept.insert(*number)) {
        let run = RunState::by_number(&mut tx.conn, number).await?;
        let (taken, drained) = take_back(tx, &run, Loss::Lapsed).await?;
        report.taken_back.push((run.id, taken));
        report.drained.extend(drained);
    }
    report.next_expiry = next_expiry(&mut tx.conn).await?;
    Ok(report)
}

pub(crate) async fn next_expiry(conn: &mut Conn) -> StoreResult<Option<i64>> {
    Ok(sqlx::query_scalar(NEXT_EXPIRY).fetch_one(conn).await?)
}

pub(crate) async fn extend(tx: &mut Tx, known_until: i64) -> StoreResult<u64> {
    let rows = sqlx::query("SELECT run, kind, length_ms, expires_at FROM leases WHERE expires_at > ?")
        .bind(known_until)
        .fetch_all(&mut tx.conn)
        .await?;
    let mut extended = 0;
    for row in &rows {
        let until = row.number("expires_at")?;
        let end = boot_extension(until, row.number("length_ms")?, tx.now);
        if end > until {
            sqlx::query("UPDATE leases SET expires_at = ? WHERE run = ? AND kind = ?")
                .bind(end)
                .bind(row.number("run")?)
                .bind(row.number("kind")?)
                .execute(&mut tx.conn)
                .await?;
            extended += 1;
        }
    }
    Ok(extended)
}

pub(crate) async fn end_of_runner(
    tx: &mut Tx,
    runner: &RunnerId,
    reason: ReleaseReason,
) -> StoreResult<Vec<(RunId, TakenBack)>> {
    let numbers: Vec<i64> =
        sqlx::query_scalar("SELECT run FROM assignments WHERE runner = ? AND closed_at IS NULL ORDER BY run")
            .bind(runner.as_str())
            .fetch_all(&mut tx.conn)
            .await?;
    let mut taken_back = Vec::with_capacity(numbers.len());
    for number in numbers {
        let run = RunState::by_number(&mut tx.conn, number).await?;
        let (taken, _) = take_back(tx, &run, Loss::Told(reason)).await?;
        taken_back.push((run.id, taken));
    }
    Ok(taken_back)
}

pub(crate) async fn cancel_state(conn: &mut Conn, fence: &Fence, now: i64) -> StoreResult<CancelState> {
    let run = RunState::by_id(conn, &fence.run).await?;
    let requested = match admit(&run.access(fence.epoch), Call::Cancel, now) {
        Admission::Cancel(requested) => requested,
        Admission::Allow | Admission::Repeat => false,
        Admission::Conflict | Admission::Unknown => true,
    };
    Ok(CancelState { requested })
}
