//! Many viewers of one run.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{PATIENCE, Session, World, frame, line};

/// How much memory this process holds, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn ordered(world: &World) -> Session {
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    world.trigger(&workflow, Value::Null).await;
    let session = world.leased(&runner).await;
    assert_eq!(world.claim_run(&session, Some("process")).await.status, 201);
    session
}

/// A stream over a socket of its own, without a client that buffers.
async fn open(world: &World, run: &str, query: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.handle.address()).await.unwrap();
    let head = format!(
        "GET /v1/runs/{run}/stream{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        world.admin
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The cursors of a stream's blocks that carry data. Bytes of the chunked encoding fall between lines.
fn cursors(text: &[u8]) -> Vec<u64> {
    let text = std::str::from_utf8(text).unwrap();
    let mut cursors = Vec::new();
    let mut id: Option<u64> = None;
    for line in text.split('\n') {
        if let Some(found) = line.strip_prefix("id: ") {
            id = found.parse().ok();
        } else if line.starts_with("data: ") {
            cursors.extend(id.take());
        }
    }
    cursors
}

/// Every viewer is an open connection with its own task on either side, so that this is what a thousand people do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tails_of_one_run_each_see_everything_once() {
    const TAILS: usize = 1000;
    const EVENTS: u64 = 200;
    // Nobody is cut here, however long the machine takes for somebody's turn.
    let world = World::start_with(|config| config.intervals.stall_ms = 600_000).await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    assert_eq!(world.send_frames(&session, &[line(&run, 1_000_001, "before")]).await.status, 204);
    let mut tails = Vec::new();
    for _ in 0..TAILS {
        tails.push(open(&world, &run, "").await);
    }
    let readers: Vec<_> = tails
        .into_iter()
        .map(|mut tail| {
            tokio::spawn(async move {
                let (mut text, mut seen) = (Vec::new(), false);
                let mut buffer = [0_u8; 4096];
                // A live stream ends after the run; its connection may be kept.
                while !seen {
                    let read = tail.read(&mut buffer).await.unwrap();
                    assert!(read > 0, "the stream was cut");
                    text.extend_from_slice(&buffer[..read]);
                    seen = text.ends_with(b"0\r\n\r\n");
                }
                cursors(&text)
            })
        })
        .collect();
    for start in (0..EVENTS).step_by(10) {
        let frames: Vec<String> =
            (start..start + 10).map(|at| line(&run, 1_000_002 + at, &format!("line {at}"))).collect();
        assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    }
    assert_eq!(world.finalize(&session, Value::Null).await.status, 204);
    let listed = world.api(Method::GET, &format!("/v1/runs/{run}/events"), None).await;
    let expected: Vec<u64> =
        listed.body["events"].as_array().unwrap().iter().map(|row| row["cursor"].as_u64().unwrap()).collect();
    assert!(expected.len() as u64 >= EVENTS + 3);
    for reader in readers {
        let seen = tokio::time::timeout(PATIENCE * 15, reader).await.unwrap().unwrap();
        assert!(seen == expected, "{} of {}", seen.len(), expected.len());
    }
}

/// A viewer that takes nothing holds a place in the run's events, not a copy of them.
#[tokio::test]
async fn viewers_that_take_nothing_cost_no_memory_for_what_they_miss() {
    const STALLED: usize = 200;
    let world = World::start_with(|config| config.intervals.stall_ms = 600_000).await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let mut stream = open(&world, &run, "").await;
        let mut first = [0_u8; 64];
        assert!(stream.read(&mut first).await.unwrap() > 0);
        stalled.push(stream);
    }
    let before = resident();
    let text = "x".repeat(64 * 1024);
    for start in (0..480_u64).step_by(16) {
        let frames: Vec<String> = (start..start + 16).map(|at| line(&run, 1_000_001 + at, &text)).collect();
        assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    }
    // One who reads sees that all of it is there.
    let listed = world.api(Method::GET, &format!("/v1/runs/{run}/events?channels=log&limit=480"), None).await;
    assert_eq!(listed.body["events"].as_array().unwrap().len(), 480);
    let written = 480 * text.len() as u64;
    let grown = resident().saturating_sub(before);
    // Thirty megabytes for each of two hundred would be six gigabytes.
    assert!(grown < 12 * written, "{grown} bytes for {written}");
    drop(stalled);
}

#[tokio::test]
async fn many_viewers_from_many_places_and_with_many_filters_miss_nothing() {
    let world = World::start().await;
    let session = ordered(&world).await;
    let run = session.run.clone();
    let count = 1_500_u64;
    for start in (0..count).step_by(300) {
        let frames: Vec<String> = (start..start + 300)
            .map(|at| match at % 3 {
                0 => {
                    frame(&run, 1_000_001 + at, json!({ "kind": "phase", "name": "p", "id": at.to_string() }))
                }
                1 => frame(&run, 1_000_001 + at, json!({ "kind": "reasoning_delta", "text": "t" })),
                _ => line(&run, 1_000_001 + at, "text"),
            })
            .collect();
        assert_eq!(world.send_frames(&session, &frames).await.status, 204);
    }
    let mut viewers = Vec::new();
    for (at, channels) in ["", "phase", "agent", "log", "phase,log", "output"].into_iter().enumerate() {
        for since in [0, 1, 1_000_001, 1_000_700 + at as u64, 1_001_499, 1_001_500, 5_000_000] {
            let filter = if channels.is_empty() { String::new() } else { format!("&channels={channels}") };
            viewers.push((since, channels, open(&world, &run, &format!("?since={since}{filter}")).await));
        }
    }
    assert_eq!(world.finalize(&session, json!(1)).await.status, 204);
    let listed = world.api(Method::GET, &format!("/v1/runs/{run}/events"), None).await;
    let all: Vec<(u64, String)> = listed.body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["cursor"].as_u64().unwrap(), row["event"]["kind"].as_str().unwrap().to_owned()))
        .collect();
    for (since, channels, mut stream) in viewers {
        let mut text = Vec::new();
        let mut buffer = [0_u8; 16 * 1024];
        while !text.ends_with(b"0\r\n\r\n") {
            let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap().unwrap();
            assert!(read > 0, "the stream was cut");
            text.extend_from_slice(&buffer[..read]);
        }
        let wanted: BTreeSet<&str> = channels.split(',').collect();
        let expected: Vec<u64> = all
            .iter()
            .filter(|(cursor, kind)| {
                let channel = trestle_contract::event::channel_of(kind).unwrap().as_str();
                *cursor > since && (channels.is_empty() || wanted.contains(channel))
            })
            .map(|(cursor, _)| *cursor)
            .collect();
        assert_eq!(cursors(&text), expected, "since {since} of {channels}");
    }
}
