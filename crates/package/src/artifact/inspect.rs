//! What an artifact holds, without writing anything.

use std::io::Read;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use trestle_contract::descriptor::{
    DESCRIPTOR_NAMES, DescriptorErrors, MAX_DESCRIPTOR_BYTES, ParsedDescriptor, parse_descriptor,
};

use super::entries::{ArtifactError, Limits, read_error, walk};
use crate::identity::{IdentityEntry, identity};
use crate::types::{SCHEMAS, Schemas};

/// The program's module of a JavaScript artifact.
const JS_ENTRY: &str = "index.mjs";
/// Derived schemas beyond this are not read.
const LARGEST_SCHEMAS: usize = 1024 * 1024;

/// One file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactFile {
    /// Path from the artifact's root, with `/`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits: 0644 or 0755.
    pub mode: u32,
    /// SHA-256 of the content, lower-case hex.
    pub digest: String,
}

/// What an artifact holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactContents {
    /// `workflow.jsonc` or `workflow.json`.
    pub descriptor_name: String,
    /// The descriptor's bytes.
    pub descriptor_bytes: Vec<u8>,
    /// The module that a run starts: `index.mjs`, or the package-relative `.py` path.
    pub entry: String,
    /// The schemas that the build has derived; `None` when it derived none by itself.
    pub schemas: Option<Schemas>,
    /// Author sources below `.bw-src`, as package-relative paths, sorted.
    pub sources: Vec<String>,
    /// Every file, sorted by path.
    pub files: Vec<ArtifactFile>,
    /// Version identity: equal for equal paths, modes and contents, whoever packed them.
    pub identity: String,
    /// Bytes of all files together.
    pub unpacked_bytes: u64,
    /// What is accepted and probably not meant.
    pub warnings: Vec<String>,
}

impl ArtifactContents {
    /// The descriptor, read with every rule.
    ///
    /// # Errors
    /// [`DescriptorErrors`] as of [`parse_descriptor`].
    pub fn descriptor(&self) -> Result<ParsedDescriptor, DescriptorErrors> {
        parse_descriptor(&self.descriptor_name, &self.descriptor_bytes)
    }
}

/// Reads through an artifact: every entry is checked and hashed, nothing is written.
///
/// # Errors
/// [`ArtifactError`]: not a gzip tar, an entry that is refused, beyond the limits, no or two descriptors, no program.
pub fn inspect<R: Read>(reader: R, limits: &Limits) -> Result<ArtifactContents, ArtifactError> {
    let mut files = Vec::new();
    let mut descriptors: Vec<(String, Vec<u8>)> = Vec::new();
    let mut schemas = None;
    walk(reader, limits, |entry| {
        let mut hasher = Sha256::new();
        let is_descriptor = DESCRIPTOR_NAMES.contains(&entry.path);
        let limit = match entry.path {
            path if DESCRIPTOR_NAMES.contains(&path) => MAX_DESCRIPTOR_BYTES,
            SCHEMAS => LARGEST_SCHEMAS,
            _ => 0,
        };
        let mut kept = Vec::new();
        let mut buffer = [0_u8; 16 * 1024];
        let mut size = 0_u64;
        loop {
            let read = entry.content.read(&mut buffer).map_err(|error| read_error(&error))?;
            if read == 0 {
                break;
            }
            size += read as u64;
            hasher.update(&buffer[..read]);
            if limit > 0 && kept.len() <= limit {
                kept.extend_from_slice(&buffer[..read]);
            }
        }
        if size != entry.size {
            return Err(ArtifactError::Damaged(format!("`{}` is cut off", entry.path)));
        }
        if is_descriptor {
            descriptors.push((entry.path.to_owned(), kept));
        } else if entry.path == SCHEMAS {
            schemas = Schemas::read(&kept);
        }
        let digest = hex::encode(hasher.finalize());
        files.push(ArtifactFile { path: entry.path.to_owned(), size, mode: entry.mode, digest });
        Ok(())
    })?;
    files.sort_by(|left, right| left.path.cmp(&right.path));
    contents(files, descriptors, schemas)
}

fn contents(
    files: Vec<ArtifactFile>,
    mut descriptors: Vec<(String, Vec<u8>)>,
    schemas: Option<Schemas>,
) -> Result<ArtifactContents, ArtifactError> {
    if descriptors.len() > 1 {
        return Err(ArtifactError::Contents {
            message: "the artifact has both workflow.jsonc and workflow.json".into(),
            hint: "keep one of the two",
        });
    }
    let Some((descriptor_name, descriptor_bytes)) = descriptors.pop() else {
        return Err(ArtifactError::Contents {
            message: "the artifact has no workflow.jsonc or workflow.json at its root".into(),
            hint: "pack it with `trestle build`, or put the descriptor at the root of the tar",
        });
    };
    let sources: Vec<String> =
        files.iter().filter_map(|file| file.path.strip_prefix(".bw-src/")).map(str::to_owned).collect();
    let entry = entry(&files, &sources, &descriptor_name, &descriptor_bytes)?;
    let identity = identity(files.iter().map(|file| IdentityEntry {
        path: &file.path,
        mode: file.mode,
        digest: &file.digest,
    }));
    let mut warnings = Vec::new();
    if sources.is_empty() {
        warnings.push("the artifact carries no sources under .bw-src; they cannot be shown".to_owned());
    }
    let unpacked_bytes = files.iter().map(|file| file.size).sum();
    Ok(ArtifactContents {
        descriptor_name,
        descriptor_bytes,
        entry,
        schemas,
        sources,
        files,
        identity,
        unpacked_bytes,
        warnings,
    })
}

/// A built module at the root wins over what the descriptor names: `entry` names a source file.
fn entry(
    files: &[ArtifactFile],
    sources: &[String],
    descriptor_name: &str,
    descriptor_bytes: &[u8],
) -> Result<String, ArtifactError> {
    if files.iter().any(|file| file.path == JS_ENTRY) {
        return Ok(JS_ENTRY.into());
    }
    let declared = parse_descriptor(descriptor_name, descriptor_bytes)
        .ok()
        .and_then(|parsed| parsed.descriptor.entry)
        .unwrap_or_else(|| "main.py".into());
    if declared.to_ascii_lowercase().ends_with(".py") && sources.contains(&declared) {
        return Ok(declared);
    }
    Err(ArtifactError::Contents {
        message: "the artifact has no program: neither index.mjs nor a Python entry under .bw-src".into(),
        hint: "build the package first, for example with `trestle deploy`",
    })
}

/// One file of an artifact, `None` when it is not there.
///
/// # Errors
/// [`ArtifactError`] as of [`inspect`], as far as the walk comes; a file above `max_bytes` is refused.
pub fn read_file<R: Read>(
    reader: R,
    path: &str,
    max_bytes: u64,
    limits: &Limits,
) -> Result<Option<Vec<u8>>, ArtifactError> {
    let mut found = None;
    walk(reader, limits, |entry| {
        if entry.path == path {
            if entry.size > max_bytes {
                return Err(ArtifactError::TooLarge { what: "bytes in the file", limit: max_bytes });
            }
            let mut content = Vec::new();
            entry.content.read_to_end(&mut content).map_err(|error| read_error(&error))?;
            found = Some(content);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The files whose paths are wanted, in the artifact's order; `None` when they exceed `max_bytes` together.
///
/// # Errors
/// [`ArtifactError`] as of [`inspect`].
pub fn read_files<R: Read>(
    reader: R,
    wanted: impl Fn(&str) -> bool,
    max_bytes: u64,
    limits: &Limits,
) -> Result<Option<Vec<(String, Vec<u8>)>>, ArtifactError> {
    let mut found = Some(Vec::new());
    let mut left = max_bytes;
    walk(reader, limits, |entry| {
        if !wanted(entry.path) {
            return Ok(());
        }
        match left.checked_sub(entry.size) {
            None => found = None,
            Some(rest) => left = rest,
        }
        if let Some(files) = &mut found {
            let mut content = Vec::new();
            entry.content.read_to_end(&mut content).map_err(|error| read_error(&error))?;
            files.push((entry.path.to_owned(), content));
        }
        Ok(())
    })?;
    Ok(found)
}
