//! Model providers that programs may name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{BoundedString, EpochMs, Token};
use crate::tolerant::{null_default, objects};

/// Who serves a provider's models, which decides how it is spoken to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum ProviderSource {
    /// Anthropic Messages.
    Anthropic,
    /// Azure, by its OpenAI-compatible address.
    AzureOpenai,
    /// Amazon Bedrock.
    Bedrock,
    /// Google, by its OpenAI-compatible address.
    Google,
    /// OpenAI.
    Openai,
    /// Any server of chat completions.
    OpenaiCompatible,
}

impl ProviderSource {
    /// All of them, by name.
    pub const ALL: [Self; 6] = [
        Self::Anthropic,
        Self::AzureOpenai,
        Self::Bedrock,
        Self::Google,
        Self::Openai,
        Self::OpenaiCompatible,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::AzureOpenai => "azure_openai",
            Self::Bedrock => "bedrock",
            Self::Google => "google",
            Self::Openai => "openai",
            Self::OpenaiCompatible => "openai_compatible",
        }
    }

    /// The source of this word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }

    /// Whether a run process may call such a provider itself, when its address is known
    /// (`docs/protocol/control.md` §7.7).
    #[must_use]
    pub fn is_direct(self) -> bool {
        match self {
            Self::Anthropic | Self::AzureOpenai | Self::Openai | Self::OpenaiCompatible => true,
            Self::Bedrock | Self::Google => false,
        }
    }
}

/// A model provider, without its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ProviderRow {
    /// Name that `agent({provider})` uses.
    pub name: String,
    /// Kind of provider.
    pub source: String,
    /// Address; `null` for the vendor's own.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Region, of providers that have one.
    #[serde(default)]
    pub region: Option<String>,
    /// Whether a key is stored. It is never shown.
    #[serde(default, deserialize_with = "null_default")]
    pub has_api_key: bool,
    /// Whether the platform charges for it.
    #[serde(default, deserialize_with = "null_default")]
    pub billed_by_boardwalk: bool,
    /// When it was added.
    #[serde(default)]
    pub created_at: Option<EpochMs>,
}

/// `GET /v1/orgs/{slug}/inference-providers`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ProviderList {
    /// By name.
    pub providers: Vec<ProviderRow>,
}

/// `POST /v1/orgs/{slug}/inference-providers`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ProviderResponse {
    /// The provider.
    pub provider: ProviderRow,
}

/// `POST /v1/orgs/{slug}/inference-providers`, request; 409 when the name is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct CreateProviderRequest {
    /// Name that `agent({provider})` will use.
    pub name: BoundedString<1, 120>,
    /// Kind of provider.
    pub source: ProviderSource,
    /// Address; absent for the vendor's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Region, of providers that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Version of the provider's API, of providers that have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Key; absent for a provider that asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Token>,
    /// Headers to send along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_headers: Option<BTreeMap<String, String>>,
}

objects!(ProviderRow, ProviderList, ProviderResponse, CreateProviderRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_the_same_word_everywhere() {
        for source in ProviderSource::ALL {
            let word = serde_json::to_value(source).unwrap();
            assert_eq!(word, source.as_str());
            assert_eq!(ProviderSource::from_name(source.as_str()), Some(source));
        }
        assert_eq!(ProviderSource::from_name("vertex"), None);
    }

    #[test]
    fn the_debug_form_of_a_new_provider_hides_its_key() {
        let request: CreateProviderRequest =
            serde_json::from_str(r#"{"name":"n","source":"openai","apiKey":"sk-canary"}"#).unwrap();
        assert!(!format!("{request:?}").contains("canary"));
    }
}
