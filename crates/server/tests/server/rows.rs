//! Every row of the Runner Control API (docs/protocol/control.md §16): what it takes, who may call it, what it answers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Session, World};

/// A digest as packs have.
const PACK: &str = "afb5feb30ff53f6981de0db5d18452bc8a26388f946bca7d290eebe0086bb752";

/// What a row without an engine answers.
enum Interim {
    Body(Value),
    Empty,
    Refused(u16, &'static str),
}

struct Later {
    method: Method,
    suffix: &'static str,
    interim: Interim,
}

fn later() -> Vec<Later> {
    let row = |method: Method, suffix, interim| Later { method, suffix, interim };
    let get = |suffix, interim| row(Method::GET, suffix, interim);
    let post = |suffix, interim| row(Method::POST, suffix, interim);
    let refused = |suffix| post(suffix, Interim::Refused(422, "UNSUPPORTED"));
    let body = |suffix, value| post(suffix, Interim::Body(value));
    vec![
        post("liveview", Interim::Empty),
        get("liveview/wanted", Interim::Body(json!({ "wanted": false }))),
        refused("oidc/token"),
        post("mcp/token", Interim::Refused(403, "FORBIDDEN")),
        refused("tools/web_search"),
        body("workspace/reserve", json!({ "ok": false, "reason": "not_eligible" })),
        body("workspace/manifest/read", json!({ "manifest": null, "generation": null })),
        refused("workspace/manifest/write"),
        body("workspace/packs/exists", json!({ "existing": [] })),
        body("workspace/packs/presign", json!({ "urls": {} })),
        refused("workspace/packs/delete"),
        body("workspace/hydrate-url", json!({ "url": null })),
        body("workspace/persist-url", json!({ "url": null })),
        refused("schedules"),
        refused("inputs"),
        get("inputs/1", Interim::Refused(422, "UNSUPPORTED")),
        get("journal/1", Interim::Refused(404, "NOT_FOUND")),
        refused("journal"),
        refused("suspend"),
    ]
}

/// Rows that have an engine.
const ENGINES: [&str; 19] = [
    "claim",
    "renew",
    "release",
    "finalize",
    "version",
    "usage",
    "usage/tokens",
    "credit",
    "cancel",
    "telemetry",
    "inference",
    "inference/providers",
    "secrets/resolve",
    "artifacts",
    "artifacts/presign",
    "artifacts/commit",
    "artifacts/{artifact}/signed-url",
    "children",
    "children/{child}",
];

/// A body that a row without an engine takes.
pub(crate) fn valid_body(suffix: &str) -> Value {
    match suffix {
        "liveview" => json!({ "frames": ["AA=="] }),
        "oidc/token" => json!({ "audience": "a" }),
        "mcp/token" => json!({ "serverUrl": "http://x", "invalidateToken": "t" }),
        "tools/web_search" => {
            json!({ "query": "q", "max_results": 3, "include_content": true, "search_depth": "basic" })
        }
        "workspace/reserve" => json!({ "totalBytes": 1 }),
        "workspace/manifest/write" => json!({ "manifest": "{}", "expected": null, "totalBytes": 1 }),
        "workspace/packs/exists" | "workspace/packs/delete" => json!({ "digests": [PACK] }),
        "workspace/packs/presign" => json!({ "op": "put", "digests": [PACK] }),
        "workspace/persist-url" => json!({ "sizeBytes": 1 }),
        "schedules" => json!({ "slug": "w", "input": null, "cron": "* * * * *" }),
        "inputs" => json!({ "seq": 1, "humanInput": { "key": "k", "prompt": "p" } }),
        "journal" => json!({ "seq": 1, "kind": "step", "fingerprint": "f", "label": "l", "result": 1 }),
        "suspend" => {
            json!({ "reason": "sleep", "seq": 1, "fingerprint": "f", "durationMs": 60_000, "workerId": "w1" })
        }
        _ => json!({}),
    }
}

async fn ask(world: &World, session: &Session, row: &Later, token: &str) -> Answer {
    // The last two take no body at all.
    let bare = row.method == Method::GET || row.suffix == "workspace/hydrate-url";
    let mut body = valid_body(row.suffix);
    body["zzz"] = json!("a member of a later version");
    world.call(row.method.clone(), &session.path(row.suffix), token, (!bare).then_some(body)).await
}

#[tokio::test]
async fn rows_without_an_engine_answer_in_the_right_shape() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    for row in later() {
        for _ in 0..2 {
            let answer = ask(&world, &session, &row, &session.token).await;
            match &row.interim {
                Interim::Refused(status, code) => {
                    assert_eq!((answer.status.as_u16(), answer.code()), (*status, *code), "{}", row.suffix);
                    assert!(!answer.hint().is_empty(), "{}", row.suffix);
                }
                Interim::Empty => {
                    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""), "{}", row.suffix);
                }
                Interim::Body(body) => {
                    assert_eq!((answer.status.as_u16(), &answer.body), (200, body), "{}", row.suffix);
                }
            }
        }
    }
    // Together with the rows that have an engine, these are all.
    let document = trestle_server::openapi();
    for template in document["paths"].as_object().unwrap().keys() {
        let Some(suffix) = template.strip_prefix("/runner/v1/runs/{run}/") else { continue };
        let plain = suffix.replace("{seq}", "1");
        let known = ENGINES.contains(&suffix) || later().iter().any(|row| row.suffix == plain);
        assert!(known, "{suffix} is in no table");
    }
}

#[tokio::test]
async fn rows_without_an_engine_ask_for_the_token_of_their_run() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let other = world.session(&workflow, Value::Null).await;
    for row in later() {
        for (token, status) in [
            ("nonsense", 401),
            (session.api_token.as_str(), 401),
            (session.runner.token.as_str(), 401),
            (world.admin.as_str(), 401),
            (other.token.as_str(), 403),
        ] {
            let answer = ask(&world, &session, &row, token).await;
            assert_eq!(answer.status, status, "{} {answer:?}", row.suffix);
            assert!(!answer.code().is_empty());
        }
    }
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    for row in later() {
        let answer = ask(&world, &session, &row, &session.token).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (409, "CONFLICT"), "{}", row.suffix);
    }
}

/// Bodies that a row must refuse, beside those that are no JSON object.
fn malformed(suffix: &str) -> Vec<Value> {
    let digests = vec![PACK; 257];
    match suffix {
        "claim" | "renew" => vec![
            json!({ "workerId": "w" }),
            json!({ "leaseSeconds": 1 }),
            json!({ "workerId": "w", "leaseSeconds": 0 }),
            json!({ "workerId": "", "leaseSeconds": 1 }),
            json!({ "workerId": "w", "leaseSeconds": 1.5 }),
        ],
        "release" => vec![json!({ "workerId": "w" }), json!({ "reason": "r" })],
        "finalize" => vec![
            json!({ "status": "cancelled", "output": null, "workerId": "w" }),
            json!({ "status": "completed", "output": null }),
            json!({ "output": null, "workerId": "w" }),
        ],
        "usage" => vec![json!({ "runtimeSeconds": 0, "identifier": "i" }), json!({ "runtimeSeconds": 1 })],
        "usage/tokens" => vec![
            json!({ "inputTokens": -1, "outputTokens": 0, "identifier": "i" }),
            json!({ "inputTokens": 1, "outputTokens": 0, "identifier": "" }),
        ],
        "telemetry" | "liveview" => vec![json!({}), json!({ "frames": "x" }), json!({ "frames": [1] })],
        "inference" => vec![
            json!({ "messages": [] }),
            json!({ "tools": [] }),
            json!({ "messages": {}, "tools": [] }),
            json!({ "messages": [], "tools": [] }),
            json!({ "messages": [], "tools": [], "model": 1 }),
            json!({ "messages": [], "tools": [], "provider": {} }),
            json!({ "messages": [{ "role": "system", "content": "x" }], "tools": [] }),
        ],
        "secrets/resolve" => vec![json!({}), json!({ "name": "" }), json!({ "name": 1 })],
        "oidc/token" => vec![json!({}), json!({ "audience": 1 })],
        "mcp/token" => vec![json!({}), json!({ "serverUrl": 1 })],
        "tools/web_search" => vec![
            json!({}),
            json!({ "query": "" }),
            json!({ "query": "q".repeat(2001) }),
            json!({ "query": "q", "search_depth": "deep" }),
            json!({ "query": "q", "max_results": -1 }),
        ],
        "artifacts" => vec![
            json!({ "name": "", "contentType": "c", "body": "b" }),
            json!({ "name": "n".repeat(256), "contentType": "c", "body": "b" }),
            json!({ "name": "n", "contentType": "", "body": "b" }),
            json!({ "name": "n", "contentType": "c" }),
            json!({ "name": "n", "contentType": "c", "body": "b", "encoding": "hex" }),
            json!({ "name": "n", "contentType": "c", "body": "%%", "encoding": "base64" }),
            json!({ "name": "n", "contentType": "c", "body": "b", "metadata": [] }),
        ],
        "artifacts/presign" => vec![
            json!({ "name": "n", "contentType": "c" }),
            json!({ "name": "n", "contentType": "c", "sizeBytes": -1 }),
        ],
        "artifacts/commit" => vec![json!({ "name": "n", "contentType": "c", "sizeBytes": 1 })],
        "artifacts/a/signed-url" => {
            vec![json!({ "ttlSeconds": 0 }), json!({ "ttlSeconds": 604_801 }), json!({ "ttlSeconds": "60" })]
        }
        "workspace/reserve" => vec![json!({}), json!({ "totalBytes": -1 })],
        "workspace/manifest/write" => {
            vec![json!({}), json!({ "manifest": {}, "expected": null, "totalBytes": 1 })]
        }
        "workspace/packs/exists" | "workspace/packs/delete" => {
            vec![json!({}), json!({ "digests": ["a"] }), json!({ "digests": digests })]
        }
        "workspace/packs/presign" => vec![
            json!({ "digests": [PACK] }),
            json!({ "op": "head", "digests": [PACK] }),
            json!({ "op": "get", "digests": digests }),
        ],
        "workspace/persist-url" => vec![json!({}), json!({ "sizeBytes": "1" })],
        "children" => vec![
            json!({}),
            json!({ "slug": "" }),
            json!({ "slug": "child", "ordinal": -1 }),
            json!({ "slug": "child", "mode": "spawn" }),
        ],
        "schedules" => vec![
            json!({ "slug": "w" }),
            json!({ "slug": "w", "cron": "* * * * *", "rate": "1h" }),
            json!({ "cron": "* * * * *" }),
            json!({ "slug": "w", "at": [] }),
        ],
        "inputs" => vec![
            json!({}),
            json!({ "seq": 0, "humanInput": { "key": "k", "prompt": "p" } }),
            json!({ "seq": 1, "humanInput": { "key": "", "prompt": "p" } }),
            json!({ "seq": 1 }),
        ],
        "journal" => vec![
            json!({ "seq": 1 }),
            json!({ "seq": 0, "kind": "step", "fingerprint": "f", "label": "l" }),
            json!({ "seq": 1, "kind": "guess", "fingerprint": "f", "label": "l" }),
        ],
        "suspend" => vec![
            json!({ "seq": 1 }),
            json!({ "reason": "tired", "seq": 1, "fingerprint": "f", "workerId": "w" }),
            json!({ "reason": "sleep", "seq": 1, "fingerprint": "f", "workerId": "w", "durationMs": 0 }),
        ],
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn malformed_bodies_are_refused_on_every_row_and_change_nothing() {
    let world = World::start().await;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("w", json!({ "permissions": { "secrets": [{ "name": "S" }] } })).await;
    let session = world.session(&workflow, Value::Null).await;
    let before =
        (world.run(&session.run).await, world.api(Method::GET, "/v1/orgs/local/runs", None).await.body);
    let document = trestle_server::openapi();
    let (mut rows, mut tried) = (0, 0);
    for (template, item) in document["paths"].as_object().unwrap() {
        let Some(suffix) = template.strip_prefix("/runner/v1/runs/{run}/") else { continue };
        let suffix = suffix.replace("{artifact}", "a");
        // This one takes no body.
        if item.get("post").is_none() || suffix == "workspace/hydrate-url" {
            continue;
        }
        rows += 1;
        let mut bodies: Vec<String> =
            ["[", "[]", "null", "\"text\"", "{\"a\":", "\u{0}"].map(str::to_owned).to_vec();
        let own = malformed(&suffix);
        assert!(!own.is_empty() || suffix == "workspace/manifest/read", "{suffix} is in no table");
        bodies.extend(own.iter().map(Value::to_string));
        for body in bodies {
            tried += 1;
            let request = world
                .request(Method::POST, &session.path(&suffix), &session.token)
                .header("content-type", "application/json")
                .body(body.clone());
            let answer = Answer::of(request.send().await.unwrap()).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, "VALIDATION_FAILED"),
                "{suffix} {body}"
            );
        }
    }
    assert!(rows >= 24 && tried > 200, "{rows} rows, {tried} bodies");
    for numbered in ["inputs", "journal"] {
        for seq in ["0", "-1", "1.5", "x", "99999999999999999999"] {
            let answer = world.control(&session, Method::GET, &format!("{numbered}/{seq}"), None).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, "VALIDATION_FAILED"),
                "{numbered}/{seq}"
            );
        }
    }
    let after =
        (world.run(&session.run).await, world.api(Method::GET, "/v1/orgs/local/runs", None).await.body);
    assert_eq!(before, after);
}

#[tokio::test]
async fn every_row_is_bounded_by_its_cap() {
    let world = World::start_with(|config| {
        config.limits.body = 10_000;
        config.limits.artifact_body = 20_000;
        config.limits.large_body = 30_000;
    })
    .await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let large = ["telemetry", "finalize", "inference", "journal", "suspend", "workspace/manifest/write"];
    let document = trestle_server::openapi();
    let mut rows = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        let Some(suffix) = template.strip_prefix("/runner/v1/runs/{run}/") else { continue };
        if item.get("post").is_none() || suffix == "workspace/hydrate-url" {
            continue;
        }
        rows += 1;
        let cap = match suffix {
            "artifacts" => 20_000,
            large_row if large.contains(&large_row) => 30_000,
            _ => 10_000,
        };
        let suffix = suffix.replace("{artifact}", "a");
        for (length, beyond) in [(cap, false), (cap + 1, true)] {
            let request = world
                .request(Method::POST, &session.path(&suffix), &session.token)
                .body(format!("{{{}", " ".repeat(length - 1)));
            let answer = Answer::of(request.send().await.unwrap()).await;
            assert_eq!(answer.status == 413, beyond, "{suffix} {length} {answer:?}");
            assert_eq!(answer.code(), if beyond { "PAYLOAD_TOO_LARGE" } else { "VALIDATION_FAILED" });
        }
    }
    assert!(rows >= 24, "{rows}");
}
