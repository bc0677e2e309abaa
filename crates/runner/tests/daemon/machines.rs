//! Several daemons on one machine, and what a dead one left.

use std::sync::Arc;

use trestle_runner::{Config, PoolClient, Runner, RunnerError};
use trestle_sandbox::HostIsolation;

use crate::support::{Machine, Script, register};

#[tokio::test]
async fn two_runners_share_a_work_directory_and_leave_each_other_alone() {
    let machine = Machine::new().await;
    let others = trestle_runner::IdentityDirectory::new(machine.home.path().join("others"));
    let second = register(&machine.plane, "bwkreg_second", &others).await;
    machine.queue("run-1");
    let config = machine.config(Script::Waits);
    let first = machine.start(config.clone()).await;
    machine.until_assigned(1).await;
    let workspace = machine.assignments()[0]["workspace_dir"].as_str().unwrap().to_owned();
    machine.queue("run-2");
    let other = machine.start_as(config.clone(), &second).await;
    machine.until_assigned(2).await;
    assert!(std::path::Path::new(&workspace).exists(), "the second one swept the first one's run");
    // One identity works in one process at a time.
    let third = Runner::start(config, &second, Arc::new(HostIsolation)).await.err().unwrap();
    assert!(matches!(third, RunnerError::WorkDirectoryLocked { .. }), "{third}");
    assert!(third.hint().unwrap().contains("identity"));
    machine.let_go().await;
    machine.let_go().await;
    first.handle.drain();
    other.handle.drain();
    first.end().await.unwrap();
    other.end().await.unwrap();
    let owners: std::collections::BTreeSet<String> = machine
        .assignments()
        .iter()
        .map(|assignment| assignment["worker_id"].as_str().unwrap().split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(owners.len(), 2);
}

#[tokio::test]
async fn what_a_dead_runner_held_is_given_back_and_cleared_away_when_it_starts_again() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let config = machine.config(Script::Ends);
    // A runner that claimed, wrote down its lease, and died.
    let declaration = trestle_contract::pool::Declaration::of_runner("0.1.0").unwrap();
    let timing = config.timing.clone();
    let client =
        PoolClient::new(&machine.plane.url(), declaration, timing.poll_deadline, timing.call_deadline)
            .unwrap();
    let token = machine.identity.runner_token.clone().into();
    let offer = client.poll(&token).await.unwrap().assignment.unwrap();
    client.claim(&token, offer.assignment_id.as_str()).await.unwrap();
    let own = machine.home.path().join("work").join(&machine.identity.runner_id);
    std::fs::create_dir_all(own.join("leases")).unwrap();
    std::fs::create_dir_all(own.join("slots/77-1/workspace")).unwrap();
    let record = r#"{"lease_id":"lease-run-1-1","run_id":"run-1"}"#;
    std::fs::write(own.join("leases/lease-run-1-1.json"), record).unwrap();
    std::fs::write(own.join("leases/torn.json"), &record[..20]).unwrap();

    let working = machine.start(config).await;
    machine.until_assigned(1).await;
    working.handle.drain();
    working.end().await.unwrap();
    assert_eq!(machine.releases(), ["died"]);
    assert!(machine.leftovers().is_empty());
    let releases = machine.plane.exchanges().iter().position(|call| call.path.ends_with("/release"));
    let polls = machine.plane.exchanges().iter().rposition(|call| call.path.ends_with("/poll"));
    assert!(releases < polls, "what was held is given back before anything is asked for");
}

#[tokio::test]
async fn an_address_that_is_none_and_a_missing_interpreter_are_told_before_anything_is_done() {
    let machine = Machine::new().await;
    let config = machine.config(Script::Ends);
    let start = |config: Config| Runner::start(config, &machine.identity, Arc::new(HostIsolation));
    let error = start(Config { url: "ftp://x".to_owned(), ..config.clone() }).await.err().unwrap();
    assert!(matches!(error, RunnerError::Address { .. }), "{error}");
    let node = Some(machine.home.path().join("no-node"));
    let error = start(Config { node, ..config }).await.err().unwrap();
    assert!(matches!(error, RunnerError::Interpreter(_)), "{error}");
    assert_eq!(machine.polls(), 0);
}
