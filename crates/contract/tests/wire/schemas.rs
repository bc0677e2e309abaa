//! The committed JSON Schemas: they are what the types say, and judge the samples as the types do.

use std::path::PathBuf;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::registry::{Protocol, protocols};
use crate::samples::{closed_objects, for_each, keys, with_added_key, without_key};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The document of one protocol: one definition per type.
fn document(protocol: &Protocol) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut roots = Map::new();
    for entry in &protocol.entries {
        roots.insert(entry.name.to_owned(), (entry.schema)(&mut generator).to_value());
    }
    let mut definitions = generator.take_definitions(true);
    for (name, schema) in roots {
        // A root that became a definition is only a reference to it.
        if schema.get("$ref").is_none() {
            definitions.insert(name, schema);
        }
    }
    let mut definitions = Value::Object(definitions);
    forbid_null_where_absent_is_meant(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Trestle: {} protocol", protocol.name),
        "$defs": definitions,
    })
}

/// A key that is not required is left out instead of written as `null`.
fn forbid_null_where_absent_is_meant(schema: &mut Value) {
    if let Value::Object(map) = schema {
        let required: Vec<String> = map
            .get("required")
            .and_then(Value::as_array)
            .map(|keys| keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        if let Some(Value::Object(properties)) = map.get_mut("properties") {
            for (_, property) in properties.iter_mut().filter(|(key, _)| !required.contains(key)) {
                drop_null(property);
            }
        }
        for inner in map.values_mut() {
            forbid_null_where_absent_is_meant(inner);
        }
    } else if let Value::Array(items) = schema {
        items.iter_mut().for_each(forbid_null_where_absent_is_meant);
    }
}

fn drop_null(property: &mut Value) {
    let Value::Object(map) = property else { return };
    if let Some(Value::Array(kinds)) = map.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if kinds.len() == 1 {
            let kind = kinds.remove(0);
            map.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
        choices.retain(|choice| choice != &json!({"type": "null"}));
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let only = std::mem::take(only);
            map.remove("anyOf");
            map.extend(only);
        }
    }
}

#[test]
fn the_committed_schemas_are_what_the_types_say() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    let mut stale = Vec::new();
    for protocol in protocols() {
        let path = folder().join(format!("{}.json", protocol.name));
        let text = format!("{}\n", serde_json::to_string_pretty(&document(&protocol)).unwrap());
        if update {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "stale, write them again with UPDATE_SCHEMAS=1: {stale:?}");
}

#[test]
fn the_schemas_judge_samples_as_the_types_do() {
    let mut validators = std::collections::BTreeMap::new();
    for protocol in protocols() {
        let document = document(&protocol);
        for entry in &protocol.entries {
            let mut root = document.clone();
            root["$ref"] = json!(format!("#/$defs/{}", entry.name));
            validators.insert((protocol.name, entry.name), jsonschema::validator_for(&root).unwrap());
        }
    }
    let mut judged = 0;
    for_each(|protocol, entry, group, sample| {
        let validator = &validators[&(protocol.name, entry.name)];
        if let Err(error) = validator.validate(sample) {
            panic!("{} {}: {error}: {sample}", protocol.name, entry.name);
        }
        if protocol.closed {
            for place in closed_objects(sample, group) {
                let changed = with_added_key(sample, &place);
                assert!(!validator.is_valid(&changed), "{} {}: {changed}", protocol.name, entry.name);
                judged += 1;
            }
            for place in keys(sample, group) {
                let changed = without_key(sample, &place);
                // Requests may leave out what has a default; a schema of what we write does not say so.
                if entry.name == "RegisterRequest" && place.exact == "/labels" {
                    continue;
                }
                assert_eq!(
                    validator.is_valid(&changed),
                    group.optional.contains(&place.general),
                    "{} {} without {}",
                    protocol.name,
                    entry.name,
                    place.exact
                );
                judged += 1;
            }
        }
    });
    assert!(judged > 400, "only {judged} judgements");
}
