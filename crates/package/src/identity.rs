//! The identity of a program version (`docs/protocol/descriptor.md` §8.6).

use sha2::{Digest as _, Sha256};

/// Separates this hash from every other use of SHA-256.
const DOMAIN: &[u8] = b"trestle program version 1\n";

/// What of a file is part of the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdentityEntry<'a> {
    /// Path from the artifact's root, with `/`.
    pub path: &'a str,
    /// Permission bits; only whether the owner may execute counts.
    pub mode: u32,
    /// SHA-256 of the content, lower-case hex.
    pub digest: &'a str,
}

/// SHA-256, as lower-case hex, over the files sorted by path: for each the path, a NUL, `0644` or `0755`, a NUL, the
/// content's digest, and a line end. Packing order, compression, owners and times do not count.
#[must_use]
pub fn identity<'a>(entries: impl IntoIterator<Item = IdentityEntry<'a>>) -> String {
    let mut entries: Vec<IdentityEntry<'a>> = entries.into_iter().collect();
    entries.sort_unstable();
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    for entry in entries {
        hasher.update(entry.path.as_bytes());
        hasher.update(if entry.mode & 0o100 == 0 { b"\x000644\0" } else { b"\x000755\0" });
        hasher.update(entry.digest.as_bytes());
        hasher.update(b"\n");
    }
    hex::encode(hasher.finalize())
}
