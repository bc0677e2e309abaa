//! The pool API.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, declaration};
use trestle_store::{Store as _, StoreOptions};

async fn registration_token(world: &World, pool: &str) -> String {
    let path = format!("/v1/orgs/local/runner-pools/{pool}/registration-tokens");
    let answer = world.api(Method::POST, &path, None).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let expires = answer.body["expiresAt"].as_i64().unwrap();
    let life = expires - world.store.now_ms();
    assert!((3_590_000..=3_600_000).contains(&life), "{life}");
    answer.body["registrationToken"].as_str().unwrap().to_owned()
}

async fn register(world: &World, body: Value) -> Answer {
    let request = world.client.post(world.url("/runner/v1/register")).json(&body);
    Answer::of(request.send().await.unwrap()).await
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_registration_token_enrols_one_runner_into_its_pool() {
    let world = World::start().await;
    let token = registration_token(&world, "gpu%20pool").await;
    assert!(token.starts_with("bwkreg_"), "{token}");
    let body = json!({
        "registration_token": token, "name": "peerbox", "labels": ["a", "b", "a"],
        "os": "linux", "arch": "x64", "runner_version": "0.3.40",
    });
    let answer = register(&world, body.clone()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(keys(&answer.body), ["poll", "pool", "runner_id", "runner_token"]);
    assert_eq!(keys(&answer.body["poll"]), ["interval_seconds", "url"]);
    assert_eq!(answer.body["pool"], "gpu pool");
    assert!(answer.body["runner_token"].as_str().unwrap().starts_with("bwkr_"));

    let again = register(&world, body).await;
    assert_eq!((again.status.as_u16(), again.code()), (401, "UNAUTHORIZED"));
    assert!(!again.hint().is_empty());

    let listed = world.api(Method::GET, "/v1/orgs/local/runners", None).await;
    let row = &listed.body["runners"][0];
    assert_eq!(row["id"], answer.body["runner_id"]);
    assert_eq!(row["labels"], json!(["a", "b"]));
    assert_eq!((&row["os"], &row["arch"], &row["status"]), (&json!("linux"), &json!("x64"), &json!("idle")));
    let pools = world.api(Method::GET, "/v1/orgs/local/runner-pools", None).await;
    assert_eq!(pools.body["pools"][0]["name"], "gpu pool");
    assert_eq!(pools.body["pools"][0]["id"], row["poolId"]);
}

#[tokio::test]
async fn a_refused_registration_leaves_the_token_usable() {
    let world = World::start().await;
    let token = registration_token(&world, "default").await;
    for wrong in [
        json!({ "registration_token": token, "name": "x", "pool": "default" }),
        json!({ "registration_token": token, "name": "" }),
        json!({ "registration_token": token, "name": "x", "labels": null }),
        json!({ "registration_token": token, "name": "x", "os": "solaris" }),
        json!({ "registration_token": token }),
    ] {
        let answer = register(&world, wrong).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
    }
    let answer = register(&world, json!({ "registration_token": token, "name": "x" })).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let unknown = register(&world, json!({ "registration_token": "bwkreg_x", "name": "x" })).await;
    assert_eq!(unknown.status, 401);
}

#[tokio::test]
async fn of_many_registrations_with_one_token_one_wins() {
    let world = World::start().await;
    let token = registration_token(&world, "default").await;
    let body = json!({ "registration_token": token, "name": "x" });
    let answers = futures_util::future::join_all((0..8).map(|_| register(&world, body.clone()))).await;
    let won = answers.iter().filter(|answer| answer.status == 201).count();
    let lost = answers.iter().filter(|answer| answer.status == 401).count();
    assert_eq!((won, lost), (1, 7));
}

#[tokio::test]
async fn compatibility_is_judged_by_each_declaration() {
    let world = World::start().await;
    let runner = world.runner().await;
    for path in ["/runner/v1/pool/poll", "/runner/v1/pool/assignments/x/claim"] {
        for (body, status) in [
            (json!({}), 403),
            (json!({ "contract_version": 2, "runner_version": "9.0.0" }), 403),
            (json!({ "contract_version": 0, "runner_version": "1" }), 400),
            (json!({ "contract_version": 1 }), 400),
            (json!({ "contract_version": "1", "runner_version": "1" }), 400),
            (json!({ "contract_version": 1, "runner_version": "1", "extra": 1 }), 400),
        ] {
            let answer = world.call(Method::POST, path, &runner.token, Some(body.clone())).await;
            assert_eq!(answer.status, status, "{path} {body} {answer:?}");
            assert!(status != 403 || answer.hint().contains("update"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_parked_poll_is_woken_by_a_new_run() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    let started = Instant::now();
    let (answer, run) = tokio::join!(world.poll(&runner), async {
        world.until_parked(1).await;
        world.trigger(&workflow, json!(1)).await
    });
    // The shortest hold is 18 s.
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(answer.status, 200);
    assert_eq!(keys(&answer.body), ["assignment"]);
    let offer = &answer.body["assignment"];
    assert_eq!(keys(offer), ["assignment_id", "org_id", "queued_at", "run_id", "runs_on"]);
    assert_eq!(offer["run_id"], run.as_str());
    assert_eq!(offer["runs_on"], "boardwalk/linux");
}

#[tokio::test]
async fn a_poll_without_work_ends_with_a_null_assignment() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 5;
        config.intervals.poll_hold_max_ms = 10;
    })
    .await;
    let runner = world.runner().await;
    let answer = world.poll(&runner).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, r#"{"assignment":null}"#));
}

#[tokio::test]
async fn one_run_is_offered_to_one_of_many_polls() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 1_500;
        config.intervals.poll_hold_max_ms = 1_500;
    })
    .await;
    let workflow = world.deploy("w", json!({})).await;
    let mut runners = Vec::new();
    for _ in 0..5 {
        runners.push(world.runner().await);
    }
    let polls = futures_util::future::join_all(runners.iter().map(|runner| world.poll(runner)));
    let (answers, ()) = tokio::join!(polls, async {
        world.until_parked(runners.len()).await;
        world.trigger(&workflow, json!(1)).await;
    });
    let offered = answers.iter().filter(|answer| !answer.body["assignment"].is_null()).count();
    assert_eq!(offered, 1, "{answers:?}");
}

#[tokio::test]
async fn an_offer_that_nobody_claims_is_made_to_the_next() {
    let options = StoreOptions { offer_ms: 100, ..StoreOptions::default() };
    let world = World::start_in(tempfile::tempdir().unwrap(), options, |_| {}).await;
    let workflow = world.deploy("w", json!({})).await;
    let (silent, eager) = (world.runner().await, world.runner().await);
    world.trigger(&workflow, json!(1)).await;
    let first = world.offer(&silent).await;
    let second = world.offer(&eager).await;
    assert_eq!(first, second);
    assert_eq!(world.claim(&eager, &second).await.status, 200);
    assert_eq!(world.claim(&silent, &first).await.status, 409);
}

#[tokio::test]
async fn labels_and_pools_decide_who_is_offered_a_run() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 50;
        config.intervals.poll_hold_max_ms = 50;
    })
    .await;
    let runs_on = json!({ "kind": "self-hosted", "pool": "gpu", "labels": ["a100", "fast"] });
    let workflow = world.deploy("w", json!({ "runs_on": runs_on })).await;
    let elsewhere = world.runner_with("default", &["a100", "fast"]).await;
    let partly = world.runner_with("gpu", &["a100"]).await;
    let fitting = world.runner_with("gpu", &["fast", "a100", "more"]).await;
    world.trigger(&workflow, json!(1)).await;
    assert_eq!(world.poll(&elsewhere).await.body["assignment"], Value::Null);
    assert_eq!(world.poll(&partly).await.body["assignment"], Value::Null);
    let answer = world.poll(&fitting).await;
    assert_eq!(answer.body["assignment"]["runs_on"], runs_on, "{answer:?}");
}

#[tokio::test]
async fn a_hosted_label_with_a_size_is_offered_as_its_plain_label() {
    let world = World::start_with(|config| config.hosted_pool = "cloud".to_owned()).await;
    let runs_on = json!({ "label": "boardwalk/linux-node", "size": "large" });
    let workflow = world.deploy("w", json!({ "runs_on": runs_on })).await;
    let runner = world.runner_with("cloud", &[]).await;
    world.trigger(&workflow, json!(1)).await;
    let answer = world.poll(&runner).await;
    assert_eq!(answer.body["assignment"]["runs_on"], "boardwalk/linux-node");
}

#[tokio::test]
async fn draining_and_removal_reach_a_parked_poll_at_once() {
    let world = World::start().await;
    let runner = world.runner().await;
    let started = Instant::now();
    let (answer, ()) = tokio::join!(world.poll(&runner), async {
        world.until_parked(1).await;
        let path = format!("/v1/runners/{}/drain", runner.id);
        assert_eq!(world.api(Method::POST, &path, None).await.status, 204);
    });
    assert_eq!(answer.body, json!({ "assignment": null, "action": "drain" }));
    assert_eq!(world.poll(&runner).await.body["action"], "drain");

    let removed = world.runner().await;
    let (answer, ()) = tokio::join!(world.poll(&removed), async {
        world.until_parked(1).await;
        let path = format!("/v1/runners/{}", removed.id);
        assert_eq!(world.api(Method::DELETE, &path, None).await.status, 204);
    });
    assert_eq!(answer.status, 401, "{answer:?}");
    assert_eq!(world.poll(&removed).await.status, 401);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn b8_48_a_claim_gives_the_run_to_one_runner_and_its_repeat_the_same_bytes() {
    let world = World::start().await;
    let env = json!({ "REGION": "eu", "KEY": "${{ secrets.KEY }}" });
    let more = json!({ "env": env, "permissions": { "secrets": [{ "name": "KEY" }] } });
    let workflow = world.deploy("w", more).await;
    let (winner, loser) = (world.runner().await, world.runner().await);
    let run = world.trigger(&workflow, json!(1)).await;
    let assignment = world.offer(&winner).await;
    let before = world.store.now_ms();
    let claimed = world.claim(&winner, &assignment).await;
    assert_eq!(claimed.status, 200, "{claimed:?}");
    assert_eq!(
        keys(&claimed.body),
        [
            "byo_providers",
            "control_plane",
            "env",
            "environment_id",
            "lease_expires_at",
            "lease_id",
            "run_id",
            "workflow_id",
            "workspace_key"
        ]
    );
    assert_eq!(keys(&claimed.body["control_plane"]), ["api_token", "base_url", "run_token"]);
    assert_eq!(claimed.body["run_id"], run.as_str());
    assert_eq!(claimed.body["workflow_id"], workflow.as_str());
    assert_eq!(claimed.body["env"], json!({ "REGION": "eu" }));
    assert_eq!(claimed.body["byo_providers"], json!([]));
    assert_eq!(claimed.body["environment_id"], Value::Null);
    assert_eq!(claimed.body["control_plane"]["base_url"], world.handle.url());
    let run_token = claimed.body["control_plane"]["run_token"].as_str().unwrap();
    let api_token = claimed.body["control_plane"]["api_token"].as_str().unwrap();
    assert!(run_token.starts_with("bwrt_") && api_token.starts_with("bwk_"));
    assert_ne!(api_token, world.admin);
    // A foreign runner beats each minute and is given five.
    assert_eq!(claimed.headers["x-trestle-lease-ms"], "300000");
    let length = claimed.body["lease_expires_at"].as_i64().unwrap() - before;
    assert!((300_000..310_000).contains(&length), "{length}");

    let again = world.claim(&winner, &assignment).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.body["control_plane"], claimed.body["control_plane"]);
    assert_eq!(again.body["lease_id"], claimed.body["lease_id"]);
    let other = world.claim(&loser, &assignment).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "CONFLICT"));
    assert_eq!(world.claim(&loser, "01JUNKNOWN").await.status, 409);

    let session = crate::world::Session {
        runner: winner.clone(),
        run,
        lease: String::new(),
        token: run_token.to_owned(),
        api_token: api_token.to_owned(),
    };
    assert_eq!(world.claim_run(&session, None).await.status, 201);
    let late = world.claim(&winner, &assignment).await;
    assert_eq!(late.status, 409, "{late:?}");
}

#[tokio::test]
async fn of_many_claims_of_one_assignment_one_wins() {
    let options = StoreOptions { offer_ms: 1, ..StoreOptions::default() };
    let world = World::start_in(tempfile::tempdir().unwrap(), options, |_| {}).await;
    let workflow = world.deploy("w", json!({})).await;
    let mut runners = Vec::new();
    for _ in 0..6 {
        runners.push(world.runner().await);
    }
    world.trigger(&workflow, json!(1)).await;
    let mut assignment = String::new();
    for runner in &runners {
        assignment = world.offer(runner).await;
    }
    let claims = runners.iter().map(|runner| world.claim(runner, &assignment));
    let answers = futures_util::future::join_all(claims).await;
    let won = answers.iter().filter(|answer| answer.status == 200).count();
    let lost = answers.iter().filter(|answer| answer.status == 409).count();
    assert_eq!((won, lost), (1, 5), "{answers:?}");
}

#[tokio::test]
async fn heartbeats_prolong_the_lease_and_tell_of_cancel_and_drain() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let beat = |phase: &str, lease: &str| {
        let body = json!({ "lease_id": lease, "run_id": session.run, "phase": phase });
        world
            .request(Method::POST, "/runner/v1/pool/heartbeat", &session.runner.token)
            .header("x-trestle-runner", "0.1.0")
            .json(&body)
    };
    let send = |request: reqwest::RequestBuilder| async { Answer::of(request.send().await.unwrap()).await };
    let answer = send(beat("running", &session.lease)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(keys(&answer.body), ["action", "lease_expires_at"]);
    assert_eq!(answer.body["action"], "continue");
    assert_eq!(answer.headers["x-trestle-lease-ms"], "90000");

    let path = format!("/v1/runners/{}/drain", session.runner.id);
    world.api(Method::POST, &path, None).await;
    assert_eq!(send(beat("running", &session.lease)).await.body["action"], "drain");
    world.api(Method::POST, &format!("/v1/runs/{}/cancel", session.run), None).await;
    assert_eq!(send(beat("finalizing", &session.lease)).await.body["action"], "cancel");

    assert_eq!(send(beat("running", "another")).await.status, 409);
    assert_eq!(send(beat("sleeping", &session.lease)).await.status, 400);
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    let late = send(beat("running", &session.lease)).await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "CONFLICT"));
}

#[tokio::test]
async fn a_released_lease_queues_the_run_again_at_once() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let body = json!({ "lease_id": session.lease, "run_id": session.run, "reason": "died" });
    let path = "/runner/v1/pool/release";
    let answer = world.call(Method::POST, path, &session.runner.token, Some(body.clone())).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let run = world.run(&session.run).await;
    assert_eq!((&run["status"], &run["attempt"]), (&json!("pending"), &json!(2)));
    let second = world.session_of(&session.runner).await;
    assert_eq!(second.run, session.run);
    assert_ne!(second.token, session.token);
    // The repeat of the release must not hurt the new lease.
    let again = world.call(Method::POST, path, &session.runner.token, Some(body)).await;
    assert!(matches!(again.status.as_u16(), 204 | 409), "{again:?}");
    assert_eq!(world.run(&session.run).await["status"], "running");
    let mut strange = json!({ "lease_id": second.lease, "run_id": session.run, "reason": "died" });
    strange["extra"] = json!(1);
    assert_eq!(world.call(Method::POST, path, &session.runner.token, Some(strange)).await.status, 400);
}

#[tokio::test]
async fn a_deregistered_runner_is_gone() {
    let world = World::start().await;
    let runner = world.runner().await;
    let path = "/runner/v1/pool/deregister";
    let strange = world.call(Method::POST, path, &runner.token, Some(json!({ "x": 1 }))).await;
    assert_eq!(strange.status, 400);
    let answer = world.call(Method::POST, path, &runner.token, Some(json!({}))).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let answer = world.call(Method::POST, path, &runner.token, Some(json!({}))).await;
    assert_eq!(answer.status, 401);
    assert_eq!(world.poll(&runner).await.status, 401);
    let listed = world.api(Method::GET, "/v1/orgs/local/runners", None).await;
    assert_eq!(listed.body, json!({ "runners": [] }));
    assert_eq!(declaration()["contract_version"], 1);
}

#[tokio::test]
async fn addresses_never_come_from_the_host_header() {
    let world =
        World::start_with(|config| config.public_url = Some("https://t.example/base/".to_owned())).await;
    let token = registration_token(&world, "default").await;
    let answer = Answer::of(
        world
            .client
            .post(world.url("/runner/v1/register"))
            .header("host", "evil.example")
            .header("x-forwarded-host", "evil.example")
            .json(&json!({ "registration_token": token, "name": "x" }))
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(answer.body["poll"]["url"], "https://t.example/base/runner/v1/pool/poll");
    let asked = json!({ "digest": "0".repeat(64), "size": 1 });
    let answer = Answer::of(
        world
            .request(Method::POST, "/v1/orgs/local/workflows/artifact-upload-url", &world.admin)
            .header("host", "evil.example")
            .json(&asked)
            .send()
            .await
            .unwrap(),
    )
    .await;
    let url = answer.body["uploadUrl"].as_str().unwrap();
    assert!(url.starts_with("https://t.example/base/blobs/programs/"), "{url}");
}

/// Peers hung for ever on a poll whose answer was lost, or asked again without
/// any pause (docs/protocol/pool.md §14): here a newer poll of the same runner
/// gets the offer, because the older one may sit on a dead connection.
#[tokio::test]
async fn b8_46_an_offer_goes_to_the_newest_poll_of_a_runner() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 3_000;
        config.intervals.poll_hold_max_ms = 3_000;
    })
    .await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    let old = world.poll(&runner);
    let (old, new) = tokio::join!(old, async {
        world.until_parked(1).await;
        let new = world.poll(&runner);
        let (new, ()) = tokio::join!(new, async {
            world.until_parked(2).await;
            world.trigger(&workflow, json!(1)).await;
        });
        new
    });
    assert!(!new.body["assignment"].is_null(), "{new:?}");
    assert!(old.body["assignment"].is_null(), "{old:?}");
}

/// Load balancers cut what is silent for a minute (B8-49).
#[test]
fn b8_49_a_poll_is_held_for_less_than_half_a_minute() {
    let intervals = trestle_server::Config::default().intervals;
    assert!(intervals.poll_hold_min_ms >= 18_000);
    assert!(intervals.poll_hold_max_ms <= 24_000);
    assert!(intervals.poll_hold_min_ms < intervals.poll_hold_max_ms);
}

#[tokio::test]
async fn a_run_finds_the_one_fitting_poll_among_many() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 4_000;
        config.intervals.poll_hold_max_ms = 4_000;
    })
    .await;
    let runs_on = json!({ "kind": "self-hosted", "labels": ["gpu"] });
    let workflow = world.deploy("w", json!({ "runs_on": runs_on })).await;
    let plain = world.deploy("plain", json!({})).await;
    let mut runners = Vec::new();
    for _ in 0..20 {
        runners.push(world.runner().await);
    }
    let fitting = world.runner_with("default", &["gpu"]).await;
    let polls = futures_util::future::join_all(runners.iter().map(|runner| world.poll(runner)));
    let (answers, found, runs) = tokio::join!(polls, world.poll(&fitting), async {
        world.until_parked(21).await;
        let special = world.trigger(&workflow, json!(1)).await;
        let mut runs = vec![special];
        for _ in 0..10 {
            runs.push(world.trigger(&plain, json!(1)).await);
        }
        runs
    });
    assert_eq!(found.body["assignment"]["run_id"], runs[0].as_str());
    let mut offered: Vec<&str> =
        answers.iter().filter_map(|answer| answer.body["assignment"]["run_id"].as_str()).collect();
    offered.sort_unstable();
    let mut expected: Vec<&str> = runs[1..].iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(offered, expected);
}
