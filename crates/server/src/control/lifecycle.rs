//! Claim, renew, release, finalize, version, cancel, credit
//! (docs/protocol/control.md §2 and §5).

use std::time::Duration;

use axum::extract::State as FromState;
use axum::response::Response;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use tokio::time::Instant;
use trestle_contract::bounds::EpochMs;
use trestle_contract::control::{
    CancelResponse, CreditResponse, Environment, FinalStatus, FinalizeRequest, Program, ReleaseRequest,
    RenewRequest, RenewResponse, Run, RunClaimRequest, RunClaimResponse, RunUsage, VersionResponse,
};
use trestle_contract::ids::{Digest, EnvironmentId, OrgId};
use trestle_contract::{ErrorCode, RawJson};
use trestle_store::{
    Entity, Finalize, Outcome, ReleaseReason, Releaser, RunClaim, RunFailure, RunRow, RunTotals, StoreError,
};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Reply};
use crate::failure::{Answer, Failure};
use crate::pool::with_lease;
use crate::routes::{BodySize, Route, Table};
use crate::state::State;
use crate::wait;

/// Sent by our run process: names the process, and promises telemetry in
/// order.
static SESSION: HeaderName = HeaderName::from_static("x-trestle-session");

/// Shortest and longest run lease, in seconds.
const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/claim", "Claims the run for one run process")
            .takes::<RunClaimRequest>()
            .answers::<RunClaimResponse>(StatusCode::CREATED),
        claim,
    );
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/renew", "Prolongs the run lease")
            .takes::<RenewRequest>()
            .answers::<RenewResponse>(StatusCode::OK),
        renew,
    );
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/release", "Gives the run back without an end")
            .takes::<ReleaseRequest>()
            .empty(StatusCode::NO_CONTENT),
        release,
    );
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/finalize", "Ends the run")
            .size(BodySize::Large)
            .takes::<FinalizeRequest>()
            .empty(StatusCode::NO_CONTENT),
        finalize,
    );
    table.add(
        Route::run(
            Method::GET,
            "/runner/v1/runs/{run}/version",
            "Manifest and program of the pinned version",
        )
        .answers::<VersionResponse>(StatusCode::OK),
        version,
    );
    table.add(
        Route::run(Method::GET, "/runner/v1/runs/{run}/credit", "Whether the run may go on")
            .answers::<CreditResponse>(StatusCode::OK),
        credit,
    );
    table.add(
        Route::run(Method::GET, "/runner/v1/runs/{run}/cancel", "Whether the run is to be cancelled")
            .header("x-trestle-wait", "Seconds to hold the call until the answer is true")
            .answers::<CancelResponse>(StatusCode::OK),
        cancel,
    );
}

fn lease_ms(request: &RunClaimRequest) -> i64 {
    let seconds = request.lease_seconds.get().clamp(*LEASE_SECONDS.start(), *LEASE_SECONDS.end());
    i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX)
}

async fn claim(
    FromState(state): FromState<State>,
    auth: RunAuth,
    headers: HeaderMap,
    Json(request): Json<RunClaimRequest>,
) -> Answer<Response> {
    let session = headers.get(&SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let length = lease_ms(&request);
    let claimed = state
        .store()
        .claim_run(RunClaim {
            fence: auth.fence(),
            worker: request.worker_id.as_str().to_owned(),
            ordered_telemetry: session.is_some(),
            session,
            lease_ms: length,
        })
        .await?;
    let environment = claimed.run.environment.as_deref().map(shown_environment).transpose()?;
    let answer = RunClaimResponse {
        lease_until: Some(EpochMs::saturating_signed(claimed.lease_until)),
        last_event_cursor: Some(claimed.last_event_cursor),
        workflow_version: Some(unsigned(claimed.run.version_number)),
        environment,
        last_journal_seq: None,
        capabilities: Some(["turnKey", "wait", "release", "brokered"].map(str::to_owned).to_vec()),
        usage: Some(used(&claimed.run.totals)),
        run: shown_run(claimed.run, Some(claimed.lease_until))?,
    };
    Ok(with_lease(Reply::created(answer), length))
}

/// What a run used up to now: its next attempt goes on from there.
fn used(totals: &RunTotals) -> RunUsage {
    RunUsage {
        usd_micros: unsigned(totals.cost_micros),
        tokens: unsigned(totals.tokens_in).saturating_add(unsigned(totals.tokens_out)),
        compute_ms: unsigned(totals.runtime_seconds).saturating_mul(1000),
    }
}

fn shown_environment(id: &str) -> Answer<Environment> {
    Ok(Environment { id: EnvironmentId::new(id).map_err(Failure::internal)?, name: id.to_owned() })
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A run as its own process sees it.
fn shown_run(run: RunRow, lease_until: Option<i64>) -> Answer<Run> {
    let time = |value: Option<i64>| value.map(EpochMs::saturating_signed);
    let json = |value: Option<RawJson>| value.unwrap_or_else(RawJson::null);
    Ok(Run {
        id: run.id,
        org_id: OrgId::new(run.organisation).map_err(Failure::internal)?,
        workflow_id: run.workflow,
        workflow_version_id: run.version,
        environment_id: run.environment.map(EnvironmentId::new).transpose().map_err(Failure::internal)?,
        attempt: Some(run.attempt.into()),
        parent_run_id: run.parent,
        actor: run.actor.decode().map_err(Failure::internal)?,
        trigger_kind: run.trigger_kind,
        trigger_request: run.trigger_request,
        trigger_payload: json(run.trigger_payload),
        status: run.status,
        concurrency_key: run.concurrency_key,
        input: json(run.input),
        config: RawJson::null(),
        output: json(run.output),
        state: RawJson::null(),
        lease_until: time(lease_until.or(run.lease_until)),
        worker_id: run.worker,
        next_wake_at: None,
        waiting_on_run_id: None,
        retried_from_run_id: run.retried_from,
        started_at: time(run.started_at),
        completed_at: time(run.completed_at),
        created_at: EpochMs::saturating_signed(run.created_at),
        pending_since: time(run.pending_since),
        outcome_status: None,
        outcome_reasoning: None,
        tokens_in: unsigned(run.totals.tokens_in),
        tokens_out: unsigned(run.totals.tokens_out),
        runtime_seconds: unsigned(run.totals.runtime_seconds),
        dispatch_attempts: unsigned(run.dispatch_attempts),
    })
}

async fn renew(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<RenewRequest>,
) -> Answer<Response> {
    let length = lease_ms(&request);
    let until = state.store().renew(&auth.fence(), length).await?;
    let cancel = state.store().cancel_state(&auth.fence()).await?;
    let answer = RenewResponse {
        lease_until: EpochMs::saturating_signed(until),
        cancel_requested: Some(cancel.requested),
        // A token of ours lives as long as its lease (docs/decisions/006-run-tokens-live-with-their-lease.md).
        run_token: None,
    };
    Ok(with_lease(Reply::ok(answer), length))
}

async fn release(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<ReleaseRequest>,
) -> Answer<StatusCode> {
    let reason = match request.reason.as_str() {
        "handback" | "shutdown" => ReleaseReason::Handback,
        _ => ReleaseReason::Died,
    };
    tracing::info!(run = %auth.run(), worker = %request.worker_id, reason = %request.reason, "a run was given back");
    state.store().release(Releaser::Session(auth.fence()), reason).await?;
    state.relay().stop_run(auth.run());
    Ok(StatusCode::NO_CONTENT)
}

async fn finalize(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<FinalizeRequest>,
) -> Answer<StatusCode> {
    let error = request.error();
    let outcome = match request.status {
        FinalStatus::Completed => Outcome::Completed { output: request.output },
        FinalStatus::Failed => Outcome::Failed {
            output: request.output,
            error: error.map_or_else(
                || RunFailure {
                    code: ErrorCode::ProgramError.as_str().to_owned(),
                    message: "the run failed and its process said no more".to_owned(),
                    hint: None,
                    reason: None,
                },
                |error| RunFailure {
                    code: error.code,
                    message: error.message,
                    hint: error.hint,
                    reason: error.reason,
                },
            ),
        },
    };
    state.store().finalize(Finalize { fence: auth.fence(), outcome }).await?;
    state.relay().stop_run(auth.run());
    Ok(StatusCode::NO_CONTENT)
}

async fn version(FromState(state): FromState<State>, auth: RunAuth) -> Answer<Reply<VersionResponse>> {
    held(&state, &auth).await?;
    let version = super::pinned(&state, &auth).await?;
    let life = Duration::from_millis(state.config().intervals.download_ms);
    let (download_url, _) = state.download(&version.program.blob_key, life, Some("application/gzip"), None);
    Ok(Reply::ok(VersionResponse {
        manifest: version.manifest,
        program: Program {
            entry: version.program.entry,
            digest: Digest::new(version.program.digest).map_err(Failure::internal)?,
            sdk_version: version.program.sdk_version,
            download_url,
        },
    }))
}

/// Runs on one's own machines are always funded.
async fn credit() -> Reply<CreditResponse> {
    Reply::ok(CreditResponse { funded: true })
}

async fn cancel(
    FromState(state): FromState<State>,
    auth: RunAuth,
    headers: HeaderMap,
) -> Answer<Reply<CancelResponse>> {
    let deadline = wait::deadline(&state, &headers)?;
    // The watch starts before the first look, so no change is missed.
    let mut watch = state.hub().watch(auth.run());
    loop {
        let requested = match state.store().cancel_state(&auth.fence()).await {
            Ok(cancel) => cancel.requested,
            Err(StoreError::NotFound(Entity::Run)) => true,
            Err(error) => return Err(error.into()),
        };
        let stopping = state.shutdown().is_cancelled();
        if requested || stopping || Instant::now() >= deadline {
            return Ok(Reply::ok(CancelResponse { cancel_requested: requested }));
        }
        tokio::select! {
            _ = watch.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = state.shutdown().cancelled() => {}
        }
    }
}
