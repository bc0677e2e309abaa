use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

/// A directory and all below it, and nothing outside it: no path and no symbolic link leads
/// out. Cheap to clone. Its methods block.
#[derive(Clone, Debug)]
pub struct FileTree(Arc<Dir>);

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is; a symbolic link is not followed.
    pub kind: EntryKind,
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link or something else.
    Other,
}

impl FileTree {
    /// Opens a directory by a path that the caller trusts.
    pub fn open(path: &Path) -> io::Result<Self> {
        Dir::open_ambient_dir(path, ambient_authority()).map(|dir| Self(Arc::new(dir)))
    }

    /// The tree below a directory of this one; an error when there is none or it lies outside.
    pub fn subtree(&self, path: &str) -> io::Result<Self> {
        self.0.open_dir(path).map(|dir| Self(Arc::new(dir)))
    }

    /// The entries of a directory, in no order. Names that are not UTF-8 are left out.
    pub fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in self.0.read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_file() => EntryKind::File,
                Ok(kind) if kind.is_dir() => EntryKind::Directory,
                _ => EntryKind::Other,
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    /// Whether a path is a directory, links followed within the tree.
    pub fn is_directory(&self, path: &str) -> bool {
        self.0.metadata(path).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Whether a path is a regular file, links followed within the tree.
    pub fn is_file(&self, path: &str) -> bool {
        self.0.metadata(path).is_ok_and(|metadata| metadata.is_file())
    }

    /// The first `limit` bytes of a regular file.
    pub fn read(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.0.open(path)?;
        // A fifo or a device would block or never end.
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What tells a file from all others, whatever name it has.
    pub(crate) fn identity(&self, path: &str) -> io::Result<(u64, u64)> {
        use cap_std::fs::MetadataExt;
        let metadata = self.0.metadata(path)?;
        Ok((metadata.dev(), metadata.ino()))
    }
}
