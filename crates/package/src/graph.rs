//! The program's own modules, from the entry on, and what they ask npm packages for.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxc_resolver::TsConfig;

use crate::lines::position;
use crate::npm::{InstanceId, Npm, Want, is_below_node_modules};
use crate::project::display_path;
use crate::references::{Base, How, Reference, Sign};
use crate::report::Diagnostic;
use crate::resolve::{Resolved, Resolvers, is_sdk, package_name};
use crate::script::{Analysis, DefaultExport, Format, HELPER_MODULE, Script, TextError};

/// A specifier as a module writes it.
pub(crate) type Key = (String, How, Base);

/// Where a specifier of a local module leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// It stays: the SDK, Node's own modules, data URLs.
    Keep,
    /// A helper of transformed code.
    Helper(String),
    /// Another module of the program.
    Local(PathBuf),
    /// Data that becomes a module.
    Json(PathBuf),
    /// A file that ships as it is.
    Raw(PathBuf),
    /// A file of an npm package.
    Npm {
        want: Want,
        /// Path inside the package.
        inside: String,
        /// Node finds the same file by the specifier itself, if the package is at the root.
        by_name: bool,
    },
}

/// One module of the program.
pub(crate) struct Local {
    pub(crate) text: String,
    pub(crate) analysis: Analysis,
    pub(crate) tsconfig: Option<Arc<TsConfig>>,
    pub(crate) targets: BTreeMap<Key, Target>,
    pub(crate) is_typescript: bool,
}

/// All modules of the program.
pub(crate) struct Graph<'r> {
    root: PathBuf,
    resolvers: &'r Resolvers,
    pub(crate) locals: BTreeMap<PathBuf, Local>,
    pub(crate) json: BTreeSet<PathBuf>,
    pub(crate) raw: BTreeSet<PathBuf>,
    pub(crate) npm: Npm<'r>,
    /// Packages that local modules import, those of the package's own modules first.
    wants: BTreeSet<(bool, PathBuf, Want)>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    queue: VecDeque<PathBuf>,
    queued: HashSet<PathBuf>,
}

impl<'r> Graph<'r> {
    /// Follows the entry, a canonical path. Problems are collected; `advanced` hears how many files there are.
    pub(crate) fn follow(
        root: &Path,
        entry: &Path,
        resolvers: &'r Resolvers,
        mut advanced: impl FnMut(usize),
    ) -> Self {
        let mut graph = Self {
            root: root.to_owned(),
            resolvers,
            locals: BTreeMap::new(),
            json: BTreeSet::new(),
            raw: BTreeSet::new(),
            npm: Npm::new(resolvers),
            wants: BTreeSet::new(),
            diagnostics: Vec::new(),
            queue: VecDeque::new(),
            queued: HashSet::new(),
        };
        graph.enqueue(entry);
        while let Some(path) = graph.queue.pop_front() {
            graph.read(&path);
            advanced(graph.queued.len());
        }
        let locals = graph.queued.len();
        graph.npm.follow(|count| advanced(locals + count));
        graph.check_entry(entry);
        graph.diagnostics.append(&mut graph.npm.diagnostics);
        graph
    }

    /// The packages that local modules import, in order of precedence.
    pub(crate) fn wants(&self) -> Vec<Want> {
        self.wants.iter().map(|(_, _, want)| want.clone()).collect()
    }

    /// Whether the module behind a specifier of `from` certainly does not export a name.
    pub(crate) fn lacks(&self, from: &Path, specifier: &str, name: &str) -> bool {
        self.lacks_beyond(from, specifier, name, &mut HashSet::new())
    }

    fn lacks_beyond(&self, from: &Path, specifier: &str, name: &str, seen: &mut HashSet<PathBuf>) -> bool {
        let key = (specifier.to_owned(), How::Import, Base::Module);
        let Some(Target::Local(path)) = self.locals.get(from).and_then(|local| local.targets.get(&key))
        else {
            return false;
        };
        if !seen.insert(path.clone()) {
            return true;
        }
        let Some(local) = self.locals.get(path) else { return false };
        let analysis = &local.analysis;
        analysis.format == Format::Esm
            && !analysis.exports.contains(name)
            && (name == "default"
                || analysis.stars.iter().all(|star| self.lacks_beyond(path, star, name, seen)))
    }

    fn enqueue(&mut self, path: &Path) {
        if self.queued.insert(path.to_owned()) {
            self.queue.push_back(path.to_owned());
        }
    }

    fn read(&mut self, path: &Path) {
        let name = display_path(&self.root, path);
        let text = match std::fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                self.diagnostics.push(Diagnostic::error("the file is not UTF-8 text").at(name, None));
                return;
            }
            Err(error) => {
                self.diagnostics.push(Diagnostic::error(format!("cannot be read: {error}")).at(name, None));
                return;
            }
        };
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        let tsconfig = match self.resolvers.tsconfig(path) {
            Ok(tsconfig) => tsconfig,
            Err(unresolved) => {
                let mut diagnostic = Diagnostic::error(unresolved.message);
                diagnostic.hint = unresolved.hint;
                if !self.diagnostics.contains(&diagnostic) {
                    self.diagnostics.push(diagnostic);
                }
                return;
            }
        };
        let script = Script {
            path,
            text: &text,
            settings: tsconfig.as_deref().map(|config| &config.compiler_options),
        };
        match script.analyse() {
            Ok(analysis) => {
                let targets = self.targets(path, &name, &text, &analysis);
                self.warn_about_signs(&name, &text, &analysis);
                let is_typescript = path.extension().is_some_and(|extension| {
                    ["ts", "tsx", "mts", "cts"].iter().any(|kind| extension == *kind)
                });
                let local = Local { text, analysis, tsconfig, targets, is_typescript };
                self.locals.insert(path.to_owned(), local);
            }
            Err(errors) => {
                self.diagnostics.extend(errors.iter().map(|error| syntax_error(&name, &text, error)))
            }
        }
    }

    fn targets(&mut self, path: &Path, name: &str, text: &str, analysis: &Analysis) -> BTreeMap<Key, Target> {
        let mut targets = BTreeMap::new();
        for reference in &analysis.references.list {
            let key = (reference.specifier.clone(), reference.how, reference.base);
            if targets.contains_key(&key) {
                continue;
            }
            match self.target(path, reference) {
                Ok(target) => {
                    targets.insert(key, target);
                }
                Err(diagnostic) => {
                    let text = analysis.prepared.as_deref().unwrap_or(text);
                    let mut diagnostic = diagnostic.at(name, Some(position(text, reference.offset as usize)));
                    if reference.optional {
                        diagnostic.severity = crate::report::Severity::Warning;
                    }
                    self.diagnostics.push(diagnostic);
                }
            }
        }
        targets
    }

    fn target(&mut self, from: &Path, reference: &Reference) -> Result<Target, Box<Diagnostic>> {
        let Reference { specifier, how, .. } = reference;
        let helper = specifier.strip_prefix(HELPER_MODULE).and_then(|rest| rest.strip_prefix("/helpers/"));
        if let Some(helper) = helper {
            return Ok(Target::Helper(helper.to_owned()));
        }
        if is_sdk(specifier) || specifier.starts_with("node:") || specifier.starts_with("data:") {
            return Ok(Target::Keep);
        }
        if specifier.starts_with("http:") || specifier.starts_with("https:") {
            return Err(Box::new(
                Diagnostic::error(format!("`{specifier}` is imported from the network"))
                    .hint("a program runs without installing anything: add the code to the package"),
            ));
        }
        let resolved = self.resolvers.local(from, specifier, *how).map_err(|unresolved| {
            let mut diagnostic = Diagnostic::error(unresolved.message);
            diagnostic.hint = unresolved.hint.or_else(|| nearby(from, specifier));
            Box::new(diagnostic)
        })?;
        match resolved {
            Resolved::Builtin => Ok(Target::Keep),
            // By its name it was kept above.
            Resolved::Sdk => Err(Box::new(
                Diagnostic::error(format!("`{specifier}` leads into an installed SDK, which never ships"))
                    .hint("import \"@trestle/workflow\" or \"@boardwalk-labs/workflow\"; the runtime provides it"),
            )),
            Resolved::File { path, manifests } => self.file_target(from, reference, &path, &manifests),
        }
    }

    fn file_target(
        &mut self,
        from: &Path,
        reference: &Reference,
        path: &Path,
        manifests: &[PathBuf],
    ) -> Result<Target, Box<Diagnostic>> {
        let is_npm = is_below_node_modules(path.strip_prefix(&self.root).unwrap_or(path));
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match (extension, is_npm) {
            ("json", _) if reference.how == How::Import => {
                self.json.insert(path.to_owned());
                Ok(Target::Json(path.to_owned()))
            }
            ("json" | "node", false) if reference.how == How::Require => {
                self.raw.insert(path.to_owned());
                Ok(Target::Raw(path.to_owned()))
            }
            ("js" | "mjs" | "cjs" | "json" | "node" | "", true) => {
                Ok(self.npm_target(from, reference, path, manifests))
            }
            // A package that ships TypeScript is read like the program's own modules.
            ("ts" | "tsx" | "mts" | "cts" | "jsx", _) | ("js" | "mjs" | "cjs", false) => {
                let declaration = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| [".d.ts", ".d.mts", ".d.cts"].iter().any(|end| name.ends_with(end)));
                if declaration {
                    return Err(Box::new(
                        Diagnostic::error(format!(
                            "`{}` leads to type declarations, not to code",
                            reference.specifier
                        ))
                        .hint("import it with `import type`, or import the module that it describes"),
                    ));
                }
                self.enqueue(path);
                Ok(Target::Local(path.to_owned()))
            }
            _ => Err(Box::new(
                Diagnostic::error(format!(
                    "`{}` is not a module: .{extension} files cannot be imported",
                    reference.specifier
                ))
                .hint("list the file under \"files\" in the descriptor and read it at run time"),
            )),
        }
    }

    fn npm_target(
        &mut self,
        from: &Path,
        reference: &Reference,
        path: &Path,
        manifests: &[PathBuf],
    ) -> Target {
        let instance: InstanceId = self.npm.reach(path, manifests);
        let inside = self.npm.inside(instance, path);
        let name = match package_name(&reference.specifier) {
            Some(name) if self.leads_by_name(from, reference, path) => name.to_owned(),
            _ => self.npm.instances[instance].name.clone(),
        };
        let by_name = self.leads_by_name(from, reference, path);
        if by_name
            && let Ok(Resolved::File { path, manifests }) =
                self.resolvers.strict_sync(from, &reference.specifier, reference.how)
        {
            self.npm.reach(&path, &manifests);
        }
        let want = Want { name, instance };
        let outside = !from.starts_with(&self.root)
            || is_below_node_modules(from.strip_prefix(&self.root).unwrap_or(from));
        let order = if outside { from.to_owned() } else { PathBuf::new() };
        self.wants.insert((outside, order, want.clone()));
        Target::Npm { want, inside, by_name }
    }

    /// Whether Node's own rules lead from the specifier to this file.
    fn leads_by_name(&self, from: &Path, reference: &Reference, path: &Path) -> bool {
        package_name(&reference.specifier).is_some()
            && matches!(
                self.resolvers.strict(from, &reference.specifier, reference.how),
                Ok(Resolved::File { path: found, .. }) if found == path
            )
    }

    /// A local module that loads computed names is built all the same; what it loads has to ship by other means.
    fn warn_about_signs(&mut self, name: &str, text: &str, analysis: &Analysis) {
        for (sign, offset) in &analysis.references.signs {
            let message = match sign {
                Sign::ComputedImport => "this import has a computed name; what it loads is not followed",
                Sign::ComputedRequire => "this require has a computed name; what it loads is not followed",
                Sign::CreateRequire | Sign::Dirname | Sign::ImportMeta => continue,
            };
            let text = analysis.prepared.as_deref().unwrap_or(text);
            self.diagnostics.push(
                Diagnostic::warning(message)
                    .at(name, Some(position(text, *offset as usize)))
                    .hint("write one import per module, or ship plain JavaScript under \"files\""),
            );
        }
    }

    fn check_entry(&mut self, entry: &Path) {
        let Some(local) = self.locals.get(entry) else { return };
        let name = display_path(&self.root, entry);
        let hint = "write `export default async function run(input, ctx) { … }`";
        let text = local.analysis.prepared.as_deref().unwrap_or(&local.text);
        let diagnostic = match local.analysis.default_export {
            DefaultExport::Present => return,
            DefaultExport::NotCallable(what, offset) => {
                Diagnostic::error(format!("the default export is {what}, not a function"))
                    .at(name, Some(position(text, offset as usize)))
            }
            DefaultExport::Missing => Diagnostic::error("the program has no default export").at(name, None),
        };
        let named = local.analysis.exports.contains("run");
        let hint = if named { "`run` is exported by name: add `default` to its export" } else { hint };
        self.diagnostics.push(diagnostic.hint(hint));
    }
}

fn syntax_error(name: &str, text: &str, error: &TextError) -> Diagnostic {
    let mut diagnostic =
        Diagnostic::error(error.message.clone()).at(name, Some(position(text, error.offset)));
    diagnostic.hint.clone_from(&error.hint);
    diagnostic
}

/// A file next to the missing one that was probably meant.
fn nearby(from: &Path, specifier: &str) -> Option<String> {
    if !specifier.starts_with('.') {
        return None;
    }
    let wanted = from.parent()?.join(specifier);
    let folder = wanted.parent()?;
    let stem = wanted.file_stem()?.to_str()?.to_ascii_lowercase();
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let found = names.iter().find(|name| {
        Path::new(name)
            .file_stem()
            .and_then(|found| found.to_str())
            .is_some_and(|found| found.to_ascii_lowercase() == stem)
    })?;
    Some(format!("there is a file {found} in that folder"))
}
