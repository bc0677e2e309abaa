use std::sync::Arc;

use super::{Bench, Factory, POOL, json, new_run, new_runner};
use trestle_store::{Change, Placement};

pub(crate) async fn an_offer_needs_every_label(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let plain = bench.runner("plain", &["x64"]).await;
    let fitting = bench.runner("fitting", &["gpu", "x64", "big"]).await;
    let run = bench.run_with(&["x64", "gpu"]).await;
    assert!(bench.offers(&[&plain]).await.is_empty());
    let offer = bench.offer(&fitting).await;
    assert_eq!((offer.run, offer.runner), (run.id, fitting.id));
    assert_eq!(offer.queued_at, run.created_at);
    assert_eq!(offer.runs_on.get(), "{\"kind\":\"self-hosted\",\"pool\":\"default\"}");
    assert_eq!(offer.organisation, bench.store.organisation().await.unwrap().id);
}

pub(crate) async fn offers_go_out_in_order_of_creation(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &["x64"]).await;
    let first = bench.run_with(&["x64"]).await;
    let second = bench.run_with(&[]).await;
    let third = bench.run_with(&["x64"]).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let held = bench.start(&runner).await;
        order.push(held.run.clone());
        bench.complete(&held).await.unwrap();
    }
    assert_eq!(order, [first.id, second.id, third.id]);
}

pub(crate) async fn an_idle_queue_offers_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    assert!(bench.offers(&[&runner]).await.is_empty());
    assert_eq!(bench.store.next_offer_at(POOL).await.unwrap(), None);
}

pub(crate) async fn an_unclaimed_offer_is_made_again_after_five_seconds(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    let run = bench.run().await;
    let first = bench.offer(&one).await;
    assert_eq!(bench.store.next_offer_at(POOL).await.unwrap(), Some(bench.store.now_ms() + 5_000));
    bench.advance(4_999);
    assert!(bench.offers(&[&two]).await.is_empty());
    bench.advance(1);
    let again = bench.offer(&two).await;
    assert_eq!((again.run.clone(), again.assignment.clone()), (run.id, first.assignment.clone()));
    // The new offer counts: the one that was late loses, whoever comes first.
    bench.take(&first).await.unwrap_err();
    bench.take(&again).await.unwrap();
}

pub(crate) async fn one_batch_serves_many_runners(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    let three = bench.runner("three", &[]).await;
    let first = bench.run().await;
    let second = bench.run().await;
    let offers = bench.offers(&[&two, &one, &three]).await;
    let pairs: Vec<_> = offers.into_iter().map(|offer| (offer.runner, offer.run)).collect();
    assert_eq!(pairs, [(two.id, first.id), (one.id, second.id)]);
}

pub(crate) async fn a_run_in_another_pool_is_not_offered(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let other = bench.store.create_runner("other", new_runner("far", &[])).await.unwrap();
    let workflow = bench.workflow("flow").await;
    let mut new = new_run(&workflow, &[]);
    new.placement = Placement { runs_on: json("\"other\""), pool: "other".to_owned(), labels: Vec::new() };
    let run = bench.store.create_run(new).await.unwrap().run;
    assert!(bench.offers(&[&runner]).await.is_empty());
    assert_eq!(bench.offer(&other).await.run, run.id);
}

pub(crate) async fn a_draining_or_removed_runner_gets_no_offer(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let draining = bench.runner("draining", &[]).await;
    let removed = bench.runner("removed", &[]).await;
    bench.run().await;
    bench.store.drain_runner(&draining.id, "maintenance").await.unwrap();
    bench.store.remove_runner(&removed.id).await.unwrap();
    assert!(bench.offers(&[&draining, &removed]).await.is_empty());
}

pub(crate) async fn a_drained_runners_offer_is_free_at_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    let run = bench.run().await;
    bench.offer(&one).await;
    let mut changes = bench.store.changes();
    bench.store.drain_runner(&one.id, "maintenance").await.unwrap();
    assert_eq!(changes.recv().await.unwrap(), Change::Queue { pool: POOL.to_owned() });
    assert_eq!(changes.recv().await.unwrap(), Change::Runner(one.id));
    assert_eq!(bench.offer(&two).await.run, run.id);
}

pub(crate) async fn a_runner_that_lost_a_run_twice_leaves_it_to_others(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let two = bench.runner("two", &[]).await;
    let run = bench.run().await;
    for _ in 0..2 {
        bench.start(&one).await;
        bench.lose().await;
    }
    bench.store.touch_runner(&two.id, None).await.unwrap();
    assert!(bench.offers(&[&one]).await.is_empty(), "another one lives");
    let next = bench.run().await;
    assert_eq!(bench.offer(&one).await.run, next.id, "other runs it still gets");
    assert_eq!(bench.offer(&two).await.run, run.id);
}

pub(crate) async fn a_lone_runner_gets_its_lost_run_again(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.runner("one", &[]).await;
    let silent = bench.runner("silent", &[]).await;
    let wrong = bench.runner("wrong", &[]).await;
    let run = bench.run_with(&[]).await;
    for _ in 0..2 {
        bench.start(&one).await;
        bench.lose().await;
    }
    bench.advance(60_001);
    bench.store.touch_runner(&wrong.id, None).await.unwrap();
    bench.store.drain_runner(&wrong.id, "maintenance").await.unwrap();
    assert!(silent.last_seen_at.is_some());
    assert_eq!(bench.offer(&one).await.run, run.id);
}

pub(crate) async fn entries_nobody_can_take_do_not_block_the_others(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &["x64"]).await;
    for index in 0..50 {
        bench.run_with(&["x64", &format!("exotic-{}", index % 5)]).await;
    }
    let run = bench.run_with(&["x64"]).await;
    assert_eq!(bench.offer(&runner).await.run, run.id);
}

pub(crate) async fn a_new_run_announces_its_pool(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let mut changes = bench.store.changes();
    let run = bench.run().await;
    let mut seen = Vec::new();
    while let Ok(change) = changes.try_recv() {
        seen.push(change);
    }
    assert!(seen.contains(&Change::Queue { pool: POOL.to_owned() }));
    assert!(seen.contains(&Change::Run(run.id)));
}
