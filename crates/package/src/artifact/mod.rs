//! Reading artifacts that somebody else packed: what is in them, and putting them on disk
//! (`docs/protocol/descriptor.md` §8).
//!
//! An artifact is untrusted input. Both ways through it share one walk over the entries, which refuses whatever an
//! honest packer never writes: paths that leave the root, links, devices, two entries for one path, an SDK of its own,
//! and more bytes or entries than the [`Limits`] allow.

mod derive;
mod entries;
mod extract;
mod inspect;

pub use derive::derive_schemas;
pub(crate) use entries::sdk_in;
pub use entries::{ArtifactError, Limits};
pub use extract::{Extracted, extract};
pub use inspect::{ArtifactContents, ArtifactFile, inspect, read_file, read_files};
