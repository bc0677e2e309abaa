//! What an operator sets about models.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trestle_models::TurnPolicy;

/// The operator's model, and how turns are relayed to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// The model that answers when a program names none (`TRESTLE_MODEL`).
    pub model: Option<String>,
    /// The endpoint's wire format: `openai_compatible` (the default) or `anthropic` (`TRESTLE_MODEL_PROVIDER`).
    pub provider: Option<String>,
    /// The endpoint's address (`TRESTLE_MODEL_URL`). Default: the vendor's own.
    pub url: Option<String>,
    /// The endpoint's key (`TRESTLE_MODEL_KEY`). Never written out.
    #[serde(skip_serializing)]
    pub key: Option<ModelKey>,
    /// A file with prices and context windows that come before the built-in ones.
    pub table: Option<PathBuf>,
    /// Whether the proxies of the environment are used; never for an endpoint on this machine.
    pub proxies: bool,
    /// The longest time to open a connection to the endpoint, in milliseconds.
    pub connect_ms: u64,
    /// The longest silence of the endpoint, in milliseconds.
    pub idle_ms: u64,
    /// The longest time that one turn may take, in milliseconds.
    pub deadline_ms: u64,
    /// Requests to the endpoint for one turn, the first included.
    pub attempts: u32,
    /// How many of them may follow an answer that broke off after a part of it was relayed.
    pub restarts: u32,
    /// First step of the wait between attempts, in milliseconds; it doubles, and the wait is drawn below it.
    pub backoff_ms: u64,
    /// The longest time between two frames of a stream, in milliseconds.
    pub ping_ms: u64,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            model: None,
            provider: None,
            url: None,
            key: None,
            table: None,
            proxies: true,
            connect_ms: 10_000,
            idle_ms: 300_000,
            deadline_ms: 3_600_000,
            attempts: 5,
            restarts: 2,
            backoff_ms: 500,
            ping_ms: 5_000,
        }
    }
}

impl ModelConfig {
    /// Whether anything says which model there is; the wire format alone does not.
    pub(super) fn is_set(&self) -> bool {
        filled(self.model.as_deref()).is_some() || filled(self.url.as_deref()).is_some() || self.key.is_some()
    }

    pub(super) fn policy(&self) -> TurnPolicy {
        TurnPolicy {
            attempts: self.attempts.max(1),
            restarts: self.restarts,
            backoff: Duration::from_millis(self.backoff_ms),
            idle: Duration::from_millis(self.idle_ms),
            deadline: Duration::from_millis(self.deadline_ms),
            ..TurnPolicy::default()
        }
    }
}

/// A setting that is there and not blank.
pub(super) fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// The key of a model endpoint. It is read from settings and shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ModelKey(String);

impl ModelKey {
    /// A key.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for ModelKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl std::str::FromStr for ModelKey {
    type Err = std::convert::Infallible;

    fn from_str(key: &str) -> Result<Self, Self::Err> {
        Ok(Self(key.to_owned()))
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hidden]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_neither_shown_nor_written() {
        let config = ModelConfig { key: Some(ModelKey::new("sk-canary")), ..ModelConfig::default() };
        assert!(!format!("{config:?}").contains("canary"));
        assert!(!serde_json::to_string(&config).unwrap().contains("canary"));
        let read: ModelConfig = serde_json::from_str(r#"{"key": "sk-canary"}"#).unwrap();
        assert_eq!(read, config);
    }
}
