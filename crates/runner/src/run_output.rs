use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::task::AbortOnDropHandle;
use trestle_sandbox::Process;

/// Longest part of a line that becomes one log line.
const LONGEST_LINE: u64 = 8 * 1024;

/// Passes on what a run process itself prints, line by line and marked as its own: it must not pass for a log
/// line of the runner. Ends with the pipes, and with the returned handle.
#[derive(Debug)]
pub(crate) struct RunOutput {
    readers: Vec<AbortOnDropHandle<()>>,
}

impl RunOutput {
    pub(crate) fn follow(process: &Process) -> Self {
        let (pipes, pid) = (process.take_pipes(), process.pid());
        let out = pipes.stdout.map(|pipe| AbortOnDropHandle::new(tokio::spawn(pass_on(pipe, pid, "stdout"))));
        let err = pipes.stderr.map(|pipe| AbortOnDropHandle::new(tokio::spawn(pass_on(pipe, pid, "stderr"))));
        Self { readers: out.into_iter().chain(err).collect() }
    }

    /// Waits for the last lines of a process that is gone.
    pub(crate) async fn finish(self) {
        let all = async {
            for reader in self.readers {
                let _ = reader.await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(200), all).await;
    }
}

async fn pass_on(pipe: impl AsyncRead + Unpin, pid: i32, stream: &'static str) {
    let mut pipe = BufReader::with_capacity(1024, pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut pipe).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        // Shown quoted: control characters of a program never reach a terminal or a log reader raw.
        tracing::warn!(pid, stream, line = ?text.trim_end_matches(['\n', '\r']), "run_process_output");
    }
}
