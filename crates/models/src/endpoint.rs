//! Where a model lives and how it is spoken to.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::error::{ErrorClass, ModelError};

/// The wire format of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndpointKind {
    /// Chat completions as OpenAI, vLLM, Ollama, llama.cpp, OpenRouter and many others serve them.
    OpenAiCompatible,
    /// Anthropic Messages.
    Anthropic,
}

impl EndpointKind {
    /// The name used in settings: `openai_compatible` or `anthropic`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiCompatible => "openai_compatible",
            Self::Anthropic => "anthropic",
        }
    }

    /// The vendor's own address, used when the operator sets none.
    #[must_use]
    pub fn default_url(self) -> &'static str {
        match self {
            Self::OpenAiCompatible => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
        }
    }
}

impl fmt::Display for EndpointKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::str::FromStr for EndpointKind {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "openai_compatible" | "openai" | "openai-compatible" => Ok(Self::OpenAiCompatible),
            "anthropic" => Ok(Self::Anthropic),
            other => Err(ModelError::new(
                ErrorClass::Configuration,
                format!("unknown kind of model endpoint {other:?}: use openai_compatible or anthropic"),
            )),
        }
    }
}

/// One model endpoint: address, wire format, credentials.
#[derive(Clone)]
pub struct Endpoint {
    kind: EndpointKind,
    turn_url: Url,
    api_key: Option<SecretString>,
    headers: Vec<(String, SecretString)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("kind", &self.kind)
            .field("address", &self.address())
            .field("api_key", &self.api_key.as_ref().map(|_| "[hidden]"))
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}

impl Endpoint {
    /// An endpoint at `base_url`. A trailing slash, and the path of the turn itself (`/chat/completions`, `/v1/messages`), may be there or not;
    /// a query string is kept.
    ///
    /// # Errors
    /// [`ErrorClass::Configuration`] when the address is not an http(s) URL, or carries a user name or password.
    pub fn new(kind: EndpointKind, base_url: &str) -> Result<Self, ModelError> {
        let wrong = |what: &str| {
            ModelError::new(ErrorClass::Configuration, format!("the model endpoint's address {what}"))
        };
        let mut url =
            Url::parse(base_url.trim()).map_err(|error| wrong(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("must start with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not hold a user name or password: give the key as the key"));
        }
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/');
        let path = match kind {
            EndpointKind::OpenAiCompatible => {
                format!("{}/chat/completions", path.strip_suffix("/chat/completions").unwrap_or(path))
            }
            EndpointKind::Anthropic => {
                let base = path.strip_suffix("/messages").unwrap_or(path);
                format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base))
            }
        };
        url.set_path(&path);
        Ok(Self { kind, turn_url: url, api_key: None, headers: Vec::new() })
    }

    /// The same endpoint with this key. An empty key is no key.
    #[must_use]
    pub fn with_key(mut self, key: Option<SecretString>) -> Self {
        self.api_key = key.filter(|key| !key.expose_secret().is_empty());
        self
    }

    /// The same endpoint with one more header; it wins over one of ours with the same name.
    ///
    /// # Errors
    /// [`ErrorClass::Configuration`] for `content-type` and for names or values that HTTP does not allow.
    pub fn with_header(mut self, name: &str, value: SecretString) -> Result<Self, ModelError> {
        let wrong = |why: &str| {
            ModelError::new(ErrorClass::Configuration, format!("header {name:?} of the model endpoint {why}"))
        };
        if name.eq_ignore_ascii_case("content-type") {
            return Err(wrong("cannot be set"));
        }
        reqwest::header::HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| wrong("has a name that HTTP does not allow"))?;
        reqwest::header::HeaderValue::from_str(value.expose_secret())
            .map_err(|_| wrong("has a value that HTTP does not allow"))?;
        self.headers.push((name.to_ascii_lowercase(), value));
        Ok(self)
    }

    /// The wire format.
    #[must_use]
    pub fn kind(&self) -> EndpointKind {
        self.kind
    }

    /// Scheme, host and port, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.turn_url.origin().ascii_serialization()
    }

    /// Whether the host is this machine; proxies are not used for it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.turn_url.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    pub(crate) fn turn_url(&self) -> &Url {
        &self.turn_url
    }

    pub(crate) fn api_key(&self) -> Option<&SecretString> {
        self.api_key.as_ref()
    }

    pub(crate) fn headers(&self) -> &[(String, SecretString)] {
        &self.headers
    }

    /// Takes every credential of this endpoint out of a text that goes to an author.
    pub(crate) fn redact(&self, mut text: String) -> String {
        let secrets = self.api_key.iter().chain(self.headers.iter().map(|(_, value)| value));
        for secret in secrets {
            let secret = secret.expose_secret();
            if secret.len() >= 4 && text.contains(secret) {
                text = text.replace(secret, "[redacted:model-key]");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_address_follows_from_any_usual_base_address() {
        let table = [
            (EndpointKind::OpenAiCompatible, "http://h:1/v1", "http://h:1/v1/chat/completions"),
            (EndpointKind::OpenAiCompatible, "http://h:1/v1/", "http://h:1/v1/chat/completions"),
            (
                EndpointKind::OpenAiCompatible,
                " http://h/v1/chat/completions ",
                "http://h/v1/chat/completions",
            ),
            (
                EndpointKind::OpenAiCompatible,
                "https://h/openai?api-version=3",
                "https://h/openai/chat/completions?api-version=3",
            ),
            (EndpointKind::OpenAiCompatible, "http://h", "http://h/chat/completions"),
            (EndpointKind::Anthropic, "https://h", "https://h/v1/messages"),
            (EndpointKind::Anthropic, "https://h/", "https://h/v1/messages"),
            (EndpointKind::Anthropic, "https://h/v1", "https://h/v1/messages"),
            (EndpointKind::Anthropic, "https://h/proxy/v1/messages", "https://h/proxy/v1/messages"),
        ];
        for (kind, base, want) in table {
            assert_eq!(Endpoint::new(kind, base).unwrap().turn_url().as_str(), want, "{base}");
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        for base in ["", "localhost:8000", "ftp://h/v1", "http://user:pass@h/v1", "http://"] {
            let error = Endpoint::new(EndpointKind::OpenAiCompatible, base).unwrap_err();
            assert_eq!(error.class, ErrorClass::Configuration, "{base}");
        }
    }

    #[test]
    fn a_key_is_neither_shown_nor_let_through_in_texts() {
        let endpoint = Endpoint::new(EndpointKind::Anthropic, "https://h")
            .unwrap()
            .with_key(Some(SecretString::from("sk-canary")))
            .with_header("X-Team", SecretString::from("team-canary"))
            .unwrap();
        assert!(!format!("{endpoint:?}").contains("canary"));
        assert_eq!(
            endpoint.redact("key sk-canary of team-canary".to_owned()),
            "key [redacted:model-key] of [redacted:model-key]"
        );
        assert!(endpoint.with_header("Content-Type", SecretString::from("x")).is_err());
    }

    #[test]
    fn loopback_addresses_are_known() {
        for (base, want) in [
            ("http://127.0.0.1:9/v1", true),
            ("http://localhost/v1", true),
            ("http://[::1]:9/v1", true),
            ("http://10.0.0.1/v1", false),
            ("http://example.com", false),
        ] {
            assert_eq!(
                Endpoint::new(EndpointKind::OpenAiCompatible, base).unwrap().is_loopback(),
                want,
                "{base}"
            );
        }
    }
}
