use std::sync::Arc;

use super::{Bench, Factory, LEASE, completed, failed, json};
use trestle_contract::event::{Event, EventBody, RunStatus};
use trestle_store::{Conflict, Outcome, StoreError, TakenBack};

pub(crate) async fn a_result_ends_the_run_in_one_step(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.advance(40);
    let text = "{\"b\": 1, \"a\": [12345678901234567890, \"\\ud800\"]}";
    let ended = bench.store.finalize(completed(&held.fence, text)).await.unwrap();
    assert_eq!((ended.status, ended.repeated), (RunStatus::Completed, false));
    let run = bench.store.run(&held.run).await.unwrap();
    assert_eq!(run.output.unwrap().get(), text);
    assert_eq!((run.status, run.error), (RunStatus::Completed, None));
    assert_eq!(run.completed_at, Some(bench.store.now_ms()));
    assert_eq!(run.lease_until, None);
    assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 0);
    assert_eq!(bench.shown_statuses(&held.run).await, ["queued", "pending", "completed"]);
}

pub(crate) async fn a_failure_keeps_error_and_output(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.store.finalize(failed(&held.fence)).await.unwrap();
    let run = bench.store.run(&held.run).await.unwrap();
    let error = run.error.unwrap();
    assert_eq!((error.code.as_str(), error.hint.as_deref()), ("PROGRAM_ERROR", Some("mend it")));
    let Outcome::Failed { output, .. } = failed(&held.fence).outcome else { panic!("it is a failure") };
    assert_eq!(run.output, Some(output));
    let page = bench.store.read_events(&held.run, 2, 10).await.unwrap();
    let last = Event::parse(&page.frames.last().unwrap().json).unwrap();
    let EventBody::RunStatus { status, error } = last.body else { panic!("a status frame") };
    assert_eq!((status, error.unwrap().message.as_str()), (RunStatus::Failed, "it broke"));
}

pub(crate) async fn a_repeated_finalize_gets_the_first_answer(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.complete(&held).await.unwrap();
    bench.advance(3_600_000);
    bench.wall.advance(3_600_000);
    bench.reopen().await;
    let again = bench.fail(&held).await.unwrap();
    assert_eq!((again.status, again.repeated), (RunStatus::Completed, true));
    let run = bench.store.run(&held.run).await.unwrap();
    assert_eq!(run.output, Some(json("{\"ok\":true}")), "the first body holds");
    assert_eq!(bench.shown_statuses(&held.run).await.len(), 3, "and there is one terminal frame");
}

pub(crate) async fn the_terminal_frame_opens_a_new_block(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.send(&held.fence, &[1_000_001, 1_000_002, 4_000_001, 4_000_017]).await.unwrap();
    bench.complete(&held).await.unwrap();
    assert_eq!(bench.store.last_cursor(&held.run).await.unwrap(), 5_000_001);
    bench.advance(3_000);
    let page = bench.store.read_events(&held.run, 4_000_017, 10).await.unwrap();
    let last = Event::parse(&page.frames[0].json).unwrap();
    assert_eq!((page.frames[0].cursor.get(), last.envelope.seq.get()), (5_000_001, 1));
    assert_eq!(last.envelope.run_id.as_str(), held.run.as_str());
    // A late frame of the process keeps its lower place.
    bench.send(&held.fence, &[4_000_018]).await.unwrap();
    let page = bench.store.read_events(&held.run, 4_000_017, 10).await.unwrap();
    assert_eq!(
        page.frames.iter().map(|frame| frame.cursor.get()).collect::<Vec<_>>(),
        [4_000_018, 5_000_001]
    );
}

pub(crate) async fn a_displaced_finalize_is_refused(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let old = bench.running(&runner).await;
    bench.lose().await;
    let new = bench.start(&runner).await;
    assert!(matches!(bench.complete(&old).await, Err(StoreError::Conflict(Conflict::Displaced))));
    bench.fail(&new).await.unwrap();
    assert!(matches!(bench.complete(&old).await, Err(StoreError::Conflict(Conflict::RunEnded))));
    assert_eq!(bench.status(&old.run).await, RunStatus::Failed);
    assert!(bench.fail(&new).await.unwrap().repeated);
}

pub(crate) async fn finalize_without_run_claim_is_refused(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    bench.run().await;
    let held = bench.claim(&runner).await;
    assert!(matches!(bench.complete(&held).await, Err(StoreError::Conflict(Conflict::Displaced))));
    assert_eq!(bench.status(&held.run).await, RunStatus::Pending);
}

pub(crate) async fn finalize_or_sweep_but_one_end(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    for round in 0..20 {
        let held = bench.running(&runner).await;
        // Just before the end of the lease or just at it: the clock decides, and it decides once.
        bench.advance(LEASE - i64::from(round % 2));
        let barrier = Arc::new(tokio::sync::Barrier::new(2));
        let (store, other, left, right) =
            (bench.store.clone(), bench.store.clone(), barrier.clone(), barrier.clone());
        let end = completed(&held.fence, "1");
        let ended = tokio::spawn(async move {
            left.wait().await;
            store.finalize(end).await
        });
        let swept = tokio::spawn(async move {
            right.wait().await;
            other.sweep_leases(10).await
        });
        let (ended, swept) = (ended.await.unwrap(), swept.await.unwrap().unwrap().taken_back);
        if round % 2 == 1 {
            assert_eq!(ended.unwrap().status, RunStatus::Completed);
            assert_eq!(swept, []);
        } else {
            assert!(matches!(ended, Err(StoreError::Conflict(Conflict::Displaced))));
            assert_eq!(swept, [(held.run.clone(), TakenBack::Requeued)]);
            bench.store.request_cancel(&held.run).await.unwrap();
        }
        assert!(bench.status(&held.run).await.is_terminal());
        assert_eq!(bench.store.runner(&runner.id).await.unwrap().active_leases, 0);
    }
}

pub(crate) async fn a_long_run_leaves_no_leases_behind(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    for _ in 0..10 {
        bench.advance(60_000);
        bench.beat(&held).await.unwrap();
        bench.store.renew(&held.fence, LEASE).await.unwrap();
    }
    bench.complete(&held).await.unwrap();
    bench.advance(LEASE);
    let report = bench.store.sweep_leases(10).await.unwrap();
    assert_eq!((report.taken_back.len(), report.next_expiry), (0, None));
}
