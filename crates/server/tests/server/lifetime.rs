//! Start, stop, restart.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use trestle_server::{Config, Server};
use trestle_store::{Blobs, DataDir, SqliteStore, Store as _, StoreOptions};

use crate::world::{Answer, World, line};

#[tokio::test]
async fn a_start_writes_private_keys_and_says_where_it_is() {
    let world = World::start_with(|config| config.version = "9.9.9".to_owned()).await;
    let file: Value =
        serde_json::from_slice(&std::fs::read(world.path().join("server.json")).unwrap()).unwrap();
    assert_eq!(file["url"], world.handle.url());
    assert_eq!((&file["pid"], &file["version"]), (&json!(std::process::id()), &json!("9.9.9")));
    for name in ["admin-token", "master.key"] {
        let mode = std::fs::metadata(world.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert!(world.admin.starts_with("bwk_"));
    for path in ["/healthz", "/readyz"] {
        let answer = Answer::of(world.client.get(world.url(path)).send().await.unwrap()).await;
        assert_eq!(answer.body, json!({ "status": "ok", "version": "9.9.9" }));
    }
    let path = world.path().join("server.json");
    world.handle.stop();
    world.handle.stopped().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_taken_port_is_named_with_a_hint() {
    let world = World::start().await;
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let store = Arc::new(SqliteStore::open(&data, StoreOptions::default()).await.unwrap());
    let config =
        Config { data: directory.path().to_owned(), listen: world.handle.address(), ..Config::default() };
    let error = Server::start(config, store, Blobs::local(&data.blobs()).unwrap()).await.err().unwrap();
    assert_eq!(error.code().as_str(), "LISTEN_FAILED");
    assert!(error.to_string().contains(&world.handle.address().to_string()), "{error}");
    assert!(error.hint().unwrap().contains("--listen"));
}

#[tokio::test]
async fn a_restart_keeps_tokens_runs_and_leases() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, json!({ "a": 1 })).await;
    let admin = world.admin.clone();
    let world = world.restart(|_| {}).await;
    assert_eq!(world.admin, admin);
    let renewed = world
        .control(&session, Method::POST, "renew", Some(json!({ "workerId": "w1", "leaseSeconds": 90 })))
        .await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(world.finalize(&session, json!(2)).await.status, 204);
    assert_eq!(world.run(&session.run).await["output"], 2);
    assert_eq!(world.poll_is_known(&session.runner.token).await, 200);
}

impl World {
    async fn poll_is_known(&self, token: &str) -> u16 {
        let path = "/runner/v1/pool/deregister";
        let answer = self.call(Method::POST, path, token, Some(json!({ "x": 1 }))).await;
        if answer.status == 400 { 200 } else { answer.status.as_u16() }
    }
}

#[tokio::test]
async fn runs_of_the_embedded_runner_start_over_right_after_a_restart() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let id = session.runner.id.clone();
    let world = world.restart(|config| config.embedded_runner = Some(id)).await;
    assert_eq!(world.run(&session.run).await["status"], "pending");
    let second = world.session_of(&session.runner).await;
    assert_eq!(second.run, session.run);
    assert_eq!(world.finalize(&session, Value::Null).await.status, 409);
}

#[tokio::test]
async fn a_stop_lets_go_of_polls_and_streams_at_once() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let run = world.trigger(&workflow, Value::Null).await;
    let idle = world.runner_with("empty", &[]).await;
    let mut stream =
        world.request(Method::GET, &format!("/v1/runs/{run}/stream"), &world.admin).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let started = Instant::now();
    let (answer, ()) = tokio::join!(world.poll(&idle), async {
        world.until_parked(1).await;
        world.handle.stop();
    });
    // Not `drain`: the runner is to poll again when the server is back.
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, r#"{"assignment":null}"#));
    while let Ok(Some(_)) = stream.chunk().await {}
    world.handle.stopped().await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(world.client.get(world.url("/healthz")).send().await.is_err());
}

/// What was answered with success is on disk: a copy of the files, taken right
/// after the answer as a crash would leave them, holds it.
#[tokio::test]
async fn an_answer_is_given_only_after_its_write_would_survive_a_crash() {
    let world = World::start().await;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let frames = [line(&session.run, 1_000_001, "acknowledged")];
    assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    let crashed = Crashed::of(&world).await;
    let run = trestle_contract::RunId::new(session.run.clone()).unwrap();
    let page = crashed.store.read_events(&run, 0, 100).await.unwrap();
    assert!(page.frames.iter().any(|frame| frame.json.contains("acknowledged")));

    let body = json!({ "slug": "child", "input": 1, "ordinal": 0 });
    let child = world.control(&session, Method::POST, "children", Some(body)).await;
    let body = json!({ "name": "a", "contentType": "text/plain", "body": "kept" });
    let artifact = world.control(&session, Method::POST, "artifacts", Some(body)).await;
    assert_eq!((child.status.as_u16(), artifact.status.as_u16()), (201, 201));
    let crashed = Crashed::of(&world).await;
    let children = crashed.store.children(&run).await.unwrap();
    assert_eq!(children[0].id.as_str(), child.body["childRunId"].as_str().unwrap());
    let artifacts = crashed.store.list_artifacts(&run).await.unwrap();
    assert_eq!(artifacts[0].id.as_str(), artifact.body["id"].as_str().unwrap());
    let bytes = crashed.blobs.read(&artifacts[0].blob_key, 100).await.unwrap();
    assert_eq!(&bytes[..], b"kept");

    assert_eq!(world.finalize(&session, json!("done")).await.status, 204);
    let crashed = Crashed::of(&world).await;
    let row = crashed.store.run(&run).await.unwrap();
    assert_eq!(row.status.as_str(), "completed");
    assert_eq!(row.output.unwrap().get(), r#""done""#);
}

struct Crashed {
    store: SqliteStore,
    blobs: Blobs,
    _data: DataDir,
    _directory: tempfile::TempDir,
}

impl Crashed {
    async fn of(world: &World) -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy(world.path(), directory.path());
        let data = DataDir::open(directory.path()).unwrap();
        let store = SqliteStore::open(&data, StoreOptions::default()).await.unwrap();
        let blobs = Blobs::local(&data.blobs()).unwrap();
        Self { store, blobs, _data: data, _directory: directory }
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        // The lock belongs to the living process, the index of the log is
        // rebuilt from the log.
        if name == "lock" || path.extension().is_some_and(|extension| extension == "db-shm") {
            continue;
        }
        let target = to.join(name);
        if path.is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
