//! Each bad input gets a clear, coded error with a hint.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use support::{Finished, Machine, Running, finish};

/// Asserts that a failure names its reference and says what to do.
#[track_caller]
fn coded(finished: Finished, reference: &str) -> Finished {
    assert!(finished.err.contains(&format!("error[{reference}]")), "no {reference} in:\n{}", finished.err);
    finished.says("hint: ")
}

#[test]
fn an_invalid_descriptor_is_refused_with_its_line_and_field() {
    // The whole table is tested where descriptors are read; here it is how a person sees it.
    let machine = Machine::new();
    for (name, text, place, field) in [
        ("comma", "{\n  \"slug\": \"x\"\n  \"triggers\": []\n}", "workflow.jsonc:3:3", ""),
        (
            "slug",
            "{\n  \"slug\": \"Not A Slug\",\n  \"triggers\": [{\"kind\":\"manual\"}]\n}",
            "workflow.jsonc:2:",
            "slug",
        ),
        (
            "unknown",
            "{\n  \"slug\": \"x\",\n  \"triggers\": [{\"kind\":\"manual\"}],\n  \"bugdet\": {}\n}",
            "workflow.jsonc:4:",
            "bugdet",
        ),
        (
            "cron",
            "{\n  \"slug\": \"x\",\n  \"triggers\": [{\"kind\":\"cron\",\"expr\":\"nope\"}]\n}",
            "workflow.jsonc:3:",
            "triggers",
        ),
        ("none", "{\n  \"slug\": \"x\"\n}", "workflow.jsonc", "triggers"),
    ] {
        let directory = machine.workflow_with(name, text, "export default () => null;\n");
        for command in ["check", "dev"] {
            machine
                .run(&[command, directory.to_str().unwrap()])
                .with_code(1)
                .says("error[TR0001]")
                .says(place)
                .says(field);
        }
    }
    machine.run(&["check", "nowhere"]).with_code(1).says("error[");
}

#[test]
fn programs_that_cannot_be_built_are_refused_by_check_and_dev_alike() {
    let machine = Machine::new();
    let descriptor =
        |slug: &str, more: &str| format!(r#"{{"slug":"{slug}","triggers":[{{"kind":"manual"}}]{more}}}"#);
    let missing = machine.workflow_with(
        "missing",
        &descriptor("missing", r#","entry":"src/nope.ts""#),
        "export default () => 1;\n",
    );
    let syntax = machine.workflow("syntax", "export default () => {\n  const x = ;\n};\n");
    let unresolved =
        machine.workflow("unresolved", "import x from 'not-installed';\nexport default () => x;\n");
    let named = machine.workflow("named", "export const run = () => 1;\n");
    for (directory, what) in [
        (&named, "no default export"),
        (&missing, "src/nope.ts"),
        (&syntax, "index.mjs:2:13"),
        (&unresolved, "index.mjs:1:"),
    ] {
        for command in ["check", "dev"] {
            machine.run(&[command, directory.to_str().unwrap()]).with_code(1).says(what);
        }
    }
    machine.run(&["check", unresolved.to_str().unwrap()]).with_code(1).says("npm install");
}

#[test]
fn each_way_a_program_can_go_wrong_is_told_apart() {
    let machine = Machine::new();
    for (name, source, says) in [
        (
            "top-level",
            "throw new TypeError('at import');\nexport default () => 1;\n",
            vec!["PROGRAM_ERROR: at import"],
        ),
        ("no-default", "const run = [() => 1];\nexport default run;\n", vec!["default"]),
        (
            "rejection",
            "export default () => { Promise.reject(new Error('lost')); return new Promise((r) => setTimeout(r, 5000)); };\n",
            vec!["PROGRAM_ERROR: lost"],
        ),
        ("exit", "export default () => process.exit(3);\n", vec!["PROGRAM_ERROR", "process.exit(3)"]),
        ("never", "export default () => new Promise(() => {});\n", vec!["PROGRAM_ERROR"]),
        (
            "class",
            "class Odd extends Error {}\nexport default () => { throw new Odd('plain'); };\n",
            vec!["PROGRAM_ERROR: plain"],
        ),
        ("nothing", "export default () => { throw undefined; };\n", vec!["PROGRAM_ERROR"]),
        (
            "stack",
            "\n\nfunction deep() { throw new Error('here'); }\nexport default () => deep();\n",
            vec!["index.mjs:3"],
        ),
    ] {
        machine.workflow(name, source);
        let mut finished = machine.run(&["dev", name]).with_code(1).says("● workflow failed");
        for what in says {
            finished = finished.says(what);
        }
    }
}

#[test]
fn a_program_that_is_killed_is_tried_again_and_then_called_crashed() {
    let machine = Machine::new();
    machine.workflow("killed", "export default (_, c) => { console.log('attempt', c.attempt); process.kill(process.pid, 'SIGKILL'); };\n");
    machine.run(&["dev", "killed"]).with_code(1).says("attempt 1").says("attempt 3").says("CRASHED");
}

#[test]
fn inputs_that_are_no_json_are_refused_before_anything_starts() {
    let machine = Machine::new();
    machine.workflow("hello", "export default (x) => x;\n");
    fs::write(machine.cwd().join("nul.json"), "{\"a\":\"\0\"}").unwrap();
    fs::write(machine.cwd().join("deep.json"), format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)))
        .unwrap();
    fs::write(machine.cwd().join("big.json"), format!("\"{}\"", "x".repeat(4 * 1024 * 1024))).unwrap();
    for input in ["{", "nope", "@nul.json", "@deep.json", "@big.json", "@absent.json"] {
        let refused = machine.run(&["dev", "hello", "--input", input]).with_code(2);
        assert!(refused.err.contains("error[TR0001]"), "{input}: {}", refused.err);
    }
    let kept = r#"{"n":18446744073709551616,"z":"\u0000","e":1e400}"#;
    let run = machine.run(&["dev", "hello", "--input", r#"{"s":"\u0000","n":1}"#]).ok();
    assert_eq!(run.json()["s"], "\0");
    // What the program does not touch travels byte for byte.
    let up = machine.up(&["--no-runner"]);
    up.deploy("hello", "export default (x) => x;\n");
    let id = up.run(&["run", "hello", "--input", kept, "--no-wait"]).ok().out.trim().to_owned();
    let detail = up.run(&["runs", &id, "--json"]).ok().out;
    assert!(
        detail.contains("18446744073709551616") && detail.contains("\\u0000") && detail.contains("1e400"),
        "{detail}"
    );
}

#[test]
fn a_taken_port_and_a_bad_data_directory_stop_the_server_with_a_hint() {
    let machine = Machine::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    coded(machine.run(&["up", "--listen", &address]).with_code(1), "TR0016").says("--listen");

    let up = machine.up(&["--no-runner"]);
    let data = up.data.to_str().unwrap().to_owned();
    coded(machine.run(&["up", "--data", &data, "--listen", "127.0.0.1:0"]).with_code(1), "TR0017")
        .says("in use");
    up.stop().ok();

    let file = machine.home.path().join("file");
    fs::write(&file, "").unwrap();
    coded(
        machine.run(&["up", "--data", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]).with_code(1),
        "TR0017",
    );
}

#[test]
fn a_data_directory_that_may_not_be_written_is_named() {
    let machine = Machine::new();
    // Root passes every permission check: the server is started as somebody else.
    let home = machine.home.path();
    let binary = home.join("trestle");
    fs::copy(env!("CARGO_BIN_EXE_trestle"), &binary).unwrap();
    for path in [home.to_owned(), home.join("tmp"), home.join("cwd"), home.join("home")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let locked = home.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    let data = locked.join("data");
    let flags =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    let mut command =
        machine.program("setpriv".as_ref(), if nix::unistd::getuid().is_root() { &flags[..] } else { &[] });
    command.arg(&binary).args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    coded(finish(&mut command).with_code(1), "TR0017").says("locked/data");
}

#[test]
fn a_missing_or_old_node_is_named_with_what_to_install() {
    let machine = Machine::new();
    machine.workflow("hello", "export default () => 1;\n");
    let mut without = machine.trestle(["dev", "hello"]);
    coded(finish(without.env("PATH", "/nonexistent")).with_code(1), "TR0210").says("Node");
    let old = machine.home.path().join("node");
    fs::write(&old, "#!/bin/sh\necho v18.20.4\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    coded(machine.run(&["dev", "hello", "--node", old.to_str().unwrap()]).with_code(1), "TR0210")
        .says("18.20.4");
}

#[test]
fn a_token_that_is_missing_wrong_or_of_another_kind_is_refused() {
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    let registration = up.run(&["runner", "token"]).ok().out.trim().to_owned();
    let elsewhere = Machine::new();
    coded(elsewhere.run(&["runs", "--url", &up.url]).with_code(1), "TR0002").says("TRESTLE_TOKEN");
    for token in ["nonsense", "bwk_nonsense", registration.as_str()] {
        coded(elsewhere.run(&["runs", "--url", &up.url, "--token", token]).with_code(1), "TR0002");
    }
    coded(elsewhere.run(&["runs"]).with_code(1), "TR0004").says("trestle up");
    coded(elsewhere.run(&["runs", "--url", "http://127.0.0.1:9", "--token", "x"]).with_code(1), "TR0015")
        .says("could not reach");
    elsewhere.run(&["runs", "--url", "nonsense", "--token", "x"]).with_code(2);
}

#[test]
fn unknown_names_are_not_found_and_the_nearest_one_is_offered() {
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    up.deploy("nightly", "export default () => 1;\n");
    coded(up.run(&["run", "nighty"]).with_code(1), "TR0004").says("did you mean nightly?");
    up.run(&["runs", "01AAAAAAAAAAAAAAAAAAAAAAAA"]).with_code(1).says("error[TR0004]");
    up.run(&["runs", "01AAAAAAAAAAAAAAAAAAAAAAAA", "--follow"]).with_code(1).says("error[TR0004]");
    up.run(&["cancel", "01AAAAAAAAAAAAAAAAAAAAAAAA"]).with_code(1).says("error[TR0004]");
    coded(up.run(&["secrets", "delete", "NOPE"]).with_code(1), "TR0004");
    coded(up.run(&["runs", "x", "--logs", "--stream", "nope"]).with_code(2), "TR0001")
        .says("lifecycle, phase");
    coded(up.run(&["run", "./nightly"]).with_code(2), "TR0001").says("trestle dev");
}

const ASKS: &str = "import { agent } from '@trestle/workflow';\nexport default () => agent('hello');\n";

#[test]
fn a_model_that_is_not_set_or_not_reachable_is_explained() {
    let machine = Machine::new();
    machine.workflow("asks", ASKS);
    machine.run(&["dev", "asks"]).with_code(1).says("MODEL_UNRESOLVED").says("TRESTLE_MODEL");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = machine.trestle(["dev", "asks", "--model", "m", "--model-url"]);
    finish(command.arg(format!("http://{nobody}/v1")))
        .with_code(1)
        .says("PROVIDER_ERROR")
        .says(&nobody.to_string());
}

#[test]
fn fields_without_an_engine_are_refused_unless_allowed_and_then_every_run_says_so() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    for (name, field, path) in [
        ("egress", r#""egress":{"level":"none"}"#, "egress"),
        ("serial", r#""concurrency":{"mode":"serial","key":"k"}"#, "concurrency"),
        ("called", r#""callable_by":"users_only""#, "callable_by"),
        ("keyed", r#""workspace":{"persist":true,"key":"k"}"#, "workspace.key"),
    ] {
        let descriptor = format!(r#"{{"slug":"{name}","triggers":[{{"kind":"manual"}}],{field}}}"#);
        let directory = machine.workflow_with(name, &descriptor, "export default () => 'ran';\n");
        let directory = directory.to_str().unwrap();
        up.run(&["deploy", directory]).with_code(1).says(path);
        up.run(&["deploy", directory, "--allow-unsupported"]).ok().says("warning:").says(path);
        up.run(&["run", name, "--follow"]).ok().says(path);
    }
    up.stop().ok();
}

#[test]
fn a_gone_reader_does_not_hold_a_command() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    up.deploy(
        "chatty",
        "export default async () => { for (let i = 0; i < 20000; i += 1) console.log('line', i); };\n",
    );
    let id = up.run(&["run", "chatty", "--no-wait"]).ok().out.trim().to_owned();
    let mut command = machine.trestle(["runs", &id, "--follow", "--verbose"]);
    command.env("TRESTLE_DATA", &up.data);
    let mut follow = Running::start(command);
    drop(follow.child.stdout.take());
    let status = follow.child.wait().unwrap();
    assert!(!status.success());
    up.stop().ok();
}
