//! Providers that a request may name, as the relay needs them.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use trestle_contract::api::ProviderSource;
use trestle_models::Endpoint;
use trestle_store::{Entity, ProviderRow, Store, StoreError, StoreResult};

use super::resolve::unresolved;
use crate::failure::{Answer, Failure, shown};
use crate::providers::{is_direct, place, wire};
use crate::vault::Vault;

/// Where providers are kept.
#[async_trait]
pub(super) trait Providers: Send + Sync {
    /// The provider of a name and its sealed key.
    async fn named(&self, name: &str) -> StoreResult<Option<(ProviderRow, Option<Vec<u8>>)>>;
}

/// Those of the store.
pub(super) struct StoredProviders(pub(super) Arc<dyn Store>);

#[async_trait]
impl Providers for StoredProviders {
    async fn named(&self, name: &str) -> StoreResult<Option<(ProviderRow, Option<Vec<u8>>)>> {
        match self.0.provider(name).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound(Entity::Provider)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A provider that answers a request.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) endpoint: Endpoint,
    /// The provider as its turns are accounted for. A provider that run processes also call themselves has another name
    /// here than there, so that a report of theirs is told from one about a relayed turn.
    pub(super) account: String,
}

/// Looks a provider up and opens its key.
pub(super) async fn find(providers: &dyn Providers, vault: &Vault, name: &str) -> Answer<Named> {
    let Some((row, sealed)) = providers.named(name).await? else {
        return Err(unresolved(format!("no model provider `{}` is configured on this server", shown(name)))
            .hint("leave `provider` out to use the server's own model, or add it: trestle inference add"));
    };
    let spoken = ProviderSource::from_name(&row.source).and_then(wire);
    let Some((kind, vendor)) = spoken else {
        return Err(unresolved(format!(
            "the model provider `{}` is of source `{}`, which this server does not speak",
            shown(name),
            shown(&row.source)
        )));
    };
    let Some(address) = row.base_url.as_deref().or(vendor) else {
        return Err(unresolved(format!("the model provider `{}` has no address", shown(name))));
    };
    let key: Option<SecretString> = sealed
        .as_deref()
        .map(|sealed| vault.open(&place(&row.name), sealed))
        .transpose()
        .map_err(Failure::internal)?;
    let endpoint = Endpoint::new(kind, address).map_err(|error| unresolved(error.message))?.with_key(key);
    let account = if is_direct(&row) { format!("boardwalk/{}", row.name) } else { row.name };
    Ok(Named { endpoint, account })
}

/// The name under which turns of the server's own endpoint are accounted for: its wire format, unless a provider that
/// run processes call themselves has that name.
pub(super) async fn own_account(providers: &dyn Providers, kind: &str) -> Answer<String> {
    let taken = providers.named(kind).await?.is_some_and(|(row, _)| is_direct(&row));
    Ok(if taken { "boardwalk".to_owned() } else { kind.to_owned() })
}
