//! The Runner Control API.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::rows;
use crate::world::{Answer, Session, World, frame, line};

#[tokio::test]
async fn a_run_goes_from_claim_to_its_end_with_exact_success_codes() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({ "budget": { "max_tokens": 5 } })).await;
    let runner = world.runner().await;
    let run = world.trigger(&workflow, json!({ "hello": "world" })).await;
    let session = world.leased(&runner).await;

    let claimed = world.claim_run(&session, None).await;
    assert_eq!(claimed.status, 201, "{claimed:?}");
    assert_eq!(claimed.headers["x-trestle-lease-ms"], "90000");
    let shown = &claimed.body["run"];
    assert_eq!(shown["id"], run.as_str());
    assert_eq!(shown["input"], json!({ "hello": "world" }));
    assert_eq!(shown["status"], "running");
    assert_eq!(shown["attempt"], 1);
    assert_eq!(shown["triggerKind"], "manual");
    assert_eq!(shown["actor"], json!({ "type": "user", "user_id": "administrator" }));
    for key in ["output", "state", "config", "parentRunId", "environmentId", "nextWakeAt", "completedAt"] {
        assert!(shown.as_object().unwrap().contains_key(key) && shown[key].is_null(), "{key}");
    }
    assert!(claimed.body["lastEventCursor"].as_u64().unwrap() >= 1);
    assert_eq!(claimed.body["workflowVersion"], 1);
    assert_eq!(claimed.body["environment"], Value::Null);

    let version = world.control(&session, Method::GET, "version", None).await;
    assert_eq!(version.status, 200);
    assert_eq!(version.body["manifest"]["slug"], "w");
    assert_eq!(version.body["manifest"]["budget"], json!({ "max_tokens": 5 }));
    assert_eq!(version.body["program"]["entry"], "index.mjs");
    assert_eq!(version.body["program"]["sdkVersion"], "0.3.12");
    let url = version.body["program"]["downloadUrl"].as_str().unwrap();
    let bytes = world.client.get(url).send().await.unwrap();
    assert_eq!(bytes.status(), 200);
    let digest = hex::encode(Sha256::digest(bytes.bytes().await.unwrap()));
    assert_eq!(version.body["program"]["digest"], digest);

    let renewed = world
        .control(
            &session,
            Method::POST,
            "renew",
            Some(json!({ "workerId": "w1", "leaseSeconds": 300, "unknown": true })),
        )
        .await;
    assert_eq!(renewed.status, 200);
    assert!(renewed.body["leaseUntil"].as_i64() > claimed.body["leaseUntil"].as_i64());
    assert_eq!(renewed.body["cancelRequested"], false);
    let credit = world.control(&session, Method::GET, "credit", None).await;
    assert_eq!((credit.status.as_u16(), &credit.body), (200, &json!({ "funded": true })));
    let cancel = world.control(&session, Method::GET, "cancel", None).await;
    assert_eq!((cancel.status.as_u16(), &cancel.body), (200, &json!({ "cancelRequested": false })));

    assert_eq!(world.finalize(&session, json!({ "n": 1 })).await.status, 204);
    let detail = world.run(&run).await;
    assert_eq!((&detail["status"], &detail["output"]), (&json!("completed"), &json!({ "n": 1 })));
    assert!(detail["completedAt"].as_i64() >= detail["startedAt"].as_i64());
}

#[tokio::test]
async fn duplicates_of_every_mutating_call_are_harmless() {
    let world = World::start().await;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let again = world.claim_run(&session, None).await;
    assert_eq!(again.status, 201, "{again:?}");

    let calls = [
        ("usage", json!({ "runtimeSeconds": 7, "identifier": "r:s:rt:0" }), [204, 204]),
        (
            "usage/tokens",
            json!({ "inputTokens": 3, "outputTokens": 4, "model": "m", "identifier": "r:s:1:0" }),
            [204, 204],
        ),
        ("telemetry", json!({ "frames": [line(&session.run, 1_000_001, "once")] }), [204, 204]),
        ("artifacts", json!({ "name": "a.txt", "contentType": "text/plain", "body": "x" }), [201, 201]),
        ("children", json!({ "slug": "child", "input": { "a": 1 }, "ordinal": 0 }), [201, 200]),
        ("finalize", json!({ "status": "completed", "output": 1, "workerId": "w1" }), [204, 204]),
    ];
    for (suffix, body, statuses) in calls {
        let mut answers = Vec::new();
        for status in statuses {
            let answer = world.control(&session, Method::POST, suffix, Some(body.clone())).await;
            assert_eq!(answer.status, status, "{suffix} {answer:?}");
            answers.push(answer);
        }
        for key in ["id", "childRunId"] {
            assert_eq!(answers[0].body[key], answers[1].body[key], "{suffix}");
        }
    }
    let detail = world.run(&session.run).await;
    assert_eq!(detail["runtimeSeconds"], 7);
    // The relay meters brokered turns; a report is kept and not summed.
    assert_eq!(detail["tokensIn"], 0);
    let events = events(&world, &session.run).await;
    assert_eq!(events.iter().filter(|event| event["text"] == "once").count(), 1);
    let runs = world.api(Method::GET, "/v1/orgs/local/runs", None).await;
    assert_eq!(runs.body["runs"].as_array().unwrap().len(), 2);
}

async fn events(world: &World, run: &str) -> Vec<Value> {
    let answer = world.api(Method::GET, &format!("/v1/runs/{run}/events"), None).await;
    assert_eq!(answer.status, 200);
    answer.body["events"].as_array().unwrap().iter().map(|row| row["event"].clone()).collect()
}

#[tokio::test]
async fn a_finalize_repeats_whatever_its_body_and_ends_the_session() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    assert_eq!(world.send_frames(&session, &[line(&session.run, 1_000_001, "in time")]).await.status, 204);
    let error = json!({ "code": "BOOM", "message": "it broke", "hint": "mend it" });
    let body = json!({ "status": "failed", "output": { "error": error }, "workerId": "w1" });
    let answer = world.control(&session, Method::POST, "finalize", Some(body)).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(world.finalize(&session, json!("another")).await.status, 204);
    let detail = world.run(&session.run).await;
    assert_eq!(detail["status"], "failed");
    assert_eq!(detail["error"], error);
    assert!(detail.get("output").is_none(), "{detail}");

    // For a minute the session may deliver its last telemetry, and nothing else.
    let late = world.send_frames(&session, &[line(&session.run, 1_000_002, "late")]).await;
    assert_eq!(late.status, 204);
    assert!(events(&world, &session.run).await.iter().any(|event| event["text"] == "late"));
    for (method, suffix, body) in [
        (Method::POST, "renew", Some(json!({ "workerId": "w1", "leaseSeconds": 300 }))),
        (Method::POST, "usage", Some(json!({ "runtimeSeconds": 1, "identifier": "x" }))),
        (Method::POST, "secrets/resolve", Some(json!({ "name": "X" }))),
        (Method::POST, "claim", Some(json!({ "workerId": "w1", "leaseSeconds": 300 }))),
        (Method::GET, "version", None),
    ] {
        let answer = world.control(&session, method, suffix, body).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (409, "CONFLICT"), "{suffix}");
    }
    world.boot.advance(Duration::from_secs(61));
    let late = world.send_frames(&session, &[line(&session.run, 1_000_003, "too late")]).await;
    assert_eq!(late.status, 409);
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
}

#[tokio::test]
async fn b18_91_a_displaced_session_is_refused_everywhere_and_changes_nothing() {
    let world = World::start().await;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("w", json!({ "permissions": { "secrets": [{ "name": "S" }] } })).await;
    let secret = json!({ "name": "S", "value": "value" });
    world.api(Method::POST, "/v1/orgs/local/secrets", Some(secret)).await;
    let old = world.session(&workflow, Value::Null).await;
    world.boot.advance(Duration::from_secs(400));
    world.until_status(&old.run, "pending").await;
    let new = world.session_of(&world.runner().await).await;
    assert_eq!(new.run, old.run);
    let before = (world.run(&old.run).await, events(&world, &old.run).await);

    let document = trestle_server::openapi();
    let mut refused = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        let Some(suffix) = template.strip_prefix("/runner/v1/runs/{run}/") else { continue };
        let suffix = suffix.replace("{child}", "c").replace("{artifact}", "a").replace("{seq}", "1");
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let body = (method == Method::POST).then(|| body_of(&old, &suffix));
            let answer = world.control(&old, method.clone(), &suffix, body).await;
            match suffix.as_str() {
                "cancel" => assert_eq!(answer.body, json!({ "cancelRequested": true })),
                "credit" => assert_eq!(answer.body, json!({ "funded": true })),
                _ => {
                    assert_eq!(answer.status, 409, "{method} {suffix} {answer:?}");
                    assert_eq!(answer.code(), "CONFLICT");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 35, "{refused}");
    assert_eq!(before, (world.run(&old.run).await, events(&world, &old.run).await));
    assert_eq!(world.finalize(&new, json!("new")).await.status, 204);
    assert_eq!(world.run(&old.run).await["output"], "new");
}

/// A body that the row would take from a session that holds the run.
fn body_of(session: &Session, suffix: &str) -> Value {
    match suffix {
        "claim" | "renew" => json!({ "workerId": "w1", "leaseSeconds": 300 }),
        "release" => json!({ "workerId": "w1", "reason": "crashed" }),
        "finalize" => json!({ "status": "completed", "output": "old", "workerId": "w1" }),
        "usage" => json!({ "runtimeSeconds": 5, "identifier": "i" }),
        "usage/tokens" => json!({ "inputTokens": 1, "outputTokens": 1, "identifier": "i" }),
        "telemetry" => json!({ "frames": [line(&session.run, 9_000_001, "old")] }),
        "inference" => json!({ "messages": [], "tools": [] }),
        "secrets/resolve" => json!({ "name": "S" }),
        "artifacts" => json!({ "name": "a", "contentType": "text/plain", "body": "x" }),
        "artifacts/presign" => json!({ "name": "a", "contentType": "text/plain", "sizeBytes": 1 }),
        "artifacts/commit" => {
            json!({ "s3Key": "k", "name": "a", "contentType": "text/plain", "sizeBytes": 1 })
        }
        "artifacts/a/signed-url" => json!({ "ttlSeconds": 60 }),
        "children" => json!({ "slug": "child", "input": null, "ordinal": 0 }),
        other => rows::valid_body(other),
    }
}

#[tokio::test]
async fn a_second_process_with_the_same_token_does_not_get_the_run() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    world.trigger(&workflow, Value::Null).await;
    let session = world.leased(&runner).await;
    assert_eq!(world.claim_run(&session, Some("one")).await.status, 201);
    assert_eq!(world.claim_run(&session, Some("one")).await.status, 201);
    let second = world.claim_run(&session, Some("two")).await;
    assert_eq!((second.status.as_u16(), second.code()), (409, "CONFLICT"));
}

#[tokio::test]
async fn telemetry_keeps_the_good_frames_of_a_batch() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let run = session.run.as_str();
    let value = r#"{"z":1,"a":12345678901234567890,"s":"\u0000"}"#;
    let exact = format!(
        r#"{{"cursor":1000004,"event":{{"kind":"output","value":{value},"runId":"{run}","turnId":"{run}","seq":4,"t":1}}}}"#
    );
    let frames = [
        line(run, 1_000_001, "good"),
        line("another run", 1_000_005, "bad"),
        frame(run, 1_000_006, json!({ "kind": "unknown" })),
        "not json".to_owned(),
        frame(run, 0, json!({ "kind": "resumed" })),
        frame(run, 1_000_002, json!({ "kind": "run_status", "status": "completed" })),
        frame(run, 1_000_003, json!({ "kind": "phase", "name": "p", "id": "1", "more": 1 })),
        exact,
    ];
    assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    let answer = world.api(Method::GET, &format!("/v1/runs/{run}/events?since=2"), None).await;
    let kinds: Vec<&str> = answer.body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["event"]["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.ends_with(&["program_output", "run_status", "phase", "output"]), "{kinds:?}");
    // Program JSON travels byte for byte.
    assert!(answer.text.contains(&format!(r#""value":{value}"#)), "{}", answer.text);
    // A frame is an observation: it never changes the run.
    assert_eq!(world.run(run).await["status"], "running");
}

#[tokio::test]
async fn a_held_cancel_call_is_answered_when_the_cancel_comes() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let held =
        world.request(Method::GET, &session.path("cancel"), &session.token).header("x-trestle-wait", "25");
    let started = Instant::now();
    let (answer, cancelled) = tokio::join!(async { Answer::of(held.send().await.unwrap()).await }, async {
        world.api(Method::POST, &format!("/v1/runs/{}/cancel", session.run), None).await
    });
    assert_eq!(cancelled.status, 204);
    assert!(cancelled.text.is_empty());
    assert_eq!(answer.body, json!({ "cancelRequested": true }));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(world.run(&session.run).await["status"], "cancelling");
    let again = world.api(Method::POST, &format!("/v1/runs/{}/cancel", session.run), None).await;
    assert_eq!(again.status, 204);

    let body = json!({
        "status": "failed", "workerId": "w1",
        "output": { "error": { "code": "RUN_ABORTED", "message": "cancelled", "reason": "cancelled" } },
    });
    let answer = world.control(&session, Method::POST, "finalize", Some(body)).await;
    assert_eq!(answer.status, 204);
    assert_eq!(world.run(&session.run).await["status"], "cancelled");
    let again = world.api(Method::POST, &format!("/v1/runs/{}/cancel", session.run), None).await;
    assert_eq!(again.status, 204);
}

#[tokio::test]
async fn a_wait_is_bounded_and_must_be_a_number() {
    let world = World::start_with(|config| config.intervals.wait_max_ms = 5).await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let call = |wait: &'static str| {
        world.request(Method::GET, &session.path("cancel"), &session.token).header("x-trestle-wait", wait)
    };
    let answer = Answer::of(call("3600").send().await.unwrap()).await;
    assert_eq!(answer.body, json!({ "cancelRequested": false }));
    let answer = Answer::of(call("soon").send().await.unwrap()).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_run_without_a_process_is_cancelled_at_once() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let run = world.trigger(&workflow, Value::Null).await;
    world.api(Method::POST, &format!("/v1/runs/{run}/cancel"), None).await;
    assert_eq!(world.run(&run).await["status"], "cancelled");
    // Also between the two claims.
    let runner = world.runner().await;
    let second = world.trigger(&workflow, Value::Null).await;
    let session = world.leased(&runner).await;
    assert_eq!(session.run, second);
    world.api(Method::POST, &format!("/v1/runs/{second}/cancel"), None).await;
    assert_eq!(world.run(&second).await["status"], "cancelled");
    assert_eq!(world.claim_run(&session, None).await.status, 409);
}

#[tokio::test]
async fn b17_87_a_lapsed_lease_gives_the_run_to_another_and_three_end_it() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let run = world.trigger(&workflow, Value::Null).await;
    for attempt in 1..=3 {
        let session = world.session_of(&world.runner().await).await;
        assert_eq!(session.run, run);
        assert_eq!(world.run(&run).await["attempt"], attempt);
        world.boot.advance(Duration::from_secs(400));
        world.until_status(&run, if attempt < 3 { "pending" } else { "failed" }).await;
    }
    assert_eq!(world.run(&run).await["error"]["code"], "CRASHED");
}

#[tokio::test]
async fn children_have_one_identity_and_tell_their_parent_of_their_end() {
    let world = World::start().await;
    let child = world.deploy("child", json!({})).await;
    let workflow = world.deploy("parent", json!({})).await;
    let parent = world.session(&workflow, Value::Null).await;
    let start = |body: Value| world.control(&parent, Method::POST, "children", Some(body));
    let first = start(json!({ "slug": "child", "input": { "a": 1, "b": 2.0 }, "ordinal": 0 })).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.body["status"], "pending");
    assert_eq!(first.body["output"], Value::Null);
    assert!(first.body.as_object().unwrap().contains_key("outputSchema"));
    let id = first.body["childRunId"].as_str().unwrap().to_owned();
    let same = start(json!({ "slug": "child", "input": { "b": 2, "a": 1 }, "ordinal": 0 })).await;
    assert_eq!((same.status.as_u16(), &same.body["childRunId"]), (200, &json!(id)));
    let next = start(json!({ "slug": "child", "input": { "a": 1, "b": 2 }, "ordinal": 1 })).await;
    assert_eq!(next.status, 201);
    let keyed = json!({ "slug": "child", "input": 1, "idempotencyKey": "k" });
    assert_eq!(start(keyed.clone()).await.status, 201);
    assert_eq!(start(keyed).await.status, 200);
    let other = start(json!({ "slug": "child", "input": 2, "idempotencyKey": "k" })).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "IDEMPOTENCY_KEY_REUSED"));
    let unknown = start(json!({ "slug": "nobody", "input": 1 })).await;
    assert_eq!((unknown.status.as_u16(), unknown.code()), (404, "NOT_FOUND"));
    world.api(Method::POST, &format!("/v1/workflows/{child}/disable"), None).await;
    let disabled = start(json!({ "slug": "child", "input": 77 })).await;
    assert_eq!((disabled.status.as_u16(), disabled.code()), (409, "WORKFLOW_DISABLED"));
    assert_eq!(start(json!({ "slug": "child", "input": { "a": 1, "b": 2 } })).await.status, 200);

    let detail = world.run(&id).await;
    assert_eq!(detail["parentRunId"], parent.run.as_str());
    let watched = world
        .request(Method::GET, &parent.path(&format!("children/{id}")), &parent.token)
        .header("x-trestle-wait", "25");
    let started = Instant::now();
    let (answer, ()) = tokio::join!(async { Answer::of(watched.send().await.unwrap()).await }, async {
        let runner = world.runner().await;
        let session = world.session_of(&runner).await;
        assert_eq!(session.run, id);
        assert_eq!(world.finalize(&session, json!([1, 2])).await.status, 204);
    });
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["id"], id.as_str());
    assert_eq!((&answer.body["status"], &answer.body["output"]), (&json!("completed"), &json!([1, 2])));

    for wrong in ["unknown", parent.run.as_str()] {
        let answer = world.control(&parent, Method::GET, &format!("children/{wrong}"), None).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"));
    }
    let listed = world.api(Method::GET, &format!("/v1/orgs/local/runs?parent={}", parent.run), None).await;
    assert_eq!(listed.body["runs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_released_run_is_queued_again_at_once() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let body = json!({ "workerId": "w1", "reason": "shutdown" });
    let answer = world.control(&session, Method::POST, "release", Some(body)).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(world.run(&session.run).await["status"], "pending");
    let second = world.session_of(&session.runner).await;
    assert_eq!(second.run, session.run);
}

/// Peers left children of a stopped workflow without an end (B18): here each has exactly one, however its parent went.
#[tokio::test]
async fn b18_94_every_child_of_a_lost_parent_has_exactly_one_end() {
    let world = World::start().await;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("parent", json!({})).await;
    let parent = world.session(&workflow, Value::Null).await;
    let start = |ordinal: u64, mode: &str| {
        let body = json!({ "slug": "child", "input": null, "ordinal": ordinal, "mode": mode });
        let (world, parent) = (&world, &parent);
        async move {
            let answer = world.control(parent, Method::POST, "children", Some(body)).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.body["childRunId"].as_str().unwrap().to_owned()
        }
    };
    let (running, leased, ended) = (start(0, "call").await, start(1, "call").await, start(2, "call").await);
    let running_session = world.session_of(&world.runner().await).await;
    let leased_session = world.leased(&world.runner().await).await;
    let ended_session = world.session_of(&world.runner().await).await;
    assert_eq!([&running_session.run, &leased_session.run, &ended_session.run], [&running, &leased, &ended]);
    assert_eq!(world.finalize(&ended_session, json!("in time")).await.status, 204);
    let (waiting, alone) = (start(3, "call").await, start(4, "run").await);
    let body = json!({
        "status": "failed", "workerId": "w1",
        "output": { "error": { "code": "PROGRAM_ERROR", "message": "the parent broke" } },
    });
    assert_eq!(world.control(&parent, Method::POST, "finalize", Some(body)).await.status, 204);
    let cancel = world.control(&running_session, Method::GET, "cancel", None).await;
    assert_eq!(cancel.body, json!({ "cancelRequested": true }));
    // Its process is killed instead of ending it.
    world.boot.advance(Duration::from_secs(400));
    for (child, status) in
        [(&running, "cancelled"), (&leased, "cancelled"), (&waiting, "cancelled"), (&ended, "completed")]
    {
        world.until_status(child, status).await;
        let ends = events(&world, child).await.into_iter().filter(|event| {
            let status = event["status"].as_str().unwrap_or_default();
            event["kind"] == "run_status" && ["completed", "failed", "cancelled"].contains(&status)
        });
        assert_eq!(ends.count(), 1, "{child}");
    }
    assert_eq!(world.run(&alone).await["status"], "pending");
    for late in [&running_session, &leased_session] {
        assert_eq!(world.finalize(late, json!("late")).await.status, 409);
    }
}
