//! Each line of what a user can do, with the real binary over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;

use nix::sys::signal::Signal;
use support::{Machine, Running, eventually, finish, processes_with, root};
use trestle_testkit::model_server::{ModelServer, Script};

const HELLO: &str = "export default (input) => ({ hello: input?.name ?? 'world', n: input?.n ?? null });\n";

#[test]
fn a_scaffold_is_checked_and_run_without_a_server() {
    let machine = Machine::new();
    machine.run(&["init", "My Flow"]).ok().says("trestle dev My Flow");
    let directory = machine.cwd().join("My Flow");
    for file in [
        "workflow.jsonc",
        "src/index.ts",
        "package.json",
        "tsconfig.json",
        "README.md",
        ".gitignore",
        ".trestle/types/index.d.ts",
    ] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    assert!(fs::read_to_string(directory.join("workflow.jsonc")).unwrap().contains("\"my-flow\""));
    machine.run(&["init", "My Flow"]).with_code(1).says("already holds");
    let checked = machine.run(&["check", "My Flow"]).ok();
    assert!(checked.out.contains("my-flow is fine"), "{}", checked.out);
    let report = machine.run(&["check", "My Flow", "--json"]).ok().json();
    assert_eq!(report["entry"], "src/index.ts");
    let run =
        machine.run(&["dev", "My Flow", "--input", r#"{"name":"Ada"}"#]).ok().says("● workflow completed");
    assert!(run.json().is_object() || run.json().is_string(), "{}", run.out);
    assert!(run.out.contains("Ada"), "{}", run.out);
    assert!(processes_with(machine.home.path().to_str().unwrap()).is_empty());
    let left: Vec<_> =
        fs::read_dir(machine.home.path().join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for directory in left {
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "left in {}", directory.display());
    }
}

#[test]
fn dev_tells_by_its_exit_code_how_the_run_ended() {
    let machine = Machine::new();
    machine.workflow("ok", HELLO);
    let ok = machine.run(&["dev", "ok", "--input", r#"{"n":12345678901234567890,"name":"\u0000"}"#]).ok();
    assert!(ok.out.contains(r#""hello": "\u0000""#), "{}", ok.out);
    assert!(ok.err.contains("beyond"), "{}", ok.err);
    machine.workflow("bad", "export default () => { throw Object.assign(new Error('nope'), { code: 'NOT_TODAY', hint: 'try tomorrow' }) };\n");
    machine.run(&["dev", "bad"]).with_code(1).says("NOT_TODAY: nope").says("try tomorrow");
    machine.workflow("slow", "export default async () => { console.log('at work'); await new Promise(() => setInterval(() => {}, 1000)); };\n");
    let slow = Running::start(machine.trestle(["dev", "slow"]));
    slow.wait_for("at work");
    slow.signal(Signal::SIGINT);
    let ended = slow.end().with_code(130).says("cancelling").says("● workflow cancelled");
    assert_eq!(ended.out, "");
    assert!(processes_with(machine.home.path().to_str().unwrap()).is_empty());
    machine.run(&["dev", "--nonsense"]).with_code(2);
}

#[test]
fn a_second_interrupt_ends_dev_at_once_and_nothing_stays() {
    let machine = Machine::new();
    machine.workflow(
        "stubborn",
        "process.on('SIGTERM', () => {}); export default () => { console.log('at work'); for (;;); };\n",
    );
    let dev = Running::start(machine.trestle(["dev", "stubborn"]));
    dev.wait_for("at work");
    dev.signal(Signal::SIGINT);
    dev.wait_for("cancelling");
    dev.signal(Signal::SIGINT);
    dev.end().with_code(130);
    let marker = machine.home.path().to_str().unwrap().to_owned();
    eventually("the program is gone", || processes_with(&marker).is_empty());
    // The next start removes what this one could not.
    machine.workflow("ok", HELLO);
    machine.run(&["dev", "ok"]).ok();
    for directory in fs::read_dir(machine.home.path().join("tmp")).unwrap() {
        assert_eq!(fs::read_dir(directory.unwrap().path()).unwrap().count(), 0);
    }
}

#[test]
fn a_workflow_is_deployed_run_watched_and_deleted() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let source = "import { phase } from '@trestle/workflow';\nexport default async (input) => { phase('Greet'); console.log('greeting', input.name); return { hello: input.name }; };\n";
    let directory = machine.workflow("greet", source);
    let directory = directory.to_str().unwrap();
    assert_eq!(up.run(&["deploy", directory]).ok().out, "deployed greet version 1\n");
    assert_eq!(up.run(&["deploy", directory]).ok().out, "unchanged: greet version 1\n");
    fs::write(format!("{directory}/index.mjs"), format!("{source}// changed\n")).unwrap();
    assert_eq!(up.run(&["deploy", directory]).ok().out, "deployed greet version 2\n");

    let input = machine.cwd().join("in.json");
    fs::write(&input, r#"{"name":"Ada"}"#).unwrap();
    let run = up
        .run(&["run", "greet", "--input", "@in.json", "--follow"])
        .ok()
        .says("▸ Greet")
        .says("greeting Ada")
        .says("● workflow completed");
    assert_eq!(run.json()["hello"], "Ada");
    let quiet = up.run(&["run", "greet", "--input", r#"{"name":"Bob"}"#, "--json"]).ok().json();
    assert_eq!(
        (quiet["status"].as_str(), quiet["output"]["hello"].as_str()),
        (Some("completed"), Some("Bob"))
    );
    let lines = up.run(&["run", "greet", "--input", r#"{"name":"Cy"}"#, "--follow", "--json"]).ok().out;
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.windows(2).all(|pair| pair[0]["cursor"].as_u64() < pair[1]["cursor"].as_u64()));
    assert_eq!(events.last().unwrap()["event"]["status"], "completed");

    let id =
        up.run(&["run", "greet", "--input", r#"{"name":"Dee"}"#, "--no-wait"]).ok().out.trim().to_owned();
    let followed = up.run(&["runs", &id, "--follow"]).ok();
    assert!(
        followed.out.contains("● workflow completed") && followed.out.contains("── output ──"),
        "{}",
        followed.out
    );
    let logs = up.run(&["runs", &id, "--logs", "--stream", "log"]).ok();
    assert_eq!(logs.out, "greeting Dee\n");
    up.run(&["runs", &id, "--logs"]).ok().says("1 log events not shown");
    let detail = up.run(&["runs", &id]).ok();
    assert!(
        detail.out.contains("greet version 2") && detail.out.contains("\"hello\": \"Dee\""),
        "{}",
        detail.out
    );
    assert_eq!(up.run(&["runs", &id, "--json"]).ok().json()["run"]["status"], "completed");
    assert_eq!(up.run(&["runs", "--workflow", "greet"]).ok().out.lines().count(), 4);
    up.run(&["cancel", &id]).ok();

    assert!(up.run(&["workflows"]).ok().out.starts_with("greet "));
    assert!(up.run(&["workflows", "show", "greet", "--source"]).ok().out.contains("// changed"));
    assert!(up.run(&["workflows", "delete", "greet"]).ok().out.contains("would delete"));
    up.run(&["workflows", "disable", "greet"]).ok();
    up.run(&["run", "greet"]).with_code(1).says("disabled");
    up.run(&["workflows", "enable", "greet"]).ok();
    up.run(&["workflows", "delete", "greet", "--yes"]).ok();
    up.run(&["run", "greet"]).with_code(1).says("no workflow greet");
    up.stop().ok();
}

#[test]
fn cancel_ends_an_endless_loop_and_follow_says_so() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "1"]);
    up.deploy("endless", "export default () => { console.log('looping'); for (;;); };\n");
    let id = up.run(&["run", "endless", "--no-wait"]).ok().out.trim().to_owned();
    let follow = Running::start({
        let mut command = machine.trestle(["runs", &id, "--follow", "--verbose"]);
        command.env("TRESTLE_DATA", &up.data);
        command
    });
    eventually("the program is at work", || {
        up.run(&["runs", &id, "--logs", "--stream", "log"]).out.contains("looping")
    });
    let cancel = up.run(&["cancel", &id]).ok();
    assert!(cancel.out.contains("being cancelled") || cancel.out.contains("is cancelled"), "{}", cancel.out);
    follow.end().with_code(130);
    up.stop().ok();
    assert!(processes_with(machine.home.path().to_str().unwrap()).is_empty());
}

#[test]
fn secrets_are_set_listed_and_deleted_and_reach_only_who_may_have_them() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    assert_eq!(
        up.run_with_input(&["secrets", "set", "API_KEY"], "canary-value-1\n").ok().out,
        "set API_KEY\n"
    );
    assert_eq!(
        up.run_with_input(&["secrets", "set", "API_KEY"], "canary-value-2\n").ok().out,
        "replaced API_KEY\n"
    );
    assert_eq!(up.run(&["secrets"]).ok().out, "API_KEY\n");
    let source = "import { secrets } from '@trestle/workflow';\nexport default async () => { const v = await secrets.get('API_KEY'); console.log('the key is', v, Buffer.from(v).toString('base64')); return v.length; };\n";
    up.deploy("denied", source);
    up.run(&["run", "denied"]).with_code(1).says("FORBIDDEN").says("permissions.secrets");
    let descriptor =
        r#"{"slug":"allowed","triggers":[{"kind":"manual"}],"permissions":{"secrets":[{"name":"API_KEY"}]}}"#;
    let directory = machine.workflow_with("allowed", descriptor, source);
    up.run(&["deploy", directory.to_str().unwrap()]).ok();
    let run = up.run(&["run", "allowed", "--follow"]).ok().says("the key is [REDACTED] [REDACTED]");
    assert_eq!(run.out, "14\n");
    assert_eq!(up.run(&["secrets", "delete", "API_KEY"]).ok().out, "deleted API_KEY\n");
    up.run(&["secrets", "delete", "API_KEY"]).with_code(1).says("no secret API_KEY");
    up.run(&["run", "allowed"]).with_code(1).says("NOT_FOUND");
    up.stop().ok();
    assert_no_canary(machine.home.path(), "canary-value");
}

/// No file below `directory` holds the canary, as it is or in base64.
fn assert_no_canary(directory: &std::path::Path, canary: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            assert_no_canary(&path, canary);
        } else if let Ok(bytes) = fs::read(&path)
            && path.file_name().is_none_or(|name| name != "stdin")
        {
            assert!(
                !bytes.windows(canary.len()).any(|window| window == canary.as_bytes()),
                "{}",
                path.display()
            );
            assert!(!bytes.windows(12).any(|window| window == b"Y2FuYXJ5LXZh"), "{}", path.display());
        }
    }
}

#[test]
fn a_runner_on_another_machine_registers_works_and_leaves() {
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    up.deploy("greet", HELLO);
    let minted = up.run(&["runner", "token"]).ok();
    let token = minted.out.trim();
    let other = Machine::new();
    let registered = other
        .run(&["runner", "register", "--url", &up.url, "--token", token, "--name", "box", "--labels", "a, b"])
        .ok();
    let runner_id = registered.out.trim();
    other.run(&["runner", "register", "--url", &up.url, "--token", token]).with_code(1).says("once");
    let listed = up.run(&["runners"]).ok().out;
    assert!(listed.contains(runner_id) && listed.contains("box") && listed.contains("[a,b]"), "{listed}");
    other.run(&["runner", "start", "--url", &up.url]).with_code(1).says("--host");
    let id =
        up.run(&["run", "greet", "--input", r#"{"name":"Ada"}"#, "--no-wait"]).ok().out.trim().to_owned();
    other
        .run(&["runner", "start", "--url", &up.url, "--host", "--once", "--prestart", "0"])
        .ok()
        .says("online")
        .says("no isolation");
    assert_eq!(up.run(&["runs", &id, "--json"]).ok().json()["run"]["output"]["hello"], "Ada");
    assert!(other.run(&["runner", "deregister", "--url", &up.url]).ok().out.contains(runner_id));
    other.run(&["runner", "start", "--url", &up.url, "--host"]).with_code(1).says("no runner is registered");
    assert!(!up.run(&["runners"]).ok().out.contains(runner_id));
    up.stop().ok();
}

#[test]
fn the_binary_answers_to_the_original_runners_name() {
    let machine = Machine::new();
    let link = machine.home.path().join("boardwalk-runner");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_trestle"), &link).unwrap();
    let run = |args: &[&str]| finish(&mut machine.program(&link, args));
    run(&[]).ok().says("usage");
    run(&["help"]).ok().says("usage");
    run(&["frobnicate"]).with_code(1).says("usage");
    run(&["register", "--url", "http://127.0.0.1:1"]).with_code(1).says("--token");
    let up = machine.up(&["--no-runner"]);
    up.deploy("greet", HELLO);
    let token = up.run(&["runner", "token", "--pool", "default"]).ok().out.trim().to_owned();
    run(&["register", "--url", &up.url, "--token", &token, "--unknown", "x"]).ok();
    let id = up.run(&["run", "greet", "--no-wait"]).ok().out.trim().to_owned();
    run(&["start", "--url", &up.url, "--host", "--once"]).ok().says("online");
    assert_eq!(up.run(&["runs", &id, "--json"]).ok().json()["run"]["status"], "completed");
    run(&["deregister", "--url", &up.url]).ok();
    up.stop().ok();
}

#[test]
fn a_chain_of_three_calls_finishes_on_one_slot() {
    let machine = Machine::new();
    let up = machine.up(&["--slots", "1", "--prestart", "1"]);
    let call = |next: &str| {
        format!(
            "import {{ workflows }} from '@boardwalk-labs/workflow';\nexport default async (n) => [n, ...(await workflows.call('{next}', n + 1))];\n"
        )
    };
    up.deploy("third", "export default (n) => [n];\n");
    up.deploy("second", &call("third"));
    up.deploy("first", &call("second"));
    let run = up.run(&["run", "first", "--input", "1", "--json"]).ok().json();
    assert_eq!(run["output"], serde_json::json!([1, 2, 3]));
    up.stop().ok();
}

/// Starts the scripted model of an example and gives the environment that leads to it.
fn scripted(example: &str) -> (tokio::runtime::Runtime, ModelServer, Vec<(&'static str, String)>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let text = fs::read_to_string(root().join("examples").join(example).join("model.script.json")).unwrap();
    let model = runtime.block_on(ModelServer::start(Script::parse(&text).unwrap())).unwrap();
    let environment = vec![
        ("TRESTLE_MODEL", "scripted".to_owned()),
        ("TRESTLE_MODEL_URL", model.openai_url()),
        ("TRESTLE_MODEL_KEY", "key-canary-1234".to_owned()),
    ];
    (runtime, model, environment)
}

#[test]
fn every_example_runs_to_its_end() {
    let machine = Machine::new();
    let example = |name: &str| root().join("examples").join(name).display().to_string();
    let hello = machine.run(&["dev", &example("hello"), "--input", r#"{"name":"Ada"}"#]).ok();
    assert!(hello.out.contains("Ada"), "{}", hello.out);

    let (_runtime, model, environment) = scripted("digest");
    let digest = finish(machine.trestle(["dev", &example("digest")]).envs(environment))
        .ok()
        .says("agent editor turn started");
    assert!(digest.json()["items"].as_array().is_some_and(|items| !items.is_empty()), "{}", digest.out);
    assert_eq!(model.requests().len(), 1);

    let (_runtime, _model, environment) = scripted("pipeline/parent");
    let mut command = machine.trestle([
        "dev",
        &example("pipeline/parent"),
        "--with",
        &example("pipeline/child"),
        "--slots",
        "1",
    ]);
    let pipeline = finish(command.envs(environment)).ok();
    // One of the reviews that ship is empty on purpose: its child fails and the others go on.
    assert_eq!(
        (pipeline.json()["rated"].as_u64(), &pipeline.json()["failed"]),
        (Some(3), &serde_json::json!(["r4"])),
        "{}",
        pipeline.err
    );

    let (_runtime, _model, environment) = scripted("triage");
    let key = machine.cwd().join("key");
    fs::write(&key, "triage-canary-key\n").unwrap();
    let triage =
        finish(machine.trestle(["dev", &example("triage"), "--secret", "TRIAGE_KEY=@key"]).envs(environment))
            .ok();
    let artifact = triage
        .err
        .lines()
        .find_map(|line| line.strip_prefix("artifact: ./"))
        .unwrap_or_else(|| panic!("{}", triage.err))
        .to_owned();
    assert!(fs::read_to_string(machine.cwd().join(artifact)).unwrap().contains("\"priority\""));
    assert!(!triage.err.contains("triage-canary-key"));
}

#[test]
fn completions_of_a_stopped_server_go_on_at_the_next_start() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let flag = machine.home.path().join("flag");
    let source = format!(
        "import {{ existsSync }} from 'node:fs';\nexport default async (_, context) => {{ console.log('attempt', context.attempt); if (!existsSync({flag:?})) await new Promise(() => setInterval(() => {{}}, 1000)); return context.attempt; }};\n"
    );
    up.deploy("resumed", &source);
    let id = up.run(&["run", "resumed", "--no-wait"]).ok().out.trim().to_owned();
    eventually("the program is at work", || {
        up.run(&["runs", &id, "--logs", "--stream", "log"]).out.contains("attempt 1")
    });
    up.stop().ok().says("given back");
    assert!(processes_with(machine.home.path().to_str().unwrap()).is_empty());
    fs::write(&flag, "").unwrap();
    let up = machine.up(&["--prestart", "0"]);
    up.run(&["runs", &id, "--follow"]).ok();
    let detail = up.run(&["runs", &id, "--json"]).ok().json();
    assert_eq!(detail["run"]["status"], "completed", "{detail}");
    up.stop().ok();
}
