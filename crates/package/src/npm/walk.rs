//! Following npm packages from file to file.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Component, Path, PathBuf};

use super::manifest::PackageManifest;
use super::scan::scan;
use crate::references::{How, Reference};
use crate::report::Diagnostic;
use crate::resolve::{Resolved, Resolvers, is_sdk, package_name};

/// Folders at the root of a package that no program needs.
const NOT_SHIPPED_FOLDERS: [&str; 13] = [
    "test",
    "tests",
    "__tests__",
    "spec",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmark",
    "benchmarks",
    "coverage",
    "man",
    "node_modules",
];
/// Ends of names that no program needs.
const NOT_SHIPPED_ENDS: [&str; 7] = [".md", ".markdown", ".map", ".d.ts", ".d.mts", ".d.cts", ".tsbuildinfo"];

/// Index of a package instance: one folder on disk.
pub(crate) type InstanceId = usize;

/// One installed package: the same name and version may be there twice.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    manifest: PackageManifest,
    /// Files that ship, by path inside the package.
    pub(crate) files: BTreeMap<String, PathBuf>,
    /// The packages that its own files ask for, by the name that they use.
    pub(crate) dependencies: BTreeMap<String, InstanceId>,
    /// Why it ships whole.
    pub(crate) whole: Option<String>,
}

/// All packages found so far.
pub(crate) struct Npm<'r> {
    resolvers: &'r Resolvers,
    pub(crate) instances: Vec<Instance>,
    by_folder: HashMap<PathBuf, InstanceId>,
    queue: VecDeque<(InstanceId, String)>,
    /// Files reached by literal references, not only because their package ships whole.
    reached: HashSet<(InstanceId, String)>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Whether a path lies in some package below `node_modules`.
pub(crate) fn is_below_node_modules(path: &Path) -> bool {
    path.components().any(|component| component == Component::Normal("node_modules".as_ref()))
}

impl<'r> Npm<'r> {
    pub(crate) fn new(resolvers: &'r Resolvers) -> Self {
        Self {
            resolvers,
            instances: Vec::new(),
            by_folder: HashMap::new(),
            queue: VecDeque::new(),
            reached: HashSet::new(),
            diagnostics: Vec::new(),
        }
    }

    /// Number of files that ship so far.
    pub(crate) fn file_count(&self) -> usize {
        self.instances.iter().map(|instance| instance.files.len()).sum()
    }

    /// A file that is needed, with the package.json files that led to it. Returns its package.
    pub(crate) fn reach(&mut self, path: &Path, manifests: &[PathBuf]) -> InstanceId {
        let id = self.instance_of(path);
        self.include_reached(id, path);
        for manifest in manifests {
            let owner = package_folder(manifest);
            if let Some(&owner) = self.by_folder.get(&owner) {
                self.include(owner, manifest);
            }
        }
        id
    }

    /// The path of a file inside its package.
    pub(crate) fn inside(&self, id: InstanceId, path: &Path) -> String {
        relative(&self.instances[id].folder, path).unwrap_or_default()
    }

    /// Follows everything that was reached, until nothing new appears. `advanced` hears of each file.
    pub(crate) fn follow(&mut self, mut advanced: impl FnMut(usize)) {
        while let Some((id, inside)) = self.queue.pop_front() {
            self.read(id, &inside);
            advanced(self.file_count());
        }
    }

    fn instance_of(&mut self, path: &Path) -> InstanceId {
        let folder = package_folder(path);
        if let Some(&id) = self.by_folder.get(&folder) {
            return id;
        }
        let manifest = PackageManifest::read(&folder.join("package.json"));
        let by_path = name_by_path(&folder);
        let id = self.instances.len();
        self.instances.push(Instance {
            name: manifest.name.clone().unwrap_or(by_path),
            version: manifest.version.clone(),
            manifest,
            files: BTreeMap::new(),
            dependencies: BTreeMap::new(),
            whole: None,
            folder: folder.clone(),
        });
        self.by_folder.insert(folder.clone(), id);
        let own = folder.join("package.json");
        if own.is_file() {
            self.include(id, &own);
        }
        id
    }

    fn include_reached(&mut self, id: InstanceId, path: &Path) {
        let Some(inside) = relative(&self.instances[id].folder, path) else { return };
        let is_new = !self.instances[id].files.contains_key(&inside);
        let newly_reached = self.reached.insert((id, inside.clone()));
        self.include(id, path);
        if newly_reached && !is_new {
            // It was only part of a whole package before: what it asks for is needed now.
            self.queue.push_back((id, inside));
        }
    }

    /// Adds a file, and the package.json files between it and its package's folder: they decide its format.
    fn include(&mut self, id: InstanceId, path: &Path) {
        let instance = &mut self.instances[id];
        let Some(inside) = relative(&instance.folder, path) else { return };
        if instance.files.contains_key(&inside) {
            return;
        }
        for (index, _) in inside.match_indices('/') {
            let manifest = format!("{}/package.json", &inside[..index]);
            let on_disk = instance.folder.join(&manifest);
            if on_disk.is_file() {
                instance.files.entry(manifest).or_insert(on_disk);
            }
        }
        instance.files.insert(inside.clone(), path.to_owned());
        self.queue.push_back((id, inside));
    }

    fn read(&mut self, id: InstanceId, inside: &str) {
        let path = self.instances[id].files[inside].clone();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension {
            "node" => return self.ship_whole(id, format!("has the native file {inside}")),
            "js" | "mjs" | "cjs" => {}
            _ => return,
        }
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        let scanned = scan(&path, &text);
        let reached = self.reached.contains(&(id, inside.to_owned()));
        if reached && scanned.unreadable {
            let name = &self.instances[id].name;
            self.diagnostics.push(Diagnostic::warning(format!(
                "{inside} of the package {name} is not JavaScript that can be read; its own imports are not followed"
            )));
        }
        if reached {
            self.warn_about_format(id, inside, extension, scanned.is_esm);
        }
        if let Some((sign, _)) = scanned.references.signs.first() {
            self.ship_whole(id, format!("{inside} {}", sign.describe()));
        }
        for reference in &scanned.references.list {
            self.resolve(id, inside, &path, reference, reached);
        }
    }

    /// Before Node 22.7, ES module syntax in a `.js` file without `"type": "module"` does not load.
    fn warn_about_format(&mut self, id: InstanceId, inside: &str, extension: &str, is_esm: bool) {
        if !is_esm || extension != "js" {
            return;
        }
        let folder = &self.instances[id].folder;
        let mut nearest = folder.join(inside);
        let kind = loop {
            if !nearest.pop() || !nearest.starts_with(folder) {
                break None;
            }
            let manifest = nearest.join("package.json");
            if manifest.is_file() {
                break PackageManifest::read(&manifest).kind;
            }
        };
        if kind.as_deref() != Some("module") {
            let name = &self.instances[id].name;
            self.diagnostics.push(
                Diagnostic::warning(format!(
                    "{inside} of the package {name} is an ES module, but its package.json does not say so"
                ))
                .hint("it loads on Node 22.7 and newer only; ask for a version with \"type\": \"module\""),
            );
        }
    }

    fn resolve(&mut self, id: InstanceId, inside: &str, path: &Path, reference: &Reference, reached: bool) {
        if is_sdk(&reference.specifier) {
            return;
        }
        let strict = self.resolvers.strict(path, &reference.specifier, reference.how);
        let sync = self.resolvers.strict_sync(path, &reference.specifier, reference.how);
        if strict.is_err() && sync.is_err() && reached && !reference.optional {
            self.warn_missing(id, inside, reference);
        }
        for resolved in [strict, sync].into_iter().flatten() {
            if let Resolved::File { path: target, manifests } = resolved {
                self.depend(id, inside, reference, &target, &manifests, reached);
            }
        }
    }

    fn warn_missing(&mut self, id: InstanceId, inside: &str, reference: &Reference) {
        let instance = &self.instances[id];
        let optional = package_name(&reference.specifier)
            .is_some_and(|name| instance.manifest.optional.iter().any(|known| known == name));
        if optional {
            return;
        }
        let message = format!(
            "{inside} of the package {} needs `{}`, which is not there",
            instance.name, reference.specifier
        );
        let mut diagnostic = Diagnostic::warning(message);
        if let Some(name) = package_name(&reference.specifier) {
            diagnostic = diagnostic.hint(format!("run `npm install {name}` if the program gets there"));
        }
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    fn depend(
        &mut self,
        id: InstanceId,
        inside: &str,
        reference: &Reference,
        target: &Path,
        manifests: &[PathBuf],
        reached: bool,
    ) {
        let owner = self.instance_of(target);
        if owner != id {
            let Some(name) = self.dependency_name(owner, &reference.specifier) else {
                let message = format!(
                    "{inside} of the package {} reaches into another package by the path `{}`; it will not find it",
                    self.instances[id].name, reference.specifier,
                );
                self.diagnostics.push(Diagnostic::warning(message));
                return;
            };
            self.instances[id].dependencies.entry(name).or_insert(owner);
        }
        match reached {
            true => self.include_reached(owner, target),
            false => self.include(owner, target),
        }
        for manifest in manifests {
            if let Some(&owner) = self.by_folder.get(&package_folder(manifest)) {
                self.include(owner, manifest);
            }
        }
    }

    fn dependency_name(&self, owner: InstanceId, specifier: &str) -> Option<String> {
        match package_name(specifier) {
            Some(name) => Some(name.to_owned()),
            None if specifier.starts_with('#') => Some(self.instances[owner].name.clone()),
            None => None,
        }
    }

    /// Takes all files of a package, and follows what it declares: it may load any of it by a computed name.
    fn ship_whole(&mut self, id: InstanceId, reason: String) {
        if self.instances[id].whole.is_some() {
            return;
        }
        self.instances[id].whole = Some(reason);
        let folder = self.instances[id].folder.clone();
        let mut files = Vec::new();
        list_files(&folder, true, &mut files);
        for file in files {
            self.include(id, &file);
        }
        let manifest = self.instances[id].manifest.clone();
        for name in manifest.dependencies {
            self.declared(id, &name, false);
        }
        for name in manifest.optional {
            self.declared(id, &name, true);
        }
    }

    /// A dependency that package.json declares, if it is installed.
    fn declared(&mut self, id: InstanceId, name: &str, optional: bool) {
        if is_sdk(name) {
            return;
        }
        let from = self.instances[id].folder.clone();
        let installed =
            from.ancestors().map(|folder| folder.join("node_modules").join(name)).find(|path| path.is_dir());
        let Some(folder) = installed.and_then(|path| path.canonicalize().ok()) else { return };
        let owner = self.instance_of(&folder.join("package.json"));
        if owner == id {
            return;
        }
        self.instances[id].dependencies.entry(name.to_owned()).or_insert(owner);
        let asking = from.join("package.json");
        let mut found = false;
        for how in [How::Import, How::Require] {
            let strict = self.resolvers.strict(&asking, name, how);
            let sync = self.resolvers.strict_sync(&asking, name, how);
            for resolved in [strict, sync].into_iter().flatten() {
                if let Resolved::File { path, .. } = resolved {
                    found = true;
                    self.include(owner, &path);
                }
            }
        }
        if optional || !found {
            let asker = self.instances[id].name.clone();
            self.ship_whole(owner, format!("{asker} may load any file of it"));
        }
    }
}

/// The folder of the package that a file belongs to: below the last `node_modules`, else the nearest package.json
/// with a name.
fn package_folder(path: &Path) -> PathBuf {
    let components: Vec<Component<'_>> = path.components().collect();
    let modules =
        components.iter().rposition(|component| *component == Component::Normal("node_modules".as_ref()));
    if let Some(index) = modules {
        let scoped = components
            .get(index + 1)
            .is_some_and(|component| component.as_os_str().as_encoded_bytes().starts_with(b"@"));
        let end = index + if scoped { 3 } else { 2 };
        if end < components.len() {
            return components[..end].iter().collect();
        }
    }
    let mut folder = path.parent().unwrap_or(path);
    for ancestor in path.ancestors().skip(1) {
        if PackageManifest::read(&ancestor.join("package.json")).name.is_some() {
            folder = ancestor;
            break;
        }
    }
    folder.to_owned()
}

/// What a package without a name is called: its folder, with the scope above it.
fn name_by_path(folder: &Path) -> String {
    let text =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match folder.parent().map(text).filter(|scope| scope.starts_with('@')) {
        Some(scope) => format!("{scope}/{}", text(folder)),
        None => text(folder),
    }
}

fn relative(folder: &Path, path: &Path) -> Option<String> {
    let inside = path.strip_prefix(folder).ok()?;
    let segments: Option<Vec<&str>> =
        inside.components().map(|component| component.as_os_str().to_str()).collect();
    Some(segments?.join("/"))
}

/// All files of a package that a program can need, sorted.
fn list_files(folder: &Path, is_root: bool, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() {
            let skipped = name == "node_modules"
                || is_root && (name.starts_with('.') || NOT_SHIPPED_FOLDERS.contains(&name));
            if !skipped {
                list_files(&path, false, files);
            }
        } else if kind.is_file() {
            let lower = name.to_ascii_lowercase();
            let skipped = lower.starts_with('.') || NOT_SHIPPED_ENDS.iter().any(|end| lower.ends_with(end));
            if !skipped {
                files.push(path);
            }
        }
    }
}
