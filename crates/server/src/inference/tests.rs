//! The relay between real sockets: a client on one side, the scripted model on the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use trestle_contract::ids::RunId;
use trestle_contract::inference::{InferenceFrame, InferenceResult};
use trestle_store::{ProviderRow, RelayTurn, StoreError, StoreResult, TurnMeter, TurnRow};
use trestle_testkit::model_server::{
    Fault, HttpFault, Match, ModelServer, Outcome, Repeat, Script, ScriptTurn, ScriptUsage,
};

use super::config::ModelConfig;
use super::ledger::Ledger;
use super::named::Providers;
use super::relay::Relay;
use crate::keys::Keys;
use crate::vault::Vault;

mod named;

/// Rows in memory, with the store's rule: the first row of a key stays.
#[derive(Default)]
struct Rows {
    rows: Mutex<HashMap<(String, String), TurnMeter>>,
    /// How many writes fail before one succeeds.
    failures: AtomicU32,
    changed: Notify,
}

#[async_trait]
impl Ledger for Rows {
    async fn meter(&self, turn: TurnMeter) -> StoreResult<()> {
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Err(StoreError::Unavailable("planted".to_owned()));
        }
        let key = (turn.run.to_string(), turn.turn_key.clone());
        self.rows.lock().unwrap().entry(key).or_insert(turn);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn find(&self, run: &RunId, key: &str) -> StoreResult<Option<RelayTurn>> {
        let rows = self.rows.lock().unwrap();
        Ok(rows.get(&(run.to_string(), key.to_owned())).map(|row| RelayTurn {
            request_digest: row.request_digest,
            result: row.result.clone(),
            row: TurnRow {
                key: row.turn_key.clone(),
                model: Some(row.model.clone()),
                tokens: row.tokens,
                cost_micros: row.cost_micros,
                estimated: row.estimated,
                counted: true,
                at: 0,
            },
        }))
    }
}

/// Providers in memory.
#[derive(Default)]
struct Book(Mutex<HashMap<String, (ProviderRow, Option<Vec<u8>>)>>);

#[async_trait]
impl Providers for Book {
    async fn named(&self, name: &str) -> StoreResult<Option<(ProviderRow, Option<Vec<u8>>)>> {
        Ok(self.0.lock().unwrap().get(name).cloned())
    }
}

impl Rows {
    fn all(&self) -> Vec<TurnMeter> {
        self.rows.lock().unwrap().values().cloned().collect()
    }

    /// Waits for this many rows.
    async fn wait(&self, count: usize) -> Vec<TurnMeter> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.all().len() >= count {
                    return self.all();
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("the rows in time")
    }
}

/// A relay that serves `POST /RUN`, with the model behind it.
struct World {
    model: ModelServer,
    rows: Arc<Rows>,
    book: Arc<Book>,
    relay: Arc<Relay>,
    vault: Arc<Vault>,
    config: ModelConfig,
    url: String,
    _data: tempfile::TempDir,
}

async fn world(script: Script) -> World {
    world_with(script, |_| {}).await
}

async fn world_with(script: Script, change: impl FnOnce(&mut ModelConfig)) -> World {
    let model = ModelServer::start(script).await.unwrap();
    let mut config = ModelConfig {
        model: Some("scripted".to_owned()),
        url: Some(model.openai_url()),
        backoff_ms: 1,
        ..ModelConfig::default()
    };
    change(&mut config);
    let data = tempfile::tempdir().unwrap();
    let vault = Arc::new(Vault::new(&Keys::open(data.path()).unwrap()));
    let rows = Arc::new(Rows::default());
    let book = Arc::new(Book::default());
    let relay =
        Arc::new(Relay::with_ledger(&config, rows.clone(), book.clone(), Arc::clone(&vault)).unwrap());
    let url = serve(Arc::clone(&relay)).await;
    World { model, rows, book, relay, vault, config, url, _data: data }
}

async fn serve(relay: Arc<Relay>) -> String {
    async fn turn(
        State(relay): State<Arc<Relay>>,
        Path(run): Path<String>,
        body: Bytes,
    ) -> axum::response::Response {
        relay.relay(&RunId::new(run).unwrap(), body, None).await
    }
    let router = Router::new().route("/{run}", post(turn)).with_state(relay);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn question(extra: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "question"}], "tools": []});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// A client of its own: no connection is shared between requests.
async fn send(url: &str, run: &str, body: &Value) -> reqwest::Response {
    let client =
        trestle_models::http_client(&trestle_models::HttpOptions { proxies: false, ..Default::default() })
            .unwrap();
    client.post(format!("{url}/{run}")).body(body.to_string()).send().await.unwrap()
}

fn frames(text: &str) -> Vec<InferenceFrame> {
    assert!(text.ends_with('\n'), "the last line has no end: {text:?}");
    text.lines().map(|line| InferenceFrame::parse_line(line).unwrap().unwrap()).collect()
}

/// The frames of a whole answer, checked against the grammar: exactly one terminal frame, at the end.
async fn ask(url: &str, run: &str, body: &Value) -> Vec<InferenceFrame> {
    let response = send(url, run, body).await;
    assert_eq!(response.status(), 200);
    let frames = frames(&response.text().await.unwrap());
    let terminal: Vec<usize> = (0..frames.len()).filter(|index| frames[*index].is_terminal()).collect();
    assert_eq!(terminal, [frames.len() - 1], "{frames:?}");
    frames
}

fn streamed(frames: &[InferenceFrame]) -> String {
    frames.iter().fold(String::new(), |mut text, frame| {
        match frame {
            InferenceFrame::Delta { text: piece } => text.push_str(piece),
            InferenceFrame::Reset => text.clear(),
            _ => {}
        }
        text
    })
}

fn result(frames: &[InferenceFrame]) -> &InferenceResult {
    match frames.last() {
        Some(InferenceFrame::Result(result)) => result,
        other => panic!("no result: {other:?}"),
    }
}

fn failure(frames: &[InferenceFrame]) -> (&str, &str) {
    match frames.last() {
        Some(InferenceFrame::Error { error }) => (&error.code, &error.message),
        other => panic!("no error: {other:?}"),
    }
}

fn endless() -> ScriptTurn {
    ScriptTurn {
        repeat: Some(Repeat { text: "tick ".to_owned(), times: u64::MAX, stamp: false }),
        delta_delay_ms: 1,
        ..ScriptTurn::default()
    }
}

#[tokio::test]
async fn a_turn_is_streamed_ended_once_and_metered_once() {
    let turn = ScriptTurn {
        reasoning: Some("hm".to_owned()),
        text: Some("one \"two\"\n😀".to_owned()),
        usage: Some(ScriptUsage { input: 1000, output: 100, cache_read: 400, cache_write: 0 }),
        ..ScriptTurn::default()
    };
    let world = world(Script::of(vec![turn])).await;
    let response = send(&world.url, "run1", &question(&json!({"model": "gpt-4o"}))).await;
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(response.headers()["cache-control"], "no-cache, no-transform");
    let frames = frames(&response.text().await.unwrap());
    assert_eq!(frames[0], InferenceFrame::Reasoning { text: "hm".to_owned() });
    assert_eq!(streamed(&frames), "one \"two\"\n😀");
    let result = result(&frames);
    assert_eq!(result.turn.text, "one \"two\"\n😀");
    assert_eq!(result.model_ref, "openai_compatible/gpt-4o");
    assert_eq!(result.turn.usage.cached_read_tokens, Some(400));
    assert_eq!(result.cost_micros, Some(600 * 25 / 10 + 400 * 125 / 100 + 100 * 10));
    assert_eq!(result.context_tokens, Some(128_000));
    let rows = world.rows.all();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].tokens.input, rows[0].tokens.output, rows[0].tokens.cached_read), (1000, 100, 400));
    assert_eq!((rows[0].cost_micros, rows[0].estimated), (3000, false));
    assert_eq!(world.model.requests()[0].body["model"], "gpt-4o");
}

#[tokio::test]
async fn thinking_that_the_author_excluded_is_not_relayed() {
    let turn = ScriptTurn { reasoning: Some("secret thoughts".to_owned()), ..ScriptTurn::text("answer") };
    let world = world(Script::of(vec![turn])).await;
    let frames =
        ask(&world.url, "run1", &question(&json!({"reasoning": {"effort": "low", "exclude": true}}))).await;
    assert!(!frames.iter().any(|frame| matches!(frame, InferenceFrame::Reasoning { .. })), "{frames:?}");
    assert_eq!(world.model.requests()[0].body["reasoning_effort"], "low");
}

#[tokio::test]
async fn pings_come_from_acceptance_on_and_between_slow_deltas() {
    let turn = ScriptTurn { delay_ms: 300, delta_delay_ms: 150, ..ScriptTurn::text("a b") };
    let world = world_with(Script::of(vec![turn]), |config| config.ping_ms = 20).await;
    let frames = ask(&world.url, "run1", &question(&json!({}))).await;
    let first = frames.iter().position(|frame| matches!(frame, InferenceFrame::Delta { .. })).unwrap();
    let pings =
        |frames: &[InferenceFrame]| frames.iter().filter(|frame| **frame == InferenceFrame::Ping).count();
    assert!(pings(&frames[..first]) >= 3, "{frames:?}");
    assert!(pings(&frames[first..]) >= 1, "{frames:?}");
    assert_eq!(result(&frames).turn.text, "a b");
}

#[tokio::test]
async fn a_failure_before_the_stream_is_a_502_with_what_the_provider_said() {
    for (status, message) in
        [(400, "bad role"), (401, "Incorrect API key"), (404, "no such model"), (500, "boom")]
    {
        let fault = Fault::Http(HttpFault {
            status,
            retry_after: None,
            message: Some(message.to_owned()),
            code: None,
        });
        let world = world(Script::of(vec![ScriptTurn::fault(fault)])).await;
        let response = send(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await;
        assert_eq!(response.status(), 502, "{status}");
        let envelope: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(envelope["error"]["code"], "PROVIDER_ERROR");
        let said = envelope["error"]["message"].as_str().unwrap();
        assert!(said.starts_with(&format!("provider returned {status}: {message}")), "{said}");
        assert_eq!(world.rows.all().len(), 0, "nothing was charged");
    }
}

#[tokio::test]
async fn an_endpoint_that_nobody_serves_is_named() {
    let world = world_with(Script::saying("x"), |config| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        config.url = Some(format!("http://{}/v1", listener.local_addr().unwrap()));
        config.attempts = 2;
    })
    .await;
    let response = send(&world.url, "run1", &question(&json!({}))).await;
    assert_eq!(response.status(), 502);
    let envelope: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let said = envelope["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("cannot reach the model endpoint http://127.0.0.1:"), "{said}");
    assert!(envelope["error"]["hint"].as_str().unwrap().contains("TRESTLE_MODEL_URL"));
}

#[tokio::test]
async fn a_failure_within_the_stream_is_its_one_last_frame_and_what_was_used_is_estimated() {
    for fault in [Fault::cut(2), Fault::end(2), Fault::error(2)] {
        let world =
            world_with(Script::of(vec![ScriptTurn::text("a b c d").with_fault(fault.clone())]), |config| {
                config.restarts = 0;
            })
            .await;
        let frames = ask(&world.url, "run1", &question(&json!({}))).await;
        assert_eq!(failure(&frames).0, "PROVIDER_ERROR", "{fault:?}");
        let rows = world.rows.wait(1).await;
        assert_eq!(rows.len(), 1);
        assert!(rows[0].estimated && rows[0].tokens.input > 0 && rows[0].tokens.output > 0, "{rows:?}");
    }
}

#[tokio::test]
async fn a_drop_after_content_is_reset_and_restarted_and_both_attempts_are_metered_in_one_row() {
    let usage = Some(ScriptUsage { input: 10, output: 3, ..ScriptUsage::default() });
    let turns = vec![
        ScriptTurn { usage, ..ScriptTurn::text("void void void").with_fault(Fault::cut(2)) },
        ScriptTurn { usage, ..ScriptTurn::text("the real answer") },
    ];
    let world = world(Script::of(turns)).await;
    let frames = ask(&world.url, "run1", &question(&json!({}))).await;
    assert_eq!(frames.iter().filter(|frame| **frame == InferenceFrame::Reset).count(), 1);
    assert_eq!(streamed(&frames), "the real answer");
    assert_eq!(result(&frames).turn.text, "the real answer");
    assert_eq!(result(&frames).turn.usage.input_tokens, Some(10), "the turn's own counts");
    let rows = world.rows.all();
    assert_eq!(rows.len(), 1);
    assert!(rows[0].tokens.input > 10 && rows[0].tokens.output > 3, "{rows:?}");
}

/// A cancelled stream left no row at all (B7-43).
#[tokio::test]
async fn a_client_that_goes_stops_the_provider_and_leaves_one_estimated_row() {
    let world = world(Script::of(vec![endless()])).await;
    let response = send(&world.url, "run1", &question(&json!({}))).await;
    let mut stream = response.bytes_stream();
    for _ in 0..3 {
        stream.next().await.unwrap().unwrap();
    }
    drop(stream);
    world.model.wait_for(|requests| requests[0].outcome == Outcome::ClientGone).await.unwrap();
    let rows = world.rows.wait(1).await;
    assert_eq!(rows.len(), 1);
    assert!(rows[0].estimated && rows[0].tokens.input > 0 && rows[0].tokens.output > 0, "{rows:?}");
}

#[tokio::test]
async fn a_client_that_goes_during_silence_is_noticed() {
    let world =
        world_with(Script::of(vec![ScriptTurn::text("a b").with_fault(Fault::silence(1))]), |config| {
            config.ping_ms = 20;
        })
        .await;
    let response = send(&world.url, "run1", &question(&json!({}))).await;
    let mut stream = response.bytes_stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    world.model.wait_for(|requests| requests[0].outcome == Outcome::ClientGone).await.unwrap();
    assert_eq!(world.rows.wait(1).await.len(), 1);
}

/// A client that went lost the provider's own counts (B7-40): here the turn is drained to them.
#[tokio::test]
async fn a_turn_with_a_key_is_finished_without_its_client_and_a_repeat_gets_its_result() {
    let turn = ScriptTurn { delta_delay_ms: 5, ..ScriptTurn::text("finished all the same") };
    let world = world(Script::of(vec![turn, ScriptTurn::text("another answer")])).await;
    let body = question(&json!({"turnKey": "k1"}));
    let mut stream = send(&world.url, "run1", &body).await.bytes_stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let rows = world.rows.wait(1).await;
    assert_eq!(world.model.requests()[0].outcome, Outcome::Complete);
    assert!(!rows[0].estimated);
    let kept = rows[0].result.clone().unwrap();
    assert!(!kept.windows(8).any(|window| window == b"finished"), "the result is kept in the clear");

    let frames = ask(&world.url, "run1", &body).await;
    assert_eq!(
        (streamed(&frames).as_str(), result(&frames).turn.text.as_str()),
        ("finished all the same", "finished all the same")
    );

    // Another process with the same store.
    let relay =
        Relay::with_ledger(&world.config, world.rows.clone(), world.book.clone(), Arc::clone(&world.vault));
    let url = serve(Arc::new(relay.unwrap())).await;
    let frames = ask(&url, "run1", &body).await;
    assert_eq!(result(&frames).turn.text, "finished all the same");

    assert_eq!((world.model.requests().len(), world.rows.all().len()), (1, 1));
}

#[tokio::test]
async fn a_repeat_joins_the_live_turn_from_its_start() {
    let turn = ScriptTurn { delta_delay_ms: 10, ..ScriptTurn::text("a b c d e f g h i j") };
    let world = world(Script::of(vec![turn])).await;
    let body = question(&json!({"turnKey": "k1"}));
    let first = send(&world.url, "run1", &body).await;
    let (first, second) =
        tokio::join!(async { frames(&first.text().await.unwrap()) }, ask(&world.url, "run1", &body));
    for seen in [&first, &second] {
        assert_eq!(streamed(seen), "a b c d e f g h i j");
        assert_eq!(result(seen).turn.text, "a b c d e f g h i j");
    }
    assert_eq!((world.model.requests().len(), world.rows.all().len()), (1, 1));
}

#[tokio::test]
async fn the_same_request_twice_at_once_is_one_turn() {
    let world = world(Script::of(vec![ScriptTurn { delay_ms: 50, ..ScriptTurn::text("once") }])).await;
    let body = question(&json!({"turnKey": "k1"}));
    let answers = futures_util::future::join_all((0..8).map(|_| ask(&world.url, "run1", &body))).await;
    for frames in answers {
        assert_eq!(streamed(&frames), "once");
    }
    assert_eq!((world.model.requests().len(), world.rows.all().len()), (1, 1));
}

#[tokio::test]
async fn a_repeat_is_not_held_up_by_a_client_that_does_not_read() {
    let piece = "x".repeat(4096);
    let turn = ScriptTurn {
        repeat: Some(Repeat { text: piece, times: 4000, stamp: false }),
        ..ScriptTurn::default()
    };
    let world = world(Script::of(vec![turn])).await;
    let body = question(&json!({"turnKey": "k1"}));
    let stuck = send(&world.url, "run1", &body).await;
    let frames = ask(&world.url, "run1", &body).await;
    assert_eq!(result(&frames).turn.text.len(), 4096 * 4000);
    assert_eq!(streamed(&frames).len(), 4096 * 4000);
    drop(stuck);
    assert_eq!((world.model.requests().len(), world.rows.all().len()), (1, 1));
}

#[tokio::test]
async fn a_key_names_one_request_of_one_run() {
    let world = world(Script::of(vec![ScriptTurn::text("one"), ScriptTurn::text("two")])).await;
    ask(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await;
    let other = send(&world.url, "run1", &question(&json!({"turnKey": "k", "model": "other"}))).await;
    assert_eq!(other.status(), 409);
    let frames = ask(&world.url, "run2", &question(&json!({"turnKey": "k"}))).await;
    assert_eq!(streamed(&frames), "two");
    for key in [String::new(), "x".repeat(513)] {
        assert_eq!(send(&world.url, "run1", &question(&json!({"turnKey": key}))).await.status(), 400);
    }
}

#[tokio::test]
async fn a_turn_that_failed_is_asked_again_under_its_key_and_both_are_metered() {
    let world = world_with(
        Script::of(vec![ScriptTurn::text("a b c").with_fault(Fault::cut(1)), ScriptTurn::text("fine")]),
        |config| {
            config.restarts = 0;
        },
    )
    .await;
    let body = question(&json!({"turnKey": "k"}));
    assert_eq!(failure(&ask(&world.url, "run1", &body).await).0, "PROVIDER_ERROR");
    assert_eq!(streamed(&ask(&world.url, "run1", &body).await), "fine");
    let rows = world.rows.all();
    assert_eq!(rows.iter().filter(|row| row.estimated).count(), 1);
    assert_eq!(rows.len(), 2);
}

#[tokio::test]
async fn the_end_of_a_run_breaks_its_turns_off_and_no_others() {
    let world =
        world(Script::of(vec![endless(), ScriptTurn { delay_ms: 100, ..ScriptTurn::text("kept") }])).await;
    let response = send(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await;
    let plain = question(&json!({}));
    let (ended, other) = tokio::join!(
        async {
            world.relay.stop_run(&RunId::new("run1").unwrap());
            frames(&response.text().await.unwrap())
        },
        ask(&world.url, "run2", &plain)
    );
    assert_eq!(failure(&ended).0, "CANCELLED");
    assert_eq!(streamed(&other), "kept");
    world
        .model
        .wait_for(|requests| requests.iter().any(|request| request.outcome == Outcome::ClientGone))
        .await
        .unwrap();
    let rows = world.rows.wait(2).await;
    assert_eq!(rows.iter().filter(|row| row.run.as_str() == "run1" && row.estimated).count(), 1);
}

#[tokio::test]
async fn a_server_that_stops_writes_down_what_abandoned_turns_cost() {
    let world = world(Script::of(vec![endless()])).await;
    let mut stream = send(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await.bytes_stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    tokio::time::timeout(Duration::from_secs(20), world.relay.shut_down()).await.unwrap();
    let rows = world.rows.wait(1).await;
    assert!(rows[0].estimated);
}

#[tokio::test]
async fn a_client_that_reads_slowly_slows_the_provider_down() {
    let turn = ScriptTurn {
        repeat: Some(Repeat { text: "x".repeat(16 * 1024), times: u64::MAX, stamp: false }),
        ..ScriptTurn::default()
    };
    let world = world(Script::of(vec![turn])).await;
    let response = send(&world.url, "run1", &question(&json!({}))).await;
    // Until nothing was sent for a while: every buffer on the way is full.
    let mut seen = 0;
    while let Ok(Ok(requests)) = tokio::time::timeout(
        Duration::from_millis(500),
        world.model.wait_for(move |requests| requests[0].deltas > seen),
    )
    .await
    {
        seen = requests[0].deltas;
        assert!(seen < 4096, "more than 64 MiB are buffered somewhere");
    }
    // And it goes on when the client reads.
    let mut stream = response.bytes_stream();
    let mut read = 0;
    while read < 32 * 1024 * 1024 {
        read += stream.next().await.unwrap().unwrap().len();
    }
    assert!(world.model.requests()[0].deltas > seen);
}

#[tokio::test]
async fn what_cannot_be_resolved_is_refused_with_a_hint() {
    let unset = world_with(Script::saying("x"), |config| {
        // The command line always names a wire format.
        *config = ModelConfig { provider: Some("openai_compatible".to_owned()), ..ModelConfig::default() };
    })
    .await;
    let set = world(Script::saying("x")).await;
    for (world, extra, hint) in [
        (&unset, json!({}), "TRESTLE_MODEL"),
        (&set, json!({"provider": "openai", "model": "gpt-5"}), "provider"),
        (&set, json!({"desktopSession": true}), "desktop"),
    ] {
        let response = send(&world.url, "run1", &question(&extra)).await;
        assert_eq!(response.status(), 422, "{extra}");
        let envelope: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(envelope["error"]["code"], "MODEL_UNRESOLVED");
        assert!(envelope["error"]["hint"].as_str().unwrap().contains(hint), "{envelope}");
    }
    assert_eq!(set.model.requests().len(), 0);
}

#[tokio::test]
async fn requests_of_the_wrong_shape_are_refused() {
    let world = world(Script::saying("x")).await;
    for body in [
        json!([]),
        json!("text"),
        json!({}),
        json!({"messages": [], "tools": []}),
        json!({"messages": "x", "tools": []}),
        question(&json!({"model": 5})),
        question(&json!({"provider": {}})),
        question(&json!({"tools": {}})),
        json!({"messages": [{"role": "system", "content": "x"}], "tools": []}),
        json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"mimeType": "image/png"}}]}], "tools": []}),
    ] {
        let response = send(&world.url, "run1", &body).await;
        assert_eq!(response.status(), 400, "{body}");
        let envelope: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(envelope["error"]["code"], "VALIDATION_FAILED", "{body}");
    }
    assert_eq!(world.model.requests().len(), 0);
}

#[tokio::test]
async fn a_row_that_could_not_be_written_is_written_again() {
    let world = world(Script::saying("fine")).await;
    world.rows.failures.store(2, Ordering::SeqCst);
    let frames = ask(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await;
    assert_eq!(result(&frames).turn.text, "fine");
    assert_eq!(world.rows.all().len(), 1);
}

#[tokio::test]
async fn five_thousand_deltas_pass_in_order_on_both_wires() {
    for provider in ["openai_compatible", "anthropic"] {
        let turn = ScriptTurn {
            repeat: Some(Repeat { text: "tick ".to_owned(), times: 5000, stamp: false }),
            ..ScriptTurn::default()
        };
        let model =
            ModelServer::start(Script::of(vec![turn.when(Match::containing("question"))])).await.unwrap();
        let world = world_with(Script::saying("unused"), |config| {
            config.provider = Some(provider.to_owned());
            config.url = Some(if provider == "anthropic" { model.url() } else { model.openai_url() });
        })
        .await;
        let frames = ask(&world.url, "run1", &question(&json!({"turnKey": "k"}))).await;
        assert_eq!(streamed(&frames), "tick ".repeat(5000), "{provider}");
        assert_eq!(result(&frames).model_ref, format!("{provider}/scripted"));
    }
}
