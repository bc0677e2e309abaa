//! The end of a runner, from every direction.

use trestle_runner::Ended;
use trestle_testkit::clock::until;
use trestle_testkit::control_plane::{Fault, Hold, Stage};

use crate::support::{BEAT, LIMIT, Machine, POLL, Script};

#[tokio::test]
async fn a_drain_in_a_poll_answer_ends_the_runner_without_a_claim() {
    let machine = Machine::new().await;
    let working = machine.start(machine.config(Script::Ends)).await;
    machine.until_calls(POLL, 1).await;
    machine.plane.drain();
    assert_eq!(working.end().await.unwrap(), Ended::DrainedByControlPlane);
    assert_eq!(machine.claims(), 0);
    assert_eq!(machine.plane.violations(), [""; 0]);
}

#[tokio::test]
async fn an_offer_beside_a_drain_is_not_claimed() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault("poll", Fault::Edit(|answer| answer["action"] = "drain".into()), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    assert_eq!(working.end().await.unwrap(), Ended::DrainedByControlPlane);
    assert_eq!((machine.polls(), machine.claims()), (1, 0));
    assert_eq!(machine.plane.stage("run-1"), Some(Stage::Queued));
}

#[tokio::test]
async fn a_drain_in_a_heartbeat_lets_the_run_finish_and_claims_nothing_after_it() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.queue("run-2");
    let working = machine.start(machine.config(Script::Waits)).await;
    machine.until_assigned(1).await;
    machine.plane.drain();
    let beats = machine.plane.calls(BEAT).len();
    machine.until_calls(BEAT, beats + 3).await;
    assert!(!working.ended());
    machine.let_go().await;
    assert_eq!(working.end().await.unwrap(), Ended::DrainedByControlPlane);
    assert_eq!((machine.claims(), machine.releases().len()), (1, 0));
    assert_eq!(machine.plane.stage("run-2"), Some(Stage::Queued));
}

#[tokio::test]
async fn a_drain_asked_for_here_does_not_wait_for_the_poll_in_flight() {
    let machine = Machine::new().await;
    let hold = Hold::new();
    machine.plane.fault("poll", Fault::Hold(hold.clone()), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    // The poll is on its way when the first thing after it is heard of: it holds no run.
    until(LIMIT, "a started runner", || machine.home.path().join("work").exists()).await.unwrap();
    machine.queue("run-1");
    working.handle.drain();
    assert_eq!(working.end().await.unwrap(), Ended::Drained);
    hold.let_go();
    assert_eq!(machine.claims(), 0, "an offer that comes after the drain is not claimed");
    assert_eq!(machine.plane.stage("run-1"), Some(Stage::Queued));
}

#[tokio::test]
async fn a_claim_in_flight_when_a_drain_comes_is_still_executed() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.queue("run-2");
    let hold = Hold::new();
    machine.plane.fault("assignments/assignment-run-1/claim", Fault::Hold(hold.clone()), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    machine.until_calls(POLL, 1).await;
    working.handle.drain();
    hold.let_go();
    assert_eq!(working.end().await.unwrap(), Ended::Drained);
    // Either the drain came before the claim was sent, or the claim was won and its run executed: never a run
    // that is leased and not executed.
    match machine.claims() {
        0 => assert_eq!(machine.plane.stage("run-1"), Some(Stage::Queued)),
        _ => assert_eq!(machine.assignments().len(), 1),
    }
    assert_eq!(machine.plane.stage("run-2"), Some(Stage::Queued));
}

#[tokio::test]
async fn a_stopped_runner_gives_its_run_back_and_ends_what_does_not_end() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let working = machine.start(machine.config(Script::Stubborn)).await;
    until(LIMIT, "a script that ignores TERM", || !machine.traces("trapped.").is_empty()).await.unwrap();
    working.handle.stop();
    assert_eq!(working.end().await.unwrap(), Ended::Drained);
    assert_eq!(machine.alive(), 0);
    assert_eq!(machine.releases(), ["handback"]);
    assert_eq!(machine.leftovers(), [""; 0].map(std::path::PathBuf::from));
}

#[tokio::test]
async fn a_runs_end_is_followed_by_the_next_poll_and_not_by_a_heartbeat_period() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.queue("run-2");
    let mut config = machine.config(Script::Ends);
    config.timing.heartbeat = 2 * LIMIT;
    config.lease_seconds = 3600;
    let working = machine.start(config).await;
    machine.until_assigned(2).await;
    machine.plane.drain();
    working.end().await.unwrap();
    assert_eq!(machine.plane.calls(BEAT).len(), 0);
}

#[tokio::test]
async fn once_ends_after_one_executed_run() {
    let machine = Machine::new().await;
    for run in ["run-1", "run-2"] {
        machine.queue(run);
    }
    machine.plane.fault("assignments/assignment-run-1/claim", Fault::Refuse(409), 1);
    let config = trestle_runner::Config { once: true, ..machine.config(Script::Ends) };
    let working = machine.start(config).await;
    assert_eq!(working.end().await.unwrap(), Ended::Once);
    assert_eq!((machine.claims(), machine.assignments().len()), (2, 1), "a lost race does not count");
}

#[tokio::test]
async fn an_idle_limit_ends_a_runner_that_gets_no_work_but_not_one_that_works() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let idle_limit = Some(std::time::Duration::from_secs(3));
    let config = trestle_runner::Config { idle_limit, slots: 2, ..machine.config(Script::Waits) };
    let working = machine.start(config).await;
    machine.until_assigned(1).await;
    let beats = machine.plane.calls(BEAT).len();
    // More than the limit passes while the run is worked on and the second slot polls.
    machine.until_calls(BEAT, beats + 200).await;
    assert!(!working.ended());
    machine.let_go().await;
    assert_eq!(working.end().await.unwrap(), Ended::Idle);
}
