//! Persistent workspaces (`docs/protocol/control.md` §10).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::tolerant::objects;

/// The most digests in one request about packs.
pub const MAX_PACK_DIGESTS: usize = 256;

/// `POST workspace/reserve`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ReserveRequest {
    /// Size that the workspace will have.
    pub total_bytes: u64,
}

/// Why room was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ReserveRefusal {
    /// This run keeps its workspace elsewhere, or has none.
    NotEligible,
    /// No room left.
    StorageLimit,
}

/// `POST workspace/reserve`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ReserveResponse {
    /// Whether there is room.
    pub ok: bool,
    /// Why not; absent and unknown reasons mean `not_eligible`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "refusal")]
    pub reason: Option<ReserveRefusal>,
    /// How much there would be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

fn refusal<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<ReserveRefusal>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|reason| match reason.as_str() {
        "storage_limit" => ReserveRefusal::StorageLimit,
        _ => ReserveRefusal::NotEligible,
    }))
}

/// `POST workspace/manifest/read`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct ManifestReadRequest {}

/// `POST workspace/manifest/read`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ManifestReadResponse {
    /// The manifest's text; `null` when there is none.
    pub manifest: Option<String>,
    /// Its version, for the next write.
    pub generation: Option<String>,
}

/// `POST workspace/manifest/write`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ManifestWriteRequest {
    /// The new text.
    pub manifest: String,
    /// The version that it replaces; `null` asserts that there is none.
    pub expected: Option<String>,
    /// The size reserved before.
    pub total_bytes: u64,
}

/// `POST workspace/manifest/write`, response 200. Every `ok: false` is a conflict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ManifestWriteResponse {
    /// Whether it was written.
    pub ok: bool,
    /// The new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// Whether another write came first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<bool>,
}

/// `POST workspace/packs/exists`, request; at most [`MAX_PACK_DIGESTS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct PackDigests {
    /// Digests of the stored bytes.
    pub digests: Vec<Digest>,
}

/// `POST workspace/packs/exists`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct PackExistsResponse {
    /// Those that are stored.
    #[serde(default)]
    pub existing: Vec<Digest>,
}

/// What a pack's address is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PackOperation {
    /// To write it.
    Put,
    /// To read it.
    Get,
}

/// `POST workspace/packs/presign`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct PackPresignRequest {
    /// What for.
    pub op: PackOperation,
    /// Digests of the stored bytes.
    pub digests: Vec<Digest>,
}

/// `POST workspace/packs/presign`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct PackPresignResponse {
    /// Address by digest; one left out was declined.
    #[serde(default)]
    pub urls: BTreeMap<String, String>,
}

/// `POST workspace/packs/delete`, request. Answered 204.
pub type PackDeleteRequest = PackDigests;

/// `POST workspace/hydrate-url`, response 200; the request has no body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(remote = "Self")]
pub struct HydrateUrlResponse {
    /// Always `null` here.
    pub url: Option<String>,
}

/// `POST workspace/persist-url`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct PersistUrlRequest {
    /// Size of the tarball.
    pub size_bytes: u64,
}

/// `POST workspace/persist-url`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct PersistUrlResponse {
    /// Always `null` here.
    pub url: Option<String>,
    /// Content type to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Why there is no address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

objects!(
    ReserveRequest,
    ReserveResponse,
    ManifestReadRequest,
    ManifestReadResponse,
    ManifestWriteRequest,
    ManifestWriteResponse,
    PackDigests,
    PackExistsResponse,
    PackPresignRequest,
    PackPresignResponse,
    HydrateUrlResponse,
    PersistUrlRequest,
    PersistUrlResponse
);
