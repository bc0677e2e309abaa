//! Checking a package, and building its artifact.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use trestle_contract::ErrorCode;
use trestle_contract::descriptor::ParsedDescriptor;

use crate::artifact::{ArtifactFile, Limits, sdk_in};
use crate::assets::Folder;
use crate::emit::emit;
use crate::graph::Graph;
use crate::identity::{IdentityEntry, identity};
use crate::npm::{Layout, declared_range, installed_version};
use crate::pack::{Content, pack};
use crate::progress::{Progress, Step};
use crate::project::{self, Project};
use crate::report::{BuildError, Diagnostic, Report, ShippedFile, ShippedPackage, from_warning};
use crate::resolve::Resolvers;
use crate::support::unsupported;
use crate::types::{self, SCHEMAS};
use crate::validate::check_cron_inputs;

/// The module that a run starts.
const ENTRY: &str = "index.mjs";
const SDK: &str = "@boardwalk-labs/workflow";
const LOCKFILES: [&str; 4] = ["pnpm-lock.yaml", "package-lock.json", "yarn.lock", "bun.lock"];

/// A built package (`docs/protocol/descriptor.md` §8).
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The gzip tar.
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`, lower-case hex.
    pub digest: String,
    /// Version identity; depends on paths, modes and contents only.
    pub identity: String,
    /// The module that a run starts: `index.mjs`.
    pub entry: String,
    /// Installed version of the SDK, else the declared range, else `*`.
    pub sdk_version: String,
    /// SHA-256 of the lockfile, lower-case hex, when there is one.
    pub lockfile_digest: Option<String>,
    /// The descriptor.
    pub descriptor: ParsedDescriptor,
    /// Every file, sorted by path.
    pub files: Vec<ArtifactFile>,
    /// What the check found: warnings only.
    pub report: Report,
}

/// Reads a package as a build would, and tells everything that is wrong with it. `target` is the package's folder or
/// its descriptor. Nothing is written.
#[must_use]
pub fn check(target: &Path, progress: &dyn Progress) -> Report {
    prepare(target, progress).report
}

/// Builds a package. `target` is the package's folder or its descriptor. Nothing is written to disk; equal inputs
/// give equal bytes.
///
/// # Errors
/// [`BuildError`] with everything that a check finds.
pub fn build(target: &Path, progress: &dyn Progress) -> Result<Artifact, Box<BuildError>> {
    let Prepared { mut report, contents } = prepare(target, progress);
    let Some(Contents { project, files }) = contents.filter(|_| report.is_ok()) else {
        return Err(Box::new(BuildError { report }));
    };
    progress.started(Step::Pack);
    let packed = match pack(&files) {
        Ok(packed) => packed,
        Err((path, error)) => {
            report.push(Diagnostic::error(format!("cannot be read: {error}")).at(path, None));
            return Err(Box::new(BuildError { report }));
        }
    };
    let limit = Limits::default().packed_bytes;
    if packed.bytes.len() as u64 > limit {
        report.push(too_large(packed.bytes.len() as u64, limit, "packed"));
        return Err(Box::new(BuildError { report }));
    }
    progress.finished(Step::Pack);
    let identity = identity(packed.files.iter().map(|file| IdentityEntry {
        path: &file.path,
        mode: file.mode,
        digest: &file.digest,
    }));
    Ok(Artifact {
        digest: packed.digest,
        identity,
        entry: ENTRY.into(),
        sdk_version: sdk_version(&project.root),
        lockfile_digest: lockfile_digest(&project.root),
        descriptor: project.parsed,
        files: packed.files,
        bytes: packed.bytes,
        report,
    })
}

struct Prepared {
    report: Report,
    contents: Option<Contents>,
}

struct Contents {
    project: Project,
    files: BTreeMap<String, Content>,
}

fn prepare(target: &Path, progress: &dyn Progress) -> Prepared {
    let mut report = Report::default();
    progress.started(Step::ReadDescriptor);
    let project = match project::open(target) {
        Ok(project) => project,
        Err(diagnostics) => {
            report.errors = diagnostics;
            return Prepared { report, contents: None };
        }
    };
    read_descriptor(&project, &mut report);
    progress.finished(Step::ReadDescriptor);

    let mut files: BTreeMap<String, Content> = BTreeMap::new();
    let mut imported = BTreeSet::new();
    match project.entry() {
        Ok(entry) => {
            report.entry = Some(entry.clone());
            if entry.to_ascii_lowercase().ends_with(".py") {
                report.push(
                    Diagnostic::error("Python programs cannot be built yet")
                        .code(ErrorCode::Unsupported)
                        .at(entry, None)
                        .hint("write the program in TypeScript or JavaScript"),
                );
            } else {
                progress.started(Step::FollowImports);
                imported = program(&project, &entry, progress, &mut files, &mut report);
                progress.finished(Step::FollowImports);
            }
        }
        Err(diagnostic) => report.push(diagnostic),
    }

    progress.started(Step::CollectFiles);
    collect(&project, &imported, &mut files, &mut report);
    check_size(&files, &mut report);
    report.files = files
        .iter()
        .map(|(path, content)| ShippedFile { path: path.clone(), size: content.size() })
        .collect();
    report.size = report.files.iter().map(|file| file.size).sum();
    progress.finished(Step::CollectFiles);
    Prepared { report, contents: Some(Contents { project, files }) }
}

fn read_descriptor(project: &Project, report: &mut Report) {
    report.slug = Some(project.parsed.descriptor.slug.clone());
    for warning in &project.parsed.warnings {
        report.push(from_warning(&project.descriptor_name, warning));
    }
    for field in unsupported(&project.parsed.descriptor) {
        let position = project.parsed.document.locate(&field.field);
        let mut diagnostic = Diagnostic::warning(field.message)
            .code(ErrorCode::Unsupported)
            .at(project.descriptor_name.clone(), position)
            .field(field.field);
        if field.refused {
            diagnostic = diagnostic.hint("a deploy refuses it unless unsupported fields are allowed");
        }
        report.push(diagnostic);
    }
}

/// Adds everything that the program itself consists of; returns the sources that were followed.
fn program(
    project: &Project,
    entry: &str,
    progress: &dyn Progress,
    files: &mut BTreeMap<String, Content>,
    report: &mut Report,
) -> BTreeSet<PathBuf> {
    let resolvers = match Resolvers::new(&project.root) {
        Ok(resolvers) => resolvers,
        Err(unresolved) => {
            let mut diagnostic = Diagnostic::error(unresolved.message).at("tsconfig.json", None);
            diagnostic.hint = unresolved.hint;
            report.push(diagnostic);
            return BTreeSet::new();
        }
    };
    let name = entry;
    // The entry exists: it was found before.
    let entry = project.root.join(entry);
    let entry = entry.canonicalize().unwrap_or(entry);
    let graph = Graph::follow(&project.root, &entry, &resolvers, |count| {
        progress.advanced(Step::FollowImports, count);
    });
    let layout = Layout::new(&graph.npm.instances, &graph.wants());
    let (emitted, diagnostics) = emit(&graph, &layout, &project.root, &entry);
    for diagnostic in graph.diagnostics.iter().cloned().chain(diagnostics) {
        report.push(diagnostic);
    }
    derive(project, &entry, name, &resolvers, files, report);
    files.extend(emitted.into_iter().map(|(path, bytes)| (path, Content::Bytes(bytes))));
    for (folder, id) in layout.places() {
        for (inside, on_disk) in &graph.npm.instances[id].files {
            files.insert(format!("{folder}/{inside}"), Content::File(on_disk.clone()));
        }
    }
    report.packages = packages(&graph, &layout);
    graph.locals.keys().cloned().collect()
}

/// Derives the schemas of `run`, and holds the descriptor's own inputs to them.
fn derive(
    project: &Project,
    entry: &Path,
    name: &str,
    resolvers: &Resolvers,
    files: &mut BTreeMap<String, Content>,
    report: &mut Report,
) {
    let (schemas, gaps) = types::derive(entry, name, resolvers);
    for gap in gaps {
        report.push(gap);
    }
    for problem in check_cron_inputs(&project.parsed.descriptor, &schemas) {
        let position = project.parsed.document.locate(&problem.field);
        let mut diagnostic = match problem.refused {
            true => Diagnostic::error(problem.message),
            false => Diagnostic::warning(problem.message),
        };
        diagnostic = diagnostic.at(project.descriptor_name.clone(), position).field(problem.field);
        report.push(diagnostic.hint("the type of run's first parameter says what it takes"));
    }
    // An artifact says also that nothing could be derived: nobody has to look again.
    files.insert(SCHEMAS.into(), Content::Bytes(schemas.to_bytes()));
    report.schemas = schemas;
}

fn packages(graph: &Graph<'_>, layout: &Layout) -> Vec<ShippedPackage> {
    let mut places: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (folder, id) in layout.places() {
        places.entry(id).or_default().push(folder.to_owned());
    }
    let mut packages: Vec<ShippedPackage> = places
        .into_iter()
        .map(|(id, mut places)| {
            let instance = &graph.npm.instances[id];
            places.sort();
            ShippedPackage {
                name: instance.name.clone(),
                version: instance.version.clone(),
                places,
                files: instance.files.len(),
                whole: instance.whole.clone(),
            }
        })
        .collect();
    packages.sort_by(|left, right| (&left.name, &left.places).cmp(&(&right.name, &right.places)));
    packages
}

/// Adds sources, assets and the descriptor.
fn collect(
    project: &Project,
    imported: &BTreeSet<PathBuf>,
    files: &mut BTreeMap<String, Content>,
    report: &mut Report,
) {
    let folder = Folder::read(&project.root);
    let (sources, warning) = folder.sources(imported);
    for (path, on_disk) in sources {
        files.insert(format!(".bw-src/{path}"), Content::File(on_disk));
    }
    if let Some(warning) = warning {
        report.push(warning);
    }
    match folder.assets(project) {
        Ok((assets, warnings)) => {
            for (path, on_disk) in assets {
                files.entry(path).or_insert(Content::File(on_disk));
            }
            for warning in warnings {
                report.push(warning);
            }
        }
        Err(errors) => {
            for error in errors {
                report.push(error);
            }
        }
    }
    files.insert(project.descriptor_name.clone(), Content::Bytes(project.descriptor_bytes.clone()));
    for package in &report.packages.clone() {
        if let Some(reason) = &package.whole {
            let message = format!("the package {} ships whole: {reason}", package.name);
            report.push(Diagnostic::note(message));
        }
    }
}

fn check_size(files: &BTreeMap<String, Content>, report: &mut Report) {
    let limits = Limits::default();
    if files.len() > limits.entries {
        report.push(
            Diagnostic::error(format!("{} files, more than the {} allowed", files.len(), limits.entries))
                .code(ErrorCode::PayloadTooLarge)
                .hint("look at the packages that ship whole"),
        );
    }
    let total: u64 = files.values().map(Content::size).sum();
    if total > limits.unpacked_bytes {
        report.push(too_large(total, limits.unpacked_bytes, "unpacked"));
    }
    if let Some((path, name)) = files.keys().find_map(|path| sdk_in(path).map(|name| (path, name))) {
        report.push(
            Diagnostic::error(format!("the SDK {name} would ship with the program ({path})"))
                .hint("import it by its name; the runtime provides it"),
        );
    }
}

fn too_large(size: u64, limit: u64, what: &str) -> Diagnostic {
    Diagnostic::error(format!("the artifact has {size} bytes {what}, more than the {limit} allowed"))
        .code(ErrorCode::PayloadTooLarge)
        .hint("ship less: check \"files\", or fetch large data at run time")
}

fn sdk_version(root: &Path) -> String {
    root.ancestors()
        .find_map(|folder| installed_version(&folder.join("node_modules").join(SDK).join("package.json")))
        .or_else(|| declared_range(&root.join("package.json"), SDK))
        .unwrap_or_else(|| "*".into())
}

fn lockfile_digest(root: &Path) -> Option<String> {
    LOCKFILES
        .iter()
        .find_map(|name| std::fs::read(root.join(name)).ok())
        .map(|bytes| hex::encode(Sha256::digest(bytes)))
}
