//! Model providers (docs/protocol/public-api.md §11). Keys come in and never go out.

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::ErrorCode;
use trestle_contract::api::{
    CreateProviderRequest, ProviderList, ProviderResponse, ProviderRow, ProviderSource,
};
use trestle_contract::bounds::EpochMs;
use trestle_models::Endpoint;
use trestle_store::{Conflict, Entity, NewProvider, StoreError};

use super::check_organisation;
use crate::auth::Reach;
use crate::body::{Json, Reply};
use crate::extract::Segments;
use crate::failure::{Answer, Failure, shown};
use crate::providers::{DEFAULT_PROVIDER, place, wire};
use crate::routes::{Route, Table};
use crate::state::State;

/// The largest key, in bytes.
const LARGEST_KEY: usize = 16 * 1024;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(
            Method::GET,
            "/v1/orgs/{org}/inference-providers",
            Reach::Administer,
            "All model providers, without keys",
        )
        .answers::<ProviderList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/orgs/{org}/inference-providers",
            Reach::Administer,
            "Adds a model provider; refused when the name is taken",
        )
        .takes::<CreateProviderRequest>()
        .answers::<ProviderResponse>(StatusCode::CREATED),
        create,
    );
    table.add(
        Route::api(
            Method::DELETE,
            "/v1/orgs/{org}/inference-providers/{provider}",
            Reach::Administer,
            "Removes a model provider and its key",
        )
        .empty(StatusCode::NO_CONTENT),
        delete,
    );
}

fn row(row: trestle_store::ProviderRow) -> ProviderRow {
    ProviderRow {
        name: row.name,
        source: row.source,
        base_url: row.base_url,
        region: None,
        has_api_key: row.has_key,
        billed_by_boardwalk: false,
        created_at: Some(EpochMs::saturating_signed(row.created_at)),
    }
}

async fn list(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
) -> Answer<Reply<ProviderList>> {
    check_organisation(&state, &org)?;
    let rows = state.store().list_providers().await?;
    Ok(Reply::ok(ProviderList { providers: rows.into_iter().map(row).collect() }))
}

/// A provider that this server can speak to.
struct Checked {
    base_url: Option<String>,
    key: Option<String>,
}

fn check(request: &CreateProviderRequest) -> Answer<Checked> {
    let name = request.name.as_str();
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(Failure::invalid(format!(
            "`{}` is no name of a provider: it must not begin or end with a blank or hold control characters",
            shown(name)
        )));
    }
    if name == DEFAULT_PROVIDER {
        return Err(Failure::invalid(format!(
            "`{DEFAULT_PROVIDER}` names the server's own model and cannot be taken"
        ))
        .hint("take another name; the server's own model is set with --model and TRESTLE_MODEL_*"));
    }
    check_engine(request)?;
    let Some((kind, vendor)) = wire(request.source) else {
        return Err(Failure::unsupported("this server does not speak to Amazon Bedrock yet")
            .hint("add a gateway with an OpenAI-compatible address as openai_compatible"));
    };
    let base_url = request.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let Some(address) = base_url.or(vendor) else {
        return Err(Failure::invalid(format!(
            "a provider of source `{}` needs a `baseUrl`",
            request.source.as_str()
        ))
        .hint("give its address: --base-url http://…/v1"));
    };
    Endpoint::new(kind, address).map_err(|error| Failure::invalid(error.message))?;
    let key = request.api_key.as_ref().map(|key| key.expose().trim()).filter(|key| !key.is_empty());
    if let Some(key) = key {
        if key.len() > LARGEST_KEY {
            return Err(Failure::new(
                ErrorCode::PayloadTooLarge,
                format!("a provider's key has at most {LARGEST_KEY} bytes"),
            ));
        }
        // It travels in a header.
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::invalid("a provider's key must be printable ASCII without blanks")
                .hint("look for a line break or a quotation mark around the key"));
        }
    }
    if key.is_none() && base_url.is_none() {
        return Err(Failure::invalid(format!(
            "{} answers nobody without a key, and none was given",
            request.source.as_str()
        ))
        .hint("pipe the key into the command, or give the address of an endpoint of your own"));
    }
    Ok(Checked { base_url: base_url.map(str::to_owned), key: key.map(str::to_owned) })
}

/// Refuses what would be stored and then have no effect.
fn check_engine(request: &CreateProviderRequest) -> Answer<()> {
    let refused = |field: &str| Failure::unsupported(format!("`{field}` of a provider has no effect yet"));
    if request.source != ProviderSource::Bedrock && request.region.is_some() {
        return Err(refused("region").hint("leave it out; name the region in `baseUrl`"));
    }
    if request.api_version.is_some() {
        return Err(
            refused("apiVersion").hint("leave it out; Azure serves the address …/openai/v1 without one")
        );
    }
    if request.extra_headers.as_ref().is_some_and(|headers| !headers.is_empty()) {
        return Err(refused("extraHeaders").hint("leave them out"));
    }
    Ok(())
}

async fn create(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Json(request): Json<CreateProviderRequest>,
) -> Answer<Reply<ProviderResponse>> {
    check_organisation(&state, &org)?;
    let checked = check(&request)?;
    let name = request.name.as_str();
    let seal = |key: &str| state.vault().seal(&place(name), key).map_err(Failure::internal);
    let stored = state
        .store()
        .create_provider(NewProvider {
            name: name.to_owned(),
            source: request.source.as_str().to_owned(),
            base_url: checked.base_url,
            sealed: checked.key.as_deref().map(seal).transpose()?,
        })
        .await;
    match stored {
        Ok(stored) => Ok(Reply::created(ProviderResponse { provider: row(stored) })),
        Err(StoreError::Conflict(Conflict::NameTaken)) => {
            Err(Failure::conflict(format!("a provider `{}` exists", shown(name)))
                .hint("delete it first: trestle inference delete"))
        }
        Err(error) => Err(error.into()),
    }
}

async fn delete(
    FromState(state): FromState<State>,
    Segments((org, provider)): Segments<(String, String)>,
) -> Answer<StatusCode> {
    check_organisation(&state, &org)?;
    match state.store().delete_provider(&provider).await {
        Err(StoreError::NotFound(Entity::Provider)) => {
            Err(Failure::not_found("model provider", &provider)
                .hint("see what there is: trestle inference list"))
        }
        other => {
            other?;
            Ok(StatusCode::NO_CONTENT)
        }
    }
}
