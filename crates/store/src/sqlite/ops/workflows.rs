//! Workflows and versions.

use sqlx::sqlite::SqliteRow;
use trestle_contract::ids::{VersionId, WorkflowId};

use crate::error::{Entity, StoreError, StoreResult};
use crate::model::{
    DeployTarget, Deployed, NewVersion, ProgramRow, VersionListRow, VersionRow, WorkflowListRow, WorkflowRow,
};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, signed, text_list};
use crate::sqlite::writer::Tx;

fn workflow_row(row: &SqliteRow) -> StoreResult<WorkflowRow> {
    Ok(WorkflowRow {
        id: row.id("id")?,
        slug: row.text("slug")?,
        title: row.text_if_any("title")?,
        current_version: row.id_if_any("current_version")?,
        trigger_kinds: row.strings("trigger_kinds")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
        disabled_at: row.number_if_any("disabled_at")?,
    })
}

fn version_row(row: &SqliteRow) -> StoreResult<VersionRow> {
    let options = row.text("deploy_options")?;
    Ok(VersionRow {
        id: row.id("id")?,
        workflow: row.id("workflow")?,
        number: row.number("number")?,
        identity: row.text("identity")?,
        manifest: row.json("manifest")?,
        program: ProgramRow {
            digest: row.text("digest")?,
            size: row.unsigned("size")?,
            entry: row.text("entry")?,
            sdk_version: row.text("sdk_version")?,
            lockfile_digest: row.text_if_any("lockfile_digest")?,
            blob_key: row.text("blob_key")?,
        },
        source_files: row.json_if_any("source_files")?,
        deploy_options: if options.is_empty() { None } else { Some(row.json("deploy_options")?) },
        warnings: row.strings("warnings")?,
        created_at: row.number("created_at")?,
    })
}

pub(crate) async fn workflow(conn: &mut Conn, id: &WorkflowId) -> StoreResult<WorkflowRow> {
    sqlx::query("SELECT * FROM workflows WHERE id = ? AND deleted_at IS NULL")
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Workflow)), |row| workflow_row(&row))
}

pub(crate) async fn workflow_by_slug(conn: &mut Conn, slug: &str) -> StoreResult<WorkflowRow> {
    sqlx::query("SELECT * FROM workflows WHERE slug = ? AND deleted_at IS NULL")
        .bind(slug)
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Workflow)), |row| workflow_row(&row))
}

pub(crate) async fn version(conn: &mut Conn, id: &VersionId) -> StoreResult<VersionRow> {
    sqlx::query("SELECT * FROM versions WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Version)), |row| version_row(&row))
}

pub(crate) async fn list_versions(
    conn: &mut Conn,
    workflow: &WorkflowId,
) -> StoreResult<Vec<VersionListRow>> {
    let rows =
        sqlx::query("SELECT id, number, created_at FROM versions WHERE workflow = ? ORDER BY number DESC")
            .bind(workflow.as_str())
            .fetch_all(conn)
            .await?;
    rows.iter()
        .map(|row| {
            Ok(VersionListRow {
                id: row.id("id")?,
                number: row.number("number")?,
                created_at: row.number("created_at")?,
            })
        })
        .collect()
}

pub(crate) const LIST_WORKFLOWS: &str = "
    SELECT w.*, r.status AS last_status, r.created_at AS last_at
    FROM workflows w
    LEFT JOIN runs r ON r.number = (SELECT max(number) FROM runs WHERE workflow = w.id)
    WHERE w.deleted_at IS NULL
    ORDER BY w.slug";

pub(crate) async fn list_workflows(conn: &mut Conn, term: Option<&str>) -> StoreResult<Vec<WorkflowListRow>> {
    let term = term.map(str::to_lowercase);
    let rows = sqlx::query(LIST_WORKFLOWS).fetch_all(conn).await?;
    let mut list = Vec::with_capacity(rows.len());
    for row in &rows {
        let workflow = workflow_row(row)?;
        // Here and not in SQL: SQLite lowers ASCII letters only.
        let wanted = term.as_ref().is_none_or(|term| {
            workflow.slug.to_lowercase().contains(term)
                || workflow.title.as_ref().is_some_and(|title| title.to_lowercase().contains(term))
        });
        if wanted {
            let last_run = match row.number_if_any("last_at")? {
                Some(at) => Some((row.status("last_status")?, at)),
                None => None,
            };
            list.push(WorkflowListRow { workflow, last_run });
        }
    }
    Ok(list)
}

pub(crate) async fn deploy(tx: &mut Tx, new: NewVersion) -> StoreResult<Deployed> {
    let (workflow, workflow_created) = match &new.target {
        DeployTarget::Workflow(id) => (workflow(&mut tx.conn, id).await?.id, false),
        DeployTarget::Slug(slug) => match workflow_by_slug(&mut tx.conn, slug).await {
            Ok(found) => (found.id, false),
            Err(StoreError::NotFound(_)) => (create_workflow(tx, slug).await?, true),
            Err(error) => return Err(error),
        },
    };
    let options = new.deploy_options.as_ref().map_or("", |options| options.get());
    let known: Option<String> = sqlx::query_scalar(
        "SELECT id FROM versions WHERE workflow = ? AND identity = ? AND deploy_options = ?",
    )
    .bind(workflow.as_str())
    .bind(&new.identity)
    .bind(options)
    .fetch_optional(&mut tx.conn)
    .await?;
    let version_created = known.is_none();
    let id = match known {
        Some(id) => id,
        None => create_version(tx, &workflow, &new, options).await?,
    };
    sqlx::query(
        "UPDATE workflows SET current_version = v.id, title = v.title, trigger_kinds = v.trigger_kinds, updated_at = ?
         FROM versions v WHERE v.id = ? AND workflows.id = v.workflow",
    )
    .bind(tx.now)
    .bind(&id)
    .execute(&mut tx.conn)
    .await?;
    sqlx::query("UPDATE uploads SET claimed = 1 WHERE blob_key = ? AND run IS NULL")
        .bind(&new.program.blob_key)
        .execute(&mut tx.conn)
        .await?;
    let id = VersionId::new(id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Deployed {
        workflow: self::workflow(&mut tx.conn, &workflow).await?,
        version: version(&mut tx.conn, &id).await?,
        workflow_created,
        version_created,
    })
}

async fn create_workflow(tx: &mut Tx, slug: &str) -> StoreResult<WorkflowId> {
    let id = tx.fresh_id();
    sqlx::query(
        "INSERT INTO workflows (id, slug, trigger_kinds, created_at, updated_at) VALUES (?, ?, '[]', ?, ?)",
    )
    .bind(&id)
    .bind(slug)
    .bind(tx.now)
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?;
    WorkflowId::new(id).map_err(|error| StoreError::Invalid(error.to_string()))
}

async fn create_version(
    tx: &mut Tx,
    workflow: &WorkflowId,
    new: &NewVersion,
    options: &str,
) -> StoreResult<String> {
    let id = tx.fresh_id();
    sqlx::query(
        "INSERT INTO versions (id, workflow, number, identity, deploy_options, digest, size, entry, sdk_version,
            lockfile_digest, blob_key, warnings, created_at, title, trigger_kinds, manifest, source_files)
         SELECT ?, ?, coalesce(max(number), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
         FROM versions WHERE workflow = ?",
    )
    .bind(&id)
    .bind(workflow.as_str())
    .bind(&new.identity)
    .bind(options)
    .bind(&new.program.digest)
    .bind(signed(new.program.size)?)
    .bind(&new.program.entry)
    .bind(&new.program.sdk_version)
    .bind(&new.program.lockfile_digest)
    .bind(&new.program.blob_key)
    .bind(text_list(&new.warnings))
    .bind(tx.now)
    .bind(&new.title)
    .bind(text_list(&new.trigger_kinds))
    .bind(new.manifest.get())
    .bind(new.source_files.as_ref().map(|files| files.get().to_owned()))
    .bind(workflow.as_str())
    .execute(&mut tx.conn)
    .await?;
    Ok(id)
}

pub(crate) async fn delete_workflow(tx: &mut Tx, id: &WorkflowId) -> StoreResult<()> {
    let changed = sqlx::query("UPDATE workflows SET deleted_at = coalesce(deleted_at, ?) WHERE id = ?")
        .bind(tx.now)
        .bind(id.as_str())
        .execute(&mut tx.conn)
        .await?;
    match changed.rows_affected() {
        0 => Err(StoreError::NotFound(Entity::Workflow)),
        _ => Ok(()),
    }
}

pub(crate) async fn set_disabled(tx: &mut Tx, id: &WorkflowId, disabled: bool) -> StoreResult<WorkflowRow> {
    let before = workflow(&mut tx.conn, id).await?;
    if before.disabled_at.is_some() == disabled {
        return Ok(before);
    }
    sqlx::query("UPDATE workflows SET disabled_at = ?, updated_at = ? WHERE id = ?")
        .bind(disabled.then_some(tx.now))
        .bind(tx.now)
        .bind(id.as_str())
        .execute(&mut tx.conn)
        .await?;
    workflow(&mut tx.conn, id).await
}
