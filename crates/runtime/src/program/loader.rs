//! The channel between this process and the script that starts the program.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Longest report that is read; a longer one is no report.
const LONGEST_REPORT: u64 = 4 * 1024 * 1024;

/// The one line that starts the program.
#[derive(Debug, Serialize)]
pub(crate) struct LoaderAssignment {
    pub(crate) sock: PathBuf,
    pub(crate) entry: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
}

/// What the script reports. The program runs in the same process and could write here too: nothing is
/// taken from here that the program could not do by itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum LoaderReport {
    /// Everything is loaded; it waits for its line.
    Ready,
    /// The return value was accepted.
    Returned,
    /// The program failed.
    Failed(LoaderFailure),
}

/// How a program failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct LoaderFailure {
    /// What went wrong: `syntax`, `import`, `export`, `throw`, `unhandled`, `return`, `exit`, `stuck`, `host`.
    #[serde(default)]
    pub(crate) reason: String,
    pub(crate) error: ThrownError,
}

/// What was thrown.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ThrownError {
    #[serde(default)]
    pub(crate) code: Option<String>,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) hint: Option<String>,
}

/// This process's end of the channel.
#[derive(Debug)]
pub(crate) struct LoaderChannel {
    lines: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    partial: Vec<u8>,
}

impl LoaderChannel {
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(descriptor);
        socket.set_nonblocking(true)?;
        let (read, writer) = UnixStream::from_std(socket)?.into_split();
        Ok(Self { lines: BufReader::with_capacity(4096, read), writer, partial: Vec::new() })
    }

    /// The next report; `None` when the process is gone or closed its end. Lines that are no reports are
    /// skipped. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<LoaderReport> {
        loop {
            let room = LONGEST_REPORT.saturating_sub(self.partial.len() as u64);
            let read = (&mut self.lines).take(room).read_until(b'\n', &mut self.partial).await.ok()?;
            if self.partial.last() != Some(&b'\n') {
                if read == 0 {
                    return None;
                }
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            match serde_json::from_slice(&line) {
                Ok(report) => return Some(report),
                Err(error) => tracing::debug!(%error, "the loader wrote something that is no report"),
            }
        }
    }

    /// Starts the program.
    pub(crate) async fn assign(&mut self, assignment: &LoaderAssignment) -> io::Result<()> {
        let mut line = serde_json::to_vec(assignment)?;
        line.push(b'\n');
        self.writer.write_all(&line).await
    }
}
