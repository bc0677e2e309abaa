//! Schemas of an artifact that somebody else has built: its sources say what its own build did not derive.

use std::io::Read;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::entries::{ArtifactError, Limits, read_error, walk};
use super::inspect::ArtifactContents;
use crate::project;
use crate::resolve::Resolvers;
use crate::types::{self, Schemas};

/// Folders that keep paths of the package: the sources, and the declarations of what they import.
const FOLDERS: [&str; 2] = [".bw-src/", ".bw-machine/types/"];
/// Larger files are not looked at.
const LARGEST_FILE: u64 = 1024 * 1024;
/// All of them together.
const LARGEST: u64 = 256 * 1024 * 1024;

/// Derives the schemas of an artifact from the sources in it; the texts say what stays raw JSON, and why. Whatever
/// cannot be read leaves its part of the program without a schema.
///
/// # Errors
/// [`ArtifactError`] as of [`super::inspect`], or the disk refused.
pub fn derive_schemas<R: Read>(
    reader: R,
    contents: &ArtifactContents,
    limits: &Limits,
) -> Result<(Schemas, Vec<String>), ArtifactError> {
    let failed = |source| ArtifactError::Write { path: ".".into(), source };
    let folder = tempfile::tempdir().map_err(failed)?;
    let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).map_err(failed)?;
    let mut left = LARGEST;
    walk(reader, limits, |entry| {
        let Some(path) = FOLDERS.iter().find_map(|folder| entry.path.strip_prefix(folder)) else {
            return Ok(());
        };
        if entry.size > LARGEST_FILE || entry.size > left {
            return Ok(());
        }
        left -= entry.size;
        let mut content = Vec::new();
        entry.content.read_to_end(&mut content).map_err(|error| read_error(&error))?;
        let failed = |source| ArtifactError::Write { path: path.to_owned(), source };
        if let Some((folder, _)) = path.rsplit_once('/') {
            root.create_dir_all(folder).map_err(failed)?;
        }
        root.write(path, content).map_err(failed)
    })?;
    root.write(&contents.descriptor_name, &contents.descriptor_bytes).map_err(failed)?;
    // A descriptor with problems is refused elsewhere.
    let Ok(project) = project::open(folder.path()) else { return Ok(Default::default()) };
    let Ok(entry) = project.entry() else { return Ok(Default::default()) };
    let Ok(resolvers) = Resolvers::new(&project.root) else {
        return Ok((
            Schemas::default(),
            vec!["the types of `run` cannot be read: tsconfig.json is not valid".into()],
        ));
    };
    let (schemas, gaps) = types::derive(&project.root.join(&entry), &entry, &resolvers);
    Ok((schemas, gaps.iter().map(|gap| gap.message.clone()).collect()))
}
