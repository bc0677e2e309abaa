//! Following a run over a network that breaks off again and again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use serde_json::{Value, json};
use support::calls::{Calls, frame};
use support::{Machine, Running};
use trestle_testkit::fault_proxy::{Direction, FaultProxy};

/// The original's command gave up after five quiet reconnects, and its lines told no cursor to resume from.
#[test]
fn a_follower_that_loses_its_stream_shows_every_event_once_with_its_cursor() {
    const BREAKS: u64 = 12;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let machine = Machine::new();
    let up = machine.up(&["--no-runner"]);
    let workflow = up.deploy("noop", "export default () => null;\n");
    let calls = Calls::new(&up.url);
    let address = up.url.strip_prefix("http://").unwrap().parse().unwrap();
    let (proxy, run) = runtime.block_on(async {
        let runner = calls.register(&up.token).await;
        let run = calls.claimed(&up.token, &workflow, &runner).await;
        (FaultProxy::start(address).await.unwrap(), run)
    });
    // Each connection brings some events and is then reset.
    for _ in 0..BREAKS {
        proxy.reset_after(Direction::ToClient, 3_000);
    }
    let mut command = machine.trestle(["runs", &run.id, "--follow", "--json"]);
    command.args(["--url", &proxy.url(), "--token", &up.token]);
    let follower = Running::start(command);
    let sent = runtime.block_on(async {
        let text = "x".repeat(200);
        let mut sent = 0;
        // As long as there are breaks to come, there are events to lose.
        while proxy.waiting_traps() > 0 {
            let body = json!({ "kind": "program_output", "stream": "stdout", "text": text });
            let frames = json!({ "frames": [frame(&run.id, 1_000_001 + sent, body)] });
            calls.post(&run.path("telemetry"), &run.token, frames, 204).await;
            sent += 1;
        }
        let end = json!({ "status": "completed", "output": 7, "workerId": "w" });
        calls.post(&run.path("finalize"), &run.token, end, 204).await;
        sent
    });
    let finished = follower.end().ok();
    let rows: Vec<Value> = finished.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cursors: Vec<u64> = rows.iter().map(|row| row["cursor"].as_u64().unwrap()).collect();
    assert!(cursors.is_sorted_by(|one, other| one < other), "{cursors:?}");
    let printed: Vec<u64> =
        cursors.into_iter().filter(|cursor| (1_000_001..2_000_000).contains(cursor)).collect();
    assert_eq!(printed, (1_000_001..1_000_001 + sent).collect::<Vec<_>>());
    assert_eq!(rows.last().unwrap()["event"]["status"], "completed");
    assert!(proxy.traffic().resets >= BREAKS);
    up.stop().ok();
}
