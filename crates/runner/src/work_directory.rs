use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use trestle_contract::{LeaseId, RunId};

use crate::RunnerError;
use crate::slot_process::remove_tree;

/// The record of a lease, so that a runner that died can give its runs back when it starts again. It holds no
/// token: programs run as the same user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) lease_id: LeaseId,
    pub(crate) run_id: RunId,
}

/// A lease record on disk; removed when the lease is over.
#[derive(Debug)]
pub(crate) struct LeaseFile(PathBuf);

impl Drop for LeaseFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The work directory, held by one runner process at a time.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
    _lock: Flock<fs::File>,
}

impl WorkDirectory {
    /// Makes the directory if needed and takes its lock.
    pub(crate) fn open(path: &Path) -> Result<Self, RunnerError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for part in ["slots", "leases"] {
            builder.create(path.join(part)).map_err(RunnerError::file("create", path))?;
        }
        // Run processes get absolute paths: they change their directory.
        let path = fs::canonicalize(path).map_err(RunnerError::file("open", path))?;
        let file = path.join("lock");
        let handle = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&file)
            .map_err(RunnerError::file("open", &file))?;
        match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(RunnerError::WorkDirectoryLocked { path }),
            Err((_, errno)) => Err(RunnerError::file("lock", &file)(errno.into())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records a lease, readable by this user alone, until the returned file is dropped.
    pub(crate) fn record(&self, record: &LeaseRecord) -> Result<LeaseFile, RunnerError> {
        // The lease's name comes from outside: only its digits and letters make the file name.
        let name: String =
            record.lease_id.as_str().chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let path = self.path.join("leases").join(format!("{name}.json"));
        let write = || {
            let bytes = serde_json::to_vec(record)?;
            fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)?
                .write_all(&bytes)
        };
        write().map_err(RunnerError::file("write", &path))?;
        Ok(LeaseFile(path))
    }

    /// Removes what a runner that died left behind, and returns the leases that it held.
    pub(crate) fn sweep(&self) -> Vec<LeaseRecord> {
        for directory in entries(&self.path.join("slots")) {
            if let Err(error) = remove_tree(&directory) {
                tracing::warn!(path = %directory.display(), %error, "slot_directory_not_removed");
            }
        }
        let mut records = Vec::new();
        for file in entries(&self.path.join("leases")) {
            records.extend(
                fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<LeaseRecord>(&bytes).ok()),
            );
            let _ = fs::remove_file(file);
        }
        records
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_serves_one_runner_and_its_leftovers_are_found() {
        let home = tempfile::tempdir().unwrap();
        let first = WorkDirectory::open(&home.path().join("work")).unwrap();
        assert!(matches!(WorkDirectory::open(first.path()), Err(RunnerError::WorkDirectoryLocked { .. })));
        let slot = first.path().join("slots/1-1");
        fs::create_dir_all(slot.join("workspace")).unwrap();
        fs::create_dir_all(first.path().join("slots/1-2/tmp")).unwrap();
        let record = LeaseRecord {
            lease_id: LeaseId::new("lease_../../1").unwrap(),
            run_id: RunId::new("01RUN").unwrap(),
        };
        let file = first.record(&record).unwrap();
        assert_eq!(file.0, first.path().join("leases/lease1.json"));
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file.0).unwrap().permissions()) & 0o777,
            0o600
        );
        assert_eq!(first.sweep(), [record]);
        assert_eq!(fs::read_dir(first.path().join("slots")).unwrap().count(), 0);
        assert!(first.sweep().is_empty());
        drop(first);
        WorkDirectory::open(&home.path().join("work")).unwrap();
    }
}
