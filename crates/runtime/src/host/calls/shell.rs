use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep, timeout_at};
use trestle_contract::host::{ShellOpts, ShellParams, ShellResult};
use trestle_contract::{ErrorCode, RawJson};
use trestle_sandbox::{Exit, HostIsolation, Isolation, Pipes, Process, ProcessSpec, SandboxError, Stdio};

use super::{Capabilities, HostFailure, encoded};

const DEFAULT_BUFFER: usize = 16 * 1024 * 1024;

enum End {
    Exited(Exit),
    TimedOut,
    TooMuch(&'static str),
}

impl Capabilities {
    /// Runs a command to its end, its time or its fill; also the end of the run ends it, with all that
    /// it started.
    pub(super) async fn shell(&self, params: ShellParams) -> Result<RawJson, HostFailure> {
        self.budget.park()?;
        let opts = params.opts.unwrap_or_default();
        let process =
            HostIsolation.spawn(self.shell_spec(params.cmd.as_str(), &opts)?).await.map_err(not_started)?;
        let grace = self.control.timing().shell_grace;
        match self.abort.race(self.command(&process, &opts)).await {
            Ok(result) => encoded(&result?),
            Err(reason) => {
                // At most what the program itself is given before it is killed.
                let _ = process.terminate(grace.min(Duration::from_millis(500))).await;
                Err(HostFailure::aborted(reason))
            }
        }
    }

    fn shell_spec(&self, command: &str, opts: &ShellOpts) -> Result<ProcessSpec, HostFailure> {
        let mut environment = self.facts.environment.clone();
        if let Some(socket) = self.socket.get() {
            environment.insert("BOARDWALK_HOST_SOCK".into(), socket.display().to_string());
        }
        environment.extend(opts.env.clone().unwrap_or_default());
        let cwd = match &opts.cwd {
            Some(cwd) => self.facts.workspace.join(Path::new(cwd)),
            None => self.facts.workspace.clone(),
        };
        Ok(ProcessSpec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), command.into()],
            env: environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd,
            stdin: Stdio::Null,
            stdout: Stdio::Pipe,
            stderr: Stdio::Pipe,
            extra_fds: vec![],
        })
    }

    async fn command(&self, process: &Process, opts: &ShellOpts) -> Result<ShellResult, HostFailure> {
        let timing = self.control.timing();
        let cap = opts.max_buffer.map_or(DEFAULT_BUFFER, whole);
        let Pipes { stdout, stderr, .. } = process.take_pipes();
        let mut output = (Captured::new(stdout, cap), Captured::new(stderr, cap));
        let end = {
            let (out, err) = (&mut output.0, &mut output.1);
            tokio::select! {
                biased;
                end = too_much(out, err) => end,
                exit = process.wait() => End::Exited(exit.map_err(|error| HostFailure::internal(error.to_string()))?),
                () = time_limit(opts.timeout_ms) => End::TimedOut,
            }
        };
        let exit = match end {
            End::Exited(exit) => exit,
            End::TimedOut => {
                let (ended, ()) = tokio::join!(process.terminate(timing.shell_grace), read_both(&mut output));
                ended
                    .map_err(|error| HostFailure::internal(error.to_string()))?
                    .exit
                    .unwrap_or(Exit::Signal(9))
            }
            End::TooMuch(stream) => {
                let _ = process.kill().await;
                return Err(HostFailure::new(
                    ErrorCode::ToolError,
                    format!("the command printed more than {cap} bytes to {stream} and was killed"),
                )
                .with_hint("raise maxBuffer, or write the output to a file"));
            }
        };
        // A background process may hold the pipes for ever: what is there now is what counts.
        let _ = timeout_at(Instant::now() + timing.pipe_drain, read_both(&mut output)).await;
        let (stdout, stderr) = output;
        if let Some(stream) =
            [(&stdout, "stdout"), (&stderr, "stderr")].iter().find(|(captured, _)| captured.is_over())
        {
            return Err(HostFailure::new(
                ErrorCode::ToolError,
                format!("the command printed more than {cap} bytes to {}", stream.1),
            )
            .with_hint("raise maxBuffer, or write the output to a file"));
        }
        Ok(ShellResult {
            exit_code: i64::from(exit.shell_code()),
            stdout: decode_text(stdout.bytes),
            stderr: decode_text(stderr.bytes),
        })
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative and huge limits saturate"
)]
fn whole(bytes: f64) -> usize {
    bytes as usize
}

async fn time_limit(limit_ms: Option<f64>) {
    match limit_ms.filter(|limit| limit.is_finite() && *limit >= 0.0) {
        Some(limit) => sleep(Duration::from_secs_f64((limit / 1_000.0).min(1e9))).await,
        None => std::future::pending().await,
    }
}

async fn too_much(stdout: &mut Captured, stderr: &mut Captured) -> End {
    let stream = tokio::select! {
        () = stdout.until_over() => "stdout",
        () = stderr.until_over() => "stderr",
    };
    End::TooMuch(stream)
}

async fn read_both(output: &mut (Captured, Captured)) {
    tokio::join!(output.0.read_on(), output.1.read_on());
}

fn not_started(error: SandboxError) -> HostFailure {
    match error.os_code() {
        // The operating system's own name, as programs expect it.
        Some(code) => HostFailure(trestle_contract::host::HostErrorBody::with_code(&code, error.to_string())),
        None => HostFailure::invalid(error.to_string()),
    }
}

/// Text of bytes that may not be text.
pub(crate) fn decode_text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => error.as_bytes().utf8_chunks().fold(String::new(), |mut text, chunk| {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            text
        }),
    }
}

/// What a stream printed, in bytes.
struct Captured {
    pipe: Option<pipe::Receiver>,
    bytes: Vec<u8>,
    cap: usize,
}

impl Captured {
    fn new(pipe: Option<pipe::Receiver>, cap: usize) -> Self {
        Self { pipe, bytes: Vec::new(), cap }
    }

    fn is_over(&self) -> bool {
        self.bytes.len() > self.cap
    }

    /// Reads to the end or to one byte above the cap.
    async fn read_on(&mut self) {
        while let Some(pipe) = &mut self.pipe {
            let room = self.cap.saturating_add(1).saturating_sub(self.bytes.len());
            if room == 0 {
                return;
            }
            match read_some(pipe, &mut self.bytes, room).await {
                Ok(0) | Err(_) => self.pipe = None,
                Ok(_) => {}
            }
        }
    }

    /// Reads until the cap is passed; never ends otherwise.
    async fn until_over(&mut self) {
        self.read_on().await;
        if !self.is_over() {
            std::future::pending::<()>().await;
        }
    }
}

async fn read_some(
    pipe: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    room: usize,
) -> std::io::Result<usize> {
    let most = u64::try_from(room.min(64 * 1024)).unwrap_or(u64::MAX);
    pipe.take(most).read_buf(bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_at_the_end_of_a_chunk_is_whole_and_nonsense_is_marked() {
        assert_eq!(decode_text("añ😀".as_bytes().to_vec()), "añ😀");
        assert_eq!(decode_text(b"a\xffb\xe2\x82".to_vec()), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn limits_that_make_no_sense_saturate() {
        assert_eq!((whole(-1.0), whole(0.5), whole(10.0), whole(f64::INFINITY)), (0, 0, 10, usize::MAX));
    }
}
