//! Polls: refusals, failures, pauses.

use std::time::{Duration, Instant};

use serde_json::json;
use trestle_runner::RunnerError;
use trestle_testkit::control_plane::{Fault, Hold};

use crate::support::{Machine, POLL, Script};

#[tokio::test]
async fn polls_and_claims_declare_exactly_what_this_version_speaks() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let working = machine.start(machine.config(Script::Ends)).await;
    machine.until_assigned(1).await;
    machine.plane.drain();
    working.end().await.unwrap();
    let declared = json!({ "contract_version": 1, "runner_version": env!("CARGO_PKG_VERSION") });
    let exchanges = machine.plane.exchanges();
    let of = |part: &str| exchanges.iter().filter(|call| call.path.contains(part)).collect::<Vec<_>>();
    for call in of("/pool/poll").into_iter().chain(of("/claim")) {
        assert_eq!(call.json(), declared, "{}", call.path);
        assert_eq!(call.bearer.as_deref(), Some(machine.identity.runner_token.as_str()));
        assert_eq!(call.headers["content-type"], "application/json");
        assert_eq!(call.method, "POST");
    }
    let register = of("/register")[0];
    assert_eq!(register.bearer, None);
    let body = register.json();
    assert_eq!((&body["name"], &body["labels"]), (&json!("box"), &json!(["gpu"])));
    assert_eq!(body["runner_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(machine.plane.violations(), [""; 0]);
}

#[tokio::test]
async fn a_refused_poll_ends_the_runner_at_once_and_it_was_never_online() {
    for status in [401, 403] {
        let machine = Machine::new().await;
        machine.plane.fault("poll", Fault::Refuse(status), 1);
        let working = machine.start(machine.config(Script::Ends)).await;
        let online = working.online();
        let error = working.end().await.unwrap_err();
        assert!(
            matches!(&error, RunnerError::Refused { operation: "poll", status: found, .. } if *found == status),
            "{error}"
        );
        assert!(error.hint().is_some());
        assert_eq!((machine.polls(), online), (1, 0));
    }
}

#[tokio::test]
async fn everything_else_that_goes_wrong_with_a_poll_passes() {
    let machine = Machine::new().await;
    for fault in [
        Fault::CutBefore,
        Fault::LoseAnswer,
        Fault::Refuse(500),
        Fault::Refuse(404),
        Fault::Refuse(429),
        Fault::Say(204, ""),
        Fault::Say(201, r#"{"assignment":null}"#),
        Fault::Say(200, "<html>"),
        Fault::Say(200, r#"{"assignment":null,"action":"continue"}"#),
        Fault::Say(200, r#"{"assignment":null,"action":null}"#),
        Fault::Say(200, r#"{"assignment":null,"more":1}"#),
        Fault::Say(200, "{}"),
    ] {
        machine.plane.fault("poll", fault, 1);
    }
    let working = machine.start(machine.config(Script::Ends)).await;
    machine.until_calls(POLL, 12).await;
    assert_eq!(working.online(), 0, "it is online when a poll was answered as it should be");
    machine.queue("run-1");
    machine.until_assigned(1).await;
    assert_eq!(working.online(), 1);
    machine.until_calls(POLL, 15).await;
    assert_eq!(working.online(), 1);
    machine.plane.drain();
    working.end().await.unwrap();
}

/// B8-44, B8-46: a server that takes a request and never answers, on a connection that stays open.
#[tokio::test]
async fn b8_44_a_poll_that_is_never_answered_is_given_up() {
    let machine = Machine::new().await;
    let hold = Hold::new();
    machine.plane.fault("poll", Fault::Hold(hold.clone()), 2);
    machine.queue("run-1");
    let mut config = machine.config(Script::Ends);
    config.timing.poll_deadline = Duration::from_millis(300);
    let working = machine.start(config).await;
    machine.until_assigned(1).await;
    machine.plane.drain();
    working.end().await.unwrap();
    hold.let_go();
}

#[tokio::test]
async fn polls_that_bring_nothing_are_kept_apart() {
    let gap = Duration::from_millis(60);
    let empty = Fault::Say(200, r#"{"assignment":null}"#);
    let lost = Fault::Say(
        200,
        r#"{"assignment":{"assignment_id":"a","run_id":"r","org_id":"o","runs_on":"x","queued_at":1}}"#,
    );
    for answer in [empty, lost] {
        let machine = Machine::new().await;
        machine.plane.fault("poll", answer, 1_000_000);
        machine.plane.fault("claim", Fault::Refuse(409), 1_000_000);
        let mut config = machine.config(Script::Ends);
        config.timing.poll_gap = gap;
        let begin = Instant::now();
        let working = machine.start(config).await;
        // Gaps of 1, 2, 4, … ms, and from the eighth poll on of the whole length.
        machine.until_calls(POLL, 18).await;
        assert!(begin.elapsed() >= 10 * gap, "{:?}", begin.elapsed());
        working.handle.drain();
        working.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_that_the_server_asks_for_is_kept() {
    let machine = Machine::new().await;
    machine.plane.fault("poll", Fault::RefuseFor(429, 1), 1);
    machine.plane.fault("poll", Fault::RefuseFor(503, 1), 1);
    let begin = Instant::now();
    let working = machine.start(machine.config(Script::Ends)).await;
    machine.until_calls(POLL, 3).await;
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    working.handle.drain();
    working.end().await.unwrap();
}

#[tokio::test]
async fn an_address_with_one_slash_at_its_end_is_the_same_address() {
    let machine = Machine::new().await;
    let config =
        trestle_runner::Config { url: format!("{}/", machine.plane.url()), ..machine.config(Script::Ends) };
    let working = machine.start(config).await;
    machine.until_calls(POLL, 1).await;
    machine.plane.drain();
    working.end().await.unwrap();
    assert_eq!(machine.plane.violations(), [""; 0]);
}
