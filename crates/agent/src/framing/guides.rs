//! `AGENTS.md` files of the package and of the workspace.

use std::collections::{HashSet, VecDeque};

use crate::collation;
use crate::skill::{clipped, text_prefix};
use crate::{EntryKind, FileTree};

const FILE_NAME: &str = "AGENTS.md";
const MAX_FILES: usize = 16;
const MAX_FILE_BYTES: usize = 32_768;
const MAX_TOTAL_BYTES: usize = 131_072;
const MAX_DEPTH: usize = 6;
/// A bound for the walk through a workspace of any size.
const MAX_DIRECTORIES: usize = 20_000;
const SKIPPED: [&str; 5] = ["node_modules", "dist", "build", "coverage", "vendor"];

struct Guide {
    source: &'static str,
    path: String,
    text: String,
    clipped: bool,
}

/// All guides that fit: the package's own first, then those of the working directory.
pub(super) fn block(package: Option<&FileTree>, directory: Option<&FileTree>) -> Option<String> {
    let mut shelf = Shelf::default();
    if let Some(package) = package {
        shelf.take(package, FILE_NAME, "workflow");
    }
    let bundled = shelf.guides.len();
    if let Some(directory) = directory {
        walk(directory, &mut shelf);
    }
    let mut guides = shelf.guides;
    guides[bundled..].sort_by(|a, b| collation::compare(&a.path, &b.path));
    if guides.is_empty() {
        return None;
    }
    Some(guides.iter().map(Guide::render).collect::<Vec<_>>().join("\n\n"))
}

fn walk(root: &FileTree, shelf: &mut Shelf) {
    let mut queue = VecDeque::from([(String::new(), 0)]);
    let mut visited = 0;
    while let Some((path, depth)) = queue.pop_front() {
        if shelf.is_full() || visited == MAX_DIRECTORIES {
            return;
        }
        visited += 1;
        let here = if path.is_empty() { "." } else { &path };
        let Ok(mut entries) = root.list(here) else { continue };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        if entries.iter().any(|entry| entry.name == FILE_NAME && entry.kind != EntryKind::Directory) {
            shelf.take(root, &join(FILE_NAME), "workspace");
        }
        if depth < MAX_DEPTH {
            let wanted = |entry: &&crate::Entry| {
                let skipped = entry.name.starts_with('.') || SKIPPED.contains(&entry.name.as_str());
                entry.kind == EntryKind::Directory && !skipped
            };
            queue.extend(entries.iter().filter(wanted).map(|entry| (join(&entry.name), depth + 1)));
        }
    }
}

#[derive(Default)]
struct Shelf {
    guides: Vec<Guide>,
    bytes: usize,
    known: HashSet<(u64, u64)>,
}

impl Shelf {
    fn is_full(&self) -> bool {
        self.guides.len() == MAX_FILES || self.bytes >= MAX_TOTAL_BYTES
    }

    /// Reads a guide if it exists, is new and still fits.
    fn take(&mut self, tree: &FileTree, path: &str, source: &'static str) {
        let limit = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - self.bytes);
        if self.is_full() {
            return;
        }
        let Ok(identity) = tree.identity(path) else { return };
        // One byte more tells whether the file goes on.
        let Ok(bytes) = tree.read(path, limit as u64 + 1) else { return };
        if !self.known.insert(identity) {
            return;
        }
        let text = clipped(text_prefix(&bytes), limit);
        self.bytes += text.len();
        let clipped = bytes.len() > limit;
        self.guides.push(Guide { source, path: path.to_owned(), text: text.to_owned(), clipped });
    }
}

impl Guide {
    fn render(&self) -> String {
        let note = if self.clipped {
            format!("\n[truncated: AGENTS.md exceeded {MAX_FILE_BYTES} bytes]")
        } else {
            String::new()
        };
        let Self { source, path, text, .. } = self;
        format!(
            "<AGENTS.md source=\"{source}\" path=\"{path}\">\n{}{note}\n</AGENTS.md>",
            text.trim_end_matches('\n')
        )
    }
}
