//! Answers kept for repeats of a request.

use crate::error::{Conflict, StoreError, StoreResult};
use crate::model::{IdempotencyKey, IdempotencyStart, StoredAnswer};
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;

async fn live_row(tx: &mut Tx, key: &IdempotencyKey) -> StoreResult<Option<sqlx::sqlite::SqliteRow>> {
    Ok(sqlx::query("SELECT * FROM idempotency WHERE principal = ? AND key = ? AND expires_at > ?")
        .bind(&key.principal)
        .bind(&key.key)
        .bind(tx.now)
        .fetch_optional(&mut tx.conn)
        .await?)
}

async fn put(tx: &mut Tx, key: &IdempotencyKey, run: Option<i64>) -> StoreResult<()> {
    sqlx::query(
        "INSERT INTO idempotency (principal, key, request_hash, opening, started_at, expires_at, run)
         VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (principal, key) DO UPDATE SET request_hash = excluded.request_hash,
            opening = excluded.opening, started_at = excluded.started_at, expires_at = excluded.expires_at,
            run = excluded.run, status = NULL, content_type = NULL, body = NULL",
    )
    .bind(&key.principal)
    .bind(&key.key)
    .bind(&key.request_hash)
    .bind(tx.opening.to_string())
    .bind(tx.now)
    .bind(tx.now.saturating_add(tx.options.idempotency_keep_ms))
    .bind(run)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

/// The run that a key made. A key that was begun by the same request is its own.
pub(crate) async fn run_of(tx: &mut Tx, key: &IdempotencyKey) -> StoreResult<Option<i64>> {
    let Some(row) = live_row(tx, key).await? else { return Ok(None) };
    if row.text("request_hash")? != key.request_hash {
        return Err(Conflict::IdempotencyKeyReused.into());
    }
    row.number_if_any("run")
}

pub(crate) async fn keep_run(tx: &mut Tx, key: &IdempotencyKey, run: i64) -> StoreResult<()> {
    put(tx, key, Some(run)).await
}

pub(crate) async fn begin(tx: &mut Tx, key: &IdempotencyKey) -> StoreResult<IdempotencyStart> {
    let Some(row) = live_row(tx, key).await? else {
        put(tx, key, None).await?;
        return Ok(IdempotencyStart::Fresh);
    };
    if row.text("request_hash")? != key.request_hash {
        return Err(Conflict::IdempotencyKeyReused.into());
    }
    if let Some(status) = row.number_if_any("status")? {
        return Ok(IdempotencyStart::Answered(StoredAnswer {
            status: u16::try_from(status).map_err(|error| StoreError::Corrupt(error.to_string()))?,
            content_type: row.text_if_any("content_type")?,
            body: row.bytes_if_any("body")?.unwrap_or_default(),
        }));
    }
    let held_until = row.number("started_at")?.saturating_add(tx.options.idempotency_hold_ms);
    if row.text("opening")? == *tx.opening && held_until > tx.now {
        return Err(Conflict::IdempotencyInProgress.into());
    }
    // What the lost request may have made stays known.
    let run = row.number_if_any("run")?;
    put(tx, key, run).await?;
    Ok(IdempotencyStart::Fresh)
}

pub(crate) async fn finish(tx: &mut Tx, key: &IdempotencyKey, answer: StoredAnswer) -> StoreResult<()> {
    sqlx::query(
        "UPDATE idempotency SET status = ?, content_type = ?, body = ?
         WHERE principal = ? AND key = ? AND request_hash = ? AND status IS NULL",
    )
    .bind(i64::from(answer.status))
    .bind(&answer.content_type)
    .bind(&answer.body)
    .bind(&key.principal)
    .bind(&key.key)
    .bind(&key.request_hash)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

pub(crate) async fn abandon(tx: &mut Tx, key: &IdempotencyKey) -> StoreResult<()> {
    // A run that the request made stays known to its key; only the hold ends.
    for statement in [
        "UPDATE idempotency SET started_at = 0 WHERE principal = ? AND key = ? AND request_hash = ?
            AND status IS NULL AND run IS NOT NULL",
        "DELETE FROM idempotency WHERE principal = ? AND key = ? AND request_hash = ?
            AND status IS NULL AND run IS NULL",
    ] {
        sqlx::query(statement)
            .bind(&key.principal)
            .bind(&key.key)
            .bind(&key.request_hash)
            .execute(&mut tx.conn)
            .await?;
    }
    Ok(())
}

/// Removes what has outlived its keep time.
pub(crate) async fn sweep(tx: &mut Tx) -> StoreResult<u64> {
    let mut removed = 0;
    for statement in [
        "DELETE FROM idempotency WHERE expires_at <= ?",
        "DELETE FROM registration_tokens WHERE expires_at <= ?",
    ] {
        removed += sqlx::query(statement).bind(tx.now).execute(&mut tx.conn).await?.rows_affected();
    }
    Ok(removed)
}
