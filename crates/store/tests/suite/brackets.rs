//! What a lost process left open is closed by the server.

use std::sync::Arc;

use super::{Bench, Factory, Held};
use serde_json::{Value, json};
use trestle_contract::event::{Cursor, Event, EventFrame, RunStatus};
use trestle_store::{ReleaseReason, Releaser, TelemetryBatch};

fn agent_frame(held: &Held, cursor: u64, turn: &str, t: i64, body: Value) -> EventFrame {
    let mut event = json!({ "runId": held.run.as_str(), "turnId": turn, "seq": cursor % 1_000_000, "t": t });
    event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    let event = Event::parse(&event.to_string()).unwrap();
    EventFrame::of(Cursor::new(cursor).unwrap(), &event)
}

/// A run that is lost in the middle of an agent's turn.
async fn in_a_turn(bench: &Bench, t: i64) -> Held {
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let bodies = [
        json!({ "kind": "turn_started", "agentId": "agent-1", "agentName": "main" }),
        json!({ "kind": "text_start", "blockId": "text-1" }),
        json!({ "kind": "text_delta", "blockId": "text-1", "text": "half" }),
        json!({ "kind": "tool_call_start", "toolCallId": "c1", "toolName": "shell" }),
    ];
    let frames = bodies
        .into_iter()
        .zip(1_000_001..)
        .map(|(body, cursor)| agent_frame(&held, cursor, "turn-a", t, body))
        .collect();
    bench.store.append_telemetry(TelemetryBatch { fence: held.fence.clone(), frames }).await.unwrap();
    held
}

async fn events(bench: &Bench, held: &Held) -> Vec<(u64, Value)> {
    let page = bench.store.read_events(&held.run, 1_000_004, 100).await.unwrap();
    assert_eq!(page.held_until, None, "closers are no gap");
    page.frames
        .iter()
        .map(|frame| {
            assert!(Event::parse(&frame.json).is_ok(), "{}", frame.json);
            (frame.cursor.get(), serde_json::from_str(&frame.json).unwrap())
        })
        .collect()
}

fn kinds(events: &[(u64, Value)]) -> Vec<&str> {
    events.iter().map(|(_, event)| event["kind"].as_str().unwrap()).collect()
}

pub(crate) async fn a_lost_process_leaves_no_bracket_open(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let held = in_a_turn(&bench, 5).await;
    bench.lose().await;
    let events = events(&bench, &held).await;
    assert_eq!(kinds(&events), ["text_end", "tool_call_error", "turn_ended", "run_status"]);
    assert!(events.is_sorted_by(|one, other| one.0 < other.0));
    assert_eq!(events[0].1["turnId"], "turn-a");
    assert_eq!(events[1].1["error"]["code"], "CRASHED");
    assert_eq!(events[2].1["reason"], "error");
    assert_eq!((&events[2].1["agentId"], &events[2].1["agentName"]), (&json!("agent-1"), &json!("main")));
    assert_eq!(events[3].1["status"], "pending");
    // The next attempt is lost without having opened anything: nothing is closed twice.
    let runner = bench.runner("two", &[]).await;
    bench.start(&runner).await;
    bench.lose().await;
    let after = self::events(&bench, &held).await;
    assert_eq!(kinds(&after)[4..], ["run_status"]);
}

pub(crate) async fn a_process_that_gives_back_or_is_cancelled_leaves_no_bracket_open(
    factory: Arc<dyn Factory>,
) {
    let bench = Bench::new(factory.fresh()).await;
    let held = in_a_turn(&bench, 5).await;
    let by = Releaser::Session(held.fence.clone());
    bench.store.release(by, ReleaseReason::Handback).await.unwrap();
    let given_back = events(&bench, &held).await;
    assert_eq!(kinds(&given_back), ["text_end", "tool_call_error", "turn_ended", "run_status"]);
    assert_eq!(given_back[2].1["reason"], "cancelled");

    let bench = Bench::new(factory).await;
    let held = in_a_turn(&bench, 5).await;
    bench.store.request_cancel(&held.run).await.unwrap();
    assert_eq!(bench.status(&held.run).await, RunStatus::Cancelling);
    bench.lose().await;
    let cancelled = events(&bench, &held).await;
    assert_eq!(kinds(&cancelled), ["text_end", "tool_call_error", "turn_ended", "run_status"]);
    assert_eq!(cancelled[1].1["error"]["code"], "CANCELLED");
    assert_eq!(
        (&cancelled[2].1["reason"], &cancelled[3].1["status"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
}

pub(crate) async fn a_process_that_reports_its_end_closes_its_own_brackets(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let held = in_a_turn(&bench, 5).await;
    // Frames of it may still be on their way: nothing is closed over its head.
    bench.complete(&held).await.unwrap();
    assert_eq!(kinds(&events(&bench, &held).await), ["run_status"]);
}

pub(crate) async fn times_of_a_run_never_go_back(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let ahead = bench.store.now_ms() + 300_000;
    let held = in_a_turn(&bench, ahead).await;
    bench.lose().await;
    let page = bench.store.read_events(&held.run, 0, 100).await.unwrap();
    let times: Vec<i64> = page
        .frames
        .iter()
        .map(|frame| serde_json::from_str::<Value>(&frame.json).unwrap()["t"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(*times.last().unwrap(), ahead);
}
