use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trestle_contract::{LeaseId, RunId};
use trestle_domain::{Clock, WallClock};

use crate::RunnerError;
use crate::slot_process::remove_tree;

/// Another daemon that starts may hold the lock for the moment of its sweep.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// A lease record that is older than any lease can be is of no use to anybody.
const OLDEST_RECORD: Duration = Duration::from_secs(24 * 3600);

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

/// One runner's part of a work directory, held by one process at a time. Several runners may share a work
/// directory: each has a directory of its own in it, and clears away of others only what nobody owns.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    root: PathBuf,
    path: PathBuf,
    _lock: Flock<fs::File>,
}

impl WorkDirectory {
    /// Makes the directory of this runner below `root` if needed and takes its lock.
    pub(crate) async fn open(root: &Path, runner_id: &str) -> Result<Self, RunnerError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(root).map_err(RunnerError::file("create", root))?;
        // Run processes get absolute paths: they change their directory.
        let root = fs::canonicalize(root).map_err(RunnerError::file("open", root))?;
        let path = root.join(file_name(runner_id));
        for part in ["slots", "leases"] {
            builder.create(path.join(part)).map_err(RunnerError::file("create", &path))?;
        }
        // One that was there may have been made by hand, open to others.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            .map_err(RunnerError::file("close to others", &path))?;
        for _ in 0..LOCK_TRIES {
            if let Some(lock) = lock(&path)? {
                return Ok(Self { root, path, _lock: lock });
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        Err(RunnerError::WorkDirectoryLocked { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records a lease, readable by this user alone, until the returned file is dropped.
    pub(crate) fn record(&self, record: &LeaseRecord) -> Result<LeaseFile, RunnerError> {
        let path = self.path.join("leases").join(format!("{}.json", file_name(record.lease_id.as_str())));
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

    /// Removes what runners that died left behind, and returns the leases that this one held.
    pub(crate) fn sweep(&self) -> Vec<LeaseRecord> {
        clear_slots(&self.path);
        self.sweep_ownerless();
        let mut records = Vec::new();
        for file in entries(&self.path.join("leases")) {
            records.extend(
                fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<LeaseRecord>(&bytes).ok()),
            );
            let _ = fs::remove_file(file);
        }
        records
    }

    /// Clears the directories of other runners that have no process now. Their lease records stay: only they
    /// can give those leases back.
    fn sweep_ownerless(&self) {
        for other in entries(&self.root).into_iter().filter(|path| *path != self.path) {
            if !other.join("lock").is_file() {
                continue;
            }
            let Ok(Some(_lock)) = lock(&other) else { continue };
            clear_slots(&other);
            for record in entries(&other.join("leases")) {
                let written = fs::metadata(&record).and_then(|found| found.modified()).ok();
                let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                let now = Duration::from_millis(u64::try_from(WallClock.now_ms()).unwrap_or(0));
                if written.is_some_and(|at| now.saturating_sub(at) > OLDEST_RECORD) {
                    let _ = fs::remove_file(record);
                }
            }
        }
    }
}

/// Takes the lock of a runner's directory; `None` while another process holds it.
fn lock(directory: &Path) -> Result<Option<Flock<fs::File>>, RunnerError> {
    let file = directory.join("lock");
    let handle = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&file)
        .map_err(RunnerError::file("open", &file))?;
    match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(RunnerError::file("lock", &file)(errno.into())),
    }
}

fn clear_slots(directory: &Path) {
    for slot in entries(&directory.join("slots")) {
        if let Err(error) = remove_tree(&slot) {
            tracing::warn!(path = %slot.display(), %error, "slot_directory_not_removed");
        }
    }
}

/// A file name for an id from outside: the id itself where it is harmless, else its digest.
fn file_name(id: &str) -> String {
    if is_plain(id) && id.len() <= 64 {
        return id.to_owned();
    }
    let digest = Sha256::digest(id.as_bytes());
    digest.iter().take(20).fold("x-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Whether an id can stand in a path or an address without meaning anything there.
pub(crate) fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
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

    fn record(lease: &str) -> LeaseRecord {
        LeaseRecord { lease_id: LeaseId::new(lease).unwrap(), run_id: RunId::new("01RUN").unwrap() }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_directory_serves_one_runner_and_its_leftovers_are_found() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("work");
        let first = WorkDirectory::open(&root, "01RUNNER").await.unwrap();
        assert_eq!(first.path(), root.canonicalize().unwrap().join("01RUNNER"));
        assert!(matches!(
            WorkDirectory::open(&root, "01RUNNER").await,
            Err(RunnerError::WorkDirectoryLocked { .. })
        ));
        let slot = first.path().join("slots/1-1");
        fs::create_dir_all(slot.join("workspace")).unwrap();
        fs::create_dir_all(first.path().join("slots/1-2/tmp")).unwrap();
        let file = first.record(&record("lease1")).unwrap();
        assert_eq!(file.0, first.path().join("leases/lease1.json"));
        assert_eq!((mode(&file.0), mode(first.path())), (0o600, 0o700));
        assert_eq!(first.sweep(), [record("lease1")]);
        assert_eq!(fs::read_dir(first.path().join("slots")).unwrap().count(), 0);
        assert!(first.sweep().is_empty());
        drop(first);
        WorkDirectory::open(&root, "01RUNNER").await.unwrap();
    }

    #[tokio::test]
    async fn only_what_no_process_owns_is_swept_of_other_runners() {
        let home = tempfile::tempdir().unwrap();
        let living = WorkDirectory::open(home.path(), "living").await.unwrap();
        let dead = WorkDirectory::open(home.path(), "dead").await.unwrap();
        for slot in [living.path().join("slots/1-1"), dead.path().join("slots/2-1")] {
            fs::create_dir_all(slot.join("workspace")).unwrap();
        }
        let record = record("of-the-dead");
        std::mem::forget(dead.record(&record).unwrap());
        let bystander = home.path().join("somebody's files/slots/x");
        fs::create_dir_all(&bystander).unwrap();
        let dead_path = dead.path().to_owned();
        drop(dead);
        let third = WorkDirectory::open(home.path(), "third").await.unwrap();
        assert!(third.sweep().is_empty(), "another's leases are not this runner's to give back");
        assert!(living.path().join("slots/1-1/workspace").exists());
        assert!(!dead_path.join("slots/2-1").exists());
        assert!(bystander.exists());
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let old = dead_path.join("leases/old.json");
        fs::File::create(&old).unwrap().set_modified(long_ago).unwrap();
        third.sweep();
        assert!(!old.exists(), "no lease is that old");
        let dead = WorkDirectory::open(home.path(), "dead").await.unwrap();
        assert_eq!(dead.sweep(), [record]);
    }

    #[tokio::test]
    async fn an_open_directory_is_closed_to_others() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("r")).unwrap();
        fs::set_permissions(home.path().join("r"), fs::Permissions::from_mode(0o755)).unwrap();
        let work = WorkDirectory::open(home.path(), "r").await.unwrap();
        assert_eq!((mode(work.path()), mode(&work.path().join("slots"))), (0o700, 0o700));
    }

    #[test]
    fn ids_from_outside_make_harmless_distinct_file_names() {
        assert_eq!(file_name("01ABC_x-9"), "01ABC_x-9");
        let hostile = ["..", ".", "", "../../etc", "a/b", "a\0b", "é", "a.b", &"x".repeat(128), "a b", "ab/"];
        let names: std::collections::BTreeSet<String> = hostile.iter().map(|id| file_name(id)).collect();
        assert_eq!(names.len(), hostile.len());
        assert!(names.iter().all(|name| is_plain(name) && name.starts_with("x-") && name.len() == 42));
    }
}
