//! The pool on a bad day: machines that lose runs, are removed, are too old; and its administration.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use trestle_store::{Store as _, StoreOptions};

use crate::world::{Answer, Runner, Session, World};

const RELEASE: &str = "/runner/v1/pool/release";
const BEAT: &str = "/runner/v1/pool/heartbeat";

/// A world in which an empty poll is answered at once.
async fn impatient() -> World {
    World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 20;
        config.intervals.poll_hold_max_ms = 20;
        config.intervals.sweep_ms = 20;
    })
    .await
}

async fn give_back(world: &World, session: &Session, reason: &str) {
    let body = json!({ "lease_id": session.lease, "run_id": session.run, "reason": reason });
    let answer = world.call(Method::POST, RELEASE, &session.runner.token, Some(body)).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

async fn beat(world: &World, token: &str, lease: &str, run: &str) -> Answer {
    let body = json!({ "lease_id": lease, "run_id": run, "phase": "running" });
    world.call(Method::POST, BEAT, token, Some(body)).await
}

async fn row(world: &World, runner: &Runner) -> Value {
    let listed = world.api(Method::GET, "/v1/orgs/local/runners", None).await;
    let rows = listed.body["runners"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == runner.id.as_str()).unwrap().clone()
}

#[tokio::test]
async fn a_runner_that_lost_two_attempts_of_a_run_leaves_it_to_another() {
    let world = impatient().await;
    let workflow = world.deploy("w", json!({})).await;
    let (broken, healthy) = (world.runner().await, world.runner().await);
    let run = world.trigger(&workflow, Value::Null).await;
    for _ in 0..2 {
        let session = world.session_of(&broken).await;
        assert_eq!(session.run, run);
        give_back(&world, &session, "died").await;
    }
    assert_eq!(world.poll(&broken).await.body, json!({ "assignment": null }), "it would lose a third one");
    let session = world.session_of(&healthy).await;
    assert_eq!(session.run, run);
    assert_eq!(world.run(&run).await["attempt"], 3);
    assert_eq!(world.finalize(&session, json!(1)).await.status, 204);
    // Other runs it still gets.
    let next = world.trigger(&workflow, Value::Null).await;
    assert_eq!(world.session_of(&broken).await.run, next);
}

#[tokio::test]
async fn what_is_handed_back_on_purpose_is_no_lost_attempt() {
    let world = impatient().await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    let run = world.trigger(&workflow, Value::Null).await;
    for _ in 0..6 {
        let session = world.session_of(&runner).await;
        assert_eq!(session.run, run);
        give_back(&world, &session, "handback").await;
    }
    let session = world.session_of(&runner).await;
    assert_eq!(world.finalize(&session, json!(1)).await.status, 204);
    assert_eq!(world.run(&run).await["status"], "completed");
}

#[tokio::test]
async fn five_leases_lost_in_a_row_drain_a_runner_with_a_message_and_it_can_be_resumed() {
    let world = impatient().await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    for _ in 0..5 {
        let run = world.trigger(&workflow, Value::Null).await;
        let session = world.leased(&runner).await;
        world.boot.advance(Duration::from_secs(301));
        world.until_status(&session.run, "pending").await;
        let mut changes = world.store.changes();
        while world.run(&session.run).await["attempt"] == 1 {
            let _ = changes.recv().await;
        }
        // Nobody is to wait for the lost ones.
        for lost in [run, session.run] {
            world.api(Method::POST, &format!("/v1/runs/{lost}/cancel"), None).await;
        }
    }
    assert_eq!(world.poll(&runner).await.body, json!({ "assignment": null, "action": "drain" }));
    let shown = row(&world, &runner).await;
    assert_eq!(shown["status"], "draining");
    assert!(shown["drainReason"].as_str().unwrap().contains("5 leases in a row"), "{shown}");

    let path = format!("/v1/runners/{}/resume", runner.id);
    assert_eq!(world.api(Method::POST, &path, None).await.status, 204);
    assert_eq!(world.poll(&runner).await.body, json!({ "assignment": null }));
    assert!(row(&world, &runner).await.get("drainReason").is_none());
}

#[tokio::test]
async fn a_server_that_starts_again_lets_its_own_runner_work_whatever_drained_it() {
    let world = impatient().await;
    let (own, other) = (world.runner().await, world.runner().await);
    for runner in [&own, &other] {
        world.api(Method::POST, &format!("/v1/runners/{}/drain", runner.id), None).await;
    }
    let embedded = own.id.clone();
    let world = world
        .restart(|config| {
            config.embedded_runner = Some(embedded);
            config.intervals.poll_hold_min_ms = 20;
            config.intervals.poll_hold_max_ms = 20;
        })
        .await;
    assert_eq!(world.poll(&own).await.body, json!({ "assignment": null }));
    assert_eq!(world.poll(&other).await.body["action"], "drain");
}

#[tokio::test]
async fn a_runner_that_is_removed_in_the_middle_of_a_run_loses_it_at_once() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let path = format!("/v1/runners/{}", session.runner.id);
    assert_eq!(world.api(Method::DELETE, &path, None).await.status, 204);

    assert_eq!(beat(&world, &session.runner.token, &session.lease, &session.run).await.status, 401);
    let renewed =
        world.control(&session, Method::POST, "renew", Some(json!({ "workerId": "w1", "leaseSeconds": 90 })));
    assert_eq!(renewed.await.status, 409);
    let cancel = world.control(&session, Method::GET, "cancel", None).await;
    assert_eq!(cancel.body["cancelRequested"], true, "{cancel:?}");
    assert_eq!(world.finalize(&session, json!("late")).await.status, 409);
    let run = world.run(&session.run).await;
    assert_eq!((&run["status"], &run["attempt"]), (&json!("pending"), &json!(2)));

    let second = world.session_of(&world.runner().await).await;
    assert_eq!(second.run, session.run);
    assert_eq!(world.finalize(&second, json!("second")).await.status, 204);
    let run = world.run(&session.run).await;
    assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!("second")));
}

#[tokio::test]
async fn the_floor_of_versions_holds_for_each_call_and_not_for_what_was_registered() {
    let world = World::start_with(|config| config.contract_floor = 2).await;
    let enrolled = json!({ "pool": "default", "name": "new", "labels": [], "version": "99.0.0" });
    let answer = world.api(Method::POST, "/v1/orgs/local/runners", Some(enrolled)).await;
    let token = answer.body["runnerToken"].as_str().unwrap();
    for path in ["/runner/v1/pool/poll", "/runner/v1/pool/assignments/x/claim"] {
        let old = json!({ "contract_version": 1, "runner_version": "99.0.0" });
        let answer = world.call(Method::POST, path, token, Some(old)).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (403, "FORBIDDEN"), "{path}");
        assert!(answer.hint().contains("update"), "{answer:?}");
    }
    // Calls without a declaration are not judged by one.
    assert_eq!(beat(&world, token, "l", "r").await.status, 409);
    let answer = world.call(Method::POST, "/runner/v1/pool/deregister", token, Some(json!({}))).await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn a_beat_for_a_lease_that_is_not_the_callers_is_a_lost_lease() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let stranger = world.runner().await;
    for (token, lease, run) in [
        (&stranger.token, session.lease.as_str(), session.run.as_str()),
        (&session.runner.token, session.lease.as_str(), "01UNKNOWN"),
        (&session.runner.token, "01UNKNOWN", session.run.as_str()),
    ] {
        let answer = beat(&world, token, lease, run).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (409, "CONFLICT"));
        let body = json!({ "lease_id": lease, "run_id": run, "reason": "died" });
        if lease != session.lease || *token == stranger.token {
            let answer = world.call(Method::POST, RELEASE, token, Some(body)).await;
            assert_eq!(answer.status, 409, "{answer:?}");
        }
    }
    let strict =
        json!({ "lease_id": session.lease, "run_id": session.run, "phase": "running", "runner_id": "x" });
    let answer = world.call(Method::POST, BEAT, &session.runner.token, Some(strict)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
    assert_eq!(world.run(&session.run).await["status"], "running");
}

#[tokio::test]
async fn an_offer_is_worth_nothing_to_a_drained_runner_or_one_of_another_pool() {
    let options = StoreOptions { offer_ms: 60_000, ..StoreOptions::default() };
    let world = World::start_in(tempfile::tempdir().unwrap(), options, |_| {}).await;
    let workflow = world.deploy("w", json!({})).await;
    let (drained, next, foreign) =
        (world.runner().await, world.runner().await, world.runner_with("other", &[]).await);
    let run = world.trigger(&workflow, Value::Null).await;
    let assignment = world.offer(&drained).await;
    assert_eq!(world.claim(&foreign, &assignment).await.status, 409);
    world.api(Method::POST, &format!("/v1/runners/{}/drain", drained.id), None).await;
    assert_eq!(world.claim(&drained, &assignment).await.status, 409);
    // Its offer is free for the others at once, not after the offer's time.
    assert_eq!(world.session_of(&next).await.run, run);
}

#[tokio::test]
async fn a_registration_token_dies_after_an_hour() {
    let world = World::start().await;
    let path = "/v1/orgs/local/runner-pools/default/registration-tokens";
    let minted = world.api(Method::POST, path, None).await;
    world.boot.advance(Duration::from_secs(3601));
    let body = json!({ "registration_token": minted.body["registrationToken"], "name": "late" });
    let answer = world.call(Method::POST, "/runner/v1/register", "none", Some(body)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (401, "UNAUTHORIZED"));
}

#[tokio::test]
async fn runners_are_enrolled_shown_drained_and_removed_by_people() {
    let world = World::start().await;
    let enrol = |org: &str, body: Value| {
        let path = format!("/v1/orgs/{org}/runners");
        let world = &world;
        async move { world.api(Method::POST, &path, Some(body)).await }
    };
    let body = json!({
        "pool": "gpu/eu", "name": "box", "labels": ["b", "a"], "os": "macos", "arch": "arm64", "version": "1.2.3",
        "unknown": "passed over",
    });
    let enrolled = enrol("local", body.clone()).await;
    assert_eq!(enrolled.status, 201, "{enrolled:?}");
    let id = enrolled.body["runner"]["id"].as_str().unwrap().to_owned();
    let runner = Runner { id, token: enrolled.body["runnerToken"].as_str().unwrap().to_owned() };
    assert!(runner.token.starts_with("bwkr_"));
    assert_eq!(enrol("another", body.clone()).await.status, 404);
    for bad in [
        json!({ "name": "box" }),
        json!({ "pool": "", "name": "box" }),
        json!({ "pool": "p", "name": "x".repeat(121) }),
        json!({ "pool": "p", "name": "box", "labels": vec!["l"; 33] }),
    ] {
        let answer = enrol("local", bad).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
    }
    let shown = row(&world, &runner).await;
    let mut keys: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected =
        ["arch", "createdAt", "id", "labels", "lastSeenAt", "name", "os", "poolId", "status", "version"];
    assert_eq!(keys, expected);
    assert_eq!(shown["labels"], json!(["a", "b"]));
    assert_eq!((&shown["os"], &shown["arch"]), (&json!("macos"), &json!("arm64")));
    // Both ways to make a pool find the same one.
    let path = "/v1/orgs/local/runner-pools/gpu%2Feu/registration-tokens";
    assert_eq!(world.api(Method::POST, path, None).await.status, 201);
    let pools = world.api(Method::GET, "/v1/orgs/local/runner-pools", None).await;
    let names: Vec<&str> =
        pools.body["pools"].as_array().unwrap().iter().map(|pool| pool["name"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "gpu/eu").count(), 1);

    for (method, path) in [
        (Method::POST, "/v1/runners/01UNKNOWN/drain"),
        (Method::POST, "/v1/runners/01UNKNOWN/resume"),
        (Method::DELETE, "/v1/runners/01UNKNOWN"),
    ] {
        let answer = world.api(method, path, None).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"), "{path}");
    }
    let path = format!("/v1/runners/{}", runner.id);
    assert_eq!(world.api(Method::DELETE, &path, None).await.status, 204);
    assert_eq!(world.api(Method::DELETE, &path, None).await.status, 404);
    assert_eq!(world.poll(&runner).await.status, 401);
}

#[tokio::test]
async fn the_status_of_a_runner_says_what_it_does() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    assert_eq!(row(&world, &session.runner).await["status"], "busy");
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    assert_eq!(row(&world, &session.runner).await["status"], "idle");
    world.boot.advance(Duration::from_secs(600));
    assert_eq!(row(&world, &session.runner).await["status"], "offline");
    let before = row(&world, &session.runner).await["lastSeenAt"].as_i64().unwrap();
    world.trigger(&workflow, Value::Null).await;
    world.offer(&session.runner).await;
    let shown = row(&world, &session.runner).await;
    assert_eq!((&shown["status"], &shown["version"]), (&json!("idle"), &json!("0.3.40")));
    assert!(shown["lastSeenAt"].as_i64().unwrap() >= before + 600_000, "a poll is a sign of life");
}

/// B3-21: machines that were registered, offered something, and never heard of again.
#[tokio::test]
async fn b3_21_runners_that_are_gone_keep_no_run_from_those_that_are_there() {
    let options = StoreOptions { offer_ms: 50, ..StoreOptions::default() };
    let world = World::start_in(tempfile::tempdir().unwrap(), options, |_| {}).await;
    let workflow = world.deploy("w", json!({})).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        let gone = world.runner().await;
        world.runner().await;
        runs.push(world.trigger(&workflow, Value::Null).await);
        // It takes the offer with it.
        world.offer(&gone).await;
    }
    let there = world.runner().await;
    let mut executed = Vec::new();
    for _ in 0..4 {
        let session = world.session_of(&there).await;
        assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
        executed.push(session.run);
    }
    executed.sort();
    runs.sort();
    assert_eq!(executed, runs);
}

#[tokio::test]
async fn b9_51_a_lost_run_frees_the_slot_that_it_used() {
    let world = impatient().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    assert_eq!(row(&world, &session.runner).await["status"], "busy");
    world.boot.advance(Duration::from_secs(301));
    world.until_status(&session.run, "pending").await;
    world.api(Method::POST, &format!("/v1/runs/{}/cancel", session.run), None).await;
    assert_eq!(world.poll(&session.runner).await.status, 200);
    assert_eq!(row(&world, &session.runner).await["status"], "idle");
}

/// Nothing falls between a look at the queue and the parking of the poll: runs that come at any moment of a
/// poll's life are found by it.
#[tokio::test]
async fn runs_that_come_while_a_poll_is_being_parked_are_found() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    for round in 0..40_u64 {
        let (answer, run) = tokio::join!(world.poll(&runner), async {
            for _ in 0..round % 8 {
                tokio::task::yield_now().await;
            }
            world.trigger(&workflow, Value::Null).await
        });
        let offer = &answer.body["assignment"];
        // The shortest hold is 18 s: an answer without an offer would be one that was missed.
        assert_eq!(offer["run_id"], run.as_str(), "round {round}");
        let assignment = offer["assignment_id"].as_str().unwrap();
        assert_eq!(world.claim(&runner, assignment).await.status, 200);
        world.api(Method::POST, &format!("/v1/runs/{run}/cancel"), None).await;
    }
}
