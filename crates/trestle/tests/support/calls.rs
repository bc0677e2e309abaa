//! A server's surfaces as a runner, a run process and a client call them.

use reqwest::Method;
use serde_json::{Value, json};

/// A caller of one server.
pub struct Calls {
    pub http: reqwest::Client,
    pub url: String,
}

/// A run that its run process has claimed.
pub struct Claimed {
    pub id: String,
    pub token: String,
}

impl Claimed {
    pub fn path(&self, suffix: &str) -> String {
        format!("/runner/v1/runs/{}/{suffix}", self.id)
    }
}

impl Calls {
    pub fn new(url: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { http: reqwest::Client::builder().no_proxy().build().unwrap(), url: url.to_owned() }
    }

    /// A call's status and JSON, whatever they are.
    pub async fn send(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub async fn post(&self, path: &str, token: &str, body: Value, expected: u16) -> Value {
        let (status, answer) = self.send(Method::POST, path, token, Some(body)).await;
        assert_eq!(status, expected, "{path}: {answer}");
        answer
    }

    pub async fn get(&self, path: &str, token: &str) -> Value {
        let (status, answer) = self.send(Method::GET, path, token, None).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Registers a runner; its token.
    pub async fn register(&self, admin: &str) -> String {
        let path = "/v1/orgs/local/runner-pools/default/registration-tokens";
        let registration = self.post(path, admin, json!({}), 201).await["registrationToken"].clone();
        let body = json!({ "registration_token": registration, "name": "box", "labels": [], "runner_version": "0.1.0" });
        let answer = self.post("/runner/v1/register", "none", body, 201).await;
        answer["runner_token"].as_str().unwrap().to_owned()
    }

    /// Starts a run and takes it up to its run claim. Other runs that wait are done with at once.
    pub async fn claimed(&self, admin: &str, workflow: &str, runner: &str) -> Claimed {
        let path = format!("/v1/orgs/local/workflows/{workflow}/runs");
        let started = self.post(&path, admin, json!({}), 201).await;
        let wanted = started["run"]["id"].as_str().unwrap();
        let declaration = json!({ "contract_version": 1, "runner_version": "0.1.0" });
        loop {
            let offer = self.post("/runner/v1/pool/poll", runner, declaration.clone(), 200).await;
            let Some(assignment) = offer["assignment"]["assignment_id"].as_str() else { continue };
            let path = format!("/runner/v1/pool/assignments/{assignment}/claim");
            let claim = self.post(&path, runner, declaration.clone(), 200).await;
            let claimed = Claimed {
                id: claim["run_id"].as_str().unwrap().to_owned(),
                token: claim["control_plane"]["run_token"].as_str().unwrap().to_owned(),
            };
            let body = json!({ "workerId": "w", "leaseSeconds": 90 });
            self.post(&claimed.path("claim"), &claimed.token, body, 201).await;
            if claimed.id == wanted {
                return claimed;
            }
            let end = json!({ "status": "completed", "output": null, "workerId": "w" });
            self.post(&claimed.path("finalize"), &claimed.token, end, 204).await;
        }
    }
}

/// An element of a telemetry batch.
pub fn frame(run: &str, cursor: u64, body: Value) -> String {
    let mut event = json!({ "runId": run, "turnId": run, "seq": cursor % 1_000_000, "t": 1 });
    event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    json!({ "cursor": cursor, "event": event }).to_string()
}
