//! The data directory and the lock that makes one process its owner.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{StoreError, StoreResult};

/// An opened data directory. The lock is held until the value is dropped (or the process dies).
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory (0700) if it does not exist and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::Locked`] names the process that holds it; [`StoreError::Denied`] when it may
    /// not be written.
    pub fn open(path: &Path) -> StoreResult<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| denied(path, &error))?;
        let path = path.canonicalize().map_err(|error| denied(path, &error))?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// The directory, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join("store.db")
    }

    /// The directory of the blobs.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }
}

fn lock(directory: &Path) -> StoreResult<File> {
    let path = directory.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| denied(&path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder's name is a courtesy: without it the refusal still stands.
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(StoreError::Locked { path: directory.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(denied(&path, &error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()))
        .map_err(|error| denied(&path, &error))?;
    Ok(file)
}

/// Turns an error of the file system into one that says what the operator can do about it.
pub(crate) fn denied(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StoreError::Full(format!("{}: {error}", path.display()))
        }
        _ => StoreError::Denied { path: path.to_owned(), reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_told_who_holds_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataDir::open(&directory.path().join("data")).unwrap();
        let refusal = DataDir::open(first.path()).unwrap_err();
        assert!(refusal.to_string().contains(&format!("process {}", std::process::id())), "{refusal}");
        let path = first.path().to_owned();
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_directory_in_the_place_of_a_file_is_denied_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data");
        std::fs::write(&file, b"").unwrap();
        let refusal = DataDir::open(&file).unwrap_err();
        assert!(matches!(&refusal, StoreError::Denied { path, .. } if *path == file), "{refusal}");
    }

    #[test]
    fn what_is_made_is_private_to_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(data.path()), 0o700);
        assert_eq!(mode(&data.path().join("lock")), 0o600);
    }
}
