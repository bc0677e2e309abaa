//! A bad day at every call: refusals, cuts, lost and spoilt answers, networks that swallow or delay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use support::fake::{Fake, RUN, completes};
use trestle_contract::event::EventBody;
use trestle_contract::inference::{ChatTurn, InferenceFrame, InferenceResult, TokenCounts};
use trestle_contract::json::RawJson;
use trestle_testkit::control_plane::{ChildOutcome, FakeRun, Fault, ModelReply};
use trestle_testkit::fault_proxy::{Direction, FaultProxy, Weather};

/// Everything that a run process asks for while its program does, in the order of a run. The second says which
/// refusals are an answer there and not a fault.
const CALLS: [(Option<&str>, &str, &[u16]); 19] = [
    (Some("POST"), "claim", &[]),
    (Some("GET"), "version", &[]),
    (Some("GET"), "programs/01RUN", &[]),
    (Some("POST"), "secrets/resolve", &[]),
    (Some("POST"), "artifacts", &[]),
    (Some("POST"), "artifacts/presign", &[]),
    (Some("PUT"), "/blobs/", &[]),
    (Some("POST"), "artifacts/commit", &[]),
    (Some("POST"), "children", &[]),
    (Some("GET"), "/children/", &[]),
    // The words of the model's provider, which a repeat would not change.
    (Some("POST"), "inference", &[500, 502]),
    (Some("GET"), "inference/providers", &[]),
    (Some("POST"), "usage/tokens", &[]),
    (Some("POST"), "usage", &[]),
    (Some("POST"), "telemetry", &[]),
    (Some("POST"), "renew", &[]),
    (Some("GET"), "cancel", &[]),
    (Some("GET"), "credit", &[]),
    (Some("POST"), "finalize", &[]),
];

fn turn(text: &str) -> ModelReply {
    let turn = ChatTurn {
        text: text.into(),
        tool_calls: Vec::new(),
        usage: TokenCounts { input_tokens: Some(7), output_tokens: Some(3), ..TokenCounts::default() },
        wants_tools: false,
    };
    ModelReply::Frames(vec![
        InferenceFrame::Delta { text: text.into() },
        InferenceFrame::Result(Box::new(InferenceResult {
            turn,
            model_ref: "scripted/m".into(),
            cost_micros: Some(5),
            context_tokens: Some(200_000),
        })),
    ])
}

/// A run that asks for everything; its child ends once it was asked for.
async fn everything(lease: Duration) -> Fake {
    let program = support::program("everything.mjs");
    let fake = Fake::start(&program, lease, |run: &mut FakeRun| {
        run.secrets.insert("KEY".into(), "the-value-of-the-key".into());
    })
    .await;
    fake.plane.set_child("child", ChildOutcome::Runs);
    fake.plane.reply(turn("one"));
    fake.plane.reply(turn("two"));
    fake
}

async fn let_the_child_end(fake: &Fake) {
    let asked = |operation: &str| operation.starts_with("GET children/");
    fake.until("the question for the child", |_| fake.operations().iter().any(|call| asked(call))).await;
    fake.plane.set_child("child", ChildOutcome::Completes(RawJson::parse("[1,2]").unwrap()));
}

/// The run completed; nothing was done twice and nothing is missing.
fn assert_done_once(fake: &Fake) {
    let output =
        json!({ "file": "small.txt", "child": [1, 2], "answer": "one", "other": "two", "length": 20 });
    assert_eq!(fake.output(), output);
    assert_eq!(fake.plane.children(RUN), ["child"]);
    let artifacts = fake.plane.artifacts(RUN);
    let sizes: Vec<_> =
        artifacts.iter().map(|artifact| (artifact.name.clone(), artifact.bytes.len())).collect();
    assert_eq!(sizes, [("small.txt".to_owned(), 5), ("large.bin".to_owned(), 4_000_000)]);
    let reports = fake.plane.token_reports(RUN);
    assert_eq!(reports.iter().map(|report| report.input_tokens).collect::<Vec<_>>(), [7, 7]);
    assert!(fake.plane.runtime_seconds(RUN) >= 1, "the tail of the compute time is missing");
    let mut lines = vec!["first".to_owned()];
    lines.extend((0..40).map(|number| format!("line {number}")));
    lines.push("it is [REDACTED]".into());
    assert_eq!(fake.console(), lines);
    let texts: String = fake
        .events()
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::TextDelta { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(texts.replace("oneone", "one"), "onetwo");
    fake.assert_faultless();
}

async fn with_each_call_struck(fault: Fault, status: Option<u16>) {
    let fake = everything(Duration::from_secs(60)).await;
    for (method, call, answers) in CALLS {
        if status.is_none_or(|status| !answers.contains(&status)) {
            fake.plane.fault_of(method, call, fault.clone(), 1);
        }
    }
    let mut options = fake.options();
    // Often enough that a short run sees both.
    options.lease.renew_every_ms = 100;
    let mut process = fake.begin(options).await;
    let_the_child_end(&fake).await;
    completes(&mut process).await;
    assert_done_once(&fake);
}

#[tokio::test]
async fn an_internal_error_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::Refuse(500), Some(500)).await;
}

#[tokio::test]
async fn a_bad_gateway_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::Refuse(502), Some(502)).await;
}

#[tokio::test]
async fn an_unavailable_server_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::Refuse(503), Some(503)).await;
}

#[tokio::test]
async fn a_gateway_timeout_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::Refuse(504), Some(504)).await;
}

#[tokio::test]
async fn overload_with_retry_after_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::RefuseFor(429, 1), Some(429)).await;
}

#[tokio::test]
async fn a_cut_before_every_call_was_executed_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::CutBefore, None).await;
}

#[tokio::test]
async fn an_answer_lost_after_every_call_was_executed_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::LoseAnswer, None).await;
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_at_every_call_repeats_and_loses_nothing() {
    with_each_call_struck(Fault::Garble(Bytes::from_static(b"<html>oops</html>\n")), None).await;
}

#[tokio::test]
async fn a_run_that_is_given_back_says_so_through_faults_too() {
    let program = "export default () => { process.kill(process.pid, 'SIGKILL'); }";
    let fake = Fake::start(program, Duration::from_secs(60), |_| {}).await;
    for fault in [Fault::Refuse(503), Fault::CutBefore, Fault::LoseAnswer] {
        fake.plane.fault("release", fault, 1);
    }
    let mut process = fake.begin(fake.options()).await;
    let outcome = process.outcome().await;
    assert_eq!(outcome, trestle_sandbox::slot::SlotOutcome::Released { reason: "crashed".into() });
    assert!(fake.plane.releases(RUN) >= 1);
    assert!(fake.plane.finalized(RUN).is_none());
}

async fn through(fake: &Fake) -> FaultProxy {
    let proxy = FaultProxy::start(fake.plane.address()).await.unwrap();
    fake.plane.set_public_url(&proxy.url());
    proxy
}

#[tokio::test]
async fn a_reset_after_the_request_was_executed_does_nothing_twice() {
    let fake = everything(Duration::from_secs(60)).await;
    let proxy = through(&fake).await;
    for call in [
        "POST /runner/v1/runs/01RUN/claim ",
        "POST /runner/v1/runs/01RUN/artifacts ",
        "POST /runner/v1/runs/01RUN/artifacts/presign ",
        "PUT /blobs/",
        "POST /runner/v1/runs/01RUN/artifacts/commit ",
        "POST /runner/v1/runs/01RUN/children ",
        "POST /runner/v1/runs/01RUN/inference ",
        "POST /runner/v1/runs/01RUN/usage/tokens ",
        "POST /runner/v1/runs/01RUN/usage ",
        "POST /runner/v1/runs/01RUN/telemetry ",
        "POST /runner/v1/runs/01RUN/renew ",
        "POST /runner/v1/runs/01RUN/finalize ",
    ] {
        proxy.lose_answers(call, 1);
    }
    let mut options = fake.options();
    options.lease.renew_every_ms = 100;
    let mut process = fake.begin_at(&proxy.url(), options).await;
    let_the_child_end(&fake).await;
    completes(&mut process).await;
    assert_eq!(proxy.waiting_traps(), 0, "not every answer was lost");
    assert_done_once(&fake);
}

#[tokio::test]
async fn answers_that_take_three_seconds_each_way_only_take_time() {
    let fake = everything(Duration::from_secs(60)).await;
    let proxy = through(&fake).await;
    proxy.set_weather(Weather::Slow(Duration::from_secs(3) / support::time_scale()));
    let mut process = fake.begin_at(&proxy.url(), fake.options()).await;
    let_the_child_end(&fake).await;
    completes(&mut process).await;
    assert_done_once(&fake);
}

/// Two thirds of a lease without the network, right after a renewal.
async fn outage(weather: Weather) {
    let lease = Duration::from_secs(if support::time_scale() == 1 { 90 } else { 18 });
    let fake = everything(lease).await;
    let proxy = through(&fake).await;
    let mut process = fake.begin_at(&proxy.url(), fake.options()).await;
    fake.until_line("first").await;
    fake.until("a renewal", |plane| plane.renewals(RUN) > 0).await;
    proxy.spoil(weather, lease * 2 / 3).await;
    let_the_child_end(&fake).await;
    completes(&mut process).await;
    assert_done_once(&fake);
}

#[tokio::test]
async fn a_network_that_is_cut_for_two_thirds_of_the_lease_loses_nothing() {
    outage(Weather::Cut).await;
}

#[tokio::test]
async fn a_network_that_swallows_requests_for_two_thirds_of_the_lease_loses_nothing() {
    outage(Weather::Deaf(Direction::ToServer)).await;
}

#[tokio::test]
async fn a_network_that_swallows_answers_for_two_thirds_of_the_lease_loses_nothing() {
    outage(Weather::Deaf(Direction::ToClient)).await;
}

#[tokio::test]
async fn a_server_that_is_away_when_the_program_ends_gets_everything_once_it_is_back() {
    let lines = 2_000;
    let program = format!(
        "import {{ existsSync }} from 'node:fs'; export default async () => {{ \
         while (!existsSync('go')) await new Promise((go) => setTimeout(go, 5)); \
         for (let i = 0; i < {lines}; i++) console.log('line ' + i); return 'kept'; }}"
    );
    let fake = Fake::start(&program, Duration::from_secs(40), |_| {}).await;
    let proxy = through(&fake).await;
    let mut process = fake.begin_at(&proxy.url(), fake.options()).await;
    process.until(&trestle_sandbox::slot::SlotReport::Started).await;
    proxy.set_weather(Weather::Cut);
    std::fs::write(process.workspace().join("go"), "").unwrap();
    // Far beyond the few seconds that a drain of the original takes at this scale.
    tokio::time::timeout(Duration::from_secs(5), std::future::pending::<()>()).await.unwrap_err();
    assert!(fake.plane.finalized(RUN).is_none());
    proxy.set_weather(Weather::Fair);
    completes(&mut process).await;
    assert_eq!(fake.output(), "kept");
    assert_eq!(fake.console(), (0..lines).map(|number| format!("line {number}")).collect::<Vec<_>>());
    let order = fake.operations();
    let end = order.iter().position(|call| call == "POST finalize").unwrap();
    let events = order.iter().rposition(|call| call == "POST telemetry").unwrap();
    assert!(events < end, "the end was written before the events");
    fake.assert_faultless();
}
