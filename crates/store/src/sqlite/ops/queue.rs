//! Runs that wait for a runner, and the offers made of them.
//!
//! Entries with the same pool and the same label set stand in one line. A runner looks only at the
//! heads of the lines whose labels it has, so an offer costs the same however long the lines are.

use std::collections::{BTreeMap, BTreeSet};

use trestle_contract::ids::{AssignmentId, RunnerId};

use super::runners;
use super::settings;
use crate::error::{StoreError, StoreResult};
use crate::model::{Offer, RunnerRow};
use crate::sqlite::Conn;
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;
use crate::store::Change;

/// Heads of a line that are looked at when the first ones are not for this runner.
const LOOK: i64 = 32;

pub(crate) async fn enqueue(tx: &mut Tx, run: i64, pool: &str, labels: &str) -> StoreResult<()> {
    let assignment = tx.fresh_id();
    sqlx::query("INSERT INTO queue (run, assignment, pool, labels) VALUES (?, ?, ?, ?)")
        .bind(run)
        .bind(assignment)
        .bind(pool)
        .bind(labels)
        .execute(&mut tx.conn)
        .await?;
    tx.changed(Change::Queue { pool: pool.to_owned() });
    Ok(())
}

/// The next line of a pool, in the order of label sets: a walk over the borders of an index.
pub(crate) const NEXT_LINE: &str =
    "SELECT labels FROM queue WHERE pool = ? AND labels > ? ORDER BY labels LIMIT 1";

async fn lines(conn: &mut Conn, pool: &str) -> StoreResult<Vec<(String, BTreeSet<String>)>> {
    let mut lines = Vec::new();
    let mut last = String::new();
    loop {
        let next: Option<String> =
            sqlx::query_scalar(NEXT_LINE).bind(pool).bind(&last).fetch_optional(&mut *conn).await?;
        let Some(next) = next else { return Ok(lines) };
        let set = serde_json::from_str(&next).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        lines.push((next.clone(), set));
        last = next;
    }
}

/// Entries of a line that were offered and not claimed in time.
pub(crate) const LAPSED_OFFERS: &str = "
    SELECT q.id, q.run, coalesce(l.count, 0) AS losses
    FROM queue q LEFT JOIN lost_attempts l ON l.run = q.run AND l.runner = ?
    WHERE q.pool = ? AND q.labels = ? AND q.offered_until > 0 AND q.offered_until <= ?
    ORDER BY q.offered_until, q.id LIMIT ?";

/// Entries of a line that were never offered, oldest first.
pub(crate) const FRESH_ENTRIES: &str = "
    SELECT q.id, q.run, coalesce(l.count, 0) AS losses
    FROM queue q LEFT JOIN lost_attempts l ON l.run = q.run AND l.runner = ?
    WHERE q.pool = ? AND q.labels = ? AND q.offered_until = 0
    ORDER BY q.offered_until, q.id LIMIT ?";

/// What a line has for a runner.
enum Head {
    /// This entry.
    Entry(i64),
    /// Nothing for this runner, maybe something for others.
    NotForThis,
    /// Nothing for anybody.
    Dry,
}

/// The entry of a line that this runner should get.
async fn head(tx: &mut Tx, runner: &RunnerRow, labels: &str, set: &BTreeSet<String>) -> StoreResult<Head> {
    let lapsed = sqlx::query(LAPSED_OFFERS)
        .bind(runner.id.as_str())
        .bind(&runner.pool)
        .bind(labels)
        .bind(tx.now)
        .bind(LOOK)
        .fetch_all(&mut tx.conn)
        .await?;
    let fresh = sqlx::query(FRESH_ENTRIES)
        .bind(runner.id.as_str())
        .bind(&runner.pool)
        .bind(labels)
        .bind(LOOK)
        .fetch_all(&mut tx.conn)
        .await?;
    if lapsed.is_empty() && fresh.is_empty() {
        return Ok(Head::Dry);
    }
    let mut heads = Vec::with_capacity(2);
    for rows in [&lapsed, &fresh] {
        for row in rows {
            let losses = row.small("losses")?;
            // Looks for other runners only when it matters.
            if trestle_domain::may_offer(losses, true)
                || trestle_domain::may_offer(
                    losses,
                    another_could(tx, runner, row.number("run")?, set).await?,
                )
            {
                heads.push(row.number("id")?);
                break;
            }
        }
    }
    Ok(heads.into_iter().min().map_or(Head::NotForThis, Head::Entry))
}

/// Whether another live runner of the pool has the labels and has not lost the run as often.
async fn another_could(
    tx: &mut Tx,
    runner: &RunnerRow,
    run: i64,
    set: &BTreeSet<String>,
) -> StoreResult<bool> {
    let since = tx.now - tx.options.runner_live_ms;
    let rows = sqlx::query(
        "SELECT r.labels, coalesce(l.count, 0) AS losses
         FROM runners r JOIN runner_seen s ON s.runner = r.id
         LEFT JOIN lost_attempts l ON l.runner = r.id AND l.run = ?
         WHERE r.pool = ? AND r.removed_at IS NULL AND r.drain_reason IS NULL AND r.id <> ? AND s.at >= ?",
    )
    .bind(run)
    .bind(&runner.pool_id)
    .bind(runner.id.as_str())
    .bind(since)
    .fetch_all(&mut tx.conn)
    .await?;
    for row in &rows {
        let labels: BTreeSet<String> = row.strings("labels")?.into_iter().collect();
        if set.is_subset(&labels) && trestle_domain::may_offer(row.small("losses")?, true) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) async fn make_offers(tx: &mut Tx, waiting: &[RunnerId]) -> StoreResult<Vec<Offer>> {
    let organisation = settings::organisation(&mut tx.conn).await?.id;
    let mut lines_of: BTreeMap<String, Vec<(String, BTreeSet<String>)>> = BTreeMap::new();
    let mut offers = Vec::new();
    for id in waiting {
        let runner = match runners::runner(&mut tx.conn, id).await {
            Ok(runner) if runner.drain_reason.is_none() => runner,
            Ok(_) | Err(StoreError::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        if !lines_of.contains_key(&runner.pool) {
            let found = lines(&mut tx.conn, &runner.pool).await?;
            lines_of.insert(runner.pool.clone(), found);
        }
        let owned: BTreeSet<String> = runner.labels.iter().cloned().collect();
        let mut best = None;
        let mut dry = Vec::new();
        for (labels, set) in lines_of.get(&runner.pool).into_iter().flatten() {
            if set.is_subset(&owned) {
                match head(tx, &runner, labels, set).await? {
                    Head::Entry(entry) => best = Some(best.map_or(entry, |best: i64| best.min(entry))),
                    Head::NotForThis => {}
                    Head::Dry => dry.push(labels.clone()),
                }
            }
        }
        // The next runners need not look there again.
        if let Some(lines) = lines_of.get_mut(&runner.pool) {
            lines.retain(|(labels, _)| !dry.contains(labels));
        }
        if let Some(entry) = best {
            offers.push(offer(tx, id, entry, &organisation).await?);
        }
    }
    Ok(offers)
}

async fn offer(tx: &mut Tx, runner: &RunnerId, entry: i64, organisation: &str) -> StoreResult<Offer> {
    sqlx::query("UPDATE queue SET offered_until = ?, offered_to = ? WHERE id = ?")
        .bind(tx.now + tx.options.offer_ms)
        .bind(runner.as_str())
        .bind(entry)
        .execute(&mut tx.conn)
        .await?;
    let row = sqlx::query(
        "SELECT q.assignment, r.id, r.runs_on, coalesce(r.pending_since, r.created_at) AS queued_at
         FROM queue q JOIN runs r ON r.number = q.run WHERE q.id = ?",
    )
    .bind(entry)
    .fetch_one(&mut tx.conn)
    .await?;
    Ok(Offer {
        runner: runner.clone(),
        assignment: row.id::<AssignmentId>("assignment")?,
        run: row.id("id")?,
        organisation: organisation.to_owned(),
        runs_on: row.json("runs_on")?,
        queued_at: row.number("queued_at")?,
    })
}

/// An entry that is not offered to somebody at the moment.
pub(crate) const ANY_IN_POOL: &str =
    "SELECT EXISTS (SELECT 1 FROM queue WHERE pool = ? AND offered_until <= ?)";

/// Whether any of these runners' pools has something to offer: keeps idle polls away from the writer.
pub(crate) async fn anything_for(conn: &mut Conn, waiting: &[RunnerId], now: i64) -> StoreResult<bool> {
    let mut seen = BTreeSet::new();
    for id in waiting {
        let pool: Option<String> =
            sqlx::query_scalar("SELECT p.name FROM runners r JOIN pools p ON p.id = r.pool WHERE r.id = ?")
                .bind(id.as_str())
                .fetch_optional(&mut *conn)
                .await?;
        if let Some(pool) = pool
            && seen.insert(pool.clone())
            && sqlx::query_scalar::<_, bool>(ANY_IN_POOL).bind(&pool).bind(now).fetch_one(&mut *conn).await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) const NEXT_OFFER: &str =
    "SELECT min(offered_until) FROM queue WHERE pool = ? AND offered_until > 0";

pub(crate) async fn next_offer_at(conn: &mut Conn, pool: &str) -> StoreResult<Option<i64>> {
    Ok(sqlx::query_scalar(NEXT_OFFER).bind(pool).fetch_one(conn).await?)
}
