use std::sync::Arc;

use super::{Bench, Factory, Held};
use trestle_store::{ComputeUsage, Conflict, StoreError, TokenReport, TurnMeter, TurnTokens};

fn meter(held: &Held, key: &str) -> TurnMeter {
    TurnMeter {
        run: held.run.clone(),
        turn_key: key.to_owned(),
        model: "boardwalk/model".to_owned(),
        tokens: TurnTokens { input: 100, output: 40, cached_read: 30, cached_write: 5 },
        cost_micros: 900,
        estimated: false,
        request_digest: [7; 32],
        result: Some(vec![1, 2, 3]),
    }
}

fn report(held: &Held, identifier: &str, counted: bool) -> TokenReport {
    TokenReport {
        fence: held.fence.clone(),
        identifier: identifier.to_owned(),
        model: None,
        tokens: TurnTokens { input: 10, output: 4, ..TurnTokens::default() },
        counted,
        cost_micros: 70,
    }
}

pub(crate) async fn compute_time_counts_the_largest_of_repeats(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    for (identifier, seconds, total) in
        [("a", 10, 10), ("a", 10, 10), ("a", 25, 25), ("a", 3, 25), ("b", 7, 32)]
    {
        let usage = ComputeUsage { fence: held.fence.clone(), identifier: identifier.to_owned(), seconds };
        bench.store.record_compute(usage).await.unwrap();
        assert_eq!(bench.store.run(&held.run).await.unwrap().totals.runtime_seconds, total);
    }
}

pub(crate) async fn brokered_reports_are_stored_and_not_summed(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.store.record_tokens(report(&held, "brokered", false)).await.unwrap();
    bench.store.record_tokens(report(&held, "direct", true)).await.unwrap();
    bench.store.record_tokens(report(&held, "direct", true)).await.unwrap();
    let totals = bench.store.run(&held.run).await.unwrap().totals;
    assert_eq!((totals.tokens_in, totals.tokens_out, totals.cost_micros), (10, 4, 70));
    let counted: Vec<bool> =
        bench.store.list_turns(&held.run).await.unwrap().iter().map(|turn| turn.counted).collect();
    assert_eq!(counted, [false, true]);
}

pub(crate) async fn of_repeated_token_reports_the_largest_numbers_hold(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    for (identifier, input, output, cost, totals) in [
        ("a", 10, 4, 70, (10, 4, 70)),
        ("a", 10, 4, 70, (10, 4, 70)),
        ("a", 25, 3, 90, (25, 4, 90)),
        ("a", 1, 1, 1, (25, 4, 90)),
        ("b", 5, 6, 0, (30, 10, 90)),
    ] {
        let mut report = report(&held, identifier, true);
        report.tokens = TurnTokens { input, output, ..TurnTokens::default() };
        report.cost_micros = cost;
        bench.store.record_tokens(report).await.unwrap();
        let now = bench.store.run(&held.run).await.unwrap().totals;
        assert_eq!((now.tokens_in, now.tokens_out, now.cost_micros), totals);
    }
    // A brokered one grows beside the totals.
    for input in [10, 20] {
        let mut report = report(&held, "c", false);
        report.tokens.input = input;
        bench.store.record_tokens(report).await.unwrap();
    }
    assert_eq!(bench.store.run(&held.run).await.unwrap().totals.tokens_in, 30);
    assert_eq!(bench.store.list_turns(&held.run).await.unwrap().len(), 3);
}

pub(crate) async fn a_turn_is_metered_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let first = bench.store.meter_turn(meter(&held, "t1")).await.unwrap();
    assert!(first.recorded);
    let mut other = meter(&held, "t1");
    other.tokens.input = 999;
    other.estimated = true;
    let again = bench.store.meter_turn(other).await.unwrap();
    assert!(!again.recorded);
    assert_eq!(again.totals, first.totals);
    // The same text as a report's identifier is another thing.
    bench.store.record_tokens(report(&held, "t1", false)).await.unwrap();
    let totals = bench.store.meter_turn(meter(&held, "t2")).await.unwrap().totals;
    assert_eq!((totals.tokens_in, totals.tokens_out, totals.cost_micros), (200, 80, 1_800));
    assert_eq!((totals.cached_tokens_in, totals.cached_write_tokens), (60, 10));
    let turns = bench.store.list_turns(&held.run).await.unwrap();
    assert_eq!(turns.len(), 3);
    assert!(turns.iter().all(|turn| !turn.estimated));
}

pub(crate) async fn a_turn_is_metered_after_the_end_too(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.complete(&held).await.unwrap();
    let metered = bench.store.meter_turn(meter(&held, "t1")).await.unwrap();
    assert!(metered.recorded);
    assert_eq!(bench.store.run(&held.run).await.unwrap().totals.tokens_in, 100);
    let turn = bench.store.relay_turn(&held.run, "t1").await.unwrap().unwrap();
    assert_eq!(turn.result, None, "nobody will ask for it");
}

pub(crate) async fn a_kept_result_goes_with_the_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    assert_eq!(bench.store.relay_turn(&held.run, "t1").await.unwrap(), None);
    bench.store.meter_turn(meter(&held, "t1")).await.unwrap();
    let turn = bench.store.relay_turn(&held.run, "t1").await.unwrap().unwrap();
    assert_eq!((turn.result.as_deref(), turn.request_digest), (Some([1, 2, 3].as_slice()), [7; 32]));
    bench.lose().await;
    let next = bench.start(&runner).await;
    assert!(bench.store.relay_turn(&held.run, "t1").await.unwrap().unwrap().result.is_some());
    bench.complete(&next).await.unwrap();
    let turn = bench.store.relay_turn(&held.run, "t1").await.unwrap().unwrap();
    assert_eq!((turn.result, turn.row.tokens.input), (None, 100));
}

pub(crate) async fn a_displaced_process_books_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.lose().await;
    let usage = ComputeUsage { fence: held.fence.clone(), identifier: "a".to_owned(), seconds: 5 };
    assert!(matches!(
        bench.store.record_compute(usage).await,
        Err(StoreError::Conflict(Conflict::Displaced))
    ));
    assert!(bench.store.record_tokens(report(&held, "a", true)).await.is_err());
    assert_eq!(bench.store.run(&held.run).await.unwrap().totals, trestle_store::RunTotals::default());
}
