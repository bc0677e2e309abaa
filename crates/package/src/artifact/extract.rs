//! Putting an artifact on disk.

use std::collections::HashSet;
use std::io::{self, Read, Write as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

use super::entries::{ArtifactError, Limits, read_error, walk};

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extracted {
    /// Number of files.
    pub files: usize,
    /// Bytes of all files together.
    pub bytes: u64,
}

/// Writes every file of an artifact below `destination`, an existing folder. Nothing outside of it is touched: paths
/// are resolved by the folder's descriptor, a file that is already there is never opened, and no link is made or
/// followed. On an error, what was written before stays.
///
/// # Errors
/// [`ArtifactError`]: not a gzip tar, an entry that is refused, beyond the limits, or the disk refused.
pub fn extract<R: Read>(reader: R, destination: &Path, limits: &Limits) -> Result<Extracted, ArtifactError> {
    let root = Dir::open_ambient_dir(destination, ambient_authority())
        .map_err(|source| ArtifactError::Write { path: ".".into(), source })?;
    let mut done = Extracted { files: 0, bytes: 0 };
    let mut folders: HashSet<String> = HashSet::new();
    walk(reader, limits, |entry| {
        if let Some((folder, _)) = entry.path.rsplit_once('/')
            && !folders.contains(folder)
        {
            root.create_dir_all(folder)
                .map_err(|source| ArtifactError::Write { path: folder.to_owned(), source })?;
            folders.insert(folder.to_owned());
        }
        let written = write_file(&root, entry.path, entry.mode, entry.content)?;
        if written != entry.size {
            return Err(ArtifactError::Damaged(format!("`{}` is cut off", entry.path)));
        }
        done.files += 1;
        done.bytes += written;
        Ok(())
    })?;
    Ok(done)
}

fn write_file(root: &Dir, path: &str, mode: u32, content: &mut impl Read) -> Result<u64, ArtifactError> {
    let failed = |source: io::Error| ArtifactError::Write { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = root.open_with(path, &options).map_err(failed)?;
    let mut buffer = [0_u8; 64 * 1024];
    let mut written = 0_u64;
    loop {
        let read = content.read(&mut buffer).map_err(|error| read_error(&error))?;
        if read == 0 {
            return Ok(written);
        }
        file.write_all(&buffer[..read]).map_err(failed)?;
        written += read as u64;
    }
}
