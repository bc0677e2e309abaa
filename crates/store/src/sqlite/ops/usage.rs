//! Compute time and model turns.

use trestle_contract::ids::RunId;

use super::run_state::held;
use super::runs;
use crate::error::StoreResult;
use crate::model::{
    ComputeUsage, Metered, RelayTurn, RunTotals, TokenReport, TurnMeter, TurnRow, TurnTokens,
};
use crate::sqlite::Conn;
use crate::sqlite::convert::Columns as _;
use crate::sqlite::writer::Tx;
use crate::store::Change;

const RELAY: i64 = 0;
const REPORTED: i64 = 1;

pub(crate) async fn record_compute(tx: &mut Tx, usage: ComputeUsage) -> StoreResult<()> {
    let run = held(tx, &usage.fence).await?;
    let before: i64 = sqlx::query_scalar(
        "SELECT coalesce(max(seconds), 0) FROM compute_usage WHERE run = ? AND identifier = ?",
    )
    .bind(run.number)
    .bind(&usage.identifier)
    .fetch_one(&mut tx.conn)
    .await?;
    // A report whose answer was lost is sent again with what was used since: the larger one holds.
    let more = usage.seconds - before;
    if more <= 0 {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO compute_usage (run, identifier, seconds, at) VALUES (?, ?, ?, ?)
         ON CONFLICT (run, identifier) DO UPDATE SET seconds = excluded.seconds, at = excluded.at",
    )
    .bind(run.number)
    .bind(&usage.identifier)
    .bind(usage.seconds)
    .bind(tx.now)
    .execute(&mut tx.conn)
    .await?;
    sqlx::query("UPDATE runs SET runtime_seconds = runtime_seconds + ? WHERE number = ?")
        .bind(more)
        .bind(run.number)
        .execute(&mut tx.conn)
        .await?;
    tx.changed(Change::Run(run.id));
    Ok(())
}

struct Turn<'a> {
    source: i64,
    key: &'a str,
    model: Option<&'a str>,
    tokens: TurnTokens,
    cost_micros: i64,
    estimated: bool,
    counted: bool,
    request_digest: Option<&'a [u8]>,
}

/// Writes a turn's row and counts it; says whether it was new.
async fn insert_turn(tx: &mut Tx, run: i64, turn: Turn<'_>) -> StoreResult<bool> {
    let inserted = sqlx::query(
        "INSERT INTO turns (run, source, key, model, input, output, cached_read, cached_write, cost_micros, estimated,
            counted, at, request_digest)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(run)
    .bind(turn.source)
    .bind(turn.key)
    .bind(turn.model)
    .bind(turn.tokens.input)
    .bind(turn.tokens.output)
    .bind(turn.tokens.cached_read)
    .bind(turn.tokens.cached_write)
    .bind(turn.cost_micros)
    .bind(turn.estimated)
    .bind(turn.counted)
    .bind(tx.now)
    .bind(turn.request_digest)
    .execute(&mut tx.conn)
    .await?
    .rows_affected()
        > 0;
    if inserted && turn.counted {
        count(tx, run, turn.tokens, turn.cost_micros).await?;
    }
    Ok(inserted)
}

pub(crate) async fn record_tokens(tx: &mut Tx, report: TokenReport) -> StoreResult<()> {
    let run = held(tx, &report.fence).await?;
    let turn = Turn {
        source: REPORTED,
        key: &report.identifier,
        model: report.model.as_deref(),
        tokens: report.tokens,
        cost_micros: report.cost_micros,
        estimated: false,
        counted: report.counted,
        request_digest: None,
    };
    if insert_turn(tx, run.number, turn).await? || raise_report(tx, run.number, &report).await? {
        tx.changed(Change::Run(run.id));
    }
    Ok(())
}

/// A report that is there already. One that was sent again may tell more than the first: of each number the larger
/// holds, and the run's totals grow by the difference. Says whether anything grew.
async fn raise_report(tx: &mut Tx, run: i64, report: &TokenReport) -> StoreResult<bool> {
    let row = sqlx::query("SELECT * FROM turns WHERE run = ? AND source = ? AND key = ?")
        .bind(run)
        .bind(REPORTED)
        .bind(&report.identifier)
        .fetch_one(&mut tx.conn)
        .await?;
    let known = turn_row(&row)?;
    let more = |told: i64, known: i64| (told - known).max(0);
    let grown = TurnTokens {
        input: more(report.tokens.input, known.tokens.input),
        output: more(report.tokens.output, known.tokens.output),
        cached_read: more(report.tokens.cached_read, known.tokens.cached_read),
        cached_write: more(report.tokens.cached_write, known.tokens.cached_write),
    };
    let cost = more(report.cost_micros, known.cost_micros);
    if grown == TurnTokens::default() && cost == 0 {
        return Ok(false);
    }
    sqlx::query(
        "UPDATE turns SET input = input + ?, output = output + ?, cached_read = cached_read + ?,
            cached_write = cached_write + ?, cost_micros = cost_micros + ? WHERE run = ? AND source = ? AND key = ?",
    )
    .bind(grown.input)
    .bind(grown.output)
    .bind(grown.cached_read)
    .bind(grown.cached_write)
    .bind(cost)
    .bind(run)
    .bind(REPORTED)
    .bind(&report.identifier)
    .execute(&mut tx.conn)
    .await?;
    if known.counted {
        count(tx, run, grown, cost).await?;
    }
    Ok(true)
}

async fn count(tx: &mut Tx, run: i64, tokens: TurnTokens, cost_micros: i64) -> StoreResult<()> {
    sqlx::query(
        "UPDATE runs SET tokens_in = tokens_in + ?, tokens_out = tokens_out + ?,
            cached_tokens_in = cached_tokens_in + ?, cached_write_tokens = cached_write_tokens + ?,
            cost_micros = cost_micros + ? WHERE number = ?",
    )
    .bind(tokens.input)
    .bind(tokens.output)
    .bind(tokens.cached_read)
    .bind(tokens.cached_write)
    .bind(cost_micros)
    .bind(run)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

pub(crate) async fn meter_turn(tx: &mut Tx, meter: TurnMeter) -> StoreResult<Metered> {
    let run = super::run_state::RunState::by_id(&mut tx.conn, &meter.run).await?;
    let turn = Turn {
        source: RELAY,
        key: &meter.turn_key,
        model: Some(&meter.model),
        tokens: meter.tokens,
        cost_micros: meter.cost_micros,
        estimated: meter.estimated,
        counted: true,
        request_digest: Some(&meter.request_digest),
    };
    let recorded = insert_turn(tx, run.number, turn).await?;
    // A run that has ended has nobody who could ask for the result again.
    if recorded
        && !run.status.is_terminal()
        && let Some(result) = &meter.result
    {
        sqlx::query("INSERT INTO turn_results (run, key, sealed) VALUES (?, ?, ?)")
            .bind(run.number)
            .bind(&meter.turn_key)
            .bind(result)
            .execute(&mut tx.conn)
            .await?;
    }
    if recorded {
        tx.changed(Change::Run(run.id));
    }
    Ok(Metered { recorded, totals: totals(&mut tx.conn, run.number).await? })
}

async fn totals(conn: &mut Conn, run: i64) -> StoreResult<RunTotals> {
    let row = sqlx::query("SELECT * FROM runs WHERE number = ?").bind(run).fetch_one(conn).await?;
    runs::totals(&row)
}

fn turn_row(row: &sqlx::sqlite::SqliteRow) -> StoreResult<TurnRow> {
    Ok(TurnRow {
        key: row.text("key")?,
        model: row.text_if_any("model")?,
        tokens: TurnTokens {
            input: row.number("input")?,
            output: row.number("output")?,
            cached_read: row.number("cached_read")?,
            cached_write: row.number("cached_write")?,
        },
        cost_micros: row.number("cost_micros")?,
        estimated: row.flag("estimated")?,
        counted: row.flag("counted")?,
        at: row.number("at")?,
    })
}

pub(crate) async fn list_turns(conn: &mut Conn, run: &RunId) -> StoreResult<Vec<TurnRow>> {
    let run = runs::number(conn, run).await?;
    let rows = sqlx::query("SELECT * FROM turns WHERE run = ? ORDER BY at, source, key")
        .bind(run)
        .fetch_all(conn)
        .await?;
    rows.iter().map(turn_row).collect()
}

pub(crate) async fn relay_turn(conn: &mut Conn, run: &RunId, key: &str) -> StoreResult<Option<RelayTurn>> {
    let run = runs::number(conn, run).await?;
    let row = sqlx::query(
        "SELECT t.*, s.sealed FROM turns t LEFT JOIN turn_results s ON s.run = t.run AND s.key = t.key
         WHERE t.run = ? AND t.source = ? AND t.key = ?",
    )
    .bind(run)
    .bind(RELAY)
    .bind(key)
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let request_digest = row.bytes("request_digest")?.try_into().map_err(|_| {
        crate::error::StoreError::Corrupt("the digest of a metered request has the wrong length".into())
    })?;
    Ok(Some(RelayTurn { request_digest, result: row.bytes_if_any("sealed")?, row: turn_row(&row)? }))
}
