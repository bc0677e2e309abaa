//! How programs end, and what becomes of their runs: real interpreters, a real socket, a control plane
//! in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::plane::{Fault, Plane};
use support::process::{Options, RunProcess, run, run_with};
use trestle_sandbox::slot::{SlotOutcome, SlotReport};

async fn plane(source: &str) -> Plane {
    Plane::start(&[("index.mjs", source)]).await
}

/// Runs a program that fails and returns the run's error.
async fn failure(source: &str) -> Value {
    let plane = plane(source).await;
    let outcome = run(&plane).await;
    let error = plane.error();
    assert_eq!(outcome, SlotOutcome::Failed { code: error["code"].as_str().unwrap().to_owned() });
    assert_eq!(plane.calls("finalize").len(), 1);
    error
}

#[tokio::test]
async fn a_program_that_returns_completes_its_run_in_the_agreed_order() {
    let plane = plane("export default async function run(input, context) { console.log('hi', input.n); return { got: input, run: context.runId, version: context.workflowVersion, cwd: process.cwd() === context.workspaceDir }; }").await;
    plane.set_input(json!({ "n": 7 }));
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    let mut order = plane.order();
    // Compute time is told from half a second on, which a slow machine takes.
    order.retain(|call| call != "POST usage");
    assert_eq!(order, ["POST claim", "GET version", "GET /blob/program", "POST finalize"]);
    let finalized = plane.finalized();
    assert_eq!(finalized["status"], "completed");
    assert_eq!(finalized["workerId"], "worker");
    assert_eq!(finalized["output"], json!({ "got": { "n": 7 }, "run": "01RUN", "version": 3, "cwd": true }));
    assert_eq!(plane.console("stdout"), ["hi 7"]);
    let kinds: Vec<_> =
        plane.events().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["run_status", "program_output", "output"]);
    assert_eq!(plane.events()[0]["status"], "running");
    assert!(plane.state.frames.lock().unwrap().contains_key(&1), "the first cursor of a fresh run is 1");
    for exchange in plane.state.exchanges.lock().unwrap().iter() {
        let expected =
            (!exchange.path.starts_with("/blob")).then(|| format!("Bearer {}", support::plane::RUN_TOKEN));
        assert_eq!(exchange.authorization, expected, "{}", exchange.path);
    }
}

#[tokio::test]
async fn cursors_of_a_later_attempt_sort_after_the_earlier_ones() {
    let plane = plane("export default () => null").await;
    plane.state.claim.lock().unwrap()["lastEventCursor"] = json!(2_000_004);
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    assert_eq!(*plane.state.frames.lock().unwrap().keys().next().unwrap(), 3_000_001);
    assert!(plane.events_of("output").is_empty(), "nothing was returned");
}

#[tokio::test]
async fn a_syntax_error_names_its_file_and_line() {
    let error = failure("export default function run() {\n  return 1 +;\n}\n").await;
    assert_eq!(error["code"], "PROGRAM_ERROR");
    assert!(error["message"].as_str().unwrap().contains("index.mjs:2"), "{error}");
}

#[tokio::test]
async fn a_missing_import_says_which() {
    let error = failure("import 'no-such-package'; export default () => 1").await;
    assert!(error["message"].as_str().unwrap().contains("no-such-package"), "{error}");
    assert!(error["hint"].is_string());
}

#[tokio::test]
async fn a_throw_while_importing_fails_the_run() {
    let error = failure("throw new Error('too early'); export default () => 1").await;
    assert_eq!(error["message"], "too early");
}

#[tokio::test]
async fn a_program_without_a_function_to_run_is_told_what_to_write() {
    let error = failure("export const other = 1").await;
    assert_eq!(error["code"], "VALIDATION_FAILED");
    assert!(error["hint"].as_str().unwrap().contains("export default"), "{error}");
}

#[tokio::test]
async fn what_is_thrown_keeps_its_code_and_its_hint() {
    let error = failure("export default () => { throw Object.assign(new TypeError('no luck'), { code: 'MY_CODE', hint: 'try again' }) }").await;
    assert_eq!(error, json!({ "code": "MY_CODE", "message": "no luck", "hint": "try again" }));
    let error = failure("export default () => { throw new TypeError('no luck') }").await;
    assert_eq!(error["code"], "PROGRAM_ERROR");
    let error = failure("export default () => { throw 'a text' }").await;
    assert!(error["message"].as_str().unwrap().contains("a text"), "{error}");
}

#[tokio::test]
async fn an_unhandled_rejection_fails_the_run_with_its_own_message() {
    let error = failure("export default async () => { Promise.reject(new Error('nobody waits')); await new Promise(() => setInterval(() => {}, 1000)); }").await;
    assert_eq!(error["message"], "nobody waits");
    assert_eq!(error["code"], "PROGRAM_ERROR");
}

#[tokio::test]
async fn an_exit_before_the_return_fails_the_run_and_is_not_tried_again() {
    for code in [0, 3] {
        let error = failure(&format!("export default () => process.exit({code})")).await;
        assert_eq!(error["code"], "PROGRAM_ERROR");
        assert!(error["message"].as_str().unwrap().contains(&format!("process.exit({code})")), "{error}");
    }
}

#[tokio::test]
async fn a_promise_that_nothing_will_settle_fails_the_run() {
    let error = failure("export default () => new Promise(() => {})").await;
    assert!(error["message"].as_str().unwrap().contains("never settled"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_killed_gives_its_run_back() {
    let plane =
        plane("console.log('before'); export default () => { process.kill(process.pid, 'SIGKILL'); }").await;
    assert_eq!(run(&plane).await, SlotOutcome::Released { reason: "crashed".into() });
    assert_eq!(plane.calls("finalize").len(), 0);
    let released = plane.calls("release");
    assert_eq!(released[0].body, json!({ "workerId": "worker", "reason": "crashed" }));
    assert_eq!(plane.console("stdout"), ["before"], "what was printed before is delivered");
    assert!(plane.console("stderr").join("\n").contains("signal 9"));
}

#[tokio::test]
async fn work_that_goes_on_after_the_return_value_was_accepted_does_not_hold_the_run() {
    let plane = plane("export default () => { setInterval(() => {}, 10); process.on('exit', () => { for (;;); }); return 1; }").await;
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    assert_eq!(plane.finalized()["output"], 1);
}

#[tokio::test]
async fn return_values_keep_their_bytes() {
    let plane = plane("export default (input) => input").await;
    // Integers beyond 2^53 die in the program's own JSON.parse; everything else has to come back as it was.
    let input: Value = serde_json::from_str(r#"{"z":1,"a":"\u0000é😀","deep":[[[]]],"f":1.50}"#).unwrap();
    plane.set_input(input.clone());
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    assert_eq!(plane.finalized()["output"], input);
    let raw = plane.calls("finalize")[0].raw.clone();
    let raw = std::str::from_utf8(&raw).unwrap();
    assert!(raw.find("\"z\"").unwrap() < raw.find("\"deep\"").unwrap(), "{raw}");
}

#[tokio::test]
async fn a_return_value_of_another_type_is_refused_with_its_place() {
    let plane = plane("export default () => ({ n: 'x' })").await;
    plane.edit_manifest(|manifest| {
        manifest["output_schema"] = json!({ "type": "object", "properties": { "n": { "type": "number" } } });
    });
    run(&plane).await;
    let error = plane.error();
    assert_eq!(error["code"], "VALIDATION_FAILED");
    assert!(error["message"].as_str().unwrap().contains("/n"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("declared type"), "{error}");
}

#[tokio::test]
async fn nothing_becomes_an_empty_object_where_the_type_wants_one() {
    let plane = plane("export default (input) => JSON.stringify(input)").await;
    plane.edit_manifest(|manifest| manifest["input_schema"] = json!({ "type": "object" }));
    run(&plane).await;
    assert_eq!(plane.finalized()["output"], "{}");
}

#[tokio::test]
async fn programs_that_cannot_be_fetched_or_trusted_fail_before_they_run() {
    let plane = plane("export default () => 1").await;
    plane.state.program.lock().unwrap()["digest"] = json!("0".repeat(64));
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "PROGRAM_INTEGRITY".into() });
    assert!(plane.calls("usage").is_empty());

    let plane = self::plane("export default () => 1").await;
    plane.fail("/blob/program", Fault::Status(404), 1);
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "PROGRAM_FETCH_FAILED".into() });

    let plane = self::plane("export default () => 1").await;
    plane.state.program.lock().unwrap()["entry"] = json!("../index.mjs");
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "VALIDATION_FAILED".into() });

    let plane = Plane::start(&[("index.mjs", ""), ("node_modules/@trestle/workflow/index.mjs", "")]).await;
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "VALIDATION_FAILED".into() });
}

#[tokio::test]
async fn a_download_that_fails_for_a_while_is_repeated() {
    let plane = plane("export default () => 'here'").await;
    plane.fail("/blob/program", Fault::Status(503), 2);
    plane.fail("/blob/program", Fault::LoseAnswer, 1);
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    assert_eq!(plane.calls("/blob/program").len(), 4);
}

#[tokio::test]
async fn a_version_that_is_gone_fails_the_run_and_one_that_cannot_be_read_gives_it_back() {
    let plane = plane("export default () => 1").await;
    plane.fail("version", Fault::Status(404), 1);
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "INTERNAL_ERROR".into() });

    let plane = self::plane("export default () => 1").await;
    plane.fail("version", Fault::Status(500), 5);
    assert_eq!(run(&plane).await, SlotOutcome::Released { reason: "unavailable".into() });
}

#[tokio::test]
async fn a_claim_that_another_has_won_ends_without_a_word() {
    let plane = plane("export default () => 1").await;
    plane.fail("claim", Fault::Status(409), 1);
    assert_eq!(run(&plane).await, SlotOutcome::ClaimLost);
    assert_eq!(plane.order(), ["POST claim"]);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_made_again() {
    let plane = plane("export default () => 1").await;
    plane.fail("claim", Fault::LoseAnswer, 1);
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    let claims = plane.calls("claim");
    assert_eq!(claims[0].body, claims[1].body);
}

#[tokio::test]
async fn the_end_is_repeated_through_overload_and_lost_answers() {
    let plane = plane("export default () => 'kept'").await;
    plane.fail("finalize", Fault::Status(500), 2);
    plane.fail("finalize", Fault::Status(429), 2);
    plane.fail("finalize", Fault::Status(503), 2);
    plane.fail("finalize", Fault::LoseAnswer, 1);
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    let calls = plane.calls("finalize");
    assert_eq!(calls.len(), 8);
    assert!(calls.iter().all(|call| call.raw == calls[0].raw), "every attempt sends the same bytes");
}

#[tokio::test]
async fn a_return_value_that_is_refused_fails_the_run_instead_of_repeating_it() {
    let plane = plane("export default () => 'large'").await;
    plane.fail("finalize", Fault::Status(413), 1);
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "VALIDATION_FAILED".into() });
    assert!(plane.error()["hint"].as_str().unwrap().contains("artifacts"));
}

#[tokio::test]
async fn the_end_of_a_run_that_was_taken_over_is_not_insisted_on() {
    let plane = plane("export default () => 1").await;
    plane.fail("finalize", Fault::Status(409), 1);
    assert_eq!(run(&plane).await, SlotOutcome::LeaseLost);
    assert_eq!(plane.calls("finalize").len(), 1);
}

#[tokio::test]
async fn every_event_is_delivered_before_the_end_whatever_telemetry_suffers() {
    let plane = plane("export default () => { for (let i = 0; i < 300; i++) console.log(i); }").await;
    plane.fail("telemetry", Fault::LoseAnswer, 3);
    plane.fail("telemetry", Fault::Status(503), 3);
    plane.fail("telemetry", Fault::Status(429), 1);
    assert_eq!(run(&plane).await, SlotOutcome::Completed);
    let expected: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    assert_eq!(plane.console("stdout"), expected);
    let exchanges = plane.state.exchanges.lock().unwrap();
    let last_telemetry = exchanges.iter().rposition(|exchange| exchange.path.ends_with("telemetry")).unwrap();
    let finalize = exchanges.iter().position(|exchange| exchange.path.ends_with("finalize")).unwrap();
    assert!(last_telemetry < finalize);
}

#[tokio::test]
async fn programs_run_on_node_20_too() {
    let plane = plane("export default () => process.versions.node.split('.')[0]").await;
    let options = Options { node: support::node(20), ..Options::default() };
    assert_eq!(run_with(&plane, options).await, SlotOutcome::Completed);
    assert_eq!(plane.finalized()["output"], "20");
}

#[tokio::test]
async fn an_interpreter_that_is_too_old_is_refused() {
    let plane = plane("export default () => 1").await;
    let mut options = Options::default();
    options.node.version = "18.0.0".into();
    assert_eq!(run_with(&plane, options).await, SlotOutcome::Failed { code: "UNSUPPORTED_RUNTIME".into() });
    assert!(plane.error()["hint"].as_str().unwrap().contains("Node.js 24"));
}

#[tokio::test]
async fn a_waiting_interpreter_takes_one_run() {
    let plane =
        plane("export default () => ({ pid: process.pid, cwd: process.cwd(), home: process.env.HOME })")
            .await;
    let mut process = RunProcess::start(Options { prestart: true, ..Options::default() }).await;
    process.until(&SlotReport::Ready).await;
    let children = children_of(process.process.pid());
    process.assign(&plane).await;
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    let output = plane.finalized()["output"].clone();
    assert_eq!(children, [i32::try_from(output["pid"].as_i64().unwrap()).unwrap()]);
    assert_eq!(output["cwd"], json!(process.workspace().canonicalize().unwrap()));
    assert_eq!(output["home"], json!(process.workspace()));
}

#[tokio::test]
async fn an_environment_that_counts_at_the_start_gets_a_fresh_interpreter() {
    let plane = plane("export default () => ({ pid: process.pid, flag: process.execArgv.concat(process.env.NODE_OPTIONS ?? []), memory: (await import('node:v8')).getHeapStatistics().heap_size_limit })".replace("() => (", "async () => (").as_str()).await;
    let mut options = Options { prestart: true, ..Options::default() };
    options.env.insert("NODE_OPTIONS".into(), "--max-old-space-size=77".into());
    let mut process = RunProcess::start(options).await;
    process.until(&SlotReport::Ready).await;
    let waiting = children_of(process.process.pid());
    process.assign(&plane).await;
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    let output = plane.finalized()["output"].clone();
    assert_ne!(i64::from(waiting[0]), output["pid"].as_i64().unwrap());
    assert!(output["memory"].as_u64().unwrap() < 400 * 1024 * 1024, "{output}");
}

fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
