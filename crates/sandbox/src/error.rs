use std::io;
use std::path::PathBuf;

/// Why a process could not be started or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The program file or the working directory does not exist or may not be used.
    #[error("cannot start {}: {source}", program.display())]
    Spawn {
        /// What should have been started.
        program: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The working directory is missing or is no directory; checked first because the operating
    /// system reports it with the same code as a missing program.
    #[error("cannot start in {}: {source}", directory.display())]
    WorkingDirectory {
        /// The directory that cannot be used.
        directory: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// An argument or an environment entry holds a NUL byte, or a name is empty or holds `=`.
    #[error("{what} cannot be passed to a process: it holds a NUL byte or is no valid name")]
    Unpassable {
        /// Which part of the specification.
        what: String,
    },
    /// A system call on a running process failed.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }

    /// The operating system's name of the failure (`ENOENT`, `EACCES`, …), where there is one.
    #[must_use]
    pub fn os_code(&self) -> Option<String> {
        let source = match self {
            Self::Spawn { source, .. }
            | Self::WorkingDirectory { source, .. }
            | Self::System { source, .. } => source,
            Self::Unpassable { .. } => return None,
        };
        source.raw_os_error().map(|code| format!("{:?}", nix::errno::Errno::from_raw(code)))
    }
}
