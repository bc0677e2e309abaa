//! Which endpoint and which model answer a request (docs/protocol/control.md §7.1).

use secrecy::SecretString;
use trestle_contract::error::ErrorCode;
use trestle_contract::inference::InferenceRequest;
use trestle_models::{Endpoint, EndpointKind, ErrorClass, ModelError};

use super::config::{ModelConfig, filled};
use super::named::Named;
use crate::failure::{Answer, Failure};
use crate::providers::DEFAULT_PROVIDER;

/// The model name that leaves the choice to the operator.
const ANY_MODEL: &str = "auto";

const SETTINGS: &str = "set --model or TRESTLE_MODEL, and TRESTLE_MODEL_PROVIDER (openai_compatible or anthropic), TRESTLE_MODEL_URL, \
                        TRESTLE_MODEL_KEY as the endpoint needs them (docs/guides/models.md)";

/// The operator's endpoint, checked once at the start.
#[derive(Debug)]
pub(super) struct Resolver {
    configured: Option<Configured>,
}

#[derive(Debug)]
struct Configured {
    endpoint: Endpoint,
    model: Option<String>,
    lacks_key: bool,
}

/// Who answers a request.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) endpoint: Endpoint,
    pub(super) model: String,
}

/// The provider that a request names, unless it means the server's own.
pub(super) fn named_provider(request: &InferenceRequest) -> Option<&str> {
    request.provider.as_deref().filter(|provider| !matches!(*provider, "" | DEFAULT_PROVIDER))
}

/// The model that a request names, unless it leaves the choice.
fn asked_model(request: &InferenceRequest) -> Option<&str> {
    request.model.as_deref().filter(|model| !matches!(*model, "" | ANY_MODEL))
}

/// A request that no model answers.
pub(super) fn unresolved(message: String) -> Failure {
    Failure::new(ErrorCode::ModelUnresolved, message)
}

/// Refuses what no model of this server may do.
pub(super) fn admit(request: &InferenceRequest) -> Answer<()> {
    if request.desktop_session == Some(true) {
        return Err(unresolved("no model that may operate a desktop is configured".to_owned())
            .hint("this server relays no desktop session; run the agent without its computer tools"));
    }
    Ok(())
}

/// The model of a provider that the request names. It is opaque, and nobody chooses it for the program.
pub(super) fn resolve_named(named: Named, request: &InferenceRequest) -> Answer<Resolved> {
    let Some(model) = asked_model(request) else {
        return Err(unresolved("the program names a model provider and no model".to_owned())
            .hint("name a model beside the provider: agent({ provider, model })"));
    };
    Ok(Resolved { endpoint: named.endpoint, model: model.to_owned() })
}

impl Resolver {
    pub(super) fn new(config: &ModelConfig) -> Result<Self, ModelError> {
        // A name that means nothing is refused also where nothing else is set.
        let kind: EndpointKind = match filled(config.provider.as_deref()) {
            Some(provider) => provider.parse()?,
            None => EndpointKind::OpenAiCompatible,
        };
        if !config.is_set() {
            return Ok(Self { configured: None });
        }
        let url = filled(config.url.as_deref());
        let key = config.key.as_ref().map(|key| key.expose().trim()).filter(|key| !key.is_empty());
        let endpoint =
            Endpoint::new(kind, url.unwrap_or(kind.default_url()))?.with_key(key.map(SecretString::from));
        Ok(Self {
            configured: Some(Configured {
                endpoint,
                model: filled(config.model.as_deref()).map(str::to_owned),
                // The vendors' own endpoints answer nobody without a key; others may.
                lacks_key: url.is_none() && key.is_none(),
            }),
        })
    }

    /// The endpoint and the model for a request that names no provider. The program's model name is handed on as it is.
    pub(super) fn resolve(&self, request: &InferenceRequest) -> Result<Resolved, Failure> {
        let Some(configured) = &self.configured else {
            return Err(unresolved("no model is configured on this server".to_owned()).hint(SETTINGS));
        };
        if configured.lacks_key {
            let message = format!(
                "the model endpoint {} needs a key, and none is configured on this server",
                configured.endpoint.address()
            );
            return Err(unresolved(message).hint("set TRESTLE_MODEL_KEY, or TRESTLE_MODEL_URL for an endpoint of your own (docs/guides/models.md)"));
        }
        let Some(model) = asked_model(request).or(configured.model.as_deref()) else {
            return Err(unresolved(
                "the program names no model, and the server has no default one".to_owned(),
            )
            .hint("set --model or TRESTLE_MODEL on the server, or name a model in the program"));
        };
        Ok(Resolved { endpoint: configured.endpoint.clone(), model: model.to_owned() })
    }
}

/// A model's failure as a caller is told before the stream has begun.
pub(super) fn refusal(error: &ModelError) -> Failure {
    let failure = Failure::new(refusal_code(error), error.message.clone());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The code of a model's failure.
pub(super) fn refusal_code(error: &ModelError) -> ErrorCode {
    match error.class {
        // The request itself cannot be written for the wire; nothing was sent.
        ErrorClass::BadRequest if error.status.is_none() && error.attempts == 0 => {
            ErrorCode::ValidationFailed
        }
        _ => ErrorCode::ProviderError,
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::ModelKey;
    use super::*;
    use axum::response::IntoResponse as _;

    fn request(provider: Option<&str>, model: Option<&str>) -> InferenceRequest {
        InferenceRequest {
            model: model.map(str::to_owned),
            provider: provider.map(str::to_owned),
            messages: Vec::new(),
            tools: Vec::new(),
            reasoning: None,
            desktop_session: None,
            turn_key: None,
        }
    }

    fn local() -> ModelConfig {
        ModelConfig {
            model: Some("qwen3".to_owned()),
            url: Some("http://127.0.0.1:1/v1".to_owned()),
            ..ModelConfig::default()
        }
    }

    fn model_of(config: &ModelConfig, request: &InferenceRequest) -> Result<String, u16> {
        let resolved = Resolver::new(config).unwrap().resolve(request);
        resolved
            .map(|resolved| format!("{}/{}", resolved.endpoint.kind(), resolved.model))
            .map_err(|failure| failure.into_response().status().as_u16())
    }

    #[test]
    fn the_default_provider_is_the_operators_endpoint_and_model_names_pass_unchanged() {
        let table = [
            (None, None, "openai_compatible/qwen3"),
            (Some("boardwalk"), None, "openai_compatible/qwen3"),
            (Some(""), Some(""), "openai_compatible/qwen3"),
            (None, Some("auto"), "openai_compatible/qwen3"),
            (None, Some("anthropic/claude:x y"), "openai_compatible/anthropic/claude:x y"),
        ];
        for (provider, model, want) in table {
            assert_eq!(
                model_of(&local(), &request(provider, model)).unwrap(),
                want,
                "{provider:?} {model:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_refused_before_any_call() {
        let unset = ModelConfig::default();
        let keyless = ModelConfig { model: Some("gpt-5".to_owned()), ..ModelConfig::default() };
        let nameless = ModelConfig { model: None, ..local() };
        let table = [
            (&unset, request(None, Some("m"))),
            (&keyless, request(None, None)),
            (&nameless, request(None, None)),
        ];
        for (config, request) in table {
            assert_eq!(model_of(config, &request), Err(422), "{request:?}");
        }
        assert_eq!(model_of(&nameless, &request(None, Some("m"))).unwrap(), "openai_compatible/m");
        let keyed = ModelConfig {
            key: Some(ModelKey::new("k")),
            provider: Some("anthropic".to_owned()),
            model: Some("c".to_owned()),
            ..ModelConfig::default()
        };
        assert_eq!(model_of(&keyed, &request(None, None)).unwrap(), "anthropic/c");
    }

    #[test]
    fn settings_that_cannot_work_are_refused_at_the_start() {
        for config in [
            ModelConfig { provider: Some("gemini".to_owned()), ..ModelConfig::default() },
            ModelConfig { url: Some("localhost:8000".to_owned()), ..ModelConfig::default() },
        ] {
            assert_eq!(Resolver::new(&config).unwrap_err().class, ErrorClass::Configuration);
        }
    }
}
