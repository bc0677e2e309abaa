//! A workflow package on disk: its descriptor and the program's source file.

use std::path::{Component, Path, PathBuf};

use trestle_contract::ErrorCode;
use trestle_contract::descriptor::{
    DEFAULT_ENTRY_SOURCES, DESCRIPTOR_NAMES, MAX_DESCRIPTOR_BYTES, ParsedDescriptor, parse_descriptor,
};

use crate::report::{Diagnostic, from_descriptor};

/// A package whose descriptor is valid.
#[derive(Debug)]
pub(crate) struct Project {
    /// Canonical path of the package's folder.
    pub(crate) root: PathBuf,
    /// `workflow.jsonc` or `workflow.json`.
    pub(crate) descriptor_name: String,
    pub(crate) descriptor_bytes: Vec<u8>,
    pub(crate) parsed: ParsedDescriptor,
}

/// Finds the package that a command-line argument names: its folder, or its descriptor.
pub(crate) fn open(target: &Path) -> Result<Project, Vec<Diagnostic>> {
    let root = root_of(target).map_err(|diagnostic| vec![*diagnostic])?;
    let found: Vec<&str> = DESCRIPTOR_NAMES.into_iter().filter(|name| root.join(name).is_file()).collect();
    let name = match found.as_slice() {
        [name] => *name,
        [] => {
            return Err(vec![
                Diagnostic::error(format!("no workflow.jsonc or workflow.json in {}", target.display()))
                    .code(ErrorCode::NotFound)
                    .hint("run this in a workflow's folder, or make one with `trestle init`"),
            ]);
        }
        _ => {
            return Err(vec![
                Diagnostic::error("both workflow.jsonc and workflow.json are there")
                    .at(DESCRIPTOR_NAMES[1], None)
                    .hint("keep one of the two"),
            ]);
        }
    };
    let path = root.join(name);
    let bytes = read_bounded(&path).map_err(|message| vec![Diagnostic::error(message).at(name, None)])?;
    let parsed = parse_descriptor(name, &bytes).map_err(|errors| from_descriptor(&errors))?;
    Ok(Project { root, descriptor_name: name.to_owned(), descriptor_bytes: bytes, parsed })
}

fn root_of(target: &Path) -> Result<PathBuf, Box<Diagnostic>> {
    let canonical = target.canonicalize().map_err(|error| {
        Box::new(
            Diagnostic::error(format!("cannot open {}: {error}", target.display()))
                .code(ErrorCode::NotFound)
                .hint("name the folder of a workflow, or its workflow.jsonc"),
        )
    })?;
    if canonical.is_dir() {
        return Ok(canonical);
    }
    let is_descriptor = canonical
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| DESCRIPTOR_NAMES.contains(&name));
    match canonical.parent() {
        Some(folder) if is_descriptor => Ok(folder.to_owned()),
        _ => Err(Box::new(
            Diagnostic::error(format!("{} is not a workflow package", target.display()))
                .hint("name the folder of a workflow, or its workflow.jsonc"),
        )),
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let size = path.metadata().map_err(|error| error.to_string())?.len();
    if size > MAX_DESCRIPTOR_BYTES as u64 {
        return Err(format!("{size} bytes, more than the {MAX_DESCRIPTOR_BYTES} allowed"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

impl Project {
    /// The program's source file, relative to the package.
    pub(crate) fn entry(&self) -> Result<String, Diagnostic> {
        match &self.parsed.descriptor.entry {
            Some(declared) => self.declared_entry(declared),
            None => DEFAULT_ENTRY_SOURCES
                .into_iter()
                .find(|name| self.root.join(name).is_file())
                .map(str::to_owned)
                .ok_or_else(|| {
                    Diagnostic::error("the package has no program: none of the default entry files exists")
                        .at(self.descriptor_name.clone(), None)
                        .hint("write src/index.ts, or name the file with \"entry\" in the descriptor")
                }),
        }
    }

    fn declared_entry(&self, declared: &str) -> Result<String, Diagnostic> {
        let position = self.parsed.document.locate("entry");
        let wrong = |message: String| {
            Diagnostic::error(message).at(self.descriptor_name.clone(), position).field("entry")
        };
        let path = self.root.join(declared);
        let Ok(canonical) = path.canonicalize() else {
            let other = DEFAULT_ENTRY_SOURCES.into_iter().find(|name| self.root.join(name).is_file());
            let hint = match other {
                Some(name) => format!("correct the name, or remove \"entry\": {name} is found by itself"),
                None => "correct the name; it is relative to the descriptor".to_owned(),
            };
            return Err(wrong(format!("the entry file {declared} does not exist")).hint(hint));
        };
        if !canonical.starts_with(&self.root) {
            return Err(wrong(format!("the entry file {declared} leads out of the package"))
                .hint("move the file into the package"));
        }
        if !canonical.is_file() {
            return Err(wrong(format!("the entry {declared} is not a file")).hint("name the file itself"));
        }
        Ok(declared.to_owned())
    }
}

/// A path relative to the package with `/`, climbing out of it if it must.
pub(crate) fn display_path(root: &Path, path: &Path) -> String {
    let mut from = root.components().peekable();
    let mut to = path.components().peekable();
    while let (Some(left), Some(right)) = (from.peek(), to.peek()) {
        if left != right {
            break;
        }
        from.next();
        to.next();
    }
    let up = from.filter(|component| matches!(component, Component::Normal(_))).map(|_| "..".to_owned());
    let down = to.map(|component| component.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}
