//! A file's bytes as a slice, without a copy in memory.
#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe where the file could shrink; this one is unlinked and ours"
)]

use std::fs::File;
use std::io;
use std::ops::Deref;

/// A read-only view of a file that has no name and is not written any more.
#[derive(Debug)]
pub(crate) struct Mapped(memmap2::Mmap);

impl Mapped {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the file was created without a name by this process, no other process can open it,
        // and nothing here writes to it after this point.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
