use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use secrecy::SecretString;
use trestle_contract::inference::{InferenceRequest, InferenceResult, TokenCounts};
use trestle_domain::Redactor;
use trestle_models::{
    Endpoint, ErrorClass, HttpOptions, ModelClient, ModelError, ModelEvent, ModelRequest, ModelStream,
    TurnPolicy, TurnProgress,
};

use super::Direct;
use crate::control::StreamItem;
use crate::timing::Timing;

/// How often an answer that broke off is generated anew.
const RESTARTS: u32 = 4;

/// The HTTP side of all direct calls of this process; nothing is loaded before the first one.
static CLIENT: OnceLock<ModelClient> = OnceLock::new();

/// One model call to a provider. Dropping it closes the connection, which tells the provider to stop; what
/// it has used until then is reported all the same.
pub(crate) struct DirectCall {
    stream: ModelStream,
    progress: Arc<TurnProgress>,
    model_ref: String,
    hides_reasoning: bool,
    is_finished: bool,
    /// Takes what a call has used that broke off.
    broken_off: Option<Box<dyn FnOnce(TokenCounts) + Send>>,
}

impl DirectCall {
    /// Prepares a call; nothing is sent before the first item is asked for. `key` is known to `redactor`
    /// before anything else sees it. `broken_off` gets what a call has used that did not reach its end.
    ///
    /// # Errors
    /// When the provider's address or the conversation cannot be used.
    pub(crate) fn new(
        direct: &Direct,
        key: Option<String>,
        request: InferenceRequest,
        redactor: &Redactor,
        timing: &Timing,
        broken_off: impl FnOnce(TokenCounts) + Send + 'static,
    ) -> Result<Self, ModelError> {
        if let Some(key) = &key {
            redactor.add("byo-key", key);
        }
        let endpoint = Endpoint::new(direct.kind, &direct.base_url)?.with_key(key.map(SecretString::from));
        let hides_reasoning =
            request.reasoning.as_ref().is_some_and(|reasoning| reasoning.exclude == Some(true));
        let neutral = ModelRequest {
            model: direct.model.clone(),
            messages: request.messages,
            tools: request.tools,
            reasoning: request.reasoning,
            max_output_tokens: None,
        };
        let stream = client(timing)?.stream(&endpoint, &neutral, policy(timing))?;
        Ok(Self {
            progress: stream.progress(),
            stream,
            model_ref: format!("{}/{}", direct.name, direct.model),
            hides_reasoning,
            is_finished: false,
            broken_off: Some(Box::new(broken_off)),
        })
    }

    /// The next item; nothing follows `Finished` and `Failed`.
    pub(crate) async fn next(&mut self) -> StreamItem {
        loop {
            return match self.stream.next().await {
                Some(Ok(ModelEvent::Delta(text))) => StreamItem::Text(text),
                Some(Ok(ModelEvent::Reasoning(_))) if self.hides_reasoning => continue,
                Some(Ok(ModelEvent::Reasoning(text))) => StreamItem::Reasoning(text),
                Some(Ok(ModelEvent::Restarted)) => StreamItem::Reset,
                Some(Ok(ModelEvent::Done(completed))) => {
                    self.is_finished = true;
                    let mut turn = completed.turn;
                    // All attempts that the provider had begun to answer were charged.
                    turn.usage = sum(self.progress.charged());
                    StreamItem::Finished(Box::new(InferenceResult {
                        turn,
                        model_ref: self.model_ref.clone(),
                        cost_micros: completed.reported_cost_micros,
                        context_tokens: None,
                    }))
                }
                Some(Err(error)) => failure(&error),
                None => failure(&ModelError::new(
                    ErrorClass::Interrupted,
                    "the model's answer ended without a result",
                )),
            };
        }
    }
}

impl Drop for DirectCall {
    fn drop(&mut self) {
        let charged = self.progress.charged();
        if let Some(broken_off) = self.broken_off.take().filter(|_| !self.is_finished && !charged.is_empty())
        {
            broken_off(sum(charged));
        }
    }
}

fn client(timing: &Timing) -> Result<ModelClient, ModelError> {
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let made = ModelClient::new(HttpOptions { connect_timeout: timing.connect, ..HttpOptions::default() })?;
    Ok(CLIENT.get_or_init(|| made).clone())
}

fn policy(timing: &Timing) -> TurnPolicy {
    let standard = TurnPolicy::default();
    TurnPolicy {
        restarts: RESTARTS,
        backoff: timing.retry_waits.first().copied().unwrap_or(standard.backoff),
        longest_backoff: timing.retry_waits.last().copied().unwrap_or(standard.longest_backoff),
        longest_retry_after: timing.retry_after_limit.max(Duration::from_secs(1)),
        // A provider may think for minutes before it says anything.
        idle: timing.direct_idle,
        ..standard
    }
}

fn failure(error: &ModelError) -> StreamItem {
    let code = match error.class {
        // The request itself cannot be written for the wire; nothing was sent.
        ErrorClass::BadRequest if error.status.is_none() && error.attempts == 0 => "VALIDATION_FAILED",
        _ => "PROVIDER_ERROR",
    };
    StreamItem::Failed { code: code.into(), message: error.message.clone(), hint: hint(error) }
}

/// What an author can do; the settings of the server have nothing to do with a provider of their own.
pub(super) fn hint(error: &ModelError) -> Option<String> {
    match error.class {
        ErrorClass::Authentication => {
            Some("check the provider's key: add the provider again with `trestle inference add`".into())
        }
        ErrorClass::Configuration | ErrorClass::Unreachable | ErrorClass::NotFound => {
            Some("check the provider's address and the model's name (`trestle inference list`)".into())
        }
        _ => error.hint().map(str::to_owned),
    }
}

fn sum(counts: Vec<TokenCounts>) -> TokenCounts {
    let add = |total: Option<u64>, more: Option<u64>| match (total, more) {
        (None, None) => None,
        (total, more) => Some(total.unwrap_or(0).saturating_add(more.unwrap_or(0))),
    };
    counts.into_iter().fold(TokenCounts::default(), |total, more| TokenCounts {
        input_tokens: add(total.input_tokens, more.input_tokens),
        output_tokens: add(total.output_tokens, more.output_tokens),
        cached_read_tokens: add(total.cached_read_tokens, more.cached_read_tokens),
        cached_write_tokens: add(total.cached_write_tokens, more.cached_write_tokens),
    })
}

impl From<&ModelError> for crate::host::HostFailure {
    fn from(error: &ModelError) -> Self {
        let failure = Self::new(trestle_contract::ErrorCode::ProviderError, error.message.clone());
        match hint(error) {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}
