//! Server-sent events, read byte by byte.
//!
//! Line ends may be LF, CRLF or CR, in any mixture; a field name need not be followed by a space; a code point may be split over chunks.
//! Whatever the borders of the chunks, the events are the same.

use std::collections::VecDeque;

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's type; empty when the stream named none.
    pub event: String,
    /// The data lines, joined with LF.
    pub data: String,
}

/// An event was larger than the reader allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one event of the stream is larger than {limit} bytes")]
pub struct SseTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Turns the bytes of a `text/event-stream` body into events.
///
/// Data lines are joined as the standard says, with one exception: servers that forget the blank line between two JSON documents are
/// understood. A line that opens a document (`{` or `[DONE]`) cannot go on with one that a `}` has just closed, so it starts a new event.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    line: Vec<u8>,
    after_carriage_return: bool,
    first_line: bool,
    event: String,
    data: String,
    has_data: bool,
}

impl SseDecoder {
    /// A reader that refuses events (and lines) above `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_carriage_return: false,
            first_line: true,
            event: String::new(),
            data: String::new(),
            has_data: false,
        }
    }

    /// Reads the next bytes of the body and appends the events that they complete to `events`.
    ///
    /// # Errors
    /// [`SseTooLarge`] as soon as a line or an event exceeds the limit; the reader is of no use afterwards.
    pub fn feed(&mut self, mut bytes: &[u8], events: &mut VecDeque<SseEvent>) -> Result<(), SseTooLarge> {
        if self.after_carriage_return && !bytes.is_empty() {
            self.after_carriage_return = false;
            if let Some(rest) = bytes.strip_prefix(b"\n") {
                bytes = rest;
            }
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', bytes) {
            let (head, tail) = (&bytes[..end], &bytes[end..]);
            self.check(self.line.len() + head.len())?;
            if self.line.is_empty() {
                self.take_line(head, events)?;
            } else {
                self.line.extend_from_slice(head);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, events)?;
                self.line = line;
                self.line.clear();
            }
            bytes = match tail {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_carriage_return = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.check(self.line.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// The body has ended: a last event without its blank line, or a last line without its end, still counts.
    ///
    /// # Errors
    /// [`SseTooLarge`] like [`SseDecoder::feed`].
    pub fn finish(&mut self, events: &mut VecDeque<SseEvent>) -> Result<(), SseTooLarge> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, events)?;
        }
        self.dispatch(events);
        Ok(())
    }

    fn check(&self, length: usize) -> Result<(), SseTooLarge> {
        if length > self.limit {
            return Err(SseTooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], events: &mut VecDeque<SseEvent>) -> Result<(), SseTooLarge> {
        let line = if std::mem::take(&mut self.first_line) {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => return Ok(()),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data && starts_new_document(&self.data, value) {
                    self.dispatch(events);
                }
                self.check(self.data.len() + value.len())?;
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                append_text(&mut self.data, value);
            }
            b"event" => {
                self.event.clear();
                append_text(&mut self.event, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut VecDeque<SseEvent>) {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push_back(SseEvent { event, data });
        }
    }
}

fn starts_new_document(so_far: &str, next: &[u8]) -> bool {
    let next = next.trim_ascii();
    so_far.trim_end().ends_with('}') && (next.starts_with(b"{") || next == b"[DONE]")
}

/// A whole line is a border of code points, so bytes that do not decode here are really broken; they become U+FFFD.
fn append_text(target: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        target.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            target.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A name, the bytes, and the events as type and data.
    type Row = (&'static str, &'static [u8], &'static [(&'static str, &'static str)]);

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::new(1 << 20);
        let mut events = VecDeque::new();
        for chunk in chunks {
            decoder.feed(chunk, &mut events).unwrap();
        }
        decoder.finish(&mut events).unwrap();
        events.into_iter().map(|event| (event.event, event.data)).collect()
    }

    #[test]
    fn each_row_of_the_conformance_table_gives_its_events() {
        let table: &[Row] = &[
            ("LF", b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]),
            ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]),
            ("CR", b"data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]),
            ("mixed ends", b"event: x\r\ndata: a\n\r\ndata: b\r\r\n", &[("x", "a"), ("", "b")]),
            ("no space after the colon", b"data:x\n\n", &[("", "x")]),
            ("only one space is dropped", b"data:  x\n\n", &[("", " x")]),
            ("field without colon", b"data\n\n", &[("", "")]),
            ("several data lines", b"data: a\ndata: b\n\n", &[("", "a\nb")]),
            ("comment and ping", b": hi\n\n:\ndata: a\n\n", &[("", "a")]),
            ("event without data is dropped", b"event: ping\n\ndata: a\n\n", &[("", "a")]),
            ("id and retry are ignored", b"id: 7\nretry: 10\ndata: a\n\n", &[("", "a")]),
            ("last event without blank line", b"data: a\n\ndata: b\n", &[("", "a"), ("", "b")]),
            ("last line without end", b"data: a\n\ndata: b", &[("", "a"), ("", "b")]),
            ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", &[("", "a")]),
            (
                "missing blank line between documents",
                b"data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n\n",
                &[("", "{\"a\":1}"), ("", "{\"b\":2}"), ("", "[DONE]")],
            ),
            (
                "document over several lines",
                b"data: {\"a\":\ndata: {\"b\":2}\ndata: }\n\n",
                &[("", "{\"a\":\n{\"b\":2}\n}")],
            ),
            ("broken UTF-8", b"data: a\xff\xfeb\n\n", &[("", "a\u{fffd}\u{fffd}b")]),
            ("empty body", b"", &[]),
        ];
        for (name, bytes, want) in table {
            let want: Vec<(String, String)> =
                want.iter().map(|(e, d)| ((*e).to_owned(), (*d).to_owned())).collect();
            assert_eq!(decode(&[bytes]), want, "{name}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(decode(&single), want, "{name}, byte by byte");
        }
    }

    #[test]
    fn an_event_above_the_limit_is_refused_whole_and_in_pieces() {
        for line in ["data: 0123456789\n", "data: 01234\ndata: 56789\n\n"] {
            for size in [1, 3, line.len()] {
                let mut decoder = SseDecoder::new(9);
                let mut events = VecDeque::new();
                let refused =
                    line.as_bytes().chunks(size).any(|chunk| decoder.feed(chunk, &mut events).is_err());
                assert!(refused, "{line:?} in pieces of {size}");
            }
        }
        let mut decoder = SseDecoder::new(64);
        let mut events = VecDeque::new();
        for _ in 0..100 {
            decoder.feed(b"data: 0123456789\n\n", &mut events).unwrap();
        }
        assert_eq!(events.len(), 100);
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_identical_events(
            lines in proptest::collection::vec(
                prop_oneof![
                    "\\PC{0,12}".prop_map(|text| format!("data: {text}")),
                    Just("data:{\"a\":\"é😀\"}".to_owned()),
                    Just("event: x".to_owned()),
                    Just(": ping".to_owned()),
                    Just(String::new()),
                    Just(String::new()),
                ],
                0..20,
            ),
            ends in proptest::collection::vec(0usize..3, 20),
            cuts in proptest::collection::vec(0usize..400, 0..12),
        ) {
            let mut bytes = Vec::new();
            for (line, end) in lines.iter().zip(&ends) {
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(["\n", "\r\n", "\r"][*end].as_bytes());
            }
            let mut borders: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            borders.extend([0, bytes.len()]);
            borders.sort_unstable();
            let pieces: Vec<&[u8]> = borders.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[&bytes]));
        }
    }
}
