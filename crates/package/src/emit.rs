//! The files of the program's own modules in the artifact (`docs/protocol/descriptor.md` §8.1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde_json::Value;

use crate::graph::{Graph, Key, Local, Target};
use crate::npm::Layout;
use crate::project::display_path;
use crate::references::{Base, How};
use crate::report::Diagnostic;
use crate::rewrite::{Replacement, Rewrite};
use crate::script::{Format, Script};

/// Folder of the transformed modules.
const APP: &str = ".trestle/app";
/// Module that holds the root's `import.meta`.
const ROOT_MODULE: &str = ".trestle/root.mjs";
const HELPERS: &str = ".trestle/helpers";

const ROOT_MODULE_TEXT: &str = r#"import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const root = new URL("../index.mjs", import.meta.url);
const filename = fileURLToPath(root);

export const meta = {
  __proto__: null,
  dirname: dirname(filename),
  filename,
  resolve(specifier) {
    const name = String(specifier);
    return /^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(name) ? new URL(name, root).href : import.meta.resolve(name);
  },
  url: root.href,
};
"#;

/// Helpers of transformed code, by name.
const HELPER_TEXTS: [(&str, &str); 5] = [
    ("decorated", include_str!("helpers/decorated.js")),
    ("decorate", include_str!("helpers/decorate.js")),
    ("decorateMetadata", include_str!("helpers/decorateMetadata.js")),
    ("decorateParam", include_str!("helpers/decorateParam.js")),
    ("usingCtx", include_str!("helpers/usingCtx.js")),
];

/// Writes all local modules. The result maps paths in the artifact to contents.
pub(crate) fn emit(
    graph: &Graph<'_>,
    layout: &Layout,
    root: &Path,
    entry: &Path,
) -> (BTreeMap<String, Vec<u8>>, Vec<Diagnostic>) {
    let mut emission = Emission { graph, layout, root, files: BTreeMap::new(), diagnostics: Vec::new() };
    for (path, local) in &graph.locals {
        emission.module(path, local);
    }
    for path in &graph.json {
        emission.json(path);
    }
    for path in &graph.raw {
        emission.raw(path);
    }
    emission.helpers();
    if let Some(local) = graph.locals.get(entry) {
        let emitted = specifier(&relative("", &emission.module_path(entry, local.analysis.format)));
        let text = match local.analysis.format {
            Format::Esm => format!("export * from {emitted};\nexport {{ default }} from {emitted};\n"),
            Format::CommonJs => format!(
                "import program from {emitted};\n\
                 export default typeof program === \"function\" ? program : program?.default;\n"
            ),
        };
        emission.files.insert("index.mjs".into(), text.into_bytes());
    }
    (emission.files, emission.diagnostics)
}

struct Emission<'e> {
    graph: &'e Graph<'e>,
    layout: &'e Layout,
    root: &'e Path,
    files: BTreeMap<String, Vec<u8>>,
    diagnostics: Vec<Diagnostic>,
}

impl Emission<'_> {
    /// The path of an emitted module: the source's own path, so that no two can meet, and an extension that fixes
    /// its format.
    fn module_path(&self, path: &Path, format: Format) -> String {
        let extension = match format {
            Format::Esm => "mjs",
            Format::CommonJs => "cjs",
        };
        format!("{}.{extension}", self.app_path(path))
    }

    /// A source's path below the folder of transformed modules. Folders above the package get names of their own.
    fn app_path(&self, path: &Path) -> String {
        let mut up = 0;
        let mut segments = Vec::new();
        for component in Path::new(&display_path(self.root, path)).components() {
            match component {
                Component::ParentDir => up += 1,
                // A folder of that name would be taken for npm packages.
                Component::Normal(name) if name == "node_modules" => {
                    segments.push("__node_modules".to_owned())
                }
                other => segments.push(other.as_os_str().to_string_lossy().into_owned()),
            }
        }
        let climbed = if up > 0 { format!("__up{up}/") } else { String::new() };
        format!("{APP}/{climbed}{}", segments.join("/"))
    }

    fn module(&mut self, path: &Path, local: &Local) {
        let format = local.analysis.format;
        let emitted = self.module_path(path, format);
        let folder = emitted.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let name = display_path(self.root, path);
        let script = Script {
            path,
            text: &local.text,
            settings: local.tsconfig.as_deref().map(|config| &config.compiler_options),
        };
        let replace = |specifier: &str, how: How, base: Base| {
            let key: Key = (specifier.to_owned(), how, base);
            let target = local.targets.get(&key)?;
            self.replacement(target, &folder, how, base, format)
        };
        let missing =
            |specifier: &str, name: &str| local.is_typescript && self.graph.lacks(path, specifier, name);
        let rewrite = Rewrite {
            replace: &replace,
            missing: &missing,
            root_module: &relative(&folder, ROOT_MODULE),
            to_root: &relative_folder(&folder),
        };
        let source_name = relative(&folder, &self.source_name(path));
        let map_path = format!("{emitted}.map");
        let map_name = map_path.rsplit_once('/').map_or(map_path.as_str(), |(_, name)| name);
        match script.emit(format, &rewrite, &source_name, &encoded(map_name)) {
            Ok(output) => {
                self.files.insert(emitted, output.code.into_bytes());
                self.files.insert(map_path, output.map.into_bytes());
            }
            Err(errors) => {
                // The same text was read before; only a defect ends here.
                let message = errors.first().map_or("cannot be transformed", |error| error.message.as_str());
                self.diagnostics.push(
                    Diagnostic::error(message)
                        .code(trestle_contract::ErrorCode::InternalError)
                        .at(name, None),
                );
            }
        }
    }

    /// What stack traces call the source: its copy among the shipped sources.
    fn source_name(&self, path: &Path) -> String {
        let app = self.app_path(path);
        format!(".bw-src{}", app.strip_prefix(APP).unwrap_or(&app))
    }

    fn replacement(
        &self,
        target: &Target,
        folder: &str,
        how: How,
        base: Base,
        format: Format,
    ) -> Option<Replacement> {
        let folder = match base {
            Base::Module => folder,
            Base::Root => "",
        };
        let (to, drop_attributes) = match target {
            Target::Keep => return None,
            Target::Helper(name) => {
                let extension = if format == Format::CommonJs { "cjs" } else { "mjs" };
                (format!("{HELPERS}/{name}.{extension}"), false)
            }
            Target::Local(path) => {
                let local = self.graph.locals.get(path)?;
                (self.module_path(path, local.analysis.format), true)
            }
            Target::Json(path) => (format!("{}.mjs", self.app_path(path)), true),
            Target::Raw(path) => (self.app_path(path), false),
            Target::Npm { want, by_name: true, .. } if self.layout.is_at_root(want) => return None,
            Target::Npm { want, inside, .. } => (format!("{}/{inside}", self.layout.folder_of(want)?), true),
        };
        let path = relative(folder, &to);
        let specifier = if how == How::Import { encoded(&path) } else { path };
        Some(Replacement { specifier, drop_attributes })
    }

    fn json(&mut self, path: &Path) {
        let name = display_path(self.root, path);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.diagnostics.push(Diagnostic::error(format!("cannot be read: {error}")).at(name, None));
                return;
            }
        };
        let text = text.trim_start_matches('\u{feff}');
        match serde_json::from_str::<Value>(text) {
            Ok(value) => {
                let module = json_module(text, &value);
                self.files.insert(format!("{}.mjs", self.app_path(path)), module.into_bytes());
            }
            Err(error) => {
                let position = trestle_contract::descriptor::Position {
                    line: u32::try_from(error.line()).unwrap_or(1),
                    column: u32::try_from(error.column()).unwrap_or(1),
                };
                self.diagnostics.push(
                    Diagnostic::error(format!("the imported file is not JSON: {error}"))
                        .at(name, Some(position))
                        .hint("JSON has no comments and no trailing commas"),
                );
            }
        }
    }

    fn raw(&mut self, path: &Path) {
        match std::fs::read(path) {
            Ok(bytes) => {
                self.files.insert(self.app_path(path), bytes);
            }
            Err(error) => {
                let name = display_path(self.root, path);
                self.diagnostics.push(Diagnostic::error(format!("cannot be read: {error}")).at(name, None));
            }
        }
    }

    /// The helpers that are used, and the root module.
    fn helpers(&mut self) {
        let mut used: BTreeSet<(String, Format)> = BTreeSet::new();
        for local in self.graph.locals.values() {
            for target in local.targets.values() {
                if let Target::Helper(name) = target {
                    used.insert((name.clone(), local.analysis.format));
                }
            }
        }
        for (name, format) in used {
            let Some((_, text)) = HELPER_TEXTS.iter().find(|(known, _)| *known == name) else {
                self.diagnostics.push(
                    Diagnostic::error(format!("the transform needs an unknown helper `{name}`"))
                        .code(trestle_contract::ErrorCode::InternalError)
                        .hint("please report this with the source that causes it"),
                );
                continue;
            };
            let (extension, export) = match format {
                Format::Esm => ("mjs", "export default"),
                Format::CommonJs => ("cjs", "module.exports ="),
            };
            let text = format!("{text}\n{export} {name};\n");
            self.files.insert(format!("{HELPERS}/{name}.{extension}"), text.into_bytes());
        }
        self.files.insert(ROOT_MODULE.into(), ROOT_MODULE_TEXT.as_bytes().to_vec());
    }
}

/// A module with the data as default export, and its keys as named exports.
fn json_module(text: &str, value: &Value) -> String {
    let mut module =
        format!("const data = JSON.parse({});\nexport default data;\n", Value::from(text.trim()));
    if let Value::Object(members) = value {
        for (index, name) in members.keys().filter(|name| *name != "default").enumerate() {
            let name = Value::from(name.as_str()).to_string();
            module.push_str(&format!("const v{index} = data[{name}];\nexport {{ v{index} as {name} }};\n"));
        }
    }
    module
}

/// A JavaScript string of a relative specifier.
fn specifier(path: &str) -> String {
    Value::from(encoded(path)).to_string()
}

/// Escapes what a URL would read as something else than part of the path.
fn encoded(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

/// The specifier that leads from a folder to a file, both from the artifact's root.
pub(crate) fn relative(folder: &str, to: &str) -> String {
    let from: Vec<&str> = folder.split('/').filter(|segment| !segment.is_empty()).collect();
    let target: Vec<&str> = to.split('/').collect();
    let shared = from.iter().zip(&target).take_while(|(left, right)| left == right).count();
    let up = from.len() - shared;
    let prefix = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
    format!("{prefix}{}", target[shared..].join("/"))
}

/// The path from a folder up to the artifact's root.
fn relative_folder(folder: &str) -> String {
    let depth = folder.split('/').filter(|segment| !segment.is_empty()).count();
    if depth == 0 { ".".into() } else { vec![".."; depth].join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_lead_from_folder_to_file() {
        assert_eq!(relative("", ".trestle/app/a.mjs"), "./.trestle/app/a.mjs");
        assert_eq!(relative(".trestle/app/src", ".trestle/app/src/b.mjs"), "./b.mjs");
        assert_eq!(relative(".trestle/app/src", ".trestle/root.mjs"), "../../root.mjs");
        assert_eq!(relative_folder(".trestle/app/src"), "../../..");
    }

    #[test]
    fn json_becomes_a_module_with_every_key() {
        let text = r#"{"__proto__": 1, "a-b": 2, "default": 3}"#;
        let module = json_module(text, &serde_json::from_str(text).unwrap());
        assert!(module.starts_with("const data = JSON.parse(\"{\\\"__proto__\\\": 1"), "{module}");
        assert!(module.contains("as \"a-b\""));
        assert!(!module.contains("as \"default\""));
    }
}
