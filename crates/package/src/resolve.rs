//! From specifiers to files, as Node 20 and newer do it, plus what TypeScript authors write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxc_resolver::{ResolveContext, ResolveError, ResolveOptions, Resolver, TsConfig, TsconfigDiscovery};

use crate::artifact::sdk_in;
use crate::references::How;

/// Conditions that every Node version has on top of `import` or `require`.
const ALWAYS: [&str; 2] = ["node", "node-addons"];

/// What a specifier leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// A module of Node itself.
    Builtin,
    /// The SDK, which the runtime provides, by whatever name or path.
    Sdk,
    /// A file, by its real path, and the package.json files that were read on the way.
    File { path: PathBuf, manifests: Vec<PathBuf> },
}

/// Why a specifier leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unresolved {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// The package that a bare specifier names: `@scope/name` or `name`.
pub(crate) fn package_name(specifier: &str) -> Option<&str> {
    if specifier.is_empty() || specifier.starts_with(['.', '/', '#']) || specifier.contains(':') {
        return None;
    }
    let mut slashes = specifier.match_indices('/').map(|(index, _)| index);
    let end = if specifier.starts_with('@') { slashes.nth(1) } else { slashes.next() };
    Some(&specifier[..end.unwrap_or(specifier.len())])
}

/// Whether a specifier names the SDK or a part of it.
pub(crate) fn is_sdk(specifier: &str) -> bool {
    matches!(package_name(specifier), Some("@boardwalk-labs/workflow" | "@trestle/workflow"))
}

/// Resolvers that share one view of the file system.
pub(crate) struct Resolvers {
    local_import: Resolver,
    local_require: Resolver,
    strict_import: Resolver,
    strict_require: Resolver,
    /// Newer Node versions also take `module-sync`; what they would load ships too.
    sync_import: Resolver,
    sync_require: Resolver,
    /// To declarations, for types.
    types: Resolver,
    root_tsconfig: Option<Arc<TsConfig>>,
}

impl Resolvers {
    /// For the package at `root`, a canonical path.
    ///
    /// # Errors
    /// The message when the package's own tsconfig.json cannot be read.
    pub(crate) fn new(root: &Path) -> Result<Self, Unresolved> {
        let strict_import = Resolver::new(options(How::Import, false));
        let other = |how, sync| strict_import.clone_with_options(options(how, sync));
        let local_import = strict_import.clone_with_options(local(options(How::Import, false)));
        let local_require = strict_import.clone_with_options(local(options(How::Require, false)));
        let types = strict_import.clone_with_options(declarations(options(How::Import, false)));
        let own = root.join("tsconfig.json");
        let root_tsconfig = match own.is_file() {
            true => Some(local_import.resolve_tsconfig(&own).map_err(|error| tsconfig_error(&error))?),
            false => None,
        };
        Ok(Self {
            strict_require: other(How::Require, false),
            sync_import: other(How::Import, true),
            sync_require: other(How::Require, true),
            strict_import,
            local_import,
            local_require,
            types,
            root_tsconfig,
        })
    }

    /// The TypeScript settings of a local file: of the nearest tsconfig.json that covers it, else the package's own.
    pub(crate) fn tsconfig(&self, file: &Path) -> Result<Option<Arc<TsConfig>>, Unresolved> {
        let found = self.local_import.find_tsconfig(file).map_err(|error| tsconfig_error(&error))?;
        Ok(found.or_else(|| self.root_tsconfig.clone()))
    }

    /// Resolves as an author means it: missing extensions, `.js` for `.ts`, tsconfig `paths`.
    pub(crate) fn local(&self, file: &Path, specifier: &str, how: How) -> Result<Resolved, Unresolved> {
        if is_sdk(specifier) {
            return Ok(Resolved::Sdk);
        }
        let tsconfig = self.tsconfig(file)?;
        let resolver = match how {
            How::Import => &self.local_import,
            How::Require => &self.local_require,
        };
        resolve(resolver, file, specifier, tsconfig.as_deref())
    }

    /// The file that declares the types of a module, when there is one.
    pub(crate) fn types(&self, file: &Path, specifier: &str) -> Option<PathBuf> {
        let tsconfig = self.tsconfig(file).ok()?;
        match resolve(&self.types, file, specifier, tsconfig.as_deref()) {
            Ok(Resolved::File { path, .. }) => Some(path),
            _ => None,
        }
    }

    /// Resolves as Node does.
    pub(crate) fn strict(&self, file: &Path, specifier: &str, how: How) -> Result<Resolved, Unresolved> {
        if is_sdk(specifier) {
            return Ok(Resolved::Sdk);
        }
        let resolver = match how {
            How::Import => &self.strict_import,
            How::Require => &self.strict_require,
        };
        resolve(resolver, file, specifier, None)
    }

    /// Resolves as a Node that takes `module-sync` does.
    pub(crate) fn strict_sync(&self, file: &Path, specifier: &str, how: How) -> Result<Resolved, Unresolved> {
        let resolver = match how {
            How::Import => &self.sync_import,
            How::Require => &self.sync_require,
        };
        resolve(resolver, file, specifier, None)
    }
}

fn options(how: How, sync: bool) -> ResolveOptions {
    let mut conditions: Vec<String> = ALWAYS.iter().map(|&name| name.to_owned()).collect();
    conditions.push(match how {
        How::Import => "import".into(),
        How::Require => "require".into(),
    });
    if sync {
        conditions.push("module-sync".into());
    }
    ResolveOptions {
        condition_names: conditions,
        extensions: [".js", ".json", ".node"].map(str::to_owned).to_vec(),
        fully_specified: how == How::Import,
        main_fields: vec!["main".into()],
        builtin_modules: true,
        node_path: false,
        symlinks: true,
        ..ResolveOptions::default()
    }
}

fn local(options: ResolveOptions) -> ResolveOptions {
    let alias = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
    ResolveOptions {
        extensions: [".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".json", ".node"]
            .map(str::to_owned)
            .to_vec(),
        extension_alias: vec![
            alias(".js", &[".ts", ".tsx", ".js", ".jsx"]),
            alias(".jsx", &[".tsx", ".jsx"]),
            alias(".mjs", &[".mts", ".mjs"]),
            alias(".cjs", &[".cts", ".cjs"]),
        ],
        fully_specified: false,
        tsconfig: Some(TsconfigDiscovery::Auto),
        ..options
    }
}

/// Declarations beside or instead of code, as TypeScript finds them.
fn declarations(options: ResolveOptions) -> ResolveOptions {
    let alias = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&name| name.to_owned()).collect());
    let mut conditions = vec!["types".to_owned()];
    conditions.extend(options.condition_names);
    ResolveOptions {
        condition_names: conditions,
        extensions: [".ts", ".tsx", ".mts", ".cts", ".d.ts", ".d.mts", ".d.cts", ".js", ".mjs", ".cjs"]
            .map(str::to_owned)
            .to_vec(),
        extension_alias: vec![
            alias(".js", &[".ts", ".tsx", ".d.ts", ".js", ".jsx"]),
            alias(".jsx", &[".tsx", ".d.ts", ".jsx"]),
            alias(".mjs", &[".mts", ".d.mts", ".mjs"]),
            alias(".cjs", &[".cts", ".d.cts", ".cjs"]),
        ],
        main_fields: vec!["types".into(), "typings".into(), "main".into()],
        fully_specified: false,
        builtin_modules: true,
        node_path: false,
        symlinks: true,
        tsconfig: Some(TsconfigDiscovery::Auto),
        ..ResolveOptions::default()
    }
}

fn resolve(
    resolver: &Resolver,
    file: &Path,
    specifier: &str,
    tsconfig: Option<&TsConfig>,
) -> Result<Resolved, Unresolved> {
    let folder = file.parent().unwrap_or(file);
    let mut context = ResolveContext::default();
    match resolver.resolve_with_context(folder, specifier, tsconfig, &mut context) {
        Ok(resolution) if resolution.path().to_str().is_some_and(|path| sdk_in(path).is_some()) => {
            Ok(Resolved::Sdk)
        }
        Ok(resolution) => {
            let mut manifests: Vec<PathBuf> = context
                .file_dependencies
                .into_iter()
                .filter(|path| path.file_name().is_some_and(|name| name == "package.json"))
                .filter_map(|path| path.canonicalize().ok())
                .collect();
            manifests.sort();
            manifests.dedup();
            Ok(Resolved::File { path: resolution.into_path_buf(), manifests })
        }
        Err(ResolveError::Builtin { .. }) => Ok(Resolved::Builtin),
        Err(error) => Err(explain(&error, folder, specifier)),
    }
}

fn explain(error: &ResolveError, folder: &Path, specifier: &str) -> Unresolved {
    match error {
        ResolveError::TsconfigNotFound(_)
        | ResolveError::TsconfigSelfReference(_)
        | ResolveError::TsconfigCircularExtend(_)
        | ResolveError::TsconfigLoadFailed { .. } => return tsconfig_error(error),
        ResolveError::PackagePathNotExported { .. }
        | ResolveError::InvalidPackageTarget(..)
        | ResolveError::PackageImportNotDefined(..) => {
            return Unresolved { message: error.to_string(), hint: None };
        }
        _ => {}
    }
    let message = format!("cannot find `{specifier}`");
    let hint = match package_name(specifier) {
        Some(name) if name_is_installed(folder, name) => Some(format!(
            "`{name}` is installed but has no such file; look at \"exports\" in its package.json"
        )),
        Some(name) => Some(format!("run `npm install {name}` in the package, or correct the name")),
        None if specifier.starts_with('#') => {
            Some("names with `#` are listed under \"imports\" in package.json".into())
        }
        None => None,
    };
    Unresolved { message, hint }
}

fn name_is_installed(folder: &Path, name: &str) -> bool {
    folder.ancestors().any(|ancestor| ancestor.join("node_modules").join(name).exists())
}

fn tsconfig_error(error: &ResolveError) -> Unresolved {
    Unresolved {
        message: format!("tsconfig.json cannot be used: {error}"),
        hint: Some("correct it; a base from npm in \"extends\" needs `npm install` first".into()),
    }
}
