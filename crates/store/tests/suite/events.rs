use std::sync::Arc;

use super::{Bench, Factory, Held, frame, run_claim};
use trestle_contract::event::{Cursor, EventFrame, RunStatus};
use trestle_store::{Change, Conflict, RunnerRow, StoreError, TelemetryBatch};

async fn unordered(bench: &Bench, runner: &RunnerRow) -> Held {
    bench.run().await;
    let held = bench.claim(runner).await;
    bench.store.claim_run(run_claim(&held.fence, None, false)).await.unwrap();
    held
}

async fn cursors(bench: &Bench, held: &Held, after: u64) -> Vec<u64> {
    let page = bench.store.read_events(&held.run, after, 1_000).await.unwrap();
    page.frames.iter().map(|frame| frame.cursor.get()).collect()
}

pub(crate) async fn a_resent_batch_changes_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    assert_eq!(bench.send(&held.fence, &[1_000_001, 1_000_002]).await.unwrap(), 2);
    let before = bench.store.read_events(&held.run, 0, 100).await.unwrap().frames;
    let frames = vec![frame(1_000_002, "changed"), frame(1_000_003, "new"), frame(1_000_001, "changed")];
    let batch = TelemetryBatch { fence: held.fence.clone(), frames };
    assert_eq!(bench.store.append_telemetry(batch).await.unwrap(), 1);
    let after = bench.store.read_events(&held.run, 0, 100).await.unwrap().frames;
    assert_eq!(format!("{:?}", &after[..before.len()]), format!("{before:?}"));
    assert_eq!(after.len(), before.len() + 1);
}

pub(crate) async fn a_batch_of_many_frames_is_stored_whole_and_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    // Some of them are there already, one at the border of what one statement stores.
    assert_eq!(bench.send(&held.fence, &[1_000_001, 1_000_064, 1_000_200]).await.unwrap(), 3);
    let all: Vec<u64> = (1_000_001..=1_000_300).collect();
    let shuffled: Vec<u64> = all.iter().rev().copied().collect();
    assert_eq!(bench.send(&held.fence, &shuffled).await.unwrap(), 297);
    assert_eq!(bench.send(&held.fence, &shuffled).await.unwrap(), 0);
    assert_eq!(cursors(&bench, &held, 2).await, all);
}

pub(crate) async fn reading_resumes_where_it_stopped(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.send(&held.fence, &[1_000_001, 1_000_002, 2_000_001]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 0).await, [1, 2, 1_000_001, 1_000_002, 2_000_001]);
    assert_eq!(cursors(&bench, &held, 1_000_001).await, [1_000_002, 2_000_001]);
    // A cursor that no frame has (of a filtered or foreign reader) is a place like any other.
    assert_eq!(cursors(&bench, &held, 1_500_000).await, [2_000_001]);
    let page = bench.store.read_events(&held.run, 2_000_001, 10).await.unwrap();
    assert_eq!((page.frames.len(), page.resume_after, page.more, page.done), (0, 2_000_001, false, false));
    assert_eq!(cursors(&bench, &held, u64::MAX).await, [0_u64; 0]);
}

pub(crate) async fn a_gap_is_held_for_three_seconds(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.send(&held.fence, &[1_000_001, 1_000_003]).await.unwrap();
    let page = bench.store.read_events(&held.run, 2, 10).await.unwrap();
    assert_eq!(page.resume_after, 1_000_001);
    assert_eq!(page.held_until, Some(bench.store.now_ms() + 3_000));
    bench.advance(2_999);
    assert_eq!(cursors(&bench, &held, 2).await, [1_000_001]);
    bench.send(&held.fence, &[1_000_002]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 2).await, [1_000_001, 1_000_002, 1_000_003]);
    bench.send(&held.fence, &[1_000_009]).await.unwrap();
    bench.advance(3_000);
    assert_eq!(cursors(&bench, &held, 1_000_003).await, [1_000_009], "it never came");
}

pub(crate) async fn ordered_telemetry_is_never_held_at_a_block(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    bench.send(&held.fence, &[2_000_001]).await.unwrap();
    let page = bench.store.read_events(&held.run, 2, 10).await.unwrap();
    assert_eq!((page.frames.len(), page.held_until), (2, None));
}

pub(crate) async fn a_late_block_of_an_unordered_sender_is_not_missed(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = unordered(&bench, &runner).await;
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 2).await, [1_000_001], "the first frame of a session is shown at once");
    // The batch with the end of block 1 is overtaken by the one that starts block 2.
    bench.send(&held.fence, &[2_000_001, 2_000_002]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 1_000_001).await, [0_u64; 0]);
    bench.send(&held.fence, &[1_000_002]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 1_000_001).await, [1_000_002], "more of block 1 may come");
    bench.advance(3_000);
    assert_eq!(cursors(&bench, &held, 1_000_001).await, [1_000_002, 2_000_001, 2_000_002]);
}

pub(crate) async fn a_batch_that_spans_blocks_is_shown_at_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = unordered(&bench, &runner).await;
    bench.send(&held.fence, &[1_000_001, 1_000_002, 2_000_001, 2_000_002]).await.unwrap();
    assert_eq!(cursors(&bench, &held, 2).await, [1_000_001, 1_000_002, 2_000_001, 2_000_002]);
}

pub(crate) async fn done_comes_at_once_for_ordered_and_later_for_others(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    bench.complete(&held).await.unwrap();
    let page = bench.store.read_events(&held.run, 0, 100).await.unwrap();
    assert!(page.done);
    assert!(bench.store.read_events(&held.run, page.resume_after, 100).await.unwrap().done);
    let cut = bench.store.read_events(&held.run, 0, 2).await.unwrap();
    assert!(cut.more && !cut.done, "there is more to read");

    let held = unordered(&bench, &runner).await;
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    bench.complete(&held).await.unwrap();
    let page = bench.store.read_events(&held.run, 0, 100).await.unwrap();
    assert!(!page.done);
    assert_eq!(page.held_until, Some(bench.store.now_ms() + 3_000));
    bench.send(&held.fence, &[1_000_002]).await.unwrap();
    bench.advance(3_000);
    let page = bench.store.read_events(&held.run, page.resume_after, 100).await.unwrap();
    assert!(page.done);
    assert_eq!(page.frames.len(), 2, "the late frame and the terminal one");
}

pub(crate) async fn late_frames_are_taken_for_a_minute(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    // Of this one nothing at all arrives before its end.
    let held = unordered(&bench, &runner).await;
    bench.complete(&held).await.unwrap();
    bench.advance(59_999);
    assert_eq!(bench.send(&held.fence, &[1_000_001, 1_000_002]).await.unwrap(), 2);
    bench.advance(1);
    let refusal = bench.send(&held.fence, &[1_000_003]).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::RunEnded)));
    assert_eq!(cursors(&bench, &held, 0).await, [1, 2, 1_000_001, 1_000_002, 2_000_001]);
}

pub(crate) async fn a_status_frame_of_a_process_changes_no_status(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let lie = EventFrame {
        cursor: Cursor::new(1_000_001).unwrap(),
        kind: "run_status".into(),
        json: "{\"kind\":\"run_status\",\"status\":\"completed\"}".into(),
    };
    let batch = TelemetryBatch { fence: held.fence.clone(), frames: vec![lie] };
    bench.store.append_telemetry(batch).await.unwrap();
    assert_eq!(bench.status(&held.run).await, RunStatus::Running);
    assert!(!bench.store.read_events(&held.run, 0, 10).await.unwrap().done);
}

pub(crate) async fn a_page_is_cut_by_its_limit(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let all: Vec<u64> = (1_000_001..=1_000_050).collect();
    bench.send(&held.fence, &all).await.unwrap();
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let page = bench.store.read_events(&held.run, after, 7).await.unwrap();
        assert!(page.frames.len() <= 7);
        seen.extend(page.frames.iter().map(|frame| frame.cursor.get()));
        after = page.resume_after;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen[2..], all);
    // Large frames end a page by their size.
    let big = "x".repeat(1024 * 1024);
    let frames = (1_000_051..=1_000_058).map(|cursor| frame(cursor, &big)).collect();
    bench.store.append_telemetry(TelemetryBatch { fence: held.fence.clone(), frames }).await.unwrap();
    let page = bench.store.read_events(&held.run, 1_000_050, 1_000).await.unwrap();
    assert!(page.more && page.frames.len() < 8, "{} frames", page.frames.len());
    assert_eq!(cursors(&bench, &held, page.resume_after).await.len(), 8 - page.frames.len());
}

pub(crate) async fn frames_are_kept_byte_for_byte(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let json =
        "{\"value\": 1e400 ,\"kind\":\"output\",\"big\":12345678901234567890,\"u\":\"\\u0000\\ud800\"}";
    let sent =
        EventFrame { cursor: Cursor::new(1_000_001).unwrap(), kind: "output".into(), json: json.into() };
    let batch = TelemetryBatch { fence: held.fence.clone(), frames: vec![sent.clone()] };
    bench.store.append_telemetry(batch).await.unwrap();
    let page = bench.store.read_events(&held.run, 2, 10).await.unwrap();
    assert_eq!(format!("{:?}", page.frames), format!("{:?}", [sent]));
}

pub(crate) async fn a_commit_announces_the_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let mut changes = bench.store.changes();
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    assert_eq!(changes.recv().await.unwrap(), Change::Run(held.run.clone()));
    bench.send(&held.fence, &[1_000_001]).await.unwrap();
    assert!(changes.try_recv().is_err(), "a repeat is no news");
}
