//! What of a package.json matters here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// A package.json. Values of unexpected types read as absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackageManifest {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    /// `module` or `commonjs`, when it is said.
    pub(crate) kind: Option<String>,
    /// Names of `dependencies` and `peerDependencies`.
    pub(crate) dependencies: Vec<String>,
    /// Names of `optionalDependencies`.
    pub(crate) optional: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    name: Option<serde_json::Value>,
    version: Option<serde_json::Value>,
    #[serde(rename = "type")]
    kind: Option<serde_json::Value>,
    dependencies: Option<serde_json::Value>,
    peer_dependencies: Option<serde_json::Value>,
    optional_dependencies: Option<serde_json::Value>,
}

impl PackageManifest {
    /// Reads a package.json; one that cannot be read is an empty one.
    pub(crate) fn read(path: &Path) -> Self {
        let Some(raw) = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Raw>(&bytes).ok())
        else {
            return Self::default();
        };
        let optional = names(raw.optional_dependencies);
        let mut dependencies = names(raw.dependencies);
        dependencies.extend(names(raw.peer_dependencies));
        // npm lists optional ones under both keys.
        dependencies.retain(|name| !optional.contains(name));
        dependencies.sort();
        dependencies.dedup();
        Self {
            name: text(raw.name),
            version: text(raw.version),
            kind: text(raw.kind),
            dependencies,
            optional,
        }
    }
}

fn text(value: Option<serde_json::Value>) -> Option<String> {
    match value {
        Some(serde_json::Value::String(text)) => Some(text),
        _ => None,
    }
}

fn names(value: Option<serde_json::Value>) -> Vec<String> {
    match value {
        Some(serde_json::Value::Object(map)) => map
            .into_iter()
            .map(|(name, _)| name)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// The version that a package.json states.
pub(crate) fn installed_version(path: &Path) -> Option<String> {
    PackageManifest::read(path).version
}

/// Ranges that a package.json declares for a dependency, in order of precedence.
pub(crate) fn declared_range(path: &Path, dependency: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ranges {
        #[serde(default)]
        dependencies: BTreeMap<String, serde_json::Value>,
        #[serde(default)]
        dev_dependencies: BTreeMap<String, serde_json::Value>,
        #[serde(default)]
        peer_dependencies: BTreeMap<String, serde_json::Value>,
    }
    let ranges: Ranges = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    [ranges.dependencies, ranges.dev_dependencies, ranges.peer_dependencies]
        .into_iter()
        .find_map(|mut map| text(map.remove(dependency)))
}
