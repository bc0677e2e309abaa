use std::sync::Arc;

use super::{Bench, Factory, LEASE, run_claim};
use trestle_contract::event::RunStatus;
use trestle_contract::ids::AssignmentId;
use trestle_store::{AssignmentClaim, Conflict, Entity, Fence, StoreError};

fn conflict<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Conflict {
    match result.unwrap_err() {
        StoreError::Conflict(conflict) => conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

pub(crate) async fn the_pool_claim_takes_epoch_and_slot(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let run = bench.run().await;
    let offer = bench.offer(&runner).await;
    let claimed = bench.take(&offer).await.unwrap();
    assert_eq!((claimed.run.epoch, claimed.run.status), (run.epoch + 1, RunStatus::Pending));
    assert_eq!(claimed.run.dispatch_attempts, 1);
    assert_eq!(claimed.lease_expires_at, bench.store.now_ms() + LEASE);
    assert!(!claimed.repeated);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 1);
    assert!(bench.offers(&[&runner]).await.is_empty(), "it is not offered any more");
}

pub(crate) async fn a_repeated_pool_claim_is_the_same_lease(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let offer = bench.offer(&runner).await;
    let first = bench.take(&offer).await.unwrap();
    bench.advance(1_000);
    let again = bench.take(&offer).await.unwrap();
    assert_eq!((again.lease.clone(), again.run.epoch), (first.lease.clone(), first.run.epoch));
    assert!(again.repeated);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 1, "one slot, not two");
    bench.reopen().await;
    assert_eq!(bench.take(&offer).await.unwrap().lease, first.lease);
}

pub(crate) async fn after_the_run_claim_the_pool_claim_conflicts(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let offer = bench.offer(&runner).await;
    let claimed = bench.take(&offer).await.unwrap();
    let fence = Fence { run: claimed.run.id, epoch: claimed.run.epoch };
    bench.claim_run(&fence, "process-1").await.unwrap();
    assert_eq!(conflict(bench.take(&offer).await), Conflict::AlreadyClaimed);
}

pub(crate) async fn another_runner_cannot_claim(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    let far = bench.store.create_runner("far", super::new_runner("far", &[])).await.unwrap();
    bench.run().await;
    let mut offer = bench.offer(&one).await;
    offer.runner = far.id;
    assert!(matches!(bench.take(&offer).await, Err(StoreError::NotFound(Entity::Assignment))));
    offer.runner = two.id.clone();
    assert_eq!(conflict(bench.take(&offer).await), Conflict::AssignmentTaken);
    offer.runner = one.id;
    bench.take(&offer).await.unwrap();
    offer.runner = two.id;
    assert_eq!(conflict(bench.take(&offer).await), Conflict::AssignmentTaken);
}

pub(crate) async fn an_unknown_assignment_is_not_found(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let claim = AssignmentClaim {
        runner: runner.id,
        assignment: AssignmentId::new("a/b c").unwrap(),
        lease_ms: LEASE,
    };
    assert!(matches!(
        bench.store.claim_assignment(claim).await,
        Err(StoreError::NotFound(Entity::Assignment))
    ));
}

pub(crate) async fn one_of_two_claimers_wins(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    for _ in 0..20 {
        let run = bench.run().await;
        let first = bench.offer(&one).await;
        bench.advance(5_000);
        let second = bench.offer(&two).await;
        let barrier = Arc::new(tokio::sync::Barrier::new(2));
        let claim = |offer: trestle_store::Offer| {
            let (store, barrier) = (bench.store.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                let (runner, assignment) = (offer.runner, offer.assignment);
                store.claim_assignment(AssignmentClaim { runner, assignment, lease_ms: LEASE }).await
            })
        };
        let (left, right) = (claim(first), claim(second));
        let results = [left.await.unwrap(), right.await.unwrap()];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert_eq!(bench.store.run(&run.id).await.unwrap().epoch, 1);
        let slots: i64 =
            bench.store.list_runners().await.unwrap().iter().map(|runner| runner.active_leases).sum();
        assert_eq!(slots, 1);
        let winner = results.into_iter().find_map(Result::ok).unwrap();
        let fence = Fence { run: winner.run.id, epoch: winner.run.epoch };
        bench.claim_run(&fence, "process").await.unwrap();
        bench.store.finalize(super::completed(&fence, "null")).await.unwrap();
    }
}

pub(crate) async fn the_run_claim_starts_the_run_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    bench.advance(50);
    let claimed = bench.claim_run(&held.fence, "process-1").await.unwrap();
    assert_eq!(claimed.run.status, RunStatus::Running);
    assert_eq!(claimed.run.started_at, Some(bench.store.now_ms()));
    assert_eq!(claimed.lease_until, bench.store.now_ms() + LEASE);
    assert_eq!(claimed.run.worker.as_deref(), Some("worker"));
    assert_eq!(claimed.run.version_number, 1);
    assert_eq!(bench.shown_statuses(&held.run).await, ["queued", "pending"], "the process sends `running`");
}

pub(crate) async fn a_repeated_run_claim_needs_the_same_session(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    let first = bench.claim_run(&held.fence, "process-1").await.unwrap();
    bench.advance(10);
    let again = bench.claim_run(&held.fence, "process-1").await.unwrap();
    assert!(again.repeated);
    assert_eq!(again.run.started_at, first.run.started_at);
    assert_eq!(conflict(bench.claim_run(&held.fence, "process-2").await), Conflict::Displaced);
}

pub(crate) async fn an_old_client_repeats_by_its_worker_name(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    bench.store.claim_run(run_claim(&held.fence, None, false)).await.unwrap();
    assert!(bench.store.claim_run(run_claim(&held.fence, None, false)).await.unwrap().repeated);
    let mut other = run_claim(&held.fence, None, false);
    other.worker = "another".to_owned();
    assert_eq!(conflict(bench.store.claim_run(other).await), Conflict::Displaced);
}

pub(crate) async fn a_stale_epoch_cannot_claim_the_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let first = bench.claim(&runner).await;
    bench.lose().await;
    assert_eq!(conflict(bench.claim_run(&first.fence, "process-1").await), Conflict::Displaced);
    let second = bench.claim(&runner).await;
    assert!(second.fence.epoch > first.fence.epoch);
    assert_eq!(conflict(bench.claim_run(&first.fence, "process-1").await), Conflict::Displaced);
    let ahead = Fence { run: second.run.clone(), epoch: second.fence.epoch + 1 };
    assert_eq!(conflict(bench.claim_run(&ahead, "process-1").await), Conflict::Displaced);
    bench.claim_run(&second.fence, "process-2").await.unwrap();
}

pub(crate) async fn the_run_claim_tells_the_last_cursor(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    assert_eq!(bench.claim_run(&held.fence, "process-1").await.unwrap().last_event_cursor, 2);
    bench.send(&held.fence, &[1_000_001, 2_000_001, 2_000_004]).await.unwrap();
    bench.lose().await;
    let next = bench.claim(&runner).await;
    let last = bench.claim_run(&next.fence, "process-2").await.unwrap().last_event_cursor;
    assert_eq!(last, 3_000_001, "the server's own `pending` frame is the last");
    assert_eq!(bench.store.last_cursor(&held.run).await.unwrap(), last);
}

pub(crate) async fn started_at_is_set_once_over_attempts(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let first = bench.store.run(&held.run).await.unwrap();
    bench.lose().await;
    bench.start(&runner).await;
    let second = bench.store.run(&held.run).await.unwrap();
    assert_eq!(second.started_at, first.started_at);
    assert_eq!((first.attempt, second.attempt), (1, 2));
}
