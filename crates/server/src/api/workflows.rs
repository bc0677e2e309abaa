//! Workflows (docs/protocol/public-api.md §6).

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use serde::Deserialize;
use trestle_contract::RawJson;
use trestle_contract::api::{
    LastRun, ProgramFile, ProgramView, VersionRow, WorkflowDetail, WorkflowDisabled, WorkflowHead,
    WorkflowList, WorkflowRow, WorkflowState,
};
use trestle_contract::bounds::EpochMs;
use trestle_contract::ids::{Slug, WorkflowId};
use trestle_store::{Entity, StoreError, WorkflowListRow};

use super::{check_organisation, unsigned};
use crate::auth::Reach;
use crate::body::Reply;
use crate::extract::{Parameters, Segments};
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::GET, "/v1/orgs/{org}/workflows", Reach::Read, "All workflows")
            .query("q", "Part of a title or slug, any case")
            .answers::<WorkflowList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(
            Method::GET,
            "/v1/workflows/{workflow}",
            Reach::Read,
            "One workflow with manifest, program and versions",
        )
        .answers::<WorkflowDetail>(StatusCode::OK),
        detail,
    );
    table.add(
        Route::api(
            Method::DELETE,
            "/v1/workflows/{workflow}",
            Reach::Administer,
            "Removes a workflow; its runs go on",
        )
        .empty(StatusCode::NO_CONTENT),
        delete,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/workflows/{workflow}/disable",
            Reach::Administer,
            "Lets a workflow take no new runs",
        )
        .answers::<WorkflowState>(StatusCode::OK),
        disable,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/workflows/{workflow}/enable",
            Reach::Administer,
            "Lets a workflow take new runs again",
        )
        .answers::<WorkflowState>(StatusCode::OK),
        enable,
    );
}

/// Reads a workflow id, which must be one to exist.
pub(super) fn workflow_id(text: &str) -> Answer<WorkflowId> {
    WorkflowId::new(text).map_err(|_| Failure::not_found("workflow", text))
}

/// A workflow by its id, or by its slug.
pub(super) async fn find(state: &State, text: &str) -> Answer<trestle_store::WorkflowRow> {
    let id = workflow_id(text)?;
    match state.store().workflow(&id).await {
        Err(StoreError::NotFound(Entity::Workflow)) => {}
        other => return Ok(other?),
    }
    match state.store().workflow_by_slug(text).await {
        Err(StoreError::NotFound(Entity::Workflow)) => {
            Err(Failure::not_found("workflow", text).hint("trestle workflows lists what is deployed"))
        }
        other => Ok(other?),
    }
}

fn time(value: Option<i64>) -> Option<EpochMs> {
    value.map(EpochMs::saturating_signed)
}

#[derive(Deserialize)]
struct ListQuery {
    q: Option<String>,
}

async fn list(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Parameters(query): Parameters<ListQuery>,
) -> Answer<Reply<WorkflowList>> {
    check_organisation(&state, &org)?;
    let rows = state.store().list_workflows(query.q.as_deref().filter(|term| !term.is_empty())).await?;
    let workflows = rows.into_iter().map(shown).collect::<Answer<_>>()?;
    Ok(Reply::ok(WorkflowList { workflows }))
}

fn shown(row: WorkflowListRow) -> Answer<WorkflowRow> {
    let workflow = row.workflow;
    Ok(WorkflowRow {
        id: workflow.id,
        slug: Slug::new(workflow.slug).map_err(Failure::internal)?,
        title: workflow.title,
        current_version_id: workflow.current_version,
        trigger_kinds: workflow.trigger_kinds,
        updated_at: time(Some(workflow.updated_at)),
        last_run: row.last_run.map(|(status, at)| LastRun { status, at: EpochMs::saturating_signed(at) }),
        disabled_at: time(workflow.disabled_at),
    })
}

async fn detail(
    FromState(state): FromState<State>,
    Segments(workflow): Segments<String>,
) -> Answer<Reply<WorkflowDetail>> {
    let row = find(&state, &workflow).await?;
    let versions = state.store().list_versions(&row.id).await?;
    let current = match &row.current_version {
        Some(id) => Some(state.store().version(id).await?),
        None => None,
    };
    let program = match &current {
        Some(version) => ProgramView {
            entry: Some(version.program.entry.clone()),
            files: version
                .source_files
                .as_ref()
                .map(RawJson::decode::<Vec<ProgramFile>>)
                .transpose()
                .map_err(Failure::internal)?,
        },
        None => ProgramView { entry: None, files: None },
    };
    let manifest = match current {
        Some(version) => version.manifest,
        None => RawJson::parse("{}").map_err(Failure::internal)?,
    };
    Ok(Reply::ok(WorkflowDetail {
        workflow: WorkflowHead {
            id: row.id,
            slug: Slug::new(row.slug).map_err(Failure::internal)?,
            current_version_id: row.current_version,
            disabled_at: time(row.disabled_at),
        },
        manifest,
        program,
        versions: versions
            .into_iter()
            .map(|version| VersionRow {
                id: version.id,
                number: unsigned(version.number),
                created_at: EpochMs::saturating_signed(version.created_at),
            })
            .collect(),
    }))
}

async fn delete(
    FromState(state): FromState<State>,
    Segments(workflow): Segments<String>,
) -> Answer<StatusCode> {
    // Only by id: a slug may name another workflow by the time of a repeat.
    state.store().delete_workflow(&workflow_id(&workflow)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn disable(
    FromState(state): FromState<State>,
    Segments(workflow): Segments<String>,
) -> Answer<Reply<WorkflowState>> {
    switch(&state, &workflow, true).await
}

async fn enable(
    FromState(state): FromState<State>,
    Segments(workflow): Segments<String>,
) -> Answer<Reply<WorkflowState>> {
    switch(&state, &workflow, false).await
}

async fn switch(state: &State, workflow: &str, disabled: bool) -> Answer<Reply<WorkflowState>> {
    let row = state.store().set_workflow_disabled(&workflow_id(workflow)?, disabled).await?;
    Ok(Reply::ok(WorkflowState {
        workflow: WorkflowDisabled { id: row.id, disabled_at: time(row.disabled_at) },
    }))
}
