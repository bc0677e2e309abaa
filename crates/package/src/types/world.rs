//! The modules that types are taken from, read when they are asked for, and the way from a name to its declaration.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::lower;
use super::syntax::{Declaration, Module, Node, Origin};
use crate::resolve::{Resolvers, is_sdk};

/// A module by its number.
pub(super) type ModuleId = usize;

/// The types of the SDK, which no package has to have installed.
const SDK_TYPES: &str = include_str!("../../../../sdk/typescript/index.d.ts");
/// Modules beyond these are not read: types of npm packages can lead anywhere.
const MOST_MODULES: usize = 2_000;
/// Larger files are not read.
const LARGEST: u64 = 4 * 1024 * 1024;

/// What a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Types,
    Values,
}

/// A declared name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) module: ModuleId,
    pub(super) name: String,
}

pub(super) struct World<'r> {
    resolvers: &'r Resolvers,
    modules: Vec<(PathBuf, Module)>,
    by_path: HashMap<PathBuf, ModuleId>,
    targets: HashMap<(ModuleId, String), Option<ModuleId>>,
}

impl<'r> World<'r> {
    pub(super) fn new(resolvers: &'r Resolvers) -> Self {
        Self { resolvers, modules: Vec::new(), by_path: HashMap::new(), targets: HashMap::new() }
    }

    /// The module in a file.
    pub(super) fn load(&mut self, path: &Path) -> Option<ModuleId> {
        if let Some(known) = self.by_path.get(path) {
            return Some(*known);
        }
        if self.modules.len() >= MOST_MODULES || std::fs::metadata(path).ok()?.len() > LARGEST {
            return None;
        }
        let text = std::fs::read_to_string(path).ok()?;
        Some(self.add(path, lower::module(path, text.strip_prefix('\u{feff}').unwrap_or(&text))))
    }

    fn add(&mut self, path: &Path, module: Module) -> ModuleId {
        let id = self.modules.len();
        self.modules.push((path.to_owned(), module));
        self.by_path.insert(path.to_owned(), id);
        id
    }

    fn sdk(&mut self) -> ModuleId {
        // No file has this path: it is no absolute one.
        let path = Path::new("@trestle/workflow/index.d.ts");
        match self.by_path.get(path) {
            Some(known) => *known,
            None => self.add(path, lower::module(path, SDK_TYPES)),
        }
    }

    /// Whether a module is the SDK.
    pub(super) fn is_sdk(&self, module: ModuleId) -> bool {
        self.modules.get(module).is_some_and(|(path, _)| !path.is_absolute())
    }

    fn target(&mut self, from: ModuleId, source: &str) -> Option<ModuleId> {
        if is_sdk(source) {
            return Some(self.sdk());
        }
        let key = (from, source.to_owned());
        if let Some(known) = self.targets.get(&key) {
            return *known;
        }
        let from_path = self.modules.get(from)?.0.clone();
        let found = self.resolvers.types(&from_path, source).and_then(|path| self.load(&path));
        self.targets.insert(key, found);
        found
    }

    fn module(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id).map(|(_, module)| module)
    }

    pub(super) fn declarations(&self, place: &Place) -> &[Declaration] {
        self.module(place.module).and_then(|module| module.types.get(&place.name)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn value(&self, place: &Place) -> Option<Node> {
        self.module(place.module)?.values.get(&place.name).cloned()
    }

    fn has(&self, place: &Place, space: Space) -> bool {
        self.module(place.module).is_some_and(|module| match space {
            Space::Types => module.types.contains_key(&place.name),
            Space::Values => module.values.contains_key(&place.name),
        })
    }

    /// Where a name leads that is written in a module, inside of namespaces.
    pub(super) fn find(
        &mut self,
        module: ModuleId,
        scope: &[String],
        path: &[String],
        space: Space,
    ) -> Option<Place> {
        self.find_within(module, scope, path, space, 0)
    }

    /// Where a name leads that another module exports.
    pub(super) fn find_in(
        &mut self,
        from: ModuleId,
        source: &str,
        path: &[String],
        space: Space,
    ) -> Option<Place> {
        let target = self.target(from, source)?;
        self.exported(target, path, space, 0)
    }

    /// Where the default export of a module is declared.
    pub(super) fn default_export(&mut self, module: ModuleId) -> Option<Place> {
        self.exported(module, &["default".to_owned()], Space::Values, 0)
    }

    fn find_within(
        &mut self,
        module: ModuleId,
        scope: &[String],
        path: &[String],
        space: Space,
        hops: usize,
    ) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        for length in (0..=scope.len()).rev() {
            let parts: Vec<&str> = scope.iter().take(length).chain(path).map(String::as_str).collect();
            let place = Place { module, name: parts.join(".") };
            if self.has(&place, space) {
                return Some(place);
            }
        }
        let origin = self.module(module)?.imports.get(first)?.clone();
        self.follow(module, &origin, rest, space, hops)
    }

    fn exported(&mut self, module: ModuleId, path: &[String], space: Space, hops: usize) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        if hops > 64 {
            return None;
        }
        if let Some(origin) = self.module(module)?.exports.get(first).cloned() {
            return self.follow(module, &origin, rest, space, hops + 1);
        }
        let stars = self.module(module)?.stars.clone();
        stars.iter().filter(|_| first != "default").find_map(|star| {
            let target = self.target(module, star)?;
            self.exported(target, path, space, hops + 1)
        })
    }

    fn follow(
        &mut self,
        module: ModuleId,
        origin: &Origin,
        rest: &[String],
        space: Space,
        hops: usize,
    ) -> Option<Place> {
        match origin {
            Origin::Local(name) => {
                let path: Vec<String> = std::iter::once(name).chain(rest).cloned().collect();
                self.find_within(module, &[], &path, space, hops)
            }
            Origin::Named { source, name } => {
                let path: Vec<String> = std::iter::once(name).chain(rest).cloned().collect();
                let target = self.target(module, source)?;
                self.exported(target, &path, space, hops + 1)
            }
            Origin::Namespace { source } => {
                let target = self.target(module, source)?;
                self.exported(target, rest, space, hops + 1)
            }
        }
    }

    /// The other module that a name is imported from.
    pub(super) fn imported_from(&self, module: ModuleId, name: &str) -> Option<&str> {
        match self.module(module)?.imports.get(name)? {
            Origin::Named { source, .. } | Origin::Namespace { source } => Some(source),
            Origin::Local(_) => None,
        }
    }

    /// Type parameters of a declaration, by position.
    pub(super) fn parameters(&self, place: &Place) -> &[super::syntax::TypeParameter] {
        self.declarations(place).first().map_or(&[], |declaration| declaration.parameters.as_slice())
    }
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: BTreeMap<_, _> = self.by_path.iter().collect();
        formatter.debug_struct("World").field("modules", &paths).finish_non_exhaustive()
    }
}
