//! Frames that wait to be sent: the first in memory, the rest in a file of the run's directory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes that are held in memory before frames go to the file.
const IN_MEMORY: usize = 512 * 1024;

/// A first-in, first-out store of frames. The file exists only while it is needed and has no name.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    memory: VecDeque<String>,
    memory_bytes: usize,
    file: Option<Overflow>,
}

#[derive(Debug)]
struct Overflow {
    file: File,
    read_at: u64,
    write_at: u64,
}

impl Spool {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, memory: VecDeque::new(), memory_bytes: 0, file: None }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory_bytes as u64 + self.file.as_ref().map_or(0, |file| file.write_at - file.read_at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.file.is_none()
    }

    /// Adds a frame at the end. When the file cannot be written the frame stays in memory: a full
    /// disk loses nothing.
    pub(crate) fn push(&mut self, frame: String) {
        if self.file.is_none() && self.memory_bytes + frame.len() <= IN_MEMORY {
            self.remember(frame);
            return;
        }
        if let Err(error) = self.write(&frame) {
            tracing::warn!(%error, "frames stay in memory: their file cannot be written");
            // Order: what is in the file is older than this frame.
            if let Err(error) = self.refill(u64::MAX) {
                tracing::error!(%error, "frames that were written to their file cannot be read back");
            }
            self.remember(frame);
        }
    }

    /// Takes the first frames, at most so many and so many bytes, but at least one.
    pub(crate) fn take(&mut self, most_frames: usize, most_bytes: usize) -> Vec<String> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < most_frames {
            if self.memory.is_empty()
                && let Err(error) = self.refill(IN_MEMORY as u64)
            {
                tracing::error!(%error, "frames that were written to their file cannot be read back");
            }
            let Some(next) = self.memory.front() else { break };
            if !taken.is_empty() && bytes + next.len() > most_bytes {
                break;
            }
            bytes += next.len();
            self.memory_bytes -= next.len();
            taken.extend(self.memory.pop_front());
        }
        taken
    }

    fn remember(&mut self, frame: String) {
        self.memory_bytes += frame.len();
        self.memory.push_back(frame);
    }

    fn write(&mut self, frame: &str) -> io::Result<()> {
        let overflow = match &mut self.file {
            Some(overflow) => overflow,
            none => none.insert(Overflow {
                file: tempfile::tempfile_in(&self.directory)?,
                read_at: 0,
                write_at: 0,
            }),
        };
        let length = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut record = Vec::with_capacity(4 + frame.len());
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(frame.as_bytes());
        overflow.file.write_all_at(&record, overflow.write_at)?;
        overflow.write_at += record.len() as u64;
        Ok(())
    }

    /// Moves frames from the file to memory until so many bytes are there.
    fn refill(&mut self, most: u64) -> io::Result<()> {
        let Some(mut overflow) = self.file.take() else { return Ok(()) };
        let mut moved = 0;
        while overflow.read_at < overflow.write_at && moved < most {
            let mut length = [0; 4];
            overflow.file.read_exact_at(&mut length, overflow.read_at)?;
            let mut frame = vec![0; u32::from_le_bytes(length) as usize];
            overflow.file.read_exact_at(&mut frame, overflow.read_at + 4)?;
            overflow.read_at += 4 + frame.len() as u64;
            moved += frame.len() as u64;
            self.remember(String::from_utf8(frame).map_err(io::Error::other)?);
        }
        if overflow.read_at < overflow.write_at {
            self.file = Some(overflow);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_beyond_memory_go_to_a_nameless_file_and_come_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(directory.path().into());
        let frame = |number: usize| format!("{number:06}{}", "é".repeat(50_000));
        for number in 0..40 {
            spool.push(frame(number));
        }
        assert!(spool.file.is_some());
        assert!(spool.memory_bytes <= IN_MEMORY);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        for number in 0..40 {
            assert_eq!(spool.take(1, usize::MAX), [frame(number)]);
        }
        assert!(spool.is_empty());
        assert_eq!(spool.bytes(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_loses_nothing() {
        let mut spool = Spool::new("/proc/none".into());
        for number in 0..30 {
            spool.push(format!("{number}{}", "x".repeat(100_000)));
        }
        let taken = spool.take(100, usize::MAX);
        assert_eq!(taken.len(), 30);
        assert!(taken.iter().enumerate().all(|(number, frame)| frame.starts_with(&number.to_string())));
    }

    proptest! {
        #[test]
        fn any_mix_of_puts_and_takes_keeps_order_and_loses_nothing(steps in prop::collection::vec((0_usize..200_000, 0_usize..4), 1..60)) {
            let directory = tempfile::tempdir().unwrap();
            let mut spool = Spool::new(directory.path().into());
            let (mut put, mut got) = (0_usize, Vec::new());
            for (length, takes) in steps {
                spool.push(format!("{put:08}{}", "x".repeat(length)));
                put += 1;
                got.extend(spool.take(takes, 300_000));
            }
            while !spool.is_empty() {
                got.extend(spool.take(16, 300_000));
            }
            prop_assert_eq!(got.len(), put);
            for (number, frame) in got.iter().enumerate() {
                prop_assert_eq!(&frame[..8], format!("{number:08}"));
            }
        }
    }
}
