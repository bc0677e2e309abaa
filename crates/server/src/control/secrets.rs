//! Secrets of a run (docs/protocol/control.md §8).

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use trestle_contract::control::{SecretResolveRequest, SecretResolveResponse};
use trestle_contract::descriptor::Manifest;
use trestle_store::{Entity, SecretRow, StoreError};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Reply};
use crate::failure::{Answer, Failure, shown};
use crate::providers;
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/secrets/resolve",
            "The value of a secret that the manifest lists",
        )
        .takes::<SecretResolveRequest>()
        .answers::<SecretResolveResponse>(StatusCode::OK),
        resolve,
    );
}

/// Where a value belongs. It is sealed for this place alone.
pub(crate) fn place(environment: Option<&str>, name: &str) -> String {
    match environment {
        Some(environment) => format!("secret/environment/{environment}/{name}"),
        None => format!("secret/organisation/{name}"),
    }
}

fn place_of(row: &SecretRow) -> String {
    place(row.environment.as_deref(), &row.name)
}

async fn resolve(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<SecretResolveRequest>,
) -> Answer<Reply<SecretResolveResponse>> {
    held(&state, &auth).await?;
    let name = request.name.as_str();
    if let Some(provider) = providers::provider_of_key(state.server_key(), auth.run(), name) {
        return provider_key(&state, &auth, provider).await;
    }
    let run = state.store().run(auth.run()).await?;
    let version = state.store().version(&run.version).await?;
    let manifest: Manifest = version.manifest.decode().map_err(Failure::internal)?;
    let granted = manifest
        .descriptor
        .permissions
        .and_then(|permissions| permissions.secrets)
        .is_some_and(|secrets| secrets.iter().any(|secret| secret.name == name));
    if !granted {
        tracing::info!(run = %auth.run(), secret = name, "an unlisted secret was refused");
        return Err(Failure::forbidden(format!("the workflow may not read the secret `{}`", shown(name)))
            .hint(format!(
                "list it in permissions.secrets of the descriptor: {{\"name\": \"{}\"}}",
                shown(name)
            )));
    }
    let (row, sealed) =
        state.store().sealed_secret(name, run.environment.as_deref()).await.map_err(|error| match error {
            StoreError::NotFound(Entity::Secret) => Failure::not_found("secret", name)
                .hint(format!("set it: trestle secrets set {}", shown(name))),
            other => other.into(),
        })?;
    let value = state.vault().open(&place_of(&row), &sealed).map_err(Failure::internal)?;
    tracing::info!(run = %auth.run(), secret = name, "a secret was read");
    Ok(Reply::ok(SecretResolveResponse { value: value.expose_secret().to_owned() }))
}

/// The key of a model provider that the run process is about to call.
async fn provider_key(state: &State, auth: &RunAuth, provider: &str) -> Answer<Reply<SecretResolveResponse>> {
    let gone = || {
        Failure::not_found("key of the model provider", provider)
            .hint("the provider was deleted or added again without a key: trestle inference list")
    };
    let (row, sealed) = state.store().provider(provider).await.map_err(|error| match error {
        StoreError::NotFound(Entity::Provider) => gone(),
        other => other.into(),
    })?;
    let sealed = sealed.ok_or_else(gone)?;
    let value = state.vault().open(&providers::place(&row.name), &sealed).map_err(Failure::internal)?;
    tracing::info!(run = %auth.run(), provider, "the key of a model provider was read");
    Ok(Reply::ok(SecretResolveResponse { value: value.expose_secret().to_owned() }))
}
