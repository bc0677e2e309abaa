//! The pool API: enrolment, poll, claim, heartbeat (docs/protocol/pool.md).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State as FromState;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;
use trestle_contract::bounds::{BoundedInt, EpochMs, Token};
use trestle_contract::descriptor::Manifest;
use trestle_contract::ids::{AssignmentId, EnvironmentId, OrgId, RunnerId};
use trestle_contract::pool::{
    AbsoluteUrl, Arch, ClaimResponse, ControlPlane, Declaration, DeregisterRequest, HeartbeatAction,
    HeartbeatRequest, HeartbeatResponse, Label, LeaseReleaseReason, LeaseReleaseRequest, Offer, Os,
    PollAction, PollHint, PollResponse, RegisterRequest, RegisterResponse,
};
use trestle_domain::{RandomToken, RunTokenKind, derive_token, new_random_token};
use trestle_store::{
    AssignmentClaim, Conflict, Entity, Heartbeat, NewRunner, ReleaseReason, Releaser, RunnerRow, StoreError,
    TokenHash,
};

use crate::auth::RunnerAuth;
use crate::body::{Json, Reply, Whole};
use crate::dispatch::Delivery;
use crate::extract::Segments;
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

/// Sent by our own runner. Others get the longer lease that they expect.
static OUR_RUNNER: HeaderName = HeaderName::from_static("x-trestle-runner");
/// Full length of the lease that an answer grants.
pub(crate) static LEASE: HeaderName = HeaderName::from_static("x-trestle-lease-ms");

pub(crate) fn routes(table: &mut Table) {
    table.add(
        Route::open(
            http::Method::POST,
            "/runner/v1/register",
            "Registers a runner with a registration token in the body",
        )
        .takes::<RegisterRequest>()
        .answers::<RegisterResponse>(StatusCode::CREATED),
        register,
    );
    table.add(
        Route::runner("/runner/v1/pool/poll", "Waits for an offer")
            .takes::<Declaration>()
            .answers::<PollResponse>(StatusCode::OK),
        poll,
    );
    table.add(
        Route::runner("/runner/v1/pool/assignments/{assignment}/claim", "Claims an offered assignment")
            .takes::<Declaration>()
            .answers::<ClaimResponse>(StatusCode::OK),
        claim,
    );
    table.add(
        Route::runner("/runner/v1/pool/heartbeat", "Prolongs an assignment lease")
            .takes::<HeartbeatRequest>()
            .answers::<HeartbeatResponse>(StatusCode::OK),
        heartbeat,
    );
    table.add(
        Route::runner("/runner/v1/pool/release", "Gives a leased run back without a result")
            .takes::<LeaseReleaseRequest>()
            .empty(StatusCode::NO_CONTENT),
        release,
    );
    table.add(
        Route::runner("/runner/v1/pool/deregister", "Removes this runner")
            .takes::<DeregisterRequest>()
            .empty(StatusCode::NO_CONTENT),
        deregister,
    );
}

async fn register(
    FromState(state): FromState<State>,
    Json(request): Json<RegisterRequest>,
) -> Answer<Reply<RegisterResponse>> {
    let token = new_random_token(RandomToken::Runner);
    let runner = state
        .store()
        .redeem_registration_token(
            TokenHash::of(request.registration_token.expose()),
            NewRunner {
                name: request.name.as_str().to_owned(),
                labels: texts(&request.labels),
                os: request.os.map(os_word),
                arch: request.arch.map(arch_word),
                version: request.runner_version.map(|version| version.as_str().to_owned()),
                token: TokenHash::of(&token),
            },
        )
        .await?;
    let url = format!("{}/runner/v1/pool/poll", state.public_url());
    Ok(Reply::created(RegisterResponse {
        runner_id: runner.id,
        pool: Label::new(runner.pool).map_err(Failure::internal)?,
        runner_token: Token::new(token).map_err(Failure::internal)?,
        poll: PollHint {
            url: AbsoluteUrl::new(url).map_err(Failure::internal)?,
            interval_seconds: BoundedInt::saturating(5),
        },
    }))
}

fn texts(labels: &[Label]) -> Vec<String> {
    labels.iter().map(|label| label.as_str().to_owned()).collect()
}

pub(crate) fn os_word(os: Os) -> String {
    match os {
        Os::Linux => "linux",
        Os::Macos => "macos",
        Os::Windows => "windows",
    }
    .to_owned()
}

pub(crate) fn arch_word(arch: Arch) -> String {
    match arch {
        Arch::X64 => "x64",
        Arch::Arm64 => "arm64",
    }
    .to_owned()
}

/// Reads the declaration of this very request; what a runner told at its
/// registration decides nothing.
fn declared(state: &State, body: &[u8]) -> Answer<Declaration> {
    const HINT: &str = "update the runner to a version that fits this server";
    let declaration = Declaration::from_body(body)
        .map_err(|error| Failure::invalid(format!("the declaration does not fit: {error}")))?
        .ok_or_else(|| {
            Failure::forbidden("the runner declares no contract_version, it is too old").hint(HINT)
        })?;
    let version = declaration.contract_version.get();
    if version < u64::from(state.config().contract_floor) {
        return Err(Failure::forbidden(format!("contract_version {version} is no longer served")).hint(HINT));
    }
    if version > trestle_contract::pool::CONTRACT_VERSION {
        return Err(Failure::forbidden(format!("contract_version {version} is newer than this server"))
            .hint("update the server"));
    }
    Ok(declaration)
}

async fn poll(
    FromState(state): FromState<State>,
    runner: RunnerAuth,
    Whole(body): Whole,
) -> Answer<Reply<PollResponse>> {
    let version = declared(&state, &body)?.runner_version;
    // The body is a part of the connection's buffer, of which a parked poll
    // would otherwise hold two.
    drop(body);
    let intervals = &state.config().intervals;
    let (shortest, longest) = (intervals.poll_hold_min_ms, intervals.poll_hold_max_ms);
    let hold = if shortest < longest { rand::random_range(shortest..=longest) } else { shortest };
    let deadline = Instant::now() + Duration::from_millis(hold);
    let mut row = runner.0;
    let mut first = true;
    loop {
        if row.drain_reason.is_some() {
            return Ok(Reply::ok(PollResponse { assignment: None, action: Some(PollAction::Drain) }));
        }
        // The place is taken before the look at the queue, which the
        // dispatcher makes: nothing can fall between the two.
        let delivered = state.dispatcher().wait(&row);
        let mut delivered = if std::mem::take(&mut first) {
            let (delivered, touched) =
                tokio::join!(delivered, state.store().touch_runner(&row.id, Some(version.as_str())));
            touched.map_err(removed)?;
            delivered
        } else {
            delivered.await
        };
        let _parked = state.park();
        let delivery = tokio::select! {
            delivery = &mut delivered => delivery.ok(),
            () = tokio::time::sleep_until(deadline) => {
                delivered.close();
                delivered.try_recv().ok()
            }
            () = state.shutdown().cancelled() => None,
        };
        match delivery {
            Some(Delivery::Offer(offer)) => {
                return Ok(Reply::ok(PollResponse { assignment: Some(shown_offer(offer)?), action: None }));
            }
            Some(Delivery::LookAgain) => row = still_there(&state, &row.id).await?,
            None => {
                return Ok(Reply::ok(PollResponse { assignment: None, action: None }));
            }
        }
    }
}

async fn still_there(state: &State, runner: &RunnerId) -> Answer<RunnerRow> {
    state.store().runner(runner).await.map_err(removed)
}

/// A runner that is gone has no valid token any more.
fn removed(error: StoreError) -> Failure {
    match error {
        StoreError::NotFound(_) => Failure::unauthorized("the runner was removed"),
        other => other.into(),
    }
}

fn shown_offer(offer: trestle_store::Offer) -> Answer<Offer> {
    Ok(Offer {
        assignment_id: offer.assignment,
        run_id: offer.run,
        org_id: OrgId::new(offer.organisation).map_err(Failure::internal)?,
        runs_on: offer.runs_on.decode().map_err(Failure::internal)?,
        queued_at: EpochMs::saturating_signed(offer.queued_at),
    })
}

fn lease_ms(state: &State, headers: &HeaderMap) -> i64 {
    let intervals = &state.config().intervals;
    let length =
        if headers.contains_key(&OUR_RUNNER) { intervals.lease_ms } else { intervals.foreign_lease_ms };
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Adds the length of the granted lease to an answer, which a closed body has
/// no room for.
pub(crate) fn with_lease(answer: impl IntoResponse, length: i64) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(LEASE.clone(), HeaderValue::from(length));
    response
}

async fn claim(
    FromState(state): FromState<State>,
    runner: RunnerAuth,
    Segments(assignment): Segments<String>,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Answer<Response> {
    declared(&state, &body)?;
    let assignment = AssignmentId::new(assignment).map_err(|_| lost_race())?;
    let length = lease_ms(&state, &headers);
    let claimed = state
        .store()
        .claim_assignment(AssignmentClaim { runner: runner.id().clone(), assignment, lease_ms: length })
        .await
        .map_err(|error| match error {
            StoreError::NotFound(Entity::Assignment | Entity::Run) => lost_race(),
            other => other.into(),
        })?;
    let run = &claimed.run;
    let version = state.store().version(&run.version).await?;
    let epoch = run.epoch;
    let token = |kind| {
        Token::new(derive_token(state.server_key(), kind, run.id.as_str(), epoch)).map_err(Failure::internal)
    };
    let answer = ClaimResponse {
        lease_id: claimed.lease.clone(),
        run_id: run.id.clone(),
        workflow_id: run.workflow.clone(),
        environment_id: run
            .environment
            .as_ref()
            .map(|id| EnvironmentId::new(id.clone()))
            .transpose()
            .map_err(Failure::internal)?,
        workspace_key: run.workspace_key.clone(),
        lease_expires_at: EpochMs::saturating_signed(claimed.lease_expires_at),
        control_plane: ControlPlane {
            base_url: AbsoluteUrl::new(state.public_url()).map_err(Failure::internal)?,
            run_token: token(RunTokenKind::Run)?,
            api_token: token(RunTokenKind::Api)?,
        },
        env: literals(&version.manifest)?,
        byo_providers: crate::providers::listed_for(&state, &run.id).await?,
    };
    Ok(with_lease(Reply::ok(answer), length))
}

fn lost_race() -> Failure {
    Failure::conflict(Conflict::AssignmentTaken.to_string())
}

/// The literal variables of a manifest. References to secrets are left out:
/// a secret never travels in an environment.
fn literals(manifest: &trestle_contract::RawJson) -> Answer<BTreeMap<String, String>> {
    let manifest: Manifest = manifest.decode().map_err(Failure::internal)?;
    let env = manifest.descriptor.env.unwrap_or_default();
    // A valid value is literal, or nothing but a reference.
    Ok(env.into_iter().filter(|(_, value)| !value.contains("${{")).collect())
}

async fn heartbeat(
    FromState(state): FromState<State>,
    runner: RunnerAuth,
    headers: HeaderMap,
    Json(request): Json<HeartbeatRequest>,
) -> Answer<Response> {
    let length = lease_ms(&state, &headers);
    let answer = state
        .store()
        .heartbeat(Heartbeat {
            runner: runner.id().clone(),
            lease: request.lease_id,
            run: request.run_id,
            lease_ms: length,
        })
        .await
        .map_err(lost_lease)?;
    let action = if answer.cancel {
        HeartbeatAction::Cancel
    } else if answer.drain {
        HeartbeatAction::Drain
    } else {
        HeartbeatAction::Continue
    };
    Ok(with_lease(
        Reply::ok(HeartbeatResponse {
            lease_expires_at: EpochMs::saturating_signed(answer.lease_expires_at),
            action,
        }),
        length,
    ))
}

/// A lease that is closed, lapsed, or was never there is lost: 409, never 404.
fn lost_lease(error: StoreError) -> Failure {
    match error {
        StoreError::NotFound(_) => StoreError::from(Conflict::LeaseLost).into(),
        other => other.into(),
    }
}

async fn release(
    FromState(state): FromState<State>,
    runner: RunnerAuth,
    Json(request): Json<LeaseReleaseRequest>,
) -> Answer<StatusCode> {
    state
        .store()
        .release(
            Releaser::Runner { runner: runner.id().clone(), lease: request.lease_id },
            match request.reason {
                LeaseReleaseReason::Died => ReleaseReason::Died,
                LeaseReleaseReason::Handback => ReleaseReason::Handback,
            },
        )
        .await
        .map_err(lost_lease)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn deregister(
    FromState(state): FromState<State>,
    runner: RunnerAuth,
    Json(DeregisterRequest {}): Json<DeregisterRequest>,
) -> Answer<StatusCode> {
    remove_runner(&state, runner.id()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a runner. What it held starts over elsewhere at once: a machine that is not trusted any more, or is
/// gone, keeps no run until a lease ends.
pub(crate) async fn remove_runner(state: &State, runner: &RunnerId) -> Answer<()> {
    for (run, fate) in state.store().remove_runner(runner).await? {
        tracing::info!(%run, ?fate, %runner, "a run was taken back from a removed runner");
        state.relay().stop_run(&run);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand polls wait at a time: each keeps this for its whole hold.
    #[test]
    fn a_parked_poll_is_a_few_kilobytes() {
        let bytes = size(super::poll as fn(_, _, _) -> _);
        assert!(bytes < 4096, "{bytes} bytes");
    }
}
