//! The network resets the connection after the server has executed a call and before its answer arrives: for every
//! call that changes something, the caller's repeat changes nothing more and gets the answer that was lost.

use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use trestle_testkit::fault_proxy::FaultProxy;
use trestle_testkit::model_server::{ModelServer, Script, ScriptTurn};

use crate::world::{Answer, Session, World, artifact, declaration, line};

/// A world behind a network that loses answers.
struct Lossy {
    world: World,
    proxy: FaultProxy,
    /// Its script has one turn: a second request for it would fail.
    _model: ModelServer,
}

impl Lossy {
    async fn new() -> Self {
        let model = ModelServer::start(Script::of(vec![ScriptTurn::text("once")])).await.unwrap();
        let url = model.openai_url();
        let world = World::start_with(|config| {
            config.model.model = Some("scripted".to_owned());
            config.model.url = Some(url);
        })
        .await;
        let proxy = FaultProxy::start(world.handle.address()).await.unwrap();
        Self { world, proxy, _model: model }
    }

    /// Makes a call whose answer is lost, and makes it again.
    async fn repeat(&self, method: Method, path: &str, token: &str, body: Value) -> Answer {
        let key = format!("key of {path}");
        let request = |url: &str| {
            let request = self.world.client.request(method.clone(), format!("{url}{path}"));
            let request = request.bearer_auth(token).header("idempotency-key", &key);
            if body.is_null() { request } else { request.json(&body) }
        };
        self.proxy.lose_answers(&format!("{method} {path} HTTP/1.1"), 1);
        let lost = request(&self.proxy.url()).send().await;
        assert!(lost.is_err(), "{path}: {lost:?}");
        assert_eq!(self.proxy.waiting_traps(), 0, "{path}");
        Answer::of(request(self.world.handle.url()).send().await.unwrap()).await
    }

    async fn post(&self, path: &str, token: &str, body: Value, status: u16) -> Answer {
        let answer = self.repeat(Method::POST, path, token, body).await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
        answer
    }

    async fn control(&self, session: &Session, suffix: &str, body: Value, status: u16) -> Answer {
        self.post(&session.path(suffix), &session.token, body, status).await
    }
}

fn rows(answer: &Answer, key: &str) -> usize {
    answer.body[key].as_array().unwrap().len()
}

#[tokio::test]
async fn a_lost_answer_of_any_call_of_a_run_process_changes_nothing_twice() {
    let lossy = Lossy::new().await;
    let world = &lossy.world;
    world.deploy("child", json!({})).await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    world.trigger(&workflow, Value::Null).await;
    let assignment = world.offer(&runner).await;
    let claim = format!("/runner/v1/pool/assignments/{assignment}/claim");
    let claimed = lossy.post(&claim, &runner.token, declaration(), 200).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let session = Session {
        runner: runner.clone(),
        run: text(&claimed.body["run_id"]),
        lease: text(&claimed.body["lease_id"]),
        token: text(&claimed.body["control_plane"]["run_token"]),
        api_token: text(&claimed.body["control_plane"]["api_token"]),
    };
    lossy.control(&session, "claim", json!({ "workerId": "w1", "leaseSeconds": 90 }), 201).await;
    lossy.control(&session, "renew", json!({ "workerId": "w1", "leaseSeconds": 90 }), 200).await;
    let beat = json!({ "lease_id": session.lease, "run_id": session.run, "phase": "running" });
    lossy.post("/runner/v1/pool/heartbeat", &runner.token, beat, 200).await;
    lossy.control(&session, "usage", json!({ "runtimeSeconds": 7, "identifier": "u:0" }), 204).await;
    let tokens = json!({ "inputTokens": 3, "outputTokens": 4, "model": "x/m", "identifier": "t:0", "brokered": false });
    lossy.control(&session, "usage/tokens", tokens, 204).await;
    let frames = json!({ "frames": [line(&session.run, 1_000_001, "once")] });
    lossy.control(&session, "telemetry", frames, 204).await;
    let inline = json!({ "name": "a.txt", "contentType": "text/plain", "body": "x" });
    let written = lossy.control(&session, "artifacts", inline, 201).await;
    assert!(!written.body["id"].as_str().unwrap().is_empty());
    let announced = json!({ "name": "b.bin", "contentType": "application/octet-stream", "sizeBytes": 3 });
    let presigned = lossy.control(&session, "artifacts/presign", announced.clone(), 201).await.body;
    let upload = presigned["uploadUrl"].as_str().unwrap();
    let path = upload.strip_prefix(world.handle.url()).unwrap();
    lossy.proxy.lose_answers(&format!("PUT {path} HTTP/1.1"), 1);
    for (base, lost) in [(lossy.proxy.url(), true), (world.handle.url().to_owned(), false)] {
        let put =
            world.client.put(format!("{base}{path}")).header("content-type", "application/octet-stream");
        assert_eq!(put.body("abc").send().await.is_err(), lost);
    }
    let mut commit = announced;
    commit["s3Key"] = presigned["s3Key"].clone();
    lossy.control(&session, "artifacts/commit", commit, 201).await;
    let child = json!({ "slug": "child", "input": { "a": 1 }, "ordinal": 0 });
    let child = lossy.control(&session, "children", child, 200).await;
    let question = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": [], "turnKey": "t1" });
    let turn = lossy.control(&session, "inference", question, 200).await;
    let last: Value = serde_json::from_str(turn.text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["t"], &last["turn"]["text"]), (&json!("result"), &json!("once")));
    let end = json!({ "status": "completed", "output": [1], "workerId": "w1" });
    lossy.control(&session, "finalize", end, 204).await;

    let detail = world.run(&session.run).await;
    assert_eq!((&detail["status"], &detail["output"]), (&json!("completed"), &json!([1])));
    assert_eq!((&detail["attempt"], &detail["runtimeSeconds"]), (&json!(1), &json!(7)));
    let run = trestle_contract::RunId::new(session.run.clone()).unwrap();
    let turns = trestle_store::Store::list_turns(world.store.as_ref(), &run).await.unwrap();
    assert_eq!(turns.len(), 2, "a report and a relayed turn: {turns:?}");
    // What this process sent may overtake itself, so its last frame is waited for.
    let events = loop {
        let events = world.api(Method::GET, &format!("/v1/runs/{}/events", session.run), None).await;
        if events.body["done"] == true {
            break events;
        }
    };
    assert_eq!(events.text.matches("\"once\"").count(), 1);
    assert_eq!(events.text.matches("\"completed\"").count(), 1);
    let artifacts = world.api(Method::GET, &format!("/v1/runs/{}/artifacts", session.run), None).await;
    assert_eq!(rows(&artifacts, "artifacts"), 2);
    let children = world.api(Method::GET, &format!("/v1/orgs/local/runs?parent={}", session.run), None).await;
    assert_eq!(rows(&children, "runs"), 1);
    assert_eq!(children.body["runs"][0]["id"], child.body["childRunId"]);
}

#[tokio::test]
async fn a_lost_answer_to_giving_a_run_back_costs_no_attempt() {
    let lossy = Lossy::new().await;
    let world = &lossy.world;
    let workflow = world.deploy("w", json!({})).await;
    // Either by the run process or by its runner. The repeat finds the run given back.
    let session = world.session(&workflow, Value::Null).await;
    let answer =
        lossy.control(&session, "release", json!({ "workerId": "w1", "reason": "crashed" }), 409).await;
    assert_eq!(answer.code(), "CONFLICT");
    assert_eq!(world.run(&session.run).await["attempt"], 2);
    let again = world.session_of(&session.runner).await;
    assert_eq!(again.run, session.run);
    let body = json!({ "lease_id": again.lease, "run_id": again.run, "reason": "died" });
    let answer = lossy.repeat(Method::POST, "/runner/v1/pool/release", &again.runner.token, body).await;
    assert!(matches!(answer.status.as_u16(), 204 | 409), "{answer:?}");
    assert_eq!(world.run(&session.run).await["attempt"], 3);
    // A registration token is used up by the first answer; the runner asks for another one.
    let path = "/v1/orgs/local/runner-pools/default/registration-tokens";
    let token = world.api(Method::POST, path, None).await.body["registrationToken"].clone();
    let body = json!({ "registration_token": token, "name": "box", "labels": [], "runner_version": "0.1.0" });
    let before = rows(&world.api(Method::GET, "/v1/orgs/local/runners", None).await, "runners");
    let answer = lossy.post("/runner/v1/register", "none", body, 401).await;
    assert!(answer.hint().contains("trestle runner token"), "{answer:?}");
    assert_eq!(rows(&world.api(Method::GET, "/v1/orgs/local/runners", None).await, "runners"), before + 1);
    let gone = lossy.repeat(Method::POST, "/runner/v1/pool/deregister", &again.runner.token, json!({})).await;
    assert!(matches!(gone.status.as_u16(), 204 | 401), "{gone:?}");
    assert_eq!(rows(&world.api(Method::GET, "/v1/orgs/local/runners", None).await, "runners"), before);
}

#[tokio::test]
async fn a_lost_answer_of_any_call_of_the_administrator_changes_nothing_twice() {
    let lossy = Lossy::new().await;
    let world = &lossy.world;
    let admin = world.admin.as_str();
    let bytes = artifact("w", json!({}), &[]);
    let asked = json!({ "digest": hex::encode(Sha256::digest(&bytes)), "size": bytes.len() });
    lossy.post("/v1/orgs/local/workflows/artifact-upload-url", admin, asked, 201).await;
    let reference = world.upload(&bytes).await;
    let deployed = lossy.post("/v1/orgs/local/workflows", admin, json!({ "artifact": reference }), 201).await;
    let workflow = deployed.body["workflow"]["id"].as_str().unwrap();
    let triggered = lossy
        .post(&format!("/v1/orgs/local/workflows/{workflow}/runs"), admin, json!({ "input": 1 }), 201)
        .await;
    let run = triggered.body["run"]["id"].as_str().unwrap();
    lossy.post(&format!("/v1/runs/{run}/cancel"), admin, Value::Null, 204).await;
    for action in ["disable", "enable"] {
        lossy.post(&format!("/v1/workflows/{workflow}/{action}"), admin, Value::Null, 200).await;
    }
    let secret = lossy.post("/v1/orgs/local/secrets", admin, json!({ "name": "S", "value": "v" }), 201).await;
    let secret = secret.body["secret"]["id"].as_str().unwrap();
    lossy.post(&format!("/v1/secrets/{secret}/rotate"), admin, json!({ "value": "w" }), 200).await;
    let provider = json!({ "name": "p", "source": "openai", "apiKey": "k" });
    lossy.post("/v1/orgs/local/inference-providers", admin, provider, 201).await;
    let enrolled = json!({ "pool": "default", "name": "box", "labels": [], "version": "1" });
    lossy.post("/v1/orgs/local/runners", admin, enrolled, 201).await;
    lossy.post("/v1/orgs/local/runner-pools/default/registration-tokens", admin, Value::Null, 201).await;
    for (path, key, count) in [
        ("/v1/orgs/local/workflows", "workflows", 1),
        ("/v1/orgs/local/runs", "runs", 1),
        ("/v1/orgs/local/secrets", "secrets", 1),
        ("/v1/orgs/local/inference-providers", "providers", 1),
        ("/v1/orgs/local/runners", "runners", 1),
    ] {
        assert_eq!(rows(&world.api(Method::GET, path, None).await, key), count, "{path}");
    }
    for path in [
        "/v1/orgs/local/inference-providers/p".to_owned(),
        format!("/v1/secrets/{secret}"),
        format!("/v1/workflows/{workflow}"),
    ] {
        let answer = lossy.repeat(Method::DELETE, &path, admin, Value::Null).await;
        assert_eq!(answer.status, 204, "{path} {answer:?}");
    }
}
