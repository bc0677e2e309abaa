use std::sync::Arc;

use super::{Bench, Factory, POOL, new_runner};
use trestle_contract::event::RunStatus;
use trestle_store::{Change, Entity, StoreError, TakenBack, TokenHash};

const HOUR: i64 = 3_600_000;

pub(crate) async fn a_registration_token_works_once(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let token = TokenHash::of("bwkreg_1");
    let row = bench.store.create_registration_token("gpu", token, HOUR).await.unwrap();
    assert_eq!((row.pool.as_str(), row.expires_at), ("gpu", bench.store.now_ms() + HOUR));
    bench.reopen().await;
    let runner = bench.store.redeem_registration_token(token, new_runner("one", &["x"])).await.unwrap();
    assert_eq!(runner.pool, "gpu");
    let second = bench.store.redeem_registration_token(token, new_runner("two", &[])).await;
    assert!(matches!(second, Err(StoreError::NotFound(Entity::RegistrationToken))));
    assert_eq!(bench.store.list_runners().await.unwrap().len(), 1);
    let found = bench.store.runner_by_token(TokenHash::of("token of one")).await.unwrap();
    assert_eq!(found.id, runner.id);
}

pub(crate) async fn one_of_two_redeemers_wins(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    for round in 0..10 {
        let token = TokenHash::of(&format!("bwkreg_{round}"));
        bench.store.create_registration_token(POOL, token, HOUR).await.unwrap();
        let barrier = Arc::new(tokio::sync::Barrier::new(2));
        let redeem = |name: String| {
            let (store, barrier) = (bench.store.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                store.redeem_registration_token(token, new_runner(&name, &[])).await.is_ok()
            })
        };
        let (left, right) = (redeem(format!("left-{round}")), redeem(format!("right-{round}")));
        assert!(left.await.unwrap() ^ right.await.unwrap());
    }
    assert_eq!(bench.store.list_runners().await.unwrap().len(), 10);
}

pub(crate) async fn an_expired_registration_token_is_unknown(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let token = TokenHash::of("bwkreg_1");
    bench.store.create_registration_token(POOL, token, HOUR).await.unwrap();
    bench.advance(HOUR);
    let late = bench.store.redeem_registration_token(token, new_runner("one", &[])).await;
    assert!(matches!(late, Err(StoreError::NotFound(Entity::RegistrationToken))));
    assert_eq!(bench.store.sweep_expired_rows().await.unwrap(), 1);
}

pub(crate) async fn a_removed_runner_has_no_token_any_more(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let mut changes = bench.store.changes();
    bench.store.remove_runner(&runner.id).await.unwrap();
    let mut changed = Vec::new();
    while !changed.contains(&Change::Runner(runner.id.clone())) {
        changed.push(changes.recv().await.unwrap());
    }
    for gone in [
        bench.store.runner_by_token(TokenHash::of("token of one")).await.map(|_| ()),
        bench.store.runner(&runner.id).await.map(|_| ()),
        bench.store.remove_runner(&runner.id).await.map(|_| ()),
        bench.store.resume_runner(&runner.id).await,
        bench.store.drain_runner(&runner.id, "late").await,
    ] {
        assert!(matches!(gone, Err(StoreError::NotFound(Entity::Runner))));
    }
    assert!(bench.store.list_runners().await.unwrap().is_empty());
    // Its run starts over elsewhere at once, and nothing that it does counts any more.
    bench.complete(&held).await.unwrap_err();
    let run = bench.store.run(&held.run).await.unwrap();
    assert_eq!((run.status, run.attempt), (RunStatus::Pending, 2));
    let other = bench.runner("two", &[]).await;
    let again = bench.start(&other).await;
    assert_eq!(again.run, held.run);
    bench.complete(&again).await.unwrap();
}

pub(crate) async fn a_removed_runners_cancelled_run_is_cancelled(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.store.request_cancel(&held.run).await.unwrap();
    let taken = bench.store.remove_runner(&runner.id).await.unwrap();
    assert_eq!(taken, [(held.run.clone(), TakenBack::Cancelled)]);
    assert_eq!(bench.store.run(&held.run).await.unwrap().status, RunStatus::Cancelled);
}

pub(crate) async fn a_resumed_runner_is_offered_runs_again(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let run = bench.run().await;
    bench.store.drain_runner(&runner.id, "maintenance").await.unwrap();
    assert!(bench.offers(&[&runner]).await.is_empty());
    bench.store.resume_runner(&runner.id).await.unwrap();
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().drain_reason, None);
    assert_eq!(bench.offer(&runner).await.run, run.id);
}

pub(crate) async fn labels_are_a_set(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &["b", "a", "b"]).await;
    assert_eq!(runner.labels, ["a", "b"]);
    let run = bench.run_with(&["b", "a", "a"]).await;
    assert_eq!(bench.offer(&runner).await.run, run.id);
}

pub(crate) async fn a_poll_refreshes_last_seen_and_version(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    assert_eq!(runner.version.as_deref(), Some("0.1.0"));
    bench.advance(5_000);
    bench.store.touch_runner(&runner.id, Some("0.2.0")).await.unwrap();
    bench.advance(5_000);
    bench.store.touch_runner(&runner.id, None).await.unwrap();
    let row = bench.store.runner(&runner.id).await.unwrap();
    assert_eq!(row.last_seen_at, Some(bench.store.now_ms()));
    assert_eq!(row.version.as_deref(), Some("0.2.0"), "silence about the version keeps it");
}

pub(crate) async fn runners_and_pools_are_listed(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.runner("two", &[]).await;
    bench.store.create_runner("gpu", new_runner("one", &[])).await.unwrap();
    let runners = bench.store.list_runners().await.unwrap();
    let rows: Vec<_> = runners.iter().map(|row| (row.name.as_str(), row.pool.as_str())).collect();
    assert_eq!(rows, [("one", "gpu"), ("two", "default")]);
    let pools = bench.store.list_pools().await.unwrap();
    assert_eq!(pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["default", "gpu"]);
    assert_eq!(runners[0].pool_id, pools[1].id);
    bench.store.drain_runner(&runners[0].id, "maintenance").await.unwrap();
    bench.store.drain_runner(&runners[0].id, "again").await.unwrap();
    let row = bench.store.runner(&runners[0].id).await.unwrap();
    assert_eq!(row.drain_reason.as_deref(), Some("maintenance"));
}
