//! The run's events as text in a file, for a terminal that shows the run at work.
//!
//! It gets the same redacted events as the control plane. Nothing that happens to it reaches the run: it is
//! opened without waiting, a failing write ends it, and its size is bounded.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use trestle_contract::event::EventBody;

/// Largest share of one run in the file, in bytes; then one line says that it ends here.
const LARGEST: usize = 16 * 1024 * 1024;
/// Text that is gathered before it is written.
const GATHERED: usize = 16 * 1024;
/// Most characters of a block of text, of tool output, of the return value.
const TEXT_WIDTH: usize = 2_000;
const TOOL_WIDTH: usize = 200;
const OUTPUT_WIDTH: usize = 300;

const OPENING: &str = "\n\x1b[1;36m── boardwalk run ──\x1b[0m\n";
const ENDS_HERE: &str = "\x1b[90m… the log of this run ends here: it is larger than 16 MiB\x1b[0m\n";

/// An open log. Dropping it writes what was gathered.
#[derive(Debug)]
pub(crate) struct Mirror {
    file: Option<File>,
    /// Deltas of the open block.
    block: String,
    gathered: String,
    written: usize,
}

impl Mirror {
    /// Opens the log at its end. A name that is no plain file is refused: writing to it could wait.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
        }
        let mut mirror = Self { file: Some(file), block: String::new(), gathered: String::new(), written: 0 };
        mirror.put(OPENING);
        mirror.flush();
        Ok(mirror)
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, body: &EventBody) {
        if self.file.is_none() {
            return;
        }
        match body {
            EventBody::TextDelta { text, .. } | EventBody::ReasoningDelta { text } => {
                // More than is shown need not be kept.
                if self.block.len() < TEXT_WIDTH * 8 {
                    self.block.push_str(text);
                }
            }
            EventBody::TextStart { .. } => {}
            // What the block held is void.
            EventBody::TurnReset {} => self.block.clear(),
            other => {
                self.end_block();
                if let Some(line) = line(other) {
                    self.put(&line);
                    self.put("\n");
                }
            }
        }
    }

    fn end_block(&mut self) {
        let text = one_line(&std::mem::take(&mut self.block), TEXT_WIDTH);
        if !text.is_empty() {
            self.put(&format!("  \x1b[37m{text}\x1b[0m\n"));
        }
    }

    fn put(&mut self, text: &str) {
        self.gathered.push_str(text);
        if self.gathered.len() >= GATHERED {
            self.flush();
        }
    }

    /// Writes what was gathered.
    pub(crate) fn flush(&mut self) {
        let text = std::mem::take(&mut self.gathered);
        let Some(file) = &mut self.file else { return };
        let is_full = self.written + text.len() > LARGEST;
        let text = if is_full { ENDS_HERE } else { &text };
        self.written += text.len();
        // One write, so that the lines of runs that share a file stay whole.
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::debug!(%error, "the run's log cannot be written any more");
            self.file = None;
        } else if is_full {
            self.file = None;
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.end_block();
        self.flush();
    }
}

fn line(body: &EventBody) -> Option<String> {
    let shown = |text: &str| plain(text);
    Some(match body {
        EventBody::RunStatus { status, .. } => format!("\x1b[1;32m● {status}\x1b[0m"),
        EventBody::Phase { name, .. } => format!("\x1b[1;36m▸ {}\x1b[0m", shown(name.as_str())),
        EventBody::ProgramOutput { text, .. } => {
            let text = shown(text.trim_end());
            if text.is_empty() {
                return None;
            }
            format!("  {text}")
        }
        EventBody::TurnStarted { agent_id, agent_name } => {
            format!("\x1b[35m· agent {}\x1b[0m", shown(agent_name.as_ref().unwrap_or(agent_id).as_str()))
        }
        EventBody::ToolCallStart { tool_name, .. } => format!("  \x1b[33m⚙ {}\x1b[0m", shown(tool_name)),
        EventBody::ToolOutputDelta { text, .. } => {
            let text = one_line(text, TOOL_WIDTH);
            if text.is_empty() {
                return None;
            }
            format!("    \x1b[90m{text}\x1b[0m")
        }
        EventBody::ToolCallResult { .. } => "  \x1b[32m✓ done\x1b[0m".to_owned(),
        EventBody::ToolCallError { .. } => "  \x1b[31m✗ tool error\x1b[0m".to_owned(),
        EventBody::Output { value } => {
            let text = value.decode::<String>().unwrap_or_else(|_| value.get().to_owned());
            format!("\x1b[1;32m✔ output  {}\x1b[0m", one_line(&text, OUTPUT_WIDTH))
        }
        EventBody::HumanInputRequested { .. } => "\x1b[1;33m⏸ awaiting human input\x1b[0m".to_owned(),
        EventBody::HumanInputResolved { .. } => "\x1b[33m▶ input received\x1b[0m".to_owned(),
        EventBody::Suspended { .. } => "\x1b[90m⏸ suspended\x1b[0m".to_owned(),
        EventBody::Resumed {} => "\x1b[90m▶ resumed\x1b[0m".to_owned(),
        EventBody::EgressDenied { .. } => "  \x1b[31m⛔ egress denied\x1b[0m".to_owned(),
        _ => return None,
    })
}

/// The text without what a terminal would obey: a program must not be able to imitate the log.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

/// All blanks as single ones, at most so many characters.
fn one_line(text: &str, most: usize) -> String {
    let text = text.split_whitespace().map(plain).filter(|word| !word.is_empty());
    let mut line = String::new();
    for word in text {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    match line.char_indices().nth(most) {
        None => line,
        Some(_) => {
            let cut = line.char_indices().nth(most.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
            line.truncate(cut);
            line.push('…');
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use trestle_contract::event::Event;

    use super::*;

    fn shown(bodies: &[&str]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.log");
        let mut mirror = Mirror::open(&path).unwrap();
        for body in bodies {
            let json = format!(r#"{{"runId":"r","turnId":"r","seq":1,"t":0,{body}}}"#);
            mirror.show(&Event::parse(&json).unwrap().body);
        }
        drop(mirror);
        let text = std::fs::read_to_string(&path).unwrap();
        text.strip_prefix(OPENING).unwrap().to_owned()
    }

    #[test]
    fn every_kind_has_the_line_of_the_original() {
        for (body, line) in [
            (r#""kind":"run_status","status":"running""#, "\x1b[1;32m● running\x1b[0m\n"),
            (r#""kind":"phase","name":"Collect","id":"p""#, "\x1b[1;36m▸ Collect\x1b[0m\n"),
            (r#""kind":"program_output","stream":"stdout","text":"a\nb  \n""#, "  a\nb\n"),
            (r#""kind":"program_output","stream":"stdout","text":"  ""#, ""),
            (
                r#""kind":"turn_started","agentId":"agent-1","agentName":"critic""#,
                "\x1b[35m· agent critic\x1b[0m\n",
            ),
            (r#""kind":"turn_started","agentId":"agent-1""#, "\x1b[35m· agent agent-1\x1b[0m\n"),
            (r#""kind":"tool_call_start","toolCallId":"c","toolName":"look""#, "  \x1b[33m⚙ look\x1b[0m\n"),
            (
                r#""kind":"tool_output_delta","toolCallId":"c","stream":"stdout","text":" x\n y ""#,
                "    \x1b[90mx y\x1b[0m\n",
            ),
            (r#""kind":"tool_output_delta","toolCallId":"c","stream":"stdout","text":"\n""#, ""),
            (r#""kind":"tool_call_result","toolCallId":"c","result":{}"#, "  \x1b[32m✓ done\x1b[0m\n"),
            (
                r#""kind":"tool_call_error","toolCallId":"c","error":{"code":"X","message":"m"}"#,
                "  \x1b[31m✗ tool error\x1b[0m\n",
            ),
            (r#""kind":"output","value":"plain""#, "\x1b[1;32m✔ output  plain\x1b[0m\n"),
            (r#""kind":"output","value":{"n":1}"#, "\x1b[1;32m✔ output  {\"n\":1}\x1b[0m\n"),
            (
                r#""kind":"human_input_requested","requestId":"1","key":"k","prompt":"p""#,
                "\x1b[1;33m⏸ awaiting human input\x1b[0m\n",
            ),
            (
                r#""kind":"human_input_resolved","requestId":"1","key":"k""#,
                "\x1b[33m▶ input received\x1b[0m\n",
            ),
            (r#""kind":"suspended","reason":"sleep""#, "\x1b[90m⏸ suspended\x1b[0m\n"),
            (r#""kind":"resumed""#, "\x1b[90m▶ resumed\x1b[0m\n"),
            (r#""kind":"egress_denied","host":"h","reason":"r""#, "  \x1b[31m⛔ egress denied\x1b[0m\n"),
            (r#""kind":"turn_ended","agentId":"agent-1","reason":"complete""#, ""),
        ] {
            assert_eq!(shown(&[body]), line, "{body}");
        }
    }

    #[test]
    fn text_is_gathered_until_its_block_ends_and_a_reset_voids_it() {
        let text = |text: &str| format!(r#""kind":"text_delta","blockId":"b","text":"{text}""#);
        let whole = shown(&[
            r#""kind":"text_start","blockId":"b""#,
            &text("void "),
            r#""kind":"turn_reset""#,
            &text("one\\n"),
            &text(" two"),
            r#""kind":"text_end","blockId":"b""#,
            r#""kind":"reasoning_delta","text":"hm""#,
        ]);
        assert_eq!(
            whole, "  \x1b[37mone two\x1b[0m\n  \x1b[37mhm\x1b[0m\n",
            "also what the run's end left open"
        );
        let long = shown(&[&text(&"é".repeat(2_500))]);
        assert_eq!(long, format!("  \x1b[37m{}…\x1b[0m\n", "é".repeat(1_999)));
    }

    #[test]
    fn what_a_program_prints_cannot_steer_the_terminal() {
        let line = shown(&[r#""kind":"program_output","stream":"stdout","text":"a\u001b[2Jb\rc\u0007""#]);
        assert_eq!(line, "  a[2Jbc\n");
    }

    #[test]
    fn the_log_is_bounded_and_says_where_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.log");
        let mut mirror = Mirror::open(&path).unwrap();
        let line = EventBody::ProgramOutput {
            stream: trestle_contract::event::StandardStream::Stdout,
            text: "x".repeat(1024 * 1024),
        };
        for _ in 0..40 {
            mirror.show(&line);
        }
        drop(mirror);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() <= LARGEST + ENDS_HERE.len(), "{}", text.len());
        assert!(text.ends_with(ENDS_HERE) && text.matches("ends here").count() == 1);
    }

    #[test]
    fn a_log_that_could_make_the_run_wait_or_fail_is_no_log() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _reader = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&pipe).unwrap();
        assert!(Mirror::open(&pipe).is_err());
        assert!(Mirror::open(directory.path()).is_err());
        let mut full = Mirror {
            file: Some(OpenOptions::new().write(true).open("/dev/full").unwrap()),
            block: String::new(),
            gathered: String::new(),
            written: 0,
        };
        full.show(&EventBody::Resumed {});
        full.flush();
        assert!(full.file.is_none());
        full.show(&EventBody::Resumed {});
    }
}
