//! Bodies that are too large, broken, or hostile.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Answer, Session, World};

/// Sends an object of this length, with or without telling it before.
async fn sized(world: &World, session: &Session, suffix: &str, length: usize, chunked: bool) -> Answer {
    let text = format!("{{{}}}", " ".repeat(length - 2));
    let body = if chunked {
        // Without a content length the cap is noticed on the way.
        let chunks: Vec<Result<Vec<u8>, std::io::Error>> =
            text.as_bytes().chunks(1000).map(|chunk| Ok(chunk.to_vec())).collect();
        reqwest::Body::wrap_stream(futures_util::stream::iter(chunks))
    } else {
        reqwest::Body::from(text)
    };
    let request = world.request(Method::POST, &session.path(suffix), &session.token);
    Answer::of(request.body(body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_body_beyond_its_cap_is_answered_with_an_envelope() {
    let world = World::start_with(|config| {
        config.limits.body = 10_000;
        config.limits.artifact_body = 20_000;
        config.limits.large_body = 30_000;
    })
    .await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let caps = [
        ("usage", 10_000),
        ("children", 10_000),
        ("secrets/resolve", 10_000),
        ("artifacts", 20_000),
        ("telemetry", 30_000),
        ("finalize", 30_000),
        ("inference", 30_000),
        ("journal", 30_000),
        ("suspend", 30_000),
        ("workspace/manifest/write", 30_000),
    ];
    for (suffix, cap) in caps {
        for chunked in [false, true] {
            let within = sized(&world, &session, suffix, cap, chunked).await;
            assert_ne!(within.status, 413, "{suffix} {within:?}");
            for length in [cap + 1, 4_000_000] {
                let beyond = sized(&world, &session, suffix, length, chunked).await;
                assert_eq!(
                    (beyond.status.as_u16(), beyond.code()),
                    (413, "PAYLOAD_TOO_LARGE"),
                    "{suffix} {length}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_caps_are_those_of_the_protocol() {
    let limits = trestle_server::Config::default().limits;
    let mib = 1024 * 1024;
    assert_eq!(
        (limits.body, limits.large_body, limits.artifact_body, limits.input, limits.artifact),
        (5 * mib, 64 * mib, 8 * mib, 4 * mib, 100 * mib)
    );
}

async fn trigger(world: &World, workflow: &str, body: String) -> Answer {
    let request = world
        .request(Method::POST, &format!("/v1/orgs/local/workflows/{workflow}/runs"), &world.admin)
        .header("content-type", "application/json")
        .body(body);
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn hostile_inputs_are_refused_and_exact_ones_travel_unchanged() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let large = format!("{{\"input\":\"{}\"}}", "x".repeat(4 * 1024 * 1024));
    for (body, status, code) in [
        ("{\"input\":".to_owned(), 400, "VALIDATION_FAILED"),
        ("{\"input\":\"\u{0}\"}".to_owned(), 400, "VALIDATION_FAILED"),
        ("{\"input\":1}trailing".to_owned(), 400, "VALIDATION_FAILED"),
        ("[]".to_owned(), 400, "VALIDATION_FAILED"),
        (deep, 400, "VALIDATION_FAILED"),
        (large, 413, "PAYLOAD_TOO_LARGE"),
    ] {
        let start: String = body.chars().take(40).collect();
        let answer = trigger(&world, &workflow, body).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code), "{start}");
    }
    let runs = world.api(Method::GET, "/v1/orgs/local/runs", None).await;
    assert_eq!(runs.body["runs"], json!([]));

    let levels = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    for input in [
        r#"{"z":1, "a":12345678901234567890, "z2":1.0, "e":1e400}"#,
        r#""\u0000 \ud800""#,
        r#"[9007199254740993, -0.0, 1E+2]"#,
        levels.as_str(),
        "null",
    ] {
        let answer = trigger(&world, &workflow, format!("{{\"input\":{input}}}")).await;
        assert_eq!(answer.status, 201, "{input} {answer:?}");
        let run = answer.body["run"]["id"].as_str().unwrap();
        let detail = world.api(Method::GET, &format!("/v1/runs/{run}"), None).await;
        assert!(input == "null" || detail.text.contains(input), "{input} {}", detail.text);
    }
}

#[tokio::test]
async fn a_trigger_needs_no_body_at_all() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let answer = trigger(&world, &workflow, String::new()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let keys: Vec<&String> = answer.body["run"].as_object().unwrap().keys().collect();
    for key in ["id", "workflowId", "status", "outcomeStatus", "startedAt", "completedAt"] {
        assert!(keys.iter().any(|found| *found == key), "{key}");
    }
    assert_eq!(answer.body["run"]["startedAt"], Value::Null);
}

#[tokio::test]
async fn a_request_that_stops_arriving_is_given_up() {
    let world = World::start_with(|config| {
        config.intervals.body_idle_ms = 50;
        config.intervals.head_ms = 300;
    })
    .await;
    let mut stream = TcpStream::connect(world.handle.address()).await.unwrap();
    let head = format!(
        "POST /v1/orgs/local/secrets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{",
        world.admin
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    let text = String::from_utf8(answer[..length].to_vec()).unwrap();
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");

    let mut stream = TcpStream::connect(world.handle.address()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhos").await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn an_oversized_head_is_refused_without_harm() {
    let world = World::start().await;
    let response =
        world.client.get(world.url("/healthz")).header("x-large", "y".repeat(20_000)).send().await.unwrap();
    assert_eq!(response.status(), 431);
    assert_eq!(world.client.get(world.url("/healthz")).send().await.unwrap().status(), 200);
}
