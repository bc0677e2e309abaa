//! Event frames: appending and reading up to the watermark.

use std::sync::LazyLock;

use futures_util::TryStreamExt as _;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use trestle_contract::bounds::{EpochMs, NonEmptyString, Positive};
use trestle_contract::event::{Cursor, Envelope, Event, EventBody, EventError, EventFrame, RunStatus};
use trestle_contract::ids::RunId;
use trestle_domain::{Call, CursorAllocator, Delivery, Stamp, Visibility, Watermark};

use super::run_state::{RunState, admitted};
use super::runs;
use crate::error::{StoreError, StoreResult};
use crate::model::{EventPage, RunFailure, TelemetryBatch};
use crate::sqlite::Conn;
use crate::sqlite::convert::{Columns as _, signed};
use crate::sqlite::writer::Tx;
use crate::store::Change;

/// Bytes of JSON after which a page ends, whatever its limit.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

const INSERT: &str =
    "INSERT INTO events (run, cursor, in_order, received_at, kind, json) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING";

/// Frames that one statement stores: a talkative program sends thousands, and each statement is a way to
/// the thread of the database and back.
const TOGETHER: usize = 64;

static INSERT_TOGETHER: LazyLock<String> = LazyLock::new(|| {
    let (head, tail) = INSERT.split_once(" VALUES (?, ?, ?, ?, ?, ?)").unwrap_or((INSERT, ""));
    format!("{head} VALUES {}{tail}", ["(?, ?, ?, ?, ?, ?)"; TOGETHER].join(", "))
});

pub(crate) const LAST_CURSOR: &str = "SELECT coalesce(max(cursor), 0) FROM events WHERE run = ?";

pub(crate) async fn last_cursor(conn: &mut Conn, run: i64) -> StoreResult<u64> {
    let cursor: i64 = sqlx::query_scalar(LAST_CURSOR).bind(run).fetch_one(conn).await?;
    u64::try_from(cursor).map_err(|_| StoreError::Corrupt(format!("cursor {cursor}")))
}

/// Writes a status frame of the server.
#[expect(clippy::too_many_arguments, reason = "one row, written from three places")]
pub(crate) async fn insert_status(
    tx: &mut Tx,
    run: i64,
    id: &str,
    cursor: u64,
    seq: u64,
    status: RunStatus,
    error: Option<&RunFailure>,
    in_order: bool,
) -> StoreResult<()> {
    let error = error.map(|error| EventError {
        code: error.code.clone(),
        message: error.message.clone(),
        hint: error.hint.clone(),
    });
    insert_own(tx, run, id, cursor, seq, EventBody::RunStatus { status, error }, in_order).await
}

/// Writes a frame of the server about the run itself.
pub(crate) async fn insert_own(
    tx: &mut Tx,
    run: i64,
    id: &str,
    cursor: u64,
    seq: u64,
    body: EventBody,
    in_order: bool,
) -> StoreResult<()> {
    let turn = NonEmptyString::new(id).map_err(|error| invalid(&error))?;
    insert_stamped(tx, run, id, turn, Stamp { cursor, seq }, body, in_order).await
}

/// Writes a frame of the server that ends something which a process of the run began.
pub(crate) async fn insert_closer(
    tx: &mut Tx,
    run: &RunState,
    turn: NonEmptyString,
    stamp: Stamp,
    body: EventBody,
) -> StoreResult<()> {
    insert_stamped(tx, run.number, run.id.as_str(), turn, stamp, body, true).await
}

fn invalid(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Invalid(error.to_string())
}

async fn insert_stamped(
    tx: &mut Tx,
    run: i64,
    id: &str,
    turn_id: NonEmptyString,
    stamp: Stamp,
    body: EventBody,
    in_order: bool,
) -> StoreResult<()> {
    let now = EpochMs::saturating_signed(tx.now);
    let event = Event {
        envelope: Envelope {
            run_id: NonEmptyString::new(id).map_err(|error| invalid(&error))?,
            turn_id,
            seq: Positive::new(stamp.seq).map_err(|error| invalid(&error))?,
            t: latest_time(&mut tx.conn, run, stamp.cursor).await?.map_or(now, |before| before.max(now)),
        },
        body,
    };
    let cursor = Cursor::new(stamp.cursor).map_err(|error| invalid(&error))?;
    let frame = EventFrame::of(cursor, &event);
    insert(tx, run, &frame, in_order).await?;
    Ok(())
}

/// The time of the frame before a cursor. A process stamps by its own clock, which may be ahead of this one's; times of
/// a run never go back.
async fn latest_time(conn: &mut Conn, run: i64, cursor: u64) -> StoreResult<Option<EpochMs>> {
    let json: Option<String> =
        sqlx::query_scalar(FRAME_BEFORE).bind(run).bind(signed(cursor)?).fetch_optional(conn).await?;
    Ok(json.and_then(|json| Event::parse(&json).ok()).map(|event| event.envelope.t))
}

pub(crate) const FRAME_BEFORE: &str =
    "SELECT json FROM events WHERE run = ? AND cursor < ? ORDER BY cursor DESC LIMIT 1";

async fn insert(tx: &mut Tx, run: i64, frame: &EventFrame, in_order: bool) -> StoreResult<u64> {
    let insert = bind(sqlx::query(INSERT), tx.now, run, frame, in_order)?;
    Ok(insert.execute(&mut tx.conn).await?.rows_affected())
}

fn bind<'q>(
    insert: Query<'q, Sqlite, SqliteArguments>,
    now: i64,
    run: i64,
    frame: &'q EventFrame,
    in_order: bool,
) -> StoreResult<Query<'q, Sqlite, SqliteArguments>> {
    let insert = insert.bind(run).bind(signed(frame.cursor.get())?).bind(in_order).bind(now);
    Ok(insert.bind(&*frame.kind).bind(&*frame.json))
}

/// Announces a new status in the block after everything stored. When frames of the present session
/// may still be on their way (`in_order` is false), also after the block in which it starts: maybe
/// nothing of it has arrived yet.
pub(crate) async fn append_status(
    tx: &mut Tx,
    run: &RunState,
    status: RunStatus,
    error: Option<&RunFailure>,
    in_order: bool,
) -> StoreResult<u64> {
    let mut highest = last_cursor(&mut tx.conn, run.number).await?;
    if !in_order {
        highest = highest.max(CursorAllocator::resume_after(run.session_base).next().cursor);
    }
    let stamp = trestle_domain::terminal_cursor(highest);
    insert_status(tx, run.number, run.id.as_str(), stamp.cursor, stamp.seq, status, error, in_order).await?;
    Ok(stamp.cursor)
}

pub(crate) async fn append(tx: &mut Tx, batch: TelemetryBatch) -> StoreResult<u64> {
    let (run, _) = admitted(tx, &batch.fence, Call::Telemetry).await?;
    let mut frames = batch.frames;
    frames.sort_by_key(|frame| frame.cursor);
    let first_of_session = CursorAllocator::resume_after(run.session_base).next().cursor;
    // What precedes the first frame of a batch may be in a batch that is still on its way. The others
    // follow their neighbour, and a session's first frame follows what was stored before.
    let in_order = |index: usize, frame: &EventFrame| {
        run.ordered_telemetry || index > 0 || frame.cursor.get() == first_of_session
    };
    let mut stored = 0;
    let (together, rest) = frames.as_chunks::<TOGETHER>();
    for (number, chunk) in together.iter().enumerate() {
        let first = number * TOGETHER;
        let mut insert = sqlx::query(INSERT_TOGETHER.as_str());
        for (index, frame) in chunk.iter().enumerate() {
            insert = bind(insert, tx.now, run.number, frame, in_order(first + index, frame))?;
        }
        stored += insert.execute(&mut tx.conn).await?.rows_affected();
    }
    for (index, frame) in rest.iter().enumerate() {
        let in_order = in_order(together.len() * TOGETHER + index, frame);
        stored += insert(tx, run.number, frame, in_order).await?;
    }
    if stored > 0 {
        tx.changed(Change::Run(run.id));
    }
    Ok(stored)
}

pub(crate) const READ: &str = "
    SELECT cursor, in_order, received_at, kind, json FROM events WHERE run = ? AND cursor > ? ORDER BY cursor LIMIT ?";

/// Where a reader stands: the last stored frame at or before its cursor.
pub(crate) const BEFORE: &str = "SELECT coalesce(max(cursor), 0) FROM events WHERE run = ? AND cursor <= ?";

pub(crate) async fn read(
    conn: &mut Conn,
    id: &RunId,
    after: u64,
    limit: u32,
    now: i64,
) -> StoreResult<EventPage> {
    let row = sqlx::query("SELECT number, terminal_cursor FROM runs WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(&mut *conn)
        .await?
        .ok_or(StoreError::NotFound(crate::error::Entity::Run))?;
    let run = row.number("number")?;
    let terminal = row.number_if_any("terminal_cursor")?;
    let after_column = signed(after).unwrap_or(i64::MAX);
    let before: i64 = sqlx::query_scalar(BEFORE).bind(run).bind(after_column).fetch_one(&mut *conn).await?;
    let mut mark = Watermark::at(u64::try_from(before).unwrap_or(0));
    let mut page = EventPage { resume_after: after, ..EventPage::default() };
    let limit = limit.max(1);
    let mut bytes = 0;
    let mut rows =
        sqlx::query(READ).bind(run).bind(after_column).bind(i64::from(limit) + 1).fetch(&mut *conn);
    while let Some(row) = rows.try_next().await? {
        if page.frames.len() >= limit as usize || bytes >= PAGE_BYTES {
            page.more = true;
            break;
        }
        let cursor = row.unsigned("cursor")?;
        let delivery = if row.flag("in_order")? { Delivery::InOrder } else { Delivery::AnyOrder };
        match mark.offer(cursor, row.number("received_at")?, delivery, now) {
            Visibility::Shown => {}
            Visibility::Until(at) => {
                page.held_until = Some(at);
                break;
            }
        }
        let json = row.text("json")?;
        bytes += json.len();
        page.resume_after = cursor;
        page.frames.push(EventFrame {
            cursor: Cursor::new(cursor).map_err(|error| StoreError::Corrupt(error.to_string()))?,
            kind: row.text("kind")?.into(),
            json: json.into(),
        });
    }
    let reached = terminal.is_some_and(|terminal| signed(page.resume_after).is_ok_and(|at| at >= terminal));
    page.done = reached && !page.more && page.held_until.is_none();
    Ok(page)
}

pub(crate) async fn last_cursor_of(conn: &mut Conn, id: &RunId) -> StoreResult<u64> {
    let run = runs::number(conn, id).await?;
    last_cursor(conn, run).await
}
