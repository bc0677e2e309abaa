//! A server, what it stands on, and the callers of its surfaces.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use trestle_domain::{BootClock, Clock, ManualClock};
use trestle_server::{Config, Handle, Server};
use trestle_store::{Blobs, DataDir, SqliteStore, Store, StoreOptions};

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server in a directory of its own.
pub(crate) struct World {
    pub(crate) handle: Handle,
    pub(crate) client: Client,
    pub(crate) admin: String,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) boot: Arc<TestClock>,
    data: DataDir,
    directory: tempfile::TempDir,
}

/// The clock of the machine, which a test can move forward.
#[derive(Debug)]
pub(crate) struct TestClock {
    moved: ManualClock,
}

impl TestClock {
    fn new() -> Self {
        Self { moved: ManualClock::new(0) }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.moved.advance(i64::try_from(by.as_millis()).unwrap());
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        BootClock.now_ms() + self.moved.now_ms()
    }
}

pub(crate) fn client() -> Client {
    // A second test of the process finds the provider installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), StoreOptions::default(), change).await
    }

    pub(crate) async fn start_in(
        directory: tempfile::TempDir,
        options: StoreOptions,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let data = DataDir::open(directory.path()).unwrap();
        let boot = Arc::new(TestClock::new());
        let options = StoreOptions { boot: boot.clone(), ..options };
        let store = Arc::new(SqliteStore::open(&data, options).await.unwrap());
        let blobs = Blobs::local(&data.blobs()).unwrap();
        let mut config = Config {
            data: directory.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            ..Config::default()
        };
        config.intervals.drain_ms = 2_000;
        change(&mut config);
        let handle = Server::start(config, store.clone(), blobs).await.unwrap();
        let admin = std::fs::read_to_string(handle.admin_token_file()).unwrap();
        Self { handle, client: client(), admin: admin.trim().to_owned(), store, boot, data, directory }
    }

    /// Stops the server and starts another one in the same directory.
    pub(crate) async fn restart(self, change: impl FnOnce(&mut Config)) -> Self {
        let Self { handle, store, data, directory, .. } = self;
        handle.stop();
        handle.stopped().await;
        store.close().await;
        drop(data);
        Self::start_in(directory, StoreOptions::default(), change).await
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.handle.url())
    }

    pub(crate) fn request(&self, method: Method, path: &str, token: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path)).bearer_auth(token)
    }

    /// A call with the administrator's token.
    pub(crate) async fn api(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call(method, path, &self.admin, body).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> Answer {
        let mut request = self.request(method, path, token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        Answer::of(request.send().await.unwrap()).await
    }

    /// Deploys a workflow of this slug, with further descriptor fields.
    pub(crate) async fn deploy(&self, slug: &str, more: Value) -> String {
        let answer = self.try_deploy(&artifact(slug, more, &[]), json!({})).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.body["workflow"]["id"].as_str().unwrap().to_owned()
    }

    /// Uploads an artifact and asks for its deploy.
    pub(crate) async fn try_deploy(&self, bytes: &[u8], more: Value) -> Answer {
        let reference = self.upload(bytes).await;
        let mut body = json!({ "artifact": reference });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.api(Method::POST, "/v1/orgs/local/workflows", Some(body)).await
    }

    /// Uploads an artifact; the answer is the reference to it.
    pub(crate) async fn upload(&self, bytes: &[u8]) -> Value {
        let digest = hex::encode(Sha256::digest(bytes));
        let asked = json!({ "digest": digest, "size": bytes.len() });
        let answer =
            self.api(Method::POST, "/v1/orgs/local/workflows/artifact-upload-url", Some(asked)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let put = self
            .client
            .put(answer.body["uploadUrl"].as_str().unwrap())
            .header("content-type", answer.body["contentType"].as_str().unwrap())
            .body(bytes.to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(put.status(), 200);
        json!({
            "digest": digest,
            "size": bytes.len(),
            "entry": "index.mjs",
            "sdkVersion": "0.3.12",
            "lockfileDigest": null,
        })
    }

    pub(crate) async fn trigger(&self, workflow: &str, input: Value) -> String {
        let answer = self
            .api(
                Method::POST,
                &format!("/v1/orgs/local/workflows/{workflow}/runs"),
                Some(json!({ "input": input })),
            )
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.body["run"]["id"].as_str().unwrap().to_owned()
    }

    /// Enrols a runner of the pool `default`.
    pub(crate) async fn runner(&self) -> Runner {
        self.runner_with("default", &[]).await
    }

    pub(crate) async fn runner_with(&self, pool: &str, labels: &[&str]) -> Runner {
        let answer = self
            .api(
                Method::POST,
                "/v1/orgs/local/runners",
                Some(json!({ "pool": pool, "name": "box", "labels": labels, "version": "0.3.40" })),
            )
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
        Runner {
            id: answer.body["runner"]["id"].as_str().unwrap().to_owned(),
            token: answer.body["runnerToken"].as_str().unwrap().to_owned(),
        }
    }

    pub(crate) async fn poll(&self, runner: &Runner) -> Answer {
        self.call(Method::POST, "/runner/v1/pool/poll", &runner.token, Some(declaration())).await
    }

    /// Polls until there is an offer.
    pub(crate) async fn offer(&self, runner: &Runner) -> String {
        loop {
            let answer = self.poll(runner).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            if let Some(assignment) = answer.body["assignment"]["assignment_id"].as_str() {
                return assignment.to_owned();
            }
        }
    }

    pub(crate) async fn claim(&self, runner: &Runner, assignment: &str) -> Answer {
        self.call(
            Method::POST,
            &format!("/runner/v1/pool/assignments/{assignment}/claim"),
            &runner.token,
            Some(declaration()),
        )
        .await
    }

    /// A run that its run process has claimed.
    pub(crate) async fn session(&self, workflow: &str, input: Value) -> Session {
        let runner = self.runner().await;
        self.trigger(workflow, input).await;
        self.session_of(&runner).await
    }

    /// Takes the next run of a runner's pool up to its run claim.
    pub(crate) async fn session_of(&self, runner: &Runner) -> Session {
        let session = self.leased(runner).await;
        let answer = self.claim_run(&session, None).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        session
    }

    /// Takes the next run of a runner's pool up to its pool claim.
    pub(crate) async fn leased(&self, runner: &Runner) -> Session {
        let assignment = self.offer(runner).await;
        let claimed = self.claim(runner, &assignment).await;
        assert_eq!(claimed.status, 200, "{claimed:?}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Session {
            runner: runner.clone(),
            run: text(&claimed.body["run_id"]),
            lease: text(&claimed.body["lease_id"]),
            token: text(&claimed.body["control_plane"]["run_token"]),
            api_token: text(&claimed.body["control_plane"]["api_token"]),
        }
    }

    pub(crate) async fn claim_run(&self, session: &Session, name: Option<&str>) -> Answer {
        let mut request = self
            .request(Method::POST, &session.path("claim"), &session.token)
            .json(&json!({ "workerId": "w1", "leaseSeconds": 90 }));
        if let Some(name) = name {
            request = request.header("x-trestle-session", name);
        }
        Answer::of(request.send().await.unwrap()).await
    }

    /// A call of a run process.
    pub(crate) async fn control(
        &self,
        session: &Session,
        method: Method,
        suffix: &str,
        body: Option<Value>,
    ) -> Answer {
        self.call(method, &session.path(suffix), &session.token, body).await
    }

    pub(crate) async fn finalize(&self, session: &Session, output: Value) -> Answer {
        self.control(
            session,
            Method::POST,
            "finalize",
            Some(json!({ "status": "completed", "output": output, "workerId": "w1" })),
        )
        .await
    }

    pub(crate) async fn run(&self, run: &str) -> Value {
        let answer = self.api(Method::GET, &format!("/v1/runs/{run}"), None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["run"].clone()
    }

    /// Waits until a run has a status.
    pub(crate) async fn until_status(&self, run: &str, status: &str) {
        let mut changes = self.store.changes();
        let reached = async {
            while self.run(run).await["status"] != status {
                let _ = changes.recv().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    }

    /// Waits until so many polls are parked.
    pub(crate) async fn until_parked(&self, polls: usize) {
        let parked = async {
            while self.handle.parked_polls() < polls {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, parked).await.unwrap();
    }

    pub(crate) async fn send_frames(&self, session: &Session, frames: &[String]) -> Answer {
        self.control(session, Method::POST, "telemetry", Some(json!({ "frames": frames }))).await
    }
}

/// An enrolled runner.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    pub(crate) id: String,
    pub(crate) token: String,
}

/// A run process: what it holds.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) runner: Runner,
    pub(crate) run: String,
    pub(crate) lease: String,
    pub(crate) token: String,
    pub(crate) api_token: String,
}

impl Session {
    pub(crate) fn path(&self, suffix: &str) -> String {
        format!("/runner/v1/runs/{}/{suffix}", self.run)
    }
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let status = response.status();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self { status, headers, body, text }
    }

    /// Code of an error, which must come in an envelope that says enough.
    pub(crate) fn code(&self) -> &str {
        let error = &self.body["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        assert!(error["ref"].as_str().is_some_and(|text| text.starts_with("TR")), "{self:?}");
        error["code"].as_str().unwrap()
    }

    pub(crate) fn hint(&self) -> &str {
        self.body["error"]["hint"].as_str().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }
}

pub(crate) fn declaration() -> Value {
    json!({ "contract_version": 1, "runner_version": "0.3.40" })
}

/// A program artifact: a descriptor, a module, further files.
pub(crate) fn artifact(slug: &str, more: Value, files: &[(&str, &str)]) -> Vec<u8> {
    let mut descriptor = json!({ "slug": slug, "triggers": [{ "kind": "manual" }] });
    descriptor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pack(&descriptor.to_string(), files)
}

/// A program artifact with this text as its descriptor.
pub(crate) fn pack(descriptor: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    let mut add = |path: &str, content: &str| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    };
    add("index.mjs", "export default async function run() {}\n");
    add("workflow.jsonc", descriptor);
    for (path, content) in files {
        add(path, content);
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// An element of a telemetry batch: a line that the program printed.
pub(crate) fn line(run: &str, cursor: u64, text: &str) -> String {
    frame(run, cursor, json!({ "kind": "program_output", "stream": "stdout", "text": text }))
}

/// An element of a telemetry batch.
pub(crate) fn frame(run: &str, cursor: u64, body: Value) -> String {
    let mut event = json!({ "runId": run, "turnId": run, "seq": cursor % 1_000_000, "t": 0 });
    event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    json!({ "cursor": cursor, "event": event }).to_string()
}
