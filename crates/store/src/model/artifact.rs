//! Artifacts and announced uploads.

use trestle_contract::ids::{ArtifactId, RunId};
use trestle_contract::json::RawJson;

use super::lease::Fence;

/// An artifact whose bytes are already in the blob store.
#[derive(Debug, Clone)]
pub struct NewArtifact {
    /// From the run token.
    pub fence: Fence,
    /// Name.
    pub name: String,
    /// Content type as the program named it.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// Key in the blob store.
    pub blob_key: String,
    /// Metadata object.
    pub metadata: Option<RawJson>,
    /// Set for a commit: the announced upload, which may be committed once. A repeat returns the
    /// same row. Without it, a write of the same name and content within the dedupe window is a
    /// repeat.
    pub upload_key: Option<String>,
}

/// A written artifact.
#[derive(Debug, Clone)]
pub struct WrittenArtifact {
    /// The row.
    pub artifact: ArtifactRow,
    /// False for a repeat. Then `blob_key` of the row is the one that counts, and the caller's new
    /// blob (if it is another) is garbage.
    pub created: bool,
}

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRow {
    /// Its id.
    pub id: ArtifactId,
    /// Its run.
    pub run: RunId,
    /// Name; several artifacts of a run may share it.
    pub name: String,
    /// Content type as named.
    pub content_type: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// Key in the blob store.
    pub blob_key: String,
    /// Metadata object.
    pub metadata: Option<RawJson>,
    /// Creation, ms.
    pub created_at: i64,
}

/// What an upload is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadPurpose {
    /// A program artifact before its deploy.
    Program,
    /// An artifact of a run.
    Artifact {
        /// The run.
        run: RunId,
    },
}

/// An announced upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUpload {
    /// The key that names it in the signed URL and in the commit. Announcing it again restarts
    /// its life time.
    pub key: String,
    /// What it is for.
    pub purpose: UploadPurpose,
    /// Where its bytes go in the blob store.
    pub blob_key: String,
    /// Announced size in bytes.
    pub size: u64,
    /// Announced SHA-256, hex, if known.
    pub sha256: Option<String>,
    /// Content type.
    pub content_type: String,
    /// Metadata object.
    pub metadata: Option<RawJson>,
    /// How long it may stay unclaimed, ms.
    pub lifetime_ms: i64,
}

/// An announced upload as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRow {
    /// As announced.
    pub upload: NewUpload,
    /// SHA-256 of the bytes that arrived, hex.
    pub received_sha256: Option<String>,
    /// Size of the bytes that arrived.
    pub received_size: Option<u64>,
    /// True when a deploy or a commit has claimed it.
    pub claimed: bool,
    /// When it goes if it is not claimed, ms.
    pub expires_at: i64,
}
