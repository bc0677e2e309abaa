use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use trestle_contract::inference::InferenceRequest;
use trestle_contract::pool::ByoProvider;
use trestle_models::EndpointKind;

use crate::control::ControlClient;

/// The provider that means the control plane's own models.
const MANAGED: &str = "boardwalk";
/// How names of secrets begin that stand for a provider's key. They are meant for this process alone.
const PROVIDER_KEY: &str = "inference-key/";

/// Whether a secret's name stands for a provider's key, which a program may not read.
pub(crate) fn is_provider_key(name: &str) -> bool {
    name.starts_with(PROVIDER_KEY)
}

/// A provider that is called from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Direct {
    /// As programs name it.
    pub(crate) name: String,
    pub(crate) kind: EndpointKind,
    pub(crate) base_url: String,
    /// The secret that holds its key; none for providers without one.
    pub(crate) key_name: Option<String>,
    pub(crate) model: String,
}

/// The providers of the organisation, as far as this process knows them.
#[derive(Debug)]
pub(crate) struct Providers {
    known: Mutex<Known>,
    /// Held while the control plane is asked: whoever needs the answer too waits for it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    entries: Vec<ByoProvider>,
    /// Names that the control plane was asked for.
    asked: HashSet<String>,
}

enum Found {
    Direct(Direct),
    Brokered,
    /// It is not known yet.
    Unknown(String),
}

impl Providers {
    /// Those of the claim. One entry that cannot be read spoils the list: calls then go through the control
    /// plane.
    pub(crate) fn of_claim(entries: &[serde_json::Value]) -> Self {
        let read = |entry: &serde_json::Value| serde_json::from_value::<ByoProvider>(entry.clone());
        let entries = entries.iter().map(read).collect::<Result<Vec<_>, _>>().unwrap_or_else(|error| {
            tracing::warn!(%error, "the providers of the claim cannot be read");
            Vec::new()
        });
        let known = Mutex::new(Known { entries, asked: HashSet::new() });
        Self { known, asking: tokio::sync::Mutex::default() }
    }

    /// Where a call goes: `None` for the control plane. A name that is not known is asked for once.
    pub(crate) async fn route(&self, request: &InferenceRequest, control: &ControlClient) -> Option<Direct> {
        let asking = match self.find(request) {
            Found::Direct(direct) => return Some(direct),
            Found::Brokered => return None,
            Found::Unknown(_) => self.asking.lock().await,
        };
        let name = match self.find(request) {
            Found::Direct(direct) => return Some(direct),
            Found::Brokered => return None,
            Found::Unknown(name) => name,
        };
        if !self.known().asked.insert(name) {
            return None;
        }
        match control.providers().await {
            Ok(answer) => self.known().entries = answer.providers,
            Err(error) => {
                tracing::debug!(%error, "the providers were not told; the call goes through the control plane")
            }
        }
        drop(asking);
        match self.find(request) {
            Found::Direct(direct) => Some(direct),
            Found::Brokered | Found::Unknown(_) => None,
        }
    }

    fn find(&self, request: &InferenceRequest) -> Found {
        let (Some(model), Some(name)) = (&request.model, &request.provider) else { return Found::Brokered };
        if name.is_empty() || name == MANAGED {
            return Found::Brokered;
        }
        let known = self.known();
        let Some(entry) = known.entries.iter().find(|entry| entry.name.as_str() == name) else {
            return Found::Unknown(name.clone());
        };
        let kind = match entry.source.as_str() {
            "anthropic" => EndpointKind::Anthropic,
            "openai_compatible" | "openai" | "azure_openai" => EndpointKind::OpenAiCompatible,
            _ => return Found::Brokered,
        };
        match &entry.base_url {
            Some(base_url) => Found::Direct(Direct {
                name: name.clone(),
                kind,
                base_url: base_url.clone(),
                key_name: entry.auth_secret_name.clone(),
                model: model.clone(),
            }),
            None => Found::Brokered,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(entries: &[serde_json::Value], provider: Option<&str>, model: Option<&str>) -> String {
        let request = InferenceRequest {
            model: model.map(str::to_owned),
            provider: provider.map(str::to_owned),
            messages: Vec::new(),
            tools: Vec::new(),
            reasoning: None,
            desktop_session: None,
            turn_key: None,
        };
        match Providers::of_claim(entries).find(&request) {
            Found::Direct(direct) => format!("{} {}", direct.kind, direct.base_url),
            Found::Brokered => "brokered".into(),
            Found::Unknown(name) => format!("unknown {name}"),
        }
    }

    fn entry(name: &str, source: &str, base_url: Option<&str>) -> serde_json::Value {
        json!({ "name": name, "source": source, "base_url": base_url, "auth_secret_name": null })
    }

    #[test]
    fn the_lane_of_a_call_follows_from_its_provider_and_model() {
        let entries = [
            entry("mine", "openai_compatible", Some("http://h/v1")),
            entry("azure", "azure_openai", Some("http://z")),
            entry("claude", "anthropic", Some("http://a")),
            entry("plain", "openai", None),
            entry("rock", "bedrock", Some("http://b")),
        ];
        for (provider, model, lane) in [
            (Some("mine"), Some("m"), "openai_compatible http://h/v1"),
            (Some("azure"), Some("m"), "openai_compatible http://z"),
            (Some("claude"), Some("m"), "anthropic http://a"),
            (Some("mine"), None, "brokered"),
            (None, Some("m"), "brokered"),
            (Some("boardwalk"), Some("m"), "brokered"),
            (Some("plain"), Some("m"), "brokered"),
            (Some("rock"), Some("m"), "brokered"),
            (Some("other"), Some("m"), "unknown other"),
        ] {
            assert_eq!(found(&entries, provider, model), lane, "{provider:?} {model:?}");
        }
    }

    #[test]
    fn one_bad_entry_makes_the_whole_list_unknown() {
        let entries = [entry("mine", "openai", Some("http://h")), json!({ "name": "x", "more": 1 })];
        assert_eq!(found(&entries, Some("mine"), Some("m")), "unknown mine");
    }

    #[test]
    fn names_of_provider_keys_are_told_from_secrets() {
        assert!(is_provider_key("inference-key/mine/abc"));
        assert!(!is_provider_key("inference-keys") && !is_provider_key("MY_KEY"));
    }
}
