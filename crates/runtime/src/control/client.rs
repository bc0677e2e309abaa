use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::io::ReaderStream;
use trestle_contract::control::{
    ArtifactCommitRequest, ArtifactPresignRequest, ArtifactPresignResponse, ArtifactWriteRequest,
    ArtifactWriteResponse, CancelResponse, ChildRequest, ChildResponse, ChildStatus, CreditResponse,
    FinalizeRequest, ReleaseRequest, RenewResponse, RunClaimRequest, RunClaimResponse, SecretResolveRequest,
    SecretResolveResponse, TelemetryRequest, TokenUsageRequest, UsageRequest, VersionResponse,
};
use trestle_contract::{Positive, RunId, SecretName, WorkerId};
use trestle_domain::Failure;
use trestle_sandbox::slot::Assignment;

use super::http::{Attempt, accept_json, describe};
use super::{ControlError, Http, HttpAnswer, RetryPolicy, Retryable};
use crate::timing::Timing;

/// What a path segment may hold unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Asks the server to hold a request open for so many seconds; other servers ignore it.
const WAIT: HeaderName = HeaderName::from_static("x-trestle-wait");
/// Tells this process apart from an earlier one with the same worker id, and that its events come in order.
const SESSION: HeaderName = HeaderName::from_static("x-trestle-session");
/// The length of the lease that was granted, in milliseconds, when it differs from the one asked for.
const LEASE: HeaderName = HeaderName::from_static("x-trestle-lease-ms");

/// The Runner Control API of one run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ControlClient {
    inner: Arc<Inner>,
}

struct Inner {
    http: Arc<Http>,
    base: String,
    authorization: HeaderValue,
    worker: WorkerId,
    lease_seconds: Positive,
    session: HeaderValue,
    timing: Timing,
    policy: RetryPolicy,
}

/// An answer that grants or renews the lease.
pub(crate) struct Granted<A> {
    pub(crate) answer: A,
    /// The granted length, when the server tells it.
    pub(crate) length_ms: Option<i64>,
}

/// One request, without its body.
struct Call<'a> {
    operation: &'static str,
    method: Method,
    suffix: &'a str,
    accepted: &'a [u16],
    retryable: Retryable,
    hold: Option<Duration>,
    repeat: bool,
}

impl<'a> Call<'a> {
    fn get(operation: &'static str, suffix: &'a str) -> Self {
        Self { method: Method::GET, ..Self::post(operation, suffix, &[200]) }
    }

    fn post(operation: &'static str, suffix: &'a str, accepted: &'a [u16]) -> Self {
        Self {
            operation,
            method: Method::POST,
            suffix,
            accepted,
            retryable: Retryable::Repeatable,
            hold: None,
            repeat: true,
        }
    }

    fn once(self) -> Self {
        Self { repeat: false, ..self }
    }
}

impl ControlClient {
    /// A client for the assigned run.
    ///
    /// # Errors
    /// When the assignment holds an identity or a token that cannot be sent.
    pub(crate) fn new(http: Arc<Http>, assignment: &Assignment, timing: Timing) -> Result<Self, String> {
        let run = utf8_percent_encode(&assignment.run_id, SEGMENT);
        let base = format!("{}/runner/v1/runs/{run}/", assignment.control_plane_url.trim_end_matches('/'));
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", assignment.run_token))
            .map_err(|_| "the run token cannot be sent in a header".to_owned())?;
        authorization.set_sensitive(true);
        let worker =
            WorkerId::new(assignment.worker_id.clone()).map_err(|error| format!("worker id: {error}"))?;
        let policy = RetryPolicy::new(timing.retry_waits.clone(), timing.retry_after_limit);
        let lease_seconds = Positive::saturating(assignment.lease.seconds);
        let session =
            HeaderValue::try_from(uuid::Uuid::new_v4().to_string()).map_err(|error| error.to_string())?;
        Ok(Self {
            inner: Arc::new(Inner {
                http,
                base,
                authorization,
                worker,
                lease_seconds,
                session,
                timing,
                policy,
            }),
        })
    }

    pub(crate) fn worker(&self) -> &WorkerId {
        &self.inner.worker
    }

    pub(crate) fn timing(&self) -> &Timing {
        &self.inner.timing
    }

    fn build(&self, call: &Call<'_>, body: Option<&Bytes>) -> Result<RequestBuilder, String> {
        let url = format!("{}{}", self.inner.base, call.suffix);
        let mut request = accept_json(self.inner.http.request(call.method.clone(), &url)?)
            .header(AUTHORIZATION, self.inner.authorization.clone())
            .header(SESSION, self.inner.session.clone());
        if let Some(body) = body {
            request = request
                .header(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone());
        }
        if let Some(hold) = call.hold {
            request = request.header(WAIT, hold.as_secs().max(1));
        }
        Ok(request)
    }

    async fn send(&self, call: Call<'_>, body: Option<Bytes>) -> Result<HttpAnswer, ControlError> {
        let none = RetryPolicy::none();
        let policy = if call.repeat { &self.inner.policy } else { &none };
        let deadline = self.inner.timing.request + call.hold.unwrap_or_default();
        let result = self
            .inner
            .http
            .send(|| self.build(&call, body.as_ref()), call.accepted, deadline, call.retryable, policy)
            .await;
        result.map_err(|attempt| failed(call.operation, attempt))
    }

    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: Call<'_>,
        body: &Q,
    ) -> Result<A, ControlError> {
        let operation = call.operation;
        let body = encode(operation, body)?;
        let answer = self.send(call, Some(body)).await?;
        decode(operation, &answer.body)
    }

    async fn read<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<A, ControlError> {
        let operation = call.operation;
        let answer = self.send(call, None).await?;
        decode(operation, &answer.body)
    }

    async fn tell<Q: Serialize>(&self, call: Call<'_>, body: &Q) -> Result<(), ControlError> {
        let body = encode(call.operation, body)?;
        self.send(call, Some(body)).await.map(drop)
    }

    pub(crate) async fn claim(&self) -> Result<Granted<RunClaimResponse>, ControlError> {
        self.lease_call(Call::post("claim", "claim", &[201])).await
    }

    /// One attempt; whoever keeps the lease decides about the next.
    pub(crate) async fn renew(&self) -> Result<Granted<RenewResponse>, ControlError> {
        self.lease_call(Call::post("renew", "renew", &[200]).once()).await
    }

    async fn lease_call<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<Granted<A>, ControlError> {
        let operation = call.operation;
        let request =
            RunClaimRequest { worker_id: self.inner.worker.clone(), lease_seconds: self.inner.lease_seconds };
        let body = encode(operation, &request)?;
        let answer = self.send(call, Some(body)).await?;
        let length_ms = answer.headers.get(LEASE).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Granted { answer: decode(operation, &answer.body)?, length_ms })
    }

    pub(crate) async fn version(&self) -> Result<VersionResponse, ControlError> {
        self.read(Call::get("version", "version")).await
    }

    /// One attempt with a body that is already encoded, so that every attempt sends the same bytes.
    pub(crate) async fn finalize(&self, body: Bytes) -> Result<(), ControlError> {
        self.send(Call::post("finalize", "finalize", &[204]).once(), Some(body)).await.map(drop)
    }

    pub(crate) fn encode_finalize(request: &FinalizeRequest) -> Result<Bytes, ControlError> {
        encode("finalize", request)
    }

    pub(crate) async fn release(&self, reason: &str) -> Result<(), ControlError> {
        let body = ReleaseRequest { worker_id: self.inner.worker.clone(), reason: reason.to_owned() };
        self.tell(Call::post("release", "release", &[204]), &body).await
    }

    pub(crate) async fn usage(&self, request: &UsageRequest) -> Result<(), ControlError> {
        self.tell(Call::post("usage", "usage", &[204]), request).await
    }

    pub(crate) async fn token_usage(&self, request: &TokenUsageRequest) -> Result<(), ControlError> {
        self.tell(Call::post("usage/tokens", "usage/tokens", &[204]), request).await
    }

    pub(crate) async fn credit(&self) -> Result<CreditResponse, ControlError> {
        self.read(Call::get("credit", "credit").once()).await
    }

    /// Whether the run is to be cancelled; the server may hold the question until it is.
    pub(crate) async fn cancel(&self) -> Result<CancelResponse, ControlError> {
        let hold = Some(self.inner.timing.cancel_hold);
        self.read(Call { hold, ..Call::get("cancel", "cancel").once() }).await
    }

    /// One attempt to deliver a batch.
    pub(crate) async fn telemetry(&self, frames: Vec<String>) -> Result<(), ControlError> {
        self.tell(Call::post("telemetry", "telemetry", &[204]).once(), &TelemetryRequest { frames }).await
    }

    pub(crate) async fn secret(&self, name: SecretName) -> Result<SecretResolveResponse, ControlError> {
        self.call(Call::post("secrets/resolve", "secrets/resolve", &[200]), &SecretResolveRequest { name })
            .await
    }

    pub(crate) async fn start_child(&self, request: &ChildRequest) -> Result<ChildResponse, ControlError> {
        self.call(Call::post("children", "children", &[200, 201]), request).await
    }

    /// The state of a child; the server may hold the question until the child has ended. One attempt.
    pub(crate) async fn child(&self, id: &RunId) -> Result<ChildStatus, ControlError> {
        let suffix = format!("children/{}", utf8_percent_encode(id.as_str(), SEGMENT));
        let hold = Some(self.inner.timing.child_hold);
        self.read(Call { hold, ..Call::get("children-get", &suffix).once() }).await
    }

    pub(crate) async fn write_artifact(
        &self,
        request: &ArtifactWriteRequest,
    ) -> Result<ArtifactWriteResponse, ControlError> {
        let call = Call { retryable: Retryable::Once, ..Call::post("artifacts", "artifacts", &[201]) };
        self.call(call, request).await
    }

    pub(crate) async fn presign_artifact(
        &self,
        request: &ArtifactPresignRequest,
    ) -> Result<ArtifactPresignResponse, ControlError> {
        self.call(Call::post("artifacts/presign", "artifacts/presign", &[201]), request).await
    }

    pub(crate) async fn commit_artifact(
        &self,
        request: &ArtifactCommitRequest,
    ) -> Result<ArtifactWriteResponse, ControlError> {
        self.call(Call::post("artifacts/commit", "artifacts/commit", &[201]), request).await
    }

    /// Puts a file to a signed address, with exactly the headers that were signed.
    pub(crate) async fn upload(
        &self,
        target: &ArtifactPresignResponse,
        file: &Path,
        size: u64,
    ) -> Result<(), ControlError> {
        const OPERATION: &str = "artifacts-upload";
        let unreachable = |message: String| ControlError::Unreachable { operation: OPERATION, message };
        let mut attempt = 0;
        loop {
            let failure = match self.upload_once(target, file, size).await {
                Ok(status) if (200..300).contains(&status) => return Ok(()),
                Ok(status) => (Failure::Status(status), ControlError::from_answer(OPERATION, status, &[])),
                Err(message) => (Failure::Transport, unreachable(message)),
            };
            attempt += 1;
            match self.inner.policy.wait_before(attempt, None) {
                Some(wait) if Retryable::Repeatable.is_worth_another(failure.0) => {
                    tokio::time::sleep(wait).await
                }
                _ => return Err(failure.1),
            }
        }
    }

    async fn upload_once(
        &self,
        target: &ArtifactPresignResponse,
        file: &Path,
        size: u64,
    ) -> Result<u16, String> {
        let opened = tokio::fs::File::open(file).await.map_err(|error| error.to_string())?;
        let body = reqwest::Body::wrap_stream(ReaderStream::with_capacity(opened, 64 * 1024));
        let mut request = self
            .inner
            .http
            .request(Method::PUT, &target.upload_url)?
            .header(reqwest::header::CONTENT_LENGTH, size)
            .timeout(self.inner.timing.bulk)
            .body(body);
        for (name, value) in &target.upload_headers {
            if !name.eq_ignore_ascii_case("content-length") {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await.map_err(|error| describe(&error))?;
        Ok(answer.status().as_u16())
    }

    /// Begins to fetch from a signed address, without credentials.
    pub(crate) async fn download(&self, url: &str) -> Result<Response, ControlError> {
        const OPERATION: &str = "program-download";
        let unreachable = |message: String| ControlError::Unreachable { operation: OPERATION, message };
        let request = self.inner.http.request(Method::GET, url).map_err(unreachable)?;
        let answer = request.timeout(self.inner.timing.bulk).send().await;
        let answer = answer.map_err(|error| unreachable(describe(&error)))?;
        let status = answer.status().as_u16();
        if !(200..300).contains(&status) {
            return Err(ControlError::Status { operation: OPERATION, status, body: None });
        }
        Ok(answer)
    }

    /// Begins one model call; the answer is a stream of lines.
    pub(crate) async fn inference(&self, body: Bytes) -> Result<Response, Attempt> {
        let url = format!("{}inference", self.inner.base);
        let transport = |message: String| Attempt { failure: Failure::Transport, message, answer: None };
        let request = self
            .inner
            .http
            .request(Method::POST, &url)
            .map_err(transport)?
            .header(AUTHORIZATION, self.inner.authorization.clone())
            .header(reqwest::header::ACCEPT, HeaderValue::from_static("application/x-ndjson"))
            .header(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let sent = tokio::time::timeout(self.inner.timing.inference_idle, request.send()).await;
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(transport(describe(&error))),
            Err(_) => return Err(transport("the model call was not answered in time".into())),
        };
        let status = answer.status().as_u16();
        if status == 200 {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let body = tokio::time::timeout(self.inner.timing.request, answer.bytes()).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        Err(Attempt {
            failure: Failure::Status(status),
            message: format!("status {status}"),
            answer: Some(HttpAnswer { status, headers, body }),
        })
    }

    pub(crate) fn policy(&self) -> &RetryPolicy {
        &self.inner.policy
    }
}

fn encode<Q: Serialize>(operation: &'static str, body: &Q) -> Result<Bytes, ControlError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| ControlError::Shape { operation, message: error.to_string() })
}

fn decode<A: DeserializeOwned>(operation: &'static str, body: &[u8]) -> Result<A, ControlError> {
    serde_json::from_slice(body)
        .map_err(|error| ControlError::Shape { operation, message: error.to_string() })
}

pub(super) fn failed(operation: &'static str, attempt: Attempt) -> ControlError {
    match attempt.answer {
        Some(answer) => ControlError::from_answer(operation, answer.status, &answer.body),
        None => ControlError::Unreachable { operation, message: attempt.message },
    }
}

impl std::fmt::Debug for ControlClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ControlClient").field("base", &self.inner.base).finish_non_exhaustive()
    }
}
