use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trestle_contract::control::{
    ArtifactCommitRequest, ArtifactPresignRequest, ArtifactPresignResponse, ArtifactWriteRequest,
    ArtifactWriteResponse, CancelResponse, ChildRequest, ChildResponse, ChildStatus, CreditResponse,
    FinalizeRequest, ProvidersResponse, ReleaseRequest, RenewResponse, RunClaimRequest, RunClaimResponse,
    SecretResolveRequest, SecretResolveResponse, TelemetryRequest, TokenUsageRequest, UsageRequest,
    VersionResponse,
};
use trestle_contract::{Positive, RunId, SecretName, WorkerId};
use trestle_domain::Failure;
use trestle_sandbox::slot::Assignment;

use super::http::{Attempt, accept_json, describe};
use super::{ControlError, Http, HttpAnswer, RetryPolicy};
use crate::lease::Lease;
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
/// Which release of the run process asks, for control planes that treat old ones differently.
const VERSION: HeaderName = HeaderName::from_static("x-boardwalk-runner-version");

/// The Runner Control API of one run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ControlClient {
    inner: Arc<Inner>,
}

struct Inner {
    http: Arc<Http>,
    base: String,
    /// Replaced when the control plane hands out a fresh token.
    authorization: RwLock<HeaderValue>,
    /// The lease, once there is one: without it nothing is asked for any more.
    lease: OnceLock<Lease>,
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
    hold: Option<Duration>,
    deadline: Option<Duration>,
    repeat: bool,
}

impl<'a> Call<'a> {
    fn get(operation: &'static str, suffix: &'a str) -> Self {
        Self { method: Method::GET, ..Self::post(operation, suffix, &[200]) }
    }

    fn post(operation: &'static str, suffix: &'a str, accepted: &'a [u16]) -> Self {
        Self { operation, method: Method::POST, suffix, accepted, hold: None, deadline: None, repeat: true }
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
        let authorization = bearer(&assignment.run_token)?;
        let worker =
            WorkerId::new(assignment.worker_id.clone()).map_err(|error| format!("worker id: {error}"))?;
        let lease = Duration::from_secs(assignment.lease.seconds);
        let policy = RetryPolicy::new(timing.retry_waits.clone(), timing.retry_after_limit, lease);
        let lease_seconds = Positive::saturating(assignment.lease.seconds);
        let session =
            HeaderValue::try_from(uuid::Uuid::new_v4().to_string()).map_err(|error| error.to_string())?;
        Ok(Self {
            inner: Arc::new(Inner {
                http,
                base,
                authorization: RwLock::new(authorization),
                lease: OnceLock::new(),
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

    /// From now on no request is sent once this lease is over: a process that cannot know whether the
    /// run is still its own has no effect any more.
    pub(crate) fn fence_by(&self, lease: Lease) {
        let _ = self.inner.lease.set(lease);
    }

    /// Uses this token for every later request.
    ///
    /// # Errors
    /// When it cannot be sent in a header; the present one stays.
    pub(crate) fn adopt_token(&self, token: &str) -> Result<(), String> {
        let fresh = bearer(token)?;
        *self.inner.authorization.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// What every request of this run carries; refused once the lease is over.
    pub(super) fn authorized(&self, method: Method, suffix: &str) -> Result<RequestBuilder, String> {
        if self.inner.lease.get().is_some_and(Lease::is_over) {
            return Err("the lease of the run is over".into());
        }
        let url = format!("{}{suffix}", self.inner.base);
        let token = self.inner.authorization.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(self
            .inner
            .http
            .request(method, &url)?
            .header(AUTHORIZATION, token)
            .header(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")))
            .header(SESSION, self.inner.session.clone()))
    }

    pub(super) fn http(&self) -> &Http {
        &self.inner.http
    }

    fn build(&self, call: &Call<'_>, body: Option<&Bytes>) -> Result<RequestBuilder, String> {
        let mut request = accept_json(self.authorized(call.method.clone(), call.suffix)?);
        if let Some(body) = body {
            request = request
                .header(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone());
        }
        if let Some(hold) = call.hold {
            request = request.header(WAIT, whole_seconds(hold));
        }
        Ok(request)
    }

    async fn send<T>(
        &self,
        call: Call<'_>,
        body: Option<Bytes>,
        read: impl Fn(&HttpAnswer) -> Result<T, String>,
    ) -> Result<T, ControlError> {
        let none = RetryPolicy::none();
        let policy = if call.repeat { &self.inner.policy } else { &none };
        let held = Duration::from_secs(call.hold.map_or(0, whole_seconds));
        let deadline = call.deadline.unwrap_or(self.inner.timing.request) + held;
        let build = || self.build(&call, body.as_ref());
        let sent = self.inner.http.send(build, call.accepted, read, deadline, policy).await;
        sent.map_err(|attempt| failed(call.operation, attempt))
    }

    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: Call<'_>,
        body: &Q,
    ) -> Result<A, ControlError> {
        let body = encode(call.operation, body)?;
        self.send(call, Some(body), |answer| decode(&answer.body)).await
    }

    async fn read<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<A, ControlError> {
        self.send(call, None, |answer| decode(&answer.body)).await
    }

    async fn tell<Q: Serialize>(&self, call: Call<'_>, body: &Q) -> Result<(), ControlError> {
        let body = encode(call.operation, body)?;
        self.send(call, Some(body), |_| Ok(())).await
    }

    pub(crate) async fn claim(&self) -> Result<Granted<RunClaimResponse>, ControlError> {
        self.lease_call(Call::post("claim", "claim", &[201])).await
    }

    /// One attempt; whoever keeps the lease decides about the next.
    pub(crate) async fn renew(&self) -> Result<Granted<RenewResponse>, ControlError> {
        let deadline = Some(self.inner.timing.renew);
        self.lease_call(Call { deadline, ..Call::post("renew", "renew", &[200]).once() }).await
    }

    async fn lease_call<A: DeserializeOwned>(&self, call: Call<'_>) -> Result<Granted<A>, ControlError> {
        let request =
            RunClaimRequest { worker_id: self.inner.worker.clone(), lease_seconds: self.inner.lease_seconds };
        let body = encode(call.operation, &request)?;
        let read = |answer: &HttpAnswer| {
            let length_ms = answer.headers.get(LEASE).and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(Granted { answer: decode(&answer.body)?, length_ms })
        };
        self.send(call, Some(body), read).await
    }

    pub(crate) async fn version(&self) -> Result<VersionResponse, ControlError> {
        self.read(Call::get("version", "version")).await
    }

    /// One attempt with a body that is already encoded, so that every attempt sends the same bytes.
    pub(crate) async fn finalize(&self, body: Bytes) -> Result<(), ControlError> {
        self.send(Call::post("finalize", "finalize", &[204]).once(), Some(body), |_| Ok(())).await
    }

    /// Where the end of the run is written.
    pub(crate) fn finalize_url(&self) -> String {
        format!("{}finalize", self.inner.base)
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

    /// The providers that this run may call itself.
    pub(crate) async fn providers(&self) -> Result<ProvidersResponse, ControlError> {
        self.read(Call::get("inference-providers", "inference/providers")).await
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
        // The same bytes under the same name are one artifact, however often they arrive.
        self.call(Call::post("artifacts", "artifacts", &[201]), request).await
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

    /// Begins one model call; the answer is a stream of lines.
    pub(crate) async fn inference(&self, body: Bytes) -> Result<Response, Attempt> {
        let transport = |message: String| Attempt { failure: Failure::Transport, message, answer: None };
        let request = self
            .authorized(Method::POST, "inference")
            .map_err(transport)?
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

fn decode<A: DeserializeOwned>(body: &[u8]) -> Result<A, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// How long a request may be held, as the header says it.
fn whole_seconds(hold: Duration) -> u64 {
    hold.as_secs().max(1)
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "the run token cannot be sent in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn failed(operation: &'static str, attempt: Attempt) -> ControlError {
    match (attempt.failure, attempt.answer) {
        (Failure::Body, Some(_)) => ControlError::Shape { operation, message: attempt.message },
        (_, Some(answer)) => ControlError::from_answer(operation, answer.status, &answer.body),
        (_, None) => ControlError::Unreachable { operation, message: attempt.message },
    }
}

impl std::fmt::Debug for ControlClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ControlClient").field("base", &self.inner.base).finish_non_exhaustive()
    }
}
