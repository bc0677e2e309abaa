use std::sync::Arc;

use super::{Bench, Factory, POOL, json, new_run, version};
use trestle_contract::event::RunStatus;
use trestle_contract::ids::{RunId, VersionId};
use trestle_store::{Conflict, Entity, IdempotencyKey, RunFilter, StoreError, Trigger};

pub(crate) async fn a_new_run_is_pending_queued_and_announced(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let run = bench.run().await;
    assert_eq!((run.status, run.attempt, run.epoch), (RunStatus::Pending, 1, 0));
    assert_eq!(run.created_at, bench.store.now_ms());
    assert_eq!(run.pending_since, Some(run.created_at));
    assert_eq!(run.organisation, bench.store.organisation().await.unwrap().id);
    assert_eq!(run.placement.pool, POOL);
    let page = bench.store.read_events(&run.id, 0, 10).await.unwrap();
    let cursors: Vec<u64> = page.frames.iter().map(|frame| frame.cursor.get()).collect();
    assert_eq!(cursors, [1, 2]);
    assert_eq!(bench.shown_statuses(&run.id).await, ["queued", "pending"]);
    let event = trestle_contract::event::Event::parse(&page.frames[0].json).unwrap();
    assert_eq!(event.envelope.turn_id.as_str(), run.id.as_str());
    assert_eq!(event.envelope.seq.get(), 1);
    assert!(!page.done);
    let runner = bench.runner("one", &[]).await;
    assert_eq!(bench.offer(&runner).await.run, run.id);
}

pub(crate) async fn program_json_survives_byte_for_byte(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let text = "{ \"z\": 1, \"a\": 12345678901234567890123, \"nul\": \"\\u0000\", \"a\": 1e400, \"lone\": \"\\ud800\" }";
    let mut new = new_run(&workflow, &[]);
    new.input = Some(json(text));
    new.trigger = Trigger {
        kind: "webhook".to_owned(),
        payload: Some(json("[1.0]")),
        request: Some(json("{\"path\":\"/x\"}")),
    };
    let id = bench.store.create_run(new).await.unwrap().run.id;
    let run = bench.store.run(&id).await.unwrap();
    assert_eq!(run.input.unwrap().get(), text);
    assert_eq!(run.trigger_payload.unwrap().get(), "[1.0]");
    assert_eq!(run.trigger_request.unwrap().get(), "{\"path\":\"/x\"}");
    assert_eq!(run.trigger_kind, "webhook");
    let mut bare = new_run(&workflow, &[]);
    bare.input = None;
    let id = bench.store.create_run(bare).await.unwrap().run.id;
    assert!(bench.store.run(&id).await.unwrap().input.is_none(), "absent is not null");
}

pub(crate) async fn the_current_version_is_pinned(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let first = bench.store.deploy(version("flow", "a")).await.unwrap();
    let run = bench.store.create_run(new_run(&first.workflow, &[])).await.unwrap().run;
    let second = bench.store.deploy(version("flow", "b")).await.unwrap();
    assert_eq!(bench.store.run(&run.id).await.unwrap().version, first.version.id);
    let later = bench.store.create_run(new_run(&first.workflow, &[])).await.unwrap().run;
    assert_eq!((later.version, later.version_number), (second.version.id, 2));
    let mut chosen = new_run(&first.workflow, &[]);
    chosen.version = Some(first.version.id.clone());
    assert_eq!(bench.store.create_run(chosen).await.unwrap().run.version, first.version.id);
}

pub(crate) async fn a_disabled_workflow_takes_no_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let queued = bench.store.create_run(new_run(&workflow, &[])).await.unwrap().run;
    bench.store.set_workflow_disabled(&workflow.id, true).await.unwrap();
    let refusal = bench.store.create_run(new_run(&workflow, &[])).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::WorkflowDisabled)));
    assert_eq!(bench.status(&queued.id).await, RunStatus::Pending, "queued runs are left alone");
}

pub(crate) async fn a_workflow_without_version_or_a_foreign_version_is_refused(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let other = bench.store.deploy(version("other", "x")).await.unwrap();
    let mut foreign = new_run(&workflow, &[]);
    foreign.version = Some(other.version.id);
    let refusal = bench.store.create_run(foreign).await.unwrap_err();
    assert!(matches!(refusal, StoreError::NotFound(Entity::Version)));
    let mut unknown = new_run(&workflow, &[]);
    unknown.version = Some(VersionId::new("nothing").unwrap());
    assert!(matches!(bench.store.create_run(unknown).await, Err(StoreError::NotFound(Entity::Version))));
    assert!(
        bench.store.list_runs(RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap().runs.is_empty()
    );
}

pub(crate) async fn lists_page_from_the_newest_without_gaps(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(bench.store.create_run(new_run(&workflow, &[])).await.unwrap().run.id);
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page =
            bench.store.list_runs(RunFilter { after, limit: 3, ..RunFilter::default() }).await.unwrap();
        assert!(page.runs.len() <= 3);
        seen.extend(page.runs.into_iter().map(|run| run.id));
        // A run that is created meanwhile does not shift the pages.
        bench.store.create_run(new_run(&workflow, &[])).await.unwrap();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    made.reverse();
    assert_eq!(seen, made);
}

pub(crate) async fn lists_filter_by_workflow_and_status(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let one = bench.workflow("one").await;
    let two = bench.workflow("two").await;
    let first = bench.store.create_run(new_run(&one, &[])).await.unwrap().run;
    let second = bench.store.create_run(new_run(&two, &[])).await.unwrap().run;
    bench.store.request_cancel(&first.id).await.unwrap();
    let ids = |filter: RunFilter| {
        let store = bench.store.clone();
        async move {
            let page = store.list_runs(RunFilter { limit: 10, ..filter }).await.unwrap();
            page.runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(ids(RunFilter { workflow: Some(two.id.clone()), ..RunFilter::default() }).await, [second.id]);
    assert_eq!(
        ids(RunFilter { status: Some(RunStatus::Cancelled), ..RunFilter::default() }).await,
        [first.id]
    );
    let none =
        RunFilter { workflow: Some(two.id), status: Some(RunStatus::Cancelled), ..RunFilter::default() };
    assert!(ids(none).await.is_empty());
}

pub(crate) async fn an_idempotency_key_makes_one_run(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let key = |hash: &str| IdempotencyKey {
        principal: "admin".to_owned(),
        key: "k1".to_owned(),
        request_hash: hash.to_owned(),
    };
    let mut new = new_run(&workflow, &[]);
    new.idempotency = Some(key("h1"));
    let first = bench.store.create_run(new.clone()).await.unwrap();
    assert!(first.created);
    bench.reopen().await;
    let again = bench.store.create_run(new.clone()).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.run.id, first.run.id);
    let mut other = new_run(&workflow, &[]);
    other.idempotency = Some(key("h2"));
    let refusal = bench.store.create_run(other).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::IdempotencyKeyReused)));
    bench.advance(24 * 3_600_000);
    assert!(bench.store.create_run(new).await.unwrap().created, "a day later the key is free");
}

pub(crate) async fn unknown_runs_are_not_found(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let id = RunId::new("01K0000000000000000000NONE").unwrap();
    assert!(matches!(bench.store.run(&id).await, Err(StoreError::NotFound(Entity::Run))));
    assert!(matches!(bench.store.read_events(&id, 0, 1).await, Err(StoreError::NotFound(Entity::Run))));
    assert!(matches!(bench.store.request_cancel(&id).await, Err(StoreError::NotFound(Entity::Run))));
    assert!(matches!(bench.store.list_artifacts(&id).await, Err(StoreError::NotFound(Entity::Run))));
    assert!(matches!(bench.store.children(&id).await, Err(StoreError::NotFound(Entity::Run))));
}

pub(crate) async fn deploy_warnings_are_repeated_in_each_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let mut warned = version("flow", "a");
    warned.warnings = vec!["egress is not enforced".to_owned(), "second".to_owned()];
    let workflow = bench.store.deploy(warned).await.unwrap().workflow;
    for _ in 0..2 {
        let run = bench.store.create_run(new_run(&workflow, &[])).await.unwrap().run;
        let page = bench.store.read_events(&run.id, 2, 10).await.unwrap();
        assert!(page.held_until.is_none());
        let cursors: Vec<u64> = page.frames.iter().map(|frame| frame.cursor.get()).collect();
        assert_eq!(cursors, [3, 4]);
        assert!(page.frames.iter().all(|frame| &*frame.kind == "program_output"));
        assert!(page.frames[0].json.contains("warning: egress is not enforced"), "{:?}", page.frames[0]);
    }
}
