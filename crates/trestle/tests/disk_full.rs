//! A data directory without room: the server refuses with a reason, loses nothing that it acknowledged, and goes on by
//! itself when there is room again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};
use support::calls::{Calls, frame};
use support::{Machine, Running};

/// A server whose data directory is a disk of sixteen mebibytes, of which six are taken by something else. The disk is
/// seen by the server alone; the test reaches it through the server's process.
struct Cramped {
    running: Running,
    data: PathBuf,
    calls: Calls,
    token: String,
}

impl Cramped {
    fn start(machine: &Machine) -> Self {
        let data = machine.home.path().join("data");
        std::fs::create_dir(&data).unwrap();
        // The second server takes up where the first one stopped.
        let script = "mount -t tmpfs -o size=16m,mode=0700 none \"$1\" || exit 9
            dd if=/dev/zero of=\"$1/ballast\" bs=1048576 count=6 2>/dev/null || exit 9
            \"$2\" up --data \"$1\" --listen 127.0.0.1:0 --no-runner || exit 8
            exec \"$2\" up --data \"$1\" --listen 127.0.0.1:0 --no-runner";
        let mut command = machine.program(Path::new("unshare"), ["-Urm", "sh", "-c", script, "sh"]);
        command.arg(&data).arg(env!("CARGO_BIN_EXE_trestle"));
        let running = Running::start(command);
        let mut cramped = Self { running, data, calls: Calls::new(""), token: String::new() };
        cramped.listening();
        cramped
    }

    /// Waits for the address of the server that starts.
    fn listening(&mut self) {
        self.running.wait_for("admin token:");
        let server = std::fs::read(self.inside("server.json")).unwrap();
        let server: Value = serde_json::from_slice(&server).unwrap();
        self.calls = Calls::new(server["url"].as_str().unwrap());
        self.token = std::fs::read_to_string(self.inside("admin-token")).unwrap().trim().to_owned();
    }

    /// A file of the data directory as the server sees it.
    fn inside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.running.pid()));
        root.join(self.data.strip_prefix("/").unwrap()).join(name)
    }
}

/// That a refusal says what is the matter, and is one that callers repeat.
fn assert_full(status: u16, answer: &Value) {
    assert_eq!(status, 503, "{answer}");
    assert_eq!(answer["error"]["code"], "UNAVAILABLE", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("disk space"), "{answer}");
    assert!(answer["error"]["hint"].as_str().unwrap().contains("free space"), "{answer}");
}

fn body_of(mark: usize) -> String {
    format!("{mark:06}").repeat(20_000)
}

#[test]
fn a_full_disk_refuses_with_a_hint_and_loses_nothing_that_was_acknowledged() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let machine = Machine::new();
    let mut server = Cramped::start(&machine);
    let directory = machine.workflow("noop", "export default () => null;\n");
    let mut deploy = machine.trestle(["deploy", directory.to_str().unwrap(), "--json"]);
    deploy.args(["--url", &server.calls.url, "--token", &server.token]);
    let deployed = support::finish(&mut deploy).ok().json();
    let workflow = deployed["workflowId"].as_str().unwrap().to_owned();

    let (run, artifacts, frames) = runtime.block_on(async {
        let (calls, admin) = (&server.calls, server.token.as_str());
        let runner = calls.register(admin).await;
        let run = calls.claimed(admin, &workflow, &runner).await;
        let post = |suffix: &str, body: Value| {
            let path = run.path(suffix);
            let token = run.token.as_str();
            async move { calls.send(Method::POST, &path, token, Some(body)).await }
        };

        // Files fill the disk, until one does not fit.
        let mut artifacts = Vec::new();
        let (status, answer) = loop {
            let mark = artifacts.len();
            let name = format!("{mark}.txt");
            let body = json!({ "name": name, "contentType": "text/plain", "body": body_of(mark) });
            match post("artifacts", body).await {
                (201, answer) => artifacts.push(answer["id"].as_str().unwrap().to_owned()),
                refused => break refused,
            }
            assert!(artifacts.len() < 200, "sixteen mebibytes hold no more than that");
        };
        assert_full(status, &answer);
        assert!(artifacts.len() > 10, "{}", artifacts.len());
        // What is left of it, the log takes.
        let text = "x".repeat(8_000);
        let mut frames = 0_u64;
        let (status, answer) = loop {
            let body = json!({ "kind": "program_output", "stream": "stdout", "text": text });
            let batch = json!({ "frames": [frame(&run.id, 5_000_001 + frames, body)] });
            match post("telemetry", batch).await {
                (204, _) => frames += 1,
                refused => break refused,
            }
            assert!(frames < 4_000, "sixteen mebibytes hold no more than that");
        };
        assert_full(status, &answer);

        // The calls that matter most are refused in the same way, and none of them half happens.
        let output = "y".repeat(100_000);
        let end = json!({ "status": "completed", "output": output, "workerId": "w" });
        let (status, answer) = post("finalize", end.clone()).await;
        assert_full(status, &answer);
        let trigger = format!("/v1/orgs/local/workflows/{workflow}/runs");
        let input = json!({ "input": output });
        let (status, answer) = calls.send(Method::POST, &trigger, admin, Some(input.clone())).await;
        assert_full(status, &answer);
        // Reading goes on.
        let detail = calls.get(&format!("/v1/runs/{}", run.id), admin).await;
        assert_eq!(detail["run"]["status"], "running");
        let runs = calls.get("/v1/orgs/local/runs", admin).await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1);

        // Somebody makes room: the same calls are taken, without a restart.
        std::fs::remove_file(server.inside("ballast")).unwrap();
        let (status, answer) = post("finalize", end).await;
        assert_eq!(status, 204, "{answer}");
        calls.post(&trigger, admin, input, 201).await;
        (run.id, artifacts, frames)
    });

    // Both servers have the same parent, which starts the second when the first has ended.
    let file: Value = serde_json::from_slice(&std::fs::read(server.inside("server.json")).unwrap()).unwrap();
    let first = i32::try_from(file["pid"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGTERM).unwrap();
    server.listening();
    runtime.block_on(async {
        let (calls, admin) = (&server.calls, server.token.as_str());
        let detail = calls.get(&format!("/v1/runs/{run}"), admin).await;
        assert_eq!(detail["run"]["status"], "completed");
        assert_eq!(detail["run"]["output"].as_str().unwrap().len(), 100_000);
        let listed = calls.get(&format!("/v1/runs/{run}/artifacts"), admin).await;
        assert_eq!(listed["artifacts"].as_array().unwrap().len(), artifacts.len());
        for (mark, artifact) in artifacts.iter().enumerate() {
            let address = calls.get(&format!("/v1/runs/{run}/artifacts/{artifact}/url"), admin).await;
            let bytes = calls.http.get(address["signedUrl"].as_str().unwrap()).send().await.unwrap();
            assert!(bytes.text().await.unwrap() == body_of(mark), "artifact {mark}");
        }
        // Batches of a process that promises no order are shown across a gap after three seconds.
        loop {
            let list = calls.get(&format!("/v1/runs/{run}/events?channels=log"), admin).await;
            let found = list["events"].as_array().unwrap().len() as u64;
            assert!(found <= frames, "{found} of {frames}");
            if found == frames {
                break;
            }
        }
    });
}
