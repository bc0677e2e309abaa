use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::task::AbortOnDropHandle;
use trestle_sandbox::Process;

/// How long to wait for the last lines of a process that is gone: somebody may hold its pipes open.
const LAST_LINES: Duration = Duration::from_secs(1);
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
        let _ = tokio::time::timeout(LAST_LINES, all).await;
    }
}

async fn pass_on(pipe: impl AsyncRead + Unpin, pid: i32, stream: &'static str) {
    let mut pipe = BufReader::with_capacity(1024, pipe);
    let mut line = Vec::new();
    loop {
        let room = LONGEST_LINE.saturating_sub(u64::try_from(line.len()).unwrap_or(0));
        let read = (&mut pipe).take(room).read_until(b'\n', &mut line).await;
        let over = !matches!(read, Ok(1..));
        let text = taken(&mut line, over);
        if !text.is_empty() {
            // Shown quoted: control characters of a program never reach a terminal or a log reader raw.
            tracing::warn!(pid, stream, line = ?text.trim_end_matches(['\n', '\r']), "run_process_output");
        }
        if over {
            return;
        }
    }
}

/// Takes what was read as text. A character of which only a part was read stays until the rest is there.
fn taken(line: &mut Vec<u8>, over: bool) -> String {
    let whole = match str::from_utf8(line) {
        Err(error) if error.error_len().is_none() && !over => error.valid_up_to(),
        _ => line.len(),
    };
    let rest = line.split_off(whole);
    let bytes = std::mem::replace(line, rest);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_read_in_parts_is_shown_whole() {
        let mut line = "a\u{1f600}".as_bytes()[..3].to_vec();
        assert_eq!(taken(&mut line, false), "a");
        line.extend_from_slice(&"\u{1f600}\n".as_bytes()[2..]);
        assert_eq!(taken(&mut line, false), "\u{1f600}\n");
        assert!(line.is_empty());
        line.extend_from_slice(b"b\xff\xf0");
        assert_eq!(taken(&mut line, true), "b\u{fffd}\u{fffd}");
    }
}
