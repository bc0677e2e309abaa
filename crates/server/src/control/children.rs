//! Workflows that a run starts (docs/protocol/control.md §11).

use axum::extract::State as FromState;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;
use trestle_contract::RawJson;
use trestle_contract::control::{ChildMode, ChildRequest, ChildResponse, ChildStatus, RunActor};
use trestle_contract::ids::RunId;
use trestle_domain::{ChildKey, child_identity, input_digest};
use trestle_store::{ChildKind, CreatedRun, Entity, ParentLink, StoreError, VersionRow};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Reply};
use crate::extract::Segments;
use crate::failure::{Answer, Failure};
use crate::launch::{self, Caller};
use crate::routes::{Route, Table};
use crate::state::State;
use crate::wait;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/children",
            "Starts a workflow, or finds the run that the same call started before",
        )
        .takes::<ChildRequest>()
        .answers::<ChildResponse>(StatusCode::CREATED)
        .answers::<ChildResponse>(StatusCode::OK),
        create,
    );
    table.add(
        Route::run(
            Method::GET,
            "/runner/v1/runs/{run}/children/{child}",
            "Status and output of a started run",
        )
        .header("x-trestle-wait", "Seconds to hold the call until the run has ended")
        .answers::<ChildStatus>(StatusCode::OK),
        status,
    );
}

async fn create(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<ChildRequest>,
) -> Answer<Reply<ChildResponse>> {
    held(&state, &auth).await?;
    let slug = request.slug.as_str();
    let parent = state.store().run(auth.run()).await?;
    let workflow = match state.store().workflow_by_slug(slug).await {
        Err(StoreError::NotFound(Entity::Workflow)) => {
            return Err(Failure::not_found("workflow", slug).hint("deploy it first: trestle deploy"));
        }
        other => other?,
    };
    let version = workflow
        .current_version
        .ok_or_else(|| Failure::conflict(format!("the workflow `{slug}` has no version")))?;
    let version = state.store().version(&version).await?;
    // A null input and an absent one are the same call.
    let input = (!request.input.is_null()).then_some(request.input);
    let actor = RunActor::Workflow {
        parent_run_id: parent.id.as_str().to_owned(),
        parent_workflow_id: parent.workflow.as_str().to_owned(),
        user_id: format!("workflow:{}", parent.workflow),
    };
    let actor = RawJson::encode(&actor).map_err(Failure::internal)?;
    let caller = Caller::Workflow(&parent.workflow_slug);
    let mut run = launch::new_run(&state, &version, &caller, input, actor)?;
    let key = match request.idempotency_key.as_deref() {
        Some(key) => ChildKey::Author(key),
        None => ChildKey::Ordinal(request.ordinal),
    };
    let text = run.input.as_ref().map(RawJson::get);
    let digest = input_digest(text).map_err(|error| Failure::invalid(error.to_string()))?;
    let identity = child_identity(parent.id.as_str(), slug, text, key)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    run.environment = parent.environment;
    run.parent = Some(ParentLink {
        fence: auth.fence(),
        identity,
        kind: match request.mode.unwrap_or_default() {
            ChildMode::Call => ChildKind::Call,
            ChildMode::Run => ChildKind::Run,
        },
    });
    let CreatedRun { run: child, created } = state.store().create_run(run).await?;
    if !created && request.idempotency_key.is_some() {
        let first = input_digest(child.input.as_ref().map(RawJson::get)).map_err(Failure::internal)?;
        if first != digest {
            return Err(Failure::new(
                trestle_contract::ErrorCode::IdempotencyKeyReused,
                "the idempotency key was used with another input",
            )
            .hint("take a key that names the input too"));
        }
    }
    let pinned = pinned_of(&state, &child.version, version).await?;
    let answer = ChildResponse {
        child_run_id: child.id,
        status: child.status,
        output: child.output.unwrap_or_else(RawJson::null),
        output_schema: Some(output_schema(&pinned)?),
    };
    Ok(if created { Reply::created(answer) } else { Reply::ok(answer) })
}

async fn pinned_of(state: &State, id: &trestle_contract::VersionId, known: VersionRow) -> Answer<VersionRow> {
    if *id == known.id { Ok(known) } else { Ok(state.store().version(id).await?) }
}

fn output_schema(version: &VersionRow) -> Answer<Option<RawJson>> {
    let manifest: trestle_contract::descriptor::Manifest =
        version.manifest.decode().map_err(Failure::internal)?;
    Ok(manifest.output_schema)
}

async fn status(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Segments((_, child)): Segments<(String, String)>,
    headers: HeaderMap,
) -> Answer<Reply<ChildStatus>> {
    let deadline = wait::deadline(&state, &headers)?;
    let id = RunId::new(child.clone()).map_err(|_| Failure::not_found("child run", &child))?;
    // A run is told of the ends of its children, and of the loss of its lease.
    let mut watch = state.hub().watch(auth.run());
    let row = loop {
        held(&state, &auth).await?;
        let row = match state.store().run(&id).await {
            Ok(row) if row.parent.as_ref() == Some(auth.run()) => row,
            Ok(_) | Err(StoreError::NotFound(Entity::Run)) => {
                return Err(Failure::not_found("child run", &child));
            }
            Err(error) => return Err(error.into()),
        };
        let over = row.status.is_terminal() || state.shutdown().is_cancelled();
        if over || Instant::now() >= deadline {
            break row;
        }
        tokio::select! {
            _ = watch.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = state.shutdown().cancelled() => {}
        }
    };
    let version = state.store().version(&row.version).await?;
    Ok(Reply::ok(ChildStatus {
        id: row.id,
        status: row.status,
        output: row.output.unwrap_or_else(RawJson::null),
        output_schema: Some(output_schema(&version)?),
    }))
}
