use std::fs;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use trestle_contract::control::Program;
use trestle_contract::{Digest, ErrorCode};
use trestle_domain::Failure;

use crate::control::{ControlClient, ControlError, is_worth_another};

/// Largest packed program, in bytes.
const LARGEST_PACKED: u64 = 512 * 1024 * 1024;

/// A program on disk; it goes away with this value.
#[derive(Debug)]
pub(crate) struct ProgramFiles {
    /// Root of the unpacked artifact.
    pub(crate) directory: PathBuf,
    /// Absolute path of the module to run.
    pub(crate) entry: PathBuf,
    placed: Arc<Placed>,
}

/// What was put on disk. It goes away with its last holder, which is the thread that unpacks when the run
/// ended in the middle of it.
#[derive(Debug)]
struct Placed(PathBuf);

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(self.0.with_extension("tgz"));
    }
}

/// Why a program could not be made ready; becomes the run's error.
#[derive(Debug, Clone)]
pub(crate) struct PrepareError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl PrepareError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.as_str().into(), message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationFailed, message).with_hint(hint)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InternalError, message)
    }
}

/// Fetches, checks and unpacks a program into a fresh directory below `root`.
pub(crate) async fn fetch(
    client: &ControlClient,
    program: &Program,
    root: &Path,
    workspace: &Path,
) -> Result<ProgramFiles, PrepareError> {
    check_entry(&program.entry)?;
    let internal =
        |error: io::Error| PrepareError::internal(format!("cannot use the program directory: {error}"));
    fs::create_dir_all(root).map_err(internal)?;
    if is_inside(root, workspace).map_err(internal)? {
        return Err(PrepareError::invalid(
            "the program directory lies inside of the workspace",
            "set the program directory to a place outside of the workspace",
        ));
    }
    let directory = root.join(uuid::Uuid::new_v4().simple().to_string());
    let placed = Arc::new(Placed(directory.clone()));
    let files = ProgramFiles { entry: directory.join(&program.entry), directory, placed };
    fs::create_dir(&files.directory).map_err(internal)?;
    // Beside the directory: the program never sees it.
    let packed = files.directory.with_extension("tgz");
    download(client, program, &packed).await?;
    unpack(packed.clone(), Arc::clone(&files.placed)).await?;
    let _ = fs::remove_file(&packed);
    if !files.entry.is_file() {
        return Err(PrepareError::invalid(
            format!("the artifact has no file {}, which is its entry", program.entry),
            "deploy the workflow again",
        ));
    }
    Ok(files)
}

fn check_entry(entry: &str) -> Result<(), PrepareError> {
    let path = Path::new(entry);
    if entry.to_ascii_lowercase().ends_with(".py") {
        return Err(PrepareError::new(ErrorCode::UnsupportedRuntime, "Python programs cannot be run here")
            .with_hint("write the program in TypeScript or JavaScript"));
    }
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if entry.is_empty() || entry.contains('\\') || !plain {
        return Err(PrepareError::invalid(
            format!("the entry {entry:?} is no path inside of the artifact"),
            "deploy the workflow again",
        ));
    }
    Ok(())
}

fn is_inside(directory: &Path, workspace: &Path) -> io::Result<bool> {
    Ok(fs::canonicalize(directory)?.starts_with(fs::canonicalize(workspace)?))
}

/// Streams the artifact to disk and compares its digest before anything of it is looked at.
async fn download(client: &ControlClient, program: &Program, target: &Path) -> Result<(), PrepareError> {
    let mut attempts = client.policy().begin();
    // Bytes that were spoilt on the way are fetched once more; what is stored wrongly stays wrong.
    let mut is_second = false;
    let found = loop {
        match download_once(client, &program.download_url, target).await {
            Ok(digest) if digest != program.digest && !is_second => is_second = true,
            Ok(digest) => break digest,
            Err(DownloadError::Local(error)) => {
                return Err(PrepareError::internal(format!("cannot write the program to disk: {error}"))
                    .with_hint("check the free space of the runner's work directory"));
            }
            Err(DownloadError::TooLarge) => {
                return Err(PrepareError::new(
                    ErrorCode::ProgramFetchFailed,
                    "the program is larger than 512 MiB",
                ));
            }
            Err(DownloadError::Remote(error, failure)) => {
                let may = is_worth_another(failure);
                match attempts.pause(failure, None).filter(|_| may) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(PrepareError::new(ErrorCode::ProgramFetchFailed, error.to_string())),
                }
            }
        }
    };
    if found != program.digest {
        return Err(PrepareError::new(
            ErrorCode::ProgramIntegrity,
            format!("the fetched program has the digest {found}, expected was {}", program.digest),
        )
        .with_hint("deploy the workflow again; what is stored is not what was deployed"));
    }
    Ok(())
}

enum DownloadError {
    Remote(ControlError, Failure),
    Local(io::Error),
    TooLarge,
}

async fn download_once(client: &ControlClient, url: &str, target: &Path) -> Result<Digest, DownloadError> {
    let mut answer = client.download(url).await.map_err(|error| {
        let failure = error.status().map_or(Failure::Transport, Failure::Status);
        DownloadError::Remote(error, failure)
    })?;
    let mut file = fs::File::create(target).map_err(DownloadError::Local)?;
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    loop {
        let chunk = match answer.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => {
                let message = format!("the download broke off: {error}");
                let error = ControlError::Unreachable { operation: "program-download", message };
                return Err(DownloadError::Remote(error, Failure::Body));
            }
        };
        size += chunk.len() as u64;
        if size > LARGEST_PACKED {
            return Err(DownloadError::TooLarge);
        }
        hash.update(&chunk);
        file.write_all(&chunk).map_err(DownloadError::Local)?;
    }
    Ok(Digest::from_bytes(&hash.finalize().into()))
}

async fn unpack(packed: PathBuf, placed: Arc<Placed>) -> Result<(), PrepareError> {
    let work = move || {
        let file = fs::File::open(&packed)?;
        let limits = trestle_package::artifact::Limits { packed_bytes: LARGEST_PACKED, ..Default::default() };
        Ok(trestle_package::artifact::extract(io::BufReader::new(file), &placed.0, &limits))
    };
    let done: io::Result<_> = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten();
    match done {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => {
            let refused = PrepareError::new(error.code(), error.to_string());
            Err(match error.hint() {
                Some(hint) => refused.with_hint(hint),
                None => refused,
            })
        }
        Err(error) => Err(PrepareError::internal(format!("cannot unpack the program: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_inside_of_the_artifact() {
        for entry in ["index.mjs", "./index.mjs", "a/b.mjs"] {
            assert!(check_entry(entry).is_ok(), "{entry}");
        }
        for entry in ["", "/etc/passwd", "../x.mjs", "a/../../x.mjs", "a\\b.mjs"] {
            assert_eq!(check_entry(entry).unwrap_err().code, "VALIDATION_FAILED", "{entry}");
        }
        assert_eq!(check_entry("main.PY").unwrap_err().code, "UNSUPPORTED_RUNTIME");
    }

    #[test]
    fn a_program_directory_inside_of_the_workspace_is_seen_also_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().join("workspace");
        fs::create_dir_all(workspace.join("programs")).unwrap();
        std::os::unix::fs::symlink(workspace.join("programs"), root.path().join("link")).unwrap();
        assert!(is_inside(&root.path().join("link"), &workspace).unwrap());
        assert!(is_inside(&workspace, &workspace).unwrap());
        assert!(!is_inside(root.path(), &workspace).unwrap());
    }
}
