//! Event lists and live streams.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trestle_store::Store as _;

use crate::world::{Answer, PATIENCE, Session, World, frame, line};

/// A reader of a stream, by the grammar of event streams.
struct Reader {
    response: Response,
    text: String,
}

#[derive(Debug, Default)]
struct Block {
    id: Option<u64>,
    event: Option<String>,
    data: Option<String>,
    comment: bool,
}

impl Reader {
    async fn open(world: &World, run: &str, query: &str, after: Option<u64>) -> Self {
        let mut request = world.request(Method::GET, &format!("/v1/runs/{run}/stream{query}"), &world.admin);
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()["cache-control"], "no-cache, no-transform");
        assert!(!response.headers().contains_key("content-encoding"));
        Self { response, text: String::new() }
    }

    /// The next block; none at the end.
    async fn next(&mut self) -> Option<Block> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                return Some(parse(&block));
            }
            // A connection that was cut is an end, too.
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.unwrap();
            let chunk = chunk.ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            assert!(!self.text.contains('\r'));
        }
    }

    /// The next block with an event.
    async fn event(&mut self) -> Option<(u64, Value)> {
        loop {
            let block = self.next().await?;
            if let (Some(id), Some(data)) = (block.id, block.data) {
                let event: Value = serde_json::from_str(&data).unwrap();
                assert_eq!(block.event.as_deref(), event["kind"].as_str());
                return Some((id, event));
            }
        }
    }

    /// Everything up to the end.
    async fn rest(mut self) -> Vec<(u64, Value)> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        events
    }
}

fn parse(block: &str) -> Block {
    let mut parsed = Block::default();
    for line in block.lines() {
        if let Some(id) = line.strip_prefix("id: ") {
            parsed.id = Some(id.parse().unwrap());
        } else if let Some(event) = line.strip_prefix("event: ") {
            parsed.event = Some(event.to_owned());
        } else if let Some(data) = line.strip_prefix("data: ") {
            parsed.data = Some(data.to_owned());
        } else if line.starts_with(':') {
            parsed.comment = true;
        }
    }
    parsed
}

/// A session whose process promises its telemetry in order.
async fn ordered(world: &World) -> Session {
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    world.trigger(&workflow, Value::Null).await;
    let session = world.leased(&runner).await;
    assert_eq!(world.claim_run(&session, Some("process")).await.status, 201);
    session
}

async fn list(world: &World, run: &str, query: &str) -> Answer {
    world.api(Method::GET, &format!("/v1/runs/{run}/events{query}"), None).await
}

fn cursors(answer: &Answer) -> Vec<u64> {
    answer.body["events"].as_array().unwrap().iter().map(|row| row["cursor"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn b17_81_a_stream_forbids_buffering_replays_goes_live_and_closes_at_the_end() {
    let world = World::start().await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    world.send_frames(&session, &[line(&run, 1_000_001, "before")]).await;
    let mut reader = Reader::open(&world, &run, "", None).await;
    assert_eq!(reader.text, "");
    let mut seen = Vec::new();
    while let Some((cursor, event)) = reader.event().await {
        seen.push(cursor);
        match event["text"].as_str() {
            Some("before") => {
                world.send_frames(&session, &[line(&run, 1_000_002, "live")]).await;
            }
            Some("live") => {
                assert_eq!(world.finalize(&session, json!(1)).await.status, 204);
            }
            _ => {}
        }
        if event["status"] == "completed" {
            assert!(reader.event().await.is_none());
            break;
        }
    }
    assert!(seen.is_sorted_by(|one, other| one < other), "{seen:?}");
    assert_eq!(seen[0], 1);
    let listed = list(&world, &run, "").await;
    assert_eq!(cursors(&listed), seen);
    assert_eq!(listed.body["done"], true);
    // A stream of an ended run is its whole log, and closes.
    let again = Reader::open(&world, &run, "", None).await.rest().await;
    assert_eq!(again.iter().map(|(cursor, _)| *cursor).collect::<Vec<_>>(), seen);
    assert!(Reader::open(&world, &run, "", seen.last().copied()).await.rest().await.is_empty());
}

#[tokio::test]
async fn ten_thousand_events_appended_during_replay_come_once_and_in_order() {
    let world = World::start().await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    let count = 10_000_u64;
    let append = async {
        for start in (0..count).step_by(100) {
            let frames: Vec<String> = (start..start + 100)
                .map(|index| line(&run, 1_000_001 + index, &format!("line {index}")))
                .collect();
            assert_eq!(world.send_frames(&session, &frames).await.status, 204);
        }
        assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    };
    // One reader stays, one drops its connection again and again and resumes.
    let steady = async {
        let mut reader = Reader::open(&world, &run, "", None).await;
        let mut seen = Vec::new();
        while let Some((cursor, _)) = reader.event().await {
            seen.push(cursor);
        }
        seen
    };
    let jumpy = async {
        let mut seen: Vec<u64> = Vec::new();
        let mut patience = 1;
        loop {
            let mut reader = Reader::open(&world, &run, "", seen.last().copied()).await;
            let mut read = 0;
            let ended = loop {
                let Some((cursor, event)) = reader.event().await else { break true };
                seen.push(cursor);
                read += 1;
                if event["kind"] == "run_status" && event["status"] == "completed" {
                    break true;
                }
                if read == patience {
                    break false;
                }
            };
            if ended {
                return seen;
            }
            patience = patience * 2 + 1;
            if patience > 1000 {
                patience = 50;
            }
        }
    };
    let ((), steady, jumpy) = tokio::join!(append, steady, jumpy);
    let lines = |seen: &[u64]| -> Vec<u64> {
        seen.iter().copied().filter(|cursor| (1_000_001..1_000_001 + count).contains(cursor)).collect()
    };
    let expected: Vec<u64> = (1_000_001..1_000_001 + count).collect();
    assert!(lines(&steady) == expected, "{} of {count}", lines(&steady).len());
    assert!(jumpy == steady, "{} and {}", jumpy.len(), steady.len());
    let listed = list(&world, &run, "").await;
    assert!(cursors(&listed) == steady);
}

#[tokio::test]
async fn channels_filter_and_still_move_the_resume_point() {
    let world = World::start().await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    let frames = [
        frame(&run, 1_000_001, json!({ "kind": "phase", "name": "p", "id": "1" })),
        line(&run, 1_000_002, "a"),
        line(&run, 1_000_003, "b"),
    ];
    world.send_frames(&session, &frames).await;
    let mut reader = Reader::open(&world, &run, "?channels=phase,output", None).await;
    let (cursor, event) = reader.event().await.unwrap();
    assert_eq!((cursor, event["kind"].as_str()), (1_000_001, Some("phase")));
    // A block without data moves the reader past what it does not see.
    let advanced = loop {
        let block = reader.next().await.unwrap();
        if let Some(id) = block.id {
            assert!(block.data.is_none() && block.event.is_none());
            break id;
        }
    };
    assert_eq!(advanced, 1_000_003);
    world.send_frames(&session, &[frame(&run, 1_000_004, json!({ "kind": "output", "value": [1] }))]).await;
    let (cursor, _) = reader.event().await.unwrap();
    assert_eq!(cursor, 1_000_004);

    let listed = list(&world, &run, "?channels=log&since=1000002").await;
    assert_eq!(cursors(&listed), [1_000_003]);
    assert_eq!(listed.body["done"], false);
    assert_eq!(listed.body["resumeAfter"], 1_000_004);
    let limited = list(&world, &run, "?limit=2").await;
    assert_eq!(cursors(&limited).len(), 2);
    let resume = limited.body["resumeAfter"].as_u64().unwrap();
    let rest = list(&world, &run, &format!("?since={resume}")).await;
    let whole = list(&world, &run, "").await;
    assert_eq!([cursors(&limited), cursors(&rest)].concat(), cursors(&whole));
}

#[tokio::test]
async fn what_a_stream_cannot_take_is_refused_before_it_begins() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let run = world.trigger(&workflow, Value::Null).await;
    for query in ["?channels=", "?channels=log,", "?channels=LOG", "?since=-1", "?since=1.5", "?since=x"] {
        for kind in ["events", "stream"] {
            let answer = world.api(Method::GET, &format!("/v1/runs/{run}/{kind}{query}"), None).await;
            assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"), "{query}");
            assert!(!answer.hint().is_empty());
        }
    }
    for id in ["", "x", "-3", "99999999999999999999999"] {
        let request = world
            .request(Method::GET, &format!("/v1/runs/{run}/stream"), &world.admin)
            .header("last-event-id", id);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.status, 400, "{id}");
    }
}

/// Peers lost streams to intermediaries that cut what is idle (B5, B8-50).
#[tokio::test]
async fn b8_50_an_idle_stream_is_kept_alive_by_comments() {
    let world = World::start_with(|config| config.intervals.keep_alive_ms = 20).await;
    let session = ordered(&world).await;
    let mut reader = Reader::open(&world, &session.run, "", None).await;
    let mut comments = 0;
    while comments < 3 {
        if reader.next().await.unwrap().comment {
            comments += 1;
        }
    }
    assert!(trestle_server::Config::default().intervals.keep_alive_ms <= 15_000);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_and_resumes_without_loss() {
    let world = World::start_with(|config| config.intervals.stall_ms = 200).await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    let count = 600_u64;
    let text = "x".repeat(32_000);
    for start in (0..count).step_by(50) {
        let frames: Vec<String> =
            (start..start + 50).map(|index| line(&run, 1_000_001 + index, &text)).collect();
        assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    }
    let mut slow = TcpStream::connect(world.handle.address()).await.unwrap();
    let head = format!(
        "GET /v1/runs/{run}/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        world.admin
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // The first bytes say that the stream is open; then the reader stops until
    // the server has cut it, which its open connections tell.
    let mut read = vec![0; 4096];
    let first = slow.read(&mut read).await.unwrap();
    let cut = async {
        while world.handle.connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.unwrap();
    read.truncate(first);
    let _ = slow.read_to_end(&mut read).await;
    let text = String::from_utf8(read).unwrap();
    let seen: BTreeSet<u64> = text
        .split("\nid: ")
        .skip(1)
        // Only blocks that arrived whole count.
        .filter(|block| block.contains("\n\n"))
        .filter_map(|block| block.split('\n').next()?.parse().ok())
        .collect();
    let last = *seen.last().unwrap();
    assert!(last < 1_000_000 + count, "everything was sent to a reader that took nothing");
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    // This reader, too, may be cut when the machine is busy. It resumes until
    // it has seen the end.
    let mut resumed: Vec<u64> = Vec::new();
    while resumed.last().is_none_or(|cursor| *cursor < 2_000_000) {
        let after = resumed.last().copied().unwrap_or(last);
        let mut reader = Reader::open(&world, &run, "", Some(after)).await;
        while let Some((cursor, _)) = reader.event().await {
            resumed.push(cursor);
        }
    }
    resumed.retain(|cursor| *cursor < 2_000_000);
    assert_eq!(resumed, ((last + 1)..=(1_000_000 + count)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_gap_in_the_order_of_batches_is_waited_for_and_then_shown() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    // The original's process: batches may overtake each other.
    let session = world.session(&workflow, Value::Null).await;
    let run = session.run.clone();
    world.send_frames(&session, &[line(&run, 1_000_001, "one")]).await;
    world.send_frames(&session, &[line(&run, 1_000_003, "three")]).await;
    let mut reader = Reader::open(&world, &run, "?since=2", None).await;
    assert_eq!(reader.event().await.unwrap().0, 1_000_001);
    world.send_frames(&session, &[line(&run, 1_000_002, "two")]).await;
    assert_eq!(reader.event().await.unwrap().0, 1_000_002);
    assert_eq!(reader.event().await.unwrap().0, 1_000_003);
    // A gap that nobody fills does not hold readers for ever.
    world.send_frames(&session, &[line(&run, 1_000_009, "nine")]).await;
    let started = Instant::now();
    assert_eq!(reader.event().await.unwrap().0, 1_000_009);
    assert!(started.elapsed() < Duration::from_secs(8));
}

/// The reference example: two lost attempts, then a good one.
#[tokio::test]
async fn a_run_that_crashed_twice_tells_its_statuses_in_order_and_leaves_nothing_open() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let run = world.trigger(&workflow, Value::Null).await;
    let mut reader = Reader::open(&world, &run, "", None).await;
    let runners = [world.runner().await, world.runner().await, world.runner().await];
    for (attempt, runner) in (1_u64..).zip(&runners) {
        let session = world.leased(runner).await;
        let claimed = world.claim_run(&session, Some("process")).await;
        assert_eq!(claimed.status, 201, "{claimed:?}");
        let base = (claimed.body["lastEventCursor"].as_u64().unwrap() / 1_000_000 + 1) * 1_000_000;
        let stamped = |at: u64, mut body: Value| {
            body["t"] = world.store.now_ms().into();
            frame(&run, base + at, body)
        };
        let frames = [
            stamped(1, json!({ "kind": "run_status", "status": "running" })),
            stamped(2, json!({ "kind": "turn_started", "agentId": "agent-1" })),
            stamped(3, json!({ "kind": "text_start", "blockId": "text-1" })),
        ];
        assert_eq!(world.send_frames(&session, &frames).await.status, 204);
        if attempt == 3 {
            let rest = [
                stamped(4, json!({ "kind": "text_end", "blockId": "text-1" })),
                stamped(5, json!({ "kind": "turn_ended", "agentId": "agent-1", "reason": "complete" })),
            ];
            assert_eq!(world.send_frames(&session, &rest).await.status, 204);
            assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
        } else {
            let body = json!({ "workerId": "w1", "reason": "crashed" });
            assert_eq!(world.control(&session, Method::POST, "release", Some(body)).await.status, 204);
        }
    }
    let mut told = Vec::new();
    let mut open = BTreeSet::new();
    let mut last = (0, 0);
    while let Some((cursor, event)) = reader.event().await {
        let t = event["t"].as_u64().unwrap();
        assert!(cursor > last.0 && t >= last.1, "{event}");
        last = (cursor, t);
        match event["kind"].as_str().unwrap() {
            "run_status" => {
                assert!(open.is_empty(), "{open:?} are open at {event}");
                told.push(event["status"].as_str().unwrap().to_owned());
            }
            "turn_started" | "text_start" => drop(open.insert(event["kind"].as_str().unwrap().to_owned())),
            "turn_ended" => assert!(open.remove("turn_started"), "{event}"),
            "text_end" => assert!(open.remove("text_start"), "{event}"),
            other => assert_ne!(other, "output", "a program that returned nothing has none"),
        }
    }
    assert_eq!(
        told,
        ["queued", "pending", "running", "pending", "running", "pending", "running", "completed"]
    );
}
