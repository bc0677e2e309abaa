//! Claims: lost races and answers, answers that cannot be used, what reaches the run process.

use serde_json::{Value, json};
use trestle_testkit::clock::until;
use trestle_testkit::control_plane::{FakeRun, Fault, Stage};

use crate::support::{LIMIT, Machine, POLL, Script};

const CLAIM: &str = "assignments/assignment-run-1/claim";

fn without(answer: &mut Value, keys: &[&str]) {
    for key in keys {
        answer.as_object_mut().unwrap().remove(*key);
    }
}

/// Waits until the run was executed, then ends the runner.
async fn executed(machine: &Machine, working: crate::support::Working) -> Value {
    machine.until_assigned(1).await;
    working.handle.drain();
    working.end().await.unwrap();
    assert_eq!(machine.processes().len(), 1, "it was started once");
    machine.assignments().remove(0)
}

#[tokio::test]
async fn a_lost_race_costs_one_claim_and_no_process() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault(CLAIM, Fault::Refuse(409), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    executed(&machine, working).await;
    assert_eq!(machine.claims(), 2);
    assert!(machine.releases().is_empty());
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_made_again_and_its_run_executed_once() {
    for fault in [Fault::LoseAnswer, Fault::CutBefore, Fault::Refuse(502), Fault::RefuseFor(503, 0)] {
        let machine = Machine::new().await;
        machine.queue("run-1");
        machine.plane.fault(CLAIM, fault, 2);
        let working = machine.start(machine.config(Script::Ends)).await;
        let assignment = executed(&machine, working).await;
        assert_eq!(machine.claims(), 3);
        // The lease is still the first one: no second claim moved the run on.
        assert!(assignment["worker_id"].as_str().unwrap().ends_with(":lease-run-1-1"), "{assignment}");
    }
}

#[tokio::test]
async fn a_claim_that_is_forbidden_is_not_the_end_of_the_runner() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault(CLAIM, Fault::Refuse(403), 1);
    machine.plane.fault(CLAIM, Fault::Refuse(401), 1);
    machine.plane.fault(CLAIM, Fault::Say(201, "{}"), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    executed(&machine, working).await;
    assert_eq!(machine.claims(), 4);
}

#[tokio::test]
async fn a_claim_that_cannot_be_used_is_given_back_at_once() {
    let edits: [fn(&mut Value); 7] = [
        |answer| answer["surprise"] = json!(1),
        |answer| answer["control_plane"]["surprise"] = json!(1),
        |answer| without(answer, &["env"]),
        |answer| answer["environment_id"] = json!(""),
        |answer| answer["env"] = json!({ "A": 1 }),
        |answer| without(answer, &["workflow_id"]),
        |answer| answer["byo_providers"] = json!([{ "name": "x" }]),
    ];
    for edit in edits {
        let machine = Machine::new().await;
        machine.queue("run-1");
        machine.plane.fault(CLAIM, Fault::Edit(edit), 1);
        let working = machine.start(machine.config(Script::Ends)).await;
        let assignment = executed(&machine, working).await;
        assert_eq!(machine.releases(), ["died"]);
        assert!(assignment["worker_id"].as_str().unwrap().ends_with(":lease-run-1-2"), "{assignment}");
    }
}

#[tokio::test]
async fn claims_of_older_control_planes_are_executed() {
    let older: [fn(&mut Value); 3] = [
        |_| {},
        |answer| without(answer, &["workspace_key"]),
        |answer| without(answer, &["workspace_key", "workflow_id", "environment_id"]),
    ];
    for edit in older {
        let machine = Machine::new().await;
        machine.queue("run-1");
        machine.plane.fault(CLAIM, Fault::Edit(edit), 1);
        let working = machine.start(machine.config(Script::Ends)).await;
        let assignment = executed(&machine, working).await;
        assert_eq!(assignment["run_id"], "run-1");
        assert!(machine.releases().is_empty());
    }
}

#[tokio::test]
async fn a_claim_for_another_run_than_the_offered_one_is_not_executed() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.plane.fault(CLAIM, Fault::Edit(|answer| answer["run_id"] = json!("run-9")), 1);
    let working = machine.start(machine.config(Script::Ends)).await;
    until(LIMIT, "the release", || !machine.releases().is_empty()).await.unwrap();
    let released = machine.plane.calls("/runner/v1/pool/release")[0].json();
    assert_eq!(released["run_id"], "run-9");
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.assignments().iter().all(|assignment| assignment["run_id"] == "run-1"));
}

#[tokio::test]
async fn an_offer_that_is_not_for_this_machine_is_not_claimed() {
    let edits: [fn(&mut Value); 4] = [
        |answer| answer["assignment"]["runs_on"]["pool"] = json!("other"),
        |answer| answer["assignment"]["runs_on"]["labels"] = json!(["a100"]),
        // An address with such a segment leads somewhere else.
        |answer| answer["assignment"]["assignment_id"] = json!(".."),
        |answer| answer["assignment"]["run_token"] = json!("bwrt_leaked"),
    ];
    for edit in edits {
        let machine = Machine::new().await;
        machine.queue("run-1");
        machine.plane.fault("poll", Fault::Edit(edit), 3);
        let mut config = machine.config(Script::Ends);
        config.labels = Some(vec!["gpu".to_owned()]);
        let working = machine.start(config).await;
        executed(&machine, working).await;
        assert_eq!(machine.claims(), 1);
        let exchanges = machine.plane.exchanges();
        let claim = exchanges.iter().position(|call| call.path.contains("/assignments/")).unwrap();
        let polls = exchanges[..claim].iter().filter(|call| call.path == POLL).count();
        assert_eq!(polls, 4, "the fourth offer was as it should be");
        assert_eq!(machine.plane.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn hostile_ids_touch_nothing_outside_of_the_runs_directory() {
    let machine = Machine::new().await;
    // A run id that climbs is refused before anything is made.
    machine.queue("run-1");
    machine.plane.fault("poll", Fault::Edit(|answer| answer["assignment"]["run_id"] = json!("..")), 1);
    machine.plane.fault(CLAIM, Fault::Edit(|answer| answer["run_id"] = json!("..")), 1);
    let before = tree(&machine);
    let config = machine.config(Script::Ends);
    let working = machine.start(config.clone()).await;
    until(LIMIT, "the release", || !machine.releases().is_empty()).await.unwrap();
    working.handle.drain();
    working.end().await.unwrap();
    assert!(machine.assignments().is_empty());
    assert_eq!(machine.plane.stage("run-1"), Some(Stage::Leased), "nobody could say which run it was");

    // The other ids and the workspace key are no part of any path.
    let mut run = FakeRun::new("run-2", "program").unwrap();
    run.workspace_key = Some("../../../../escaped".to_owned());
    run.workflow_id = "..".to_owned();
    machine.plane.queue(run);
    let hostile: fn(&mut Value) = |answer| {
        answer["lease_id"] = json!("../../../escaped");
        answer["environment_id"] = json!("..");
    };
    machine.plane.fault("assignments/assignment-run-2/claim", Fault::Edit(hostile), 1);
    let working = machine.start(config).await;
    let assignment = executed(&machine, working).await;
    let root = machine.home.path().join("work").join(&machine.identity.runner_id).canonicalize().unwrap();
    for part in ["workspace_dir", "tmp_dir", "program_root"] {
        let path = std::path::Path::new(assignment[part].as_str().unwrap());
        assert!(path.starts_with(root.join("slots")), "{part} {}", path.display());
    }
    assert_eq!(tree(&machine), before, "nothing was made beside the runner's own directory");
    assert!(machine.leftovers().is_empty());
}

/// Everything on the machine but the traces of scripts and the runner's own directory.
fn tree(machine: &Machine) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![machine.home.path().to_owned()];
    let own = machine.home.path().join("work");
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path == own || path == machine.out() {
                continue;
            }
            if path.is_dir() {
                waiting.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn reserved_and_impossible_environment_entries_do_not_reach_the_run() {
    let machine = Machine::new().await;
    let mut run = FakeRun::new("run-1", "program").unwrap();
    let entries = [
        ("REGION", "eu"),
        ("RUN_ID", "forged"),
        ("BOARDWALK_RUN_TOKEN", "forged"),
        ("BOARDWALK_CONTROL_PLANE_URL", "http://evil.invalid"),
        ("NUL", "a\0b"),
        ("", "x"),
        ("A=B", "x"),
    ];
    run.env = entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    machine.plane.queue(run);
    let working = machine.start(machine.config(Script::Ends)).await;
    let assignment = executed(&machine, working).await;
    assert_eq!(assignment["env"], json!({ "REGION": "eu" }));
    assert_eq!(assignment["run_id"], "run-1");
    assert_eq!(assignment["control_plane_url"], machine.plane.url());
    assert!(assignment["run_token"].as_str().unwrap().starts_with("bwrt_run-1"));
}

#[tokio::test]
async fn every_attempt_has_a_name_of_its_own() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let working = machine.start(machine.config(Script::Dies)).await;
    machine.until_assigned(3).await;
    working.handle.drain();
    working.end().await.unwrap();
    let mut names: Vec<String> = machine
        .assignments()
        .iter()
        .map(|assignment| assignment["worker_id"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.iter().all(|name| name.starts_with(&machine.identity.runner_id)), "{names:?}");
}
