//! Secrets: names and sealed bytes.

use sqlx::sqlite::SqliteRow;

use crate::error::{Conflict, Entity, StoreError, StoreResult};
use crate::model::{IfExists, NewSecret, SecretRow};
use crate::sqlite::Conn;
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;

fn secret_row(row: &SqliteRow) -> StoreResult<SecretRow> {
    Ok(SecretRow {
        id: row.text("id")?,
        name: row.text("name")?,
        // The organisation's own value is stored under the empty name, which no environment has.
        environment: Some(row.text("environment")?).filter(|environment| !environment.is_empty()),
        scope: row.text("scope")?,
        kind: row.text("kind")?,
        description: row.text_if_any("description")?,
        last4: row.text_if_any("last4")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
    })
}

async fn secret(conn: &mut Conn, id: &str) -> StoreResult<SecretRow> {
    sqlx::query("SELECT * FROM secrets WHERE id = ?")
        .bind(id)
        .fetch_optional(conn)
        .await?
        .map_or(Err(StoreError::NotFound(Entity::Secret)), |row| secret_row(&row))
}

pub(crate) async fn put(tx: &mut Tx, new: NewSecret) -> StoreResult<(SecretRow, bool)> {
    let environment = new.environment.clone().unwrap_or_default();
    let known: Option<String> =
        sqlx::query_scalar("SELECT id FROM secrets WHERE name = ? AND environment = ?")
            .bind(&new.name)
            .bind(&environment)
            .fetch_optional(&mut tx.conn)
            .await?;
    match (known, new.if_exists) {
        (Some(_), IfExists::Refuse) => Err(Conflict::NameTaken.into()),
        (Some(id), IfExists::Replace) => {
            sqlx::query(
                "UPDATE secrets SET scope = ?, kind = ?, description = coalesce(?, description), last4 = ?, sealed = ?,
                    updated_at = ? WHERE id = ?",
            )
            .bind(&new.scope)
            .bind(&new.kind)
            .bind(&new.description)
            .bind(&new.last4)
            .bind(&new.sealed)
            .bind(tx.now)
            .bind(&id)
            .execute(&mut tx.conn)
            .await?;
            Ok((secret(&mut tx.conn, &id).await?, false))
        }
        (None, IfExists::Refuse | IfExists::Replace) => {
            let id = tx.fresh_id();
            sqlx::query(
                "INSERT INTO secrets (id, name, environment, scope, kind, description, last4, created_at, updated_at,
                    sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&id)
            .bind(&new.name)
            .bind(&environment)
            .bind(&new.scope)
            .bind(&new.kind)
            .bind(&new.description)
            .bind(&new.last4)
            .bind(tx.now)
            .bind(tx.now)
            .bind(&new.sealed)
            .execute(&mut tx.conn)
            .await?;
            Ok((secret(&mut tx.conn, &id).await?, true))
        }
    }
}

pub(crate) async fn rotate(
    tx: &mut Tx,
    id: &str,
    sealed: Vec<u8>,
    last4: Option<String>,
) -> StoreResult<SecretRow> {
    sqlx::query("UPDATE secrets SET sealed = ?, last4 = ?, updated_at = ? WHERE id = ?")
        .bind(sealed)
        .bind(last4)
        .bind(tx.now)
        .bind(id)
        .execute(&mut tx.conn)
        .await?;
    secret(&mut tx.conn, id).await
}

pub(crate) async fn list(conn: &mut Conn) -> StoreResult<Vec<SecretRow>> {
    let rows = sqlx::query("SELECT * FROM secrets ORDER BY name, environment").fetch_all(conn).await?;
    rows.iter().map(secret_row).collect()
}

pub(crate) async fn delete(tx: &mut Tx, id: &str) -> StoreResult<()> {
    let deleted = sqlx::query("DELETE FROM secrets WHERE id = ?").bind(id).execute(&mut tx.conn).await?;
    match deleted.rows_affected() {
        0 => Err(StoreError::NotFound(Entity::Secret)),
        _ => Ok(()),
    }
}

pub(crate) async fn sealed(
    conn: &mut Conn,
    name: &str,
    environment: Option<&str>,
) -> StoreResult<(SecretRow, Vec<u8>)> {
    let row = sqlx::query(
        "SELECT * FROM secrets WHERE name = ? AND environment IN (?, '') ORDER BY environment DESC LIMIT 1",
    )
    .bind(name)
    .bind(environment.unwrap_or_default())
    .fetch_optional(conn)
    .await?
    .ok_or(StoreError::NotFound(Entity::Secret))?;
    Ok((secret_row(&row)?, row.bytes("sealed")?))
}
