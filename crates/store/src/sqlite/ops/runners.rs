//! Runners, pools and registration tokens.

use sqlx::sqlite::SqliteRow;
use trestle_contract::ids::{RunId, RunnerId};

use crate::error::{Entity, StoreError, StoreResult};
use crate::model::{
    NewRunner, PoolRow, RegistrationTokenRow, ReleaseReason, RunnerRow, TakenBack, TokenHash,
};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, text_set};
use crate::sqlite::writer::Tx;
use crate::store::Change;

const BY_ID: &str = "
    SELECT r.*, p.name AS pool_name, s.at AS seen_at, s.version
    FROM runners r JOIN pools p ON p.id = r.pool LEFT JOIN runner_seen s ON s.runner = r.id
    WHERE r.id = ? AND r.removed_at IS NULL";

pub(crate) const BY_TOKEN: &str = "
    SELECT r.*, p.name AS pool_name, s.at AS seen_at, s.version
    FROM runners r JOIN pools p ON p.id = r.pool LEFT JOIN runner_seen s ON s.runner = r.id
    WHERE r.token_hash = ? AND r.removed_at IS NULL";

const ALL: &str = "
    SELECT r.*, p.name AS pool_name, s.at AS seen_at, s.version
    FROM runners r JOIN pools p ON p.id = r.pool LEFT JOIN runner_seen s ON s.runner = r.id
    WHERE r.removed_at IS NULL ORDER BY r.name, r.id";

fn runner_row(row: &SqliteRow) -> StoreResult<RunnerRow> {
    Ok(RunnerRow {
        id: row.id("id")?,
        pool_id: row.text("pool")?,
        pool: row.text("pool_name")?,
        name: row.text("name")?,
        labels: row.strings("labels")?,
        os: row.text_if_any("os")?,
        arch: row.text_if_any("arch")?,
        version: row.text_if_any("version")?,
        created_at: row.number("created_at")?,
        last_seen_at: row.number_if_any("seen_at")?,
        drain_reason: row.text_if_any("drain_reason")?,
        active_leases: row.number("active_leases")?,
        waiting_leases: row.number("waiting_leases")?,
    })
}

/// The pool of a name, made if it does not exist.
async fn pool(tx: &mut Tx, name: &str) -> StoreResult<String> {
    let fresh = tx.fresh_id();
    sqlx::query("INSERT INTO pools (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING")
        .bind(fresh)
        .bind(name)
        .bind(tx.now)
        .execute(&mut tx.conn)
        .await?;
    Ok(sqlx::query_scalar("SELECT id FROM pools WHERE name = ?").bind(name).fetch_one(&mut tx.conn).await?)
}

pub(crate) async fn create_registration_token(
    tx: &mut Tx,
    pool_name: &str,
    token: TokenHash,
    lifetime_ms: i64,
) -> StoreResult<RegistrationTokenRow> {
    let pool = pool(tx, pool_name).await?;
    let expires_at = tx.now.saturating_add(lifetime_ms);
    sqlx::query("INSERT INTO registration_tokens (token_hash, pool, expires_at) VALUES (?, ?, ?)")
        .bind(token.0.as_slice())
        .bind(pool)
        .bind(expires_at)
        .execute(&mut tx.conn)
        .await?;
    Ok(RegistrationTokenRow { pool: pool_name.to_owned(), expires_at })
}

pub(crate) async fn redeem(tx: &mut Tx, token: TokenHash, runner: NewRunner) -> StoreResult<RunnerRow> {
    let pool: Option<String> = sqlx::query_scalar(
        "DELETE FROM registration_tokens WHERE token_hash = ? AND expires_at > ? RETURNING pool",
    )
    .bind(token.0.as_slice())
    .bind(tx.now)
    .fetch_optional(&mut tx.conn)
    .await?;
    match pool {
        None => Err(StoreError::NotFound(Entity::RegistrationToken)),
        Some(pool) => insert(tx, &pool, runner).await,
    }
}

pub(crate) async fn create(tx: &mut Tx, pool_name: &str, runner: NewRunner) -> StoreResult<RunnerRow> {
    let pool = pool(tx, pool_name).await?;
    insert(tx, &pool, runner).await
}

async fn insert(tx: &mut Tx, pool: &str, new: NewRunner) -> StoreResult<RunnerRow> {
    let id = tx.fresh_id();
    sqlx::query(
        "INSERT INTO runners (id, pool, name, labels, os, arch, token_hash, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&id)
    .bind(pool)
    .bind(&new.name)
    .bind(text_set(&new.labels))
    .bind(&new.os)
    .bind(&new.arch)
    .bind(new.token.0.as_slice())
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?;
    let id = RunnerId::new(id).map_err(|error| StoreError::Invalid(error.to_string()))?;
    touch(tx, &id, new.version.as_deref()).await?;
    runner(&mut tx.conn, &id).await
}

pub(crate) async fn runner(conn: &mut Conn, id: &RunnerId) -> StoreResult<RunnerRow> {
    sqlx::query(BY_ID)
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Runner)), |row| runner_row(&row))
}

pub(crate) async fn by_token(conn: &mut Conn, token: TokenHash) -> StoreResult<RunnerRow> {
    sqlx::query(BY_TOKEN)
        .bind(token.0.as_slice())
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Runner)), |row| runner_row(&row))
}

pub(crate) async fn list(conn: &mut Conn) -> StoreResult<Vec<RunnerRow>> {
    sqlx::query(ALL).fetch_all(conn).await?.iter().map(runner_row).collect()
}

pub(crate) async fn list_pools(conn: &mut Conn) -> StoreResult<Vec<PoolRow>> {
    let rows = sqlx::query("SELECT * FROM pools ORDER BY name").fetch_all(conn).await?;
    rows.iter()
        .map(|row| {
            Ok(PoolRow {
                id: row.text("id")?,
                name: row.text("name")?,
                created_at: row.number("created_at")?,
            })
        })
        .collect()
}

pub(crate) async fn touch(tx: &mut Tx, id: &RunnerId, version: Option<&str>) -> StoreResult<()> {
    sqlx::query(
        "INSERT INTO runner_seen (runner, at, version) VALUES (?, ?, ?)
         ON CONFLICT (runner) DO UPDATE SET at = excluded.at, version = coalesce(excluded.version, version)",
    )
    .bind(id.as_str())
    .bind(tx.now)
    .bind(version)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

pub(crate) async fn drain(tx: &mut Tx, id: &RunnerId, reason: &str) -> StoreResult<()> {
    let changed = sqlx::query(
        "UPDATE runners SET drain_reason = coalesce(drain_reason, ?) WHERE id = ? AND removed_at IS NULL",
    )
    .bind(reason)
    .bind(id.as_str())
    .execute(&mut tx.conn)
    .await?;
    if changed.rows_affected() == 0 {
        return Err(StoreError::NotFound(Entity::Runner));
    }
    withdraw_offers(tx, id).await?;
    tx.changed(Change::Runner(id.clone()));
    Ok(())
}

pub(crate) async fn resume(tx: &mut Tx, id: &RunnerId) -> StoreResult<()> {
    let changed = sqlx::query(
        "UPDATE runners SET drain_reason = NULL, lost_in_row = 0 WHERE id = ? AND removed_at IS NULL",
    )
    .bind(id.as_str())
    .execute(&mut tx.conn)
    .await?;
    if changed.rows_affected() == 0 {
        return Err(StoreError::NotFound(Entity::Runner));
    }
    tx.changed(Change::Runner(id.clone()));
    Ok(())
}

pub(crate) async fn remove(tx: &mut Tx, id: &RunnerId) -> StoreResult<Vec<(RunId, TakenBack)>> {
    let changed = sqlx::query("UPDATE runners SET removed_at = ? WHERE id = ? AND removed_at IS NULL")
        .bind(tx.now)
        .bind(id.as_str())
        .execute(&mut tx.conn)
        .await?;
    if changed.rows_affected() == 0 {
        return Err(StoreError::NotFound(Entity::Runner));
    }
    withdraw_offers(tx, id).await?;
    tx.changed(Change::Runner(id.clone()));
    super::leases::end_of_runner(tx, id, ReleaseReason::Handback).await
}

/// Offers to a runner that takes nothing more are free for the others at once.
async fn withdraw_offers(tx: &mut Tx, id: &RunnerId) -> StoreResult<()> {
    let pools: Vec<String> = sqlx::query_scalar(
        "UPDATE queue SET offered_until = 0, offered_to = NULL WHERE offered_to = ? AND offered_until > 0
         AND pool = (SELECT p.name FROM runners r JOIN pools p ON p.id = r.pool WHERE r.id = ?) RETURNING pool",
    )
    .bind(id.as_str())
    .bind(id.as_str())
    .fetch_all(&mut tx.conn)
    .await?;
    for pool in pools {
        tx.changed(Change::Queue { pool });
    }
    Ok(())
}
