//! The pool API.

use std::time::Duration;

use trestle_contract::pool::{
    AbsoluteUrl, ClaimResponse, ControlPlane, DeregisterRequest, HeartbeatAction, HeartbeatRequest,
    HeartbeatResponse, LeaseReleaseRequest, Offer, PollAction, PollHint, PollResponse, RegisterRequest,
    RegisterResponse, RunsOn,
};
use trestle_contract::pool::{Declaration, Label};
use trestle_contract::{BoundedInt, EpochMs, ErrorCode, Token};
use trestle_domain::{Clock, WallClock};

use super::connection::{Answer, Call};
use super::plane::Inner;
use super::routes::{body, violation};
use super::state::{RunState, Runner, Stage};

/// Parts of an answer that a test made unusable.
type Unusable = Box<dyn std::error::Error>;

fn made<T>(result: Result<T, Unusable>) -> Result<T, Answer> {
    result.map_err(|error| Answer::failure(ErrorCode::InternalError, &error.to_string()))
}

fn either(result: Result<Answer, Answer>) -> Answer {
    result.unwrap_or_else(|answer| answer)
}

pub(super) fn register(inner: &Inner, call: &Call) -> Answer {
    if call.bearer.is_some() {
        violation(inner, call, "register carries no credential in a header");
    }
    either(body::<RegisterRequest>(inner, call).and_then(|request| {
        let found = inner.change(|state| {
            let pool = state.registration_tokens.remove(request.registration_token.expose())?;
            let id = state.mint("runner");
            let token = format!("bwkr_{id}");
            state.runners.push(Runner {
                id: id.clone(),
                token: token.clone(),
                name: request.name.to_string(),
                pool: pool.clone(),
                labels: request.labels.iter().map(ToString::to_string).collect(),
                drained: false,
                dead: false,
            });
            Some((id, token, pool))
        });
        let Some((id, token, pool)) = found else {
            return Err(Answer::failure(
                ErrorCode::Unauthorized,
                "the registration token is unknown or used",
            ));
        };
        let response = || -> Result<RegisterResponse, Unusable> {
            Ok(RegisterResponse {
                runner_id: id.parse()?,
                pool: Label::new(pool)?,
                runner_token: Token::new(token)?,
                poll: PollHint {
                    url: AbsoluteUrl::new(format!("{}/runner/v1/pool/poll", inner.url()))?,
                    interval_seconds: BoundedInt::saturating(5),
                },
            })
        };
        Ok(Answer::json(201, &made(response())?))
    }))
}

pub(super) async fn answer(inner: &Inner, call: &Call, rest: &[&str]) -> Answer {
    let token = call.bearer.clone().unwrap_or_default();
    if inner.state().runner(&token).is_none() {
        return Answer::failure(ErrorCode::Unauthorized, "the runner token is unknown");
    }
    match rest {
        ["poll"] => poll(inner, call, &token).await,
        ["assignments", assignment, "claim"] => either(claim(inner, call, &token, assignment)),
        ["heartbeat"] => either(heartbeat(inner, call, &token)),
        ["release"] => either(release(inner, call, &token)),
        ["deregister"] => either(body::<DeregisterRequest>(inner, call).map(|_| {
            inner.change(|state| {
                if let Some(runner) = state.runner(&token) {
                    runner.dead = true;
                }
            });
            Answer::empty(204)
        })),
        _ => {
            violation(inner, call, "no such endpoint");
            Answer::failure(ErrorCode::NotFound, "no such endpoint")
        }
    }
}

fn fits(run: &RunState, runner: &Runner) -> bool {
    run.stage == Stage::Queued
        && match &run.plan.runs_on {
            RunsOn::Hosted(_) => true,
            RunsOn::SelfHosted(wanted) => {
                wanted.pool.as_str() == runner.pool
                    && wanted
                        .labels
                        .iter()
                        .flatten()
                        .all(|label| runner.labels.iter().any(|has| **has == **label))
            }
        }
}

async fn poll(inner: &Inner, call: &Call, token: &str) -> Answer {
    if let Err(answer) = body::<Declaration>(inner, call) {
        return answer;
    }
    let found = inner.find(|state| {
        let index = state.runners.iter().position(|runner| runner.token == token)?;
        let runner = &state.runners[index];
        if runner.drained {
            return Some(Ok(PollResponse { assignment: None, action: Some(PollAction::Drain) }));
        }
        let run = state.runs.iter().find(|run| fits(run, runner))?;
        Some(offer(run).map(|offer| PollResponse { assignment: Some(offer), action: None }))
    });
    let response = tokio::time::timeout(inner.options.poll_hold, found)
        .await
        .unwrap_or(Ok(PollResponse { assignment: None, action: None }));
    either(made(response).map(|response| Answer::json(200, &response)))
}

fn offer(run: &RunState) -> Result<Offer, Unusable> {
    Ok(Offer {
        assignment_id: format!("assignment-{}", run.plan.run_id).parse()?,
        run_id: run.plan.run_id.parse()?,
        org_id: "01HORG".parse()?,
        runs_on: run.plan.runs_on.clone(),
        queued_at: now(),
    })
}

pub(super) fn now() -> EpochMs {
    EpochMs::saturating_signed(WallClock.now_ms())
}

pub(super) fn expiry(lease: Duration) -> EpochMs {
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    EpochMs::saturating_signed(WallClock.now_ms().saturating_add(lease))
}

/// Adds how long the granted lease is.
pub(super) fn granted(inner: &Inner, answer: Answer) -> Answer {
    answer.with_header("x-trestle-lease-ms", inner.options.lease.as_millis().to_string())
}

fn claim(inner: &Inner, call: &Call, token: &str, assignment: &str) -> Result<Answer, Answer> {
    body::<Declaration>(inner, call)?;
    let run_id = assignment.strip_prefix("assignment-").unwrap_or_default();
    let url = inner.url();
    let lease = inner.options.lease;
    let claimed = inner.change(|state| {
        let runner = state.runner(token).map(|runner| runner.id.clone())?;
        let run = state.run(run_id)?;
        let again = run.stage == Stage::Leased && run.runner.as_ref() == Some(&runner);
        if run.stage != Stage::Queued && !again {
            return None;
        }
        if !again {
            run.epoch += 1;
            run.stage = Stage::Leased;
            run.runner = Some(runner);
        }
        Some(claim_response(run, &url, lease))
    });
    let Some(response) = claimed else {
        return Err(Answer::failure(ErrorCode::Conflict, "another runner was first"));
    };
    Ok(granted(inner, Answer::json(200, &made(response)?)))
}

fn claim_response(run: &RunState, url: &str, lease: Duration) -> Result<ClaimResponse, Unusable> {
    Ok(ClaimResponse {
        lease_id: run.lease().parse()?,
        run_id: run.plan.run_id.parse()?,
        workflow_id: run.plan.workflow_id.parse()?,
        environment_id: None,
        workspace_key: run.plan.workspace_key.clone(),
        lease_expires_at: expiry(lease),
        control_plane: ControlPlane {
            base_url: AbsoluteUrl::new(url)?,
            run_token: Token::new(run.token())?,
            api_token: Token::new(format!("bwk_{}_{}", run.plan.run_id, run.epoch))?,
        },
        env: run.plan.env.clone(),
        byo_providers: run.plan.byo_providers.clone(),
    })
}

fn heartbeat(inner: &Inner, call: &Call, token: &str) -> Result<Answer, Answer> {
    let request = body::<HeartbeatRequest>(inner, call)?;
    let action = inner.change(|state| {
        let drained = state.runner(token).is_some_and(|runner| runner.drained);
        let run = state.run(request.run_id.as_str())?;
        let held = matches!(run.stage, Stage::Leased | Stage::Running) && !run.lease_lost;
        if !held || run.lease() != request.lease_id.as_str() {
            return None;
        }
        run.heartbeats += 1;
        run.phases.push(request.phase);
        Some(match (run.cancel, drained) {
            (true, _) => HeartbeatAction::Cancel,
            (false, true) => HeartbeatAction::Drain,
            (false, false) => HeartbeatAction::Continue,
        })
    });
    let Some(action) = action else {
        return Err(Answer::failure(ErrorCode::Conflict, "the lease is lost"));
    };
    let response = HeartbeatResponse { lease_expires_at: expiry(inner.options.lease), action };
    Ok(granted(inner, Answer::json(200, &response)))
}

fn release(inner: &Inner, call: &Call, token: &str) -> Result<Answer, Answer> {
    let request = body::<LeaseReleaseRequest>(inner, call)?;
    let released = inner.change(|state| {
        let runner = state.runner(token).map(|runner| runner.id.clone())?;
        let run = state.run(request.run_id.as_str())?;
        let held = matches!(run.stage, Stage::Leased | Stage::Running) && run.runner == Some(runner);
        (held && run.lease() == request.lease_id.as_str()).then(|| run.requeue())
    });
    match released {
        Some(()) => Ok(Answer::empty(204)),
        None => Err(Answer::failure(ErrorCode::Conflict, "the lease is lost")),
    }
}
