//! Bytes under signed addresses. No token is needed: the address is the proof.

use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State as FromState};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_util::io::{StreamReader, SyncIoBridge};
use trestle_store::{BlobExpectation, Entity, StoreError, UploadPurpose};

use crate::body::{discard, next};
use crate::extract::{Parameters, Segments};
use crate::failure::{Answer, Failure};
use crate::routes::{BodySize, Route, Table};
use crate::signed_url::{Grant, Operation, Proof};
use crate::state::State;

pub(crate) fn routes(table: &mut Table) {
    table.add(
        Route::open(Method::GET, "/blobs/{*key}", "Reads bytes under a signed address")
            .streams("application/octet-stream"),
        download,
    );
    table.add(
        Route::open(Method::PUT, "/blobs/{*key}", "Takes the bytes of an announced upload")
            .size(BodySize::Streamed)
            .empty(StatusCode::OK),
        upload,
    );
}

fn granted(state: &State, operation: Operation, key: &str, proof: Proof) -> Answer<Grant> {
    state.signer().verify(operation, key, proof, state.now()).ok_or_else(|| {
        Failure::forbidden("the address is not valid, or its time is over").hint("ask for a new address")
    })
}

async fn download(
    FromState(state): FromState<State>,
    Segments(key): Segments<String>,
    Parameters(proof): Parameters<Proof>,
) -> Answer<Response> {
    let grant = granted(&state, Operation::Get, &key, proof)?;
    let blob = match state.blobs().get(&key).await {
        Err(StoreError::NotFound(_)) => return Err(Failure::not_found("object", &key)),
        other => other?,
    };
    let mut response = Response::new(Body::from_stream(blob.bytes));
    describe(response.headers_mut(), &grant, blob.size);
    Ok(response)
}

/// Bytes of a run are never more than bytes to a browser: no sniffing, no
/// scripts, and a name to be stored under.
fn describe(headers: &mut HeaderMap, grant: &Grant, size: u64) {
    let content_type = grant
        .content_type
        .as_deref()
        .and_then(|value| HeaderValue::from_str(value).ok())
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-transform"));
    if let Some(name) = &grant.name {
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        if let Ok(value) = HeaderValue::from_str(&format!("inline; filename*=UTF-8''{name}")) {
            headers.insert(header::CONTENT_DISPOSITION, value);
        }
    }
}

async fn upload(
    FromState(state): FromState<State>,
    Segments(key): Segments<String>,
    Parameters(proof): Parameters<Proof>,
    request: Request,
) -> Answer<Response> {
    let (parts, body) = request.into_parts();
    match expected(&state, &key, proof, &parts.headers).await {
        Ok(Some(grant)) => receive(&state, &key, &grant, body).await,
        Ok(None) => {
            discard(body).await;
            Ok(StatusCode::OK.into_response())
        }
        Err(failure) => {
            discard(body).await;
            Err(failure)
        }
    }
}

/// Checks what can be checked before the bytes. None means that the same
/// bytes are there already and in use.
async fn expected(state: &State, key: &str, proof: Proof, headers: &HeaderMap) -> Answer<Option<Grant>> {
    let grant = granted(state, Operation::Put, key, proof)?;
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if sent != grant.content_type.as_deref() {
        return Err(Failure::forbidden("the Content-Type is not the one that the address fixes")
            .hint("send the headers that came with the address, as they are"));
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if let (Some(announced), Some(length)) = (grant.length, length)
        && announced != length
    {
        return Err(Failure::invalid(format!(
            "{announced} bytes were announced, but the request has {length}"
        )));
    }
    let row = match state.store().upload(key).await {
        Err(StoreError::NotFound(Entity::Upload)) => {
            return Err(
                Failure::forbidden("the upload is not expected any more").hint("ask for a new address")
            );
        }
        other => other?,
    };
    if !row.claimed {
        return Ok(Some(grant));
    }
    match row.upload.purpose {
        // A program's key is its digest, so its bytes cannot differ.
        UploadPurpose::Program if state.blobs().size(key).await?.is_some() => Ok(None),
        UploadPurpose::Program => Ok(Some(grant)),
        UploadPurpose::Artifact { .. } => {
            Err(Failure::conflict("the artifact was committed; its bytes are final"))
        }
    }
}

async fn receive(state: &State, key: &str, grant: &Grant, body: Body) -> Answer<Response> {
    let idle = Duration::from_millis(state.config().intervals.body_idle_ms);
    let chunks = stream::try_unfold(body, move |mut body| async move {
        match next(&mut body, idle).await {
            Ok(Some(chunk)) => Ok(Some((chunk, body))),
            Ok(None) => Ok(None),
            Err(_) => Err(io::Error::other("the request body was cut")),
        }
    });
    let expected = BlobExpectation { size: grant.length, sha256: grant.digest.as_deref(), max_size: None };
    let stored = state.blobs().put_stream(key, chunks, expected).await?;
    let received = state.store().receive_upload(key, stored.size, &stored.sha256).await;
    if let Err(error) = received {
        // The announcement went while the bytes arrived: nobody will claim
        // them, so they must not stay.
        if let Err(error) = state.blobs().delete(key).await {
            tracing::warn!(%error, %key, "the bytes of a forgotten upload could not be removed");
        }
        return Err(error.into());
    }
    Ok(StatusCode::OK.into_response())
}

/// A blob as a blocking reader, for code that runs outside the event loop.
pub(crate) async fn reader(state: &State, key: &str) -> Answer<impl Read + Send + use<>> {
    let blob = state.blobs().get(key).await?;
    let bytes: Pin<Box<dyn stream::Stream<Item = io::Result<Bytes>> + Send>> =
        Box::pin(blob.bytes.map_err(io::Error::other));
    Ok(SyncIoBridge::new(StreamReader::new(bytes)))
}
