use std::sync::Arc;

use super::{Bench, Factory};
use trestle_store::{Conflict, IdempotencyKey, IdempotencyStart, StoreError, StoredAnswer};

fn key(principal: &str, hash: &str) -> IdempotencyKey {
    IdempotencyKey { principal: principal.to_owned(), key: "k".to_owned(), request_hash: hash.to_owned() }
}

fn answer() -> StoredAnswer {
    StoredAnswer {
        status: 201,
        content_type: Some("application/json".to_owned()),
        body: b"{\"a\":1}".to_vec(),
    }
}

pub(crate) async fn an_answer_is_repeated_for_a_day(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let key = key("admin", "h");
    assert_eq!(bench.store.begin_idempotent(&key).await.unwrap(), IdempotencyStart::Fresh);
    bench.store.finish_idempotent(&key, answer()).await.unwrap();
    bench.reopen().await;
    let mut late = answer();
    late.status = 500;
    bench.store.finish_idempotent(&key, late).await.unwrap();
    assert_eq!(bench.store.begin_idempotent(&key).await.unwrap(), IdempotencyStart::Answered(answer()));
    bench.advance(24 * 3_600_000);
    assert_eq!(bench.store.sweep_expired_rows().await.unwrap(), 1);
    assert_eq!(bench.store.begin_idempotent(&key).await.unwrap(), IdempotencyStart::Fresh);
}

pub(crate) async fn another_body_is_a_conflict(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.begin_idempotent(&key("admin", "h")).await.unwrap();
    bench.store.finish_idempotent(&key("admin", "h"), answer()).await.unwrap();
    let refusal = bench.store.begin_idempotent(&key("admin", "other")).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::IdempotencyKeyReused)));
}

pub(crate) async fn an_unfinished_request_blocks_its_key_for_a_while(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let key = key("admin", "h");
    bench.store.begin_idempotent(&key).await.unwrap();
    bench.advance(59_999);
    let refusal = bench.store.begin_idempotent(&key).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::IdempotencyInProgress)));
    bench.advance(1);
    assert_eq!(bench.store.begin_idempotent(&key).await.unwrap(), IdempotencyStart::Fresh);
}

pub(crate) async fn a_restart_forgets_unfinished_requests(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let key = key("admin", "h");
    bench.store.begin_idempotent(&key).await.unwrap();
    bench.reopen().await;
    assert_eq!(bench.store.begin_idempotent(&key).await.unwrap(), IdempotencyStart::Fresh);
}

pub(crate) async fn principals_do_not_meet(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.begin_idempotent(&key("admin", "h")).await.unwrap();
    assert_eq!(bench.store.begin_idempotent(&key("run 1", "other")).await.unwrap(), IdempotencyStart::Fresh);
}

pub(crate) async fn an_abandoned_request_starts_fresh(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let mine = key("admin", "h");
    bench.store.begin_idempotent(&mine).await.unwrap();
    bench.store.abandon_idempotent(&key("admin", "other")).await.unwrap();
    bench.store.begin_idempotent(&mine).await.unwrap_err();
    bench.store.abandon_idempotent(&mine).await.unwrap();
    assert_eq!(bench.store.begin_idempotent(&mine).await.unwrap(), IdempotencyStart::Fresh);
    // The run that the request made before it broke off is found by its repeat.
    let workflow = bench.workflow("flow").await;
    let mut new = super::new_run(&workflow, &[]);
    new.idempotency = Some(mine.clone());
    let run = bench.store.create_run(new.clone()).await.unwrap().run;
    bench.store.abandon_idempotent(&mine).await.unwrap();
    assert_eq!(bench.store.begin_idempotent(&mine).await.unwrap(), IdempotencyStart::Fresh);
    let again = bench.store.create_run(new).await.unwrap();
    assert_eq!((again.created, again.run.id), (false, run.id));
}
