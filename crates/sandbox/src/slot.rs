//! What a runner and a run process say to each other over the inherited socket (one JSON object per
//! line). The end of the stream means that the other side is gone: a run process then ends its whole
//! process tree and exits within two seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Longest accepted line, in bytes.
pub const MAX_LINE_BYTES: u64 = 32 * 1024 * 1024;

/// The file in a run process's directory that holds the end of its run while it is not stored: a JSON object
/// with `url`, where to post it, and `body`. It is there after the process only when that was killed, or had to
/// end before it was answered; the runner then sends it with the run token.
pub const UNSENT_RESULT: &str = "result.json";

/// Runner → run process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SlotCommand {
    /// The one run that this process executes. Sent once.
    Assign(Box<Assignment>),
}

/// Everything that a run process needs to know about its run. Credentials travel here and nowhere
/// else: neither in the environment nor in the arguments of any process.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The run.
    pub run_id: String,
    /// Base URL of the Runner Control API.
    pub control_plane_url: String,
    /// Bearer of the Runner Control API, bound to this run and this lease.
    pub run_token: String,
    /// Bearer of the public API that a program may ask for; absent when the run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_token: Option<String>,
    /// Lease identity shown by the control plane.
    pub worker_id: String,
    /// Environment entries of the claim, without secret values.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Providers that the runner may call directly, as the claim listed them.
    #[serde(default)]
    pub byo_providers: Vec<serde_json::Value>,
    /// Working directory and home of the program; must exist.
    pub workspace_dir: PathBuf,
    /// Directory for temporary files of the program and of the run process; must exist.
    pub tmp_dir: PathBuf,
    /// Directory, outside the workspace, below which the program is unpacked.
    pub program_root: PathBuf,
    /// The Node interpreter to use.
    pub node: NodeRuntime,
    /// Terms of the lease under which the run was claimed.
    pub lease: LeaseTerms,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Assignment")
            .field("run_id", &self.run_id)
            .field("control_plane_url", &self.control_plane_url)
            .field("worker_id", &self.worker_id)
            .field("workspace_dir", &self.workspace_dir)
            .field("program_root", &self.program_root)
            .field("node", &self.node)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// An interpreter that was found and asked for its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRuntime {
    /// Absolute path of the executable.
    pub path: PathBuf,
    /// Its version without the leading `v`, for example `24.4.1`.
    pub version: String,
}

/// How long the run may be held without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// Seconds to ask for at the run claim and at each renewal.
    pub seconds: u64,
    /// Time between two renewals, in milliseconds.
    pub renew_every_ms: u64,
}

/// Run process → runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SlotReport {
    /// The prestarted interpreter has loaded everything and waits for a run.
    Ready,
    /// The assignment was read; the run claim is on its way.
    Accepted,
    /// The program's interpreter is up (it asked for its input, or it is gone already): the next
    /// cold start may begin.
    Started,
    /// True while the only work in flight is waiting for child runs: the slot may be lent.
    Waiting {
        /// Whether the run now waits.
        waiting: bool,
    },
    /// The run is over for this process; the process exits after this line.
    Exited {
        /// How it ended.
        outcome: SlotOutcome,
    },
}

/// How a run process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SlotOutcome {
    /// Finalized: the program returned.
    Completed,
    /// Finalized: the program or its preparation failed with this code.
    Failed {
        /// Error code of the run.
        code: String,
    },
    /// Finalized after a cancel or another abort.
    Aborted {
        /// `cancelled` or `credit_exhausted`.
        reason: String,
    },
    /// The run claim was refused: another worker has the run.
    ClaimLost,
    /// The lease was taken away or could not be renewed; nothing was written.
    LeaseLost,
    /// The run was given back and will be tried again.
    Released {
        /// Why it was given back.
        reason: String,
    },
    /// Nothing could be written; the lease has to run out.
    Abandoned {
        /// What went wrong, without secrets.
        message: String,
    },
}

/// The reading half of a slot socket.
#[derive(Debug)]
pub struct SlotReader {
    lines: BufReader<OwnedReadHalf>,
    buffer: Vec<u8>,
}

/// The writing half of a slot socket.
#[derive(Debug)]
pub struct SlotWriter {
    half: OwnedWriteHalf,
}

/// Wraps one end of a socket pair. Must be called inside a tokio runtime.
///
/// # Errors
/// When the descriptor is no stream socket.
pub fn open(descriptor: OwnedFd) -> io::Result<(SlotReader, SlotWriter)> {
    let socket = std::os::unix::net::UnixStream::from(descriptor);
    socket.set_nonblocking(true)?;
    let (read, write) = UnixStream::from_std(socket)?.into_split();
    Ok((
        SlotReader { lines: BufReader::with_capacity(4096, read), buffer: Vec::new() },
        SlotWriter { half: write },
    ))
}

impl SlotReader {
    /// The next message; `None` when the other side is gone.
    ///
    /// # Errors
    /// On a line that is too long or that does not parse.
    pub async fn next<M: for<'de> Deserialize<'de>>(&mut self) -> io::Result<Option<M>> {
        loop {
            let room = (MAX_LINE_BYTES + 1).saturating_sub(self.buffer.len() as u64);
            let read = (&mut self.lines).take(room).read_until(b'\n', &mut self.buffer).await?;
            if self.buffer.last() != Some(&b'\n') {
                if read == 0 || self.buffer.len() as u64 > MAX_LINE_BYTES {
                    return self.end_of_stream();
                }
                continue;
            }
            let line = std::mem::take(&mut self.buffer);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return serde_json::from_slice(&line).map(Some).map_err(io::Error::from);
        }
    }

    fn end_of_stream<M>(&mut self) -> io::Result<Option<M>> {
        if self.buffer.len() as u64 > MAX_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a slot message is longer than 32 MiB"));
        }
        // A line without its end was cut off by the death of its writer.
        Ok(None)
    }
}

impl SlotWriter {
    /// Sends one message.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn send<M: Serialize>(&mut self, message: &M) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.half.write_all(&line).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment() -> Assignment {
        Assignment {
            run_id: "01RUN".into(),
            control_plane_url: "http://127.0.0.1:1".into(),
            run_token: "bwrt_canary".into(),
            api_token: Some("bwk_canary".into()),
            worker_id: "w".into(),
            env: BTreeMap::from([("A".into(), "b".into())]),
            byo_providers: vec![],
            workspace_dir: "/w".into(),
            tmp_dir: "/t".into(),
            program_root: "/p".into(),
            node: NodeRuntime { path: "/usr/bin/node".into(), version: "24.0.0".into() },
            lease: LeaseTerms { seconds: 90, renew_every_ms: 15_000 },
        }
    }

    #[test]
    fn debug_output_of_an_assignment_names_no_token() {
        let text = format!("{:?}", SlotCommand::Assign(Box::new(assignment())));
        assert!(text.contains("01RUN"));
        assert!(!text.contains("canary"), "{text}");
    }

    #[tokio::test]
    async fn messages_cross_the_socket_whole_and_its_end_is_seen() {
        let (left, right) = crate::unix_pair().unwrap();
        let (_reader, mut writer) = open(left).unwrap();
        let (mut reader, _writer) = open(right).unwrap();
        let sent = SlotCommand::Assign(Box::new(assignment()));
        writer.send(&sent).await.unwrap();
        writer.send(&sent).await.unwrap();
        assert_eq!(reader.next::<SlotCommand>().await.unwrap(), Some(sent.clone()));
        assert_eq!(reader.next::<SlotCommand>().await.unwrap(), Some(sent));
        drop(writer);
        drop(_reader);
        assert_eq!(reader.next::<SlotCommand>().await.unwrap(), None);
    }

    #[test]
    fn reports_have_the_agreed_text() {
        let text =
            serde_json::to_string(&SlotReport::Exited { outcome: SlotOutcome::Failed { code: "X".into() } })
                .unwrap();
        assert_eq!(text, r#"{"type":"exited","outcome":{"kind":"failed","code":"X"}}"#);
        assert_eq!(serde_json::to_string(&SlotReport::Ready).unwrap(), r#"{"type":"ready"}"#);
    }
}
