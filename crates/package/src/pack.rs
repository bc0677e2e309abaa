//! Equal files become equal bytes: the tar, its digests, and the version's identity
//! (`docs/protocol/descriptor.md` §8.6).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::artifact::ArtifactFile;

/// Written to the gzip header in place of the machine's system.
const UNKNOWN_SYSTEM: u8 = 255;

/// Where a file's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Made here.
    Bytes(Vec<u8>),
    /// Copied from disk, with its executable bit.
    File(PathBuf),
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
        }
    }

    fn load(&self) -> io::Result<(Vec<u8>, u32)> {
        match self {
            Self::Bytes(bytes) => Ok((bytes.clone(), 0o644)),
            Self::File(path) => {
                let bytes = fs::read(path)?;
                let executable = path.metadata()?.permissions().mode() & 0o100 != 0;
                Ok((bytes, if executable { 0o755 } else { 0o644 }))
            }
        }
    }
}

/// A packed artifact.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// SHA-256 of the bytes, lower-case hex.
    pub(crate) digest: String,
    pub(crate) files: Vec<ArtifactFile>,
}

/// Packs the files in the order of their paths. Owner, time and all mode bits but one are fixed.
///
/// # Errors
/// A file that cannot be read, with its path in the artifact.
pub(crate) fn pack(files: &BTreeMap<String, Content>) -> Result<Packed, (String, io::Error)> {
    let compressed =
        GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM).write(Vec::new(), Compression::new(6));
    let mut builder = Builder::new(compressed);
    let mut packed = Vec::with_capacity(files.len());
    for (path, content) in files {
        let named = |error| (path.clone(), error);
        let (bytes, mode) = content.load().map_err(named)?;
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, Path::new(path), bytes.as_slice()).map_err(named)?;
        let digest = hex::encode(Sha256::digest(&bytes));
        packed.push(ArtifactFile { path: path.clone(), size: bytes.len() as u64, mode, digest });
    }
    let end = |error| (String::new(), error);
    let mut compressed = builder.into_inner().map_err(end)?;
    compressed.flush().map_err(end)?;
    let bytes = compressed.finish().map_err(end)?;
    let digest = hex::encode(Sha256::digest(&bytes));
    Ok(Packed { bytes, digest, files: packed })
}
