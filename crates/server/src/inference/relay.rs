//! The relay itself: accepts a turn, finds who already works on it, answers with its frames.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;
use trestle_contract::error::ErrorCode;
use trestle_contract::ids::RunId;
use trestle_contract::inference::{InferenceFrame, InferenceRequest, TokenCounts};
use trestle_models::{
    Endpoint, EndpointKind, ErrorClass, HttpOptions, ModelClient, ModelError, ModelRequest, ModelStream,
    ModelTable, TurnPolicy,
};
use trestle_store::Store;

use super::config::ModelConfig;
use super::ledger::{Books, Ledger, StoreLedger, TurnIdentity, mint_row_key};
use super::log::{Kind, frame};
use super::named::{self, Providers, StoredProviders};
use super::registry::{Registered, Registry};
use super::resolve::{self, Resolved, Resolver, named_provider, refusal, resolve_named};
use super::turn::{Reader, Step, Turn};
use crate::body;
use crate::failure::{Answer, Failure};
use crate::stream::unbuffered;
use crate::vault::Vault;

/// Relays model turns of runs to the operator's endpoint.
pub(crate) struct Relay {
    resolver: Resolver,
    providers: Arc<dyn Providers>,
    client: ModelClient,
    policy: TurnPolicy,
    ping: Duration,
    books: Arc<Books>,
    registry: Arc<Registry>,
    tasks: TaskTracker,
}

/// The longest key of a turn, in bytes.
const LONGEST_KEY: usize = 512;

/// Bodies above this size are read and written on a thread of their own: they would hold up every stream of this one.
const HEAVY_BODY: usize = 256 * 1024;

impl Relay {
    /// A relay to the endpoint of `config`.
    ///
    /// # Errors
    /// When a setting cannot work: the address is no URL, the table of models cannot be read.
    pub(crate) fn new(
        config: ModelConfig,
        store: Arc<dyn Store>,
        vault: Arc<Vault>,
    ) -> Result<Self, ModelError> {
        let providers = Arc::new(StoredProviders(Arc::clone(&store)));
        Self::with_ledger(&config, Arc::new(StoreLedger(store)), providers, vault)
    }

    pub(super) fn with_ledger(
        config: &ModelConfig,
        ledger: Arc<dyn Ledger>,
        providers: Arc<dyn Providers>,
        vault: Arc<Vault>,
    ) -> Result<Self, ModelError> {
        let table = match &config.table {
            Some(path) => ModelTable::with_file(path)?,
            None => ModelTable::built_in()?,
        };
        let options = HttpOptions {
            connect_timeout: Duration::from_millis(config.connect_ms),
            proxies: config.proxies,
        };
        Ok(Self {
            resolver: Resolver::new(config)?,
            providers,
            client: ModelClient::new(options)?,
            policy: config.policy(),
            ping: Duration::from_millis(config.ping_ms.max(1)),
            books: Arc::new(Books { ledger, vault, table }),
            registry: Arc::new(Registry::default()),
            tasks: TaskTracker::new(),
        })
    }

    /// Answers `POST inference` of a run. With `no_new_turn` none is begun and this is the answer; the repeat of one
    /// that was begun still gets it.
    pub(crate) async fn relay(&self, run: &RunId, body: Bytes, no_new_turn: Option<Failure>) -> Response {
        self.answer(run, body, no_new_turn).await.unwrap_or_else(Failure::into_response)
    }

    /// The run has ended or is to end: its turns are broken off, and the provider is stopped.
    pub(crate) fn stop_run(&self, run: &RunId) {
        for turn in self.registry.of_run(run) {
            turn.stop(ErrorCode::Cancelled, "the run was ended");
        }
    }

    /// Breaks every turn off, and returns when what they cost is written down.
    pub(crate) async fn shut_down(&self) {
        for turn in self.registry.all() {
            turn.stop(ErrorCode::Unavailable, "the server is stopping");
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn answer(&self, run: &RunId, body: Bytes, no_new_turn: Option<Failure>) -> Answer<Response> {
        let digest: [u8; 32] = Sha256::digest(&body).into();
        let heavy = body.len() >= HEAVY_BODY;
        let request = parse(body).await?;
        let key = request.turn_key.clone();
        if key.as_deref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
            return Err(Failure::invalid(format!("`turnKey` must have 1 to {LONGEST_KEY} bytes")));
        }
        let mut row = None;
        if let Some(key) = key.as_deref() {
            if let Some(turn) = self.registry.find(run, key) {
                return respond(self.join(&turn, digest)?).await;
            }
            if let Some(stored) = self.books.ledger.find(run, key).await? {
                if stored.request_digest != digest {
                    return Err(another_request());
                }
                let kept = stored.result.and_then(|sealed| self.books.open(run, key, &sealed));
                if let Some(line) = kept {
                    return Ok(replay(&line));
                }
                // Its row stays as it is, and this call has one of its own: the provider is asked again.
                row = Some(mint_row_key());
            }
        }
        if request.messages.is_empty() {
            return Err(Failure::invalid("`messages` is empty"));
        }
        if let Some(refusal) = no_new_turn {
            return Err(refusal);
        }
        let (resolved, account) = self.resolve(&request).await?;
        let hide_reasoning =
            request.reasoning.as_ref().is_some_and(|reasoning| reasoning.exclude == Some(true));
        let identity = TurnIdentity {
            run: run.clone(),
            row: row.or_else(|| key.clone()).unwrap_or_else(mint_row_key),
            key,
            digest,
            model_ref: format!("{account}/{}", resolved.model),
            model: resolved.model.clone(),
        };
        let neutral = ModelRequest {
            max_output_tokens: self.longest_answer(&resolved.model, resolved.endpoint.kind()),
            model: resolved.model,
            messages: request.messages,
            tools: request.tools,
            reasoning: request.reasoning,
        };
        let stream = self.start(resolved.endpoint, neutral, heavy).await.map_err(|error| refusal(&error))?;
        let turn = Turn::new(
            identity,
            Arc::clone(&self.books),
            stream,
            hide_reasoning,
            self.tasks.clone(),
            Arc::clone(&self.registry),
        );
        match self.registry.add(&turn) {
            Registered::First => respond(turn.read(self.ping)).await,
            // The same request came twice at once; nothing of this one was sent yet.
            Registered::Taken(other) => respond(self.join(&other, digest)?).await,
        }
    }

    /// Who answers a request, and the provider that it is accounted for under.
    async fn resolve(&self, request: &InferenceRequest) -> Answer<(Resolved, String)> {
        resolve::admit(request)?;
        let providers = self.providers.as_ref();
        match named_provider(request) {
            None => {
                let resolved = self.resolver.resolve(request)?;
                let account = named::own_account(providers, resolved.endpoint.kind().as_str()).await?;
                Ok((resolved, account))
            }
            Some(name) => {
                let named = named::find(providers, &self.books.vault, name).await?;
                let account = named.account.clone();
                Ok((resolve_named(named, request)?, account))
            }
        }
    }

    /// What a turn costs that a run process made itself, in millionths of a US dollar; nothing when the model has no
    /// price.
    pub(crate) fn price(&self, model: &str, counts: &TokenCounts) -> Option<u64> {
        self.books.table.cost_micros(model, counts)
    }

    /// Only Anthropic asks for the length of the longest answer; elsewhere the endpoint knows best.
    fn longest_answer(&self, model: &str, kind: EndpointKind) -> Option<u64> {
        match kind {
            EndpointKind::Anthropic => self.books.table.max_output_tokens(model),
            EndpointKind::OpenAiCompatible => None,
        }
    }

    fn join(&self, turn: &Arc<Turn>, digest: [u8; 32]) -> Answer<Reader> {
        if turn.identity.digest != digest {
            return Err(another_request());
        }
        Ok(turn.read(self.ping))
    }

    async fn start(
        &self,
        endpoint: Endpoint,
        request: ModelRequest,
        heavy: bool,
    ) -> Result<ModelStream, ModelError> {
        let (client, policy) = (self.client.clone(), self.policy.clone());
        if !heavy {
            return client.stream(&endpoint, &request, policy);
        }
        tokio::task::spawn_blocking(move || client.stream(&endpoint, &request, policy))
            .await
            .map_err(|error| ModelError::new(ErrorClass::Configuration, error.to_string()))?
    }
}

async fn parse(body: Bytes) -> Answer<InferenceRequest> {
    if body.len() < HEAVY_BODY {
        return body::parse(&body);
    }
    tokio::task::spawn_blocking(move || body::parse(&body)).await.map_err(Failure::internal)?
}

fn another_request() -> Failure {
    Failure::new(ErrorCode::IdempotencyKeyReused, "another request was made with this `turnKey`")
        .hint("a key names one turn: send the same body again, or take a new key")
}

/// Waits for the turn's first frame: a failure before it is an answer of its own, everything after it a frame.
async fn respond(mut reader: Reader) -> Answer<Response> {
    match std::future::poll_fn(|context| reader.poll_step(context)).await {
        Some(Step::Failed(failure, _)) => return Err(failure),
        Some(Step::Line(line)) => reader.put_back(line),
        None => {}
    }
    Ok(ndjson(Body::from_stream(reader)))
}

/// The frames of a turn that was finished before.
fn replay(line: &str) -> Response {
    let text = match InferenceFrame::parse_line(line) {
        Ok(Some(InferenceFrame::Result(result))) => result.turn.text,
        Ok(_) | Err(_) => String::new(),
    };
    let mut lines = Vec::new();
    if !text.is_empty() {
        lines.push(Ok::<_, std::convert::Infallible>(Bytes::from(frame(Kind::Text, &text))));
    }
    lines.push(Ok(Bytes::copy_from_slice(line.as_bytes())));
    ndjson(Body::from_stream(stream::iter(lines)))
}

fn ndjson(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    unbuffered(&mut response);
    response
}
