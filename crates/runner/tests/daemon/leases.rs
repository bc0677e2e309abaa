//! Heartbeats, and what ends a run from outside.

use std::time::Duration;

use serde_json::json;
use trestle_runner::{Ended, RunnerError};
use trestle_testkit::clock::until;
use trestle_testkit::control_plane::{Fault, Hold, Options};

use crate::support::{BEAT, LIMIT, Machine, Script};

async fn at_work(script: Script) -> (Machine, crate::support::Working) {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let working = machine.start(machine.config(script)).await;
    machine.until_assigned(1).await;
    (machine, working)
}

async fn until_gone(machine: &Machine) {
    until(LIMIT, "the end of the process", || machine.alive() == 0).await.unwrap();
}

#[tokio::test]
async fn a_run_is_beaten_for_with_its_lease_and_nothing_else() {
    let (machine, working) = at_work(Script::Waits).await;
    machine.until_calls(BEAT, 3).await;
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
    for beat in machine.plane.calls(BEAT) {
        assert_eq!(
            beat.json(),
            json!({ "lease_id": "lease-run-1-1", "run_id": "run-1", "phase": "running" })
        );
    }
    assert_eq!(machine.plane.violations(), [""; 0]);
}

#[tokio::test]
async fn a_lost_lease_kills_the_process_and_gives_nothing_back() {
    let (machine, working) = at_work(Script::Stubborn).await;
    machine.plane.lose_assignment("run-1");
    until_gone(&machine).await;
    working.handle.drain();
    assert_eq!(working.end().await.unwrap(), Ended::Drained);
    assert!(machine.releases().is_empty(), "the run is somebody else's");
    assert!(machine.leftovers().is_empty());
}

#[tokio::test]
async fn a_revoked_runner_ends_its_run_at_once_and_itself() {
    let (machine, working) = at_work(Script::Stubborn).await;
    machine.plane.forget_runners();
    let error = working.end().await.unwrap_err();
    assert!(matches!(error, RunnerError::Refused { operation: "poll", status: 401, .. }), "{error}");
    assert_eq!(machine.alive(), 0);
}

#[tokio::test]
async fn a_runner_that_is_forbidden_twice_in_a_row_ends_its_run_and_once_does_not() {
    let (machine, working) = at_work(Script::Stubborn).await;
    let beats = machine.plane.calls(BEAT).len();
    machine.plane.fault("heartbeat", Fault::Refuse(403), 1);
    machine.until_calls(BEAT, beats + 5).await;
    assert_eq!(machine.alive(), 1, "something in between may have been mistaken");
    machine.plane.fault("heartbeat", Fault::Refuse(403), 1_000_000);
    until_gone(&machine).await;
    working.handle.drain();
    working.end().await.unwrap();
}

#[tokio::test]
async fn failed_beats_are_repeated_long_before_the_next_one_is_due() {
    // A beat each two seconds, and nine to live without one: twenty failures fit in only if none waits for its turn.
    let machine = Machine::with(Options { lease: Duration::from_secs(12), ..Options::default() }).await;
    machine.queue("run-1");
    let mut config = machine.config(Script::Waits);
    config.timing.heartbeat = Duration::from_secs(2);
    for fault in [Fault::CutBefore, Fault::Refuse(500), Fault::Refuse(404), Fault::Say(200, "{}")] {
        machine.plane.fault("heartbeat", fault, 5);
    }
    let working = machine.start(config).await;
    machine.until_calls(BEAT, 21).await;
    assert_eq!(machine.alive(), 1);
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.releases().is_empty());
}

/// B17-86: a runner that cannot reach its control plane stops before somebody else starts the run.
#[tokio::test]
async fn b17_86_a_run_is_let_go_before_its_lease_can_have_ended() {
    let lease = Duration::from_secs(4);
    let machine = Machine::with(Options { lease, ..Options::default() }).await;
    machine.queue("run-1");
    machine.plane.fault("heartbeat", Fault::CutBefore, 1_000_000);
    let working = machine.start(machine.config(Script::Stubborn)).await;
    machine.until_assigned(1).await;
    until_gone(&machine).await;
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.releases().is_empty());
}

/// B2-17: a run that hangs for ever does not take its machine with it.
#[tokio::test]
async fn b2_17_a_cancelled_run_whose_process_does_not_end_is_ended_and_given_back() {
    let (machine, working) = at_work(Script::Stubborn).await;
    until(LIMIT, "a script that ignores TERM", || !machine.traces("trapped.").is_empty()).await.unwrap();
    machine.plane.cancel("run-1");
    working.handle.drain();
    working.end().await.unwrap();
    assert_eq!(machine.alive(), 0);
    assert_eq!(machine.releases(), ["died"]);
}

#[tokio::test]
async fn a_cancelled_run_whose_process_ends_in_time_is_left_to_itself() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let mut config = machine.config(Script::Waits);
    config.timing.cancel_grace = LIMIT;
    let working = machine.start(config).await;
    machine.until_assigned(1).await;
    machine.plane.cancel("run-1");
    let beats = machine.plane.calls(BEAT).len();
    machine.until_calls(BEAT, beats + 3).await;
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.releases().is_empty());
}

/// A network that swallows requests: beats that hang do not hold up those that would get through.
#[tokio::test]
async fn a_beat_that_is_never_answered_does_not_hold_up_the_next() {
    let machine = Machine::with(Options { lease: Duration::from_secs(12), ..Options::default() }).await;
    machine.queue("run-1");
    let hold = Hold::new();
    machine.plane.fault("heartbeat", Fault::Hold(hold.clone()), 5);
    // Each of them would hang for longer than the whole lease.
    let config = machine.config(Script::Waits);
    assert!(config.timing.call_deadline > Duration::from_secs(12));
    let working = machine.start(config).await;
    machine.until_calls(BEAT, 3).await;
    assert_eq!(machine.alive(), 1);
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
    hold.let_go();
    assert!(machine.releases().is_empty());
}

/// What is given back through a bad network is given back all the same: nobody waits for the lease.
#[tokio::test]
async fn a_release_whose_answer_is_lost_is_repeated() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault("release", Fault::Refuse(503), 1);
    machine.plane.fault("release", Fault::LoseAnswer, 1);
    let working = machine.start(machine.config(Script::Dies)).await;
    machine.until_assigned(2).await;
    working.handle.drain();
    working.end().await.unwrap();
    let answers: Vec<_> =
        machine.plane.calls("/runner/v1/pool/release").iter().map(|call| call.status).collect();
    assert_eq!(answers[..3], [Some(503), None, Some(409)], "the lost one was executed");
}

/// B18-89: beats alone do not make a living runner.
#[tokio::test]
async fn b18_89_a_runner_that_is_refused_ends_when_its_run_has() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let config = trestle_runner::Config { slots: 2, ..machine.config(Script::Waits) };
    let working = machine.start(config).await;
    machine.until_assigned(1).await;
    machine.plane.fault("poll", Fault::Refuse(403), 1);
    machine.until_calls(BEAT, machine.plane.calls(BEAT).len() + 10).await;
    assert_eq!(machine.alive(), 1, "its run is finished first");
    let refused = || machine.plane.calls(crate::support::POLL).iter().any(|poll| poll.status == Some(403));
    until(LIMIT, "the refusal", refused).await.unwrap();
    machine.let_go().await;
    let error = working.end().await.unwrap_err();
    assert!(matches!(error, RunnerError::Refused { operation: "poll", status: 403, .. }), "{error}");
    assert_eq!(machine.claims(), 1);
}

/// B3-19: beats end with the process, not with the runner.
#[tokio::test]
async fn b3_19_a_process_that_is_gone_is_not_beaten_for() {
    let (machine, working) = at_work(Script::Waits).await;
    machine.until_calls(BEAT, 1).await;
    let pid = nix::unistd::Pid::from_raw(machine.processes()[0]);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    // Its run is queued again at once and executed by the same machine.
    machine.until_assigned(2).await;
    assert_eq!(machine.releases(), ["died"]);
    let leases = || -> Vec<String> {
        let beats = machine.plane.calls(BEAT);
        beats.iter().map(|beat| beat.json()["lease_id"].as_str().unwrap().to_owned()).collect()
    };
    let of_the_second = || leases().iter().filter(|lease| *lease == "lease-run-1-2").count();
    until(LIMIT, "beats for the second attempt", || of_the_second() >= 20).await.unwrap();
    // One or another may have been on its way when the process died.
    assert!(leases().iter().rev().take(10).all(|lease| lease == "lease-run-1-2"), "{:?}", leases());
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
}
