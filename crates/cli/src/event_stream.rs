use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use trestle_contract::error::ErrorCode;
use trestle_contract::event::{Event, EventBody, EventError, RunStatus, parse_lenient};

use crate::client::segment;
use crate::{CliError, Client};

/// Longest block of the stream that is read, in bytes: the largest output and its frame.
const MAX_BLOCK: usize = 80 * 1024 * 1024;
/// Attempts in a row without a new event before following gives up.
const MAX_IDLE_ATTEMPTS: u32 = 8;

/// One event as a follower sees it.
#[derive(Debug)]
pub struct FollowedEvent<'a> {
    /// Its cursor.
    pub cursor: u64,
    /// Its text, as the server sent it.
    pub json: &'a str,
    /// What it says.
    pub event: &'a Event,
}

/// How a followed run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// The terminal status.
    pub status: RunStatus,
    /// Why it failed.
    pub error: Option<EventError>,
}

impl RunEnd {
    /// Exit code of a command that waited for the run.
    #[must_use]
    pub fn exit(&self) -> u8 {
        match self.status {
            RunStatus::Completed => crate::EXIT_COMPLETED,
            RunStatus::Cancelled => crate::EXIT_CANCELLED,
            _ => crate::EXIT_FAILED,
        }
    }
}

/// Shows every event of a run after `cursor` once, in order, until the run has ended; reconnects where the
/// stream broke off.
///
/// # Errors
/// When the run is unknown, the server stays away, or `show` fails.
pub async fn follow(
    client: &Client,
    run: &str,
    mut cursor: u64,
    mut show: impl FnMut(FollowedEvent<'_>) -> Result<(), CliError>,
) -> Result<RunEnd, CliError> {
    let path = format!("/v1/runs/{}/stream", segment(run));
    let mut end = None;
    let mut idle = 0;
    loop {
        let before = cursor;
        let outcome = read_stream(client, &path, &mut cursor, &mut end, &mut show).await;
        match outcome {
            // The server closes the stream of a run that is over, and only then.
            Ok(()) => {
                if let Some(end) = end.take() {
                    return Ok(end);
                }
                if read_snapshot(client, run, &mut cursor, &mut end, &mut show).await?
                    && let Some(end) = end.take()
                {
                    return Ok(end);
                }
            }
            Err(Broken::For(error)) => return Err(error),
            Err(Broken::Connection(error)) => {
                tracing::debug!(%error, "the event stream broke off");
                if idle >= MAX_IDLE_ATTEMPTS {
                    return Err(
                        error.hint(format!("the run goes on; `trestle runs {run} --follow` shows it again"))
                    );
                }
            }
        }
        idle = if cursor > before { 0 } else { idle + 1 };
        tokio::time::sleep(Duration::from_millis(100 << idle.min(5))).await;
    }
}

/// All events of a run after `cursor`; true when no further one can come.
pub(crate) async fn read_snapshot(
    client: &Client,
    run: &str,
    cursor: &mut u64,
    end: &mut Option<RunEnd>,
    show: &mut impl FnMut(FollowedEvent<'_>) -> Result<(), CliError>,
) -> Result<bool, CliError> {
    #[derive(Deserialize)]
    struct Row {
        cursor: u64,
        event: Box<RawValue>,
    }
    #[derive(Deserialize)]
    struct Snapshot {
        events: Vec<Row>,
        #[serde(default)]
        done: bool,
    }
    let snapshot: Snapshot = client.get(&format!("/v1/runs/{}/events?since={cursor}", segment(run))).await?;
    for row in snapshot.events {
        deliver(row.cursor, row.event.get(), cursor, end, show)?;
    }
    Ok(snapshot.done)
}

enum Broken {
    Connection(CliError),
    For(CliError),
}

async fn read_stream(
    client: &Client,
    path: &str,
    cursor: &mut u64,
    end: &mut Option<RunEnd>,
    show: &mut impl FnMut(FollowedEvent<'_>) -> Result<(), CliError>,
) -> Result<(), Broken> {
    let mut answer = client.open_stream(path, *cursor).await.map_err(|error| match error.code {
        ErrorCode::Unavailable | ErrorCode::InternalError | ErrorCode::RateLimit => Broken::Connection(error),
        _ => Broken::For(error),
    })?;
    let mut blocks = Blocks::default();
    loop {
        let chunk = answer.chunk().await.map_err(|error| {
            Broken::Connection(CliError::new(
                ErrorCode::Unavailable,
                format!("the event stream broke off: {}", error.without_url()),
            ))
        })?;
        let Some(chunk) = chunk else { return Ok(()) };
        blocks.push(&chunk);
        while let Some(block) = blocks.next().map_err(Broken::For)? {
            if block.event == "stream_error" {
                let message = serde_json::from_str::<serde_json::Value>(&block.data).ok();
                let message =
                    message.as_ref().and_then(|data| data["message"].as_str()).unwrap_or(&block.data);
                return Err(Broken::Connection(CliError::new(ErrorCode::Unavailable, message)));
            }
            deliver(block.id, &block.data, cursor, end, show).map_err(Broken::For)?;
        }
    }
}

fn deliver(
    at: u64,
    json: &str,
    cursor: &mut u64,
    end: &mut Option<RunEnd>,
    show: &mut impl FnMut(FollowedEvent<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if at <= *cursor {
        return Ok(());
    }
    *cursor = at;
    // An event of a later version is passed over; the cursor moves past it all the same.
    let Ok(event) = parse_lenient(json) else { return Ok(()) };
    show(FollowedEvent { cursor: at, json, event: &event })?;
    if let EventBody::RunStatus { status, error } = &event.body
        && status.is_terminal()
    {
        *end = Some(RunEnd { status: *status, error: error.clone() });
    }
    Ok(())
}

/// One block of a server-sent event stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    id: u64,
    event: String,
    data: String,
}

/// Splits the bytes of a stream into blocks; text is decoded only where a line is whole.
#[derive(Default)]
struct Blocks {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// How far the line after `start` was searched for its end.
    searched: usize,
    open: Block,
    has_data: bool,
}

impl Blocks {
    fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start * 2 >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Block>, CliError> {
        loop {
            let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                if self.buffer.len() - self.start > MAX_BLOCK {
                    return Err(CliError::new(
                        ErrorCode::ProtocolError,
                        "the event stream holds an event larger than 80 MiB",
                    ));
                }
                return Ok(None);
            };
            let end = self.searched + length;
            let line = &self.buffer[self.start..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let text = str::from_utf8(line)
                .map_err(|_| CliError::new(ErrorCode::ProtocolError, "the event stream is not UTF-8"))?;
            let complete = if text.is_empty() {
                true
            } else {
                self.field_of(text.to_owned());
                false
            };
            self.start = end + 1;
            self.searched = self.start;
            if complete {
                let block = std::mem::take(&mut self.open);
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(block));
                }
            }
        }
    }

    fn field_of(&mut self, line: String) {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.open.id = value.parse().unwrap_or(0),
            "event" => value.clone_into(&mut self.open.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_out_the_same_however_the_bytes_are_cut() {
        let stream = "retry: 1\n\n: ping\n\nid: 7\nevent: x\ndata: {\"a\":\"é😀\"}\n\nid:8\r\ndata:one\ndata: two\r\n\r\ndata\n\nid: 9\n\ndata: cut";
        let whole = [
            Block { id: 7, event: "x".into(), data: "{\"a\":\"é😀\"}".into() },
            Block { id: 8, event: String::new(), data: "one\ntwo".into() },
            Block { id: 0, event: String::new(), data: String::new() },
        ];
        for size in 1..=stream.len() {
            let mut blocks = Blocks::default();
            let mut found = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                blocks.push(chunk);
                while let Some(block) = blocks.next().unwrap() {
                    found.push(block);
                }
            }
            assert_eq!(found, whole, "chunks of {size}");
        }
    }

    #[test]
    fn a_snapshot_after_a_stream_shows_nothing_twice() {
        let (mut cursor, mut end, mut shown) = (0, None, Vec::new());
        let event = |status: &str| {
            format!(r#"{{"runId":"r","turnId":"r","seq":1,"t":0,"kind":"run_status","status":"{status}"}}"#)
        };
        for (at, status) in [
            (1, "queued"),
            (1_000_001, "running"),
            (1, "queued"),
            (1_000_001, "running"),
            (2_000_001, "paused"),
            (3_000_001, "failed"),
        ] {
            let mut show = |followed: FollowedEvent<'_>| {
                shown.push(followed.cursor);
                Ok(())
            };
            deliver(at, &event(status), &mut cursor, &mut end, &mut show).unwrap();
        }
        // An event that this version does not know moves the cursor and is not shown.
        assert_eq!(shown, [1, 1_000_001, 3_000_001]);
        assert_eq!((cursor, end.unwrap().exit()), (3_000_001, crate::EXIT_FAILED));
    }
}
