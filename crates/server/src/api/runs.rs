//! Runs: start, look at, list, cancel (docs/protocol/public-api.md §7).

use axum::extract::{Extension, State as FromState};
use http::{Method, StatusCode};
use serde::Deserialize;
use trestle_contract::RawJson;
use trestle_contract::api::{
    RunDetail, RunDetailResponse, RunFailure, RunList, RunSummary, RunTriggered, TriggerRequest, TriggeredRun,
};
use trestle_contract::bounds::EpochMs;
use trestle_contract::control::RunActor;
use trestle_contract::event::RunStatus;
use trestle_contract::ids::RunId;
use trestle_store::{CancelOutcome, Entity, RunFilter, RunListRow, RunPosition, RunRow, StoreError};

use super::workflows::find;
use super::{check_organisation, unsigned};
use crate::auth::{ApiAuth, Reach};
use crate::body::{Json, Reply};
use crate::extract::{Parameters, Segments};
use crate::failure::{Answer, Failure, shown};
use crate::idempotency::CurrentKey;
use crate::launch::{self, Caller};
use crate::routes::{Route, Table};
use crate::state::State;

const STATUSES: &str = "queued, pending, running, sleeping, awaiting_input, waiting_for_child, \
                        cancelling, completed, failed, cancelled";

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::POST, "/v1/orgs/{org}/workflows/{workflow}/runs", Reach::Trigger, "Starts a run")
            .takes::<TriggerRequest>()
            .answers::<RunTriggered>(StatusCode::CREATED),
        trigger,
    );
    let list = |path, summary| {
        Route::api(Method::GET, path, Reach::Read, summary)
            .query("status", "Only runs in this status")
            .query("parent", "Only runs that this run started")
            .query("limit", "Rows of the page")
            .query("cursor", "nextCursor of the page before")
            .answers::<RunList>(StatusCode::OK)
    };
    table.add(
        list("/v1/orgs/{org}/workflows/{workflow}/runs", "Runs of a workflow, newest first"),
        list_of_workflow,
    );
    table.add(list("/v1/orgs/{org}/runs", "Runs, newest first"), list_all);
    table.add(
        Route::api(Method::GET, "/v1/runs/{run}", Reach::Read, "One run")
            .answers::<RunDetailResponse>(StatusCode::OK),
        detail,
    );
    table.add(
        Route::api(Method::POST, "/v1/runs/{run}/cancel", Reach::Trigger, "Asks for the end of a run")
            .empty(StatusCode::NO_CONTENT),
        cancel,
    );
}

/// A run by its id.
pub(super) async fn run_row(state: &State, text: &str) -> Answer<RunRow> {
    let missing = || Failure::not_found("run", text).hint("trestle runs lists the runs");
    let id = RunId::new(text).map_err(|_| missing())?;
    match state.store().run(&id).await {
        Err(StoreError::NotFound(Entity::Run)) => Err(missing()),
        other => Ok(other?),
    }
}

fn time(value: Option<i64>) -> Option<EpochMs> {
    value.map(EpochMs::saturating_signed)
}

async fn trigger(
    FromState(state): FromState<State>,
    auth: ApiAuth,
    key: Option<Extension<CurrentKey>>,
    Segments((org, workflow)): Segments<(String, String)>,
    Json(request): Json<TriggerRequest>,
) -> Answer<Reply<RunTriggered>> {
    check_organisation(&state, &org)?;
    let workflow = find(&state, &workflow).await?;
    if let Some(environment) = &request.environment {
        return Err(Failure::not_found("environment", environment)
            .hint("this server has no environments yet; leave it out"));
    }
    let version = workflow.current_version.ok_or_else(|| {
        Failure::conflict(format!("the workflow `{}` has no version", workflow.slug))
            .hint("deploy it: trestle deploy")
    })?;
    let version = state.store().version(&version).await?;
    let starter = match &auth {
        ApiAuth::Administrator => None,
        ApiAuth::Run { run, .. } => Some(state.store().run(run).await?),
    };
    let (caller, user_id) = match &starter {
        None => (Caller::Person, "administrator".to_owned()),
        Some(run) => (Caller::Workflow(&run.workflow_slug), format!("workflow:{}", run.workflow)),
    };
    let actor = RawJson::encode(&RunActor::User { user_id }).map_err(Failure::internal)?;
    let mut run = launch::new_run(&state, &version, &caller, request.input, actor)?;
    run.idempotency = key.map(|Extension(CurrentKey(key))| key);
    let run = state.store().create_run(run).await?.run;
    Ok(Reply::created(RunTriggered {
        run: TriggeredRun {
            id: run.id,
            workflow_id: run.workflow,
            status: run.status,
            outcome_status: None,
            started_at: time(run.started_at),
            completed_at: time(run.completed_at),
        },
    }))
}

#[derive(Deserialize)]
struct ListQuery {
    status: Option<String>,
    parent: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

impl ListQuery {
    fn filter(&self, state: &State) -> Answer<RunFilter> {
        let status = self
            .status
            .as_deref()
            .filter(|status| !status.is_empty())
            .map(|status| {
                status.parse::<RunStatus>().map_err(|_| {
                    Failure::invalid(format!("unknown status `{}`", shown(status)))
                        .hint(format!("one of {STATUSES}"))
                })
            })
            .transpose()?;
        let longest = state.config().limits.page;
        let limit = match self.limit.as_deref() {
            None => longest.min(50),
            Some(text) => text
                .parse::<u32>()
                .map_err(|_| {
                    Failure::invalid(format!("limit must be a whole number, not `{}`", shown(text)))
                })?
                .clamp(1, longest),
        };
        let after = self
            .cursor
            .as_deref()
            .map(|cursor| {
                cursor
                    .parse()
                    .map(RunPosition)
                    .map_err(|_| Failure::invalid("cursor must be the nextCursor of another page"))
            })
            .transpose()?;
        let parent = self
            .parent
            .as_deref()
            .map(|parent| RunId::new(parent).map_err(|_| Failure::not_found("run", parent)))
            .transpose()?;
        Ok(RunFilter { workflow: None, status, parent, after, limit })
    }
}

async fn list_all(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Parameters(query): Parameters<ListQuery>,
) -> Answer<Reply<RunList>> {
    check_organisation(&state, &org)?;
    let filter = query.filter(&state)?;
    page(&state, filter).await
}

async fn list_of_workflow(
    FromState(state): FromState<State>,
    Segments((org, workflow)): Segments<(String, String)>,
    Parameters(query): Parameters<ListQuery>,
) -> Answer<Reply<RunList>> {
    check_organisation(&state, &org)?;
    let mut filter = query.filter(&state)?;
    filter.workflow = Some(find(&state, &workflow).await?.id);
    page(&state, filter).await
}

async fn page(state: &State, filter: RunFilter) -> Answer<Reply<RunList>> {
    let page = state.store().list_runs(filter).await?;
    Ok(Reply::ok(RunList {
        runs: page.runs.into_iter().map(summary).collect(),
        next_cursor: page.next.map(|RunPosition(position)| position.to_string()),
    }))
}

fn summary(row: RunListRow) -> RunSummary {
    RunSummary {
        id: row.id,
        workflow_id: row.workflow,
        workflow_slug: Some(row.workflow_slug),
        status: row.status,
        outcome_status: None,
        trigger_kind: Some(row.trigger_kind),
        created_at: EpochMs::saturating_signed(row.created_at),
        started_at: time(row.started_at),
        completed_at: time(row.completed_at),
        runtime_seconds: unsigned(row.totals.runtime_seconds),
        concurrency_key: row.concurrency_key,
        workspace_key: row.workspace_key,
    }
}

async fn detail(
    FromState(state): FromState<State>,
    Segments(run): Segments<String>,
) -> Answer<Reply<RunDetailResponse>> {
    let row = run_row(&state, &run).await?;
    let totals = row.totals;
    #[expect(clippy::cast_precision_loss, reason = "a cost for people, far below 2^53 micros")]
    let cost = totals.cost_micros as f64 / 1e6;
    Ok(Reply::ok(RunDetailResponse {
        run: RunDetail {
            id: row.id,
            workflow_id: row.workflow,
            workflow_slug: Some(row.workflow_slug),
            workflow_version: Some(unsigned(row.version_number)),
            status: row.status,
            outcome_status: None,
            trigger_kind: Some(row.trigger_kind),
            created_at: EpochMs::saturating_signed(row.created_at),
            started_at: time(row.started_at),
            completed_at: time(row.completed_at),
            runtime_seconds: unsigned(totals.runtime_seconds),
            tokens_in: unsigned(totals.tokens_in),
            tokens_out: unsigned(totals.tokens_out),
            cached_tokens_in: unsigned(totals.cached_tokens_in),
            cached_write_tokens: unsigned(totals.cached_write_tokens),
            cost_usd: Some(cost),
            concurrency_key: row.concurrency_key,
            workspace_key: row.workspace_key,
            attempt: Some(row.attempt.into()),
            parent_run_id: row.parent,
            input: row.input,
            output: (row.status == RunStatus::Completed).then_some(row.output).flatten(),
            error: row.error.map(|error| RunFailure {
                code: error.code,
                message: error.message,
                hint: error.hint,
            }),
        },
    }))
}

async fn cancel(FromState(state): FromState<State>, Segments(run): Segments<String>) -> Answer<StatusCode> {
    let row = run_row(&state, &run).await?;
    let outcome = state.store().request_cancel(&row.id).await?;
    if matches!(outcome, CancelOutcome::Cancelled | CancelOutcome::Cancelling) {
        tracing::info!(run = %row.id, ?outcome, "a run was asked to end");
        state.relay().stop_run(&row.id);
    }
    Ok(StatusCode::NO_CONTENT)
}
