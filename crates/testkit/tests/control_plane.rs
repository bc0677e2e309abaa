//! The fake control plane: what it plays, what it refuses, and what it can do to a call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use trestle_contract::RawJson;
use trestle_contract::inference::InferenceFrame;
use trestle_contract::pool::Phase;
use trestle_testkit::clock::within;
use trestle_testkit::control_plane::{
    ChildOutcome, FakeControlPlane, FakeRun, Fault, Hold, ModelReply, Options, Stage,
};

const LIMIT: Duration = Duration::from_secs(10);

/// A client that speaks as runners and run processes do.
struct Caller {
    http: Client<HttpConnector, Full<Bytes>>,
    url: String,
    token: Option<String>,
}

struct Reply {
    status: u16,
    body: Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl Caller {
    fn new(plane: &FakeControlPlane, token: Option<&str>) -> Self {
        Self {
            http: Client::builder(TokioExecutor::new()).build_http(),
            url: plane.url(),
            token: token.map(str::to_owned),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Reply, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = within(LIMIT, path, self.http.request(request))
            .await
            .unwrap()
            .map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = within(LIMIT, path, response.into_body().collect()).await.unwrap();
        Ok(Reply { status, body: body.map_err(|error| error.to_string())?.to_bytes() })
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.try_post(path, body).await.unwrap()
    }

    async fn try_post(&self, path: &str, body: &Value) -> Result<Reply, String> {
        let headers = [("content-type", "application/json"), ("accept", "application/json")];
        self.send(Method::POST, path, &headers, &body.to_string()).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[("accept", "application/json")], "").await.unwrap()
    }
}

fn declaration() -> Value {
    json!({"contract_version": 1, "runner_version": "0.0.0"})
}

async fn plane() -> FakeControlPlane {
    FakeControlPlane::start(Options::default()).await.unwrap()
}

async fn registered(plane: &FakeControlPlane) -> Caller {
    let reply = Caller::new(plane, None)
        .post(
            "/runner/v1/register",
            &json!({"registration_token": "bwkreg_test", "name": "box", "labels": []}),
        )
        .await;
    assert_eq!(reply.status, 201);
    Caller::new(plane, reply.json()["runner_token"].as_str())
}

/// A run that its process may claim, and a caller with its token.
fn leased(plane: &FakeControlPlane, run_id: &str) -> Caller {
    let token = plane.lease(FakeRun::new(run_id, "program").unwrap());
    Caller::new(plane, Some(&token))
}

fn frame(run_id: &str, cursor: u64, kind: &str) -> String {
    format!(
        r#"{{"cursor":{cursor},"event":{{"runId":"{run_id}","turnId":"{run_id}","seq":{},"t":5,"kind":"{kind}"}}}}"#,
        cursor % 1_000_000
    )
}

#[tokio::test]
async fn a_run_goes_from_registration_to_its_end() {
    let plane = plane().await;
    let runner = registered(&plane).await;
    let mut run = FakeRun::new("run-1", "the program").unwrap();
    run.input = RawJson::parse(r#"{ "big":12345678901234567890123 }"#).unwrap();
    run.secrets.insert("KEY".to_owned(), "value".to_owned());
    plane.queue(run);

    let offer = runner.post("/runner/v1/pool/poll", &declaration()).await.json();
    let assignment = offer["assignment"]["assignment_id"].as_str().unwrap().to_owned();
    let claim_path = format!("/runner/v1/pool/assignments/{assignment}/claim");
    let claim = runner.post(&claim_path, &declaration()).await;
    assert_eq!(claim.status, 200);
    let repeated = runner.post(&claim_path, &declaration()).await.json();
    assert_eq!(repeated["control_plane"], claim.json()["control_plane"]);
    let beat = json!({"lease_id": claim.json()["lease_id"], "run_id": "run-1", "phase": "preparing"});
    assert_eq!(runner.post("/runner/v1/pool/heartbeat", &beat).await.json()["action"], "continue");

    let process = Caller::new(&plane, claim.json()["control_plane"]["run_token"].as_str());
    let run_claim =
        process.post("/runner/v1/runs/run-1/claim", &json!({"workerId": "w", "leaseSeconds": 300})).await;
    assert_eq!(run_claim.status, 201);
    assert!(std::str::from_utf8(&run_claim.body).unwrap().contains(r#"{ "big":12345678901234567890123 }"#));
    assert_eq!(runner.post(&claim_path, &declaration()).await.status, 409);
    let version = process.get("/runner/v1/runs/run-1/version").await.json();
    let download =
        version["program"]["downloadUrl"].as_str().unwrap().strip_prefix(&plane.url()).unwrap().to_owned();
    assert_eq!(Caller::new(&plane, None).get(&download).await.body, "the program");
    let secret = process.post("/runner/v1/runs/run-1/secrets/resolve", &json!({"name": "KEY"})).await;
    assert_eq!(secret.json()["value"], "value");
    let frames = json!({"frames": [frame("run-1", 1, "resumed"), frame("run-1", 2, "resumed")]});
    for _ in 0..2 {
        assert_eq!(process.post("/runner/v1/runs/run-1/telemetry", &frames).await.status, 204);
    }
    let usage = json!({"runtimeSeconds": 7, "identifier": "i"});
    for _ in 0..2 {
        assert_eq!(process.post("/runner/v1/runs/run-1/usage", &usage).await.status, 204);
    }
    let renewed =
        process.post("/runner/v1/runs/run-1/renew", &json!({"workerId": "w", "leaseSeconds": 300})).await;
    assert_eq!(renewed.status, 200);
    let end = json!({"status": "completed", "output": {"n": 1}, "workerId": "w"});
    for _ in 0..2 {
        assert_eq!(process.post("/runner/v1/runs/run-1/finalize", &end).await.status, 204);
    }
    assert_eq!(process.post("/runner/v1/runs/run-1/telemetry", &frames).await.status, 204);
    assert_eq!(runner.post("/runner/v1/pool/heartbeat", &beat).await.status, 409);

    assert_eq!(plane.until_finalized(LIMIT, "run-1").await.unwrap().output.get(), r#"{"n":1}"#);
    assert_eq!(plane.stage("run-1"), Some(Stage::Finalized));
    assert_eq!(plane.events("run-1").iter().map(|(cursor, _)| *cursor).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((plane.runtime_seconds("run-1"), plane.renewals("run-1")), (7, 1));
    assert_eq!(plane.phases("run-1"), [Phase::Preparing]);
    assert_eq!(plane.runners(), ["box"]);
    assert_eq!(plane.violations(), Vec::<String>::new());
    assert_eq!(plane.calls("finalize").len(), 2);
    let polled = &plane.calls("/runner/v1/pool/poll")[0];
    assert!(polled.bearer.as_deref().unwrap().starts_with("bwkr_"));
    assert_eq!((polled.status, polled.json()), (Some(200), declaration()));
    let program = plane.exchanges().into_iter().find(|exchange| exchange.path == download).unwrap();
    assert_eq!(program.bearer, None);
}

#[tokio::test]
async fn requests_that_break_the_protocol_are_refused_and_noted() {
    let plane = plane().await;
    let process = leased(&plane, "run-1");
    leased(&plane, "run-2");
    let claim = "/runner/v1/runs/run-1/claim";
    let good = json!({"workerId": "w", "leaseSeconds": 300});
    let mut unknown_key = good.clone();
    unknown_key["more"] = json!(1);
    assert_eq!(process.post(claim, &unknown_key).await.status, 400);
    assert_eq!(process.post(claim, &json!({"workerId": "w"})).await.status, 400);
    let headers = [("content-type", "text/plain"), ("accept", "application/json")];
    assert_eq!(process.send(Method::POST, claim, &headers, &good.to_string()).await.unwrap().status, 400);
    assert_eq!(process.get("/runner/v1/runs/run-1/nonsense").await.status, 404);
    assert_eq!(process.get("/elsewhere").await.status, 404);
    assert_eq!(process.get("/programs/run-1").await.status, 200);
    assert_eq!(plane.violations().len(), 6, "{:#?}", plane.violations());

    assert_eq!(process.post(claim, &good).await.status, 201);
    let bad_frames = json!({"frames": [
        frame("run-2", 1, "resumed"),
        frame("run-1", 2, "nonsense"),
        frame("run-1", 3, "resumed").replace("\"t\":5", "\"t\":5,\"more\":1"),
        "not json",
        frame("run-1", 4, "resumed"),
    ]});
    assert_eq!(process.post("/runner/v1/runs/run-1/telemetry", &bad_frames).await.status, 204);
    assert_eq!(plane.violations().len(), 10, "{:#?}", plane.violations());
    assert_eq!(plane.events("run-1").len(), 1);

    assert_eq!(Caller::new(&plane, None).post(claim, &good).await.status, 401);
    assert_eq!(process.post("/runner/v1/runs/run-2/claim", &good).await.status, 403);
    assert_eq!(process.post("/runner/v1/pool/poll", &declaration()).await.status, 401);
    let again = json!({"registration_token": "bwkreg_other", "name": "box"});
    assert_eq!(Caller::new(&plane, None).post("/runner/v1/register", &again).await.status, 401);
}

#[tokio::test]
async fn faults_refuse_cut_lose_garble_and_hold_calls() {
    let plane = plane().await;
    let process = leased(&plane, "run-1");
    let claim = "/runner/v1/runs/run-1/claim";
    let body = json!({"workerId": "w", "leaseSeconds": 300});

    plane.fault("claim", Fault::Refuse(503), 1);
    assert_eq!(process.post(claim, &body).await.status, 503);
    plane.fault("claim", Fault::CutBefore, 1);
    assert!(process.try_post(claim, &body).await.is_err());
    assert_eq!(plane.stage("run-1"), Some(Stage::Leased));
    plane.fault("claim", Fault::LoseAnswer, 1);
    assert!(process.try_post(claim, &body).await.is_err());
    assert_eq!(plane.stage("run-1"), Some(Stage::Running));
    plane.fault_of(Some("GET"), "version", Fault::Garble(Bytes::from_static(b"{")), 1);
    let garbled = process.get("/runner/v1/runs/run-1/version").await;
    assert_eq!((garbled.status, &garbled.body[..]), (200, &b"{"[..]));
    let statuses: Vec<_> = plane.exchanges().iter().map(|exchange| exchange.status).collect();
    assert_eq!(statuses, [Some(503), None, None, Some(200)]);

    let hold = Hold::new();
    plane.fault("renew", Fault::Hold(hold.clone()), 1);
    let renewal = process.post("/runner/v1/runs/run-1/renew", &body);
    let mut renewal = std::pin::pin!(renewal);
    tokio::select! {
        biased;
        _ = &mut renewal => panic!("the call was not held"),
        reply = process.get("/runner/v1/runs/run-1/credit") => assert_eq!(reply.json(), json!({"funded": true})),
    }
    assert_eq!(plane.renewals("run-1"), 0);
    hold.let_go();
    assert_eq!(renewal.await.status, 200);
    assert_eq!(plane.renewals("run-1"), 1);
    assert_eq!(plane.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_displaced_process_is_refused_everywhere_and_the_next_one_goes_on_behind_its_events() {
    let plane = plane().await;
    let old = leased(&plane, "run-1");
    let body = json!({"workerId": "w", "leaseSeconds": 300});
    assert_eq!(old.post("/runner/v1/runs/run-1/claim", &body).await.status, 201);
    let first = json!({"frames": [frame("run-1", 1, "resumed")]});
    assert_eq!(old.post("/runner/v1/runs/run-1/telemetry", &first).await.status, 204);
    assert_eq!(old.get("/runner/v1/runs/run-1/cancel").await.json(), json!({"cancelRequested": false}));

    plane.displace("run-1");
    let end = json!({"status": "completed", "output": null, "workerId": "w"});
    for (path, body) in [("renew", &body), ("finalize", &end), ("telemetry", &first), ("usage", &body)] {
        assert_eq!(old.post(&format!("/runner/v1/runs/run-1/{path}"), body).await.status, 409, "{path}");
    }
    assert_eq!(old.get("/runner/v1/runs/run-1/cancel").await.json(), json!({"cancelRequested": true}));
    assert_eq!(plane.finalized("run-1"), None);

    let runner = registered(&plane).await;
    let offer = runner.post("/runner/v1/pool/poll", &declaration()).await.json();
    let path = format!(
        "/runner/v1/pool/assignments/{}/claim",
        offer["assignment"]["assignment_id"].as_str().unwrap()
    );
    let claim = runner.post(&path, &declaration()).await.json();
    let new = Caller::new(&plane, claim["control_plane"]["run_token"].as_str());
    let run_claim = new.post("/runner/v1/runs/run-1/claim", &body).await.json();
    assert_eq!(run_claim["lastEventCursor"], 1);
    assert_eq!(new.post("/runner/v1/runs/run-1/telemetry", &first).await.status, 204);
    assert!(plane.violations().iter().any(|violation| violation.contains("cursor 1")));

    let release = json!({"lease_id": claim["lease_id"], "run_id": "run-1", "reason": "died"});
    assert_eq!(runner.post("/runner/v1/pool/release", &release).await.status, 204);
    assert_eq!(runner.post("/runner/v1/pool/release", &release).await.status, 409);
    assert_eq!(plane.stage("run-1"), Some(Stage::Queued));
}

#[tokio::test]
async fn runners_are_raced_drained_cancelled_and_forgotten() {
    let options = Options {
        registration_tokens: vec![
            ("bwkreg_test".to_owned(), "default".to_owned()),
            ("bwkreg_second".to_owned(), "default".to_owned()),
        ],
        poll_hold: Duration::from_millis(20),
        ..Options::default()
    };
    let plane = FakeControlPlane::start(options).await.unwrap();
    let first = registered(&plane).await;
    let second = json!({"registration_token": "bwkreg_second", "name": "other"});
    let second = Caller::new(&plane, None).post("/runner/v1/register", &second).await.json();
    let second = Caller::new(&plane, second["runner_token"].as_str());
    assert_eq!(first.post("/runner/v1/pool/poll", &declaration()).await.json(), json!({"assignment": null}));

    let mut picky = FakeRun::new("picky", "p").unwrap();
    picky.runs_on =
        serde_json::from_value(json!({"kind": "self-hosted", "pool": "default", "labels": ["gpu"]})).unwrap();
    plane.queue(picky);
    plane.queue(FakeRun::new("run-1", "p").unwrap());
    for runner in [&first, &second] {
        let offer = runner.post("/runner/v1/pool/poll", &declaration()).await.json();
        assert_eq!(offer["assignment"]["run_id"], "run-1");
    }
    let path = "/runner/v1/pool/assignments/assignment-run-1/claim";
    let claim = first.post(path, &declaration()).await;
    assert_eq!((claim.status, second.post(path, &declaration()).await.status), (200, 409));

    let beat = json!({"lease_id": claim.json()["lease_id"], "run_id": "run-1", "phase": "running"});
    plane.cancel("run-1");
    assert_eq!(first.post("/runner/v1/pool/heartbeat", &beat).await.json()["action"], "cancel");
    plane.lose_assignment("run-1");
    assert_eq!(first.post("/runner/v1/pool/heartbeat", &beat).await.status, 409);
    plane.drain();
    assert_eq!(first.post("/runner/v1/pool/poll", &declaration()).await.json()["action"], "drain");
    plane.forget_runners();
    assert_eq!(first.post("/runner/v1/pool/poll", &declaration()).await.status, 401);
    assert_eq!(plane.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn waits_are_held_until_their_news_comes() {
    let plane = plane().await;
    let process = leased(&plane, "run-1");
    plane.set_child("slow", ChildOutcome::Runs);
    let child = process
        .post("/runner/v1/runs/run-1/children", &json!({"slug": "slow", "input": {"x": 1}, "ordinal": 0}))
        .await;
    assert_eq!((child.status, child.json()["status"].as_str()), (201, Some("running")));
    let again = process
        .post("/runner/v1/runs/run-1/children", &json!({"slug": "slow", "input": {"x": 1}, "ordinal": 0}))
        .await;
    assert_eq!((again.status, &again.json()["childRunId"]), (200, &child.json()["childRunId"]));
    let other = process
        .post("/runner/v1/runs/run-1/children", &json!({"slug": "slow", "input": {"x": 1}, "ordinal": 1}))
        .await;
    assert_eq!(other.status, 201);

    let headers = [("accept", "application/json"), ("x-trestle-wait", "5")];
    let path = format!("/runner/v1/runs/run-1/children/{}", child.json()["childRunId"].as_str().unwrap());
    let waiting = process.send(Method::GET, &path, &headers, "");
    let change = async {
        process.get("/runner/v1/runs/run-1/credit").await;
        plane.set_child("slow", ChildOutcome::Completes(RawJson::parse("[1]").unwrap()));
    };
    let (reply, ()) = tokio::join!(waiting, change);
    assert_eq!(reply.unwrap().json()["output"], json!([1]));

    let waiting = process.send(Method::GET, "/runner/v1/runs/run-1/cancel", &headers, "");
    let change = async {
        process.get("/runner/v1/runs/run-1/credit").await;
        plane.cancel("run-1");
    };
    let (reply, ()) = tokio::join!(waiting, change);
    assert_eq!(reply.unwrap().json(), json!({"cancelRequested": true}));
    plane.set_child("none", ChildOutcome::Unknown);
    let unknown = process
        .post("/runner/v1/runs/run-1/children", &json!({"slug": "none", "input": null, "ordinal": 0}))
        .await;
    assert_eq!(unknown.status, 404);
    assert_eq!(plane.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn artifacts_go_inline_and_through_signed_addresses() {
    let plane = plane().await;
    let process = leased(&plane, "run-1");
    let inline = json!({"name": "a.bin", "contentType": "application/octet-stream", "body": "AAEC/w==", "encoding": "base64", "metadata": {"k": 1}});
    assert_eq!(process.post("/runner/v1/runs/run-1/artifacts", &inline).await.status, 201);
    let signed = json!({"name": "b.txt", "contentType": "text/plain", "sizeBytes": 5});
    let signed = process.post("/runner/v1/runs/run-1/artifacts/presign", &signed).await.json();
    let address = signed["uploadUrl"].as_str().unwrap().strip_prefix(&plane.url()).unwrap().to_owned();
    let put = Caller::new(&plane, None)
        .send(Method::PUT, &address, &[("content-type", "text/plain")], "hello")
        .await;
    assert_eq!(put.unwrap().status, 200);
    let commit =
        json!({"s3Key": signed["s3Key"], "name": "b.txt", "contentType": "text/plain", "sizeBytes": 5});
    for _ in 0..2 {
        assert_eq!(process.post("/runner/v1/runs/run-1/artifacts/commit", &commit).await.status, 201);
    }
    let stored = plane.artifacts("run-1");
    assert_eq!(stored.len(), 2);
    assert_eq!((&stored[0].bytes[..], &stored[1].bytes[..]), (&[0, 1, 2, 255][..], &b"hello"[..]));
    assert_eq!(stored[0].metadata, Some(json!({"k": 1})));
    let list = process.get("/runner/v1/runs/run-1/artifacts").await.json();
    assert_eq!(list["artifacts"].as_array().unwrap().len(), 2);
    assert_eq!(plane.violations(), Vec::<String>::new());

    let mut early = commit.clone();
    early["s3Key"] = json!("artifact-99");
    assert_eq!(process.post("/runner/v1/runs/run-1/artifacts/commit", &early).await.status, 404);
    assert_eq!(plane.violations().len(), 1);
}

#[tokio::test]
async fn model_calls_get_their_scripted_streams_and_repeats_the_same_turn() {
    let plane = plane().await;
    let process = leased(&plane, "run-1");
    let path = "/runner/v1/runs/run-1/inference";
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [], "turnKey": "k"});
    let delta = |text: &str| InferenceFrame::Delta { text: text.to_owned() };
    plane.reply(ModelReply::CutAfter(vec![delta("lost")]));
    plane.reply(ModelReply::Frames(vec![delta("Hi"), InferenceFrame::Ping]));
    plane.reply(ModelReply::Refuse(502));
    assert!(process.try_post(path, &body).await.is_err());
    for _ in 0..2 {
        let reply = process.post(path, &body).await;
        assert_eq!(reply.body, "{\"t\":\"delta\",\"text\":\"Hi\"}\n{\"t\":\"ping\"}\n");
    }
    let other = json!({"messages": [], "tools": []});
    assert_eq!(process.post(path, &other).await.status, 502);
    assert_eq!(process.post(path, &other).await.status, 422);

    plane.reply(ModelReply::Stall(vec![delta("first")]));
    let request = Request::post(format!("{}{path}", plane.url()))
        .header("authorization", format!("Bearer {}", process.token.as_deref().unwrap()))
        .header("content-type", "application/json")
        .header("accept", "application/x-ndjson")
        .body(Full::new(Bytes::from(other.to_string())))
        .unwrap();
    let mut response = process.http.request(request).await.unwrap();
    let first = within(LIMIT, "the first frame", response.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "{\"t\":\"delta\",\"text\":\"first\"}\n");
    assert!(within(Duration::from_millis(50), "a second frame", response.frame()).await.is_err());
    assert_eq!(plane.violations(), Vec::<String>::new());
}
