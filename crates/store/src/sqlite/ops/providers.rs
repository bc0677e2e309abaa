//! Model providers.

use sqlx::sqlite::SqliteRow;

use crate::error::{Conflict, Entity, StoreError, StoreResult};
use crate::model::{NewProvider, ProviderRow};
use crate::sqlite::Conn;
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;

fn provider_row(row: &SqliteRow) -> StoreResult<ProviderRow> {
    Ok(ProviderRow {
        name: row.text("name")?,
        source: row.text("source")?,
        base_url: row.text_if_any("base_url")?,
        has_key: row.bytes_if_any("sealed")?.is_some(),
        created_at: row.number("created_at")?,
    })
}

pub(crate) async fn create(tx: &mut Tx, new: NewProvider) -> StoreResult<ProviderRow> {
    let inserted = sqlx::query(
        "INSERT INTO inference_providers (name, source, base_url, created_at, sealed) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT DO NOTHING",
    )
    .bind(&new.name)
    .bind(&new.source)
    .bind(&new.base_url)
    .bind(tx.now)
    .bind(&new.sealed)
    .execute(&mut tx.conn)
    .await?;
    if inserted.rows_affected() == 0 {
        return Err(Conflict::NameTaken.into());
    }
    Ok(ProviderRow {
        has_key: new.sealed.is_some(),
        name: new.name,
        source: new.source,
        base_url: new.base_url,
        created_at: tx.now,
    })
}

pub(crate) async fn list(conn: &mut Conn) -> StoreResult<Vec<ProviderRow>> {
    let rows = sqlx::query("SELECT * FROM inference_providers ORDER BY name").fetch_all(conn).await?;
    rows.iter().map(provider_row).collect()
}

pub(crate) async fn find(conn: &mut Conn, name: &str) -> StoreResult<(ProviderRow, Option<Vec<u8>>)> {
    let row = sqlx::query("SELECT * FROM inference_providers WHERE name = ?")
        .bind(name)
        .fetch_optional(conn)
        .await?
        .ok_or(StoreError::NotFound(Entity::Provider))?;
    Ok((provider_row(&row)?, row.bytes_if_any("sealed")?))
}

pub(crate) async fn delete(tx: &mut Tx, name: &str) -> StoreResult<()> {
    let deleted = sqlx::query("DELETE FROM inference_providers WHERE name = ?")
        .bind(name)
        .execute(&mut tx.conn)
        .await?;
    match deleted.rows_affected() {
        0 => Err(StoreError::NotFound(Entity::Provider)),
        _ => Ok(()),
    }
}
