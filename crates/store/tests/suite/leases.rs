use std::sync::Arc;

use super::{Bench, Factory, Held, LEASE, START};
use trestle_contract::event::RunStatus;
use trestle_store::{
    Conflict, LeaseMode, ReleaseReason, Releaser, RunnerRow, StoreError, StoreResult, TakenBack,
};

fn conflict<T: std::fmt::Debug>(result: StoreResult<T>) -> Conflict {
    match result.unwrap_err() {
        StoreError::Conflict(conflict) => conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

pub(crate) async fn renewing_moves_the_end_and_never_back(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.advance(60_000);
    bench.beat(&held).await.unwrap();
    let end = bench.store.renew(&held.fence, LEASE).await.unwrap();
    assert_eq!(end, bench.store.now_ms() + LEASE);
    assert_eq!(bench.store.renew(&held.fence, 1).await.unwrap(), end, "a short renewal takes nothing away");
    assert_eq!(bench.store.run(&held.run).await.unwrap().lease_until, Some(end));
    bench.store.request_cancel(&held.run).await.unwrap();
    bench.store.renew(&held.fence, LEASE).await.unwrap();
}

pub(crate) async fn a_heartbeat_moves_the_assignment_lease(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    bench.advance(60_000);
    let answer = bench.beat(&held).await.unwrap();
    assert_eq!(answer.lease_expires_at, bench.store.now_ms() + LEASE);
    assert!(!answer.cancel && !answer.drain);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().last_seen_at, Some(bench.store.now_ms()));
    let mut foreign = held.clone();
    foreign.runner = bench.runner("two", &[]).await.id;
    assert_eq!(conflict(bench.beat(&foreign).await), Conflict::LeaseLost);
}

pub(crate) async fn a_heartbeat_reports_cancel_and_drain(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.store.request_cancel(&held.run).await.unwrap();
    bench.store.drain_runner(&runner.id, "maintenance").await.unwrap();
    let answer = bench.beat(&held).await.unwrap();
    assert!(answer.cancel && answer.drain);
    bench.complete(&held).await.unwrap();
    assert_eq!(conflict(bench.beat(&held).await), Conflict::LeaseLost);
}

pub(crate) async fn either_lapsed_lease_refuses_both(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let without_beats = bench.running(&runner).await;
    let without_renewals = bench.running(&runner).await;
    bench.advance(LEASE / 2);
    bench.store.renew(&without_beats.fence, LEASE).await.unwrap();
    bench.beat(&without_renewals).await.unwrap();
    bench.advance(LEASE / 2);
    for held in [&without_beats, &without_renewals] {
        assert_eq!(conflict(bench.store.renew(&held.fence, LEASE).await), Conflict::Displaced);
        assert_eq!(conflict(bench.beat(held).await), Conflict::LeaseLost);
        assert_eq!(conflict(bench.complete(held).await), Conflict::Displaced);
        assert!(bench.store.cancel_state(&held.fence).await.unwrap().requested);
    }
    let report = bench.store.sweep_leases(10).await.unwrap();
    assert_eq!(report.taken_back.len(), 2);
    assert_eq!(report.next_expiry, None);
}

pub(crate) async fn a_lapsed_run_is_requeued_as_the_next_attempt(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    assert!(bench.store.sweep_leases(10).await.unwrap().taken_back.is_empty());
    assert_eq!(bench.lose().await, [(held.run.clone(), TakenBack::Requeued)]);
    let run = bench.store.run(&held.run).await.unwrap();
    assert_eq!((run.status, run.attempt), (RunStatus::Pending, 2));
    assert_eq!(run.pending_since, Some(bench.store.now_ms()));
    assert_eq!(run.lease_until, None);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 0);
    assert_eq!(bench.shown_statuses(&held.run).await, ["queued", "pending", "pending"]);
    let offer = bench.offer(&runner).await;
    assert_ne!(offer.assignment, held.assignment, "another assignment of the same run");
    assert_eq!(offer.queued_at, bench.store.now_ms());
}

pub(crate) async fn three_lost_attempts_crash_the_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let run = bench.run().await;
    for expected in [TakenBack::Requeued, TakenBack::Requeued, TakenBack::Crashed] {
        bench.start(&runner).await;
        assert_eq!(bench.lose().await, [(run.id.clone(), expected)]);
    }
    let run = bench.store.run(&run.id).await.unwrap();
    assert_eq!((run.status, run.attempt), (RunStatus::Failed, 3));
    assert_eq!(run.error.unwrap().code, "CRASHED");
    assert!(run.completed_at.is_some());
    let page = bench.store.read_events(&run.id, 0, 100).await.unwrap();
    assert!(page.done, "nobody is left who could send more");
    assert!(page.frames.last().unwrap().json.contains("CRASHED"));
    assert!(bench.offers(&[&runner]).await.is_empty());
}

pub(crate) async fn a_displaced_process_reaches_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let old = bench.running(&runner).await;
    bench.lose().await;
    let new = bench.start(&runner).await;
    let before = (bench.store.run(&old.run).await.unwrap(), bench.store.last_cursor(&old.run).await.unwrap());
    assert_eq!(conflict(bench.store.renew(&old.fence, LEASE).await), Conflict::Displaced);
    assert_eq!(conflict(bench.complete(&old).await), Conflict::Displaced);
    assert_eq!(conflict(bench.send(&old.fence, &[9_000_001]).await), Conflict::Displaced);
    assert_eq!(conflict(bench.beat(&old).await), Conflict::LeaseLost);
    assert_eq!(conflict(bench.claim_run(&old.fence, "process-1").await), Conflict::Displaced);
    let release = bench.store.release(Releaser::Session(old.fence.clone()), ReleaseReason::Died).await;
    assert_eq!(conflict(release), Conflict::Displaced);
    assert!(bench.store.cancel_state(&old.fence).await.unwrap().requested);
    assert!(!bench.store.cancel_state(&new.fence).await.unwrap().requested);
    let after = (bench.store.run(&old.run).await.unwrap(), bench.store.last_cursor(&old.run).await.unwrap());
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

pub(crate) async fn a_release_requeues_at_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let by = Releaser::Session(held.fence.clone());
    assert_eq!(bench.store.release(by.clone(), ReleaseReason::Died).await.unwrap(), TakenBack::Requeued);
    assert_eq!(conflict(bench.store.release(by, ReleaseReason::Died).await), Conflict::Displaced);
    let next = bench.start(&runner).await;
    assert_eq!(next.run, held.run);
    assert_eq!(bench.store.run(&held.run).await.unwrap().attempt, 2);
    for expected in [TakenBack::Requeued, TakenBack::Crashed] {
        let held = if expected == TakenBack::Requeued { next.clone() } else { bench.start(&runner).await };
        let taken = bench.store.release(Releaser::Session(held.fence), ReleaseReason::Died).await.unwrap();
        assert_eq!(taken, expected);
    }
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().drain_reason, None, "it was never silent");
}

pub(crate) async fn a_handback_is_not_a_lost_attempt(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let run = bench.run().await;
    for _ in 0..5 {
        let held = bench.start(&runner).await;
        let taken =
            bench.store.release(Releaser::Session(held.fence), ReleaseReason::Handback).await.unwrap();
        assert_eq!(taken, TakenBack::Requeued);
    }
    let unstarted = bench.claim(&runner).await;
    let by = Releaser::Runner { runner: runner.id.clone(), lease: unstarted.lease };
    bench.store.release(by, ReleaseReason::Handback).await.unwrap();
    let run = bench.store.run(&run.id).await.unwrap();
    assert_eq!((run.status, run.attempt), (RunStatus::Pending, 6), "the sixth try has not begun");
}

pub(crate) async fn a_runner_releases_its_own_lease_only(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let other = bench.runner("two", &[]).await;
    let held = bench.running(&runner).await;
    let by = |runner: &RunnerRow| Releaser::Runner { runner: runner.id.clone(), lease: held.lease.clone() };
    assert_eq!(conflict(bench.store.release(by(&other), ReleaseReason::Died).await), Conflict::LeaseLost);
    assert_eq!(bench.store.release(by(&runner), ReleaseReason::Died).await.unwrap(), TakenBack::Requeued);
    assert_eq!(conflict(bench.store.release(by(&runner), ReleaseReason::Died).await), Conflict::LeaseLost);
}

pub(crate) async fn five_lost_leases_in_a_row_drain_the_runner(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for index in 1..=5 {
        bench.running(&runner).await;
        bench.advance(LEASE);
        let report = bench.store.sweep_leases(10).await.unwrap();
        assert_eq!(report.drained.len(), usize::from(index == 5), "after {index} losses");
        // The next loss is of another run: what was requeued is not to be taken first.
        for run in bench
            .store
            .list_runs(trestle_store::RunFilter { limit: 1, ..Default::default() })
            .await
            .unwrap()
            .runs
        {
            bench.store.request_cancel(&run.id).await.unwrap();
        }
    }
    let reason = bench.store.runner(&runner.id).await.unwrap().drain_reason.unwrap();
    assert!(reason.contains("5 leases in a row"), "{reason}");
}

pub(crate) async fn one_outage_is_one_loss_in_the_row(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for _ in 0..8 {
        bench.run().await;
    }
    for _ in 0..8 {
        bench.start(&runner).await;
    }
    assert_eq!(bench.lose().await.len(), 8);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().drain_reason, None);
}

pub(crate) async fn a_finalize_breaks_the_row(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for _ in 0..4 {
        bench.run().await;
        for _ in 0..2 {
            bench.start(&runner).await;
            bench.lose().await;
        }
        let held = bench.start(&runner).await;
        bench.complete(&held).await.unwrap();
    }
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().drain_reason, None);
}

async fn both_leases(bench: &Bench, runner: &RunnerRow) -> (Held, Held) {
    let started = bench.running(runner).await;
    bench.run().await;
    (started, bench.claim(runner).await)
}

pub(crate) async fn live_leases_get_their_length_back_after_a_restart(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let (started, claimed) = both_leases(&bench, &runner).await;
    bench.advance(10_000);
    bench.store.check().await.unwrap();
    // Away for longer than any lease.
    bench.advance(3_600_000);
    bench.wall.advance(3_610_000);
    bench.reopen().await;
    assert_eq!(bench.store.extend_leases().await.unwrap(), 3);
    assert!(bench.store.sweep_leases(10).await.unwrap().taken_back.is_empty());
    bench.advance(LEASE - 1);
    assert!(bench.store.sweep_leases(10).await.unwrap().taken_back.is_empty());
    bench.beat(&claimed).await.unwrap();
    bench.complete(&started).await.unwrap();
    bench.advance(1);
    assert!(bench.store.sweep_leases(10).await.unwrap().taken_back.is_empty());
}

pub(crate) async fn leases_that_lapsed_before_a_restart_stay_lapsed(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.advance(LEASE);
    bench.wall.advance(LEASE);
    bench.store.check().await.unwrap();
    bench.reopen().await;
    assert_eq!(bench.store.extend_leases().await.unwrap(), 0);
    let report = bench.store.sweep_leases(10).await.unwrap();
    assert_eq!(report.taken_back, [(held.run, TakenBack::Requeued)]);
}

pub(crate) async fn the_leases_of_a_dead_runner_end_at_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let dead = bench.runner("one", &[]).await;
    let alive = bench.runner("two", &[]).await;
    let (started, claimed) = both_leases(&bench, &dead).await;
    let other = bench.running(&alive).await;
    let taken = bench.store.end_runner_leases(&dead.id, ReleaseReason::Died).await.unwrap();
    assert_eq!(taken, [(started.run, TakenBack::Requeued), (claimed.run, TakenBack::Requeued)]);
    bench.beat(&other).await.unwrap();
    assert_eq!(bench.store.runner(&dead.id).await.unwrap().active_leases, 0);
    assert!(bench.store.end_runner_leases(&dead.id, ReleaseReason::Died).await.unwrap().is_empty());
}

pub(crate) async fn lent_leases_free_the_slot(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let counts = || async {
        let row = bench.store.runner(&runner.id).await.unwrap();
        (row.active_leases, row.waiting_leases)
    };
    bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Lent).await.unwrap();
    bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Lent).await.unwrap();
    assert_eq!(counts().await, (0, 1));
    bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Parked).await.unwrap();
    assert_eq!(counts().await, (0, 1));
    bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Active).await.unwrap();
    assert_eq!(counts().await, (1, 0));
    bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Lent).await.unwrap();
    bench.complete(&held).await.unwrap();
    assert_eq!(counts().await, (0, 0));
    let late = bench.store.set_lease_mode(&runner.id, &held.lease, LeaseMode::Active).await;
    assert_eq!(conflict(late), Conflict::LeaseLost);
}

pub(crate) async fn the_sweep_tells_the_next_expiry(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.running(&runner).await;
    bench.advance(1_000);
    bench.running(&runner).await;
    let report = bench.store.sweep_leases(10).await.unwrap();
    assert_eq!(report.next_expiry, Some(bench.store.now_ms() + LEASE - 1_000));
}

pub(crate) async fn time_never_runs_backwards(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    bench.advance(500_000);
    bench.store.check().await.unwrap();
    let before = bench.store.now_ms();
    assert_eq!(before, START + 500_000);
    bench.wall.set(START - 1_000_000);
    bench.reopen().await;
    assert!(bench.store.now_ms() >= before);
    bench.advance(7);
    assert_eq!(bench.store.now_ms(), before + 7);
}
