//! Files that ship beside the program: its sources for display, and assets (`docs/protocol/descriptor.md` §8.2–§8.3).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trestle_contract::descriptor::DESCRIPTOR_NAMES;

use crate::glob::Pattern;
use crate::project::Project;
use crate::report::Diagnostic;

/// Most sources that ship.
const MAX_SOURCES: usize = 200;
/// Most assets that ship.
const MAX_ASSETS: usize = 200;
const SOURCE_ENDS: [&str; 8] = ["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"];
/// Folders without sources; those with a leading dot have none either.
const NOT_SOURCES: [&str; 3] = ["node_modules", "dist", "build"];
/// Root files that always ship, in any case.
const ALWAYS: [&str; 2] = ["readme.md", "agents.md"];

/// Everything that a package's folder holds, apart from dot names and `node_modules`.
pub(crate) struct Folder {
    /// Paths relative to the package, sorted.
    files: BTreeMap<String, PathBuf>,
    /// Symbolic links, which are not followed.
    links: Vec<String>,
}

impl Folder {
    pub(crate) fn read(root: &Path) -> Self {
        let mut folder = Self { files: BTreeMap::new(), links: Vec::new() };
        folder.walk(root, "");
        folder.links.sort();
        folder
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') || name == "node_modules" {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.walk(&entry.path(), &path),
                Ok(kind) if kind.is_file() => {
                    self.files.insert(path, entry.path());
                }
                Ok(kind) if kind.is_symlink() => self.links.push(path),
                _ => {}
            }
        }
    }

    /// The author's sources. When there are too many, those of the program itself come first.
    pub(crate) fn sources(
        &self,
        imported: &BTreeSet<PathBuf>,
    ) -> (BTreeMap<String, PathBuf>, Option<Diagnostic>) {
        let all: Vec<(&String, &PathBuf)> = self
            .files
            .iter()
            .filter(|(path, on_disk)| {
                is_source(path) || (imported.contains(*on_disk) && has_source_end(path))
            })
            .collect();
        let count = all.len();
        let (own, other): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, on_disk)| imported.contains(*on_disk));
        let kept: BTreeMap<String, PathBuf> = own
            .into_iter()
            .chain(other)
            .take(MAX_SOURCES)
            .map(|(path, on_disk)| (path.clone(), on_disk.clone()))
            .collect();
        let warning = (count > MAX_SOURCES).then(|| {
            Diagnostic::warning(format!("{count} source files, of which {MAX_SOURCES} ship for display"))
                .hint("the program itself is whole; sources are shown beside its runs only")
        });
        (kept, warning)
    }

    /// Skills, the root's README and AGENTS.md, and what `files` lists.
    pub(crate) fn assets(
        &self,
        project: &Project,
    ) -> Result<(BTreeMap<String, PathBuf>, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut picked: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let candidates = || self.files.iter().filter(|(path, _)| !is_reserved(path));
        for (path, on_disk) in candidates() {
            let lower = path.to_ascii_lowercase();
            if path.starts_with("skills/") || ALWAYS.contains(&lower.as_str()) {
                picked.insert(path.clone(), on_disk.clone());
            }
        }
        for (index, item) in project.parsed.descriptor.files.iter().flatten().enumerate() {
            let pattern = Pattern::new(item);
            let before = picked.len();
            let mut matched = 0;
            for (path, on_disk) in candidates().filter(|(path, _)| pattern.matches(path)) {
                matched += 1;
                picked.insert(path.clone(), on_disk.clone());
            }
            let field = format!("files.{index}");
            let position = project.parsed.document.locate(&field);
            let place = |diagnostic: Diagnostic| {
                diagnostic.at(project.descriptor_name.clone(), position).field(field.clone())
            };
            if matched == 0 {
                let error = place(Diagnostic::error(format!("\"{item}\" matches no file")));
                errors.push(error.hint(self.why_nothing(item, &pattern)));
            } else if picked.contains_key("package.json")
                && pattern.matches("package.json")
                && before < picked.len()
            {
                let warning = place(Diagnostic::warning(format!("\"{item}\" also ships package.json")));
                warnings.push(warning.hint("name the files more closely if that is not meant"));
            }
            for link in self.links.iter().filter(|link| pattern.matches(link)) {
                let warning =
                    place(Diagnostic::warning(format!("{link} is a symbolic link and does not ship")));
                warnings.push(warning.hint("replace it by a copy of the file"));
            }
        }
        if picked.len() > MAX_ASSETS {
            errors.push(
                Diagnostic::error(format!("{} assets, more than the {MAX_ASSETS} allowed", picked.len()))
                    .at(project.descriptor_name.clone(), project.parsed.document.locate("files"))
                    .hint("narrow \"files\" and skills/, or pack many small files into one"),
            );
        }
        if errors.is_empty() { Ok((picked, warnings)) } else { Err(errors) }
    }

    fn why_nothing(&self, item: &str, pattern: &Pattern) -> String {
        if item.split('/').any(|segment| segment.starts_with('.')) {
            return "names with a leading dot never ship; secrets belong into `trestle secrets`".into();
        }
        if item.split('/').any(|segment| segment == "node_modules") {
            return "files of npm packages ship by themselves when the program imports them".into();
        }
        if self.links.iter().any(|link| pattern.matches(link)) {
            return "symbolic links do not ship; replace it by a copy of the file".into();
        }
        "paths start at the descriptor's folder; `**` stands for any folders, `*` stays in one".into()
    }
}

/// Names that the artifact itself uses.
fn is_reserved(path: &str) -> bool {
    matches!(path, "index.mjs" | "index.mjs.map") || DESCRIPTOR_NAMES.contains(&path)
}

fn has_source_end(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| SOURCE_ENDS.contains(&end))
}

fn is_source(path: &str) -> bool {
    has_source_end(path) && !path.split('/').any(|segment| NOT_SOURCES.contains(&segment))
}
