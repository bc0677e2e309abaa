//! A server that is killed right after an answer has lost nothing of what it acknowledged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use support::{Machine, Up};

/// Kills after each of the four kinds of acknowledgement.
const KILLS_OF_A_KIND: usize = 50;

struct Calls {
    http: reqwest::Client,
    url: String,
}

impl Calls {
    async fn send(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
        expected: StatusCode,
    ) -> Value {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let bytes = answer.bytes().await.unwrap();
        assert_eq!(status, expected, "{path}: {}", std::str::from_utf8(&bytes).unwrap());
        if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() }
    }

    async fn post(&self, path: &str, token: &str, body: Value, expected: u16) -> Value {
        self.send(Method::POST, path, token, Some(body), StatusCode::from_u16(expected).unwrap()).await
    }

    async fn get(&self, path: &str, token: &str) -> Value {
        self.send(Method::GET, path, token, None, StatusCode::OK).await
    }
}

/// A run that its run process has claimed.
struct Claimed {
    id: String,
    token: String,
}

async fn claimed(calls: &Calls, up: &Up<'_>, workflow: &str, runner: &str) -> Claimed {
    let started =
        calls.post(&format!("/v1/orgs/local/workflows/{workflow}/runs"), &up.token, json!({}), 201).await;
    let wanted = started["run"]["id"].as_str().unwrap().to_owned();
    let declaration = json!({ "contract_version": 1, "runner_version": "0.1.0" });
    loop {
        let offer = calls.post("/runner/v1/pool/poll", runner, declaration.clone(), 200).await;
        let Some(assignment) = offer["assignment"]["assignment_id"].as_str() else { continue };
        let claim = calls
            .post(
                &format!("/runner/v1/pool/assignments/{assignment}/claim"),
                runner,
                declaration.clone(),
                200,
            )
            .await;
        let token = claim["control_plane"]["run_token"].as_str().unwrap().to_owned();
        let id = claim["run_id"].as_str().unwrap().to_owned();
        calls
            .post(
                &format!("/runner/v1/runs/{id}/claim"),
                &token,
                json!({ "workerId": "w", "leaseSeconds": 90 }),
                201,
            )
            .await;
        if id == wanted {
            return Claimed { id, token };
        }
        // A child of an earlier round: it is done with at once.
        calls
            .post(
                &format!("/runner/v1/runs/{id}/finalize"),
                &token,
                json!({ "status": "completed", "output": null, "workerId": "w" }),
                204,
            )
            .await;
    }
}

#[test]
fn a_server_killed_right_after_an_answer_has_lost_nothing_it_acknowledged() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let machine = Machine::new();
    let mut up = machine.up(&["--no-runner"]);
    let workflow = up.deploy("noop", "export default () => null;\n");
    let registration = up.run(&["runner", "token"]).ok().out.trim().to_owned();
    let register =
        json!({ "registration_token": registration, "name": "box", "labels": [], "runner_version": "0.1.0" });
    let client = |url: &str| Calls { http: reqwest::Client::new(), url: url.to_owned() };
    let runner =
        runtime.block_on(client(&up.url).post("/runner/v1/register", "none", register, 201))["runner_token"]
            .as_str()
            .unwrap()
            .to_owned();
    let mut acknowledged: Vec<(String, &str, String)> = Vec::new();
    for round in 0..KILLS_OF_A_KIND * 4 {
        let calls = client(&up.url);
        let kind = ["telemetry", "artifacts", "children", "finalize"][round % 4];
        let mark = format!("mark-{round}");
        let id = runtime.block_on(async {
            let run = claimed(&calls, &up, &workflow, &runner).await;
            let path = format!("/runner/v1/runs/{}/{kind}", run.id);
            match kind {
                "telemetry" => {
                    let event = json!({ "kind": "phase", "name": mark, "id": mark, "runId": run.id, "turnId": run.id, "seq": 1, "t": 1 });
                    let frame = json!({ "cursor": 5_000_001, "event": event }).to_string();
                    calls.post(&path, &run.token, json!({ "frames": [frame] }), 204).await;
                }
                "artifacts" => drop(calls.post(&path, &run.token, json!({ "name": mark, "contentType": "text/plain", "body": mark }), 201).await),
                "children" => drop(calls.post(&path, &run.token, json!({ "slug": "noop", "input": mark, "ordinal": 0 }), 201).await),
                _ => drop(calls.post(&path, &run.token, json!({ "status": "completed", "output": mark, "workerId": "w" }), 204).await),
            }
            run.id
        });
        up.running.signal(nix::sys::signal::Signal::SIGKILL);
        acknowledged.push((id, kind, mark));
        drop(up);
        up = machine.up(&["--no-runner"]);
    }
    let calls = client(&up.url);
    let begin = std::time::Instant::now();
    runtime.block_on(async {
        for (id, kind, mark) in &acknowledged {
            let found = match *kind {
                "telemetry" => loop {
                    // A frame above a gap is held back for three seconds of the store's clock.
                    let list = calls.get(&format!("/v1/runs/{id}/events?channels=phase"), &up.token).await;
                    let empty = list["events"].as_array().is_none_or(Vec::is_empty);
                    if !empty || begin.elapsed() > support::PATIENCE {
                        break list.to_string();
                    }
                },
                "artifacts" => {
                    let list = calls.get(&format!("/v1/runs/{id}/artifacts"), &up.token).await;
                    let artifact = list["artifacts"][0]["id"]
                        .as_str()
                        .unwrap_or_else(|| panic!("{mark} is lost: {list}"))
                        .to_owned();
                    let address =
                        calls.get(&format!("/v1/runs/{id}/artifacts/{artifact}/url"), &up.token).await;
                    calls
                        .http
                        .get(address["signedUrl"].as_str().unwrap())
                        .send()
                        .await
                        .unwrap()
                        .text()
                        .await
                        .unwrap()
                }
                "children" => {
                    let list = calls.get(&format!("/v1/orgs/local/runs?parent={id}"), &up.token).await;
                    let child = list["runs"][0]["id"]
                        .as_str()
                        .unwrap_or_else(|| panic!("{mark} is lost: {list}"))
                        .to_owned();
                    calls.get(&format!("/v1/runs/{child}"), &up.token).await["run"]["input"].to_string()
                }
                _ => {
                    let run = calls.get(&format!("/v1/runs/{id}"), &up.token).await;
                    assert_eq!(run["run"]["status"], "completed");
                    run["run"]["output"].to_string()
                }
            };
            assert!(found.contains(mark.as_str()), "{kind} {mark} is lost: {found}");
        }
    });
    up.stop().ok();
}
