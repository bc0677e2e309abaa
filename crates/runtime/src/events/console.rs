//! The program's standard streams, line by line.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::sleep;
use trestle_contract::event::{EventBody, StandardStream};
use trestle_domain::StreamRedactor;

use super::Emitter;

/// Most UTF-16 code units of one frame.
const LARGEST_FRAME: usize = 8_192;
const READ_AT_ONCE: usize = 16 * 1024;

/// How much console output one attempt may have; shared by both streams.
#[derive(Debug)]
pub(crate) struct ConsoleLimits {
    used: Mutex<Used>,
    most_frames: u64,
    most_bytes: u64,
}

#[derive(Debug, Default)]
struct Used {
    frames: u64,
    bytes: u64,
    told: bool,
}

enum Verdict {
    Show,
    Tell,
    Drop,
}

impl Default for ConsoleLimits {
    fn default() -> Self {
        Self::new(100_000, 64 * 1024 * 1024)
    }
}

impl ConsoleLimits {
    pub(crate) fn new(most_frames: u64, most_bytes: u64) -> Self {
        Self { used: Mutex::default(), most_frames, most_bytes }
    }

    fn admit(&self, bytes: usize) -> Verdict {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.told {
            return Verdict::Drop;
        }
        if used.frames + 1 > self.most_frames || used.bytes + bytes as u64 > self.most_bytes {
            used.told = true;
            return Verdict::Tell;
        }
        used.frames += 1;
        used.bytes += bytes as u64;
        Verdict::Show
    }

    fn notice(&self) -> String {
        format!(
            "… console output ends here: an attempt may print {} lines and {} MiB",
            self.most_frames,
            self.most_bytes / (1024 * 1024)
        )
    }
}

/// Most bytes that a pipe can hold when its writers are gone; more comes from somebody else.
const LARGEST_REST: usize = 1024 * 1024;

/// How the copies of a program's streams go on, for whoever waits for them to be through.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    state: Arc<watch::Sender<FlowState>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FlowState {
    reads: u64,
    /// Copies that wait until the server has taken events.
    held_up: usize,
    /// What still comes is not shown any more.
    is_full: bool,
}

impl Flow {
    /// Waits until nothing came for so long, or nothing that comes counts. While the server is what holds
    /// the copies up, nothing is over.
    pub(crate) async fn idle(&self, silence: Duration) {
        let mut seen = self.state.subscribe();
        loop {
            let before = *seen.borrow_and_update();
            if before.is_full {
                return;
            }
            let is_silent = tokio::time::timeout(silence, seen.changed()).await.is_err();
            if !is_silent || before.held_up > 0 {
                continue;
            }
            // This process may have been too busy to read: what lies in the pipe is read now.
            if tokio::time::timeout(silence / 4, seen.changed()).await.is_err() {
                return;
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut FlowState)) {
        self.state.send_modify(change);
    }
}

/// The end of a program, as the copies of its streams see it: from then on silence ends them, because a
/// pipe that somebody else holds open never ends by itself. Time that is spent waiting for the server to take
/// events is no silence.
#[derive(Debug, Clone)]
pub(crate) struct Closing {
    is_over: watch::Receiver<bool>,
    silence: Duration,
    flow: Flow,
}

impl Closing {
    pub(crate) fn new(is_over: watch::Receiver<bool>, silence: Duration, flow: Flow) -> Self {
        Self { is_over, silence, flow }
    }

    async fn silent(&mut self) {
        // A sender that is gone knows of no end.
        if self.is_over.wait_for(|over| *over).await.is_err() {
            std::future::pending::<()>().await;
        }
        sleep(self.silence).await;
    }
}

/// Reads a stream to its end and emits each line, with secrets replaced. Keeps the last line, for the
/// message of a program that failed without a report.
pub(crate) async fn copy_console(
    mut source: impl AsyncRead + Unpin,
    stream: StandardStream,
    emitter: Emitter,
    limits: Arc<ConsoleLimits>,
    last_line: Arc<Mutex<Option<String>>>,
    mut closing: Closing,
) {
    let mut rest = 0;
    let mut lines = Lines {
        redactor: emitter.redactor().stream(),
        text: Decoder::default(),
        line: String::new(),
        units: 0,
    };
    let mut buffer = vec![0; READ_AT_ONCE];
    let flow = closing.flow.clone();
    let show = |text: String| {
        if !text.trim().is_empty() {
            *last_line.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        }
        match limits.admit(text.len()) {
            Verdict::Show => emitter.emit(EventBody::ProgramOutput { stream, text }),
            Verdict::Tell => {
                flow.note(|flow| flow.is_full = true);
                emitter
                    .emit(EventBody::ProgramOutput { stream: StandardStream::Stderr, text: limits.notice() });
            }
            Verdict::Drop => {}
        }
    };
    loop {
        flow.note(|flow| flow.held_up += 1);
        emitter.room().await;
        flow.note(|flow| {
            flow.held_up -= 1;
            flow.reads += 1;
        });
        let read = tokio::select! {
            biased;
            read = source.read(&mut buffer) => read,
            () = closing.silent() => break,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(read) => {
                lines.push(buffer.get(..read).unwrap_or_default(), &show);
                if *closing.is_over.borrow() {
                    rest += read;
                }
            }
        }
        if rest > LARGEST_REST {
            break;
        }
    }
    lines.finish(&show);
}

struct Lines {
    redactor: StreamRedactor,
    text: Decoder,
    line: String,
    units: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], show: &impl Fn(String)) {
        let shown = self.redactor.push(bytes);
        let text = self.text.push(&shown);
        self.add(&text, show);
    }

    fn finish(&mut self, show: &impl Fn(String)) {
        let shown = self.redactor.finish();
        let mut text = self.text.push(&shown);
        text.push_str(&self.text.finish());
        self.add(&text, show);
        if !self.line.is_empty() {
            self.end_line(show);
        }
    }

    fn add(&mut self, text: &str, show: &impl Fn(String)) {
        for character in text.chars() {
            if character == '\n' {
                if self.line.ends_with('\r') {
                    self.line.pop();
                }
                self.end_line(show);
                continue;
            }
            let units = character.len_utf16();
            if self.units + units > LARGEST_FRAME {
                self.end_line(show);
            }
            self.line.push(character);
            self.units += units;
        }
    }

    fn end_line(&mut self, show: &impl Fn(String)) {
        self.units = 0;
        show(std::mem::take(&mut self.line));
    }
}

/// UTF-8 from chunks that may end inside a character. What is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.rest.len());
        let mut at = 0;
        loop {
            let rest = self.rest.get(at..).unwrap_or_default();
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.rest.clear();
                    return text;
                }
                Err(error) => {
                    let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
                    text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    at += error.valid_up_to();
                    match error.error_len() {
                        Some(length) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            at += length;
                        }
                        None => {
                            self.rest.drain(..at);
                            return text;
                        }
                    }
                }
            }
        }
    }

    fn finish(&mut self) -> String {
        let cut_off = !self.rest.is_empty();
        self.rest.clear();
        if cut_off { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;
    use trestle_domain::Redactor;

    use super::*;

    fn lines(input: &[u8], chunks: &[usize], redactor: &Redactor) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        let show = |text: String| found.borrow_mut().push(text);
        let mut lines =
            Lines { redactor: redactor.stream(), text: Decoder::default(), line: String::new(), units: 0 };
        let mut rest = input;
        let mut sizes = chunks.iter().copied().cycle();
        while !rest.is_empty() {
            let size =
                if chunks.is_empty() { rest.len() } else { sizes.next().unwrap_or(1).clamp(1, rest.len()) };
            let (chunk, left) = rest.split_at(size);
            lines.push(chunk, &show);
            rest = left;
        }
        lines.finish(&show);
        found.into_inner()
    }

    #[test]
    fn lines_lose_their_ends_and_the_last_one_needs_none() {
        let found = lines("a\r\nb\n\nü".as_bytes(), &[], &Redactor::default());
        assert_eq!(found, ["a", "b", "", "ü"]);
    }

    #[test]
    fn two_hundred_thousand_emoji_in_one_line_are_cut_between_characters_and_whole_together() {
        let line = "😀".repeat(200_000);
        let found = lines(format!("{line}\n").as_bytes(), &[4_095], &Redactor::default());
        assert!(found.iter().all(|part| part.encode_utf16().count() <= LARGEST_FRAME));
        assert_eq!(found.len(), 200_000_usize.div_ceil(LARGEST_FRAME / 2));
        assert_eq!(found.concat(), line);
    }

    #[test]
    fn a_secret_across_chunks_and_lines_is_replaced() {
        let redactor = Redactor::default();
        redactor.add("KEY", "first-half\nsecond-half");
        for chunk in 1..12 {
            let found = lines(b"x first-half\nsecond-half y\n", &[chunk], &redactor);
            assert_eq!(found, ["x [REDACTED] y"], "chunks of {chunk}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_marked_not_dropped() {
        assert_eq!(lines(b"a\xffb\xe2\x82", &[1], &Redactor::default()), ["a\u{fffd}b\u{fffd}"]);
    }

    #[test]
    fn beyond_a_limit_one_notice_is_shown_and_then_nothing() {
        let limits = ConsoleLimits::new(2, 1_000);
        let verdicts: Vec<_> = (0..5).map(|_| limits.admit(1)).collect();
        assert!(matches!(
            verdicts[..],
            [Verdict::Show, Verdict::Show, Verdict::Tell, Verdict::Drop, Verdict::Drop]
        ));
        let limits = ConsoleLimits::new(100, 10);
        assert!(matches!(limits.admit(10), Verdict::Show));
        assert!(matches!(limits.admit(1), Verdict::Tell));
    }

    proptest! {
        #[test]
        fn any_chunks_give_the_same_lines(text in "[a-c\\né😀\\r]{0,80}", chunks in prop::collection::vec(1_usize..7, 1..8), secret in "[a-c]{4,6}") {
            let redactor = Redactor::default();
            redactor.add("KEY", &secret);
            let planted = format!("{text}{secret}{text}");
            let whole = lines(planted.as_bytes(), &[], &redactor);
            prop_assert_eq!(&lines(planted.as_bytes(), &chunks, &redactor), &whole);
            let joined = whole.join("\n");
            prop_assert!(!joined.contains(&secret));
        }
    }
}
