//! Samples of every type, and ways to walk and change them.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::registry::{Entry, Protocol, protocols};

/// Samples of one type that share what is open and what is optional in them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) samples: Vec<Value>,
    /// Pointers to values whose keys are free. `*` stands for any index.
    #[serde(default)]
    pub(crate) open: Vec<String>,
    /// Pointers to keys that may be absent.
    #[serde(default)]
    pub(crate) optional: Vec<String>,
}

type Groups = BTreeMap<String, Vec<Group>>;

fn groups_of(protocol: &str) -> Groups {
    let text = match protocol {
        "pool" => include_str!("../samples/pool.json"),
        "event" => include_str!("../samples/event.json"),
        "host" => include_str!("../samples/host.json"),
        "control" => include_str!("../samples/control.json"),
        "inference" => include_str!("../samples/inference.json"),
        "api" => include_str!("../samples/api.json"),
        other => panic!("no samples for {other}"),
    };
    serde_json::from_str(text).unwrap()
}

/// Calls back for every sample of every type of every protocol.
pub(crate) fn for_each(mut visit: impl FnMut(&Protocol, &Entry, &Group, &Value)) {
    for protocol in protocols() {
        let mut groups = groups_of(protocol.name);
        for entry in &protocol.entries {
            let groups = groups
                .remove(entry.name)
                .unwrap_or_else(|| panic!("{}: no sample of {}", protocol.name, entry.name));
            for group in &groups {
                assert!(!group.samples.is_empty(), "{}: {} has an empty group", protocol.name, entry.name);
                for sample in &group.samples {
                    visit(&protocol, entry, group, sample);
                }
            }
        }
        assert!(groups.is_empty(), "{}: samples of unknown types {:?}", protocol.name, groups.keys());
    }
}

/// A place in a sample: the path with indices, and the same with `*` for indices.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) exact: String,
    pub(crate) general: String,
}

impl Place {
    fn root() -> Self {
        Self { exact: String::new(), general: String::new() }
    }

    fn key(&self, key: &str) -> Self {
        let key = key.replace('~', "~0").replace('/', "~1");
        Self { exact: format!("{}/{key}", self.exact), general: format!("{}/{key}", self.general) }
    }

    fn index(&self, index: usize) -> Self {
        Self { exact: format!("{}/{index}", self.exact), general: format!("{}/*", self.general) }
    }
}

/// Every object of a sample whose keys are not free, with its place.
pub(crate) fn closed_objects(sample: &Value, group: &Group) -> Vec<Place> {
    let mut found = Vec::new();
    walk(sample, group, &Place::root(), &mut |place, value| {
        if value.is_object() {
            found.push(place.clone());
        }
    });
    found
}

/// Every key of those objects, with its place.
pub(crate) fn keys(sample: &Value, group: &Group) -> Vec<Place> {
    let mut found = Vec::new();
    walk(sample, group, &Place::root(), &mut |place, value| {
        if let Value::Object(map) = value {
            found.extend(map.keys().map(|key| place.key(key)));
        }
    });
    found
}

fn walk(value: &Value, group: &Group, place: &Place, visit: &mut impl FnMut(&Place, &Value)) {
    if group.open.contains(&place.general) {
        return;
    }
    visit(place, value);
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                walk(inner, group, &place.key(key), visit);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                walk(inner, group, &place.index(index), visit);
            }
        }
        _ => {}
    }
}

/// The sample with a key added to the object at a place.
pub(crate) fn with_added_key(sample: &Value, place: &Place) -> Value {
    let mut changed = sample.clone();
    changed
        .pointer_mut(&place.exact)
        .and_then(Value::as_object_mut)
        .unwrap()
        .insert("zzUnknown".to_owned(), Value::from(1));
    changed
}

/// The sample without the key at a place.
pub(crate) fn without_key(sample: &Value, place: &Place) -> Value {
    let mut changed = sample.clone();
    let (parent, key) = place.exact.rsplit_once('/').unwrap();
    changed
        .pointer_mut(parent)
        .and_then(Value::as_object_mut)
        .unwrap()
        .remove(&key.replace("~1", "/").replace("~0", "~"))
        .unwrap();
    changed
}

/// The sample with another value at a place.
pub(crate) fn with_value(sample: &Value, place: &Place, value: Value) -> Value {
    let mut changed = sample.clone();
    *changed.pointer_mut(&place.exact).unwrap() = value;
    changed
}

#[test]
fn every_sample_is_read_and_written_as_the_same_value() {
    let mut count = 0;
    for_each(|protocol, entry, _, sample| {
        let written = (entry.round_trip)(&sample.to_string())
            .unwrap_or_else(|error| panic!("{} {}: {error}: {sample}", protocol.name, entry.name));
        assert_eq!(&written, sample, "{} {}", protocol.name, entry.name);
        count += 1;
    });
    assert!(count > 150, "only {count} samples");
}

#[test]
fn every_root_type_of_the_source_is_in_the_registry() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooted: std::collections::BTreeSet<_> =
        protocols().iter().flat_map(|protocol| protocol.entries.iter().map(|entry| entry.name)).collect();
    let mut missing = Vec::new();
    for file in [
        "pool.rs",
        "host/methods.rs",
        "control/run.rs",
        "control/usage.rs",
        "control/services.rs",
        "control/artifacts.rs",
        "control/workspace.rs",
        "control/children.rs",
        "control/gates.rs",
        "control/journal.rs",
        "inference.rs",
    ] {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        for line in text.lines() {
            let Some(name) = line.strip_prefix("pub struct ") else { continue };
            let name: String = name.chars().take_while(char::is_ascii_alphanumeric).collect();
            let is_body = ["Request", "Response", "Params", "Result", "Reply", "Status"]
                .iter()
                .any(|suffix| name.ends_with(suffix));
            let is_part = matches!(name.as_str(), "TriggerRequest" | "ToolCallRequest");
            if is_body && !is_part && !rooted.contains(name.as_str()) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "without samples: {missing:?}");
}
