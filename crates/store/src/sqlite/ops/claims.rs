//! The pool claim and the run claim.

use trestle_contract::ids::LeaseId;
use trestle_domain::{ClaimDecision, PoolClaimFacts, RunClaimFacts, RunEvent, pool_claim, run_claim};

use super::leases::{ASSIGNMENT_LEASE, RUN_LEASE, put_lease, run_of_assignment};
use super::run_state::RunState;
use super::{events, runners, runs};
use crate::error::{Conflict, Entity, StoreError, StoreResult};
use crate::model::{AssignmentClaim, ClaimedAssignment, ClaimedRun, LeaseMode, RunClaim};
use crate::sqlite::convert::{Columns as _, signed};
use crate::sqlite::writer::Tx;
use crate::store::Change;

pub(crate) async fn claim_assignment(tx: &mut Tx, claim: AssignmentClaim) -> StoreResult<ClaimedAssignment> {
    let runner = runners::runner(&mut tx.conn, &claim.runner).await?;
    let waiting = sqlx::query("SELECT run, pool, offered_to FROM queue WHERE assignment = ?")
        .bind(claim.assignment.as_str())
        .fetch_optional(&mut tx.conn)
        .await?;
    let Some(entry) = waiting else {
        return claimed_before(tx, &claim).await;
    };
    if entry.text("pool")? != runner.pool {
        return Err(StoreError::NotFound(Entity::Assignment));
    }
    let run = RunState::by_number(&mut tx.conn, entry.number("run")?).await?;
    let offered_to = entry.text_if_any("offered_to")?;
    let decision = pool_claim(PoolClaimFacts {
        status: run.status,
        runner: claim.runner.as_str(),
        offered_to: offered_to.as_deref(),
        held_by: None,
        tokens_used: false,
    });
    match decision {
        ClaimDecision::Grant => grant(tx, &claim, &run).await,
        ClaimDecision::Repeat | ClaimDecision::Conflict => Err(Conflict::AssignmentTaken.into()),
    }
}

async fn grant(tx: &mut Tx, claim: &AssignmentClaim, run: &RunState) -> StoreResult<ClaimedAssignment> {
    let lease = tx.fresh_id();
    let epoch = signed(run.epoch + 1)?;
    sqlx::query("DELETE FROM queue WHERE run = ?").bind(run.number).execute(&mut tx.conn).await?;
    sqlx::query("UPDATE runs SET epoch = ?, dispatch_attempts = dispatch_attempts + 1 WHERE number = ?")
        .bind(epoch)
        .bind(run.number)
        .execute(&mut tx.conn)
        .await?;
    sqlx::query(
        "INSERT INTO assignments (id, run, runner, lease, epoch, mode, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(claim.assignment.as_str())
    .bind(run.number)
    .bind(claim.runner.as_str())
    .bind(&lease)
    .bind(epoch)
    .bind(super::leases::mode_number(LeaseMode::Active))
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?;
    sqlx::query("UPDATE runners SET active_leases = active_leases + 1 WHERE id = ?")
        .bind(claim.runner.as_str())
        .execute(&mut tx.conn)
        .await?;
    let lease_expires_at =
        put_lease(tx, run.number, ASSIGNMENT_LEASE, run.epoch + 1, claim.lease_ms, None).await?;
    tx.changed(Change::Run(run.id.clone()));
    Ok(ClaimedAssignment {
        lease: LeaseId::new(lease).map_err(|error| StoreError::Invalid(error.to_string()))?,
        run: runs::run(&mut tx.conn, &run.id).await?,
        lease_expires_at,
        repeated: false,
    })
}

/// The assignment is not in the queue any more: the same lease again for its own runner.
async fn claimed_before(tx: &mut Tx, claim: &AssignmentClaim) -> StoreResult<ClaimedAssignment> {
    let Some(held) = run_of_assignment(tx, claim.assignment.as_str()).await? else {
        return Err(StoreError::NotFound(Entity::Assignment));
    };
    let run = RunState::by_number(&mut tx.conn, held.run).await?;
    let live = held.open
        && held.epoch == run.epoch
        && run.pool_lease_until.is_some_and(|until| !trestle_domain::expired(until, tx.now));
    let decision = pool_claim(PoolClaimFacts {
        status: run.status,
        runner: claim.runner.as_str(),
        offered_to: None,
        held_by: live.then_some(held.runner.as_str()),
        tokens_used: run.is_claimed(),
    });
    match decision {
        ClaimDecision::Repeat => {
            let lease_expires_at =
                put_lease(tx, run.number, ASSIGNMENT_LEASE, run.epoch, claim.lease_ms, run.pool_lease_until)
                    .await?;
            Ok(ClaimedAssignment {
                lease: held.lease,
                run: runs::run(&mut tx.conn, &run.id).await?,
                lease_expires_at,
                repeated: true,
            })
        }
        ClaimDecision::Grant | ClaimDecision::Conflict => {
            let own = live && held.runner == claim.runner.as_str();
            Err(if own { Conflict::AlreadyClaimed } else { Conflict::AssignmentTaken }.into())
        }
    }
}

pub(crate) async fn claim_run(tx: &mut Tx, claim: RunClaim) -> StoreResult<ClaimedRun> {
    let run = RunState::by_id(&mut tx.conn, &claim.fence.run).await?;
    // A process is known by its nonce; one without a nonce by its worker id, which its runner may
    // give to several.
    let who = claim.session.as_deref().unwrap_or(&claim.worker);
    let claimed_by = if run.is_claimed() { run.session.as_deref().or(run.worker.as_deref()) } else { None };
    let decision =
        run_claim(RunClaimFacts { access: run.access(claim.fence.epoch), worker: who, claimed_by }, tx.now);
    let repeated = match decision {
        ClaimDecision::Grant => false,
        ClaimDecision::Repeat => true,
        ClaimDecision::Conflict => {
            return Err(
                if run.status.is_terminal() { Conflict::RunEnded } else { Conflict::Displaced }.into()
            );
        }
    };
    let last = events::last_cursor(&mut tx.conn, run.number).await?;
    if !repeated {
        let status = run.after(RunEvent::Claim)?;
        sqlx::query(
            "UPDATE runs SET status = ?, claimed_epoch = epoch, worker = ?, session = ?, ordered_telemetry = ?,
                session_base = ?, started_at = coalesce(started_at, ?), pending_since = NULL WHERE number = ?",
        )
        .bind(status.as_str())
        .bind(&claim.worker)
        .bind(&claim.session)
        .bind(claim.ordered_telemetry)
        .bind(signed(last)?)
        .bind(tx.now)
        .bind(run.number)
        .execute(&mut tx.conn)
        .await?;
        tx.changed(Change::Run(run.id.clone()));
    }
    let lease_until =
        put_lease(tx, run.number, RUN_LEASE, run.epoch, claim.lease_ms, run.run_lease_until).await?;
    Ok(ClaimedRun {
        run: runs::run(&mut tx.conn, &run.id).await?,
        lease_until,
        last_event_cursor: last,
        repeated,
    })
}
