use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trestle_contract::api::Me;
use trestle_contract::error::{ErrorCode, ErrorEnvelope};

use crate::{CliError, ServerAddress};

/// What stays as it is in one segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Deadline of one attempt of a call that is not a stream.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// Deadline of one attempt of an upload.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(600);
/// Waits before the second and third attempt.
const RETRY_WAITS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1500)];

/// Encodes one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The `/v1` API as one user (`docs/protocol/public-api.md`).
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    address: ServerAddress,
}

impl Client {
    /// A client of the server at `address`.
    ///
    /// # Errors
    /// When no TLS set-up is possible.
    pub fn new(address: ServerAddress) -> Result<Self, CliError> {
        // A second call is refused and harmless: the first provider stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("trestle/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                CliError::new(ErrorCode::InternalError, format!("cannot set up HTTP: {error}"))
            })?;
        Ok(Self { http, address })
    }

    /// Where the server is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// The slug of the organisation that the token belongs to.
    ///
    /// # Errors
    /// When the call fails or the token has no organisation.
    pub async fn organisation(&self) -> Result<String, CliError> {
        let me: Me = self.get("/v1/me").await?;
        let slugs: Vec<String> =
            me.memberships.iter().map(|membership| membership.slug.to_string()).collect();
        match slugs.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(CliError::new(ErrorCode::Forbidden, "this token belongs to no organisation")),
            several => Err(CliError::usage(format!(
                "this token belongs to several organisations: {}",
                several.join(", ")
            ))
            .hint("use an API key, which belongs to one")),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        read(self.call(Method::GET, path, None::<&()>).await?, path).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, CliError> {
        read(self.call(Method::POST, path, Some(body)).await?, path).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, CliError> {
        read(self.call(Method::PATCH, path, Some(body)).await?, path).await
    }

    /// A POST without a body whose answer is not read.
    pub(crate) async fn act(&self, path: &str) -> Result<(), CliError> {
        self.call(Method::POST, path, None::<&()>).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), CliError> {
        self.call(Method::DELETE, path, None::<&()>).await.map(drop)
    }

    /// One logical call: every attempt carries the same idempotency key, so that a lost answer repeats nothing.
    async fn call<B: Serialize + Sync>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Response, CliError> {
        let url = format!("{}{path}", self.address.url);
        let key = (method != Method::GET).then(|| uuid::Uuid::new_v4().to_string());
        let mut waits = RETRY_WAITS.iter();
        loop {
            let mut request = self
                .http
                .request(method.clone(), &url)
                .bearer_auth(self.address.token.expose_secret())
                .header("accept", "application/json")
                .timeout(CALL_DEADLINE);
            if let Some(key) = &key {
                request = request.header("idempotency-key", key);
            }
            request = match body {
                Some(body) => request.json(body),
                None if method == Method::POST => request.header("content-length", "0"),
                None => request,
            };
            let outcome = request.send().await;
            let passing = match &outcome {
                Ok(answer) => matches!(answer.status().as_u16(), 429 | 502 | 503 | 504),
                // A refused connection is an answer: nobody is there.
                Err(error) => !error.is_connect(),
            };
            match (outcome, waits.next()) {
                (_, Some(wait)) if passing => tokio::time::sleep(*wait).await,
                (Ok(answer), _) if answer.status().is_success() => return Ok(answer),
                (Ok(answer), _) => return Err(refusal(&method, path, answer).await),
                (Err(error), _) => return Err(self.unreachable(error)),
            }
        }
    }

    /// Uploads bytes to an address that carries its own proof.
    pub(crate) async fn upload(
        &self,
        url: &str,
        content_type: &str,
        bytes: bytes::Bytes,
    ) -> Result<(), CliError> {
        let mut waits = RETRY_WAITS.iter();
        loop {
            let request = self
                .http
                .put(url)
                .header("content-type", content_type)
                .body(bytes.clone())
                .timeout(UPLOAD_DEADLINE);
            let outcome = request.send().await;
            let passing = outcome.as_ref().map_or(true, |answer| answer.status().is_server_error());
            match (outcome, waits.next()) {
                (_, Some(wait)) if passing => tokio::time::sleep(*wait).await,
                (Ok(answer), _) if answer.status().is_success() => return Ok(()),
                (Ok(answer), _) => {
                    return Err(refusal(&Method::PUT, "the artifact's upload address", answer).await);
                }
                (Err(error), _) => return Err(self.unreachable(error)),
            }
        }
    }

    /// Opens the event stream of a run after a cursor; not retried here.
    pub(crate) async fn open_stream(&self, path: &str, after: u64) -> Result<Response, CliError> {
        let mut request = self
            .http
            .get(format!("{}{path}", self.address.url))
            .bearer_auth(self.address.token.expose_secret())
            .header("accept", "text/event-stream");
        if after > 0 {
            request = request.header("last-event-id", after.to_string());
        }
        let answer = request.send().await.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() { Ok(answer) } else { Err(refusal(&Method::GET, path, answer).await) }
    }

    /// Downloads from an address that carries its own proof.
    pub(crate) async fn download(&self, url: &str) -> Result<Response, CliError> {
        let answer = self
            .http
            .get(url)
            .timeout(UPLOAD_DEADLINE)
            .send()
            .await
            .map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(refusal(&Method::GET, "a download address", answer).await)
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> CliError {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let message = format!("could not reach the server at {}: {cause}", self.address.url);
        CliError::new(ErrorCode::Unavailable, message)
            .hint("is it running? `trestle up` starts one; --url or TRESTLE_URL names another")
    }
}

async fn read<T: DeserializeOwned>(answer: Response, path: &str) -> Result<T, CliError> {
    let body = answer.bytes().await.map_err(|error| {
        CliError::new(
            ErrorCode::Unavailable,
            format!("the answer to {path} broke off: {}", error.without_url()),
        )
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        CliError::new(
            ErrorCode::ProtocolError,
            format!("the server answered {path} with something else than expected: {error}"),
        )
        .hint("is this a Trestle or Boardwalk server?")
    })
}

async fn refusal(method: &Method, path: &str, answer: Response) -> CliError {
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    if let Ok(envelope) = serde_json::from_str::<ErrorEnvelope>(&text) {
        let code = ErrorCode::from_code(&envelope.error.code).unwrap_or(of_status(status));
        return CliError {
            hint: envelope.error.hint.or_else(|| own_hint(status)),
            ..CliError::new(code, envelope.error.message)
        };
    }
    let shown: String = text.chars().take(300).collect();
    let shown = if shown.is_empty() { "(no response body)" } else { &shown };
    let error = CliError::new(of_status(status), format!("{method} {path} failed ({status}): {shown}"));
    CliError { hint: own_hint(status), ..error }
}

fn own_hint(status: StatusCode) -> Option<String> {
    let hint = "give a valid token with --token or TRESTLE_TOKEN; the server's own is in its data directory, file admin-token";
    (status == StatusCode::UNAUTHORIZED).then(|| hint.to_owned())
}

fn of_status(status: StatusCode) -> ErrorCode {
    match status.as_u16() {
        400 | 422 => ErrorCode::ValidationFailed,
        401 => ErrorCode::Unauthorized,
        403 => ErrorCode::Forbidden,
        404 => ErrorCode::NotFound,
        409 => ErrorCode::Conflict,
        413 => ErrorCode::PayloadTooLarge,
        429 => ErrorCode::RateLimit,
        502..=504 => ErrorCode::Unavailable,
        _ => ErrorCode::InternalError,
    }
}
