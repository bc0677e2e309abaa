//! The organisation and the health check.

use crate::error::{StoreError, StoreResult};
use crate::model::Organisation;
use crate::sqlite::Conn;
use crate::sqlite::writer::Tx;

const ORGANISATION: &str = "organisation";
const SLUG: &str = "local";

/// Makes the organisation when the store is new.
pub(crate) async fn make_organisation(tx: &mut Tx) -> StoreResult<()> {
    let value = format!("{} {}", tx.fresh_id(), tx.now);
    sqlx::query("INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING")
        .bind(ORGANISATION)
        .bind(value)
        .execute(&mut tx.conn)
        .await?;
    Ok(())
}

pub(crate) async fn organisation(conn: &mut Conn) -> StoreResult<Organisation> {
    let value: String = sqlx::query_scalar("SELECT value FROM settings WHERE name = ?")
        .bind(ORGANISATION)
        .fetch_one(conn)
        .await?;
    let (id, created_at) = value
        .split_once(' ')
        .and_then(|(id, at)| Some((id.to_owned(), at.parse().ok()?)))
        .ok_or_else(|| StoreError::Corrupt("the organisation's record".into()))?;
    Ok(Organisation { id, slug: SLUG.to_owned(), created_at })
}

/// Writes a row, so that a full or failing disk shows.
pub(crate) async fn check(tx: &mut Tx) -> StoreResult<()> {
    sqlx::query(
        "INSERT INTO settings (name, value) VALUES ('checked', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )
    .bind(tx.now.to_string())
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}
