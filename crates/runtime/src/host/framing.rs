//! Lines of the host protocol: found in a byte stream, kept on disk when they are large.

use std::io::{self, Write};
use std::ops::Deref;
use std::path::PathBuf;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use trestle_contract::json::{MAX_DEPTH, MAX_HOST_FRAME_BYTES};

use super::mapped::Mapped;

/// Longest line that is held in memory.
const IN_MEMORY: usize = 1024 * 1024;
/// How much of a line that is too long is kept, to find its request id.
const HEAD: usize = 4096;

/// One line without its end.
#[derive(Debug)]
pub(crate) enum Line {
    /// A line of acceptable length.
    Whole(LineBytes),
    /// A line above the cap; its first bytes.
    TooLong(Vec<u8>),
}

/// The bytes of a line.
#[derive(Debug)]
pub(crate) enum LineBytes {
    Memory(Vec<u8>),
    Disk(Mapped),
}

impl Deref for LineBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Disk(mapped) => mapped,
        }
    }
}

/// Reads lines from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: R,
    spill_directory: PathBuf,
    cap: usize,
}

enum Collected {
    Memory(Vec<u8>),
    Disk { file: std::fs::File, length: usize },
    Discarded { head: Vec<u8> },
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R, spill_directory: PathBuf) -> Self {
        Self { stream, spill_directory, cap: MAX_HOST_FRAME_BYTES }
    }

    /// The stream itself.
    pub(crate) fn stream(&self) -> &R {
        &self.stream
    }

    #[cfg(test)]
    fn with_cap(mut self, cap: usize) -> Self {
        self.cap = cap;
        self
    }

    /// The next line that is not blank; `None` at the end of the stream (a line without its end is
    /// processed too).
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut collected = Collected::Memory(Vec::new());
            let mut ended = false;
            while !ended {
                let available = self.stream.fill_buf().await?;
                if available.is_empty() {
                    if matches!(&collected, Collected::Memory(bytes) if bytes.is_empty()) {
                        return Ok(None);
                    }
                    break;
                }
                let (part, used) = match memchr::memchr(b'\n', available) {
                    Some(end) => {
                        ended = true;
                        (available.get(..end).unwrap_or_default(), end + 1)
                    }
                    None => (available, available.len()),
                };
                collected = add(collected, part, self.cap, &self.spill_directory)?;
                self.stream.consume(used);
            }
            let line = match collected {
                Collected::Memory(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => continue,
                Collected::Memory(bytes) => Line::Whole(LineBytes::Memory(bytes)),
                Collected::Disk { file, .. } => Line::Whole(LineBytes::Disk(Mapped::of(&file)?)),
                Collected::Discarded { head } => Line::TooLong(head),
            };
            return Ok(Some(line));
        }
    }
}

fn add(collected: Collected, part: &[u8], cap: usize, directory: &std::path::Path) -> io::Result<Collected> {
    Ok(match collected {
        Collected::Memory(mut bytes) if bytes.len() + part.len() <= IN_MEMORY.min(cap) => {
            bytes.extend_from_slice(part);
            Collected::Memory(bytes)
        }
        Collected::Memory(mut bytes) if bytes.len() + part.len() > cap => {
            bytes.truncate(HEAD);
            let room = HEAD - bytes.len();
            bytes.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            Collected::Discarded { head: bytes }
        }
        Collected::Memory(bytes) => {
            // Unlinked from the start: nothing stays behind, whatever happens to this process.
            let mut file = tempfile::tempfile_in(directory)?;
            file.write_all(&bytes)?;
            file.write_all(part)?;
            Collected::Disk { file, length: bytes.len() + part.len() }
        }
        Collected::Disk { file, length } if length + part.len() > cap => {
            let mut head = vec![0; HEAD.min(length)];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0)?;
            Collected::Discarded { head }
        }
        Collected::Disk { mut file, length } => {
            file.write_all(part)?;
            Collected::Disk { file, length: length + part.len() }
        }
        discarded @ Collected::Discarded { .. } => discarded,
    })
}

/// Whether a JSON text nests deeper than a value of the deepest allowed nesting inside the two
/// objects around it (the frame and its parameters). Found without recursion.
pub(crate) fn is_too_deep(text: &[u8]) -> bool {
    let (mut level, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                level += 1;
                if level > MAX_DEPTH + 2 {
                    return true;
                }
            }
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The integer id in the first bytes of a request that is not read as a whole.
pub(crate) fn integer_id_in(head: &[u8]) -> Option<i64> {
    let at = memchr::memmem::find(head, b"\"id\":")?;
    // An id after the parameters began may be one of theirs.
    if memchr::memmem::find(head.get(..at)?, b"\"params\"").is_some() {
        return None;
    }
    let digits: Vec<u8> = head.get(at + 5..)?.iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn lines(input: &[u8], chunk: usize, cap: usize) -> Vec<Result<Vec<u8>, Vec<u8>>> {
        let directory = tempfile::tempdir().unwrap();
        let stream = tokio::io::BufReader::with_capacity(chunk.max(1), input);
        let mut reader = LineReader::new(stream, directory.path().into()).with_cap(cap);
        let mut found = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            found.push(match line {
                Line::Whole(bytes) => Ok(bytes.to_vec()),
                Line::TooLong(head) => Err(head),
            });
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        found
    }

    #[tokio::test]
    async fn blank_lines_are_skipped_and_the_last_line_needs_no_end() {
        let found = lines(b"a\n\r\n  \n\nb\r\nc", 3, 100).await;
        assert_eq!(found, [Ok(b"a".to_vec()), Ok(b"b\r".to_vec()), Ok(b"c".to_vec())]);
    }

    #[tokio::test]
    async fn a_large_line_is_whole_and_the_next_one_is_found() {
        let mut input = vec![b'x'; IN_MEMORY * 3];
        input.extend_from_slice(b"\nnext\n");
        let found = lines(&input, 100_000, IN_MEMORY * 4).await;
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].as_ref().unwrap().len(), IN_MEMORY * 3);
        assert_eq!(found[1], Ok(b"next".to_vec()));
    }

    #[tokio::test]
    async fn a_line_above_the_cap_is_dropped_and_its_head_kept() {
        for (cap, length) in [(100, 101), (IN_MEMORY + 10, IN_MEMORY + 11), (100, IN_MEMORY * 2)] {
            let mut input = br#"{"jsonrpc":"2.0","id":17,"method":"m","params":{"id":3,"x":""#.to_vec();
            input.resize(length, b'x');
            input.extend_from_slice(b"\nnext\n");
            let found = lines(&input, 1000, cap).await;
            assert_eq!(integer_id_in(found[0].as_ref().unwrap_err()), Some(17));
            assert_eq!(found[1], Ok(b"next".to_vec()));
        }
    }

    #[test]
    fn an_id_inside_of_parameters_is_not_the_requests() {
        assert_eq!(integer_id_in(br#"{"method":"m","params":{"id":3"#), None);
        assert_eq!(integer_id_in(br#"{"id":"7","method":"m""#), None);
    }

    #[test]
    fn nesting_is_measured_outside_of_strings() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(!is_too_deep(&nested(MAX_DEPTH + 2)));
        assert!(is_too_deep(&nested(MAX_DEPTH + 3)));
        assert!(is_too_deep(&nested(100_000)));
        assert!(!is_too_deep(format!("\"\\\"{}\"", "[".repeat(9999)).as_bytes()));
        assert!(!is_too_deep("[]".repeat(9999).as_bytes()));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_arrive(parts in prop::collection::vec("[a-z{}\" ]{0,40}", 0..12), chunk in 1_usize..64) {
            let input = parts.join("\n");
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let found = runtime.block_on(lines(input.as_bytes(), chunk, 1000));
            let expected: Vec<_> = parts.iter().filter(|part| !part.trim().is_empty()).map(|part| Ok(part.as_bytes().to_vec())).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
