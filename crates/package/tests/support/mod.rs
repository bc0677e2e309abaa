//! Packages on disk, and running what was built from them under Node.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use trestle_package::artifact::{Limits, extract};
use trestle_package::{Artifact, Report, Silent, build, check};

pub(crate) const DESCRIPTOR: &str = r#"{ "slug": "sample", "triggers": [{ "kind": "manual" }] }"#;

/// A workflow package in a temporary folder.
pub(crate) struct Package {
    folder: TempDir,
    /// Folder of the package inside it, empty for the folder itself.
    inside: PathBuf,
}

impl Package {
    /// A package with a descriptor.
    pub(crate) fn new() -> Self {
        Self::inside("").file("workflow.jsonc", DESCRIPTOR)
    }

    /// A package in a sub-folder, as in a monorepo; without a descriptor.
    pub(crate) fn inside(folder: &str) -> Self {
        let package = Self { folder: tempfile::tempdir().unwrap(), inside: folder.into() };
        fs::create_dir_all(package.root()).unwrap();
        package
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join(&self.inside)
    }

    /// Writes a file, relative to the package.
    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Makes a symbolic link, relative to the package, to a target relative to the link's folder.
    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    pub(crate) fn check(&self) -> Report {
        check(&self.root(), &Silent)
    }

    pub(crate) fn build(&self) -> Artifact {
        build(&self.root(), &Silent).unwrap_or_else(|error| panic!("{error}\n{:#?}", error.report.errors))
    }

    /// Builds, unpacks and runs the program; its result as JSON.
    pub(crate) fn run(&self, input: &str) -> serde_json::Value {
        Unpacked::new(&self.build()).run(input)
    }
}

/// An artifact on disk, with a small SDK linked in.
pub(crate) struct Unpacked {
    folder: TempDir,
}

/// What Node said.
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) success: bool,
}

impl Unpacked {
    pub(crate) fn new(artifact: &Artifact) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = Self { folder };
        fs::create_dir(unpacked.root()).unwrap();
        extract(artifact.bytes.as_slice(), &unpacked.root(), &Limits::default()).unwrap();
        unpacked.link_sdk();
        unpacked
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("program")
    }

    fn link_sdk(&self) {
        let sdk = self.folder.path().join("sdk");
        fs::create_dir(&sdk).unwrap();
        fs::write(
            sdk.join("package.json"),
            r#"{ "name": "@boardwalk-labs/workflow", "version": "0.3.12", "type": "module",
                "exports": { ".": "./index.mjs", "./runtime": "./runtime.mjs" } }"#,
        )
        .unwrap();
        fs::write(sdk.join("index.mjs"), "export const phase = (name) => `phase ${name}`;\n").unwrap();
        fs::write(sdk.join("runtime.mjs"), "export const runtime = true;\n").unwrap();
        for scope in ["@boardwalk-labs", "@trestle"] {
            let scope = self.root().join("node_modules").join(scope);
            fs::create_dir_all(&scope).unwrap();
            std::os::unix::fs::symlink(&sdk, scope.join("workflow")).unwrap();
        }
        fs::write(
            self.folder.path().join("loader.mjs"),
            "const { default: run } = await import(process.argv[2]);\n\
             const result = await run(JSON.parse(process.argv[3]), {});\n\
             console.log(JSON.stringify(result ?? null));\n",
        )
        .unwrap();
    }

    /// Runs the program as a plain loader does; what it returned, as JSON.
    pub(crate) fn run(&self, input: &str) -> serde_json::Value {
        let output = self.node(&[], input);
        assert!(output.success, "{}\n{}", output.stdout, output.stderr);
        let last = output.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", output.stdout))
    }

    /// Runs the program with options for Node.
    pub(crate) fn node(&self, options: &[&str], input: &str) -> Output {
        let elsewhere = tempfile::tempdir().unwrap();
        let output = Command::new("node")
            .args(options)
            .arg(self.folder.path().join("loader.mjs"))
            .arg(format!("file://{}", self.root().join("index.mjs").display()))
            .arg(input)
            .current_dir(elsewhere.path())
            .env_remove("NODE_OPTIONS")
            .env_remove("NODE_PATH")
            .output()
            .expect("these tests need `node` on the PATH");
        Output {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            success: output.status.success(),
        }
    }
}

/// Paths of an artifact's files below a prefix, without it.
pub(crate) fn below(artifact: &Artifact, prefix: &str) -> Vec<String> {
    artifact.files.iter().filter_map(|file| file.path.strip_prefix(prefix)).map(str::to_owned).collect()
}

pub(crate) fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
