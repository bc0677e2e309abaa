use std::sync::Arc;

use super::{Bench, Factory, completed, run_claim};
use trestle_contract::event::RunStatus;
use trestle_store::{CancelOutcome, Conflict, StoreError, TakenBack};

pub(crate) async fn a_queued_run_is_cancelled_at_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let run = bench.run().await;
    let offer = bench.offer(&runner).await;
    assert_eq!(bench.store.request_cancel(&run.id).await.unwrap(), CancelOutcome::Cancelled);
    let ended = bench.store.run(&run.id).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert_eq!(ended.completed_at, Some(bench.store.now_ms()));
    assert_eq!(bench.shown_statuses(&run.id).await, ["queued", "pending", "cancelled"]);
    assert!(bench.store.read_events(&run.id, 0, 10).await.unwrap().done);
    bench.take(&offer).await.unwrap_err();
    bench.advance(5_000);
    assert!(bench.offers(&[&runner]).await.is_empty());
}

pub(crate) async fn between_the_claims_cancel_is_immediate(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    let granted = bench.store.access(&held.fence).await.unwrap().epoch;
    assert_eq!(bench.store.request_cancel(&held.run).await.unwrap(), CancelOutcome::Cancelled);
    // Whoever ends a run that is not its own takes the next epoch with it.
    assert_eq!(bench.store.access(&held.fence).await.unwrap().epoch, granted + 1);
    assert!(matches!(
        bench.claim_run(&held.fence, "process-1").await,
        Err(StoreError::Conflict(Conflict::RunEnded))
    ));
    assert!(bench.beat(&held).await.is_err());
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 0);
}

pub(crate) async fn a_held_run_is_cancelling_until_its_process_ends_it(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    assert!(!bench.store.cancel_state(&held.fence).await.unwrap().requested);
    let mut changes = bench.store.changes();
    assert_eq!(bench.store.request_cancel(&held.run).await.unwrap(), CancelOutcome::Cancelling);
    assert_eq!(changes.recv().await.unwrap(), trestle_store::Change::Run(held.run.clone()));
    assert_eq!(bench.store.request_cancel(&held.run).await.unwrap(), CancelOutcome::Cancelling);
    assert!(bench.store.cancel_state(&held.fence).await.unwrap().requested);
    let asked = bench.store.run(&held.run).await.unwrap();
    assert_eq!((asked.status, asked.completed_at), (RunStatus::Cancelling, None));
    let ended = bench.complete(&held).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled, "whatever the process reports");
    assert!(bench.store.cancel_state(&held.fence).await.unwrap().requested);
    assert_eq!(bench.shown_statuses(&held.run).await.last().unwrap(), "cancelled");
}

pub(crate) async fn cancel_after_the_end_changes_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.complete(&held).await.unwrap();
    let before = format!("{:?}", bench.store.run(&held.run).await.unwrap());
    let outcome = bench.store.request_cancel(&held.run).await.unwrap();
    assert_eq!(outcome, CancelOutcome::AlreadyEnded(RunStatus::Completed));
    assert_eq!(format!("{:?}", bench.store.run(&held.run).await.unwrap()), before);
    assert!(!bench.store.cancel_state(&held.fence).await.unwrap().requested);
}

pub(crate) async fn a_cancelling_run_that_is_lost_is_cancelled(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let swept = bench.running(&runner).await;
    bench.store.request_cancel(&swept.run).await.unwrap();
    assert_eq!(bench.lose().await, [(swept.run.clone(), TakenBack::Cancelled)]);
    assert_eq!(bench.status(&swept.run).await, RunStatus::Cancelled);
    // And without waiting for the sweep, when somebody asks again.
    let asked = bench.running(&runner).await;
    bench.store.request_cancel(&asked.run).await.unwrap();
    bench.advance(super::LEASE);
    assert_eq!(bench.store.request_cancel(&asked.run).await.unwrap(), CancelOutcome::Cancelled);
}

pub(crate) async fn a_displaced_process_is_told_to_stop(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.lose().await;
    assert!(bench.store.cancel_state(&held.fence).await.unwrap().requested);
}

/// Two operations at the same instant.
async fn race<A, B>(
    left: impl std::future::Future<Output = A> + Send + 'static,
    right: impl std::future::Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let other = barrier.clone();
    let left = tokio::spawn(async move {
        barrier.wait().await;
        left.await
    });
    let right = tokio::spawn(async move {
        other.wait().await;
        right.await
    });
    (left.await.unwrap(), right.await.unwrap())
}

pub(crate) async fn cancel_or_claim_but_not_both(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for _ in 0..20 {
        bench.run().await;
        let held = bench.claim(&runner).await;
        let (store, other) = (bench.store.clone(), bench.store.clone());
        let (claim, run) = (run_claim(&held.fence, Some("process"), true), held.run.clone());
        let (claimed, cancelled) =
            race(
                async move { store.claim_run(claim).await },
                async move { other.request_cancel(&run).await },
            )
            .await;
        match cancelled.unwrap() {
            CancelOutcome::Cancelled => {
                assert!(claimed.is_err());
                assert_eq!(bench.status(&held.run).await, RunStatus::Cancelled);
            }
            CancelOutcome::Cancelling => {
                assert!(claimed.is_ok());
                assert_eq!(bench.status(&held.run).await, RunStatus::Cancelling);
                bench.complete(&held).await.unwrap();
            }
            CancelOutcome::AlreadyEnded(status) => panic!("it had not ended, but is {status}"),
        }
    }
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 0);
}

pub(crate) async fn cancel_or_finalize_but_one_end(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for _ in 0..20 {
        let held = bench.running(&runner).await;
        let (store, other) = (bench.store.clone(), bench.store.clone());
        let (end, run) = (completed(&held.fence, "1"), held.run.clone());
        let (ended, cancelled) =
            race(async move { store.finalize(end).await }, async move { other.request_cancel(&run).await })
                .await;
        let status = ended.unwrap().status;
        match cancelled.unwrap() {
            CancelOutcome::AlreadyEnded(seen) => assert_eq!((seen, status), (status, RunStatus::Completed)),
            CancelOutcome::Cancelling => assert_eq!(status, RunStatus::Cancelled),
            CancelOutcome::Cancelled => panic!("a process held it"),
        }
        assert_eq!(bench.status(&held.run).await, status);
    }
}
