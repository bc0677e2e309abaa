//! Host calls of real programs, and the protocol byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::plane::{Fault, Plane};
use support::process::{Options, RunProcess, run, run_with};
use trestle_sandbox::slot::{SlotOutcome, SlotReport};

/// Runs a program of `tests/programs` that completes and returns its output.
async fn output_of(plane: &Plane) -> Value {
    let outcome = run(plane).await;
    let finalized = plane.finalized();
    assert_eq!(outcome, SlotOutcome::Completed, "{finalized}");
    finalized["output"].clone()
}

async fn plane(program: &str) -> Plane {
    Plane::start(&[("index.mjs", &support::program(program))]).await
}

#[tokio::test]
async fn lines_that_are_no_requests_are_answered_as_the_protocol_says() {
    let plane = plane("raw_frames.mjs").await;
    plane.set_secret("A", "value-of-a");
    let answers = output_of(&plane).await;
    let of = |id: Value| {
        let found: Vec<&Value> =
            answers.as_array().unwrap().iter().filter(|answer| answer["id"] == id).collect();
        assert_eq!(found.len(), 1, "{id}: {answers}");
        found[0].clone()
    };
    assert_eq!(of(json!(1)), json!({ "jsonrpc": "2.0", "id": 1, "result": { "value": "value-of-a" } }));
    assert_eq!(of(json!("1"))["result"]["value"], "value-of-a", "the id keeps its type");
    assert_eq!(of(json!(2))["error"]["code"], "METHOD_NOT_FOUND");
    assert_eq!(of(json!(3))["error"]["code"], "INVALID_PARAMS", "params are missing");
    let unknown = of(json!(4));
    assert_eq!(unknown["error"]["code"], "INVALID_PARAMS");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("temperature"), "{unknown}");
    assert!(unknown["error"]["data"]["hint"].is_string(), "{unknown}");
    assert_eq!(of(json!(5))["error"]["code"], "INVALID_PARAMS", "nested too deeply");
    assert_eq!(of(json!(6))["error"]["code"], "INVALID_PARAMS", "a negative time");
    assert_eq!(of(json!(7))["result"], json!({}));
    assert_eq!(
        of(json!(8))["error"]["code"],
        "INVALID_PARAMS",
        "a method that is not available checks its parameters"
    );
    let unreadable = answers.as_array().unwrap().iter().filter(|answer| answer["id"].is_null());
    let codes: Vec<_> = unreadable.map(|answer| answer["error"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["PROTOCOL_ERROR"; 4]);
    assert!(plane.state.model_calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_that_waits_delays_no_other() {
    let plane = plane("overlap.mjs").await;
    plane.set_secret("A", "value-of-a");
    assert_eq!(output_of(&plane).await, json!(["secret", "usage", "pause"]));
}

#[tokio::test]
async fn sleeps_end_on_time_and_have_a_cap() {
    let plane = plane("sleeps.mjs").await;
    let output = output_of(&plane).await;
    assert_eq!(output["zero"], true);
    assert_eq!(output["past"], true);
    assert!(output["short"].as_f64().unwrap() >= 49.0, "{output}");
    assert!(output["until"].as_f64().unwrap() >= 49.0, "{output}");
    assert_eq!(output["cap"]["code"], "VALIDATION_FAILED");
    assert_eq!(output["cap"]["data"]["detail"]["kind"], "sleep_cap");
    assert_eq!(output["nonsense"]["code"], "VALIDATION_FAILED");
}

#[tokio::test]
async fn shell_commands_end_as_the_protocol_says() {
    let plane = plane("shells.mjs").await;
    let output = output_of(&plane).await;
    assert_eq!(output["plain"], json!({ "exitCode": 3, "stdout": "out ü\n", "stderr": "err\n" }));
    assert_eq!(output["killed"]["exitCode"], 137);
    assert_eq!(output["where"], json!(["sub", "of shell", "of run"]));
    assert_eq!(output["late"], json!({ "exitCode": 143, "stdout": "begun\n", "stderr": "" }));
    assert_eq!(output["stubborn"]["exitCode"], 137, "{output}");
    assert_eq!(output["held"], json!({ "exitCode": 0, "stdout": "done\n", "stderr": "" }));
    assert_eq!(output["fits"], 1000);
    assert_eq!(output["over"]["code"], "TOOL_ERROR");
    assert!(output["over"]["message"].as_str().unwrap().contains("1000 bytes to stdout"), "{output}");
    assert_eq!(output["large"], 3_000_000);
    assert_eq!(output["nowhere"]["code"], "ENOENT");
    assert_eq!(output["input"], "", "standard input is closed");
}

#[tokio::test]
async fn artifacts_travel_inline_by_their_size_on_the_wire_and_beside_it_otherwise() {
    let plane = plane("artifacts.mjs").await;
    let output = output_of(&plane).await;
    assert_eq!(
        output["small"],
        json!({ "id": "01ARTIFACT", "name": "small.txt", "url": "http://plane/artifact" })
    );
    let inline = plane.calls("artifacts");
    let names: Vec<_> = inline.iter().map(|call| call.body["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["small.txt", "bytes.bin"]);
    assert_eq!(inline[0].body["encoding"], "utf8");
    assert_eq!(inline[0].body["metadata"], json!({ "kind": "note" }));
    assert_eq!(inline[1].body["encoding"], "base64");
    // 3.5 MiB of bytes are 4.67 MiB of base64, 1 MiB of control characters 6 MiB of JSON.
    let presigned = plane.calls("artifacts/presign");
    let sizes: Vec<_> = presigned.iter().map(|call| call.body["sizeBytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [3_670_016, 1_048_576, 8_000_000]);
    assert_eq!(plane.calls("artifacts/commit").len(), 3);
    let upload = &plane.calls("/upload/key")[2];
    assert_eq!(upload.raw.len(), 8_000_000);
    assert!(upload.raw.iter().all(|byte| *byte == 7));
    assert_eq!(upload.authorization, None);
    assert_eq!(output["bad"]["code"], "VALIDATION_FAILED");
    assert_eq!(output["long"]["code"], "VALIDATION_FAILED");
}

#[tokio::test]
async fn an_artifact_above_the_limit_is_refused_before_it_is_sent() {
    let plane = plane("huge_artifact.mjs").await;
    let output = output_of(&plane).await;
    assert_eq!(output["code"], "VALIDATION_FAILED");
    assert!(output["message"].as_str().unwrap().contains("100 MiB"), "{output}");
    assert!(plane.calls("artifacts/presign").is_empty());
}

#[tokio::test]
async fn called_workflows_are_told_apart_by_their_order_and_give_their_results() {
    let plane = plane("calls.mjs").await;
    {
        let mut children = plane.state.children.lock().unwrap();
        let running = json!({ "status": "running", "output": null });
        let done = json!({ "status": "completed", "output": { "when": "2020-01-02T00:00:00.000Z" },
                           "outputSchema": { "type": "object", "properties": { "when": { "type": "string", "format": "date-time" } } } });
        for ordinal in 0..3 {
            children.insert(format!("child-same-{ordinal}"), [running.clone(), done.clone()].into());
        }
        let failed =
            json!({ "status": "failed", "output": { "error": { "code": "X", "message": "no luck" } } });
        children.insert("child-fails-0".into(), [failed].into());
        children.insert("child-stopped-0".into(), [json!({ "status": "cancelled", "output": null })].into());
    }
    plane.fail("children/child-same-0", Fault::Status(500), 2);
    plane.fail("children/child-same-1", Fault::LoseAnswer, 2);
    let mut process = RunProcess::start(Options { time_scale: 5, ..Options::default() }).await;
    process.assign(&plane).await;
    assert_eq!(process.outcome().await, SlotOutcome::Completed, "{}", plane.finalized());
    let output = plane.finalized()["output"].clone();
    assert_eq!(output["dates"], json!([true, true, true]), "the outputs are revived by the callee's schema");
    let failed = &output["failed"];
    assert_eq!(failed["code"], "CHILD_FAILED");
    assert!(failed["message"].as_str().unwrap().contains("X: no luck"), "{failed}");
    assert_eq!(failed["data"]["detail"], json!({ "childRunId": "child-fails-0", "status": "failed" }));
    assert_eq!(output["stopped"]["code"], "CHILD_CANCELLED");
    assert_eq!(output["unknown"]["code"], "NOT_FOUND");
    assert_eq!(output["started"], "child-alone-0");
    let ordinals: Vec<_> = plane
        .calls("children")
        .iter()
        .filter(|call| call.body["slug"] == "same")
        .map(|call| {
            (
                call.body["ordinal"].as_u64().unwrap(),
                call.body["input"].to_string(),
                call.body["mode"].clone(),
            )
        })
        .collect();
    let input = r#"{"a":1,"b":2}"#;
    assert_eq!(ordinals, [0, 1, 2].map(|ordinal| (ordinal, input.to_owned(), json!("call"))));
    let alone = plane.calls("children").into_iter().find(|call| call.body["slug"] == "alone").unwrap();
    assert_eq!(alone.body["mode"], "run");
    assert_eq!(alone.body["idempotencyKey"], "mine");
    let waits: Vec<_> =
        process.reports.iter().filter(|report| matches!(report, SlotReport::Waiting { .. })).collect();
    assert_eq!(waits[..2], [&SlotReport::Waiting { waiting: true }, &SlotReport::Waiting { waiting: false }]);
}

#[tokio::test]
async fn phases_are_marked_in_order_and_their_ids_are_the_authors_or_ours() {
    let plane = plane("phases.mjs").await;
    output_of(&plane).await;
    let marks: Vec<_> = plane
        .events()
        .into_iter()
        .filter_map(|event| match event["kind"].as_str() {
            Some("phase") => {
                Some(format!("{}={}", event["id"].as_str().unwrap(), event["name"].as_str().unwrap()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(marks, ["phase-1=one", "own=two", "own=three", "phase-4=last"]);
}

#[tokio::test]
async fn what_is_not_available_says_so_and_what_to_do_instead() {
    let plane = plane("unavailable.mjs").await;
    plane.edit_manifest(|manifest| manifest["budget"] = json!({ "max_tokens": 1000 }));
    let output = output_of(&plane).await;
    for (call, error) in output.as_object().unwrap() {
        if call == "token" || call == "usage" {
            continue;
        }
        assert_eq!(error["code"], "UNSUPPORTED", "{call}: {error}");
        assert!(error["data"]["hint"].is_string(), "{call}: {error}");
    }
    assert_eq!(output["token"], "[REDACTED]", "the program has it, the run's output event does not");
    assert_eq!(output["usage"]["tokens"], json!({ "spent": 0, "cap": 1000, "remaining": 1000 }));
}

#[tokio::test]
async fn a_console_line_of_two_hundred_thousand_emoji_arrives_whole() {
    let plane = plane("emoji.mjs").await;
    assert_eq!(run_with(&plane, Options::default()).await, SlotOutcome::Completed);
    let lines = plane.console("stdout");
    assert!(lines.iter().all(|line| line.encode_utf16().count() <= 8_192));
    assert_eq!(lines.concat(), "😀".repeat(200_000));
}

#[tokio::test]
async fn a_command_reaches_the_host_and_a_client_that_only_stops_sending_gets_its_answer() {
    let plane = plane("half_closed.mjs").await;
    plane.set_secret("A", "value-of-a");
    assert_eq!(
        output_of(&plane).await,
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "value": "value-of-a" } })
    );
}

#[tokio::test]
async fn a_wait_that_nobody_awaits_does_not_hold_the_run() {
    // Real times: a drain that waits for the sleep takes a second.
    let plane = Plane::start(&[("index.mjs", "import { sleep } from '@trestle/workflow'; export default async () => { sleep('1h').catch(() => {}); await sleep(1); return 'over'; }")]).await;
    let mut process = RunProcess::start(Options { time_scale: 1, ..Options::default() }).await;
    process.assign(&plane).await;
    plane.until("the claim", |plane| !plane.calls("version").is_empty()).await;
    let since = std::time::Instant::now();
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    assert_eq!(plane.finalized()["output"], "over");
    assert!(since.elapsed() < std::time::Duration::from_millis(900), "{:?}", since.elapsed());
}

/// A run of a webhook whose program was built with this SDK.
async fn built_with(sdk_version: &str) -> Plane {
    let plane = plane("exact_answers.mjs").await;
    plane.set_secret("A", "value-of-a");
    *plane.state.model.lock().unwrap() =
        Some(Box::new(|_, _| support::plane::ModelAnswer::Lines(vec![support::plane::result("hello")])));
    let done =
        json!({ "status": "completed", "output": 1, "outputSchema": null, "more": "from a later server" });
    plane.state.children.lock().unwrap().insert("child-done-0".into(), [done].into());
    plane.state.program.lock().unwrap()["sdkVersion"] = json!(sdk_version);
    let mut run = plane.state.run.lock().unwrap();
    run["triggerKind"] = json!("webhook");
    run["actor"] = json!({ "type": "webhook", "source": "hook" });
    run["triggerRequest"] =
        json!({ "method": "POST", "path": "/hook", "query": {}, "headers": { "a": "b" } });
    drop(run);
    plane
}

#[tokio::test]
async fn every_answer_has_exactly_the_keys_of_the_programs_sdk() {
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    for (sdk_version, has_request) in [
        ("0.3.12", true),
        ("^0.3.12", true),
        ("*", true),
        ("0.4.0", true),
        ("0.3.10", false),
        ("^0.3.0", false),
    ] {
        let plane = built_with(sdk_version).await;
        let output = output_of(&plane).await;
        assert_eq!(output["wrong"], json!([]), "{sdk_version}");
        assert_eq!(output["answered"].as_array().unwrap().len(), 11);
        let context = &output["context"];
        assert_eq!(
            keys(context),
            [
                "actor",
                "attempt",
                "environment",
                "orgId",
                "runId",
                "trigger",
                "workflowId",
                "workflowVersion",
                "workspaceDir"
            ]
        );
        let expected: &[&str] = if has_request {
            &["firedAt", "kind", "request", "source"]
        } else {
            &["firedAt", "kind", "source"]
        };
        assert_eq!(keys(&context["trigger"]), expected, "{sdk_version}");
        assert_eq!(context["actor"], json!({ "type": "webhook", "source": "hook" }));
    }
}

#[tokio::test]
async fn a_webhook_request_that_no_client_would_take_is_left_out_instead_of_ending_the_run() {
    for request in [
        json!({ "method": "", "path": "/", "query": {}, "headers": {} }),
        json!({ "method": "POST", "path": "/".repeat(2_049), "query": {}, "headers": {} }),
        json!({ "method": "POST", "path": "/", "query": {} }),
        json!("POST /"),
    ] {
        let plane = built_with("0.3.12").await;
        plane.state.run.lock().unwrap()["triggerRequest"] = request.clone();
        let output = output_of(&plane).await;
        assert!(output["context"]["trigger"].get("request").is_none(), "{request}: {output}");
    }
}

#[tokio::test]
async fn more_calls_than_a_connection_may_have_are_refused_and_the_others_go_on() {
    let plane = plane("flood.mjs").await;
    let answer = output_of(&plane).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(10_001), &json!("RATE_LIMIT")), "{answer}");
    assert!(answer["error"]["data"]["hint"].as_str().unwrap().contains("await"), "{answer}");
}

#[tokio::test]
async fn nul_bytes_are_data_where_data_goes_and_refused_where_names_go() {
    let plane = plane("nul_bytes.mjs").await;
    let output = output_of(&plane).await;
    let codes: Vec<(&str, &str)> =
        ["command", "variable", "value", "directory", "equals", "slug", "secret", "input"]
            .into_iter()
            .map(|what| (what, output[what]["code"].as_str().unwrap_or("no failure")))
            .collect();
    let refused = "VALIDATION_FAILED";
    assert_eq!(
        codes,
        [
            ("command", refused),
            ("variable", refused),
            ("value", refused),
            ("directory", refused),
            ("equals", refused),
            // Names that nothing has.
            ("slug", "NOT_FOUND"),
            ("secret", "NOT_FOUND"),
            ("input", "NOT_FOUND"),
        ],
        "{output}"
    );
    assert_eq!(output["artifact"]["value"]["name"], "a.bin", "{output}");
    assert_eq!(plane.calls("artifacts")[0].body["body"], "a\0b");
    let called = plane.calls("children").into_iter().find(|call| call.body["slug"] == "unknown").unwrap();
    assert_eq!(called.body["input"], "a\0b");
}

#[tokio::test]
async fn a_workspace_that_cannot_be_used_fails_the_run_and_no_other_place_is_taken() {
    let plane = Plane::start(&[("index.mjs", "export default () => process.cwd()")]).await;
    let mut process = RunProcess::start(Options::default()).await;
    let workspace = process.workspace();
    std::fs::remove_dir(&workspace).unwrap();
    std::fs::write(&workspace, "a file").unwrap();
    process.assign(&plane).await;
    assert_eq!(process.outcome().await, SlotOutcome::Failed { code: "HOST_BUILD_FAILED".into() });
    assert!(plane.error()["message"].as_str().unwrap().contains("workspace"), "{}", plane.error());
}
