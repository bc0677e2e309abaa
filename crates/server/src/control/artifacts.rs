//! Artifacts of a run (docs/protocol/control.md §9).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State as FromState;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode};
use trestle_contract::ErrorCode;
use trestle_contract::bounds::EpochMs;
use trestle_contract::control::{
    ArtifactCommitRequest, ArtifactEncoding, ArtifactList, ArtifactPresignRequest, ArtifactPresignResponse,
    ArtifactSignRequest, ArtifactSignResponse, ArtifactSummary, ArtifactWriteRequest, ArtifactWriteResponse,
};
use trestle_contract::ids::ArtifactId;
use trestle_store::{
    ArtifactRow, BlobExpectation, Entity, NewArtifact, NewUpload, StoreError, UploadPurpose, UploadRow,
};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Reply};
use crate::extract::Segments;
use crate::failure::{Answer, Failure, shown};
use crate::routes::{BodySize, Route, Table};
use crate::state::State;

/// Longest life of an address that a run asks for, in seconds.
const LONGEST_TTL: u64 = 7 * 24 * 3600;
const USUAL_TTL: u64 = 3600;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/artifacts",
            "Writes an artifact whose bytes are in the request",
        )
        .size(BodySize::Artifact)
        .takes::<ArtifactWriteRequest>()
        .answers::<ArtifactWriteResponse>(StatusCode::CREATED),
        write,
    );
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/artifacts/presign",
            "An address for the bytes of a large artifact",
        )
        .takes::<ArtifactPresignRequest>()
        .answers::<ArtifactPresignResponse>(StatusCode::CREATED),
        presign,
    );
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/artifacts/commit",
            "Makes uploaded bytes an artifact",
        )
        .takes::<ArtifactCommitRequest>()
        .answers::<ArtifactWriteResponse>(StatusCode::CREATED),
        commit,
    );
    table.add(
        Route::run(Method::GET, "/runner/v1/runs/{run}/artifacts", "Artifacts of the run, oldest first")
            .answers::<ArtifactList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/artifacts/{artifact}/signed-url",
            "An address of an artifact's bytes",
        )
        .takes::<ArtifactSignRequest>()
        .answers::<ArtifactSignResponse>(StatusCode::OK),
        sign,
    );
}

/// The content type that an artifact is served with. What a browser would run
/// is served as plain text, so that nothing a run writes can act in the name
/// of this origin.
pub(crate) fn neutral_type(content_type: &str) -> String {
    const ACTIVE: [&str; 8] = [
        "text/html",
        "application/xhtml+xml",
        "image/svg+xml",
        "application/xml",
        "text/xml",
        "text/javascript",
        "application/javascript",
        "application/ecmascript",
    ];
    let base = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if ACTIVE.contains(&base.as_str()) {
        "text/plain; charset=utf-8".to_owned()
    } else {
        content_type.trim().to_owned()
    }
}

/// The extension of an object: the name's own, else the content type's.
fn extension(name: &str, content_type: &str) -> String {
    let own = name
        .rsplit_once('.')
        .filter(|(stem, _)| !stem.is_empty())
        .map(|(_, extension)| extension)
        .filter(|extension| {
            (1..=16).contains(&extension.len()) && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
    let base = content_type.split(';').next().unwrap_or("").trim();
    let by_type = || match base {
        "application/json" => Some("json"),
        "text/plain" => Some("txt"),
        "text/csv" => Some("csv"),
        "text/markdown" => Some("md"),
        "text/html" => Some("html"),
        "application/pdf" => Some("pdf"),
        "image/png" => Some("png"),
        "image/jpeg" => Some("jpg"),
        _ => None,
    };
    own.or_else(by_type).map_or_else(String::new, |extension| format!(".{extension}"))
}

fn prefix(state: &State, auth: &RunAuth) -> String {
    format!("orgs/{}/runs/{}/", state.organisation().id, auth.run())
}

fn new_key(state: &State, auth: &RunAuth, name: &str, content_type: &str) -> String {
    let random: [u8; 16] = rand::random();
    format!("{}{}{}", prefix(state, auth), hex::encode(random), extension(name, content_type))
}

fn check(state: &State, name: &str, content_type: &str, size: u64) -> Answer<()> {
    let limit = state.config().limits.artifact;
    if size > limit {
        return Err(Failure::new(
            ErrorCode::PayloadTooLarge,
            format!("the artifact has {size} bytes, at most {limit} are allowed"),
        )
        .hint("split it into several artifacts"));
    }
    for (field, text) in [("name", name), ("contentType", content_type)] {
        if text.chars().any(char::is_control) {
            return Err(Failure::invalid(format!("{field} must not hold control characters")));
        }
    }
    if http::HeaderValue::from_str(content_type).is_err() {
        return Err(Failure::invalid("contentType must be a content type"));
    }
    Ok(())
}

fn written(state: &State, row: ArtifactRow) -> ArtifactWriteResponse {
    let (signed_url, expires) = address(state, &row, USUAL_TTL);
    ArtifactWriteResponse {
        id: row.id,
        name: row.name,
        size_bytes: row.size,
        signed_url,
        expires_at: EpochMs::saturating_signed(expires),
    }
}

fn address(state: &State, row: &ArtifactRow, seconds: u64) -> (String, i64) {
    state.download(
        &row.blob_key,
        Duration::from_secs(seconds),
        Some(&neutral_type(&row.content_type)),
        Some(&row.name),
    )
}

async fn write(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<ArtifactWriteRequest>,
) -> Answer<Reply<ArtifactWriteResponse>> {
    held(&state, &auth).await?;
    let bytes = match request.encoding.unwrap_or_default() {
        ArtifactEncoding::Utf8 => Bytes::from(request.body),
        ArtifactEncoding::Base64 => BASE64_STANDARD
            .decode(request.body.as_bytes())
            .map(Bytes::from)
            .map_err(|error| Failure::invalid(format!("the body is not base64: {error}")))?,
    };
    let (name, content_type) = (request.name.as_str(), request.content_type.as_str());
    let size = bytes.len() as u64;
    check(&state, name, content_type, size)?;
    let key = new_key(&state, &auth, name, content_type);
    let blob = state.blobs().put(&key, bytes, BlobExpectation::default()).await?;
    let stored = state
        .store()
        .write_artifact(NewArtifact {
            fence: auth.fence(),
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            size,
            sha256: blob.sha256,
            blob_key: key.clone(),
            metadata: request.metadata.map(|metadata| metadata.as_json().clone()),
            upload_key: None,
        })
        .await;
    // A refused write and a repeat leave their bytes without a row.
    let unused = match &stored {
        Ok(stored) => stored.artifact.blob_key != key,
        Err(_) => true,
    };
    if unused && let Err(error) = state.blobs().delete(&key).await {
        tracing::warn!(%error, %key, "the bytes of a repeated artifact could not be removed");
    }
    Ok(Reply::created(written(&state, stored?.artifact)))
}

async fn presign(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<ArtifactPresignRequest>,
) -> Answer<Reply<ArtifactPresignResponse>> {
    held(&state, &auth).await?;
    let (name, content_type) = (request.name.as_str(), request.content_type.as_str());
    check(&state, name, content_type, request.size_bytes)?;
    let key = new_key(&state, &auth, name, content_type);
    let served = neutral_type(content_type);
    let lifetime = state.config().intervals.unclaimed_upload_ms;
    state
        .store()
        .create_upload(NewUpload {
            key: key.clone(),
            purpose: UploadPurpose::Artifact { run: auth.run().clone() },
            blob_key: key.clone(),
            size: request.size_bytes,
            sha256: None,
            content_type: served.clone(),
            metadata: request.metadata.map(|metadata| metadata.as_json().clone()),
            lifetime_ms: i64::try_from(lifetime).unwrap_or(i64::MAX),
        })
        .await?;
    let (upload_url, expires) = state.upload(&key, request.size_bytes, None, &served);
    Ok(Reply::created(ArtifactPresignResponse {
        s3_key: key,
        upload_url,
        upload_headers: BTreeMap::from([("content-type".to_owned(), served)]),
        expires_at: Some(EpochMs::saturating_signed(expires)),
    }))
}

async fn commit(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Json(request): Json<ArtifactCommitRequest>,
) -> Answer<Reply<ArtifactWriteResponse>> {
    held(&state, &auth).await?;
    let key = request.s3_key;
    if !key.starts_with(&prefix(&state, &auth)) {
        return Err(Failure::forbidden("the upload belongs to another run"));
    }
    let _claiming = state.uploads().read().await;
    let upload = match state.store().upload(&key).await {
        Ok(upload) => upload,
        Err(StoreError::NotFound(_)) => return committed(&state, &auth, &key).await,
        Err(error) => return Err(error.into()),
    };
    let (size, sha256) = received(&upload, request.size_bytes)?;
    let metadata = request.metadata.map(|metadata| metadata.as_json().clone()).or(upload.upload.metadata);
    let stored = state
        .store()
        .write_artifact(NewArtifact {
            fence: auth.fence(),
            name: request.name.as_str().to_owned(),
            content_type: request.content_type.as_str().to_owned(),
            size,
            sha256,
            blob_key: upload.upload.blob_key,
            metadata,
            upload_key: Some(key),
        })
        .await?;
    Ok(Reply::created(written(&state, stored.artifact)))
}

/// Size and digest of the bytes that arrived, which must be those announced.
fn received(upload: &UploadRow, announced: u64) -> Answer<(u64, String)> {
    let (Some(size), Some(sha256)) = (upload.received_size, upload.received_sha256.clone()) else {
        return Err(Failure::conflict("the bytes of this upload have not arrived")
            .hint("PUT them to uploadUrl first"));
    };
    if size != announced {
        return Err(Failure::invalid(format!("sizeBytes is {announced}, but {size} bytes arrived")));
    }
    Ok((size, sha256))
}

/// A repeat of a commit whose upload is forgotten already.
async fn committed(state: &State, auth: &RunAuth, key: &str) -> Answer<Reply<ArtifactWriteResponse>> {
    state
        .store()
        .list_artifacts(auth.run())
        .await?
        .into_iter()
        .find(|row| row.blob_key == key)
        .map(|row| Reply::created(written(state, row)))
        .ok_or_else(|| {
            Failure::not_found("upload", key).hint("presign again; an unclaimed upload is kept for an hour")
        })
}

async fn list(FromState(state): FromState<State>, auth: RunAuth) -> Answer<Reply<ArtifactList>> {
    held(&state, &auth).await?;
    let rows = state.store().list_artifacts(auth.run()).await?;
    Ok(Reply::ok(ArtifactList {
        artifacts: rows
            .into_iter()
            .map(|row| ArtifactSummary {
                id: row.id,
                name: row.name,
                content_type: row.content_type,
                size_bytes: row.size,
                created_at: EpochMs::saturating_signed(row.created_at),
            })
            .collect(),
    }))
}

async fn sign(
    FromState(state): FromState<State>,
    auth: RunAuth,
    Segments((_, artifact)): Segments<(String, String)>,
    Json(request): Json<ArtifactSignRequest>,
) -> Answer<Reply<ArtifactSignResponse>> {
    held(&state, &auth).await?;
    let missing = || Failure::not_found("artifact", &shown(&artifact));
    let seconds = request.ttl_seconds.unwrap_or(USUAL_TTL);
    if !(1..=LONGEST_TTL).contains(&seconds) {
        return Err(Failure::invalid(format!("ttlSeconds must be 1 to {LONGEST_TTL}, not {seconds}")));
    }
    let id = ArtifactId::new(artifact.clone()).map_err(|_| missing())?;
    let row = match state.store().artifact(&id).await {
        Ok(row) if row.run == *auth.run() => row,
        Ok(_) | Err(StoreError::NotFound(Entity::Artifact)) => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let (signed_url, expires) = address(&state, &row, seconds);
    Ok(Reply::ok(ArtifactSignResponse { signed_url, expires_at: EpochMs::saturating_signed(expires) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_would_run_is_served_as_text() {
        for active in ["text/html", "Text/HTML; charset=x", " image/svg+xml ", "application/javascript;a=b"] {
            assert_eq!(neutral_type(active), "text/plain; charset=utf-8", "{active}");
        }
        assert_eq!(neutral_type("application/json"), "application/json");
        assert_eq!(neutral_type("text/plain; charset=ascii"), "text/plain; charset=ascii");
    }

    #[test]
    fn an_object_keeps_a_plain_extension_only() {
        assert_eq!(extension("a.TXT", "x/y"), ".TXT");
        assert_eq!(extension("a", "application/json; charset=utf-8"), ".json");
        assert_eq!(extension("a", "x/y"), "");
        assert_eq!(extension(".env", "x/y"), "");
        assert_eq!(extension("a./../../b", "x/y"), "");
        assert_eq!(extension("a.tar.gz", "x/y"), ".gz");
    }
}
