//! One model turn over HTTP: request, retries, stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::FutureExt;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::decoder::Decoder;
use crate::endpoint::{Endpoint, EndpointKind};
use crate::error::{ErrorClass, ModelError, classify};
use crate::http::{HttpOptions, connection_error, http_client};
use crate::progress::TurnProgress;
use crate::request::{EncodedRequest, ModelRequest, ToolNames};
use crate::retry::{TurnPolicy, retry_after};
use crate::sse::{SseDecoder, SseEvent};
use crate::turn::{ModelEvent, ProviderFault};
use crate::{anthropic, openai};

/// Asks model endpoints for turns. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelClient {
    http: reqwest::Client,
    /// Without proxies, for endpoints on this machine.
    direct: Arc<OnceLock<reqwest::Client>>,
    options: HttpOptions,
}

impl ModelClient {
    /// A client with these options.
    ///
    /// # Errors
    /// [`ErrorClass::Configuration`] when no HTTP client can be built.
    pub fn new(options: HttpOptions) -> Result<Self, ModelError> {
        Ok(Self { http: http_client(&options)?, direct: Arc::new(OnceLock::new()), options })
    }

    /// Starts a turn. Nothing is sent before the stream is polled; dropping the stream closes the connection, which stops the provider.
    ///
    /// # Errors
    /// [`ErrorClass::BadRequest`] when the conversation cannot be written for the wire, [`ErrorClass::Configuration`] for credentials that
    /// HTTP cannot carry. Everything later comes as the stream's last item.
    pub fn stream(
        &self,
        endpoint: &Endpoint,
        request: &ModelRequest,
        policy: TurnPolicy,
    ) -> Result<ModelStream, ModelError> {
        let encoded = match endpoint.kind() {
            EndpointKind::OpenAiCompatible => openai::encode(request)?,
            EndpointKind::Anthropic => anthropic::encode(request)?,
        };
        let headers = headers(endpoint)?;
        let progress = Arc::new(TurnProgress::new(encoded.prompt_tokens));
        let EncodedRequest { body, names, .. } = encoded;
        let upstream = Upstream {
            http: self.http_for(endpoint)?,
            endpoint: endpoint.clone(),
            headers,
            body: Bytes::from(body),
            deadline: Instant::now() + policy.deadline,
            policy,
        };
        let turn = Box::new(Turn::new(upstream, names, Arc::clone(&progress)));
        let events =
            stream::unfold(turn, |mut turn| async move { turn.step().await.map(|event| (event, turn)) })
                .boxed();
        Ok(ModelStream { events, progress })
    }

    fn http_for(&self, endpoint: &Endpoint) -> Result<reqwest::Client, ModelError> {
        if !endpoint.is_loopback() || !self.options.proxies {
            return Ok(self.http.clone());
        }
        if let Some(direct) = self.direct.get() {
            return Ok(direct.clone());
        }
        let direct = http_client(&HttpOptions { proxies: false, ..self.options.clone() })?;
        Ok(self.direct.get_or_init(|| direct).clone())
    }
}

/// The events of one turn: any number of deltas, then one [`ModelEvent::Done`] or one error.
pub struct ModelStream {
    events: BoxStream<'static, Result<ModelEvent, ModelError>>,
    progress: Arc<TurnProgress>,
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ModelStream").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl ModelStream {
    /// How far the turn is; stays readable after the stream is dropped.
    #[must_use]
    pub fn progress(&self) -> Arc<TurnProgress> {
        Arc::clone(&self.progress)
    }
}

impl Stream for ModelStream {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(context)
    }
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    let wrong = || {
        ModelError::new(
            ErrorClass::Configuration,
            "the key of the model endpoint holds characters that HTTP does not allow",
        )
    };
    let mut set = |name: HeaderName, value: &str| -> Result<(), ModelError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    let key = endpoint.api_key().map(ExposeSecret::expose_secret);
    match endpoint.kind() {
        EndpointKind::OpenAiCompatible => {
            if let Some(key) = key {
                set(header::AUTHORIZATION, &format!("Bearer {key}"))?;
            }
        }
        EndpointKind::Anthropic => {
            set(HeaderName::from_static("anthropic-version"), "2023-06-01")?;
            if let Some(key) = key {
                set(HeaderName::from_static("x-api-key"), key)?;
            }
        }
    }
    for (name, value) in endpoint.headers() {
        set(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value.expose_secret())?;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    Ok(headers)
}

/// What each attempt of a turn sends, and to whom.
struct Upstream {
    http: reqwest::Client,
    endpoint: Endpoint,
    headers: HeaderMap,
    body: Bytes,
    policy: TurnPolicy,
    deadline: Instant,
}

/// A turn under way.
struct Turn {
    upstream: Upstream,
    names: ToolNames,
    progress: Arc<TurnProgress>,
    attempts: u32,
    restarts: u32,
    /// Whether the caller has seen a part of the current attempt's answer.
    delivered: bool,
    /// Whether the body is being read, and may hold more.
    answer: Option<Answer>,
    ready: VecDeque<ModelEvent>,
    /// What ended the attempt, once everything before it is delivered.
    failure: Option<ModelError>,
    over: bool,
}

/// The body of an answer and what was understood of it.
struct Answer {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    format: BodyFormat,
    decoder: Decoder,
    events: VecDeque<SseEvent>,
}

enum BodyFormat {
    Events(SseDecoder),
    /// The endpoint answers with one document although a stream was asked for.
    Document(Vec<u8>),
}

/// The largest answer that is no stream, and the largest body of an error.
const LARGEST_DOCUMENT: usize = 64 * 1024 * 1024;
const LARGEST_ERROR: usize = 64 * 1024;

impl Upstream {
    /// The longest silence allowed now.
    fn silence_end(&self) -> Instant {
        (Instant::now() + self.policy.idle).min(self.deadline)
    }

    fn silence(&self) -> ModelError {
        let words = if Instant::now() >= self.deadline {
            format!("the model turn took longer than {} seconds", self.policy.deadline.as_secs())
        } else {
            format!(
                "the model endpoint {} was silent for {} seconds",
                self.endpoint.address(),
                self.policy.idle.as_secs_f64()
            )
        };
        ModelError::new(ErrorClass::TimedOut, words)
    }

    async fn request_once(&self) -> Result<Answer, ModelError> {
        let request = self
            .http
            .post(self.endpoint.turn_url().clone())
            .headers(self.headers.clone())
            .body(self.body.clone())
            .send();
        let response = tokio::time::timeout_at(self.silence_end(), request)
            .await
            .map_err(|_| self.silence())?
            .map_err(|error| connection_error(error, &self.endpoint.address()))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let kind = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        if kind.starts_with("text/html") {
            return Err(ModelError {
                status: Some(response.status().as_u16()),
                ..ModelError::new(
                    // A page does not turn into an answer when it is fetched again.
                    ErrorClass::NotFound,
                    format!(
                        "the address {} answers with a web page instead of a model's answer",
                        self.endpoint.address()
                    ),
                )
            });
        }
        let format = if kind.starts_with("application/json") {
            BodyFormat::Document(Vec::new())
        } else {
            BodyFormat::Events(SseDecoder::new(self.policy.largest_event))
        };
        Ok(Answer {
            body: response.bytes_stream().boxed(),
            format,
            decoder: Decoder::new(self.endpoint.kind()),
            events: VecDeque::new(),
        })
    }

    /// The error that a status other than 2xx stands for.
    async fn refusal(&self, response: reqwest::Response) -> ModelError {
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let location =
            response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = read_error_body(response).await;
        let fault =
            serde_json::from_str(&text).ok().as_ref().and_then(ProviderFault::read).unwrap_or_default();
        let words = if fault.message.is_empty() { text.as_str() } else { &fault.message };
        let words: String =
            words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        let (class, words) = match location {
            Some(location) if (300..400).contains(&status) => (
                ErrorClass::Configuration,
                format!("a redirect to {}, which is not followed to another host", without_query(&location)),
            ),
            _ => (classify(status, &fault.kind, &format!("{} {words}", fault.message)), words),
        };
        ModelError {
            status: Some(status),
            retry_after,
            ..ModelError::new(class, format!("provider returned {status}: {words}"))
        }
    }
}

impl Turn {
    fn new(upstream: Upstream, names: ToolNames, progress: Arc<TurnProgress>) -> Self {
        Self {
            upstream,
            names,
            progress,
            attempts: 0,
            restarts: 0,
            delivered: false,
            answer: None,
            ready: VecDeque::new(),
            failure: None,
            over: false,
        }
    }

    /// The next event, or `None` after the last.
    async fn step(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        if self.over {
            return None;
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.over = matches!(event, ModelEvent::Done(_));
                self.delivered |= matches!(event, ModelEvent::Delta(_) | ModelEvent::Reasoning(_));
                return Some(Ok(event));
            }
            let failed = match self.failure.take() {
                Some(error) => Err(error),
                None if self.answer.is_some() => self.read().await,
                None => self.send().await,
            };
            let Err(error) = failed else { continue };
            self.answer = None;
            match self.after_failure(error) {
                Ok(wait) => {
                    if self.delivered {
                        self.delivered = false;
                        self.ready.push_back(ModelEvent::Restarted);
                    }
                    tokio::time::sleep_until((Instant::now() + wait).min(self.upstream.deadline)).await;
                }
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
    }

    /// How long to wait before the next attempt, or the error that ends the turn.
    fn after_failure(&mut self, mut error: ModelError) -> Result<Duration, ModelError> {
        error.attempts = self.attempts;
        error.message = self.upstream.endpoint.redact(error.message);
        let may_restart = !self.delivered || self.restarts < self.upstream.policy.restarts;
        if !error.class.is_transient() || !may_restart || Instant::now() >= self.upstream.deadline {
            return Err(error);
        }
        if self.attempts >= self.upstream.policy.attempts {
            if self.attempts > 1 {
                error.message = format!("{} ({} attempts)", error.message, self.attempts);
            }
            return Err(error);
        }
        if let Some(asked) =
            error.retry_after.filter(|asked| *asked > self.upstream.policy.longest_retry_after)
        {
            error.message = format!(
                "{} (the provider asks to wait {} seconds)",
                error.message,
                asked.as_secs_f64().ceil()
            );
            return Err(error);
        }
        self.restarts += u32::from(self.delivered);
        tracing::debug!(error = %error.message, attempt = self.attempts, "model attempt failed, trying again");
        Ok(self.upstream.policy.wait(self.attempts + 1, error.retry_after))
    }

    async fn send(&mut self) -> Result<(), ModelError> {
        self.attempts += 1;
        self.progress.request_sent();
        let result = self.upstream.request_once().await;
        match result {
            Ok(answer) => {
                self.progress.answer_began();
                self.answer = Some(answer);
                Ok(())
            }
            Err(error) => {
                self.progress.request_refused();
                Err(error)
            }
        }
    }

    /// Reads the next piece of the body.
    async fn read(&mut self) -> Result<(), ModelError> {
        let silence_end = self.upstream.silence_end();
        let Some(answer) = &mut self.answer else { return Ok(()) };
        let chunk = match tokio::time::timeout_at(silence_end, answer.body.next()).await {
            Ok(chunk) => chunk,
            Err(_) => return Err(self.upstream.silence()),
        };
        let whole = match chunk {
            Some(Ok(bytes)) => answer.read(&bytes, &mut self.ready),
            None => answer.end(&mut self.ready),
            Some(Err(error)) if answer.decoder.is_whole() => {
                tracing::debug!(%error, "connection broke after the whole answer");
                Ok(true)
            }
            Some(Err(error)) => Err(connection_error(error, &self.upstream.endpoint.address())),
        };
        self.progress.answered(answer.decoder.size(), answer.decoder.counts());
        match whole {
            Ok(false) => Ok(()),
            Ok(true) => self.complete(),
            Err(error) => {
                // What was understood before the fault is delivered first.
                self.failure = Some(error);
                Ok(())
            }
        }
    }

    fn complete(&mut self) -> Result<(), ModelError> {
        let Some(answer) = self.answer.take() else { return Ok(()) };
        let mut completed = answer.decoder.finish(&self.names)?;
        completed.abandoned = self.progress.abandoned();
        self.progress.completed(completed.turn.usage);
        self.ready.push_back(ModelEvent::Done(Box::new(completed)));
        release(answer.body);
        Ok(())
    }
}

/// Reads the rest of a body that is over, so that its connection can serve the next turn.
fn release(mut body: BoxStream<'static, reqwest::Result<Bytes>>) {
    if !matches!(body.next().now_or_never(), Some(None)) {
        tokio::spawn(async move {
            let rest = async { while let Some(Ok(_)) = body.next().await {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
        });
    }
}

impl Answer {
    fn read(&mut self, bytes: &[u8], ready: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        match &mut self.format {
            BodyFormat::Document(document) => {
                if document.len() + bytes.len() > LARGEST_DOCUMENT {
                    return Err(ModelError::new(ErrorClass::BadRequest, "the model's answer is too large"));
                }
                document.extend_from_slice(bytes);
                Ok(false)
            }
            BodyFormat::Events(decoder) => {
                decoder
                    .feed(bytes, &mut self.events)
                    .map_err(|error| ModelError::new(ErrorClass::BadRequest, error.to_string()))?;
                self.take_events(ready)
            }
        }
    }

    /// The body has ended; `true` when the answer is whole.
    fn end(&mut self, ready: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        match &mut self.format {
            BodyFormat::Document(document) => {
                let text = std::str::from_utf8(document).map_err(|_| {
                    ModelError::new(ErrorClass::MalformedStream, "the provider's answer is not UTF-8")
                })?;
                self.decoder.read("", text, ready)?;
            }
            BodyFormat::Events(decoder) => {
                decoder
                    .finish(&mut self.events)
                    .map_err(|error| ModelError::new(ErrorClass::BadRequest, error.to_string()))?;
                if self.take_events(ready)? {
                    return Ok(true);
                }
            }
        }
        if self.decoder.is_whole() {
            return Ok(true);
        }
        Err(ModelError::new(ErrorClass::Interrupted, "the provider's answer ended before it was complete"))
    }

    fn take_events(&mut self, ready: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        while let Some(event) = self.events.pop_front() {
            if self.decoder.read(&event.event, &event.data, ready)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn read_error_body(response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    let mut body = response.bytes_stream();
    let read = async {
        while let Some(Ok(chunk)) = body.next().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LARGEST_ERROR {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), read).await;
    bytes.truncate(LARGEST_ERROR);
    bytes.utf8_chunks().map(|chunk| chunk.valid()).collect()
}

fn without_query(location: &str) -> &str {
    location.split(['?', '#']).next().unwrap_or_default()
}
