//! The runner control API of one run.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use trestle_contract::control::{
    CancelResponse, CreditResponse, FinalizeRequest, Program, ReleaseRequest, RenewResponse, Run,
    RunClaimRequest, RunClaimResponse, TelemetryRequest, TokenUsageRequest, UsageRequest, VersionResponse,
};
use trestle_contract::event::{Event, EventFrame, RunStatus};
use trestle_contract::{Digest, ErrorCode, RawJson, Token};

use super::connection::{Answer, Call};
use super::plane::Inner;
use super::pool::{expiry, granted, now};
use super::routes::{body, violation};
use super::state::{RunState, Stage, token_of};
use super::{artifacts, services};

/// The second is an answer too: the one that ends the work on a call early.
pub(super) type Outcome = Result<Answer, Answer>;

/// Whether a token is that of the present holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Live,
    /// It finalized the run.
    Finalizer,
    Displaced,
}

pub(super) async fn answer(inner: &Inner, call: &Call, method: &str, run_id: &str, rest: &[&str]) -> Answer {
    let standing = match standing(inner, call, run_id) {
        Ok(standing) => standing,
        Err(answer) => return answer,
    };
    if call.headers.get("accept").is_none_or(|accept| accept == "*/*") {
        violation(inner, call, "no accept header");
    }
    let outcome = match (method, rest) {
        ("GET", ["cancel"]) => cancel(inner, call, run_id, standing).await,
        ("POST", ["finalize"]) => finalize(inner, call, run_id, standing),
        ("POST", ["telemetry"]) => telemetry(inner, call, run_id, standing),
        _ if standing != Standing::Live => Err(displaced()),
        ("POST", ["claim"]) => claim(inner, call, run_id),
        ("POST", ["renew"]) => renew(inner, call, run_id),
        ("POST", ["release"]) => release(inner, call, run_id),
        ("GET", ["version"]) => version(inner, run_id),
        ("GET", ["credit"]) => with_run(inner, run_id, |run| run.funded)
            .map(|funded| Answer::json(200, &CreditResponse { funded })),
        ("POST", ["usage"]) => usage(inner, call, run_id),
        ("POST", ["usage", "tokens"]) => token_usage(inner, call, run_id),
        (method, ["artifacts", rest @ ..]) => artifacts::answer(inner, call, method, run_id, rest),
        (method, rest) => services::answer(inner, call, method, run_id, rest).await,
    };
    outcome.unwrap_or_else(|answer| answer)
}

fn displaced() -> Answer {
    Answer::failure(ErrorCode::Conflict, "the lease is lost")
}

fn standing(inner: &Inner, call: &Call, run_id: &str) -> Result<Standing, Answer> {
    let token = call.bearer.as_deref().unwrap_or_default();
    let mut state = inner.state();
    if let Some(run) = state.run(run_id)
        && let Some((fresh, used)) = &mut run.fresh_token
    {
        if fresh == token {
            *used = true;
            return Ok(if run.finalized.is_some() { Standing::Finalizer } else { Standing::Live });
        }
        if *used {
            return Err(Answer::failure(ErrorCode::Unauthorized, "the run token was replaced"));
        }
    }
    let known =
        state.runs.iter().any(|run| (1..=run.epoch).any(|epoch| token_of(&run.plan.run_id, epoch) == token));
    let run = state.run(run_id);
    match run {
        _ if !known => Err(Answer::failure(ErrorCode::Unauthorized, "the run token is unknown")),
        Some(run) if token == run.token() => match &run.finalized {
            Some(_) => Ok(Standing::Finalizer),
            None if run.stage == Stage::Queued => Ok(Standing::Displaced),
            None => Ok(Standing::Live),
        },
        Some(run) if token.starts_with(&format!("bwrt_{}_", run.plan.run_id)) => Ok(Standing::Displaced),
        _ => Err(Answer::failure(ErrorCode::Forbidden, "the run token is that of another run")),
    }
}

pub(super) fn with_run<T>(
    inner: &Inner,
    run_id: &str,
    act: impl FnOnce(&mut RunState) -> T,
) -> Result<T, Answer> {
    inner
        .change(|state| state.run(run_id).map(act))
        .ok_or_else(|| Answer::failure(ErrorCode::NotFound, "no such run"))
}

/// For what a test made impossible to say.
pub(super) fn unusable(error: impl std::fmt::Display) -> Answer {
    Answer::failure(ErrorCode::InternalError, &error.to_string())
}

fn claim(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<RunClaimRequest>(inner, call)?;
    let session = (request.worker_id.to_string(), call.headers.get("x-trestle-session").cloned());
    let claimed = with_run(inner, run_id, |run| {
        match &run.session {
            Some(holder) if *holder != session => return None,
            Some(_) => {}
            None => {
                run.session = Some(session);
                run.stage = Stage::Running;
                run.resume_after = run.events.keys().next_back().copied().unwrap_or(0);
            }
        }
        Some((shown_run(run), run.resume_after, run.plan.usage))
    })?;
    let Some((run, resume_after, usage)) = claimed else {
        return Err(Answer::failure(ErrorCode::Conflict, "another process has claimed the run"));
    };
    let response = RunClaimResponse {
        run: run.map_err(unusable)?,
        lease_until: Some(expiry(inner.options.lease)),
        last_event_cursor: Some(resume_after),
        workflow_version: Some(1),
        environment: None,
        last_journal_seq: None,
        capabilities: Some(["turnKey", "wait", "release", "brokered"].map(str::to_owned).to_vec()),
        usage,
    };
    Ok(granted(inner, Answer::json(201, &response)))
}

fn shown_run(run: &RunState) -> Result<Run, Box<dyn std::error::Error + Send + Sync>> {
    let plan = &run.plan;
    Ok(Run {
        id: plan.run_id.parse()?,
        org_id: "01HORG".parse()?,
        workflow_id: plan.workflow_id.parse()?,
        workflow_version_id: "01HVERSION".parse()?,
        environment_id: None,
        attempt: Some(run.attempt),
        parent_run_id: None,
        actor: plan.actor.clone(),
        trigger_kind: plan.trigger_kind.clone(),
        trigger_request: None,
        trigger_payload: RawJson::null(),
        status: RunStatus::Running,
        concurrency_key: None,
        input: plan.input.clone(),
        config: RawJson::null(),
        output: RawJson::null(),
        state: RawJson::null(),
        lease_until: None,
        worker_id: run.session.as_ref().map(|(worker, _)| worker.clone()),
        next_wake_at: None,
        waiting_on_run_id: None,
        retried_from_run_id: None,
        started_at: Some(now()),
        completed_at: None,
        created_at: now(),
        pending_since: None,
        outcome_status: None,
        outcome_reasoning: None,
        tokens_in: 0,
        tokens_out: 0,
        runtime_seconds: 0,
        dispatch_attempts: run.epoch,
    })
}

fn renew(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<RunClaimRequest>(inner, call)?;
    let cancel = with_run(inner, run_id, |run| {
        let (worker, _) = run.session.as_ref()?;
        (*worker == request.worker_id.as_str()).then(|| {
            run.renewals += 1;
            (run.cancel, run.fresh_token.as_ref().filter(|(_, used)| !used).map(|(token, _)| token.clone()))
        })
    })?;
    let Some((cancel, fresh)) = cancel else { return Err(displaced()) };
    let response = RenewResponse {
        lease_until: expiry(inner.options.lease),
        cancel_requested: cancel.then_some(true),
        run_token: fresh.and_then(|token| Token::new(token).ok()),
    };
    Ok(granted(inner, Answer::json(200, &response)))
}

fn release(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<ReleaseRequest>(inner, call)?;
    with_run(inner, run_id, |run| {
        if request.reason == "crashed" {
            run.attempt += 1;
        }
        run.releases.push(request);
        run.requeue();
    })?;
    Ok(Answer::empty(204))
}

fn finalize(inner: &Inner, call: &Call, run_id: &str, standing: Standing) -> Outcome {
    let request = body::<FinalizeRequest>(inner, call)?;
    match standing {
        Standing::Displaced => return Err(displaced()),
        Standing::Finalizer => return Ok(Answer::empty(204)),
        Standing::Live => {}
    }
    if request.status == trestle_contract::control::FinalStatus::Failed && request.error().is_none() {
        violation(inner, call, "a failed run without an error");
    }
    with_run(inner, run_id, |run| {
        run.stage = Stage::Finalized;
        run.finalized = Some((run.epoch, request));
    })?;
    Ok(Answer::empty(204))
}

fn version(inner: &Inner, run_id: &str) -> Outcome {
    let url = inner.url();
    let response = with_run(inner, run_id, |run| {
        let digest = run.plan.program_digest.clone().unwrap_or_else(|| digest_of(&run.plan.program));
        VersionResponse {
            manifest: run.plan.manifest.clone(),
            program: Program {
                entry: run.plan.entry.clone(),
                digest,
                sdk_version: run.plan.sdk_version.clone(),
                download_url: format!("{url}/programs/{run_id}"),
            },
        }
    })?;
    Ok(Answer::json(200, &response))
}

fn digest_of(bytes: &Bytes) -> Digest {
    Digest::from_bytes(&Sha256::digest(bytes).into())
}

/// The tarball of a run's program, at its signed address.
pub(super) fn program(inner: &Inner, run_id: &str) -> Answer {
    match with_run(inner, run_id, |run| run.plan.program.clone()) {
        Ok(body) => Answer::Whole {
            status: 200,
            headers: vec![("content-type", "application/gzip".to_owned())],
            body,
        },
        Err(answer) => answer,
    }
}

fn usage(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<UsageRequest>(inner, call)?;
    with_run(inner, run_id, |run| {
        run.usage.entry(request.identifier.to_string()).or_insert(request.runtime_seconds.get());
    })?;
    Ok(Answer::empty(204))
}

fn token_usage(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<TokenUsageRequest>(inner, call)?;
    with_run(inner, run_id, |run| {
        if !run.token_reports.iter().any(|known| known.identifier == request.identifier) {
            run.token_reports.push(request);
        }
    })?;
    Ok(Answer::empty(204))
}

async fn cancel(inner: &Inner, call: &Call, run_id: &str, standing: Standing) -> Outcome {
    let limit = Duration::from_secs(call.wait_seconds().unwrap_or(0));
    let asked = inner.find(|state| {
        let run = state.run(run_id)?;
        // Who lost the run is to stop.
        let is_holder = run.fresh_token.is_some() || call.bearer.as_deref() == Some(run.token().as_str());
        (run.cancel || !is_holder).then_some(())
    });
    let cancel_requested =
        standing == Standing::Displaced || tokio::time::timeout(limit, asked).await.is_ok();
    Ok(Answer::json(200, &CancelResponse { cancel_requested }))
}

fn telemetry(inner: &Inner, call: &Call, run_id: &str, standing: Standing) -> Outcome {
    let request = body::<TelemetryRequest>(inner, call)?;
    if standing == Standing::Displaced {
        return Err(displaced());
    }
    let mut events = Vec::new();
    for text in &request.frames {
        match read_frame(text, run_id) {
            Ok(event) => events.push(event),
            Err(what) => violation(inner, call, &format!("{what}: {text}")),
        }
    }
    let stale = with_run(inner, run_id, |run| {
        let mut stale = Vec::new();
        for (cursor, event) in events {
            if cursor <= run.resume_after {
                stale.push(cursor);
            }
            run.events.entry(cursor).or_insert(event);
        }
        stale
    })?;
    for cursor in stale {
        violation(inner, call, &format!("cursor {cursor} does not lie after the session's start"));
    }
    Ok(Answer::empty(204))
}

/// A frame that a strict reader accepts.
fn read_frame(text: &str, run_id: &str) -> Result<(u64, Event), String> {
    let (frame, _) = EventFrame::parse_batch_element(text).map_err(|error| error.to_string())?;
    let row: trestle_contract::event::StoredEvent =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    if row.event.envelope.run_id.as_str() != run_id {
        return Err("the event of another run".to_owned());
    }
    if row.event.envelope.seq.get() != frame.cursor.seq() {
        return Err("seq is not that of the cursor".to_owned());
    }
    Ok((frame.cursor.get(), row.event))
}
