//! A control plane in memory, and run processes that talk to it: both real processes and real sockets.
#![allow(dead_code, reason = "every test uses a part of it")]

pub(crate) mod fake;
pub(crate) mod plane;
pub(crate) mod process;

use std::path::{Path, PathBuf};

use trestle_sandbox::slot::NodeRuntime;

/// By how much intervals are divided: 50, or what `TRESTLE_TEST_TIME_SCALE` says. `scripts/soak` sets 1.
pub(crate) fn time_scale() -> u32 {
    std::env::var("TRESTLE_TEST_TIME_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(50)
}

/// A Node of this major version, as `scripts/test` provides it.
pub(crate) fn node(major: u32) -> NodeRuntime {
    let given = std::env::var_os(format!("TRESTLE_TEST_NODE{major}")).map(PathBuf::from);
    let cached = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../.cache/node{major}/node_modules/node/bin/node"));
    let path = given.unwrap_or(cached);
    assert!(path.exists(), "{} is missing: run scripts/test", path.display());
    NodeRuntime { path, version: format!("{major}.0.0") }
}

/// A program of `tests/programs`.
pub(crate) fn program(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A gzip tar of these files.
pub(crate) fn artifact(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}
