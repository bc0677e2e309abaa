//! Ends of runs: by their process, by cancel, by the server.

use trestle_contract::event::RunStatus;
use trestle_contract::ids::RunId;
use trestle_contract::json::RawJson;
use trestle_domain::{Admission, BracketEnd, Call, RunEvent};

use super::leases::close_leases;
use super::run_state::{RunState, admitted};
use super::{events, open_brackets};
use crate::error::{StoreError, StoreResult};
use crate::model::{CancelOutcome, Finalize, Finalized, Outcome, RunFailure};
use crate::sqlite::convert::signed;
use crate::sqlite::writer::Tx;
use crate::store::Change;

/// How a run ends.
pub(crate) struct End {
    status: RunStatus,
    output: Option<RawJson>,
    error: Option<RunFailure>,
    /// The epoch of the process that reports it; none when the server ends the run, which then takes
    /// the next epoch so that no process can speak for it any more.
    by: Option<u64>,
}

impl End {
    pub(crate) fn by_server(status: RunStatus, error: Option<RunFailure>) -> Self {
        Self { status, output: None, error, by: None }
    }
}

/// Ends a run and everything that lives for it.
pub(crate) async fn end_run(tx: &mut Tx, run: &RunState, end: End) -> StoreResult<()> {
    let mut called = Vec::new();
    write_end(tx, run, end, &mut called).await?;
    cancel_all(tx, called).await
}

async fn write_end(tx: &mut Tx, run: &RunState, end: End, called: &mut Vec<i64>) -> StoreResult<()> {
    close_leases(tx, run, end.status.as_str()).await?;
    sqlx::query("DELETE FROM queue WHERE run = ?").bind(run.number).execute(&mut tx.conn).await?;
    // A process that is gone sends nothing more; one that reports its own end may have sent more
    // than has arrived, unless it sends in order.
    let in_order = end.by.is_none() || run.ordered_telemetry;
    if end.by.is_none() {
        let brackets =
            if end.status == RunStatus::Cancelled { BracketEnd::Cancelled } else { BracketEnd::Lost };
        open_brackets::close(tx, run, brackets).await?;
    }
    let shown_error = if end.status == RunStatus::Failed { end.error.as_ref() } else { None };
    let cursor = events::append_status(tx, run, end.status, shown_error, in_order).await?;
    let epoch = if end.by.is_some() { run.epoch } else { run.epoch + 1 };
    sqlx::query(
        "UPDATE runs SET status = ?, lost_attempts = ?, epoch = ?, finalized_epoch = ?, completed_at = ?,
            terminal_cursor = ?, pending_since = NULL WHERE number = ?",
    )
    .bind(end.status.as_str())
    .bind(run.lost_attempts)
    .bind(signed(epoch)?)
    .bind(end.by.map(signed).transpose()?)
    .bind(tx.now)
    .bind(signed(cursor)?)
    .bind(run.number)
    .execute(&mut tx.conn)
    .await?;
    let error = match &end.error {
        None => None,
        Some(error) => {
            Some(serde_json::to_string(error).map_err(|error| StoreError::Invalid(error.to_string()))?)
        }
    };
    sqlx::query("INSERT INTO run_results (run, error, output) VALUES (?, ?, ?)")
        .bind(run.number)
        .bind(error)
        .bind(end.output.as_ref().map(|output| output.get().to_owned()))
        .execute(&mut tx.conn)
        .await?;
    for statement in ["DELETE FROM turn_results WHERE run = ?", "DELETE FROM lost_attempts WHERE run = ?"] {
        sqlx::query(statement).bind(run.number).execute(&mut tx.conn).await?;
    }
    tx.changed(Change::Run(run.id.clone()));
    wake_parent(tx, run).await?;
    if end.status != RunStatus::Completed {
        called.extend(called_children(tx, run.number).await?);
    }
    Ok(())
}

async fn wake_parent(tx: &mut Tx, run: &RunState) -> StoreResult<()> {
    if let Some(parent) = run.parent {
        let id: Option<String> = sqlx::query_scalar("SELECT id FROM runs WHERE number = ?")
            .bind(parent)
            .fetch_optional(&mut tx.conn)
            .await?;
        if let Some(id) = id {
            let id = RunId::new(id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            tx.changed(Change::Run(id));
        }
    }
    Ok(())
}

/// Children that live for this run.
async fn called_children(tx: &mut Tx, run: i64) -> StoreResult<Vec<i64>> {
    Ok(sqlx::query_scalar("SELECT child FROM run_children WHERE parent = ? AND called = 1")
        .bind(run)
        .fetch_all(&mut tx.conn)
        .await?)
}

/// Cancels runs and what they called, however deep.
async fn cancel_all(tx: &mut Tx, mut numbers: Vec<i64>) -> StoreResult<()> {
    while let Some(number) = numbers.pop() {
        let run = RunState::by_number(&mut tx.conn, number).await?;
        if !run.status.is_terminal() {
            cancel_one(tx, &run, &mut numbers).await?;
        }
    }
    Ok(())
}

async fn cancel_one(tx: &mut Tx, run: &RunState, called: &mut Vec<i64>) -> StoreResult<CancelOutcome> {
    let status = run.after(RunEvent::Cancel { held: run.is_held(tx.now) })?;
    sqlx::query(
        "UPDATE runs SET status = ?, cancel_requested_at = coalesce(cancel_requested_at, ?) WHERE number = ?",
    )
    .bind(status.as_str())
    .bind(tx.now)
    .bind(run.number)
    .execute(&mut tx.conn)
    .await?;
    if status == RunStatus::Cancelled {
        write_end(tx, run, End::by_server(status, None), called).await?;
        return Ok(CancelOutcome::Cancelled);
    }
    called.extend(called_children(tx, run.number).await?);
    tx.changed(Change::Run(run.id.clone()));
    Ok(CancelOutcome::Cancelling)
}

pub(crate) async fn request_cancel(tx: &mut Tx, id: &RunId) -> StoreResult<CancelOutcome> {
    let run = RunState::by_id(&mut tx.conn, id).await?;
    if run.status.is_terminal() {
        return Ok(CancelOutcome::AlreadyEnded(run.status));
    }
    let mut called = Vec::new();
    let outcome = cancel_one(tx, &run, &mut called).await?;
    cancel_all(tx, called).await?;
    Ok(outcome)
}

pub(crate) async fn finalize(tx: &mut Tx, finalize: Finalize) -> StoreResult<Finalized> {
    let (run, admission) = admitted(tx, &finalize.fence, Call::Finalize).await?;
    if admission == Admission::Repeat {
        return Ok(Finalized { status: run.status, repeated: true });
    }
    let (event, output, error) = match finalize.outcome {
        Outcome::Completed { output } => (RunEvent::Complete, output, None),
        Outcome::Failed { output, error } => (RunEvent::Fail, output, Some(error)),
    };
    let status = run.after(event)?;
    let runner: Option<String> =
        sqlx::query_scalar("SELECT runner FROM assignments WHERE run = ? AND closed_at IS NULL")
            .bind(run.number)
            .fetch_optional(&mut tx.conn)
            .await?;
    let end = End { status, output: Some(output), error, by: Some(finalize.fence.epoch) };
    end_run(tx, &run, end).await?;
    if let Some(runner) = runner {
        sqlx::query("UPDATE runners SET lost_in_row = 0 WHERE id = ? AND lost_in_row > 0")
            .bind(runner)
            .execute(&mut tx.conn)
            .await?;
    }
    Ok(Finalized { status, repeated: false })
}
