//! Finding a Node interpreter and telling whether it is new enough.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::slot::NodeRuntime;
use crate::{HostIsolation, Isolation, ProcessSpec, Stdio};

/// Programs do not run on an older major version.
pub const OLDEST_NODE: u32 = 20;
/// Below this major version a warning is due: programs are built for it.
pub const INTENDED_NODE: u32 = 24;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no usable Node. Each belongs to the error code `UNSUPPORTED_RUNTIME`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterpreterError {
    /// No file of that name on the search path.
    #[error("no Node.js interpreter was found on PATH")]
    Missing,
    /// The file cannot be run.
    #[error("{} cannot be run as Node.js: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// It runs and is too old.
    #[error("{} is Node.js {version}, older than the oldest supported major version {OLDEST_NODE}", path.display())]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}

impl InterpreterError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing | Self::Unusable { .. } => {
                "install Node.js 24, or name an interpreter with --node or TRESTLE_NODE"
            }
            Self::TooOld { .. } => "install Node.js 24 and name it with --node or TRESTLE_NODE",
        }
    }
}

impl NodeRuntime {
    /// The major version; 0 when the text is no version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0)
    }

    /// The line to show once for each start, if the version is older than programs are built for.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        (self.major() < INTENDED_NODE).then(|| {
            format!(
                "{} is Node.js {}: programs are built for {INTENDED_NODE} and start slower here",
                self.path.display(),
                self.version
            )
        })
    }

    /// Refuses a version that is too old.
    ///
    /// # Errors
    /// [`InterpreterError::TooOld`].
    pub fn check(&self) -> Result<(), InterpreterError> {
        if self.major() < OLDEST_NODE {
            return Err(InterpreterError::TooOld { path: self.path.clone(), version: self.version.clone() });
        }
        Ok(())
    }
}

/// Finds Node: the named file, else `node` on the search path; asks it for its version and refuses a
/// version that is too old.
///
/// # Errors
/// When there is none, it does not run, or it is too old.
pub async fn find_node(named: Option<&Path>, search: &OsStr) -> Result<NodeRuntime, InterpreterError> {
    let path = match named {
        Some(path) => path.to_path_buf(),
        None => std::env::split_paths(search)
            .map(|directory| directory.join("node"))
            .find(|file| is_executable(file))
            .ok_or(InterpreterError::Missing)?,
    };
    let unusable = |reason: String| InterpreterError::Unusable { path: path.clone(), reason };
    let path = std::path::absolute(&path).map_err(|error| unusable(error.to_string()))?;
    let text = timeout(ANSWER_WITHIN, version_text(&path, search))
        .await
        .map_err(|_| unusable("no answer within 10 s".into()))?
        .map_err(unusable)?;
    let version =
        text.trim().strip_prefix('v').filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    let version = version.ok_or_else(|| unusable("its --version prints no version".into()))?.to_owned();
    let node = NodeRuntime { path, version };
    node.check()?;
    Ok(node)
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

async fn version_text(path: &Path, search: &OsStr) -> Result<String, String> {
    let process = HostIsolation
        .spawn(ProcessSpec {
            program: path.to_path_buf(),
            args: vec!["--version".into()],
            env: vec![("PATH".into(), search.to_owned())],
            cwd: "/".into(),
            stdin: Stdio::Null,
            stdout: Stdio::Pipe,
            stderr: Stdio::Null,
            extra_fds: vec![],
        })
        .await
        .map_err(|error| error.to_string())?;
    let mut text = String::new();
    if let Some(stdout) = process.take_pipes().stdout {
        stdout.take(256).read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    }
    process.wait().await.map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(directory: &Path, text: &str) -> PathBuf {
        let file = directory.join("node");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[tokio::test]
    async fn an_interpreter_that_is_too_old_is_refused_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let file = script(directory.path(), "#!/bin/sh\necho v18.20.1\n");
        let error = find_node(Some(&file), OsStr::new("/usr/bin:/bin")).await.unwrap_err();
        assert!(
            matches!(&error, InterpreterError::TooOld { version, .. } if version == "18.20.1"),
            "{error}"
        );
        assert!(error.hint().contains("--node"));
    }

    #[tokio::test]
    async fn the_first_executable_on_the_path_is_taken_and_a_lower_major_warns() {
        let (empty, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(empty.path().join("node"), "not executable").unwrap();
        script(directory.path(), "#!/bin/sh\necho v20.1.0\n");
        let search =
            std::env::join_paths([empty.path(), directory.path(), Path::new("/bin"), Path::new("/usr/bin")])
                .unwrap();
        let node = find_node(None, &search).await.unwrap();
        assert_eq!(node.path, directory.path().join("node"));
        assert_eq!((node.version.as_str(), node.major()), ("20.1.0", 20));
        assert!(node.warning().unwrap().contains("20.1.0"));
        assert_eq!(NodeRuntime { version: "24.0.0".into(), ..node }.warning(), None);
    }

    #[tokio::test]
    async fn missing_and_broken_interpreters_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let missing = find_node(None, directory.path().as_os_str()).await.unwrap_err();
        assert!(matches!(missing, InterpreterError::Missing));
        let file = script(directory.path(), "#!/bin/sh\necho hello\n");
        let broken = find_node(Some(&file), OsStr::new("/usr/bin:/bin")).await.unwrap_err();
        assert!(matches!(broken, InterpreterError::Unusable { .. }));
        let absent =
            find_node(Some(&directory.path().join("nothing")), OsStr::new("/bin")).await.unwrap_err();
        assert!(matches!(absent, InterpreterError::Unusable { .. }));
    }
}
