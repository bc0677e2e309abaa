//! Packing, reading and unpacking artifacts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use support::{DESCRIPTOR, Package, below};
use tar::{Builder, EntryType, Header};
use trestle_contract::ErrorCode;
use trestle_package::artifact::{ArtifactError, Limits, extract, inspect, read_file};
use trestle_package::{IdentityEntry, identity};

/// A tar whose entries are written as they come, good or bad.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    fn program() -> Self {
        Self::default()
            .file("workflow.jsonc", DESCRIPTOR.as_bytes())
            .file("index.mjs", b"export default () => 1;\n")
    }

    fn entry(mut self, kind: EntryType, path: &[u8], link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().div_ceil(512) * 512, 0);
        self
    }

    fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, path.as_bytes(), "", content)
    }

    fn gz(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.bytes).unwrap();
        encoder.finish().unwrap()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Refused by both ways of reading, with nothing beside the destination.
fn refused(bytes: &[u8], part: &str) -> ArtifactError {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("inner");
    fs::create_dir(&destination).unwrap();
    fs::write(folder.path().join("outside"), "untouched").unwrap();
    let unpacked = extract(bytes, &destination, &Limits::default()).unwrap_err();
    assert!(unpacked.to_string().contains(part), "{unpacked}");
    assert_eq!(names(folder.path()), ["inner", "outside"]);
    assert_eq!(fs::read_to_string(folder.path().join("outside")).unwrap(), "untouched");
    let inspected = inspect(bytes, &Limits::default()).unwrap_err();
    assert_eq!(inspected.to_string(), unpacked.to_string());
    assert!(inspected.hint().is_some());
    inspected
}

#[test]
fn paths_that_leave_the_root_are_refused() {
    for (path, part) in [
        ("../evil", "`..` segment"),
        ("a/../../evil", "`..` segment"),
        ("a/..", "`..` segment"),
        ("/etc/evil", "absolute"),
        ("a\\..\\evil", "backslash"),
        ("a\u{1}b", "control character"),
    ] {
        let error = refused(&Tar::program().file(path, b"x").gz(), part);
        assert_eq!(error.code(), ErrorCode::ValidationFailed);
    }
    refused(&Tar::program().entry(EntryType::Regular, b"a\xFFb", "", b"x").gz(), "not UTF-8");
    refused(&Tar::program().file("./", b"x").gz(), "needs a name");
    let segment = "s".repeat(60);
    let deep = vec![segment.as_str(); 30].join("/");
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, &deep, &b"x"[..]).unwrap();
    refused(&Tar { bytes: builder.into_inner().unwrap() }.gz(), "longer than 1024");
}

#[test]
fn links_devices_and_pipes_are_refused() {
    for (kind, link, part) in [
        (EntryType::Symlink, "/etc", "symbolic link"),
        (EntryType::Symlink, "index.mjs", "symbolic link"),
        (EntryType::Link, "index.mjs", "hard link"),
        (EntryType::Char, "", "device"),
        (EntryType::Block, "", "device"),
        (EntryType::Fifo, "", "pipe"),
        (EntryType::GNUSparse, "", "special entry"),
    ] {
        refused(&Tar::program().entry(kind, b"thing", link, b"").gz(), part);
    }
    // A link followed by a file below it: the link is refused before anything goes through it.
    let through = Tar::program().entry(EntryType::Symlink, b"dir", "/tmp", b"").file("dir/evil", b"x").gz();
    refused(&through, "symbolic link");
}

#[test]
fn a_link_that_is_already_there_is_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (inner, outer) = (folder.path().join("inner"), folder.path().join("outer"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&outer).unwrap();
    std::os::unix::fs::symlink(&outer, inner.join("dir")).unwrap();
    std::os::unix::fs::symlink(outer.join("file"), inner.join("index.mjs")).unwrap();
    for bytes in [Tar::program().gz(), Tar::default().file("dir/evil", b"x").gz()] {
        let error = extract(bytes.as_slice(), &inner, &Limits::default()).unwrap_err();
        assert!(matches!(error, ArtifactError::Write { .. }), "{error}");
    }
    assert_eq!(names(&outer), Vec::<String>::new());
}

#[test]
fn a_path_is_there_once_and_is_a_file_or_a_folder() {
    refused(&Tar::program().file("a", b"1").file("./a", b"2").gz(), "there twice");
    refused(&Tar::program().file("a", b"1").file("a/b", b"2").gz(), "folders is a file");
    refused(&Tar::program().file("a/b", b"1").file("a", b"2").gz(), "both a file and a folder");
    let folders = Tar::program().entry(EntryType::Directory, b"d/", "", b"").file("d/f", b"1").gz();
    let contents = inspect(folders.as_slice(), &Limits::default()).unwrap();
    assert!(contents.files.iter().any(|file| file.path == "d/f"));
}

#[test]
fn an_artifact_never_brings_the_sdk() {
    for path in [
        "node_modules/@boardwalk-labs/workflow/index.js",
        "node_modules/@trestle/workflow/package.json",
        "node_modules/a/node_modules/@boardwalk-labs/workflow/x.js",
    ] {
        let error = refused(&Tar::program().file(path, b"x").gz(), "provided by the runtime");
        assert_eq!(error.code(), ErrorCode::ValidationFailed);
        assert!(error.hint().unwrap().contains("leave the SDK out"));
    }
    let folder =
        Tar::program().entry(EntryType::Directory, b"node_modules/@boardwalk-labs/workflow/", "", b"").gz();
    refused(&folder, "provided by the runtime");
    let similar = Tar::program().file("node_modules/@boardwalk-labs/workflows/x.js", b"x").gz();
    assert!(inspect(similar.as_slice(), &Limits::default()).is_ok());
}

#[test]
fn bombs_are_stopped_at_the_limits() {
    let zeros = Tar::program().file("zeros", &vec![0; 8 << 20]).gz();
    let small = Limits { unpacked_bytes: 1 << 20, entries: 10, ..Limits::default() };
    for error in [
        inspect(zeros.as_slice(), &small).unwrap_err(),
        extract(zeros.as_slice(), tempfile::tempdir().unwrap().path(), &small).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::PayloadTooLarge);
        assert!(error.to_string().contains("unpacked bytes"), "{error}");
    }
    let mut many = Tar::program();
    for number in 0..20 {
        many = many.file(&format!("f{number}"), b"");
    }
    let error = inspect(many.gz().as_slice(), &small).unwrap_err();
    assert!(error.to_string().contains("more than 10 entries"), "{error}");
    let packed = Limits { packed_bytes: 100, ..Limits::default() };
    let error = inspect(Tar::program().gz().as_slice(), &packed).unwrap_err();
    assert!(error.to_string().contains("more than 100 packed bytes"), "{error}");
    // A header that promises more than there is, and a name that is a bomb of its own.
    let long_name =
        Tar::program().entry(EntryType::GNULongName, b"././@LongLink", "", &vec![b'a'; 1 << 20]).gz();
    let error = inspect(long_name.as_slice(), &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("extension record"), "{error}");
}

#[test]
fn damaged_archives_are_refused() {
    let whole = Tar::program().file("big", &vec![7; 100_000]).gz();
    for bytes in [&b""[..], b"not gzip", &whole[..whole.len() / 2], &whole[..whole.len() - 4]] {
        let error = inspect(bytes, &Limits::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ValidationFailed, "{error}");
    }
    let mut cut = Tar::program().file("big", &[7; 5000]).bytes;
    cut.truncate(cut.len() - 3000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&cut).unwrap();
    refused(&encoder.finish().unwrap(), "");
}

#[test]
fn an_artifact_needs_one_descriptor_and_a_program() {
    let cases = [
        (Tar::default().file("index.mjs", b"x"), "no workflow.jsonc"),
        (Tar::program().file("workflow.json", b"{}"), "both"),
        (Tar::default().file("workflow.json", DESCRIPTOR.as_bytes()), "no program"),
        (
            Tar::default().file("workflow.json", DESCRIPTOR.as_bytes()).file("lib/index.mjs", b""),
            "no program",
        ),
    ];
    for (tar, part) in cases {
        let error = inspect(tar.gz().as_slice(), &Limits::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.code(), ErrorCode::ValidationFailed);
        assert!(error.hint().is_some());
    }
    let python = Tar::default()
        .file(
            "workflow.json",
            br#"{ "slug": "x", "entry": "app/main.py", "triggers": [{ "kind": "manual" }] }"#,
        )
        .file(".bw-src/app/main.py", b"def run(input, ctx): pass\n")
        .gz();
    assert_eq!(inspect(python.as_slice(), &Limits::default()).unwrap().entry, "app/main.py");
}

#[test]
fn what_was_built_is_read_back() {
    let package = Package::inside("")
        .file("workflow.json", "{ // note\n \"slug\": \"sample\", \"files\": [\"data\"], \"triggers\": [{ \"kind\": \"manual\" }] }")
        .file("src/index.ts", "import './used';\nexport default () => 1;\n")
        .file("src/used.ts", "export {};\n")
        .file("src/unused.test.ts", "export {};\n")
        .file("dist/old.js", "")
        .file(".env", "SECRET=1")
        .file("data/.env", "SECRET=1")
        .file("data/x.bin", "x")
        .file("data/node_modules/x/y.txt", "x")
        .file("skills/a/SKILL.md", "s")
        .file("skills/a/.hidden", "s")
        .file("Readme.MD", "r")
        .file("AGENTS.md", "a")
        .file("docs/README.md", "no")
        .file("package-lock.json", "{}");
    let artifact = package.build();
    let contents = inspect(artifact.bytes.as_slice(), &Limits::default()).unwrap();
    let paths: Vec<&str> = contents.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            ".bw-src/src/index.ts",
            ".bw-src/src/unused.test.ts",
            ".bw-src/src/used.ts",
            ".trestle/app/src/index.ts.mjs",
            ".trestle/app/src/index.ts.mjs.map",
            ".trestle/app/src/used.ts.mjs",
            ".trestle/app/src/used.ts.mjs.map",
            ".trestle/root.mjs",
            ".trestle/schemas.json",
            "AGENTS.md",
            "Readme.MD",
            "data/x.bin",
            "index.mjs",
            "skills/a/SKILL.md",
            "workflow.json",
        ]
    );
    assert_eq!(contents.files, artifact.files);
    assert_eq!(contents.identity, artifact.identity);
    assert_eq!(contents.entry, "index.mjs");
    assert_eq!(contents.sources, ["src/index.ts", "src/unused.test.ts", "src/used.ts"]);
    assert_eq!(contents.descriptor_name, "workflow.json");
    assert!(contents.descriptor_bytes.starts_with(b"{ // note\n"));
    assert_eq!(contents.descriptor().unwrap().descriptor.slug, "sample");
    assert_eq!(artifact.digest, hex::encode(Sha256::digest(&artifact.bytes)));
    assert_eq!(artifact.lockfile_digest, Some(hex::encode(Sha256::digest(b"{}"))));
    assert_eq!(artifact.sdk_version, "*");
    let readme = read_file(artifact.bytes.as_slice(), "Readme.MD", 10, &Limits::default()).unwrap();
    assert_eq!(readme.as_deref(), Some(&b"r"[..]));
    assert_eq!(read_file(artifact.bytes.as_slice(), "gone", 10, &Limits::default()).unwrap(), None);
    assert!(read_file(artifact.bytes.as_slice(), "index.mjs", 10, &Limits::default()).is_err());
}

fn sample(folder: &Path, reversed: bool, umask: u32, time: u64) -> Package {
    let mut files = vec![
        ("src/index.ts".to_owned(), "import a from 'a';\nexport default () => a;\n".to_owned()),
        ("node_modules/a/index.js".into(), "module.exports = require('./b');\n".into()),
        ("node_modules/a/b.js".into(), "module.exports = 'b';\n".into()),
        ("node_modules/a/package.json".into(), r#"{ "name": "a", "version": "1.0.0" }"#.into()),
        ("tool/run.sh".into(), "#!/bin/sh\n".into()),
        (format!("tool/{}/long.txt", "d".repeat(120)), "long".into()),
        (
            "workflow.jsonc".into(),
            r#"{ "slug": "s", "triggers": [{ "kind": "manual" }], "files": ["tool"] }"#.into(),
        ),
    ];
    if reversed {
        files.reverse();
    }
    let mut package = Package::inside(folder.to_str().unwrap());
    for (path, content) in &files {
        package = package.file(path, content);
        let on_disk = package.root().join(path);
        let executable = if path.ends_with("run.sh") { 0o777 } else { 0o666 };
        fs::set_permissions(&on_disk, fs::Permissions::from_mode(executable & !umask)).unwrap();
        let changed = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
        fs::File::options().write(true).open(&on_disk).unwrap().set_modified(changed).unwrap();
    }
    package
}

#[test]
fn equal_packages_give_equal_bytes_whatever_their_times_modes_and_order() {
    let first = sample(Path::new("one"), false, 0o022, 1_000_000_000).build();
    let second = sample(Path::new("elsewhere/two"), true, 0o007, 1_700_000_000).build();
    assert_eq!(first.digest, second.digest);
    assert_eq!(first.identity, second.identity);
    let modes: Vec<(&str, u32)> = first
        .files
        .iter()
        .filter(|file| file.path.starts_with("tool/"))
        .map(|file| (file.path.rsplit('/').next().unwrap(), file.mode))
        .collect();
    assert_eq!(modes, [("long.txt", 0o644), ("run.sh", 0o755)]);
    assert_eq!(&first.bytes[..10], b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "gzip header");
}

#[test]
fn unpacked_files_have_their_contents_and_modes() {
    let package = sample(Path::new("one"), false, 0o022, 1);
    let artifact = package.build();
    let folder = tempfile::tempdir().unwrap();
    let done = extract(artifact.bytes.as_slice(), folder.path(), &Limits::default()).unwrap();
    assert_eq!(done.files, artifact.files.len());
    assert_eq!(done.bytes, artifact.files.iter().map(|file| file.size).sum::<u64>());
    for file in &artifact.files {
        let path = folder.path().join(&file.path);
        assert_eq!(hex::encode(Sha256::digest(fs::read(&path).unwrap())), file.digest, "{}", file.path);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777 & !0o022, file.mode & !0o022);
    }
    let again = extract(artifact.bytes.as_slice(), folder.path(), &Limits::default());
    assert!(again.is_err(), "files that are there are not overwritten");
}

#[test]
fn every_change_that_matters_changes_the_identity() {
    let base = Package::new().file("index.ts", "export default () => 1;\n").file("skills/a/SKILL.md", "a");
    let identity = base.build().identity;
    let cases: [(&str, &str); 3] =
        [("index.ts", "export default () => 2;\n"), ("skills/b/SKILL.md", "b"), ("skills/a/SKILL.md", "b")];
    for (path, content) in cases {
        let changed = Package::new()
            .file("index.ts", "export default () => 1;\n")
            .file("skills/a/SKILL.md", "a")
            .file(path, content);
        assert_ne!(changed.build().identity, identity, "{path}");
    }
    let unrelated =
        base.file("notes.txt", "x").file("node_modules/unused/index.js", "").file(".git/config", "");
    assert_eq!(unrelated.build().identity, identity);
    fs::set_permissions(unrelated.root().join("skills/a/SKILL.md"), fs::Permissions::from_mode(0o755))
        .unwrap();
    assert_ne!(unrelated.build().identity, identity);
}

#[test]
fn sources_are_whole_up_to_their_limit_and_the_program_comes_first() {
    let mut package = Package::new().file("zz/index.ts", "export default () => 1;\n").file(
        "workflow.jsonc",
        r#"{ "slug": "s", "entry": "zz/index.ts", "triggers": [{ "kind": "manual" }] }"#,
    );
    for number in 0..250 {
        package = package.file(&format!("a/{number}.ts"), "");
    }
    let artifact = package.build();
    let sources = below(&artifact, ".bw-src/");
    assert_eq!(sources.len(), 200);
    assert!(sources.contains(&"zz/index.ts".to_owned()));
    assert!(artifact.report.warnings.iter().any(|warning| warning.message.contains("251 source files")));
}

fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The identity does not depend on order, and differs when any path, mode or content does.
    #[test]
    fn identity_is_a_function_of_the_set_of_files(
        files in prop::collection::btree_map("[a-z]{1,8}(/[a-z]{1,8}){0,2}", (any::<bool>(), "[ -~]{0,12}"), 1..8),
        seed in any::<prop::sample::Index>(),
        change in 0_usize..3,
    ) {
        let listed: Vec<(String, u32, String)> = files
            .iter()
            .map(|(path, (executable, content))| {
                (path.clone(), if *executable { 0o755 } else { 0o644 }, digest_of(content))
            })
            .collect();
        let of = |listed: &[(String, u32, String)]| {
            identity(listed.iter().map(|(path, mode, digest)| IdentityEntry { path, mode: *mode, digest }))
        };
        let expected = of(&listed);
        let mut rotated = listed.clone();
        rotated.rotate_left(seed.index(listed.len()));
        rotated.reverse();
        prop_assert_eq!(of(&rotated), expected.clone());
        let mut noisy = listed.clone();
        noisy.iter_mut().for_each(|file| file.1 |= 0o022);
        prop_assert_eq!(of(&noisy), expected.clone());
        let mut changed = listed.clone();
        let at = seed.index(changed.len());
        match change {
            0 => changed[at].0.push('x'),
            1 => changed[at].1 ^= 0o111,
            _ => changed[at].2 = digest_of(&changed[at].2),
        }
        prop_assert_ne!(of(&changed), expected.clone());
        changed.remove(at);
        prop_assert_ne!(of(&changed), expected);
    }

    /// Whatever the bytes, reading ends with an answer and writes nothing outside.
    #[test]
    fn random_bytes_never_escape(noise in prop::collection::vec(any::<u8>(), 0..2048), at in any::<prop::sample::Index>()) {
        let mut bytes = Tar::program().file("a/b", b"x").bytes;
        let start = at.index(bytes.len());
        for (index, byte) in noise.iter().enumerate() {
            if let Some(slot) = bytes.get_mut(start + index) {
                *slot = *byte;
            }
        }
        let bytes = Tar { bytes }.gz();
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let inspected = inspect(bytes.as_slice(), &Limits::default());
        let extracted = extract(bytes.as_slice(), &inner, &Limits::default());
        prop_assert!(inspected.is_err() || extracted.is_ok());
        prop_assert_eq!(names(folder.path()), ["inner"]);
    }
}
