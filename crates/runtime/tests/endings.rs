//! Runs that are ended from outside: cancelled, displaced, given back, orphaned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::plane::{Fault, ModelAnswer, Plane, delta};
use support::process::{Options, RunProcess};
use trestle_sandbox::ProcessIdentity;
use trestle_sandbox::slot::{LeaseTerms, SlotOutcome, SlotReport};

async fn plane(program: &str) -> Plane {
    Plane::start(&[("index.mjs", &support::program(program))]).await
}

/// Starts a program and waits for the line that it prints once it is where the test wants it.
async fn running(plane: &Plane, options: Options) -> RunProcess {
    let mut process = RunProcess::start(options).await;
    process.assign(plane).await;
    plane.until("the program's first line", |plane| !plane.console("stdout").is_empty()).await;
    process.until(&SlotReport::Started).await;
    process
}

/// The processes that the program named on its first line.
fn named(plane: &Plane) -> Vec<ProcessIdentity> {
    let line = plane.console("stdout")[0].clone();
    line.split_whitespace().map(|pid| ProcessIdentity::of(pid.parse().unwrap()).unwrap()).collect()
}

fn assert_cancelled(plane: &Plane) {
    let error = plane.error();
    assert_eq!(error["code"], "RUN_ABORTED");
    assert_eq!(error["reason"], "cancelled");
}

#[tokio::test]
async fn an_endless_loop_that_ignores_term_is_cancelled_within_eight_seconds() {
    let plane = plane("endless.mjs").await;
    // A fifth of the real times: 1 s, 1.4 s, 1.6 s.
    let mut process = running(&plane, Options { time_scale: 5, ..Options::default() }).await;
    let members = named(&plane);
    let since = Instant::now();
    plane.cancel.send_replace(true);
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "cancelled".into() });
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(1_350), "it was killed before its grace was over: {took:?}");
    assert!(took <= Duration::from_millis(3_000), "{took:?}");
    assert_cancelled(&plane);
    assert!(members.iter().all(|member| !member.is_alive()));
    process.assert_tidy();
}

#[tokio::test]
async fn a_cancel_reaches_every_wait_and_a_program_that_heeds_it_ends_by_itself() {
    let plane = plane("waits.mjs").await;
    plane.set_model(|_, _| ModelAnswer::Hanging(vec![delta("thinking")]));
    plane
        .state
        .children
        .lock()
        .unwrap()
        .insert("child-other-0".into(), [json!({ "status": "running" })].into());
    // Real times: what ends within a second was not killed at five.
    let mut process = running(&plane, Options { time_scale: 1, ..Options::default() }).await;
    let members = named(&plane);
    plane.until("the model call", |plane| *plane.state.open_streams.lock().unwrap() == 1).await;
    plane
        .until("the question for the child", |plane| !plane.calls("children/child-other-0").is_empty())
        .await;
    let since = Instant::now();
    plane.cancel.send_replace(true);
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "cancelled".into() });
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert_cancelled(&plane);
    let last = plane.console("stdout").last().unwrap().clone();
    assert_eq!(
        last,
        "agent CANCELLED cancelled, call CANCELLED cancelled, pause CANCELLED cancelled, shell CANCELLED cancelled, later CANCELLED cancelled, signal cancelled"
    );
    assert!(members.iter().all(|member| !member.is_alive()), "the shell command went on");
    plane.until("the end of the model stream", |plane| *plane.state.open_streams.lock().unwrap() == 0).await;
    let ended = plane.events_of("turn_ended");
    assert_eq!(ended[0]["error"]["code"], "CANCELLED");
    process.assert_tidy();
}

#[tokio::test]
async fn a_cancel_before_the_program_started_ends_the_run_too() {
    let plane = plane("endless.mjs").await;
    plane.cancel.send_replace(true);
    plane.fail("version", Fault::Status(503), 3);
    let mut process = RunProcess::start(Options::default()).await;
    process.assign(&plane).await;
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "cancelled".into() });
    assert_cancelled(&plane);
}

#[tokio::test]
async fn a_run_that_was_taken_over_is_dropped_at_once_and_nothing_is_written_any_more() {
    let plane = plane("endless.mjs").await;
    let lease = LeaseTerms { seconds: 60, renew_every_ms: 100 };
    let mut process = running(&plane, Options { lease, ..Options::default() }).await;
    let members = named(&plane);
    plane.fail("renew", Fault::Status(409), 1);
    assert_eq!(process.outcome().await, SlotOutcome::LeaseLost);
    assert!(members.iter().all(|member| !member.is_alive()));
    assert!(plane.calls("finalize").is_empty() && plane.calls("release").is_empty());
    process.assert_tidy();
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_is_let_go_before_it_ends() {
    let plane = plane("endless.mjs").await;
    let lease = LeaseTerms { seconds: 3, renew_every_ms: 100 };
    plane.fail("renew", Fault::Status(503), 10_000);
    let since = Instant::now();
    let mut process = running(&plane, Options { lease, ..Options::default() }).await;
    let members = named(&plane);
    assert_eq!(process.outcome().await, SlotOutcome::LeaseLost);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    assert!(members.iter().all(|member| !member.is_alive()));
    assert!(plane.calls("finalize").is_empty());
}

#[tokio::test]
async fn an_outage_shorter_than_the_lease_loses_nothing() {
    let plane = plane("patient.mjs").await;
    let lease = LeaseTerms { seconds: 60, renew_every_ms: 50 };
    for call in ["renew", "telemetry", "cancel"] {
        plane.fail(call, Fault::Status(503), 5);
        plane.fail(call, Fault::LoseAnswer, 5);
    }
    let mut process = running(&plane, Options { lease, ..Options::default() }).await;
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    let expected: Vec<String> = (0..50).map(|number| format!("line {number}")).collect();
    assert_eq!(plane.console("stdout"), expected);
}

#[tokio::test]
async fn nothing_outlives_its_runner_by_two_seconds() {
    for prestart in [false, true] {
        let plane = plane("endless.mjs").await;
        let mut process = running(&plane, Options { time_scale: 1, prestart, ..Options::default() }).await;
        let members = named(&plane);
        let since = Instant::now();
        process.hang_up();
        process.ended().await;
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        assert!(members.iter().all(|member| !member.is_alive()));
        assert_eq!(plane.calls("release")[0].body["reason"], "shutdown");
        assert!(plane.calls("finalize").is_empty());
    }
}

#[tokio::test]
async fn a_waiting_process_leaves_with_its_runner() {
    let mut process = RunProcess::start(Options { prestart: true, ..Options::default() }).await;
    process.until(&SlotReport::Ready).await;
    process.hang_up();
    assert_eq!(process.ended().await, trestle_sandbox::Exit::Code(0));
    assert!(trestle_sandbox::end_all_descendants(Duration::from_secs(1)).await);
}

#[tokio::test]
async fn a_runner_that_stops_gets_its_run_given_back() {
    let plane = plane("endless.mjs").await;
    let mut process = running(&plane, Options { time_scale: 5, ..Options::default() }).await;
    let members = named(&plane);
    process.process.signal_group(15);
    assert_eq!(process.outcome().await, SlotOutcome::Released { reason: "shutdown".into() });
    assert_eq!(plane.calls("release")[0].body, json!({ "workerId": "worker", "reason": "shutdown" }));
    assert!(members.iter().all(|member| !member.is_alive()));
    assert!(plane.calls("finalize").is_empty());
}

#[tokio::test]
async fn what_a_program_started_and_left_behind_is_ended_with_it() {
    let plane = plane("leaves_processes.mjs").await;
    let mut process = RunProcess::start(Options::default()).await;
    process.assign(&plane).await;
    plane.until("the names of the processes", |plane| !plane.console("stdout").is_empty()).await;
    let members = named(&plane);
    assert_eq!(members.len(), 3);
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    assert!(members.iter().all(|member| !member.is_alive()));
    process.assert_tidy();
}
