//! Runs that are ended from outside: cancelled, displaced, given back, orphaned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::fake::{Fake, RUN, completes};
use support::plane::{Fault, ModelAnswer, Plane, delta};
use support::process::{Options, RunProcess};
use trestle_contract::control::RunUsage;
use trestle_sandbox::ProcessIdentity;
use trestle_sandbox::slot::{LeaseTerms, SlotOutcome, SlotReport};
use trestle_testkit::control_plane::{Fault as CallFault, Hold};

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
    // A tenth of it is the margin, and has to be enough for a slow machine to end the program.
    let lease = LeaseTerms { seconds: 15, renew_every_ms: 100 };
    plane.fail("renew", Fault::Status(503), 10_000);
    let since = Instant::now();
    let mut process = running(&plane, Options { lease, ..Options::default() }).await;
    let members = named(&plane);
    assert_eq!(process.outcome().await, SlotOutcome::LeaseLost);
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
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
    std::fs::write(process.workspace().join("seen"), "").unwrap();
    assert_eq!(process.outcome().await, SlotOutcome::Completed);
    assert!(members.iter().all(|member| !member.is_alive()));
    process.assert_tidy();
}

/// Starts a program that hangs in one call and cancels it there. That it hears of it and says so shows that it
/// was not killed first.
async fn cancelled_in(body: &str, call: &str) -> Fake {
    let program = format!(
        "import {{ artifacts, secrets, workflows }} from '@trestle/workflow'; \
         export default async function run() {{ console.log('there'); try {{ {body} }} catch (error) {{ console.log(`${{error.code}} ${{error.data?.reason}}`); }} }}"
    );
    let fake = Fake::start(&program, Duration::from_secs(60), |run| {
        run.secrets.insert("KEY".into(), "value-of-the-key".into());
    })
    .await;
    let hold = Hold::new();
    fake.plane.fault(call, CallFault::Hold(hold.clone()), 100);
    // Real times: it has five seconds to say so.
    let mut process = fake.begin(Options { time_scale: 1, ..fake.options() }).await;
    fake.until_line("there").await;
    fake.plane.cancel(RUN);
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "cancelled".into() });
    hold.let_go();
    fake
}

#[tokio::test]
async fn a_cancel_ends_the_resolve_of_a_secret() {
    let fake = cancelled_in("await secrets.get('KEY');", "secrets/resolve").await;
    assert!(fake.console().contains(&"CANCELLED cancelled".to_owned()), "{:?}", fake.console());
}

#[tokio::test]
async fn a_cancel_ends_the_upload_of_an_artifact() {
    let upload =
        "await artifacts.write('large.bin', 'application/octet-stream', new Uint8Array(30_000_000));";
    let fake = cancelled_in(upload, "/blobs/").await;
    assert!(fake.console().contains(&"CANCELLED cancelled".to_owned()), "{:?}", fake.console());
    assert!(fake.plane.artifacts(RUN).is_empty());
}

#[tokio::test]
async fn a_cancel_ends_the_start_of_a_called_workflow() {
    let fake = cancelled_in("await workflows.call('child', {});", "children").await;
    assert!(fake.console().contains(&"CANCELLED cancelled".to_owned()), "{:?}", fake.console());
}

#[tokio::test]
async fn a_run_without_credit_is_ended_in_order_and_says_why() {
    let fake = Fake::start(&support::program("endless.mjs"), Duration::from_secs(60), |_| {}).await;
    let mut process = fake.begin(Options { time_scale: 5, ..fake.options() }).await;
    fake.until("the program", |plane| !plane.events(RUN).is_empty()).await;
    fake.plane.take_credit(RUN);
    assert_eq!(process.outcome().await, SlotOutcome::Aborted { reason: "credit_exhausted".into() });
    let error = fake.error();
    assert_eq!((&error["code"], &error["reason"]), (&json!("RUN_ABORTED"), &json!("credit_exhausted")));
    process.assert_tidy();
    fake.assert_faultless();
}

#[tokio::test]
async fn a_program_that_asks_for_nothing_is_ended_when_its_compute_time_is_over() {
    let program = "export default function run() { for (;;); }";
    let fake = Fake::start(program, Duration::from_secs(60), |run| {
        run.manifest = serde_json::from_str(
            r#"{"slug":"test","triggers":[{"kind":"manual"}],"budget":{"max_compute_seconds":1}}"#,
        )
        .unwrap();
    })
    .await;
    let mut process = fake.begin(fake.options()).await;
    assert_eq!(process.outcome().await, SlotOutcome::Failed { code: "BUDGET_EXCEEDED".into() });
    assert!(fake.error()["message"].as_str().unwrap().contains("max_compute_seconds"), "{}", fake.error());
    process.assert_tidy();
}

#[tokio::test]
async fn a_restarted_attempt_goes_on_with_what_the_earlier_ones_have_spent() {
    let program = "import { sleep, usage } from '@trestle/workflow'; \
        export default async () => { const spent = await usage.get(); const code = await sleep(1).then(() => 'slept', (error) => error.code); return { spent, code }; }";
    for (usd_micros, code) in [(100_000, "slept"), (300_001, "BUDGET_EXCEEDED")] {
        let fake = Fake::start(program, Duration::from_secs(60), |run| {
            run.manifest = serde_json::from_str(
                r#"{"slug":"test","triggers":[{"kind":"manual"}],"budget":{"max_usd":0.3,"max_tokens":500}}"#,
            )
            .unwrap();
            run.usage = Some(RunUsage { usd_micros, tokens: 500, compute_ms: 7_900 });
        })
        .await;
        let mut process = fake.begin(fake.options()).await;
        let outcome = process.outcome().await;
        if code == "slept" {
            let output = fake.output();
            assert_eq!(output["spent"]["tokens"]["spent"], 500);
            assert_eq!(output["spent"]["usd"]["spent"], 0.1);
            assert!(output["spent"]["compute_seconds"]["spent"].as_u64().unwrap() >= 7, "{output}");
        } else {
            // The program swallowed it; its run did not.
            assert_eq!(outcome, SlotOutcome::Failed { code: code.into() });
        }
    }
}

#[tokio::test]
async fn every_answer_that_denies_the_lease_ends_the_run_at_once() {
    for status in [401, 403, 404, 409, 410] {
        let plane = plane("endless.mjs").await;
        let lease = LeaseTerms { seconds: 60, renew_every_ms: 100 };
        let mut process = running(&plane, Options { lease, ..Options::default() }).await;
        plane.fail("renew", Fault::Status(status), 1);
        assert_eq!(process.outcome().await, SlotOutcome::LeaseLost, "{status}");
        assert!(plane.calls("finalize").is_empty(), "{status}");
    }
}

#[tokio::test]
async fn a_fresh_run_token_is_used_for_every_later_call_and_appears_nowhere() {
    let program = "import { secrets, sleep } from '@trestle/workflow'; \
        export default async () => { console.log('there'); for (;;) { await sleep(20); const value = await secrets.get('GO'); if (value === 'go') break; } \
        console.log('bwrt_fresh-' + 'token-canary'); return 'done'; }";
    let fake = Fake::start(program, Duration::from_secs(60), |run| {
        run.secrets.insert("GO".into(), "go".into());
    })
    .await;
    fake.plane.refresh_token(RUN, "bwrt_fresh-token-canary");
    fake.plane.fault("secrets/resolve", CallFault::RefuseFor(503, 0), 20);
    let mut options = fake.options();
    options.lease.renew_every_ms = 50;
    let mut process = fake.begin(options).await;
    completes(&mut process).await;
    let exchanges = fake.plane.exchanges();
    let of = |operation: &str| exchanges.iter().rfind(|exchange| exchange.operation() == operation).unwrap();
    for operation in ["finalize", "telemetry", "renew"] {
        assert_eq!(of(operation).bearer.as_deref(), Some("bwrt_fresh-token-canary"), "{operation}");
    }
    let first_fresh =
        exchanges.iter().position(|exchange| exchange.bearer.as_deref() == Some("bwrt_fresh-token-canary"));
    let refused =
        exchanges[first_fresh.unwrap()..].iter().filter(|exchange| exchange.status == Some(401)).count();
    assert_eq!(refused, 0, "an old token was used after the fresh one");
    assert!(exchanges.iter().all(|exchange| !exchange.json().to_string().contains("canary")));
    assert!(fake.console().contains(&"[REDACTED]".to_owned()), "{:?}", fake.console());
}

#[tokio::test]
async fn the_lease_is_kept_from_the_claim_until_after_the_end() {
    let fake = Fake::start("export default () => 'done'", Duration::from_secs(60), |_| {}).await;
    let (download, end) = (Hold::new(), Hold::new());
    fake.plane.fault("programs/01RUN", CallFault::Hold(download.clone()), 1);
    fake.plane.fault("finalize", CallFault::Hold(end.clone()), 100);
    let mut options = fake.options();
    options.lease.renew_every_ms = 50;
    let mut process = fake.begin(options).await;
    fake.until("renewals while the program is fetched", |plane| plane.renewals(RUN) >= 3).await;
    assert!(fake.plane.calls("programs/01RUN").is_empty() && fake.plane.finalized(RUN).is_none());
    download.let_go();
    fake.until("the last events", |plane| {
        plane
            .events(RUN)
            .iter()
            .any(|(_, event)| matches!(event.body, trestle_contract::event::EventBody::Output { .. }))
    })
    .await;
    let so_far = fake.plane.renewals(RUN);
    fake.until("renewals while the end is written", |plane| plane.renewals(RUN) >= so_far + 3).await;
    assert!(fake.plane.finalized(RUN).is_none());
    end.let_go();
    completes(&mut process).await;
}

#[tokio::test]
async fn a_result_that_could_not_be_sent_stays_on_disk_for_the_runner() {
    let fake = Fake::start("export default () => ({ n: 'kept' })", Duration::from_secs(60), |_| {}).await;
    fake.plane.fault("finalize", CallFault::Refuse(503), 10_000);
    let mut process = fake.begin(fake.options()).await;
    fake.until("an attempt to end", |plane| !plane.calls("finalize").is_empty()).await;
    process.process.kill().await.unwrap();
    process.ended().await;
    let file = process.slot().join(trestle_sandbox::slot::UNSENT_RESULT);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("bwrt"), "{text}");
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["url"], format!("{}/runner/v1/runs/01RUN/finalize", fake.plane.url()));
    assert_eq!(result["body"], fake.plane.calls("finalize")[0].json());
}

/// The library behind the command `faketime`, wherever the distribution keeps it.
fn faketime_library() -> String {
    let places = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let found = places.map(|place| place.join("faketime/libfaketime.so.1")).find(|file| file.exists());
    found.expect("faketime is not installed").to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_clock_that_jumps_five_minutes_neither_ends_a_lease_nor_sets_events_back() {
    for jump in ["-300s", "+300s"] {
        // The wall clock jumps for the whole process, also as the lease is counted; only the clock that runs on
        // while the machine sleeps tells the truth.
        let directory = tempfile::tempdir().unwrap();
        let offset = directory.path().join("offset");
        std::fs::write(&offset, "+0s\n").unwrap();
        let program = "import { sleep } from '@trestle/workflow'; \
            export default async () => { console.log('before'); await sleep(400); console.log('after'); await sleep(400); return 'done'; }";
        let fake = Fake::start(program, Duration::from_secs(60), |_| {}).await;
        let library = faketime_library();
        let mut options = fake.options();
        options.lease.renew_every_ms = 50;
        options.process_env = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let mut process = fake.begin(options).await;
        fake.until_line("before").await;
        std::fs::write(&offset, format!("{jump}\n")).unwrap();
        completes(&mut process).await;
        assert_eq!(fake.output(), "done");
        let times: Vec<u64> = fake.events().iter().map(|event| event.envelope.t.get()).collect();
        assert!(times.is_sorted(), "{times:?}");
        let (first, last) = (times[0], times[times.len() - 1]);
        match jump {
            "+300s" => assert!(last - first >= 300_000, "the clock did not jump: {times:?}"),
            _ => assert!(last - first < 250_000, "{times:?}"),
        }
    }
}

#[tokio::test]
async fn the_runs_log_shows_the_run_without_its_secrets_and_goes_with_it_or_stays() {
    let program = "import { phase, secrets } from '@trestle/workflow'; \
        export default async () => { phase('Collect'); const value = await secrets.get('KEY'); console.log(`it is ${value}`); return 'made'; }";
    let kept = tempfile::tempdir().unwrap();
    for log in [std::path::PathBuf::from("run.log"), kept.path().join("screen.log")] {
        let fake = Fake::start(program, Duration::from_secs(60), |run| {
            run.secrets.insert("KEY".into(), "value-of-the-key".into());
        })
        .await;
        let mut process = fake.begin(Options { run_log: Some(log.clone()), ..fake.options() }).await;
        completes(&mut process).await;
        let text = std::fs::read_to_string(process.slot().join(&log)).unwrap();
        for line in ["── boardwalk run ──", "● running", "▸ Collect", "  it is [REDACTED]", "✔ output  made"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("value-of-the-key"));
    }
}

#[tokio::test]
async fn a_process_that_stood_still_for_longer_than_its_lease_does_nothing_any_more() {
    let program = "import { artifacts, sleep } from '@trestle/workflow'; \
        export default async () => { console.log('there'); for (let i = 0; ; i++) { console.log(`line ${i}`); await artifacts.write(`file-${i}`, 'text/plain', 'x').catch(() => {}); await sleep(5); } }";
    let lease = Duration::from_secs(8);
    let fake = Fake::start(program, lease, |_| {}).await;
    let mut process = fake.begin(fake.options()).await;
    fake.until_line("there").await;
    let pid = nix::unistd::Pid::from_raw(process.process.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    // Answers of before may still be on their way out.
    tokio::time::timeout(lease, std::future::pending::<()>()).await.unwrap_err();
    let before = fake.plane.exchanges().len();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(process.outcome().await, SlotOutcome::LeaseLost);
    let after: Vec<String> = fake.operations().split_off(before);
    assert!(after.is_empty(), "asked for after the lease was over: {after:?}");
    assert!(fake.plane.finalized(RUN).is_none());
    process.assert_tidy();
}

#[tokio::test]
async fn a_renewal_that_is_refused_because_the_end_is_stored_does_not_hide_the_end() {
    let fake = Fake::start("export default () => 'stored'", Duration::from_secs(60), |_| {}).await;
    let again = Hold::new();
    fake.plane.fault("finalize", CallFault::LoseAnswer, 1);
    fake.plane.fault("finalize", CallFault::Hold(again.clone()), 1_000);
    let mut options = fake.options();
    options.lease.renew_every_ms = 50;
    let mut process = fake.begin(options).await;
    fake.until("a refused renewal", |plane| {
        plane.calls("renew").iter().any(|renewal| renewal.status == Some(409))
    })
    .await;
    again.let_go();
    completes(&mut process).await;
    assert_eq!(fake.output(), "stored");
}
