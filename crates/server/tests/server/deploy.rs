//! Deploys.

use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::world::{Answer, World, artifact, pack};

#[tokio::test]
async fn a_deploy_makes_versions_only_when_something_changed() {
    let world = World::start().await;
    let bytes = artifact("demo", json!({ "title": "Demo" }), &[(".bw-src/src/index.ts", "// hi\n")]);
    let first = world.try_deploy(&bytes, json!({})).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.body["workflow"]["slug"], "demo");
    assert_eq!(first.body["workflow"]["currentVersionId"], first.body["version"]["id"]);
    assert_eq!(first.body["version"]["number"], 1);
    assert_eq!(first.body["warnings"], json!([]));
    let id = first.body["workflow"]["id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 26);

    let same = world.try_deploy(&bytes, json!({})).await;
    assert_eq!(same.status, 200);
    assert_eq!(same.body["version"], first.body["version"]);
    // The same files, packed differently: the same version.
    let repacked = repack(&bytes);
    assert_ne!(repacked, bytes);
    let same = world.try_deploy(&repacked, json!({})).await;
    assert_eq!(same.body["version"], first.body["version"]);

    let changed = artifact("demo", json!({ "title": "Demo 2" }), &[]);
    let reference = world.upload(&changed).await;
    let path = format!("/v1/workflows/{id}");
    let second = world.api(Method::PATCH, &path, Some(json!({ "artifact": reference }))).await;
    assert_eq!(second.status, 200, "{second:?}");
    assert_eq!(second.body["version"]["number"], 2);

    let detail = world.api(Method::GET, &path, None).await;
    assert_eq!(detail.body["manifest"]["title"], "Demo 2");
    let numbers: Vec<&Value> =
        detail.body["versions"].as_array().unwrap().iter().map(|row| &row["number"]).collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(detail.body["program"]["entry"], "index.mjs");
    assert_eq!(detail.body["program"]["files"], json!([]));
    let back = world.try_deploy(&bytes, json!({})).await;
    assert_eq!(back.body["version"], first.body["version"]);
    let detail = world.api(Method::GET, &path, None).await;
    let shown = json!([{ "path": "src/index.ts", "content": "// hi\n" }]);
    assert_eq!(detail.body["program"]["files"], shown);
}

/// The same files in another compression.
fn repack(bytes: &[u8]) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut tar).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

#[tokio::test]
async fn a_workflow_keeps_its_slug() {
    let world = World::start().await;
    let id = world.deploy("first", json!({})).await;
    let reference = world.upload(&artifact("second", json!({}), &[])).await;
    let path = format!("/v1/workflows/{id}");
    let answer = world.api(Method::PATCH, &path, Some(json!({ "artifact": reference }))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["workflow"]["slug"], "first");
    let warnings = answer.body["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["field"] == "slug"), "{warnings:?}");
    let missing =
        world.api(Method::PATCH, "/v1/workflows/01JUNKNOWN", Some(json!({ "artifact": reference }))).await;
    assert_eq!((missing.status.as_u16(), missing.code()), (404, "NOT_FOUND"));
}

#[tokio::test]
async fn a_put_with_other_bytes_than_announced_is_refused() {
    let world = World::start().await;
    let bytes = artifact("demo", json!({}), &[]);
    let asked = json!({ "digest": hex::encode(Sha256::digest(&bytes)), "size": bytes.len() });
    let path = "/v1/orgs/local/workflows/artifact-upload-url";
    let answer = world.api(Method::POST, path, Some(asked.clone())).await;
    let url = answer.body["uploadUrl"].as_str().unwrap();
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let put = |bytes: Vec<u8>| world.client.put(url).header("content-type", "application/gzip").body(bytes);
    let refused = Answer::of(put(other).send().await.unwrap()).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (400, "VALIDATION_FAILED"));
    assert!(refused.message().contains("SHA-256"), "{refused:?}");

    let mut reference = asked.clone();
    reference["entry"] = json!("index.mjs");
    reference["sdkVersion"] = json!("*");
    let body = json!({ "artifact": reference });
    let early = world.api(Method::POST, "/v1/orgs/local/workflows", Some(body.clone())).await;
    assert_eq!((early.status.as_u16(), early.code()), (400, "VALIDATION_FAILED"));
    assert!(early.hint().contains("PUT"), "{early:?}");
    assert_eq!(put(bytes).send().await.unwrap().status(), 200);
    let deployed = world.api(Method::POST, "/v1/orgs/local/workflows", Some(body)).await;
    assert_eq!(deployed.status, 201, "{deployed:?}");
    // A late repeat of the PUT finds its bytes in use.
    let bytes = artifact("demo", json!({}), &[]);
    assert_eq!(put(bytes).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_broken_artifact_is_named() {
    let world = World::start().await;
    let answer = world.try_deploy(b"no archive", json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
    assert!(!answer.hint().is_empty());
    for (descriptor, named) in [
        ("{", "line"),
        (r#"{"slug":"a b","triggers":[{"kind":"manual"}]}"#, "slug"),
        (r#"{"slug":"a","triggers":[]}"#, "triggers"),
        (r#"{"slug":"a","triggers":[{"kind":"manual"}],"timeout":5}"#, "timeout"),
        (r#"{"slug":"a","triggers":[{"kind":"manual"}],"input_schema":{}}"#, "input_schema"),
        (r#"{"slug":"a","triggers":[{"kind":"cron","expr":"* *"}]}"#, "expr"),
        (r#"{"slug":"a","triggers":[{"kind":"manual"}],"workspace":{"key":"${{ input.x"}}"#, "workspace.key"),
    ] {
        let answer = world.try_deploy(&pack(descriptor, &[]), json!({})).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"), "{descriptor}");
        assert!(answer.message().contains(named), "{descriptor}: {}", answer.message());
    }
    let listed = world.api(Method::GET, "/v1/orgs/local/workflows", None).await;
    assert_eq!(listed.body, json!({ "workflows": [] }));
}

#[tokio::test]
async fn fields_that_narrow_a_run_are_never_ignored() {
    let world = World::start().await;
    for (slug, more, field) in [
        ("a", json!({ "egress": { "level": "none" } }), "egress"),
        ("b", json!({ "container": { "image": "x" } }), "container"),
        ("c", json!({ "concurrency": { "mode": "serial" } }), "concurrency"),
        ("d", json!({ "concurrency": { "mode": "latest_wins" } }), "concurrency"),
        ("e", json!({ "callable_by": "users_only" }), "callable_by"),
        ("f", json!({ "workspace": { "key": "k" } }), "workspace.key"),
    ] {
        let bytes = artifact(slug, more, &[]);
        let refused = world.try_deploy(&bytes, json!({})).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (422, "UNSUPPORTED"), "{field}");
        assert!(refused.message().contains(field), "{field}: {}", refused.message());
        assert!(refused.hint().contains("--allow-unsupported"), "{refused:?}");
        let allowed = world.try_deploy(&bytes, json!({ "allowUnsupported": true })).await;
        assert_eq!(allowed.status, 201, "{allowed:?}");
        let warnings = allowed.body["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| warning["field"] == field), "{field}: {warnings:?}");

        let id = allowed.body["workflow"]["id"].as_str().unwrap();
        let run = world.trigger(id, json!({})).await;
        let events = world.api(Method::GET, &format!("/v1/runs/{run}/events"), None).await;
        assert!(
            events.text.contains("program_output") && events.text.contains(field),
            "{field}: {}",
            events.text
        );
    }
    let bytes = artifact("g", json!({ "egress": { "level": "none" } }), &[]);
    let reference = world.upload(&bytes).await;
    let path = "/v1/orgs/local/workflows?allowUnsupported=true";
    let allowed = world.api(Method::POST, path, Some(json!({ "artifact": reference }))).await;
    assert_eq!(allowed.status, 201, "{allowed:?}");
}

#[tokio::test]
async fn fields_that_only_add_something_deploy_with_a_warning_each() {
    let world = World::start().await;
    let more = json!({
        "triggers": [{ "kind": "manual" }, { "kind": "cron", "expr": "0 6 * * *" }],
        "recording": true,
        "workspace": { "persist": true },
        "notifications": [{ "on": "failure", "channel": "email", "target": "a@b.c" }],
        "env": { "TOKEN": "${{ secrets.TOKEN }}" },
        "permissions": { "secrets": [{ "name": "TOKEN" }] },
    });
    let answer = world.try_deploy(&artifact("w", more, &[]), json!({})).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let fields: Vec<&str> = answer.body["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|warning| warning["field"].as_str())
        .collect();
    for field in ["triggers.1", "recording", "workspace.persist", "notifications", "env.TOKEN"] {
        assert!(fields.contains(&field), "{field} {fields:?}");
    }
    let listed = world.api(Method::GET, "/v1/orgs/local/workflows", None).await;
    assert_eq!(listed.body["workflows"][0]["triggerKinds"], json!(["manual", "cron"]));
}

#[tokio::test]
async fn an_artifact_beyond_its_size_gets_no_address() {
    let world = World::start_with(|config| config.limits.program = 100).await;
    let asked = json!({ "digest": "0".repeat(64), "size": 101 });
    let path = "/v1/orgs/local/workflows/artifact-upload-url";
    let answer = world.api(Method::POST, path, Some(asked)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (413, "PAYLOAD_TOO_LARGE"));
    let asked = json!({ "digest": "xyz", "size": 1 });
    assert_eq!(world.api(Method::POST, path, Some(asked)).await.status, 400);
}
