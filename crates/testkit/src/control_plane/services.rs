//! What a run asks of the plane: secrets, models, called workflows, and the rows that are not there yet.

use std::time::Duration;

use serde_json::{Value, json};
use trestle_contract::control::{
    ChildRequest, ChildResponse, ChildStatus, ProvidersResponse, SecretResolveRequest, SecretResolveResponse,
};
use trestle_contract::event::RunStatus;
use trestle_contract::inference::InferenceRequest;
use trestle_contract::{ErrorCode, RawJson};

use super::connection::{Answer, Call, Ending};
use super::model::ModelReply;
use super::plane::Inner;
use super::routes::{body, violation};
use super::run::{Outcome, unusable, with_run};
use super::state::{Child, ChildOutcome, State};

pub(super) async fn answer(inner: &Inner, call: &Call, method: &str, run_id: &str, rest: &[&str]) -> Outcome {
    match (method, rest) {
        ("POST", ["secrets", "resolve"]) => secret(inner, call, run_id),
        ("POST", ["inference"]) => inference(inner, call, run_id),
        ("GET", ["inference", "providers"]) => {
            let providers = with_run(inner, run_id, |run| run.plan.byo_providers.clone())?;
            Ok(Answer::json(200, &ProvidersResponse { providers }))
        }
        ("POST", ["children"]) => start_child(inner, call, run_id),
        ("GET", ["children", child]) => child_status(inner, call, run_id, child).await,
        ("GET", ["liveview", "wanted"]) => Ok(Answer::json(200, &json!({"wanted": false}))),
        ("POST", ["liveview"]) => Ok(Answer::empty(204)),
        ("GET", ["journal", _]) => Err(Answer::failure(ErrorCode::NotFound, "no journal")),
        ("POST", ["mcp", "token"]) => Err(Answer::failure(ErrorCode::Forbidden, "no token for that server")),
        ("POST", ["workspace", "reserve"]) => {
            Ok(Answer::json(200, &json!({"ok": false, "reason": "not_eligible"})))
        }
        ("POST", ["workspace", "manifest", "read"]) => {
            Ok(Answer::json(200, &json!({"manifest": null, "generation": null})))
        }
        (
            "POST",
            ["oidc", "token"]
            | ["tools", "web_search"]
            | ["schedules"]
            | ["inputs"]
            | ["journal"]
            | ["suspend"],
        ) => Err(Answer::failure(ErrorCode::Unsupported, "not available here")),
        _ => {
            violation(inner, call, "no such endpoint");
            Err(Answer::failure(ErrorCode::NotFound, "no such endpoint"))
        }
    }
}

fn secret(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<SecretResolveRequest>(inner, call)?;
    let value = with_run(inner, run_id, |run| run.plan.secrets.get(request.name.as_str()).cloned())?;
    match value {
        Some(value) => Ok(Answer::json(200, &SecretResolveResponse { value })),
        None => Err(Answer::failure(ErrorCode::NotFound, "no such secret")),
    }
}

fn inference(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<InferenceRequest>(inner, call)?;
    let reply = inner.change(|state| {
        let key = request.turn_key;
        let kept = key.as_ref().and_then(|key| state.run(run_id)?.answered_turns.get(key).cloned());
        if kept.is_some() {
            return kept;
        }
        let reply = state.model_replies.pop_front();
        // A turn that was answered is kept for its key; one that was not may be asked for again.
        if let (Some(key), Some(reply @ ModelReply::Frames(_)), Some(run)) = (key, &reply, state.run(run_id))
        {
            run.answered_turns.insert(key, reply.clone());
        }
        reply
    });
    Ok(match reply {
        None => Answer::failure(ErrorCode::ModelUnresolved, "the test has no further reply of the model"),
        Some(ModelReply::Refuse(status)) => {
            Answer::failure_with(status, ErrorCode::ProviderError, "refused by the test")
        }
        Some(ModelReply::Frames(frames)) => Answer::Stream { frames, ending: Ending::Closed },
        Some(ModelReply::Stall(frames)) => Answer::Stream { frames, ending: Ending::Stalled },
        Some(ModelReply::CutAfter(frames)) => Answer::Stream { frames, ending: Ending::Cut },
    })
}

fn start_child(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<ChildRequest>(inner, call)?;
    let input = request.input.to_value().map_err(unusable)?;
    let slug = request.slug.to_string();
    let identity = match &request.idempotency_key {
        Some(key) => json!([slug, key]),
        None => json!([slug, input, request.ordinal]),
    };
    let started = inner.change(|state| {
        if matches!(state.child_outcomes.get(&slug), Some(ChildOutcome::Unknown)) {
            return None;
        }
        let fresh = state.mint("child");
        let run = state.run(run_id)?;
        let known =
            run.children.iter().find(|child| child.identity == identity).map(|child| child.id.clone());
        let (id, status) = match known {
            Some(id) => (id, 200),
            None => {
                run.children.push(Child { id: fresh.clone(), slug: slug.clone(), identity });
                (fresh, 201)
            }
        };
        Some((id, status, outcome_of(state, &slug)))
    });
    let Some((id, status, (child_status, output))) = started else {
        return Err(Answer::failure(ErrorCode::NotFound, "no such workflow"));
    };
    let response = ChildResponse {
        child_run_id: id.parse().map_err(unusable)?,
        status: child_status,
        output,
        output_schema: Some(None),
    };
    Ok(Answer::json(status, &response))
}

fn outcome_of(state: &State, slug: &str) -> (RunStatus, RawJson) {
    match state.child_outcomes.get(slug) {
        None | Some(ChildOutcome::Unknown) => (RunStatus::Completed, RawJson::null()),
        Some(ChildOutcome::Completes(output)) => (RunStatus::Completed, output.clone()),
        Some(ChildOutcome::Fails(error)) => {
            let output: Value = json!({ "error": error });
            (RunStatus::Failed, RawJson::from(&output))
        }
        Some(ChildOutcome::Cancelled) => (RunStatus::Cancelled, RawJson::null()),
        Some(ChildOutcome::Runs) => (RunStatus::Running, RawJson::null()),
    }
}

async fn child_status(inner: &Inner, call: &Call, run_id: &str, child: &str) -> Outcome {
    let look = |state: &mut State| {
        let slug = state.run(run_id)?.children.iter().find(|known| known.id == child)?.slug.clone();
        Some(outcome_of(state, &slug))
    };
    let limit = Duration::from_secs(call.wait_seconds().unwrap_or(0));
    let ended = inner.find(|state| look(state).filter(|(status, _)| status.is_terminal()));
    let found = match tokio::time::timeout(limit, ended).await {
        Ok(found) => Some(found),
        Err(_) => look(&mut inner.state()),
    };
    let Some((status, output)) = found else {
        return Err(Answer::failure(ErrorCode::NotFound, "no child of this run"));
    };
    let response =
        ChildStatus { id: child.parse().map_err(unusable)?, status, output, output_schema: Some(None) };
    Ok(Answer::json(200, &response))
}
