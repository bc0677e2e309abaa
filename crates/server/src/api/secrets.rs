//! Secrets (docs/protocol/public-api.md §10). Values come in and never go out.

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::api::{
    CreateSecretRequest, RotateSecretRequest, SecretKind, SecretList, SecretResponse, SecretRow, SecretScope,
};
use trestle_contract::bounds::EpochMs;
use trestle_contract::ids::{EnvironmentId, SecretId, SecretName};
use trestle_store::{Conflict, IfExists, NewSecret, StoreError};

use super::check_organisation;
use crate::auth::Reach;
use crate::body::{Json, Reply};
use crate::control::secret_place;
use crate::extract::Segments;
use crate::failure::{Answer, Failure, shown};
use crate::providers::KEY_PREFIX;
use crate::routes::{Route, Table};
use crate::state::State;

/// The largest value of a secret, in bytes.
const LARGEST: usize = 64 * 1024;
/// Values shorter than this show no last characters: four of them would be
/// too large a part.
const SHOWABLE: usize = 16;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::GET, "/v1/orgs/{org}/secrets", Reach::Administer, "All secrets, without values")
            .answers::<SecretList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/orgs/{org}/secrets",
            Reach::Administer,
            "Stores a secret; refused when the name is taken",
        )
        .takes::<CreateSecretRequest>()
        .answers::<SecretResponse>(StatusCode::CREATED),
        create,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/secrets/{secret}/rotate",
            Reach::Administer,
            "Replaces the value of a secret",
        )
        .takes::<RotateSecretRequest>()
        .answers::<SecretResponse>(StatusCode::OK),
        rotate,
    );
    table.add(
        Route::api(Method::DELETE, "/v1/secrets/{secret}", Reach::Administer, "Removes a secret")
            .empty(StatusCode::NO_CONTENT),
        delete,
    );
}

fn check(name: &str, value: &str) -> Answer<()> {
    if value.is_empty() {
        return Err(Failure::invalid("the value of a secret must not be empty"));
    }
    if value.len() > LARGEST {
        return Err(Failure::new(
            trestle_contract::ErrorCode::PayloadTooLarge,
            format!("the value of a secret has at most {LARGEST} bytes"),
        ));
    }
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(Failure::invalid(format!(
            "`{}` is no name of a secret: it must not begin or end with a blank or hold control characters",
            shown(name)
        )));
    }
    if name.starts_with(KEY_PREFIX) {
        return Err(Failure::invalid(format!(
            "names that begin with `{KEY_PREFIX}` belong to model providers"
        ))
        .hint("take another name"));
    }
    Ok(())
}

fn last4(value: &str) -> Option<String> {
    let characters: Vec<char> = value.chars().collect();
    (characters.len() >= SHOWABLE).then(|| characters[characters.len() - 4..].iter().collect())
}

/// The word of a type that serialises as one.
fn word(value: impl serde::Serialize) -> Answer<String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        _ => Err(Failure::internal("a word does not serialise as one")),
    }
}

fn read_word<T: serde::de::DeserializeOwned + Default>(text: String) -> T {
    serde_json::from_value(serde_json::Value::String(text)).unwrap_or_default()
}

fn row(row: trestle_store::SecretRow) -> Answer<SecretRow> {
    Ok(SecretRow {
        id: SecretId::new(row.id).map_err(Failure::internal)?,
        name: SecretName::new(row.name).map_err(Failure::internal)?,
        scope: read_word::<SecretScope>(row.scope),
        environment_id: row.environment.map(EnvironmentId::new).transpose().map_err(Failure::internal)?,
        kind: read_word::<SecretKind>(row.kind),
        last4: row.last4,
        description: row.description,
        created_at: Some(EpochMs::saturating_signed(row.created_at)),
    })
}

async fn list(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
) -> Answer<Reply<SecretList>> {
    check_organisation(&state, &org)?;
    let rows = state.store().list_secrets().await?;
    Ok(Reply::ok(SecretList {
        secrets: rows.into_iter().map(row).collect::<Answer<_>>()?,
        next_cursor: None,
    }))
}

async fn create(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Json(request): Json<CreateSecretRequest>,
) -> Answer<Reply<SecretResponse>> {
    check_organisation(&state, &org)?;
    let name = request.name.as_str();
    check(name, &request.value)?;
    if let Some(environment) = &request.environment_id {
        return Err(Failure::not_found("environment", environment.as_str())
            .hint("this server has no environments yet; leave it out"));
    }
    let sealed = state.vault().seal(&secret_place(None, name), &request.value).map_err(Failure::internal)?;
    let stored = state
        .store()
        .put_secret(NewSecret {
            name: name.to_owned(),
            environment: None,
            scope: word(request.scope)?,
            kind: word(request.kind)?,
            description: request.description,
            last4: last4(&request.value),
            sealed,
            if_exists: IfExists::Refuse,
        })
        .await;
    match stored {
        Ok((stored, _)) => Ok(Reply::created(SecretResponse { secret: row(stored)? })),
        Err(StoreError::Conflict(Conflict::NameTaken)) => {
            Err(Failure::conflict(format!("a secret `{}` exists", shown(name)))
                .hint("replace its value: POST /v1/secrets/{id}/rotate"))
        }
        Err(error) => Err(error.into()),
    }
}

async fn rotate(
    FromState(state): FromState<State>,
    Segments(secret): Segments<String>,
    Json(request): Json<RotateSecretRequest>,
) -> Answer<Reply<SecretResponse>> {
    let rows = state.store().list_secrets().await?;
    let current =
        rows.into_iter().find(|row| row.id == secret).ok_or_else(|| Failure::not_found("secret", &secret))?;
    check(&current.name, &request.value)?;
    let place = secret_place(current.environment.as_deref(), &current.name);
    let sealed = state.vault().seal(&place, &request.value).map_err(Failure::internal)?;
    let stored = state.store().rotate_secret(&secret, sealed, last4(&request.value)).await?;
    Ok(Reply::ok(SecretResponse { secret: row(stored)? }))
}

async fn delete(
    FromState(state): FromState<State>,
    Segments(secret): Segments<String>,
) -> Answer<StatusCode> {
    state.store().delete_secret(&secret).await?;
    Ok(StatusCode::NO_CONTENT)
}
