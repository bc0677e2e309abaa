//! Bytes beside the store: program artifacts, artifacts of runs.
//!
//! A blob appears under its key only when it is whole, checked and on disk: it is written beside its
//! place, synced, renamed, and the directory synced.

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};
use sha2::{Digest as _, Sha256};

use crate::data_dir::denied;
use crate::error::{Entity, StoreError, StoreResult};

/// Bytes that are written at once.
const PART: usize = 1024 * 1024;

/// What is known about a blob before its bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobExpectation<'a> {
    /// Exact size in bytes.
    pub size: Option<u64>,
    /// SHA-256, lower-case hex.
    pub sha256: Option<&'a str>,
    /// More bytes than this are refused.
    pub max_size: Option<u64>,
}

/// A blob that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

/// A blob to be read.
pub struct BlobReader {
    /// Size of the whole blob in bytes.
    pub size: u64,
    /// The bytes (of the asked range).
    pub bytes: BoxStream<'static, StoreResult<Bytes>>,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BlobReader").field("size", &self.size).finish_non_exhaustive()
    }
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
}

/// The blob store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
}

impl Blobs {
    /// Blobs in a local directory (0700), which is made if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Denied`] when it may not be used.
    pub fn local(directory: &FilePath) -> StoreResult<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| denied(directory, &error))?;
        let store = LocalFileSystem::new_with_prefix(directory).map_err(blob_error)?.with_fsync(true);
        Ok(Self { store: Arc::new(store) })
    }

    /// Writes a blob whole. An existing one of the key is replaced.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] when the bytes are not the expected ones; nothing is stored then.
    pub async fn put(
        &self,
        key: &str,
        bytes: Bytes,
        expected: BlobExpectation<'_>,
    ) -> StoreResult<StoredBlob> {
        let stream = futures_util::stream::once(std::future::ready(Ok::<_, std::io::Error>(bytes)));
        self.put_stream(key, stream, expected).await
    }

    /// Writes a blob as its bytes arrive. An existing one of the key is replaced at the end.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] when the bytes are not the expected ones or their source fails;
    /// nothing is stored then.
    pub async fn put_stream<S, E>(
        &self,
        key: &str,
        bytes: S,
        expected: BlobExpectation<'_>,
    ) -> StoreResult<StoredBlob>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: std::fmt::Display,
    {
        let path = path(key)?;
        let mut upload = self.store.put_multipart(&path).await.map_err(blob_error)?;
        let written = write_parts(&mut *upload, bytes, expected).await;
        let written = match written {
            Ok(written) => upload.complete().await.map(|_| written).map_err(blob_error),
            Err(error) => Err(error),
        };
        if written.is_err() {
            // What was written beside the blob's place is of no use; if it cannot be removed either,
            // the first error is the one to tell.
            let _ = upload.abort().await;
        }
        written
    }

    /// Opens a blob.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none under the key.
    pub async fn get(&self, key: &str) -> StoreResult<BlobReader> {
        self.open(key, None).await
    }

    /// Opens a part of a blob; the range is cut at the blob's end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when the range starts behind the end.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> StoreResult<BlobReader> {
        self.open(key, Some(range)).await
    }

    async fn open(&self, key: &str, range: Option<Range<u64>>) -> StoreResult<BlobReader> {
        let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
        let result = self.store.get_opts(&path(key)?, options).await.map_err(blob_error)?;
        Ok(BlobReader { size: result.meta.size, bytes: result.into_stream().map_err(blob_error).boxed() })
    }

    /// A whole blob in memory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Invalid`] when it is larger than `max` bytes.
    pub async fn read(&self, key: &str, max: u64) -> StoreResult<Bytes> {
        let reader = self.get(key).await?;
        if reader.size > max {
            return Err(StoreError::Invalid(format!("{} bytes, more than the {max} allowed", reader.size)));
        }
        let whole = reader
            .bytes
            .try_fold(BytesMut::new(), |mut whole, part| async move {
                whole.extend_from_slice(&part);
                Ok(whole)
            })
            .await?;
        Ok(whole.freeze())
    }

    /// Size of a blob in bytes; `None` when there is none.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn size(&self, key: &str) -> StoreResult<Option<u64>> {
        match self.store.head(&path(key)?).await.map_err(blob_error) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a blob, if there is one.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn delete(&self, key: &str) -> StoreResult<()> {
        match self.store.delete(&path(key)?).await.map_err(blob_error) {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All blobs whose key starts with these path segments, by key.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn list(&self, prefix: &str) -> StoreResult<Vec<ListedBlob>> {
        let prefix = if prefix.is_empty() { None } else { Some(path(prefix)?) };
        let mut list: Vec<ListedBlob> = self
            .store
            .list(prefix.as_ref())
            .map_ok(|meta| ListedBlob { key: meta.location.to_string(), size: meta.size })
            .try_collect()
            .await
            .map_err(blob_error)?;
        list.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(list)
    }
}

/// Segments of letters, digits, `.`, `-` and `_`, joined by `/`; no segment is `.` or `..`.
fn path(key: &str) -> StoreResult<Path> {
    let good = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    };
    if key.split('/').all(good) {
        Path::parse(key).map_err(|error| StoreError::Invalid(error.to_string()))
    } else {
        Err(StoreError::Invalid(format!("{key:?} is no blob key")))
    }
}

async fn write_parts<S, E>(
    upload: &mut dyn MultipartUpload,
    bytes: S,
    expected: BlobExpectation<'_>,
) -> StoreResult<StoredBlob>
where
    S: Stream<Item = Result<Bytes, E>> + Send,
    E: std::fmt::Display,
{
    let limit = [expected.size, expected.max_size].into_iter().flatten().min();
    let mut digest = Sha256::new();
    let mut size = 0_u64;
    let mut part = BytesMut::new();
    let mut bytes = std::pin::pin!(bytes);
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|error| StoreError::Mismatch(format!("the upload broke off: {error}")))?;
        size += chunk.len() as u64;
        if let Some(limit) = limit.filter(|limit| size > *limit) {
            return Err(StoreError::Mismatch(format!("more than {limit} bytes arrived")));
        }
        digest.update(&chunk);
        part.extend_from_slice(&chunk);
        while part.len() >= PART {
            let full = part.split_to(PART).freeze();
            upload.put_part(PutPayload::from(full)).await.map_err(blob_error)?;
        }
    }
    if !part.is_empty() || size == 0 {
        upload.put_part(PutPayload::from(part.freeze())).await.map_err(blob_error)?;
    }
    let stored = StoredBlob { size, sha256: hex::encode(digest.finalize()) };
    if let Some(announced) = expected.size.filter(|announced| *announced != size) {
        return Err(StoreError::Mismatch(format!("{size} bytes arrived, {announced} were announced")));
    }
    if expected.sha256.is_some_and(|announced| announced != stored.sha256) {
        return Err(StoreError::Mismatch(
            "the bytes that arrived have another SHA-256 than announced".into(),
        ));
    }
    Ok(stored)
}

fn blob_error(error: object_store::Error) -> StoreError {
    let text = error.to_string();
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            match io.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    return StoreError::Full(text);
                }
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    return StoreError::Denied { path: "blobs".into(), reason: text };
                }
                _ => {}
            }
        }
        source = cause.source();
    }
    match error {
        object_store::Error::NotFound { .. } => StoreError::NotFound(Entity::Blob),
        object_store::Error::Generic { .. } if text.contains("range") => StoreError::Invalid(text),
        _ => StoreError::Unavailable(text),
    }
}
