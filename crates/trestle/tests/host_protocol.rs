//! What a program and its host say to each other, from a workflow's sources to the stored run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::calls::Calls;
use support::{Machine, Up, eventually};

const MANUAL: &str = r#""triggers":[{"kind":"manual"}]"#;

/// Writes and deploys a workflow of one TypeScript module.
fn deploy(up: &Up<'_>, name: &str, more: &str, source: &str) {
    let directory = up.machine.cwd().join(name);
    fs::create_dir_all(directory.join("src")).unwrap();
    fs::write(directory.join("workflow.jsonc"), format!(r#"{{"slug":"{name}",{MANUAL}{more}}}"#)).unwrap();
    fs::write(directory.join("src/index.ts"), source).unwrap();
    up.run(&["deploy", directory.to_str().unwrap()]).ok();
}

/// Runs a workflow to its end, whatever that is.
fn run(up: &Up<'_>, name: &str, input: &str) -> Value {
    let mut args = vec!["run", name, "--json"];
    if !input.is_empty() {
        args.extend(["--input", input]);
    }
    up.run(&args).json()
}

fn output(up: &Up<'_>, name: &str, input: &str) -> Value {
    let ended = run(up, name, input);
    assert_eq!(ended["status"], "completed", "{ended}");
    ended["output"].clone()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn types_of_run_restore_the_input_check_the_output_and_refuse_what_does_not_fit() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    fs::create_dir_all(machine.cwd().join("typed/src")).unwrap();
    fs::write(
        machine.cwd().join("typed/src/types.ts"),
        "export interface Tree { at: Date; below: Tree[] }\nexport enum Mode { Fast = 'fast', Slow = 'slow' }\n",
    )
    .unwrap();
    deploy(
        &up,
        "typed",
        "",
        "
import type { Tree } from './types.js';
import { Mode } from './types.js';
interface Input {
  when: Date; count: bigint; data: Uint8Array; tags: Set<bigint>; tree: Tree; mode: Mode;
  pair: [Date, string]; by: Record<string, Date>; maybe?: Date | null; text: string;
}
interface Output { kinds: string[]; when: Date; count: bigint; data: Uint8Array; tags: Set<bigint>; tree: Tree; n: number }
const kind = (value: unknown) => Object.prototype.toString.call(value).slice(8, -1);
export default async function run(input: Input): Promise<Output> {
  const { when, count, data, tags, tree } = input;
  const kinds = [when, count, data, tags, [...tags][0], tree.at, tree.below[0]!.at, input.pair[0], input.pair[1], input.by.a, input.maybe, input.text, input.mode].map(kind);
  const n = input.text === 'wrong' ? ('three' as never) : 3;
  return { kinds, when, count, data, tags, tree, n };
}
",
    );
    let input = r#"{"when":"2020-01-02T03:04:05.678Z","count":"12345678901234567890","data":"AQID","tags":["1","2"],
        "tree":{"at":"2021-01-01T00:00:00.000Z","below":[{"at":"2022-01-01T00:00:00.000Z","below":[]}]},"mode":"fast",
        "pair":["2023-01-01T00:00:00.000Z","x"],"by":{"a":"2024-01-01T00:00:00.000Z"},"maybe":null,"text":"2020-01-01","more":true}"#;
    let given: Value = serde_json::from_str(input).unwrap();
    let got = output(&up, "typed", input);
    assert_eq!(
        got["kinds"],
        json!([
            "Date",
            "BigInt",
            "Uint8Array",
            "Set",
            "BigInt",
            "Date",
            "Date",
            "Date",
            "String",
            "Date",
            "Null",
            "String",
            "String"
        ])
    );
    for name in ["when", "count", "data", "tags", "tree"] {
        assert_eq!(got[name], given[name], "{name} goes back as it came");
    }
    // The stored manifest says so, and so does a check.
    let manifest = up.run(&["workflows", "show", "typed", "--json"]).ok().json()["manifest"].clone();
    assert_eq!(
        manifest["input_schema"]["properties"]["mode"],
        json!({ "type": "string", "enum": ["fast", "slow"] })
    );
    assert_eq!(manifest["input_schema"]["properties"]["tree"], json!({ "$ref": "#/$defs/Tree" }));
    assert_eq!(
        manifest["output_schema"]["properties"]["count"],
        json!({ "type": "string", "pattern": "^-?\\d+$" })
    );
    let checked = machine.run(&["check", "typed"]).ok().out;
    assert!(
        checked.contains("  input: {") && checked.contains("  output: {") && checked.contains("date-time"),
        "{checked}"
    );
    let report = machine.run(&["check", "typed", "--json"]).ok().json();
    assert_eq!(report["schemas"]["input"], manifest["input_schema"]);

    // An input of another type is refused before anything starts.
    up.run(&["run", "typed", "--input", &input.replace("\"fast\"", "\"faster\"")])
        .with_code(1)
        .says("/mode")
        .says("TR0001");
    // A return value of another type fails the run and names the place.
    let failed = run(&up, "typed", &input.replace("2020-01-01\"", "wrong\""));
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["code"], "VALIDATION_FAILED", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("/n "), "{failed}");
    assert!(failed["error"]["hint"].as_str().unwrap().contains("declared type"), "{failed}");
    up.stop().ok();
}

#[test]
fn a_run_without_input_gets_null_or_an_empty_object_as_its_type_wants_it() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let shown = "return JSON.stringify(input); }\n";
    deploy(&up, "object", "", &format!("export default function run(input: {{ a?: string }}) {{ {shown}"));
    deploy(&up, "nullable", "", &format!("export default function run(input?: {{ a?: string }}) {{ {shown}"));
    deploy(&up, "required", "", &format!("export default function run(input: {{ a: string }}) {{ {shown}"));
    deploy(&up, "untyped", "", &format!("export default function run(input: any) {{ {shown}"));
    assert_eq!(output(&up, "object", ""), "{}");
    assert_eq!(output(&up, "object", r#"{"a":"x"}"#), r#"{"a":"x"}"#);
    assert_eq!(output(&up, "nullable", ""), "null");
    assert_eq!(output(&up, "untyped", ""), "null");
    assert_eq!(output(&up, "untyped", "[1,[2]]"), "[1,[2]]");
    up.run(&["run", "required"]).with_code(1).says("does not fit");
    // A parent that calls with what does not fit hears why.
    deploy(
        &up,
        "caller",
        "",
        "import { workflows } from '@trestle/workflow';\nexport default () => workflows.call('required', { a: 1 }).catch((error: any) => [error.code, error.message]);\n",
    );
    let refused = output(&up, "caller", "");
    assert_eq!(refused[0], "VALIDATION_FAILED");
    assert!(refused[1].as_str().unwrap().contains("/a"), "{refused}");
    up.stop().ok();
}

#[test]
fn called_workflows_are_told_apart_by_key_or_by_input_and_order_and_are_found_again_after_a_crash() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0", "--slots", "2"]);
    let ledger = machine.cwd().join("ledger");
    deploy(
        &up,
        "child",
        "",
        &format!(
            "
import {{ appendFileSync }} from 'node:fs';
interface Input {{ name: string; at?: Date }}
export default async function run(input: Input, context: {{ runId: string }}): Promise<{{ id: string; at: Date }}> {{
  appendFileSync({ledger:?}, `${{input.name}}\\n`);
  return {{ id: context.runId, at: input.at ?? new Date(0) }};
}}
"
        ),
    );
    deploy(
        &up,
        "parent",
        "",
        "
import { workflows } from '@trestle/workflow';
import { existsSync, writeFileSync } from 'node:fs';
interface Child { id: string; at: Date }
export default async function run(input: any, context: { attempt: number }) {
  const call = (name: string, options?: any, more?: any) => workflows.call<Child>('child', { name, ...more }, options);
  // Equal in what they say, whatever the order of their keys: two children all the same.
  const [one, two] = await Promise.all([workflows.call<Child>('child', { name: 'same', at: new Date(5) }), workflows.call<Child>('child', { at: new Date(5), name: 'same' })]);
  const mine = await call('first', { idempotencyKey: 'mine' });
  const again = await call('first', { idempotencyKey: 'mine' });
  const reused = await call('second', { idempotencyKey: 'mine' }).then(() => 'done', (error) => error.code);
  const other = await call('third', { idempotencyKey: 'other' });
  const started = await workflows.run('child', { name: 'alone' });
  if (context.attempt === 1) process.kill(process.pid, 'SIGKILL');
  return {
    ids: [one.id, two.id, mine.id, again.id, other.id, started],
    dates: [one.at instanceof Date, mine.at instanceof Date, one.at.getTime()],
    attempt: context.attempt,
    reused,
  };
}
",
    );
    let got = output(&up, "parent", "");
    assert_eq!(got["attempt"], 2, "{got}");
    let ids: Vec<&str> = got["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_ne!(ids[0], ids[1], "equal calls are numbered");
    assert_eq!(ids[2], ids[3], "one key is one child");
    assert_eq!(got["reused"], "IDEMPOTENCY_KEY_REUSED", "a key does not stand for two inputs");
    assert_ne!(ids[2], ids[4]);
    assert_eq!(got["dates"], json!([true, true, 5]), "outputs are restored by the callee's own schema");
    eventually("the child that nobody waits for has worked", || lines(&ledger).contains(&"alone".to_owned()));
    let mut worked = lines(&ledger);
    worked.sort_unstable();
    assert_eq!(worked, ["alone", "first", "same", "same", "third"], "the second attempt started none anew");
    up.stop().ok();
}

/// A program that does one thing and tells the code, the message and the hint of what it threw.
const PROBE: &str = "
import { agent, artifacts, auth, humanInput, secrets, shell, sleep, workflows, computer, parallel } from '@trestle/workflow';
const told = async (what: () => unknown) => {
  try { return { value: await what() }; } catch (error: any) {
    return { code: error.code, message: error.message, hint: error.hint ?? error.data?.hint, name: error.name, detail: error.data?.detail };
  }
};
";

#[test]
fn each_failure_has_one_code_a_message_and_what_to_do() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    deploy(
        &up,
        "fails",
        "",
        "export default () => { throw Object.assign(new Error('no luck'), { code: 'OUT_OF_LUCK' }); };\n",
    );
    deploy(&up, "off", "", "export default () => 1;\n");
    up.run(&["workflows", "disable", "off"]).ok();
    deploy(
        &up,
        "probe",
        r#","permissions":{"secrets":[{"name":"MISSING"}]}"#,
        &format!(
            "{PROBE}
import {{ connect }} from 'node:net';
const raw = (line: string) => new Promise<any>((done, fail) => {{
  const socket = connect(process.env.BOARDWALK_HOST_SOCK!);
  let text = '';
  socket.on('data', (chunk) => {{ text += chunk; if (text.includes('\\n')) {{ socket.destroy(); done(JSON.parse(text)); }} }});
  socket.on('error', fail);
  socket.write(line + '\\n');
}});
export default async () => ({{
  undeclared: await told(() => secrets.get('UNDECLARED')),
  missing: await told(() => secrets.get('MISSING')),
  unknown: await told(() => workflows.call('nobody', null)),
  disabled: await told(() => workflows.call('off', null)),
  failed: await told(() => workflows.call('fails', null)),
  tooLong: await told(() => sleep('8d')),
  noTime: await told(() => sleep({{ until: 'tomorrow' }})),
  human: await told(() => humanInput({{ prompt: 'a', input: {{ kind: 'text' }} }})),
  idToken: await told(() => auth.idToken('someone')),
  browser: await told(() => computer.openBrowser()),
  schedule: await told(() => workflows.schedule('fails', null, {{ cron: '0 * * * *' }})),
  noModel: await told(() => agent('hi')),
  badOption: await told(() => agent('hi', {{ builtins: ['no_such_tool'] }} as any)),
  stdio: await told(() => agent('hi', {{ mcp: [{{ name: 'a', transport: 'stdio', command: 'b' }}] }})),
  tooMuch: await told(() => shell('yes', {{ maxBuffer: 10 }})),
  nowhere: await told(() => shell('true', {{ cwd: 'not/there' }})),
  badName: await told(() => artifacts.write('x'.repeat(300), 'text/plain', '')),
  method: (await raw('{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no.such\",\"params\":{{}}}}')).error,
  params: (await raw('{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"agent\",\"params\":{{\"prompt\":\"x\",\"opts\":{{\"tools\":[{{}}]}}}}}}')).error,
  frame: (await raw('[]')).error,
}});
"
        ),
    );
    let got = output(&up, "probe", "");
    for (what, code, says, hint) in [
        ("undeclared", "FORBIDDEN", "UNDECLARED", "permissions.secrets"),
        ("missing", "NOT_FOUND", "MISSING", "trestle secrets set"),
        ("unknown", "NOT_FOUND", "nobody", ""),
        ("disabled", "WORKFLOW_DISABLED", "disabled", ""),
        ("failed", "CHILD_FAILED", "OUT_OF_LUCK: no luck", ""),
        ("tooLong", "VALIDATION_FAILED", "7 days", "schedule"),
        ("noTime", "VALIDATION_FAILED", "tomorrow", "ISO 8601"),
        ("human", "UNSUPPORTED", "humanInput", "input"),
        ("idToken", "UNSUPPORTED", "auth.idToken", "secret"),
        ("browser", "UNSUPPORTED", "computer.openBrowser", "browser"),
        ("schedule", "UNSUPPORTED", "workflows.schedule", "cron"),
        ("noModel", "MODEL_UNRESOLVED", "model", "TRESTLE_MODEL"),
        ("badOption", "UNSUPPORTED", "no_such_tool", ""),
        ("stdio", "UNSUPPORTED", "MCP", "mcp"),
        ("tooMuch", "TOOL_ERROR", "10 bytes", "maxBuffer"),
        ("nowhere", "ENOENT", "not/there", ""),
        ("badName", "VALIDATION_FAILED", "name", "shorter"),
    ] {
        let error = &got[what];
        assert_eq!(error["code"], code, "{what}: {error}");
        assert_eq!(error["name"], "HostError", "{what}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{what}: {error}");
        if !hint.is_empty() {
            assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{what}: {error}");
        }
    }
    assert_eq!(got["failed"]["detail"]["status"], "failed");
    assert!(got["failed"]["detail"]["childRunId"].is_string());
    assert_eq!(got["method"]["code"], "METHOD_NOT_FOUND");
    assert_eq!(got["frame"]["code"], "PROTOCOL_ERROR");
    assert_eq!(got["params"]["code"], "INVALID_PARAMS");
    assert!(got["params"]["message"].as_str().unwrap().contains("opts.tools[0]: `name` is missing"), "{got}");
    assert!(got["params"]["data"]["hint"].as_str().unwrap().contains("builtins"), "{got}");
    up.stop().ok();
}

#[test]
fn only_a_budget_and_a_cancel_of_its_own_end_a_run_that_catches_everything() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0", "--slots", "2"]);
    let begun = machine.cwd().join("begun");
    deploy(
        &up,
        "waits",
        "",
        &format!(
            "import {{ sleep }} from '@trestle/workflow';\nimport {{ writeFileSync }} from 'node:fs';\nexport default async (input: any, context: any) => {{ writeFileSync({begun:?}, context.runId); await sleep('1h'); }};\n"
        ),
    );
    deploy(
        &up,
        "goes-on",
        "",
        &format!(
            "{PROBE}export default async () => {{ const list = await parallel([async () => 'one', () => workflows.call('waits', null)]); const direct = await told(() => workflows.call('waits', null, {{ idempotencyKey: 'second' }})); return {{ list, direct }}; }};\n"
        ),
    );
    let id = up.run(&["run", "goes-on", "--no-wait"]).ok().out.trim().to_owned();
    for _ in 0..2 {
        eventually("the child is at work", || !lines(&begun).is_empty());
        let child = lines(&begun)[0].clone();
        fs::remove_file(&begun).unwrap();
        up.run(&["cancel", &child]).ok();
    }
    up.run(&["runs", &id, "--follow"]).ok();
    let ended = up.run(&["runs", &id, "--json"]).ok().json()["run"].clone();
    // A child's cancellation is not the parent's: `parallel` isolates it and the run completes.
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["output"]["list"], json!(["one", null]));
    assert_eq!(ended["output"]["direct"]["code"], "CHILD_CANCELLED");
    assert_eq!(ended["output"]["direct"]["detail"]["status"], "cancelled");

    // A passed budget is not to be swallowed.
    deploy(
        &up,
        "spends",
        r#","budget":{"max_compute_seconds":1}"#,
        "import { sleep, parallel } from '@trestle/workflow';\nexport default async () => { for (;;) { await parallel([() => sleep(50)]).catch(() => {}); } };\n",
    );
    let ended = run(&up, "spends", "");
    assert_eq!(
        (ended["status"].as_str(), ended["error"]["code"].as_str()),
        (Some("failed"), Some("BUDGET_EXCEEDED")),
        "{ended}"
    );
    up.stop().ok();
}

#[test]
fn home_and_temporary_files_belong_to_one_run_and_go_with_it() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "1"]);
    deploy(
        &up,
        "places",
        "",
        "
import { homedir, tmpdir } from 'node:os';
import { existsSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { shell } from '@trestle/workflow';
export default async (input: any, context: any) => {
  const found = [...readdirSync(homedir()), ...readdirSync(tmpdir())];
  writeFileSync(join(homedir(), '.leftover'), 'x');
  writeFileSync(join(mkdtempSync(join(tmpdir(), 'a-')), 'leftover'), 'x');
  const { stdout } = await shell('echo \"$HOME|$TMPDIR\"; touch relative');
  return { home: homedir(), tmp: tmpdir(), cwd: process.cwd(), workspace: context.workspaceDir, shell: stdout.trim(), found, relative: existsSync(join(context.workspaceDir, 'relative')) };
};
",
    );
    let (first, second) = (output(&up, "places", ""), output(&up, "places", ""));
    for seen in [&first, &second] {
        assert_eq!(seen["home"], seen["workspace"]);
        assert_eq!(seen["cwd"], seen["workspace"]);
        assert_ne!(seen["tmp"], seen["home"]);
        assert_eq!(seen["relative"], true);
        assert_eq!(
            seen["shell"],
            format!("{}|{}", seen["home"].as_str().unwrap(), seen["tmp"].as_str().unwrap())
        );
        assert_eq!(seen["found"], json!([]), "a run finds nothing of another");
        for place in ["home", "tmp"] {
            let path = seen[place].as_str().unwrap().to_owned();
            assert!(path.starts_with(machine.home.path().to_str().unwrap()), "{path}");
            eventually("the place is gone", || !Path::new(&path).exists());
        }
    }
    assert_ne!(first["home"], second["home"]);
    assert_ne!(first["tmp"], second["tmp"]);
    up.stop().ok();
}

#[test]
fn the_sdk_version_of_an_artifact_reaches_whoever_runs_it() {
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let calls = Calls::new(&up.url);
    let runner = runtime.block_on(calls.register(&up.token));
    for (installed, declared, expected) in
        [(Some("0.3.10"), None, "0.3.10"), (None, Some("^0.3.11"), "^0.3.11"), (None, None, "*")]
    {
        let directory = machine.workflow("old", "export default () => 1;\n");
        let sdk = directory.join("node_modules/@boardwalk-labs/workflow");
        let _ = fs::remove_dir_all(directory.join("node_modules"));
        let _ = fs::remove_file(directory.join("package.json"));
        if let Some(version) = installed {
            fs::create_dir_all(&sdk).unwrap();
            let manifest = json!({ "name": "@boardwalk-labs/workflow", "version": version });
            fs::write(sdk.join("package.json"), manifest.to_string()).unwrap();
        }
        if let Some(range) = declared {
            let manifest = json!({ "name": "old", "dependencies": { "@boardwalk-labs/workflow": range } });
            fs::write(directory.join("package.json"), manifest.to_string()).unwrap();
        }
        // Another text, so that each deploy is a version of its own.
        fs::write(directory.join("index.mjs"), format!("export default () => {expected:?};\n")).unwrap();
        let deployed = up.run(&["deploy", directory.to_str().unwrap(), "--json"]).ok().json();
        let workflow = deployed["workflowId"].as_str().unwrap();
        let version = runtime.block_on(async {
            let run = calls.claimed(&up.token, workflow, &runner).await;
            calls.get(&run.path("version"), &run.token).await
        });
        assert_eq!(version["program"]["sdkVersion"], expected, "{version}");
    }
    up.stop().ok();
}
