//! Creation, reading and listing of runs.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};
use trestle_contract::event::{EventBody, RunStatus, StandardStream};
use trestle_contract::ids::RunId;
use trestle_contract::json::RawJson;

use super::run_state::{RunState, held};
use super::{events, idempotency, queue, settings};
use crate::error::{Conflict, Entity, MAX_CALL_DEPTH, StoreError, StoreResult};
use crate::model::{
    ChildKind, CreatedRun, NewRun, ParentLink, Placement, RunFailure, RunFilter, RunListRow, RunPage,
    RunPosition, RunRow, RunTotals,
};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, text_set};
use crate::sqlite::writer::Tx;
use crate::store::Change;

/// The most rows of one page.
const PAGE: u32 = 1_000;

const RUN: &str = "
    SELECT r.*, w.slug, v.number AS version_number, i.actor, i.trigger_request, i.input, i.trigger_payload,
        o.error, o.output, p.id AS parent_id, s.expires_at AS run_lease_until
    FROM runs r
    JOIN workflows w ON w.id = r.workflow
    JOIN versions v ON v.id = r.version
    JOIN run_inputs i ON i.run = r.number
    LEFT JOIN run_results o ON o.run = r.number
    LEFT JOIN runs p ON p.number = r.parent
    LEFT JOIN leases s ON s.run = r.number AND s.kind = 1
    WHERE r.id = ?";

pub(crate) async fn run(conn: &mut Conn, id: &RunId) -> StoreResult<RunRow> {
    let row = sqlx::query(RUN)
        .bind(id.as_str())
        .fetch_optional(&mut *conn)
        .await?
        .ok_or(StoreError::NotFound(Entity::Run))?;
    let organisation = settings::organisation(conn).await?.id;
    let error = match row.text_if_any("error")? {
        None => None,
        Some(text) => Some(
            serde_json::from_str::<RunFailure>(&text)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?,
        ),
    };
    Ok(RunRow {
        id: row.id("id")?,
        organisation,
        workflow: row.id("workflow")?,
        workflow_slug: row.text("slug")?,
        version: row.id("version")?,
        version_number: row.number("version_number")?,
        status: row.status("status")?,
        attempt: row.small("attempt")?,
        epoch: row.unsigned("epoch")?,
        input: row.json_if_any("input")?,
        trigger_kind: row.text("trigger_kind")?,
        trigger_payload: row.json_if_any("trigger_payload")?,
        trigger_request: row.json_if_any("trigger_request")?,
        actor: row.json("actor")?,
        environment: row.text_if_any("environment")?,
        concurrency_key: row.text_if_any("concurrency_key")?,
        workspace_key: row.text_if_any("workspace_key")?,
        parent: row.id_if_any("parent_id")?,
        retried_from: row.id_if_any("retried_from")?,
        placement: Placement {
            runs_on: row.json("runs_on")?,
            pool: row.text("pool")?,
            labels: row.strings("labels")?,
        },
        output: row.json_if_any("output")?,
        error,
        created_at: row.number("created_at")?,
        pending_since: row.number_if_any("pending_since")?,
        started_at: row.number_if_any("started_at")?,
        completed_at: row.number_if_any("completed_at")?,
        cancel_requested_at: row.number_if_any("cancel_requested_at")?,
        worker: row.text_if_any("worker")?,
        lease_until: row.number_if_any("run_lease_until")?,
        totals: totals(&row)?,
        dispatch_attempts: row.number("dispatch_attempts")?,
    })
}

pub(crate) fn totals(row: &SqliteRow) -> StoreResult<RunTotals> {
    Ok(RunTotals {
        tokens_in: row.number("tokens_in")?,
        tokens_out: row.number("tokens_out")?,
        cached_tokens_in: row.number("cached_tokens_in")?,
        cached_write_tokens: row.number("cached_write_tokens")?,
        cost_micros: row.number("cost_micros")?,
        runtime_seconds: row.number("runtime_seconds")?,
    })
}

/// The number of a run that exists.
pub(crate) async fn number(conn: &mut Conn, id: &RunId) -> StoreResult<i64> {
    sqlx::query_scalar("SELECT number FROM runs WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .ok_or(StoreError::NotFound(Entity::Run))
}

async fn by_number(conn: &mut Conn, number: i64) -> StoreResult<RunRow> {
    let id: String = sqlx::query_scalar("SELECT id FROM runs WHERE number = ?")
        .bind(number)
        .fetch_optional(&mut *conn)
        .await?
        .ok_or(StoreError::NotFound(Entity::Run))?;
    run(conn, &RunId::new(id).map_err(|error| StoreError::Corrupt(error.to_string()))?).await
}

pub(crate) async fn create(tx: &mut Tx, new: NewRun) -> StoreResult<CreatedRun> {
    if let Some(key) = &new.idempotency
        && let Some(number) = idempotency::run_of(tx, key).await?
    {
        return Ok(CreatedRun { run: by_number(&mut tx.conn, number).await?, created: false });
    }
    let parent = match &new.parent {
        None => None,
        Some(link) => {
            let parent = held(tx, &link.fence).await?;
            if let Some(child) = child_of(tx, parent.number, &link.identity).await? {
                return Ok(CreatedRun { run: by_number(&mut tx.conn, child).await?, created: false });
            }
            if link.kind == ChildKind::Call && call_depth(tx, parent.number).await? >= MAX_CALL_DEPTH {
                return Err(Conflict::CalledTooDeep.into());
            }
            Some(parent)
        }
    };
    let version = version_to_run(tx, &new).await?;
    let number = insert(tx, &new, &version, parent.as_ref().map(|parent| parent.number)).await?;
    if let (Some(parent), Some(link)) = (&parent, &new.parent) {
        link_child(tx, parent, link, number).await?;
    }
    if let Some(key) = &new.idempotency {
        idempotency::keep_run(tx, key, number).await?;
    }
    let run = by_number(&mut tx.conn, number).await?;
    tx.changed(Change::Run(run.id.clone()));
    Ok(CreatedRun { run, created: true })
}

async fn child_of(tx: &mut Tx, parent: i64, identity: &str) -> StoreResult<Option<i64>> {
    Ok(sqlx::query_scalar("SELECT child FROM run_children WHERE parent = ? AND identity = ?")
        .bind(parent)
        .bind(identity)
        .fetch_optional(&mut tx.conn)
        .await?)
}

/// How many runs wait for each other down to this one, itself included.
async fn call_depth(tx: &mut Tx, run: i64) -> StoreResult<u32> {
    let depth: i64 =
        sqlx::query_scalar(CALL_DEPTH).bind(run).bind(MAX_CALL_DEPTH).fetch_one(&mut tx.conn).await?;
    Ok(u32::try_from(depth).unwrap_or(u32::MAX))
}

const CALL_DEPTH: &str = "
    WITH RECURSIVE chain (run, depth) AS (
        SELECT ?, 1
        UNION ALL
        SELECT c.parent, chain.depth + 1 FROM run_children c JOIN chain ON c.child = chain.run
        WHERE c.called = 1 AND chain.depth < ?
    )
    SELECT max(depth) FROM chain";

async fn link_child(tx: &mut Tx, parent: &RunState, link: &ParentLink, child: i64) -> StoreResult<()> {
    let called = match link.kind {
        ChildKind::Call => 1_i64,
        ChildKind::Run => 0,
    };
    sqlx::query("INSERT INTO run_children (parent, identity, child, called) VALUES (?, ?, ?, ?)")
        .bind(parent.number)
        .bind(&link.identity)
        .bind(child)
        .bind(called)
        .execute(&mut tx.conn)
        .await?;
    Ok(())
}

async fn version_to_run(tx: &mut Tx, new: &NewRun) -> StoreResult<String> {
    let workflow = super::workflows::workflow(&mut tx.conn, &new.workflow).await?;
    if workflow.disabled_at.is_some() {
        return Err(Conflict::WorkflowDisabled.into());
    }
    match &new.version {
        None => match workflow.current_version {
            Some(version) => Ok(version.as_str().to_owned()),
            None => Err(Conflict::NoVersion.into()),
        },
        Some(version) => {
            let row = super::workflows::version(&mut tx.conn, version).await?;
            if row.workflow == new.workflow {
                Ok(version.as_str().to_owned())
            } else {
                Err(StoreError::NotFound(Entity::Version))
            }
        }
    }
}

async fn insert(tx: &mut Tx, new: &NewRun, version: &str, parent: Option<i64>) -> StoreResult<i64> {
    let id = tx.fresh_id();
    let labels = text_set(&new.placement.labels);
    let number = sqlx::query(
        "INSERT INTO runs (id, workflow, version, status, attempt, trigger_kind, environment, concurrency_key,
            workspace_key, parent, retried_from, pool, labels, runs_on, created_at, pending_since)
         VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&id)
    .bind(new.workflow.as_str())
    .bind(version)
    .bind(RunStatus::Pending.as_str())
    .bind(&new.trigger.kind)
    .bind(&new.environment)
    .bind(&new.concurrency_key)
    .bind(&new.workspace_key)
    .bind(parent)
    .bind(new.retried_from.as_ref().map(RunId::as_str))
    .bind(&new.placement.pool)
    .bind(&labels)
    .bind(new.placement.runs_on.get())
    .bind(tx.now)
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?
    .last_insert_rowid();
    let text = |json: &Option<RawJson>| json.as_ref().map(|json| json.get().to_owned());
    sqlx::query(
        "INSERT INTO run_inputs (run, actor, trigger_request, input, trigger_payload) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(number)
    .bind(new.actor.get())
    .bind(text(&new.trigger.request))
    .bind(text(&new.input))
    .bind(text(&new.trigger.payload))
    .execute(&mut tx.conn)
    .await?;
    // Nothing makes a run wait before it may be offered: it is admitted as it is created.
    for (seq, status) in [(1, RunStatus::Queued), (2, RunStatus::Pending)] {
        events::insert_status(tx, number, &id, seq, seq, status, None, true).await?;
    }
    warn(tx, number, &id, version, 3).await?;
    queue::enqueue(tx, number, &new.placement.pool, &labels).await?;
    Ok(number)
}

/// Says in the run's log what its version was deployed in spite of, from this cursor on.
async fn warn(tx: &mut Tx, number: i64, id: &str, version: &str, first: u64) -> StoreResult<()> {
    let row = sqlx::query("SELECT warnings FROM versions WHERE id = ?")
        .bind(version)
        .fetch_one(&mut tx.conn)
        .await?;
    for (seq, warning) in (first..).zip(row.strings("warnings")?) {
        let body = EventBody::ProgramOutput {
            stream: StandardStream::Stderr,
            text: format!("warning: {warning}\n"),
        };
        events::insert_own(tx, number, id, seq, seq, body, true).await?;
    }
    Ok(())
}

fn list_row(row: &SqliteRow) -> StoreResult<RunListRow> {
    Ok(RunListRow {
        id: row.id("id")?,
        workflow: row.id("workflow")?,
        workflow_slug: row.text("slug")?,
        status: row.status("status")?,
        trigger_kind: row.text("trigger_kind")?,
        attempt: row.small("attempt")?,
        parent: row.id_if_any("parent_id")?,
        concurrency_key: row.text_if_any("concurrency_key")?,
        workspace_key: row.text_if_any("workspace_key")?,
        created_at: row.number("created_at")?,
        started_at: row.number_if_any("started_at")?,
        completed_at: row.number_if_any("completed_at")?,
        totals: totals(row)?,
    })
}

const LIST: &str = "
    SELECT r.*, w.slug, p.id AS parent_id
    FROM runs r
    JOIN workflows w ON w.id = r.workflow
    LEFT JOIN runs p ON p.number = r.parent";

/// The statement for a filter, without its limit.
pub(crate) fn list_query(filter: &RunFilter, parent: Option<i64>) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(LIST);
    query.push(" WHERE r.number < ").push_bind(filter.after.map_or(i64::MAX, |position| position.0));
    if let Some(workflow) = &filter.workflow {
        query.push(" AND r.workflow = ").push_bind(workflow.as_str().to_owned());
    }
    if let Some(status) = filter.status {
        query.push(" AND r.status = ").push_bind(status.as_str());
    }
    if let Some(parent) = parent {
        query.push(" AND r.parent = ").push_bind(parent);
    }
    query.push(" ORDER BY r.number DESC LIMIT ");
    query
}

pub(crate) async fn list(conn: &mut Conn, filter: RunFilter) -> StoreResult<RunPage> {
    let parent = match &filter.parent {
        None => None,
        Some(parent) => Some(number(conn, parent).await?),
    };
    let limit = filter.limit.clamp(1, PAGE) as usize;
    let mut query = list_query(&filter, parent);
    query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX) + 1);
    let rows = query.build().fetch_all(conn).await?;
    let next = match rows.get(limit - 1) {
        Some(last) if rows.len() > limit => Some(RunPosition(last.number("number")?)),
        _ => None,
    };
    let runs = rows.iter().take(limit).map(list_row).collect::<StoreResult<_>>()?;
    Ok(RunPage { runs, next })
}

pub(crate) async fn children(conn: &mut Conn, parent: &RunId) -> StoreResult<Vec<RunListRow>> {
    let parent = number(conn, parent).await?;
    let mut query = QueryBuilder::<Sqlite>::new(LIST);
    query.push(" WHERE r.parent = ").push_bind(parent).push(" ORDER BY r.number");
    query.build().fetch_all(conn).await?.iter().map(list_row).collect()
}
