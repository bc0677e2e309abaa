//! The one walk over the entries of an artifact.

use std::collections::BTreeMap;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};
use trestle_contract::ErrorCode;

/// Longest path of an entry, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Largest extension record (long names), in bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// Packages that only the runtime may bring.
const SDK_PACKAGES: [&str; 2] = ["@boardwalk-labs/workflow", "@trestle/workflow"];

/// Upper bounds of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the packed artifact.
    pub packed_bytes: u64,
    /// Bytes of all unpacked files together.
    pub unpacked_bytes: u64,
    /// Entries.
    pub entries: usize,
}

impl Default for Limits {
    /// 256 MiB packed, 1 GiB unpacked, 50,000 entries.
    fn default() -> Self {
        Self { packed_bytes: 256 << 20, unpacked_bytes: 1 << 30, entries: 50_000 }
    }
}

/// Why an artifact is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// Not a gzip tar, or a damaged one.
    #[error("the artifact is not a readable gzip tar: {0}")]
    Damaged(String),
    /// An entry that no artifact may have.
    #[error("the artifact entry `{path}` is refused: {reason}")]
    Entry {
        /// The entry's path as far as it can be shown.
        path: String,
        /// Why.
        reason: String,
    },
    /// More than the limits allow.
    #[error("the artifact has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// The entries as a whole are not a program.
    #[error("{message}")]
    Contents {
        /// What is missing or twice.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// The disk refused.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// The file, relative to the destination.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl ArtifactError {
    /// The wire code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Damaged(_) | Self::Entry { .. } | Self::Contents { .. } => ErrorCode::ValidationFailed,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::Write { .. } => ErrorCode::InternalError,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Damaged(_) => Some("build the artifact again and upload exactly those bytes"),
            Self::Entry { reason, .. } if reason.contains("SDK") => {
                Some("leave the SDK out of the artifact; the runtime provides it")
            }
            Self::Entry { .. } => Some("an artifact holds plain files below its root, each once"),
            Self::TooLarge { .. } => {
                Some("ship less: check the globs of \"files\", or fetch large data at run time")
            }
            Self::Contents { hint, .. } => Some(hint),
            Self::Write { .. } => Some("check the free space and the rights of the folder"),
        }
    }
}

/// One file of the artifact while the walk stands on it.
pub(super) struct FileEntry<'e, R: Read> {
    pub(super) path: &'e str,
    pub(super) size: u64,
    /// 0644 or 0755.
    pub(super) mode: u32,
    pub(super) content: &'e mut R,
}

/// The reader of one entry's content; a name for what `tar` hands out.
pub(super) type Content<'a, R> = Entry<'a, Bounded<MultiGzDecoder<Bounded<R>>>>;

/// Calls `visit` for every file, in the order of the archive.
pub(super) fn walk<R: Read>(
    reader: R,
    limits: &Limits,
    mut visit: impl FnMut(FileEntry<'_, Content<'_, R>>) -> Result<(), ArtifactError>,
) -> Result<(), ArtifactError> {
    let packed = Bounded::new(reader, limits.packed_bytes, "packed bytes");
    // Headers and padding are not file content, but they are decompressed all the same.
    let with_headers = limits.unpacked_bytes.saturating_add(2048 * limits.entries as u64);
    let unpacked = Bounded::new(MultiGzDecoder::new(packed), with_headers, "unpacked bytes");
    let mut archive = Archive::new(unpacked);
    let entries = archive.entries().map_err(|error| read_error(&error))?.raw(true);
    let mut paths = Paths::default();
    let mut long_name: Option<Vec<u8>> = None;
    let mut total = 0_u64;
    let mut count = 0_usize;
    for entry in entries {
        let mut entry = entry.map_err(|error| read_error(&error))?;
        count += 1;
        if count > limits.entries {
            return Err(ArtifactError::TooLarge { what: "entries", limit: limits.entries as u64 });
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
            long_name = extended_name(&mut entry, kind)?.or(long_name);
            continue;
        }
        if kind.is_pax_global_extensions() {
            continue;
        }
        let raw = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let path = clean_path(&raw)?;
        match kind {
            EntryType::Directory => {
                if let Some(path) = path {
                    paths.directory(&path)?;
                }
                continue;
            }
            EntryType::Regular | EntryType::Continuous => {}
            other => return Err(refuse(&raw, &format!("it is {}, not a plain file", kind_name(other)))),
        }
        let path = path.ok_or_else(|| refuse(&raw, "a file needs a name"))?;
        paths.file(&path)?;
        let size = entry.header().entry_size().map_err(|error| read_error(&error))?;
        total = total.saturating_add(size);
        if total > limits.unpacked_bytes {
            return Err(ArtifactError::TooLarge { what: "unpacked bytes", limit: limits.unpacked_bytes });
        }
        let executable = entry.header().mode().unwrap_or(0) & 0o100 != 0;
        let mode = if executable { 0o755 } else { 0o644 };
        visit(FileEntry { path: &path, size, mode, content: &mut entry })?;
    }
    // The end of the tar is not the end of the file: the checksum comes after it.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| read_error(&error))?;
    Ok(())
}

pub(super) fn read_error(error: &io::Error) -> ArtifactError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TooMany>()) {
        Some(TooMany { what, limit }) => ArtifactError::TooLarge { what, limit: *limit },
        None => ArtifactError::Damaged(error.to_string()),
    }
}

fn refuse(raw: &[u8], reason: &str) -> ArtifactError {
    let shown: String = raw.escape_ascii().take(200).map(char::from).collect();
    ArtifactError::Entry { path: shown, reason: reason.to_owned() }
}

fn kind_name(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "a symbolic link",
        EntryType::Link => "a hard link",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        _ => "a special entry",
    }
}

/// The name that an extension record gives to the entry after it.
fn extended_name<R: Read>(
    entry: &mut Entry<'_, R>,
    kind: EntryType,
) -> Result<Option<Vec<u8>>, ArtifactError> {
    let mut record = Vec::new();
    let mut bounded = entry.take(MAX_RECORD_BYTES + 1);
    bounded.read_to_end(&mut record).map_err(|error| read_error(&error))?;
    if record.len() as u64 > MAX_RECORD_BYTES {
        return Err(ArtifactError::TooLarge {
            what: "bytes in an extension record",
            limit: MAX_RECORD_BYTES,
        });
    }
    if kind.is_gnu_longname() {
        while record.last() == Some(&0) {
            record.pop();
        }
        return Ok(Some(record));
    }
    let mut name = None;
    for extension in tar::PaxExtensions::new(&record) {
        let extension = extension.map_err(|error| read_error(&error))?;
        match extension.key_bytes() {
            b"path" => name = Some(extension.value_bytes().to_vec()),
            // These change what the next header means; no packer of programs needs them.
            key if key == b"size" || key.starts_with(b"GNU.sparse") => {
                return Err(ArtifactError::Damaged("sparse or oversized entries are not supported".into()));
            }
            _ => {}
        }
    }
    Ok(name)
}

/// The path relative to the root, `None` for the root itself.
fn clean_path(raw: &[u8]) -> Result<Option<String>, ArtifactError> {
    if raw.len() > MAX_PATH_BYTES {
        return Err(refuse(raw, &format!("its path is longer than {MAX_PATH_BYTES} bytes")));
    }
    let text = std::str::from_utf8(raw).map_err(|_| refuse(raw, "its path is not UTF-8"))?;
    if text.starts_with('/') {
        return Err(refuse(raw, "its path is absolute"));
    }
    if text.chars().any(char::is_control) {
        return Err(refuse(raw, "its path holds a control character"));
    }
    if text.contains('\\') {
        return Err(refuse(raw, "its path holds a backslash"));
    }
    let mut segments = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => return Err(refuse(raw, "its path has a `..` segment")),
            segment if segment.len() > 255 => return Err(refuse(raw, "a segment is longer than 255 bytes")),
            segment => segments.push(segment),
        }
    }
    let path = segments.join("/");
    if let Some(name) = sdk_in(&path) {
        return Err(refuse(raw, &format!("the SDK {name} is provided by the runtime and cannot be shipped")));
    }
    Ok((!path.is_empty()).then_some(path))
}

/// The SDK package that a path lies in, if any.
pub(crate) fn sdk_in(path: &str) -> Option<&'static str> {
    let padded = format!("/{path}/");
    SDK_PACKAGES.into_iter().find(|name| padded.contains(&format!("/node_modules/{name}/")))
}

/// Every path seen, so that none is a file twice, or file and folder at once.
#[derive(Default)]
struct Paths {
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    File,
    Directory,
}

impl Paths {
    fn directory(&mut self, path: &str) -> Result<(), ArtifactError> {
        self.parents(path)?;
        match self.seen.insert(path.to_owned(), Seen::Directory) {
            Some(Seen::File) => Err(refuse(path.as_bytes(), "it is both a file and a folder")),
            _ => Ok(()),
        }
    }

    fn file(&mut self, path: &str) -> Result<(), ArtifactError> {
        self.parents(path)?;
        match self.seen.insert(path.to_owned(), Seen::File) {
            None => Ok(()),
            Some(Seen::File) => Err(refuse(path.as_bytes(), "it is there twice")),
            Some(Seen::Directory) => Err(refuse(path.as_bytes(), "it is both a file and a folder")),
        }
    }

    fn parents(&mut self, path: &str) -> Result<(), ArtifactError> {
        for (index, _) in path.match_indices('/') {
            match self.seen.get(&path[..index]) {
                Some(Seen::File) => {
                    return Err(refuse(path.as_bytes(), "one of its folders is a file"));
                }
                Some(Seen::Directory) => {}
                None => {
                    self.seen.insert(path[..index].to_owned(), Seen::Directory);
                }
            }
        }
        Ok(())
    }
}

/// The mark that a [`Bounded`] reader leaves in the error.
#[derive(Debug)]
struct TooMany {
    what: &'static str,
    limit: u64,
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "more than {} {}", self.limit, self.what)
    }
}

impl std::error::Error for TooMany {}

/// A reader that fails, instead of ending, beyond its bound.
pub(super) struct Bounded<R> {
    inner: R,
    left: u64,
    limit: u64,
    what: &'static str,
}

impl<R> Bounded<R> {
    fn new(inner: R, limit: u64, what: &'static str) -> Self {
        Self { inner, left: limit, limit, what }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other(TooMany { what: self.what, limit: self.limit }))?;
        Ok(read)
    }
}
