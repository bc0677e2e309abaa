//! What is done for every claim, event and list walks an index, whatever the tables hold.

use sqlx::{AssertSqlSafe, Row as _};
use trestle_contract::event::RunStatus;
use trestle_contract::ids::WorkflowId;

use super::ops::{events, leases, open_brackets, queue, runners, runs, workflows};
use super::*;
use crate::model::RunFilter;

async fn plan(store: &SqliteStore, statement: &str) -> Vec<String> {
    let mut conn = store.reader().await.unwrap();
    sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
        .fetch_all(&mut *conn)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get::<String, _>("detail"))
        .collect()
}

async fn store() -> (SqliteStore, DataDir, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    (SqliteStore::open(&data, StoreOptions::default()).await.unwrap(), data, directory)
}

#[tokio::test]
async fn hot_statements_use_an_index() {
    let (store, _data, _directory) = store().await;
    let hot = [
        queue::NEXT_LINE,
        queue::LAPSED_OFFERS,
        queue::FRESH_ENTRIES,
        queue::ANY_IN_POOL,
        queue::NEXT_OFFER,
        events::READ,
        events::BEFORE,
        events::LAST_CURSOR,
        events::FRAME_BEFORE,
        open_brackets::BRACKETS,
        leases::LAPSED,
        leases::NEXT_EXPIRY,
        runners::BY_TOKEN,
        "SELECT run, pool, offered_to FROM queue WHERE assignment = ?",
        "DELETE FROM queue WHERE run = ?",
        "SELECT * FROM assignments WHERE run = ? AND closed_at IS NULL",
        "SELECT run FROM assignments WHERE runner = ? AND closed_at IS NULL ORDER BY run",
        "SELECT child FROM run_children WHERE parent = ? AND called = 1",
        "SELECT * FROM runs WHERE id = ?",
        "DELETE FROM idempotency WHERE expires_at <= ?",
        "DELETE FROM uploads WHERE claimed = 0 AND expires_at <= ?",
        "SELECT * FROM uploads WHERE blob_key = ?",
    ];
    for statement in hot {
        let steps = plan(&store, statement).await;
        // `min` and `max` over an index are written as a scan that stops at the first entry.
        let bounded =
            statement == leases::NEXT_EXPIRY && steps == ["SEARCH leases USING COVERING INDEX leases_expiry"];
        let scans: Vec<&String> = steps.iter().filter(|step| step.starts_with("SCAN")).collect();
        assert!(bounded || scans.iter().all(|step| *step == "SCAN CONSTANT ROW"), "{statement}: {steps:?}");
        assert!(!steps.is_empty());
    }
    for statement in [queue::FRESH_ENTRIES, queue::LAPSED_OFFERS, queue::NEXT_LINE, events::READ] {
        let steps = plan(&store, statement).await;
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{statement} sorts: {steps:?}");
    }
}

#[tokio::test]
async fn lists_of_runs_walk_an_index_from_the_newest() {
    let (store, _data, _directory) = store().await;
    let workflow = Some(WorkflowId::new("w").unwrap());
    let status = Some(RunStatus::Running);
    let filters = [
        (RunFilter::default(), None),
        (RunFilter { workflow: workflow.clone(), ..RunFilter::default() }, None),
        (RunFilter { status, ..RunFilter::default() }, None),
        (RunFilter { workflow, status, ..RunFilter::default() }, None),
        (RunFilter::default(), Some(7)),
    ];
    for (filter, parent) in filters {
        let mut query = runs::list_query(&filter, parent);
        query.push_bind(10);
        let steps = plan(&store, query.sql().as_str()).await;
        assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{filter:?}: {steps:?}");
    }
}

#[tokio::test]
async fn the_newest_run_of_a_workflow_is_found_by_index() {
    let (store, _data, _directory) = store().await;
    let steps = plan(&store, workflows::LIST_WORKFLOWS).await;
    let scans: Vec<&String> = steps.iter().filter(|step| step.starts_with("SCAN")).collect();
    assert_eq!(scans, ["SCAN w USING INDEX workflows_slug"], "only the workflows themselves: {steps:?}");
}
