//! A model provider of one's own, from the command that adds it to the program that names it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::Path;

use serde_json::Value;
use support::Machine;
use trestle_testkit::model_server::{ModelServer, Script, ScriptTurn, ScriptUsage};

const CANARY: &str = "sk-canary-2b61c0ffee99d4a7";

fn holds(directory: &Path, needle: &str) -> Option<std::path::PathBuf> {
    std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() {
            return holds(&path, needle);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes()).then_some(path)
    })
}

#[test]
fn a_program_names_a_provider_of_its_own_and_nobody_sees_its_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let usage = ScriptUsage { input: 100, output: 20, ..ScriptUsage::default() };
    let turn = |text: &str| ScriptTurn { usage: Some(usage), ..ScriptTurn::text(text) };
    let script = Script::of(vec![turn("from the runner"), turn("through the server")]);
    let model = runtime.block_on(ModelServer::start(script)).unwrap();
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let url = model.openai_url();
    let add = |name: &str, source: &str| {
        let args = ["inference", "add", name, "--source", source, "--base-url", &url, "--api-key", "-"];
        up.run_with_input(&args, &format!("{CANARY}\n")).ok().out
    };
    // Of a source that run processes speak, and of one that only the server does.
    assert!(add("mine", "openai_compatible").contains("from the runner"));
    assert!(add("theirs", "google").contains("through the server"));
    assert!(up.run(&["inference", "list"]).ok().out.contains("mine"));
    let source = "import { agent, secrets } from '@trestle/workflow';
        export default async () => {
          const answers = [];
          for (const provider of ['mine', 'theirs']) answers.push(await agent('ask', { provider, model: 'gpt-4o' }));
          const guesses = [];
          for (const name of ['mine', 'inference-key/mine', 'inference-key/mine/0']) {
            guesses.push(await secrets.get(name).then(() => 'got it', (error) => error.code));
          }
          return { answers, guesses };
        };\n";
    up.deploy("asks", source);
    let ran = up.run(&["run", "asks", "--json"]).ok();
    let output = ran.json()["output"].clone();
    assert_eq!(
        output["answers"],
        serde_json::json!(["from the runner", "through the server"]),
        "{}",
        ran.out
    );
    assert_eq!(output["guesses"], serde_json::json!(["FORBIDDEN", "FORBIDDEN", "FORBIDDEN"]));
    for request in model.requests() {
        assert_eq!(request.headers["authorization"], format!("Bearer {CANARY}"));
        assert_eq!(request.body["model"], "gpt-4o");
    }
    // Each turn counts once, whoever made it.
    let listed: Value = up.run(&["runs", "--json"]).ok().json();
    let run = listed["runs"][0]["id"].as_str().unwrap().to_owned();
    let detail = up.run(&["runs", &run, "--json"]).ok().json();
    assert_eq!(
        (&detail["run"]["tokensIn"], &detail["run"]["tokensOut"]),
        (&200.into(), &40.into()),
        "{detail}"
    );
    assert!(detail["run"]["costUsd"].as_f64().unwrap() > 0.0);
    let log = up.run(&["runs", &run, "--logs", "--verbose"]).ok();
    assert!(!log.out.contains(CANARY) && !log.err.contains(CANARY));
    assert!(up.run(&["inference", "delete", "mine"]).ok().out.contains("deleted"));
    let data = up.data.clone();
    up.stop().ok();
    assert_eq!(holds(&data, CANARY), None);
}
