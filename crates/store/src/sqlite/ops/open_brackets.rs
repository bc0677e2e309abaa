//! Closing what a lost process left open in its run's events.

use futures_util::TryStreamExt as _;
use trestle_contract::event::Event;
use trestle_domain::{BracketEnd, CursorAllocator, OpenBrackets};

use super::events;
use super::run_state::RunState;
use crate::error::StoreResult;
use crate::sqlite::convert::{Columns as _, signed};
use crate::sqlite::writer::Tx;

/// The frames of a session that open or close something. The condition is that of the index, word for word.
pub(crate) const BRACKETS: &str = "
    SELECT json FROM events WHERE run = ? AND cursor > ? AND kind IN
    ('turn_started', 'turn_ended', 'text_start', 'text_end', 'tool_call_start', 'tool_call_result', 'tool_call_error',
     'compaction_started', 'compaction_ended') ORDER BY cursor";

/// Writes the frames that close what the present session of `run` left open, in a block of their own. To be called when
/// the session can send nothing more.
pub(crate) async fn close(tx: &mut Tx, run: &RunState, end: BracketEnd) -> StoreResult<()> {
    // A session that never came opened nothing, and earlier ones were closed when they were lost.
    if !run.is_claimed() {
        return Ok(());
    }
    let mut open = OpenBrackets::default();
    {
        let mut rows =
            sqlx::query(BRACKETS).bind(run.number).bind(signed(run.session_base)?).fetch(&mut tx.conn);
        while let Some(row) = rows.try_next().await? {
            // Frames were checked when they came; one of a later format opens nothing that is known here.
            if let Ok(event) = Event::parse(&row.text("json")?) {
                open.see(&event);
            }
        }
    }
    let closers = open.closers(end);
    if closers.is_empty() {
        return Ok(());
    }
    let mut cursors = CursorAllocator::resume_after(events::last_cursor(&mut tx.conn, run.number).await?);
    for (turn, body) in closers {
        let stamp = cursors.next();
        events::insert_closer(tx, run, turn, stamp, body).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_names_every_kind_of_bracket() {
        for kind in OpenBrackets::KINDS {
            assert!(BRACKETS.contains(&format!("'{kind}'")), "{kind}");
        }
        assert_eq!(BRACKETS.matches('\'').count(), OpenBrackets::KINDS.len() * 2);
    }
}
