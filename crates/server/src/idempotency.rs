//! `Idempotency-Key`: the answer of a mutating `/v1` call is kept for a day
//! and given again to a repeat (docs/protocol/public-api.md §1.1).

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};
use trestle_store::{IdempotencyKey, IdempotencyStart, StoredAnswer};

use crate::auth::ApiAuth;
use crate::body::{self, BodyLimit};
use crate::failure::{Answer, Failure};
use crate::state::State;

static KEY: HeaderName = HeaderName::from_static("idempotency-key");
static REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

const LONGEST_KEY: usize = 255;

/// Stands in front of every mutating route of the public API.
pub(crate) async fn layer(state: State, request: Request, next: Next) -> Response {
    if !request.headers().contains_key(&KEY) {
        return next.run(request).await;
    }
    match keyed(&state, request, next).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

async fn keyed(state: &State, request: Request, next: Next) -> Answer<Response> {
    let (parts, body) = request.into_parts();
    let key = parts
        .headers
        .get(&KEY)
        .and_then(|value| value.to_str().ok())
        .filter(|key| !key.is_empty() && key.len() <= LONGEST_KEY)
        .ok_or_else(|| {
            Failure::invalid(format!("Idempotency-Key must be 1 to {LONGEST_KEY} visible characters"))
        })?
        .to_owned();
    let auth = parts
        .extensions
        .get::<ApiAuth>()
        .ok_or_else(|| Failure::internal("an idempotent route without a principal"))?;
    let principal = auth.principal();
    let limit = parts.extensions.get::<BodyLimit>().map_or(state.config().limits.body, |limit| limit.0);
    let idle = Duration::from_millis(state.config().intervals.body_idle_ms);
    let bytes = body::read(body, limit, idle).await?;

    let mut hash = Sha256::new();
    for part in [
        parts.method.as_str().as_bytes(),
        parts.uri.path_and_query().map_or("", |path| path.as_str()).as_bytes(),
        &bytes,
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let key = IdempotencyKey { principal, key, request_hash: hex::encode(hash.finalize()) };

    match state.store().begin_idempotent(&key).await? {
        IdempotencyStart::Answered(answer) => Ok(replay(answer)),
        IdempotencyStart::Fresh => {
            let mut request = Request::from_parts(parts, Body::from(bytes));
            request.extensions_mut().insert(CurrentKey(key.clone()));
            // A caller that hangs up does not stop the work: its repeat shall
            // find an answer, not a request that is for ever in progress.
            let state = state.clone();
            tokio::spawn(async move { work(&state, &key, request, next).await })
                .await
                .map_err(Failure::internal)
        }
    }
}

/// The key of the request at hand, for handlers that write it in the
/// transaction of their own work.
#[derive(Debug, Clone)]
pub(crate) struct CurrentKey(pub(crate) IdempotencyKey);

async fn work(state: &State, key: &IdempotencyKey, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let (parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return Failure::internal(error).into_response(),
    };
    // A failure of the server may heal, so a repeat shall try again.
    let kept = if parts.status.is_server_error() || parts.status == StatusCode::TOO_MANY_REQUESTS {
        state.store().abandon_idempotent(key).await
    } else {
        let answer = StoredAnswer {
            status: parts.status.as_u16(),
            content_type: parts
                .headers
                .get(header::CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            body: bytes.to_vec(),
        };
        state.store().finish_idempotent(key, answer).await
    };
    if let Err(error) = kept {
        tracing::warn!(%error, "the answer to an idempotency key could not be kept");
    }
    Response::from_parts(parts, Body::from(bytes))
}

fn replay(answer: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    if let Some(value) = answer.content_type.and_then(|value| HeaderValue::from_str(&value).ok()) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(REPLAYED.clone(), HeaderValue::from_static("true"));
    response
}
