//! What the documents say is what the tree holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use trestle_contract::ErrorCode;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of the workspace's own crates below `[section]` of a manifest.
fn own_dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let body = manifest.split_once(&format!("\n[{section}]\n")).map_or("", |(_, rest)| rest);
    let body = body.split("\n[").next().unwrap();
    let names = body.lines().filter_map(|line| line.strip_prefix("trestle-"));
    names.map(|line| line.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
}

#[test]
fn the_architecture_map_equals_what_the_crates_import() {
    let document = read("ARCHITECTURE.md");
    let rows = document.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut written = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        written.insert(name, cells[3].split_whitespace().map(ToOwned::to_owned).collect::<BTreeSet<_>>());
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        found.insert(name, own_dependencies(&manifest, "dependencies"));
    }
    assert_eq!(written, found, "left: ARCHITECTURE.md, right: the manifests");
}

#[test]
fn no_release_build_holds_the_test_kit() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let dependencies = own_dependencies(&read(&format!("crates/{name}/Cargo.toml")), "dependencies");
        assert!(!dependencies.contains("testkit"), "{name} depends on testkit");
    }
}

#[test]
fn every_error_code_has_its_page() {
    let index = read("docs/errors/README.md");
    for code in ErrorCode::ALL {
        let page = read(&format!("docs/errors/{}.md", code.reference()));
        assert!(
            page.starts_with(&format!("# {} · {}\n", code.reference(), code.as_str())),
            "{}",
            code.reference()
        );
        assert!(
            page.contains("**What happened.**") && page.contains("**What to do.**"),
            "{}",
            code.reference()
        );
        assert!(index.contains(&format!(
            "| [{0}]({0}.md) | `{1}` | {2} |",
            code.reference(),
            code.as_str(),
            code.status()
        )));
    }
    let pages = fs::read_dir(root().join("docs/errors")).unwrap().count();
    assert_eq!(pages, ErrorCode::ALL.len() + 1, "a page without a code");
}

/// Every source file that may hold a test.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "node_modules" | "target" | ".git" | ".cache") {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") || name.ends_with(".test.mjs") {
            found.push(path);
        }
    }
}

#[test]
fn every_test_that_the_conformance_table_names_exists() {
    let mut files = Vec::new();
    for directory in ["crates", "sdk"] {
        sources(&root().join(directory), &mut files);
    }
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let document = read("docs/conformance.md");
    let mut rows = 0;
    for row in
        document.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| section or weakness"))
    {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{row}");
        for name in cells[2].split("` `").map(|name| name.trim_matches('`')) {
            let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).count();
            assert!(words >= 3, "{name:?} is no telling name");
            let function = format!("fn {name}(");
            let script = format!("test(\"{name}\"");
            assert!(
                texts.iter().any(|text| text.contains(&function) || text.contains(&script)),
                "no test {name:?}"
            );
            rows += 1;
        }
    }
    assert!(rows > 20, "only {rows} rows were read");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = vec![
        root().join("README.md"),
        root().join("ARCHITECTURE.md"),
        root().join("CONTRIBUTING.md"),
        root().join("SECURITY.md"),
    ];
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap().split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(document.parent().unwrap().join(target).exists(), "{}: {target}", document.display());
        }
    }
}
