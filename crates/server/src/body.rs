//! Request bodies: bounded, with a deadline, and an envelope for each refusal.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trestle_contract::error::ErrorCode;

use crate::failure::{Answer, Failure};
use crate::state::State;

/// The largest body of a route in bytes, put beside the request by the route
/// table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyLimit(pub(crate) u64);

/// How much of a refused body is read and dropped, so that the caller gets to
/// read the answer instead of a reset connection.
const DISCARD_BYTES: u64 = 512 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(20);

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(mut body: Body, limit: u64, idle: Duration) -> Answer<Bytes> {
    let announced = http_body::Body::size_hint(&body).lower();
    if announced > limit {
        discard(body).await;
        return Err(Failure::too_large(limit));
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut length = 0_u64;
    while let Some(chunk) = next(&mut body, idle).await? {
        length = length.saturating_add(chunk.len() as u64);
        if length > limit {
            discard(body).await;
            return Err(Failure::too_large(limit));
        }
        match first.take() {
            None if rest.is_empty() => first = Some(chunk),
            earlier => {
                if let Some(earlier) = earlier {
                    rest.reserve(usize::try_from(announced).unwrap_or(0).max(earlier.len()));
                    rest.extend_from_slice(&earlier);
                }
                rest.extend_from_slice(&chunk);
            }
        }
    }
    Ok(first.unwrap_or_else(|| rest.freeze()))
}

/// The next chunk of a body, or a failure when the caller stopped sending.
pub(crate) async fn next(body: &mut Body, idle: Duration) -> Answer<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(idle, body.frame()).await.map_err(|_| {
            Failure::new(ErrorCode::ValidationFailed, "the request body stopped arriving")
                .status(StatusCode::REQUEST_TIMEOUT)
        })?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Failure::invalid("the request body was cut")),
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Reads a body to its end within bounds and drops it.
pub(crate) async fn discard(mut body: Body) {
    let started = Instant::now();
    let mut length = 0_u64;
    while length < DISCARD_BYTES && started.elapsed() < DISCARD_TIME {
        match tokio::time::timeout(DISCARD_TIME, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                length += frame.data_ref().map_or(0, |chunk| chunk.len() as u64);
            }
            _ => return,
        }
    }
}

/// A whole body.
#[derive(Debug)]
pub(crate) struct Whole(pub(crate) Bytes);

impl FromRequest<State> for Whole {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &State) -> Result<Self, Failure> {
        let limit =
            request.extensions().get::<BodyLimit>().map_or(state.config().limits.body, |limit| limit.0);
        let idle = Duration::from_millis(state.config().intervals.body_idle_ms);
        read(request.into_body(), limit, idle).await.map(Self)
    }
}

/// A JSON body. An empty body reads as `{}`.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<State> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &State) -> Result<Self, Failure> {
        let Whole(bytes) = Whole::from_request(request, state).await?;
        parse(&bytes).map(Self)
    }
}

/// Parses a JSON body. An empty one reads as `{}`.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        use serde_json::error::Category;
        let message = match error.classify() {
            Category::Data => format!("the request body does not fit: {error}"),
            Category::Syntax | Category::Eof | Category::Io => {
                format!("the request body is not JSON: {error}")
            }
        };
        Failure::invalid(message)
    })
}

/// A JSON answer with a status.
#[derive(Debug)]
pub(crate) struct Reply<T>(pub(crate) StatusCode, pub(crate) T);

impl<T> Reply<T> {
    pub(crate) fn ok(value: T) -> Self {
        Self(StatusCode::OK, value)
    }

    pub(crate) fn created(value: T) -> Self {
        Self(StatusCode::CREATED, value)
    }
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(bytes) => (self.0, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => Failure::internal(error).into_response(),
        }
    }
}
