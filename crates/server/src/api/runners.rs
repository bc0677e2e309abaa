//! Runners, pools and registration tokens (docs/protocol/public-api.md §16.1).

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::api::{
    EnrolRunnerRequest, EnrolRunnerResponse, EnrolledRunner, PoolList, PoolRow, RegistrationToken,
    RunnerList, RunnerRow, RunnerStatus,
};
use trestle_contract::bounds::{EpochMs, Token};
use trestle_contract::ids::{PoolId, RunnerId};
use trestle_contract::pool::{Arch, Label, Os};
use trestle_domain::{RandomToken, new_random_token};
use trestle_store::{NewRunner, TokenHash};

use super::check_organisation;
use crate::auth::Reach;
use crate::body::{Json, Reply};
use crate::extract::Segments;
use crate::failure::{Answer, Failure};
use crate::pool::{arch_word, os_word};
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::POST, "/v1/orgs/{org}/runners", Reach::Administer, "Enrols a runner in one step")
            .takes::<EnrolRunnerRequest>()
            .answers::<EnrolRunnerResponse>(StatusCode::CREATED),
        enrol,
    );
    table.add(
        Route::api(Method::GET, "/v1/orgs/{org}/runners", Reach::Administer, "All runners")
            .answers::<RunnerList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(Method::GET, "/v1/orgs/{org}/runner-pools", Reach::Administer, "All pools")
            .answers::<PoolList>(StatusCode::OK),
        pools,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/orgs/{org}/runner-pools/{pool}/registration-tokens",
            Reach::Administer,
            "A token that registers one runner",
        )
        .answers::<RegistrationToken>(StatusCode::CREATED),
        registration_token,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/runners/{runner}/drain",
            Reach::Administer,
            "Lets a runner claim nothing more",
        )
        .empty(StatusCode::NO_CONTENT),
        drain,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/runners/{runner}/resume",
            Reach::Administer,
            "Lets a drained runner claim again",
        )
        .empty(StatusCode::NO_CONTENT),
        resume,
    );
    table.add(
        Route::api(
            Method::DELETE,
            "/v1/runners/{runner}",
            Reach::Administer,
            "Removes a runner; its token is dead at once",
        )
        .empty(StatusCode::NO_CONTENT),
        remove,
    );
}

async fn enrol(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Json(request): Json<EnrolRunnerRequest>,
) -> Answer<Reply<EnrolRunnerResponse>> {
    check_organisation(&state, &org)?;
    if request.labels.len() > trestle_contract::pool::MAX_LABELS {
        return Err(Failure::invalid("a runner has at most 32 labels"));
    }
    let token = new_random_token(RandomToken::Runner);
    let runner = state
        .store()
        .create_runner(
            request.pool.as_str(),
            NewRunner {
                name: request.name.as_str().to_owned(),
                labels: request.labels.iter().map(|label| label.as_str().to_owned()).collect(),
                os: request.os.map(os_word),
                arch: request.arch.map(arch_word),
                version: request.version,
                token: TokenHash::of(&token),
            },
        )
        .await?;
    Ok(Reply::created(EnrolRunnerResponse {
        runner: EnrolledRunner { id: runner.id },
        runner_token: Token::new(token).map_err(Failure::internal)?,
    }))
}

async fn list(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
) -> Answer<Reply<RunnerList>> {
    check_organisation(&state, &org)?;
    let rows = state.store().list_runners().await?;
    let runners = rows.into_iter().map(|row| shown(&state, row)).collect::<Answer<_>>()?;
    Ok(Reply::ok(RunnerList { runners }))
}

fn shown(state: &State, row: trestle_store::RunnerRow) -> Answer<RunnerRow> {
    // A living runner polls or beats at least this often.
    let intervals = &state.config().intervals;
    let silence = intervals.foreign_lease_ms.max(4 * intervals.poll_hold_max_ms);
    let silence = i64::try_from(silence).unwrap_or(i64::MAX);
    let seen = row.last_seen_at.unwrap_or(row.created_at);
    let status = if row.drain_reason.is_some() {
        RunnerStatus::Draining
    } else if state.now().saturating_sub(seen) > silence {
        RunnerStatus::Offline
    } else if row.active_leases > 0 {
        RunnerStatus::Busy
    } else {
        RunnerStatus::Idle
    };
    Ok(RunnerRow {
        id: row.id,
        pool_id: PoolId::new(row.pool_id).map_err(Failure::internal)?,
        name: row.name,
        labels: row.labels,
        os: row.os.as_deref().and_then(os_of),
        arch: row.arch.as_deref().and_then(arch_of),
        status,
        last_seen_at: row.last_seen_at.map(EpochMs::saturating_signed),
        version: row.version,
        created_at: EpochMs::saturating_signed(row.created_at),
        drain_reason: row.drain_reason,
    })
}

fn os_of(word: &str) -> Option<Os> {
    [Os::Linux, Os::Macos, Os::Windows].into_iter().find(|os| os_word(*os) == word)
}

fn arch_of(word: &str) -> Option<Arch> {
    [Arch::X64, Arch::Arm64].into_iter().find(|arch| arch_word(*arch) == word)
}

async fn pools(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
) -> Answer<Reply<PoolList>> {
    check_organisation(&state, &org)?;
    let rows = state.store().list_pools().await?;
    let pools = rows
        .into_iter()
        .map(|row| Ok(PoolRow { id: PoolId::new(row.id).map_err(Failure::internal)?, name: row.name }))
        .collect::<Answer<_>>()?;
    Ok(Reply::ok(PoolList { pools }))
}

async fn registration_token(
    FromState(state): FromState<State>,
    Segments((org, pool)): Segments<(String, String)>,
) -> Answer<Reply<RegistrationToken>> {
    check_organisation(&state, &org)?;
    let pool =
        Label::new(pool).map_err(|error| Failure::invalid(format!("that is no name of a pool: {error}")))?;
    let token = new_random_token(RandomToken::Registration);
    let life = i64::try_from(state.config().intervals.registration_ms).unwrap_or(i64::MAX);
    let row = state.store().create_registration_token(pool.as_str(), TokenHash::of(&token), life).await?;
    Ok(Reply::created(RegistrationToken {
        registration_token: Token::new(token).map_err(Failure::internal)?,
        expires_at: EpochMs::saturating_signed(row.expires_at),
    }))
}

fn runner_id(text: &str) -> Answer<RunnerId> {
    RunnerId::new(text).map_err(|_| Failure::not_found("runner", text))
}

async fn drain(FromState(state): FromState<State>, Segments(runner): Segments<String>) -> Answer<StatusCode> {
    state.store().drain_runner(&runner_id(&runner)?, "an administrator asked for it").await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resume(
    FromState(state): FromState<State>,
    Segments(runner): Segments<String>,
) -> Answer<StatusCode> {
    state.store().resume_runner(&runner_id(&runner)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    FromState(state): FromState<State>,
    Segments(runner): Segments<String>,
) -> Answer<StatusCode> {
    crate::pool::remove_runner(&state, &runner_id(&runner)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
