//! Ends of runs that their processes could not tell.

use trestle_testkit::control_plane::{Fault, Stage};

use crate::support::{LIMIT, Machine, Script};

/// Leaves the end of its run as a run process does that is killed before it was answered.
const LEAVES_A_RESULT: &str = r#"
url=$(printf '%s' "$line" | sed 's/.*"control_plane_url":"\([^"]*\)".*/\1/')
run=$(printf '%s' "$line" | sed 's/.*"run_id":"\([^"]*\)".*/\1/')
printf '{"url":"%s/runner/v1/runs/%s/finalize","body":{"status":"completed","output":[1],"workerId":"w"}}' "${url%/}" "$run" > result.json
kill -9 $$
"#;

#[tokio::test]
async fn the_result_of_a_process_that_was_killed_is_sent_by_its_runner() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault("finalize", Fault::Refuse(503), 2);
    machine.plane.fault("finalize", Fault::LoseAnswer, 1);
    let working = machine.start(machine.config(Script::Does(LEAVES_A_RESULT))).await;
    let end = machine.plane.until_finalized(LIMIT, "run-1").await.unwrap();
    assert_eq!(end.output.get(), "[1]");
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.releases().is_empty(), "a run that has ended was given back");
    assert!(machine.leftovers().is_empty());
    assert_eq!(machine.plane.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_result_that_is_refused_is_not_insisted_on_and_the_run_is_given_back() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault("finalize", Fault::Refuse(409), 1);
    let working = machine.start(machine.config(Script::Does(LEAVES_A_RESULT))).await;
    let released = |plane: &trestle_testkit::control_plane::FakeControlPlane| {
        plane.calls("/runner/v1/pool/release").len() == 1
    };
    machine.plane.until(LIMIT, "the release", released).await.unwrap();
    machine.plane.until_finalized(LIMIT, "run-1").await.unwrap();
    assert_eq!(machine.plane.stage("run-1"), Some(Stage::Finalized), "the next attempt ended it");
    working.handle.drain();
    working.end().await.unwrap();
}
