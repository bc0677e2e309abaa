//! Model providers that programs may name: how they are spoken to, and how a run process gets at their keys
//! (docs/protocol/control.md §7.7).

use subtle::ConstantTimeEq as _;
use trestle_contract::api::ProviderSource;
use trestle_contract::bounds::BoundedString;
use trestle_contract::ids::RunId;
use trestle_contract::pool::ByoProvider;
use trestle_domain::ServerKey;
use trestle_models::EndpointKind;
use trestle_store::ProviderRow;

use crate::failure::{Answer, Failure};
use crate::state::State;

/// The provider that programs mean by naming none; nobody else can have its name.
pub(crate) const DEFAULT_PROVIDER: &str = "boardwalk";

/// Names of this beginning belong to the keys of providers; no secret can have one.
pub(crate) const KEY_PREFIX: &str = "inference-key/";

/// Google's models under the wire format of chat completions.
const GOOGLE: &str = "https://generativelanguage.googleapis.com/v1beta/openai";

/// Where a provider's key belongs in the vault.
pub(crate) fn place(name: &str) -> String {
    format!("inference-provider/{name}")
}

/// The wire format of a source, and its vendor's own address, if it has one. None for sources that the models crate
/// does not speak.
pub(crate) fn wire(source: ProviderSource) -> Option<(EndpointKind, Option<&'static str>)> {
    let vendor = |kind: EndpointKind| Some((kind, Some(kind.default_url())));
    match source {
        ProviderSource::Anthropic => vendor(EndpointKind::Anthropic),
        ProviderSource::Openai => vendor(EndpointKind::OpenAiCompatible),
        ProviderSource::Google => Some((EndpointKind::OpenAiCompatible, Some(GOOGLE))),
        ProviderSource::OpenaiCompatible | ProviderSource::AzureOpenai => {
            Some((EndpointKind::OpenAiCompatible, None))
        }
        ProviderSource::Bedrock => None,
    }
}

/// Whether run processes call this provider themselves.
pub(crate) fn is_direct(row: &ProviderRow) -> bool {
    row.base_url.is_some() && ProviderSource::from_name(&row.source).is_some_and(ProviderSource::is_direct)
}

/// The name under which the run process of `run` resolves the key of a provider. It is a capability: only who was given
/// the list of providers can know it, so a program that asks for secrets by name cannot get at a key.
fn key_name(key: &ServerKey, run: &RunId, provider: &str) -> String {
    format!("{KEY_PREFIX}{provider}/{}", code(key, run, provider))
}

fn code(key: &ServerKey, run: &RunId, provider: &str) -> String {
    let code = key.authenticate(&[b"inference key", run.as_str().as_bytes(), provider.as_bytes()]);
    hex::encode(&code[..20])
}

/// The provider that a run names by a key name which this server gave it; none for a name that it did not give.
pub(crate) fn provider_of_key<'n>(key: &ServerKey, run: &RunId, name: &'n str) -> Option<&'n str> {
    let (provider, told) = name.strip_prefix(KEY_PREFIX)?.rsplit_once('/')?;
    bool::from(code(key, run, provider).as_bytes().ct_eq(told.as_bytes())).then_some(provider)
}

/// The providers as the claim and `GET inference/providers` of a run list them.
pub(crate) async fn listed_for(state: &State, run: &RunId) -> Answer<Vec<ByoProvider>> {
    let rows = state.store().list_providers().await?;
    rows.into_iter()
        .map(|row| {
            let secret = row.has_key.then(|| key_name(state.server_key(), run, &row.name));
            Ok(ByoProvider {
                name: BoundedString::new(row.name).map_err(Failure::internal)?,
                source: BoundedString::new(row.source).map_err(Failure::internal)?,
                base_url: row.base_url,
                auth_secret_name: secret,
            })
        })
        .collect()
}

/// Whether a report of this model tells of a turn that the run process made itself. Models of such turns are written
/// `provider/model`; those of relayed turns never begin with the name of a provider that is called directly.
pub(crate) async fn is_direct_model(state: &State, model: &str) -> Answer<bool> {
    let rows = state.store().list_providers().await?;
    let named =
        |row: &ProviderRow| model.strip_prefix(row.name.as_str()).is_some_and(|rest| rest.starts_with('/'));
    Ok(rows.iter().any(|row| is_direct(row) && named(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_name_opens_one_providers_key_for_one_run() {
        let key = ServerKey::random();
        let (run, other) = (RunId::new("r1").unwrap(), RunId::new("r2").unwrap());
        for provider in ["vllm", "a/b", "ü n"] {
            let name = key_name(&key, &run, provider);
            assert_eq!(provider_of_key(&key, &run, &name), Some(provider));
            assert_eq!(provider_of_key(&key, &other, &name), None);
            assert_eq!(provider_of_key(&ServerKey::random(), &run, &name), None);
            assert_eq!(provider_of_key(&key, &run, &name[..name.len() - 1]), None);
        }
        let moved = key_name(&key, &run, "a").replace("/a/", "/b/");
        for guess in [moved.as_str(), "inference-key/a/", "inference-key/a", "inference-key/", "A", ""] {
            assert_eq!(provider_of_key(&key, &run, guess), None, "{guess}");
        }
    }

    #[test]
    fn the_longest_name_still_fits_the_name_of_a_secret() {
        let name = key_name(&ServerKey::random(), &RunId::new("r").unwrap(), &"n".repeat(120));
        assert!(trestle_contract::SecretName::new(name).is_ok());
    }

    #[test]
    fn every_source_that_is_called_directly_has_a_wire_format() {
        for source in ProviderSource::ALL {
            assert!(!source.is_direct() || wire(source).is_some(), "{source:?}");
        }
    }
}
