use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use trestle_contract::event::EventFrame;

pub(crate) const RUN_TOKEN: &str = "bwrt_run-token-canary";
pub(crate) const API_TOKEN: &str = "bwk_api-token-canary";

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
    pub(crate) raw: Bytes,
}

/// What happens to a request instead of its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Answered with this status and nothing done.
    Status(u16),
    /// Done, and the connection is closed before the answer.
    LoseAnswer,
}

type Model = Box<dyn Fn(usize, &Value) -> ModelAnswer + Send + Sync>;

/// How a model call is answered.
pub(crate) enum ModelAnswer {
    Status(u16, Value),
    /// These lines, then the end.
    Lines(Vec<Value>),
    /// These lines, then the connection breaks.
    Broken(Vec<Value>),
    /// These lines, then silence.
    Hanging(Vec<Value>),
}

/// A child as the plane tells of it: its state at each question.
pub(crate) type Child = VecDeque<Value>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) manifest: Mutex<Value>,
    pub(crate) run: Mutex<Value>,
    pub(crate) claim: Mutex<Value>,
    pub(crate) program: Mutex<Value>,
    pub(crate) packed: Mutex<Vec<u8>>,
    pub(crate) secrets: Mutex<HashMap<String, Result<String, u16>>>,
    pub(crate) faults: Mutex<Vec<(String, Fault)>>,
    pub(crate) exchanges: Mutex<Vec<Exchange>>,
    pub(crate) frames: Mutex<BTreeMap<u64, Value>>,
    pub(crate) children: Mutex<HashMap<String, Child>>,
    pub(crate) uploads: Mutex<HashMap<String, Bytes>>,
    pub(crate) model: Mutex<Option<Model>>,
    pub(crate) model_calls: Mutex<Vec<Value>>,
    /// Answers that were recorded: method, suffix, status, body. Each is given once, before any other.
    pub(crate) recorded: Mutex<Vec<(String, String, u16, Value)>>,
    /// Requests that were begun and whose connection is still open.
    pub(crate) open_streams: Mutex<usize>,
}

/// A control plane of one run.
pub(crate) struct Plane {
    pub(crate) url: String,
    pub(crate) state: Arc<State>,
    pub(crate) cancel: watch::Sender<bool>,
    changed: watch::Sender<u64>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

#[derive(Clone)]
struct Service {
    url: String,
    state: Arc<State>,
    cancel: watch::Sender<bool>,
    changed: watch::Sender<u64>,
}

impl Plane {
    /// A plane whose one run has this program.
    pub(crate) async fn start(files: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let packed = super::artifact(files);
        *state.program.lock().unwrap() = json!({
            "entry": "index.mjs",
            "digest": hex::encode(Sha256::digest(&packed)),
            "sdkVersion": "*",
            "downloadUrl": format!("{url}/blob/program?signature=s"),
        });
        *state.packed.lock().unwrap() = packed;
        *state.manifest.lock().unwrap() = json!({ "slug": "test", "triggers": [{ "kind": "manual" }] });
        *state.run.lock().unwrap() = json!({
            "id": "01RUN", "orgId": "01ORG", "workflowId": "01WORKFLOW", "workflowVersionId": "01VERSION",
            "environmentId": null, "attempt": 1, "parentRunId": null, "actor": { "type": "user", "user_id": "01USER" },
            "triggerKind": "manual", "triggerPayload": null, "status": "running", "concurrencyKey": null,
            "input": null, "config": null, "output": null, "state": null, "leaseUntil": null, "nextWakeAt": null,
            "startedAt": null, "completedAt": null, "pendingSince": null, "createdAt": 1_700_000_000_000_u64,
            "workerId": null, "waitingOnRunId": null, "retriedFromRunId": null, "outcomeStatus": null,
            "outcomeReasoning": null, "tokensIn": 0, "tokensOut": 0, "runtimeSeconds": 0, "dispatchAttempts": 1,
        });
        *state.claim.lock().unwrap() = json!({ "workflowVersion": 3, "capabilities": ["turnKey"] });
        let (cancel, changed) = (watch::Sender::new(false), watch::Sender::new(0));
        let service = Service {
            url: url.clone(),
            state: state.clone(),
            cancel: cancel.clone(),
            changed: changed.clone(),
        };
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let handler = hyper::service::service_fn(move |request| {
                        let service = service.clone();
                        async move { service.handle(request).await }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), handler)
                        .await;
                });
            }
        });
        Self { url, state, cancel, changed, server }
    }

    pub(crate) fn edit_manifest(&self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.state.manifest.lock().unwrap());
    }

    pub(crate) fn set_input(&self, input: Value) {
        self.state.run.lock().unwrap()["input"] = input;
    }

    pub(crate) fn set_secret(&self, name: &str, value: &str) {
        self.state.secrets.lock().unwrap().insert(name.into(), Ok(value.into()));
    }

    pub(crate) fn fail(&self, suffix: &str, fault: Fault, times: usize) {
        for _ in 0..times {
            self.state.faults.lock().unwrap().push((suffix.into(), fault));
        }
    }

    pub(crate) fn set_model(&self, model: impl Fn(usize, &Value) -> ModelAnswer + Send + Sync + 'static) {
        *self.state.model.lock().unwrap() = Some(Box::new(model));
    }

    /// All requests to a suffix of the run's path (or to another path).
    pub(crate) fn calls(&self, suffix: &str) -> Vec<Exchange> {
        let exchanges = self.state.exchanges.lock().unwrap();
        exchanges.iter().filter(|exchange| suffix_of(&exchange.path) == suffix).cloned().collect()
    }

    /// Methods and suffixes in the order of their arrival, without what is repeated at intervals.
    pub(crate) fn order(&self) -> Vec<String> {
        let exchanges = self.state.exchanges.lock().unwrap();
        let mut order: Vec<String> = Vec::new();
        for exchange in exchanges.iter() {
            let suffix = suffix_of(&exchange.path);
            if !matches!(suffix, "telemetry" | "cancel" | "renew" | "credit") {
                order.push(format!("{} {suffix}", exchange.method));
            }
        }
        order
    }

    /// Waits until something about the plane is so.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if condition(self) {
                    return;
                }
                changed.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
            panic!("{what} did not happen; requests: {:?}; events: {:#?}", self.order(), self.events());
        }
    }

    /// The finalize that was stored.
    pub(crate) fn finalized(&self) -> Value {
        let calls = self.calls("finalize");
        calls.last().unwrap_or_else(|| panic!("the run was not finalized: {:?}", self.order())).body.clone()
    }

    /// The error of the failed run.
    pub(crate) fn error(&self) -> Value {
        let finalized = self.finalized();
        assert_eq!(finalized["status"], "failed", "{finalized}");
        finalized["output"]["error"].clone()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.state.frames.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["kind"] == kind).collect()
    }

    /// The lines of one of the program's streams.
    pub(crate) fn console(&self, stream: &str) -> Vec<String> {
        let lines = self.events_of("program_output").into_iter().filter(|event| event["stream"] == stream);
        lines.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything that ever arrived, as one text.
    pub(crate) fn everything(&self) -> String {
        let exchanges = self.state.exchanges.lock().unwrap();
        exchanges.iter().map(|exchange| format!("{} {}\n", exchange.path, exchange.body)).collect()
    }
}

pub(crate) fn suffix_of(path: &str) -> &str {
    path.strip_prefix("/runner/v1/runs/01RUN/").unwrap_or(path)
}

fn whole(status: u16, body: &Value) -> Response<Body> {
    let bytes = if status == 204 { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut response = Response::new(Full::new(bytes).map_err(|never: Infallible| match never {}).boxed());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn refusal(status: u16) -> Response<Body> {
    let code = match status {
        403 => "FORBIDDEN",
        404 => "NOT_FOUND",
        409 => "CONFLICT",
        413 => "PAYLOAD_TOO_LARGE",
        _ => "INTERNAL_ERROR",
    };
    whole(status, &json!({ "error": { "code": code, "message": format!("the plane says {status}") } }))
}

impl Service {
    async fn handle(self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let raw = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let path = parts.uri.path().to_owned();
        let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let exchange = Exchange {
            method: parts.method.clone(),
            path: path.clone(),
            authorization: header("authorization"),
            body: serde_json::from_slice(&raw).unwrap_or(Value::Null),
            raw: raw.clone(),
        };
        let (body, hold) = (exchange.body.clone(), header("x-trestle-wait"));
        self.state.exchanges.lock().unwrap().push(exchange);
        self.changed.send_modify(|count| *count += 1);
        let suffix = suffix_of(&path).to_owned();
        let fault = {
            let mut faults = self.state.faults.lock().unwrap();
            faults.iter().position(|(wanted, _)| *wanted == suffix).map(|found| faults.remove(found).1)
        };
        if let Some(Fault::Status(status)) = fault {
            return Ok(refusal(status));
        }
        let answer = self.answer(&parts.method, &suffix, body, raw, hold.is_some()).await;
        self.changed.send_modify(|count| *count += 1);
        match fault {
            Some(_) => Err(std::io::ErrorKind::ConnectionReset.into()),
            None => Ok(answer),
        }
    }

    async fn answer(
        &self,
        method: &Method,
        suffix: &str,
        body: Value,
        raw: Bytes,
        held: bool,
    ) -> Response<Body> {
        let state = &self.state;
        let recorded = {
            let mut recorded = state.recorded.lock().unwrap();
            let found =
                recorded.iter().position(|(wanted, place, ..)| wanted == method.as_str() && place == suffix);
            found.map(|found| recorded.remove(found))
        };
        if let Some((_, _, status, body)) = recorded {
            return whole(status, &body);
        }
        match (method.as_str(), suffix) {
            ("POST", "claim") => {
                let mut answer = state.claim.lock().unwrap().clone();
                answer["run"] = state.run.lock().unwrap().clone();
                whole(201, &answer)
            }
            ("POST", "renew") => whole(200, &json!({ "leaseUntil": 1 })),
            ("GET", "version") => {
                let manifest = state.manifest.lock().unwrap().clone();
                whole(200, &json!({ "manifest": manifest, "program": *state.program.lock().unwrap() }))
            }
            ("GET", "/blob/program") => {
                let packed = Bytes::from(state.packed.lock().unwrap().clone());
                Response::new(Full::new(packed).map_err(|never: Infallible| match never {}).boxed())
            }
            ("POST", "finalize" | "usage" | "usage/tokens" | "release") => whole(204, &Value::Null),
            ("GET", "credit") => whole(200, &json!({ "funded": true })),
            ("GET", "cancel") => {
                let mut cancel = self.cancel.subscribe();
                if held {
                    let _ =
                        tokio::time::timeout(Duration::from_secs(5), cancel.wait_for(|cancelled| *cancelled))
                            .await;
                }
                whole(200, &json!({ "cancelRequested": *self.cancel.borrow() }))
            }
            ("POST", "telemetry") => {
                let mut frames = state.frames.lock().unwrap();
                for frame in body["frames"].as_array().unwrap() {
                    let text = frame.as_str().unwrap();
                    // What arrives is what the strict reader accepts.
                    let (stored, _) = EventFrame::parse_batch_element(text)
                        .unwrap_or_else(|error| panic!("{text}: {error}"));
                    let element: Value = serde_json::from_str(text).unwrap();
                    frames.entry(stored.cursor.get()).or_insert_with(|| element["event"].clone());
                }
                whole(204, &Value::Null)
            }
            ("POST", "secrets/resolve") => {
                match state.secrets.lock().unwrap().get(body["name"].as_str().unwrap()) {
                    Some(Ok(value)) => whole(200, &json!({ "value": value })),
                    Some(Err(status)) => refusal(*status),
                    None => refusal(404),
                }
            }
            ("POST", "children") => self.start_child(&body),
            ("GET", suffix) if suffix.starts_with("children/") => self.child(suffix),
            ("POST", "artifacts") => whole(201, &written(&body)),
            ("POST", "artifacts/presign") => {
                let headers = json!({ "content-type": "text/plain; charset=utf-8" });
                let url = format!("{}/upload/key", self.url);
                whole(
                    201,
                    &json!({ "s3Key": "key", "uploadUrl": url, "uploadHeaders": headers, "expiresAt": 1 }),
                )
            }
            ("PUT", path) if path.starts_with("/upload/") => {
                state.uploads.lock().unwrap().insert(path.to_owned(), raw);
                whole(200, &Value::Null)
            }
            ("POST", "artifacts/commit") => whole(201, &written(&body)),
            ("POST", "inference") => self.infer(body),
            _ => refusal(404),
        }
    }

    fn start_child(&self, body: &Value) -> Response<Body> {
        let id = format!("child-{}-{}", body["slug"].as_str().unwrap(), body["ordinal"]);
        if body["slug"] == "unknown" {
            return refusal(404);
        }
        whole(201, &json!({ "childRunId": id, "status": "pending", "output": null }))
    }

    /// The next state of the child; the last one stays.
    fn child(&self, suffix: &str) -> Response<Body> {
        let id = suffix.trim_start_matches("children/");
        let mut children = self.state.children.lock().unwrap();
        let Some(states) = children.get_mut(id) else { return refusal(404) };
        let mut answer = if states.len() > 1 { states.pop_front().unwrap() } else { states[0].clone() };
        answer["id"] = json!(id);
        whole(200, &answer)
    }

    fn infer(&self, body: Value) -> Response<Body> {
        let number = {
            let mut calls = self.state.model_calls.lock().unwrap();
            calls.push(body.clone());
            calls.len()
        };
        let model = self.state.model.lock().unwrap();
        let Some(model) = &*model else { return refusal(404) };
        let (lines, then) = match model(number, &body) {
            ModelAnswer::Status(status, answer) => return whole(status, &answer),
            ModelAnswer::Lines(lines) => (lines, None),
            ModelAnswer::Broken(lines) => (lines, Some(true)),
            ModelAnswer::Hanging(lines) => (lines, Some(false)),
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        let has_content = lines.iter().any(|line| line["t"] == "delta");
        for line in lines {
            let _ = sender.send(Ok(Frame::data(Bytes::from(format!("{line}\n")))));
        }
        match then {
            None => {}
            Some(true) => {
                let (state, mut changed) = (self.state.clone(), self.changed.subscribe());
                tokio::spawn(async move {
                    // A connection that breaks takes what was not read yet with it: content is seen first.
                    let is_seen = |state: &State| {
                        let frames = state.frames.lock().unwrap();
                        frames.values().any(|event| event["kind"] == "text_delta")
                    };
                    while has_content && !is_seen(&state) && changed.changed().await.is_ok() {}
                    let _ = sender.send(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
                });
            }
            Some(false) => {
                *self.state.open_streams.lock().unwrap() += 1;
                let (state, changed) = (self.state.clone(), self.changed.clone());
                tokio::spawn(async move {
                    sender.closed().await;
                    *state.open_streams.lock().unwrap() -= 1;
                    changed.send_modify(|count| *count += 1);
                });
            }
        }
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|item| (item, receiver))
        });
        Response::new(BodyExt::boxed(StreamBody::new(stream)))
    }
}

fn written(body: &Value) -> Value {
    json!({
        "id": "01ARTIFACT", "name": body["name"], "sizeBytes": 1, "signedUrl": "http://plane/artifact", "expiresAt": 1,
    })
}

/// A finished turn of a model that says this.
pub(crate) fn result(text: &str) -> Value {
    json!({ "t": "result", "modelRef": "scripted/model", "costMicros": 5,
            "turn": { "text": text, "toolCalls": [], "usage": { "inputTokens": 10, "outputTokens": 4 }, "wantsTools": false } })
}

/// A finished turn of a model that asks for one tool.
pub(crate) fn tool_call(id: &str, tool: &str, input: Value) -> Value {
    json!({ "t": "result", "modelRef": "scripted/model",
            "turn": { "text": "", "toolCalls": [{ "id": id, "name": tool, "input": input }],
                      "usage": { "inputTokens": 10, "outputTokens": 4 }, "wantsTools": true } })
}

pub(crate) fn delta(text: &str) -> Value {
    json!({ "t": "delta", "text": text })
}
