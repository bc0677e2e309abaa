//! The scripted model is believed because the vendors' own clients believe it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The program, killed when the test ends.
struct Model(Child);

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the program under test is a child of this test and ends with it"
)]
fn start(script: &Path, ready_file: &Path) -> (Model, String) {
    let mut model = Command::new(env!("CARGO_BIN_EXE_trestle-model"))
        .arg("--script")
        .arg(script)
        .arg("--ready-file")
        .arg(ready_file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(model.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening ").expect("the first line names the address").to_owned();
    (Model(model), url)
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

#[test]
fn the_vendors_own_clients_understand_the_scripted_model() {
    let clients = clients();
    assert!(
        clients.join("node_modules/openai").is_dir(),
        "the vendors' clients are not installed: run scripts/test, or npm ci --prefix {}",
        clients.display()
    );
    let ready = tempfile::tempdir().unwrap();
    let (_model, url) = start(&clients.join("script.json"), &ready.path().join("ready"));
    let node = std::env::var("TRESTLE_TEST_NODE24").unwrap_or_else(|_| "node".to_owned());
    let run = Command::new(node).arg(clients.join("clients.mjs")).arg(&url).output().unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}{}", String::from_utf8(run.stderr).unwrap());
    assert!(said.contains("all 14 checks passed"), "{said}");
}

#[test]
fn the_program_tells_its_address_on_stdout_and_in_the_ready_file() {
    let ready = tempfile::tempdir().unwrap();
    let file = ready.path().join("ready");
    let (_model, url) = start(&clients().join("script.json"), &file);
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    // The file may follow the line.
    let told = std::iter::repeat_with(|| std::fs::read_to_string(&file)).find_map(Result::ok).unwrap();
    assert_eq!(told, url);
}

#[test]
fn a_script_with_a_fault_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("wrong.json");
    std::fs::write(&script, "{\n \"turns\": [{\"txt\": \"typo\"}]}").unwrap();
    let run =
        Command::new(env!("CARGO_BIN_EXE_trestle-model")).arg("--script").arg(&script).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        said.contains("wrong.json") && said.contains("unknown field `txt`") && said.contains("line 2"),
        "{said}"
    );
}
