//! Artifacts and announced uploads.

use sqlx::sqlite::SqliteRow;
use trestle_contract::ids::{ArtifactId, RunId};

use super::run_state::held;
use super::runs;
use crate::error::{Entity, StoreError, StoreResult};
use crate::model::{ArtifactRow, NewArtifact, NewUpload, UploadPurpose, UploadRow, WrittenArtifact};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, signed};
use crate::sqlite::writer::Tx;
use crate::store::Change;

const ARTIFACT: &str = "SELECT a.*, r.id AS run_id FROM artifacts a JOIN runs r ON r.number = a.run";

fn artifact_row(row: &SqliteRow) -> StoreResult<ArtifactRow> {
    Ok(ArtifactRow {
        id: row.id("id")?,
        run: row.id("run_id")?,
        name: row.text("name")?,
        content_type: row.text("content_type")?,
        size: row.unsigned("size")?,
        sha256: row.text("sha256")?,
        blob_key: row.text("blob_key")?,
        metadata: row.json_if_any("metadata")?,
        created_at: row.number("created_at")?,
    })
}

async fn by_number(conn: &mut Conn, number: i64) -> StoreResult<ArtifactRow> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("{ARTIFACT} WHERE a.number = ?")))
        .bind(number)
        .fetch_one(conn)
        .await?;
    artifact_row(&row)
}

pub(crate) async fn write(tx: &mut Tx, new: NewArtifact) -> StoreResult<WrittenArtifact> {
    let run = held(tx, &new.fence).await?;
    let known: Option<i64> =
        match &new.upload_key {
            Some(key) => {
                sqlx::query_scalar("SELECT number FROM artifacts WHERE upload_key = ? AND run = ?")
                    .bind(key)
                    .bind(run.number)
                    .fetch_optional(&mut tx.conn)
                    .await?
            }
            None => sqlx::query_scalar(
                "SELECT number FROM artifacts WHERE run = ? AND name = ? AND sha256 = ? AND content_type = ?
                    AND upload_key IS NULL AND created_at > ? ORDER BY number DESC LIMIT 1",
            )
            .bind(run.number)
            .bind(&new.name)
            .bind(&new.sha256)
            .bind(&new.content_type)
            .bind(tx.now - tx.options.artifact_dedupe_ms)
            .fetch_optional(&mut tx.conn)
            .await?,
        };
    if let Some(number) = known {
        return Ok(WrittenArtifact { artifact: by_number(&mut tx.conn, number).await?, created: false });
    }
    if let Some(key) = &new.upload_key {
        claim_upload(tx, key, &run.id).await?;
    }
    let id = tx.fresh_id();
    let number = sqlx::query(
        "INSERT INTO artifacts (id, run, name, content_type, size, sha256, blob_key, upload_key, created_at, metadata)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&id)
    .bind(run.number)
    .bind(&new.name)
    .bind(&new.content_type)
    .bind(signed(new.size)?)
    .bind(&new.sha256)
    .bind(&new.blob_key)
    .bind(&new.upload_key)
    .bind(tx.now)
    .bind(new.metadata.as_ref().map(|metadata| metadata.get().to_owned()))
    .execute(&mut tx.conn)
    .await?
    .last_insert_rowid();
    tx.changed(Change::Run(run.id));
    Ok(WrittenArtifact { artifact: by_number(&mut tx.conn, number).await?, created: true })
}

async fn claim_upload(tx: &mut Tx, key: &str, run: &RunId) -> StoreResult<()> {
    let claimed = sqlx::query(
        "UPDATE uploads SET claimed = 1 WHERE key = ? AND run = ? AND claimed = 0 AND expires_at > ?",
    )
    .bind(key)
    .bind(run.as_str())
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?;
    match claimed.rows_affected() {
        0 => Err(StoreError::NotFound(Entity::Upload)),
        _ => Ok(()),
    }
}

pub(crate) async fn list(conn: &mut Conn, run: &RunId) -> StoreResult<Vec<ArtifactRow>> {
    let run = runs::number(conn, run).await?;
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{ARTIFACT} WHERE a.run = ? ORDER BY a.number")))
        .bind(run)
        .fetch_all(conn)
        .await?;
    rows.iter().map(artifact_row).collect()
}

pub(crate) async fn artifact(conn: &mut Conn, id: &ArtifactId) -> StoreResult<ArtifactRow> {
    sqlx::query(sqlx::AssertSqlSafe(format!("{ARTIFACT} WHERE a.id = ?")))
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Artifact)), |row| artifact_row(&row))
}

fn upload_row(row: &SqliteRow) -> StoreResult<UploadRow> {
    let received_size = row.number_if_any("received_size")?.map(u64::try_from).transpose();
    Ok(UploadRow {
        upload: NewUpload {
            key: row.text("key")?,
            purpose: match row.id_if_any("run")? {
                None => UploadPurpose::Program,
                Some(run) => UploadPurpose::Artifact { run },
            },
            blob_key: row.text("blob_key")?,
            size: row.unsigned("size")?,
            sha256: row.text_if_any("sha256")?,
            content_type: row.text("content_type")?,
            metadata: row.json_if_any("metadata")?,
            lifetime_ms: row.number("lifetime_ms")?,
        },
        received_sha256: row.text_if_any("received_sha256")?,
        received_size: received_size.map_err(|error| StoreError::Corrupt(error.to_string()))?,
        claimed: row.flag("claimed")?,
        expires_at: row.number("expires_at")?,
    })
}

pub(crate) async fn create_upload(tx: &mut Tx, new: NewUpload) -> StoreResult<UploadRow> {
    let run = match &new.purpose {
        UploadPurpose::Program => None,
        UploadPurpose::Artifact { run } => Some(run.as_str()),
    };
    sqlx::query(
        "INSERT INTO uploads (key, run, blob_key, size, sha256, content_type, lifetime_ms, expires_at, metadata)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at",
    )
    .bind(&new.key)
    .bind(run)
    .bind(&new.blob_key)
    .bind(signed(new.size)?)
    .bind(&new.sha256)
    .bind(&new.content_type)
    .bind(new.lifetime_ms)
    .bind(tx.now.saturating_add(new.lifetime_ms))
    .bind(new.metadata.as_ref().map(|metadata| metadata.get().to_owned()))
    .execute(&mut tx.conn)
    .await?;
    let row = upload(&mut tx.conn, &new.key, tx.now).await?;
    if row.upload.purpose != new.purpose || row.upload.blob_key != new.blob_key || row.upload.size != new.size
    {
        return Err(StoreError::Invalid("the upload key names another upload".into()));
    }
    Ok(row)
}

pub(crate) async fn upload(conn: &mut Conn, key: &str, now: i64) -> StoreResult<UploadRow> {
    sqlx::query("SELECT * FROM uploads WHERE key = ? AND (claimed = 1 OR expires_at > ?)")
        .bind(key)
        .bind(now)
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Upload)), |row| upload_row(&row))
}

pub(crate) async fn receive_upload(
    tx: &mut Tx,
    key: &str,
    size: u64,
    sha256: &str,
) -> StoreResult<UploadRow> {
    let row = upload(&mut tx.conn, key, tx.now).await?;
    if size != row.upload.size {
        return Err(StoreError::Mismatch(format!(
            "{size} bytes arrived, {} were announced",
            row.upload.size
        )));
    }
    if row.upload.sha256.as_deref().is_some_and(|announced| announced != sha256) {
        return Err(StoreError::Mismatch(
            "the bytes that arrived have another SHA-256 than announced".into(),
        ));
    }
    sqlx::query("UPDATE uploads SET received_size = ?, received_sha256 = ? WHERE key = ?")
        .bind(signed(size)?)
        .bind(sha256)
        .bind(key)
        .execute(&mut tx.conn)
        .await?;
    upload(&mut tx.conn, key, tx.now).await
}

pub(crate) async fn sweep_uploads(tx: &mut Tx) -> StoreResult<Vec<String>> {
    let keys: Vec<String> =
        sqlx::query_scalar("DELETE FROM uploads WHERE claimed = 0 AND expires_at <= ? RETURNING blob_key")
            .bind(tx.now)
            .fetch_all(&mut tx.conn)
            .await?;
    let mut unused = std::collections::BTreeSet::new();
    for key in keys {
        let used: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM versions WHERE blob_key = ?1)
                OR EXISTS (SELECT 1 FROM artifacts WHERE blob_key = ?1)
                OR EXISTS (SELECT 1 FROM uploads WHERE blob_key = ?1)",
        )
        .bind(&key)
        .fetch_one(&mut tx.conn)
        .await?;
        if !used {
            unused.insert(key);
        }
    }
    Ok(unused.into_iter().collect())
}
