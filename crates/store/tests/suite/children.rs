use std::sync::Arc;

use super::{Bench, Factory, Held, new_run};
use trestle_contract::event::RunStatus;
use trestle_store::{Change, ChildKind, Conflict, CreatedRun, ParentLink, StoreError, StoreResult};

async fn child(bench: &Bench, parent: &Held, identity: &str, kind: ChildKind) -> StoreResult<CreatedRun> {
    let workflow = bench.workflow("child").await;
    let mut new = new_run(&workflow, &["elsewhere"]);
    new.parent = Some(ParentLink { fence: parent.fence.clone(), identity: identity.to_owned(), kind });
    bench.store.create_run(new).await
}

pub(crate) async fn the_same_identity_is_the_same_child(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let first = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap();
    assert!(first.created);
    assert_eq!(first.run.parent, Some(parent.run.clone()));
    let again = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.run.id, first.run.id);
    assert!(child(&bench, &parent, "i2", ChildKind::Call).await.unwrap().created);
}

pub(crate) async fn the_same_child_over_restarts_of_the_parent(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let first = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap().run;
    bench.store.request_cancel(&first.id).await.unwrap();
    bench.lose().await;
    let second = bench.start(&runner).await;
    let again = child(&bench, &second, "i1", ChildKind::Call).await.unwrap();
    assert_eq!((again.created, again.run.id), (false, first.id));
    assert_eq!(again.run.status, RunStatus::Cancelled, "in whatever state it is");
}

pub(crate) async fn a_displaced_parent_makes_no_child(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    bench.lose().await;
    let refusal = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::Displaced)));
    assert!(bench.store.children(&parent.run).await.unwrap().is_empty());
}

pub(crate) async fn children_are_listed_oldest_first(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let one = child(&bench, &parent, "z", ChildKind::Call).await.unwrap().run.id;
    let two = child(&bench, &parent, "a", ChildKind::Run).await.unwrap().run.id;
    let ids: Vec<_> =
        bench.store.children(&parent.run).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, [one, two]);
}

pub(crate) async fn called_children_are_cancelled_with_the_parent(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let other = bench.runner("two", &["elsewhere"]).await;
    let parent = bench.running(&runner).await;
    let running = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap().run;
    let held = bench.start(&other).await;
    assert_eq!(held.run, running.id);
    let queued = child(&bench, &parent, "i2", ChildKind::Call).await.unwrap().run;
    bench.store.request_cancel(&parent.run).await.unwrap();
    assert_eq!(bench.status(&queued.id).await, RunStatus::Cancelled);
    assert_eq!(bench.status(&running.id).await, RunStatus::Cancelling);
    assert!(bench.store.cancel_state(&held.fence).await.unwrap().requested);
}

pub(crate) async fn called_children_end_when_the_parent_fails(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let waited = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap().run;
    bench.fail(&parent).await.unwrap();
    assert_eq!(bench.status(&waited.id).await, RunStatus::Cancelled, "nobody is left to take its result");
}

pub(crate) async fn started_children_live_on(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let started = child(&bench, &parent, "i1", ChildKind::Run).await.unwrap().run;
    bench.store.request_cancel(&parent.run).await.unwrap();
    bench.complete(&parent).await.unwrap();
    assert_eq!(bench.status(&parent.run).await, RunStatus::Cancelled);
    assert_eq!(bench.status(&started.id).await, RunStatus::Pending);
}

pub(crate) async fn a_completed_parent_leaves_its_children(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let parent = bench.running(&runner).await;
    let called = child(&bench, &parent, "i1", ChildKind::Call).await.unwrap().run;
    bench.complete(&parent).await.unwrap();
    assert_eq!(bench.status(&called.id).await, RunStatus::Pending);
}

pub(crate) async fn cancel_reaches_grandchildren(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let other = bench.runner("two", &["elsewhere"]).await;
    let parent = bench.running(&runner).await;
    child(&bench, &parent, "i1", ChildKind::Call).await.unwrap();
    let middle = bench.start(&other).await;
    let grandchild = child(&bench, &middle, "i1", ChildKind::Call).await.unwrap().run;
    bench.store.request_cancel(&parent.run).await.unwrap();
    assert_eq!(bench.status(&middle.run).await, RunStatus::Cancelling);
    assert_eq!(bench.status(&grandchild.id).await, RunStatus::Cancelled);
}

pub(crate) async fn the_end_of_a_child_wakes_the_parent(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let other = bench.runner("two", &["elsewhere"]).await;
    let parent = bench.running(&runner).await;
    child(&bench, &parent, "i1", ChildKind::Call).await.unwrap();
    let held = bench.start(&other).await;
    let mut changes = bench.store.changes();
    bench.complete(&held).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(change) = changes.try_recv() {
        seen.push(change);
    }
    assert!(seen.contains(&Change::Run(parent.run)), "{seen:?}");
}

pub(crate) async fn a_workflow_that_calls_itself_is_stopped_at_a_depth(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let workflow = bench.workflow("flow").await;
    let mut at = bench.running(&runner).await;
    let create = |parent: &Held, kind| {
        let mut new = new_run(&workflow, &[]);
        let identity = "again".to_owned();
        new.parent = Some(ParentLink { fence: parent.fence.clone(), identity, kind });
        bench.store.create_run(new)
    };
    for _ in 1..trestle_store::MAX_CALL_DEPTH {
        let called = create(&at, ChildKind::Call).await.unwrap();
        at = bench.start(&runner).await;
        assert_eq!(at.run, called.run.id);
    }
    let refusal = create(&at, ChildKind::Call).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::CalledTooDeep)), "{refusal:?}");
    // Whoever only starts it waits for nobody, and a chain that it begins is a new one.
    create(&at, ChildKind::Run).await.unwrap();
    let started = bench.start(&runner).await;
    assert!(create(&started, ChildKind::Call).await.unwrap().created);
}
