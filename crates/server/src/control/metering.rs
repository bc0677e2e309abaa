//! Usage, telemetry, inference (docs/protocol/control.md §4, §6 and §7).

use axum::extract::State as FromState;
use axum::response::Response;
use http::{Method, StatusCode};
use trestle_contract::ErrorCode;
use trestle_contract::control::{InferenceRequest, TelemetryRequest, TokenUsageRequest, UsageRequest};
use trestle_contract::descriptor::Manifest;
use trestle_contract::event::EventFrame;
use trestle_contract::inference::TokenCounts;
use trestle_domain::{BudgetCaps, BudgetMeter};
use trestle_store::{ComputeUsage, TelemetryBatch, TokenReport, TurnTokens};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Whole};
use crate::failure::{Answer, Failure};
use crate::providers::is_direct_model;
use crate::routes::{BodySize, Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/usage", "Books compute time")
            .takes::<UsageRequest>()
            .empty(StatusCode::NO_CONTENT),
        usage,
    );
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/usage/tokens",
            "Reports the tokens of one model call",
        )
        .takes::<TokenUsageRequest>()
        .empty(StatusCode::NO_CONTENT),
        tokens,
    );
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/telemetry", "Stores events of the run")
            .size(BodySize::Large)
            .takes::<TelemetryRequest>()
            .empty(StatusCode::NO_CONTENT),
        telemetry,
    );
    table.add(
        Route::run(Method::POST, "/runner/v1/runs/{run}/inference", "Relays one model turn")
            .size(BodySize::Large)
            .takes::<InferenceRequest>()
            .streams("application/x-ndjson"),
        inference,
    );
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

async fn usage(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<UsageRequest>,
) -> Answer<StatusCode> {
    state
        .store()
        .record_compute(ComputeUsage {
            fence: auth.fence(),
            identifier: request.identifier.as_str().to_owned(),
            seconds: signed(request.runtime_seconds.get()),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn tokens(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<TokenUsageRequest>,
) -> Answer<StatusCode> {
    // A relayed turn is metered by the relay alone. Whose process does not say which it was, names the provider that it
    // called in the model.
    let counted = match (request.brokered, request.model.as_deref()) {
        (Some(brokered), _) => !brokered,
        (None, Some(model)) => is_direct_model(&state, model).await?,
        (None, None) => false,
    };
    let counts = TokenCounts {
        input_tokens: Some(request.input_tokens),
        output_tokens: Some(request.output_tokens),
        cached_read_tokens: request.cached_read_tokens,
        cached_write_tokens: request.cached_write_tokens,
    };
    let price = request.model.as_deref().filter(|_| counted);
    let cost = price.and_then(|model| state.relay().price(model, &counts)).unwrap_or(0);
    state
        .store()
        .record_tokens(TokenReport {
            fence: auth.fence(),
            identifier: request.identifier.as_str().to_owned(),
            model: request.model,
            tokens: TurnTokens {
                input: signed(request.input_tokens),
                output: signed(request.output_tokens),
                cached_read: signed(request.cached_read_tokens.unwrap_or(0)),
                cached_write: signed(request.cached_write_tokens.unwrap_or(0)),
            },
            counted,
            cost_micros: signed(cost),
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn telemetry(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<TelemetryRequest>,
) -> Answer<StatusCode> {
    let sent = request.frames.len();
    // One bad frame costs itself, never its batch.
    let frames: Vec<EventFrame> = request
        .frames
        .iter()
        .filter_map(|text| {
            let (frame, event) = EventFrame::parse_batch_element(text).ok()?;
            (event.envelope.run_id.as_str() == auth.run().as_str()).then_some(frame)
        })
        .collect();
    if frames.len() < sent {
        let dropped = sent - frames.len();
        tracing::debug!(run = %auth.run(), dropped, "frames that are no events of this run were dropped");
    }
    state.store().append_telemetry(TelemetryBatch { fence: auth.fence(), frames }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn inference(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Whole(body): Whole,
) -> Answer<Response> {
    held(&state, &auth).await?;
    let refusal = past_budget(&state, &auth).await?;
    Ok(state.relay().relay(auth.run(), body, refusal).await)
}

/// The refusal of a further model turn of a run that has used more than its budget. Its process judges this too, and
/// before that; this is for one that was started with less knowledge. Compute time is left to the process, which knows
/// what of it counts.
async fn past_budget(state: &State, auth: &RunAuth) -> Answer<Option<Failure>> {
    let run = state.store().run(auth.run()).await?;
    let version = state.store().version(&run.version).await?;
    let manifest: Manifest = version.manifest.decode().map_err(Failure::internal)?;
    let Some(budget) = manifest.descriptor.budget else { return Ok(None) };
    let caps = BudgetCaps { max_tokens: budget.max_tokens, max_usd: budget.max_usd, ..BudgetCaps::default() };
    let number = |total: i64| u64::try_from(total).unwrap_or(0);
    let tokens = number(run.totals.tokens_in).saturating_add(number(run.totals.tokens_out));
    let used = BudgetMeter::starting_at(tokens, number(run.totals.cost_micros));
    Ok(used.breach(&caps, 0).map(|breach| {
        Failure::new(ErrorCode::BudgetExceeded, format!("the budget is used up: {breach}"))
            .hint("raise the limit under \"budget\" in the descriptor and deploy again")
    }))
}
