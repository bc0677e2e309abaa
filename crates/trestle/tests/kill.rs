//! A server that is killed right after an answer has lost nothing of what it acknowledged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use serde_json::json;
use support::Machine;
use support::calls::{Calls, frame};

/// Kills after each of the four kinds of acknowledgement.
const KILLS_OF_A_KIND: usize = 50;

#[test]
fn a_server_killed_right_after_an_answer_has_lost_nothing_it_acknowledged() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let machine = Machine::new();
    let mut up = machine.up(&["--no-runner"]);
    let workflow = up.deploy("noop", "export default () => null;\n");
    let runner = runtime.block_on(Calls::new(&up.url).register(&up.token));
    let mut acknowledged: Vec<(String, &str, String)> = Vec::new();
    for round in 0..KILLS_OF_A_KIND * 4 {
        let calls = Calls::new(&up.url);
        let kind = ["telemetry", "artifacts", "children", "finalize"][round % 4];
        let mark = format!("mark-{round}");
        let id = runtime.block_on(async {
            let run = calls.claimed(&up.token, &workflow, &runner).await;
            let path = run.path(kind);
            match kind {
                "telemetry" => {
                    let frame =
                        frame(&run.id, 5_000_001, json!({ "kind": "phase", "name": mark, "id": mark }));
                    calls.post(&path, &run.token, json!({ "frames": [frame] }), 204).await;
                }
                "artifacts" => drop(
                    calls
                        .post(
                            &path,
                            &run.token,
                            json!({ "name": mark, "contentType": "text/plain", "body": mark }),
                            201,
                        )
                        .await,
                ),
                "children" => drop(
                    calls
                        .post(&path, &run.token, json!({ "slug": "noop", "input": mark, "ordinal": 0 }), 201)
                        .await,
                ),
                _ => drop(
                    calls
                        .post(
                            &path,
                            &run.token,
                            json!({ "status": "completed", "output": mark, "workerId": "w" }),
                            204,
                        )
                        .await,
                ),
            }
            run.id
        });
        up.running.signal(nix::sys::signal::Signal::SIGKILL);
        acknowledged.push((id, kind, mark));
        drop(up);
        up = machine.up(&["--no-runner"]);
    }
    let calls = Calls::new(&up.url);
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

#[test]
fn a_server_that_is_stopped_closes_its_store() {
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    up.deploy("noop", "export default () => null;\n");
    let (data, wal) = (up.data.clone(), up.data.join("store.db-wal"));
    assert!(wal.exists());
    up.stop().ok();
    // The log of the database is part of it again, and nothing says that a server runs.
    for name in ["store.db-wal", "store.db-shm", "server.json"] {
        assert!(!data.join(name).exists(), "{name}");
    }
    let again = machine.up(&["--no-runner"]);
    let listed = again.run(&["workflows", "--json"]).ok();
    assert!(listed.out.contains("noop"), "{}", listed.out);
    again.stop().ok();
}
