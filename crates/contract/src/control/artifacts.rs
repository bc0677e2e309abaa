//! Artifacts of a run (`docs/protocol/control.md` §9).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{BoundedString, EpochMs};
use crate::ids::ArtifactId;
use crate::json::RawObject;
use crate::tolerant::objects;

/// The largest artifact sent inline, in bytes before encoding.
pub const MAX_INLINE_ARTIFACT_BYTES: u64 = 4 * 1024 * 1024;
/// The largest artifact at all, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 100 * 1024 * 1024;

/// How an inline body is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactEncoding {
    /// As text.
    #[default]
    Utf8,
    /// As base64.
    Base64,
}

/// `POST artifacts`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactWriteRequest {
    /// File name, 1 to 255 UTF-16 code units.
    pub name: BoundedString<1, 255>,
    /// MIME type, 1 to 200 UTF-16 code units.
    pub content_type: BoundedString<1, 200>,
    /// The bytes, encoded.
    pub body: String,
    /// How they are encoded; text when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<ArtifactEncoding>,
    /// The author's own facts, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawObject>,
}

/// `POST artifacts` and `POST artifacts/commit`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactWriteResponse {
    /// The artifact.
    pub id: ArtifactId,
    /// File name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Where to read it without credentials.
    pub signed_url: String,
    /// Until when.
    pub expires_at: EpochMs,
}

/// `POST artifacts/presign`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactPresignRequest {
    /// File name.
    pub name: BoundedString<1, 255>,
    /// MIME type.
    pub content_type: BoundedString<1, 200>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The author's own facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawObject>,
}

/// `POST artifacts/presign`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactPresignResponse {
    /// Name of the upload, to be committed.
    #[serde(rename = "s3Key")]
    pub s3_key: String,
    /// Where to PUT the bytes.
    pub upload_url: String,
    /// Headers to send with them, verbatim.
    pub upload_headers: BTreeMap<String, String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<EpochMs>,
}

/// `POST artifacts/commit`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactCommitRequest {
    /// Name of the upload.
    #[serde(rename = "s3Key")]
    pub s3_key: String,
    /// File name.
    pub name: BoundedString<1, 255>,
    /// MIME type.
    pub content_type: BoundedString<1, 200>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The author's own facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawObject>,
}

/// One row of a list of artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactSummary {
    /// The artifact.
    pub id: ArtifactId,
    /// File name.
    pub name: String,
    /// MIME type.
    pub content_type: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// When it was written.
    pub created_at: EpochMs,
}

/// `GET artifacts`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ArtifactList {
    /// Oldest first.
    pub artifacts: Vec<ArtifactSummary>,
}

/// `POST artifacts/{id}/signed-url`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactSignRequest {
    /// How long the address should work; an hour when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// `POST artifacts/{id}/signed-url`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactSignResponse {
    /// Where to read it without credentials.
    pub signed_url: String,
    /// Until when.
    pub expires_at: EpochMs,
}

objects!(
    ArtifactWriteRequest,
    ArtifactWriteResponse,
    ArtifactPresignRequest,
    ArtifactPresignResponse,
    ArtifactCommitRequest,
    ArtifactSummary,
    ArtifactList,
    ArtifactSignRequest,
    ArtifactSignResponse
);
