//! Artifacts of a run, and the signed addresses of their bytes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use trestle_contract::ErrorCode;
use trestle_contract::control::{
    ArtifactCommitRequest, ArtifactEncoding, ArtifactList, ArtifactPresignRequest, ArtifactPresignResponse,
    ArtifactSignRequest, ArtifactSignResponse, ArtifactSummary, ArtifactWriteRequest, ArtifactWriteResponse,
};
use trestle_contract::json::RawObject;

use super::connection::{Answer, Call};
use super::plane::Inner;
use super::pool::{expiry, now};
use super::routes::{body, violation};
use super::run::{Outcome, unusable, with_run};
use super::state::StoredArtifact;

pub(super) fn answer(inner: &Inner, call: &Call, method: &str, run_id: &str, rest: &[&str]) -> Outcome {
    match (method, rest) {
        ("POST", []) => write(inner, call, run_id),
        ("POST", ["presign"]) => presign(inner, call, run_id),
        ("POST", ["commit"]) => commit(inner, call, run_id),
        ("GET", []) => list(inner, run_id),
        ("POST", [id, "signed-url"]) => {
            body::<ArtifactSignRequest>(inner, call)?;
            let known =
                with_run(inner, run_id, |run| run.artifacts.iter().any(|artifact| artifact.id == *id))?;
            if !known {
                return Err(Answer::failure(ErrorCode::NotFound, "no such artifact"));
            }
            Ok(Answer::json(
                200,
                &ArtifactSignResponse { signed_url: url(inner, run_id, id), expires_at: now() },
            ))
        }
        _ => {
            violation(inner, call, "no such endpoint");
            Err(Answer::failure(ErrorCode::NotFound, "no such endpoint"))
        }
    }
}

fn url(inner: &Inner, run_id: &str, id: &str) -> String {
    format!("{}/blobs/{run_id}/{id}", inner.url())
}

fn metadata(raw: Option<RawObject>) -> Result<Option<serde_json::Value>, Answer> {
    raw.map(|raw| raw.as_json().to_value()).transpose().map_err(unusable)
}

/// Stores an artifact and answers with its row.
fn store(inner: &Inner, run_id: &str, artifact: StoredArtifact) -> Outcome {
    let response = ArtifactWriteResponse {
        id: artifact.id.parse().map_err(unusable)?,
        name: artifact.name.clone(),
        size_bytes: artifact.bytes.len() as u64,
        signed_url: url(inner, run_id, &artifact.id),
        expires_at: expiry(inner.options.lease),
    };
    with_run(inner, run_id, |run| {
        if !run.artifacts.iter().any(|known| known.id == artifact.id) {
            run.artifacts.push(artifact);
        }
    })?;
    Ok(Answer::json(201, &response))
}

fn write(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<ArtifactWriteRequest>(inner, call)?;
    let bytes = match request.encoding.unwrap_or_default() {
        ArtifactEncoding::Utf8 => Bytes::from(request.body),
        ArtifactEncoding::Base64 => STANDARD.decode(&request.body).map(Bytes::from).map_err(|error| {
            violation(inner, call, &format!("body: {error}"));
            Answer::failure(ErrorCode::ValidationFailed, "the body is no base64")
        })?,
    };
    // The same file under the same name is the repeat of a write whose answer was lost.
    let known = with_run(inner, run_id, |run| {
        let same = |known: &&StoredArtifact| known.name == request.name.as_str() && known.bytes == bytes;
        run.artifacts.iter().find(same).map(|known| known.id.clone())
    })?;
    let artifact = StoredArtifact {
        id: known.unwrap_or_else(|| inner.change(|state| state.mint("artifact"))),
        name: request.name.to_string(),
        content_type: request.content_type.to_string(),
        bytes,
        metadata: metadata(request.metadata)?,
    };
    store(inner, run_id, artifact)
}

fn presign(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<ArtifactPresignRequest>(inner, call)?;
    let key = inner.change(|state| state.mint("artifact"));
    with_run(inner, run_id, |run| run.uploads.insert(key.clone(), None))?;
    let response = ArtifactPresignResponse {
        upload_url: url(inner, run_id, &key),
        s3_key: key,
        upload_headers: BTreeMap::from([("content-type".to_owned(), request.content_type.to_string())]),
        expires_at: Some(expiry(inner.options.lease)),
    };
    Ok(Answer::json(201, &response))
}

fn commit(inner: &Inner, call: &Call, run_id: &str) -> Outcome {
    let request = body::<ArtifactCommitRequest>(inner, call)?;
    let uploaded = with_run(inner, run_id, |run| run.uploads.get(&request.s3_key).cloned().flatten())?;
    let Some(bytes) = uploaded else {
        violation(inner, call, "a commit without an upload");
        return Err(Answer::failure(ErrorCode::NotFound, "nothing was uploaded under that key"));
    };
    if bytes.len() as u64 != request.size_bytes {
        violation(inner, call, "a commit of another size than the upload");
    }
    let artifact = StoredArtifact {
        id: request.s3_key,
        name: request.name.to_string(),
        content_type: request.content_type.to_string(),
        bytes,
        metadata: metadata(request.metadata)?,
    };
    store(inner, run_id, artifact)
}

fn list(inner: &Inner, run_id: &str) -> Outcome {
    let rows = with_run(inner, run_id, |run| run.artifacts.clone())?;
    let artifacts: Result<Vec<_>, _> = rows
        .into_iter()
        .map(|artifact| {
            Ok::<_, trestle_contract::IdError>(ArtifactSummary {
                id: artifact.id.parse()?,
                name: artifact.name,
                content_type: artifact.content_type,
                size_bytes: artifact.bytes.len() as u64,
                created_at: now(),
            })
        })
        .collect();
    Ok(Answer::json(200, &ArtifactList { artifacts: artifacts.map_err(unusable)? }))
}

/// Bytes at a signed address.
pub(super) fn blob(inner: &Inner, call: &Call, method: &str, run_id: &str, key: &str) -> Answer {
    let outcome = with_run(inner, run_id, |run| match method {
        "PUT" => run.uploads.get_mut(key).map(|upload| {
            *upload = Some(call.body.clone());
            Answer::empty(200)
        }),
        _ => run.artifacts.iter().find(|artifact| artifact.id == key).map(|artifact| Answer::Whole {
            status: 200,
            headers: vec![("content-type", artifact.content_type.clone())],
            body: artifact.bytes.clone(),
        }),
    });
    match outcome {
        Ok(Some(answer)) => answer,
        Ok(None) => Answer::failure(ErrorCode::NotFound, "no such address"),
        Err(answer) => answer,
    }
}
