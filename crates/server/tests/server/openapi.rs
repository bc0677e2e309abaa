//! The committed document equals what the routes say.

use std::path::PathBuf;

fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

#[test]
fn the_committed_openapi_document_is_current() {
    let mut text = serde_json::to_string_pretty(&trestle_server::openapi()).unwrap();
    text.push('\n');
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::create_dir_all(committed().parent().unwrap()).unwrap();
        std::fs::write(committed(), &text).unwrap();
    }
    let found = std::fs::read_to_string(committed()).unwrap();
    assert!(found == text, "docs/openapi.json is outdated: run this test with UPDATE_OPENAPI=1");
}

#[test]
fn every_reference_of_the_openapi_document_leads_somewhere() {
    let document = trestle_server::openapi();
    let text = document.to_string();
    let mut references = 0;
    for part in text.split("\"$ref\":\"").skip(1) {
        let reference = &part[..part.find('"').unwrap()];
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
        references += 1;
    }
    assert!(references > 100, "{references}");
}

#[test]
fn every_operation_has_its_own_identifier_and_an_answer() {
    let document = trestle_server::openapi();
    let mut seen = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(seen.insert(id.to_owned()), "{id} twice");
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with('2')), "{method} {path}");
            assert!(answers.contains_key("default"), "{method} {path}");
        }
    }
}
