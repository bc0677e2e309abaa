//! Artifacts of a run, for people.

use std::time::Duration;

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::api::{ArtifactRow, ArtifactRowList, ArtifactUrl};
use trestle_contract::bounds::EpochMs;
use trestle_contract::ids::ArtifactId;
use trestle_store::{Entity, StoreError};

use super::runs::run_row;
use crate::auth::Reach;
use crate::body::Reply;
use crate::control::neutral_type;
use crate::extract::Segments;
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::GET, "/v1/runs/{run}/artifacts", Reach::Read, "Artifacts of a run, oldest first")
            .answers::<ArtifactRowList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(
            Method::GET,
            "/v1/runs/{run}/artifacts/{artifact}/url",
            Reach::Read,
            "A short-lived address of an artifact",
        )
        .answers::<ArtifactUrl>(StatusCode::OK),
        address,
    );
}

async fn list(
    FromState(state): FromState<State>,
    Segments(run): Segments<String>,
) -> Answer<Reply<ArtifactRowList>> {
    let run = run_row(&state, &run).await?;
    let artifacts = state.store().list_artifacts(&run.id).await?;
    Ok(Reply::ok(ArtifactRowList {
        artifacts: artifacts
            .into_iter()
            .map(|row| ArtifactRow {
                id: row.id,
                name: row.name,
                content_type: row.content_type,
                size_bytes: row.size,
                digest: Some(row.sha256),
                metadata: row.metadata,
                created_at: EpochMs::saturating_signed(row.created_at),
            })
            .collect(),
    }))
}

async fn address(
    FromState(state): FromState<State>,
    Segments((run, artifact)): Segments<(String, String)>,
) -> Answer<Reply<ArtifactUrl>> {
    let run = run_row(&state, &run).await?;
    let missing = || Failure::not_found("artifact", &artifact);
    let id = ArtifactId::new(artifact.clone()).map_err(|_| missing())?;
    let row = match state.store().artifact(&id).await {
        Ok(row) if row.run == run.id => row,
        Ok(_) | Err(StoreError::NotFound(Entity::Artifact)) => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let life = Duration::from_millis(state.config().intervals.download_ms);
    let (signed_url, expires) =
        state.download(&row.blob_key, life, Some(&neutral_type(&row.content_type)), Some(&row.name));
    Ok(Reply::ok(ArtifactUrl { signed_url, expires_at: EpochMs::saturating_signed(expires) }))
}
