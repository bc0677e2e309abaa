//! Where packages go below the artifact's `node_modules`, so that Node finds for every importer the instance that was
//! found on the author's machine.

use std::collections::{BTreeMap, VecDeque};

use super::walk::{Instance, InstanceId};

/// Folder for packages whose name is taken at the root by another version that the program's own modules use too.
const ASIDE: &str = ".trestle/npm";

/// A package that the program's own modules import, by the name that they use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Want {
    pub(crate) name: String,
    pub(crate) instance: InstanceId,
}

/// Folders of all packages in the artifact.
#[derive(Debug)]
pub(crate) struct Layout {
    places: Vec<Place>,
    by_want: BTreeMap<Want, usize>,
}

#[derive(Debug)]
struct Place {
    /// `None` for the root and the folders aside.
    instance: Option<InstanceId>,
    /// Folder from the artifact's root; empty for the root.
    folder: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

impl Layout {
    /// Lays out the wanted packages and everything they depend on. `wants` come in order of precedence: of two
    /// instances of one name, the first gets the root.
    ///
    /// The same rule as npm's: a package goes to the root unless its name is taken on the way, then to the folder of
    /// the one who asks. The order is fixed by names, so that equal inputs give equal layouts.
    pub(crate) fn new(instances: &[Instance], wants: &[Want]) -> Self {
        let root = Place { instance: None, folder: String::new(), parent: None, children: BTreeMap::new() };
        let mut layout = Self { places: vec![root], by_want: BTreeMap::new() };
        let mut queue = VecDeque::new();
        for want in wants {
            if layout.by_want.contains_key(want) {
                continue;
            }
            let parent = if layout.places[0].children.contains_key(&want.name) { layout.aside() } else { 0 };
            let place = layout.put(parent, &want.name, want.instance);
            layout.by_want.insert(want.clone(), place);
            queue.push_back(place);
        }
        while let Some(asker) = queue.pop_front() {
            let Some(instance) = layout.places[asker].instance else { continue };
            for (name, &needed) in &instances[instance].dependencies {
                if let Some(parent) = layout.missing_at(asker, name, needed) {
                    queue.push_back(layout.put(parent, name, needed));
                }
            }
        }
        layout
    }

    /// Every folder, with its package.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, InstanceId)> {
        self.places
            .iter()
            .filter_map(|place| place.instance.map(|instance| (place.folder.as_str(), instance)))
    }

    /// The folder in which the program's own modules find a package.
    pub(crate) fn folder_of(&self, want: &Want) -> Option<&str> {
        self.by_want.get(want).map(|&place| self.places[place].folder.as_str())
    }

    /// Whether the program's own modules find the package by its bare name.
    pub(crate) fn is_at_root(&self, want: &Want) -> bool {
        self.by_want.get(want).is_some_and(|&place| self.places[place].parent == Some(0))
    }

    /// Where to put a package so that `asker` finds it; `None` when it does already.
    fn missing_at(&self, asker: usize, name: &str, needed: InstanceId) -> Option<usize> {
        let mut at = Some(asker);
        while let Some(place) = at {
            if let Some(&found) = self.places[place].children.get(name) {
                return (self.places[found].instance != Some(needed)).then_some(asker);
            }
            at = self.places[place].parent;
        }
        Some(0)
    }

    fn put(&mut self, parent: usize, name: &str, instance: InstanceId) -> usize {
        let folder = match self.places[parent].folder.as_str() {
            "" => format!("node_modules/{name}"),
            folder => format!("{folder}/node_modules/{name}"),
        };
        let place = self.add(Place {
            instance: Some(instance),
            folder,
            parent: Some(parent),
            children: BTreeMap::new(),
        });
        self.places[parent].children.insert(name.to_owned(), place);
        place
    }

    fn aside(&mut self) -> usize {
        let number = self.places.iter().filter(|place| place.instance.is_none()).count();
        let folder = format!("{ASIDE}/{number}");
        self.add(Place { instance: None, folder, parent: Some(0), children: BTreeMap::new() })
    }

    fn add(&mut self, place: Place) -> usize {
        self.places.push(place);
        self.places.len() - 1
    }
}
