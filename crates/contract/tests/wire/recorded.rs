//! Recorded traffic of runner 0.3.40: every body is read by its type and written as the same JSON value.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use trestle_contract::event::EventFrame;
use trestle_contract::inference::InferenceFrame;

use crate::registry::{RoundTrip, protocols};

#[derive(Deserialize)]
struct Exchange {
    method: String,
    path: String,
    request_body: Value,
    status: u16,
    response_body: Value,
}

/// Types of the bodies of an endpoint; `None` where there is no JSON body.
struct Endpoint {
    request: Option<&'static str>,
    response: Option<&'static str>,
    status: u16,
}

fn endpoint(method: &str, path: &str) -> Endpoint {
    let both =
        |request, response, status| Endpoint { request: Some(request), response: Some(response), status };
    let read = |response| Endpoint { request: None, response: Some(response), status: 200 };
    let told = |request| Endpoint { request: Some(request), response: None, status: 204 };
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match (method, segments.as_slice()) {
        ("POST", ["runner", "v1", "register"]) => both("RegisterRequest", "RegisterResponse", 201),
        ("POST", ["runner", "v1", "pool", "poll"]) => both("Declaration", "PollResponse", 200),
        ("POST", ["runner", "v1", "pool", "assignments", _, "claim"]) => {
            both("Declaration", "ClaimResponse", 200)
        }
        ("POST", ["runner", "v1", "pool", "heartbeat"]) => both("HeartbeatRequest", "HeartbeatResponse", 200),
        ("POST", ["runner", "v1", "pool", "deregister"]) => told("DeregisterRequest"),
        (method, ["runner", "v1", "runs", _, rest @ ..]) => match (method, rest) {
            ("POST", ["claim"]) => both("RunClaimRequest", "RunClaimResponse", 201),
            ("POST", ["finalize"]) => told("FinalizeRequest"),
            ("POST", ["telemetry"]) => told("TelemetryRequest"),
            ("POST", ["usage"]) => told("UsageRequest"),
            ("POST", ["usage", "tokens"]) => told("TokenUsageRequest"),
            ("GET", ["version"]) => read("VersionResponse"),
            ("GET", ["credit"]) => read("CreditResponse"),
            ("GET", ["cancel"]) => read("CancelResponse"),
            ("POST", ["inference"]) => {
                Endpoint { request: Some("InferenceRequest"), response: None, status: 200 }
            }
            ("POST", ["secrets", "resolve"]) => both("SecretResolveRequest", "SecretResolveResponse", 200),
            ("POST", ["artifacts"]) => both("ArtifactWriteRequest", "ArtifactWriteResponse", 201),
            ("POST", ["artifacts", "presign"]) => {
                both("ArtifactPresignRequest", "ArtifactPresignResponse", 201)
            }
            ("POST", ["artifacts", "commit"]) => both("ArtifactCommitRequest", "ArtifactWriteResponse", 201),
            ("POST", ["children"]) => both("ChildRequest", "ChildResponse", 201),
            ("GET", ["children", _]) => read("ChildStatus"),
            other => panic!("unknown endpoint {other:?}"),
        },
        // Bytes, not JSON.
        ("GET", ["dl", _]) | ("PUT", ["put", _]) => Endpoint { request: None, response: None, status: 200 },
        other => panic!("unknown endpoint {other:?}"),
    }
}

fn exchanges() -> Vec<Exchange> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    assert_eq!(files.len(), 14, "recorded scenarios");
    let mut exchanges = Vec::new();
    for file in files {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            exchanges.push(serde_json::from_str(line).unwrap());
        }
    }
    exchanges
}

/// A body that the recording wrapped (`{"$base64": …}`) or cut (`…[12 chars]`) is not what was on the wire.
fn is_altered(body: &Value) -> bool {
    match body {
        Value::Object(map) if map.keys().any(|key| key.starts_with('$')) => true,
        Value::Object(map) => map.values().any(is_altered),
        Value::Array(items) => items.iter().any(is_altered),
        Value::String(text) => text.contains("…[") && text.ends_with(" chars]"),
        _ => false,
    }
}

fn types() -> BTreeMap<&'static str, RoundTrip> {
    protocols()
        .iter()
        .flat_map(|protocol| protocol.entries.iter().map(|entry| (entry.name, entry.round_trip)))
        .collect()
}

#[derive(Default, Debug, PartialEq)]
struct Tally {
    compared: usize,
    skipped: usize,
    empty: usize,
}

#[test]
fn every_recorded_body_is_read_and_written_as_the_same_value() {
    let types = types();
    let mut tally = Tally::default();
    let mut check = |place: &str, body: &Value, name: Option<&str>| {
        if body.is_null() {
            tally.empty += 1;
            return;
        }
        if is_altered(body) {
            tally.skipped += 1;
            return;
        }
        let name = name.unwrap_or_else(|| panic!("{place}: a body where none is expected: {body}"));
        let written =
            types[name](&body.to_string()).unwrap_or_else(|error| panic!("{place} {name}: {error}"));
        assert_eq!(&written, body, "{place} {name}");
        tally.compared += 1;
    };
    for exchange in exchanges() {
        let endpoint = endpoint(&exchange.method, &exchange.path);
        let place = format!("{} {}", exchange.method, exchange.path);
        assert_eq!(exchange.status, endpoint.status, "{place}");
        check(&place, &exchange.request_body, endpoint.request);
        check(&place, &exchange.response_body, endpoint.response);
    }
    assert_eq!(tally, Tally { compared: 221, skipped: 25, empty: 104 });
}

#[test]
fn every_recorded_event_is_read_and_written_as_the_same_value() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for exchange in exchanges().iter().filter(|exchange| exchange.path.ends_with("/telemetry")) {
        for frame in exchange.request_body["frames"].as_array().unwrap() {
            let text = frame.as_str().unwrap();
            let (parsed, event) =
                EventFrame::parse_batch_element(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let before: Value = serde_json::from_str(text).unwrap();
            let after: Value = serde_json::from_str(&parsed.to_batch_element()).unwrap();
            assert_eq!(before, after);
            assert_eq!(event.body.kind(), &*parsed.kind);
            parsed.channel().unwrap();
            *kinds.entry(parsed.kind.to_string()).or_default() += 1;
        }
    }
    for kind in [
        "run_status",
        "output",
        "program_output",
        "phase",
        "turn_started",
        "text_delta",
        "tool_call_result",
        "turn_ended",
    ] {
        assert!(kinds.contains_key(kind), "no recorded {kind}");
    }
}

#[test]
fn every_recorded_answer_stream_that_is_whole_is_read_and_written_as_the_same_value() {
    let mut frames = 0;
    for exchange in exchanges().iter().filter(|exchange| exchange.path.ends_with("/inference")) {
        let text = exchange.response_body["$ndjson"].as_str().unwrap();
        if text.contains("…[") {
            continue;
        }
        for line in text.lines() {
            let frame = InferenceFrame::parse_line(line).unwrap().unwrap();
            let before: Value = serde_json::from_str(line).unwrap();
            let after: Value = serde_json::from_str(&frame.to_line()).unwrap();
            assert_eq!(before, after);
            frames += 1;
        }
    }
    assert_eq!(frames, 2);
}
