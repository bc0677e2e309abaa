//! Whole turns over real sockets against the scripted model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use futures_util::StreamExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use trestle_contract::inference::{ChatMessage, Effort, Reasoning, ToolSpec};
use trestle_models::{
    CompletedTurn, Endpoint, EndpointKind, ErrorClass, HttpOptions, ModelClient, ModelError, ModelEvent,
    ModelRequest, StopReason, TurnPolicy,
};
use trestle_testkit::model_server::{
    BodyFault, Fault, HttpFault, Match, ModelServer, Newline, Outcome, Repeat, Script, ScriptCall,
    ScriptTurn, ScriptUsage, Speaker, Stop, ToolId, ToolIndex, UsageOn, Wire,
};

const KINDS: [EndpointKind; 2] = [EndpointKind::OpenAiCompatible, EndpointKind::Anthropic];

fn client() -> ModelClient {
    ModelClient::new(HttpOptions::default()).unwrap()
}

fn endpoint(server: &ModelServer, kind: EndpointKind) -> Endpoint {
    Endpoint::new(
        kind,
        &match kind {
            EndpointKind::OpenAiCompatible => server.openai_url(),
            EndpointKind::Anthropic => server.url(),
        },
    )
    .unwrap()
}

/// The default policy without its waits.
fn quick() -> TurnPolicy {
    TurnPolicy { backoff: Duration::from_millis(1), ..TurnPolicy::default() }
}

fn asking(text: &str) -> ModelRequest {
    ModelRequest {
        model: "scripted".to_owned(),
        messages: vec![ChatMessage::User { content: text.into() }],
        ..ModelRequest::default()
    }
}

async fn collect(
    server: &ModelServer,
    kind: EndpointKind,
    request: &ModelRequest,
    policy: TurnPolicy,
) -> (Vec<ModelEvent>, Result<CompletedTurn, ModelError>) {
    let mut stream = client().stream(&endpoint(server, kind), request, policy).unwrap();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(ModelEvent::Done(turn)) => {
                assert!(stream.next().await.is_none(), "an event after the last");
                return (events, Ok(*turn));
            }
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an event after the error");
                return (events, Err(error));
            }
        }
    }
    panic!("the stream ended without its last event");
}

async fn ask(script: Script, kind: EndpointKind) -> Result<CompletedTurn, ModelError> {
    let server = ModelServer::start(script).await.unwrap();
    collect(&server, kind, &asking("hi"), quick()).await.1
}

fn text_of(events: &[ModelEvent]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Delta(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_turn_streams_thinking_and_text_and_ends_with_its_counts_on_both_wires() {
    let turn = ScriptTurn {
        reasoning: Some("let me think".to_owned()),
        text: Some("grüße an 😀 alle".to_owned()),
        usage: Some(ScriptUsage { input: 100, output: 20, cache_read: 60, cache_write: 0 }),
        ..ScriptTurn::default()
    };
    for kind in KINDS {
        let server = ModelServer::start(Script::of(vec![turn.clone()])).await.unwrap();
        let (events, completed) = collect(&server, kind, &asking("hi"), quick()).await;
        let completed = completed.unwrap();
        assert_eq!(text_of(&events), "grüße an 😀 alle", "{kind}");
        assert!(events.contains(&ModelEvent::Reasoning("let ".to_owned())), "{kind}");
        assert_eq!(completed.turn.text, "grüße an 😀 alle");
        assert_eq!(completed.stop, StopReason::Natural);
        let usage = completed.turn.usage;
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.cached_read_tokens),
            (Some(100), Some(20), Some(60)),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn every_quirk_of_the_wire_gives_the_same_turn() {
    let base = ScriptTurn {
        text: Some("naïve 😀 text".to_owned()),
        tool_calls: vec![
            ScriptCall::new("read", json!({"path": "ä/b"})),
            ScriptCall::new("read", json!({"path": "c"})),
            ScriptCall::new("ls", json!({})),
        ],
        usage: Some(ScriptUsage { input: 10, output: 5, ..ScriptUsage::default() }),
        ..ScriptTurn::default()
    };
    let wires = [
        ("documented", Wire::default()),
        ("CRLF", Wire { newline: Newline::Crlf, ..Wire::default() }),
        ("CR", Wire { newline: Newline::Cr, ..Wire::default() }),
        ("no space", Wire { space: false, ..Wire::default() }),
        ("byte by byte", Wire { split_bytes: Some(1), newline: Newline::Crlf, ..Wire::default() }),
        ("comments", Wire { comments: true, ..Wire::default() }),
        ("no done", Wire { done: false, ..Wire::default() }),
        ("index zero (33, 34)", Wire { tool_index: ToolIndex::Zero, fragment: 0, ..Wire::default() }),
        ("index absent", Wire { tool_index: ToolIndex::Absent, tool_id: ToolId::Every, ..Wire::default() }),
        ("index absent, id first", Wire { tool_index: ToolIndex::Absent, ..Wire::default() }),
        ("index as text", Wire { tool_index: ToolIndex::Text, ..Wire::default() }),
        ("empty ids", Wire { tool_id: ToolId::Empty, ..Wire::default() }),
        ("no ids", Wire { tool_id: ToolId::Absent, ..Wire::default() }),
        ("interleaved (36)", Wire { interleave: true, fragment: 2, ..Wire::default() }),
        ("usage with the finish reason (42)", Wire { usage_on: UsageOn::Last, ..Wire::default() }),
        ("running usage", Wire { usage_on: UsageOn::Every, ..Wire::default() }),
        ("nulls", Wire { nulls: true, ..Wire::default() }),
    ];
    for (name, wire) in wires {
        for kind in KINDS {
            let turn = ScriptTurn { wire: Some(wire.clone()), ..base.clone() };
            let completed = ask(Script::of(vec![turn]), kind)
                .await
                .unwrap_or_else(|error| panic!("{name} on {kind}: {error}"));
            assert_eq!(completed.turn.text, "naïve 😀 text", "{name} on {kind}");
            let calls: Vec<(String, Value)> = completed
                .turn
                .tool_calls
                .iter()
                .map(|call| (call.name.clone(), Value::Object(call.input.clone())))
                .collect();
            let want = [
                ("read".to_owned(), json!({"path": "ä/b"})),
                ("read".to_owned(), json!({"path": "c"})),
                ("ls".to_owned(), json!({})),
            ];
            assert_eq!(calls, want, "{name} on {kind}");
            assert!(completed.turn.wants_tools);
            assert_eq!(completed.turn.usage.input_tokens, Some(10), "{name} on {kind}");
            assert_eq!(completed.turn.usage.output_tokens, Some(5), "{name} on {kind}");
            let mut ids: Vec<&str> = completed.turn.tool_calls.iter().map(|call| call.id.as_str()).collect();
            ids.dedup();
            assert_eq!(ids.len(), 3, "{name} on {kind}");
        }
    }
}

#[tokio::test]
async fn a_tool_conversation_with_files_passes_the_vendors_checks_on_both_wires() {
    let messages: Vec<ChatMessage> = serde_json::from_value(json!([
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "file", "file": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
        {"role": "assistant", "text": "", "toolCalls": [
            {"id": "call:1", "name": "fs.read", "input": {}}, {"id": "b", "name": "shot", "input": {"x": 1}, "invalidInput": null}
        ]},
        {"role": "tool_results", "results": [
            {"id": "call:1", "content": "", "isError": false},
            {"id": "b", "content": [{"type": "file", "file": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}], "isError": true}
        ]},
        {"role": "assistant", "text": "", "toolCalls": []},
        {"role": "user", "content": [{"type": "file", "file": {"mimeType": "text/csv", "data": "YSxi", "filename": "a.csv"}}, {"type": "text", "text": ""}]},
        {"role": "assistant", "text": "", "toolCalls": [{"id": "c", "name": "fs.read", "input": {}}]},
        {"role": "tool_results", "results": [{"id": "c", "content": "found it", "isError": false}]}
    ]))
    .unwrap();
    let request = ModelRequest {
        model: "scripted".to_owned(),
        messages,
        tools: vec![
            ToolSpec {
                name: "fs.read".to_owned(),
                description: "reads".to_owned(),
                input_schema: serde_json::Map::new(),
            },
            ToolSpec {
                name: "shot".to_owned(),
                description: String::new(),
                input_schema: serde_json::Map::new(),
            },
        ],
        reasoning: Some(Reasoning { effort: Some(Effort::High), ..Reasoning::default() }),
        max_output_tokens: None,
    };
    for kind in KINDS {
        let script = Script::of(vec![ScriptTurn::text("done").when(Match {
            contains: Some("found it".into()),
            last: Some(Speaker::Tool),
            ..Match::default()
        })]);
        let server = ModelServer::start(script).await.unwrap();
        let (_, completed) = collect(&server, kind, &request, quick()).await;
        assert_eq!(completed.unwrap_or_else(|error| panic!("{kind}: {error}")).turn.text, "done");
    }
}

#[tokio::test]
async fn each_generation_of_claude_models_takes_the_thinking_that_is_asked_of_it() {
    for model in
        ["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-7", "claude-sonnet-5", "claude-fable-5-1"]
    {
        let server = ModelServer::start(Script::saying("thought")).await.unwrap();
        let request = ModelRequest {
            model: model.to_owned(),
            reasoning: Some(Reasoning { effort: Some(Effort::High), ..Reasoning::default() }),
            ..asking("q")
        };
        let (_, completed) = collect(&server, EndpointKind::Anthropic, &request, quick()).await;
        assert_eq!(completed.unwrap_or_else(|error| panic!("{model}: {error}")).turn.text, "thought");
        assert!(server.requests()[0].body["thinking"].is_object(), "{model}");
    }
}

#[tokio::test]
async fn a_tool_name_that_a_provider_does_not_take_comes_back_as_its_own() {
    for kind in KINDS {
        let server = ModelServer::start(Script::of(vec![ScriptTurn::text("x")])).await.unwrap();
        let request = ModelRequest {
            tools: vec![ToolSpec {
                name: "fs.read".to_owned(),
                description: String::new(),
                input_schema: serde_json::Map::new(),
            }],
            ..asking("q")
        };
        collect(&server, kind, &request, quick()).await.1.unwrap();
        let tool = &server.requests()[0].body["tools"][0];
        let written = tool["name"].as_str().or(tool["function"]["name"].as_str()).unwrap().to_owned();
        assert_ne!(written, "fs.read");
        let calling =
            ModelServer::start(Script::of(vec![ScriptTurn::call(&written, json!({}))])).await.unwrap();
        let completed = collect(&calling, kind, &request, quick()).await.1.unwrap();
        assert_eq!(completed.turn.tool_calls[0].name, "fs.read", "{kind}");
    }
}

#[tokio::test]
async fn each_kind_of_break_in_a_stream_is_an_error_and_never_a_short_success() {
    let faults = [
        ("cut before any byte", Fault::cut(0), ErrorClass::Interrupted),
        ("cut in the middle", Fault::cut(2), ErrorClass::Interrupted),
        ("end without terminal event (37)", Fault::end(2), ErrorClass::Interrupted),
        ("nothing but headers", Fault::end(0), ErrorClass::Interrupted),
        ("error after 200 (37)", Fault::error(2), ErrorClass::Overloaded),
        ("error as the first event", Fault::error(0), ErrorClass::Overloaded),
        (
            "not JSON",
            Fault::Body(BodyFault { text: "data: {\"choices\"\n\n".to_owned(), content_type: None }),
            ErrorClass::MalformedStream,
        ),
        (
            "empty body",
            Fault::Body(BodyFault { text: String::new(), content_type: None }),
            ErrorClass::Interrupted,
        ),
        (
            "a web page",
            Fault::Body(BodyFault { text: "<html>".to_owned(), content_type: Some("text/html".to_owned()) }),
            ErrorClass::NotFound,
        ),
        (
            "an error document",
            Fault::Body(BodyFault {
                text: r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#.to_owned(),
                content_type: Some("application/json".to_owned()),
            }),
            ErrorClass::Overloaded,
        ),
    ];
    for (name, fault, class) in faults {
        for kind in KINDS {
            let mut turn = ScriptTurn::text("one two three four").with_fault(fault.clone());
            turn.times = Some(u64::MAX);
            let error = ask(Script::of(vec![turn]), kind).await.expect_err(name);
            assert_eq!(error.class, class, "{name} on {kind}: {error}");
        }
    }
}

#[tokio::test]
async fn a_break_before_any_delta_is_repaired_unseen() {
    for fault in [
        Fault::cut(0),
        Fault::end(0),
        Fault::error(0),
        Fault::http(429),
        Fault::http(500),
        Fault::http(529),
        Fault::http(408),
    ] {
        for kind in KINDS {
            let server = ModelServer::start(Script::of(vec![
                ScriptTurn::text("x").with_fault(fault.clone()),
                ScriptTurn::text("fine"),
            ]))
            .await
            .unwrap();
            let (events, completed) = collect(&server, kind, &asking("hi"), quick()).await;
            assert_eq!(
                completed.unwrap_or_else(|error| panic!("{fault:?} on {kind}: {error}")).turn.text,
                "fine"
            );
            assert!(!events.contains(&ModelEvent::Restarted), "{fault:?} on {kind}");
            assert_eq!(server.requests().len(), 2);
        }
    }
}

#[tokio::test]
async fn a_break_after_a_delta_restarts_only_when_the_caller_allows_it() {
    for kind in KINDS {
        let script = || {
            Script::of(vec![
                ScriptTurn::text("void void void").with_fault(Fault::cut(2)),
                ScriptTurn::text("second try"),
            ])
        };
        let server = ModelServer::start(script()).await.unwrap();
        let policy = TurnPolicy { restarts: 1, ..quick() };
        let (events, completed) = collect(&server, kind, &asking("hi"), policy).await;
        let completed = completed.unwrap();
        let restart = events.iter().position(|event| *event == ModelEvent::Restarted).expect("a restart");
        assert_eq!(text_of(&events[..restart]), "void void ");
        assert_eq!(text_of(&events[restart..]), "second try");
        assert_eq!(completed.turn.text, "second try");
        assert_eq!(completed.abandoned.len(), 1, "the first attempt was charged too");

        let server = ModelServer::start(script()).await.unwrap();
        let error = collect(&server, kind, &asking("hi"), quick()).await.1.unwrap_err();
        assert_eq!((error.class, server.requests().len()), (ErrorClass::Interrupted, 1));
    }
}

#[tokio::test]
async fn attempts_and_restarts_are_bounded() {
    let server = ModelServer::start(Script::of(vec![ScriptTurn::fault(Fault::http(500))])).await.unwrap();
    let error = collect(&server, EndpointKind::OpenAiCompatible, &asking("hi"), quick()).await.1.unwrap_err();
    assert_eq!((error.attempts, server.requests().len()), (5, 5));
    assert!(
        error.message.contains("provider returned 500") && error.message.contains("5 attempts"),
        "{error}"
    );

    let server = ModelServer::start(Script::of(vec![ScriptTurn::text("a b c").with_fault(Fault::cut(1))]))
        .await
        .unwrap();
    let policy = TurnPolicy { restarts: 2, ..quick() };
    let (events, completed) = collect(&server, EndpointKind::Anthropic, &asking("hi"), policy).await;
    assert_eq!(completed.unwrap_err().class, ErrorClass::Interrupted);
    assert_eq!(
        (events.iter().filter(|event| **event == ModelEvent::Restarted).count(), server.requests().len()),
        (2, 3)
    );
}

#[tokio::test]
async fn refusals_that_waiting_does_not_cure_are_sent_once_and_say_what_the_provider_said() {
    let table = [
        (400, "invalid_request_error", "bad role", ErrorClass::BadRequest),
        (401, "invalid_api_key", "Incorrect API key", ErrorClass::Authentication),
        (404, "model_not_found", "no such model", ErrorClass::NotFound),
        (429, "insufficient_quota", "You exceeded your current quota", ErrorClass::Quota),
        (400, "context_length_exceeded", "maximum context length", ErrorClass::ContextTooLong),
        (400, "content_filter", "filtered", ErrorClass::ContentFilter),
    ];
    for (status, code, message, class) in table {
        for kind in KINDS {
            let fault = Fault::Http(HttpFault {
                status,
                retry_after: None,
                message: Some(message.to_owned()),
                code: Some(code.to_owned()),
            });
            let server = ModelServer::start(Script::of(vec![ScriptTurn::fault(fault)])).await.unwrap();
            let error = collect(&server, kind, &asking("hi"), quick()).await.1.unwrap_err();
            assert_eq!(
                (error.class, error.status, server.requests().len()),
                (class, Some(status), 1),
                "{kind} {error}"
            );
            assert_eq!(error.message, format!("provider returned {status}: {message}"));
        }
    }
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_its_limit_and_named_beyond() {
    let limited = |seconds: &str| {
        Fault::Http(HttpFault {
            status: 429,
            retry_after: Some(seconds.to_owned()),
            message: None,
            code: None,
        })
    };
    let server =
        ModelServer::start(Script::of(vec![ScriptTurn::fault(limited("0.2")), ScriptTurn::text("ok")]))
            .await
            .unwrap();
    let started = std::time::Instant::now();
    collect(&server, EndpointKind::OpenAiCompatible, &asking("hi"), quick()).await.1.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());

    let server = ModelServer::start(Script::of(vec![ScriptTurn::fault(limited("3600"))])).await.unwrap();
    let error = collect(&server, EndpointKind::Anthropic, &asking("hi"), quick()).await.1.unwrap_err();
    assert_eq!((error.class, server.requests().len()), (ErrorClass::RateLimited, 1));
    assert!(error.message.contains("3600 seconds"), "{error}");
}

#[tokio::test]
async fn silence_before_and_within_an_answer_ends_the_attempt() {
    for kind in KINDS {
        for after in [0, 2] {
            let server = ModelServer::start(Script::of(vec![
                ScriptTurn::text("a b c d").with_fault(Fault::silence(after)),
            ]))
            .await
            .unwrap();
            let policy = TurnPolicy { idle: Duration::from_millis(50), attempts: 1, ..quick() };
            let error = collect(&server, kind, &asking("hi"), policy).await.1.unwrap_err();
            assert_eq!(error.class, ErrorClass::TimedOut, "{kind} after {after}");
        }
        let slow = ScriptTurn { delay_ms: 60_000, ..ScriptTurn::text("late") };
        let server = ModelServer::start(Script::of(vec![slow])).await.unwrap();
        let policy = TurnPolicy { deadline: Duration::from_millis(50), ..quick() };
        let error = collect(&server, kind, &asking("hi"), policy).await.1.unwrap_err();
        assert_eq!(error.class, ErrorClass::TimedOut);
        assert!(error.message.contains("longer than"), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_nobody_serves_is_named_in_the_error() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let endpoint =
        Endpoint::new(EndpointKind::OpenAiCompatible, &format!("http://127.0.0.1:{port}/v1")).unwrap();
    let policy = TurnPolicy { attempts: 2, ..quick() };
    let mut stream = client().stream(&endpoint, &asking("hi"), policy).unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable);
    assert!(error.message.contains(&format!("http://127.0.0.1:{port}")), "{error}");
    assert!(error.message.to_lowercase().contains("refused"), "{error}");
    assert!(error.hint().unwrap().contains("TRESTLE_MODEL_URL"));
    assert!(stream.progress().charged().is_empty());
}

#[tokio::test]
async fn dropping_the_stream_stops_the_provider_and_what_was_used_stays_known() {
    for kind in KINDS {
        let turn = ScriptTurn {
            repeat: Some(Repeat { text: "tick ".to_owned(), times: u64::MAX, stamp: false }),
            delta_delay_ms: 1,
            ..ScriptTurn::default()
        };
        let server = ModelServer::start(Script::of(vec![turn])).await.unwrap();
        let mut stream = client().stream(&endpoint(&server, kind), &asking("hi"), quick()).unwrap();
        for _ in 0..3 {
            stream.next().await.unwrap().unwrap();
        }
        let progress = stream.progress();
        drop(stream);
        server.wait_for(|requests| requests[0].outcome == Outcome::ClientGone).await.unwrap();
        let charged = progress.charged();
        assert_eq!(charged.len(), 1);
        assert!(
            charged[0].input_tokens.unwrap() > 0 && charged[0].output_tokens.unwrap() >= 4,
            "{charged:?}"
        );
        assert!(!progress.is_complete());
    }
}

#[tokio::test]
async fn a_wrong_key_is_told_without_showing_it() {
    let script = Script { api_key: Some("right".to_owned()), ..Script::saying("ok") };
    let server = ModelServer::start(script).await.unwrap();
    for kind in KINDS {
        let with = |key: &str| endpoint(&server, kind).with_key(Some(SecretString::from(key.to_owned())));
        let mut stream = client().stream(&with("right"), &asking("hi"), quick()).unwrap();
        assert!(stream.next().await.unwrap().is_ok());
        let mut stream = client().stream(&with("wrong-canary"), &asking("hi"), quick()).unwrap();
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!(error.class, ErrorClass::Authentication);
        assert!(!error.message.contains("canary"), "{error}");
    }
    let echo = Fault::Http(HttpFault {
        status: 400,
        retry_after: None,
        message: Some("key sk-canary is odd".to_owned()),
        code: None,
    });
    let server = ModelServer::start(Script::of(vec![ScriptTurn::fault(echo)])).await.unwrap();
    let keyed =
        endpoint(&server, EndpointKind::OpenAiCompatible).with_key(Some(SecretString::from("sk-canary")));
    let error = client().stream(&keyed, &asking("hi"), quick()).unwrap().next().await.unwrap().unwrap_err();
    assert_eq!(error.message, "provider returned 400: key [redacted:model-key] is odd");
}

#[tokio::test]
async fn an_answer_in_one_document_is_taken_like_a_stream() {
    for kind in KINDS {
        let document = match kind {
            EndpointKind::OpenAiCompatible => {
                r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#
            }
            EndpointKind::Anthropic => {
                r#"{"type":"message","content":[{"type":"text","text":"whole"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#
            }
        };
        let fault = Fault::Body(BodyFault {
            text: document.to_owned(),
            content_type: Some("application/json".to_owned()),
        });
        let completed = ask(Script::of(vec![ScriptTurn::fault(fault)]), kind).await.unwrap();
        assert_eq!(
            (completed.turn.text.as_str(), completed.turn.usage.input_tokens),
            ("whole", Some(3)),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_filtered_or_cut_answer_says_so() {
    for kind in KINDS {
        let stopped =
            |stop, text: &str| Script::of(vec![ScriptTurn { stop: Some(stop), ..ScriptTurn::text(text) }]);
        assert_eq!(ask(stopped(Stop::Length, "half"), kind).await.unwrap().stop, StopReason::Length);
        assert_eq!(
            ask(stopped(Stop::ContentFilter, ""), kind).await.unwrap_err().class,
            ErrorClass::ContentFilter,
            "{kind}"
        );
        assert_eq!(ask(stopped(Stop::Refusal, "I cannot"), kind).await.unwrap().turn.text, "I cannot");
    }
}

#[tokio::test]
async fn broken_tool_arguments_reach_the_caller_beside_an_empty_input() {
    for kind in KINDS {
        let call =
            ScriptCall { arguments: Some("{\"x\": oops".to_owned()), ..ScriptCall::new("f", json!({})) };
        let turn = ScriptTurn { tool_calls: vec![call], ..ScriptTurn::default() };
        let completed = ask(Script::of(vec![turn]), kind).await.unwrap();
        assert_eq!(completed.turn.tool_calls[0].invalid_input.as_deref(), Some("{\"x\": oops"), "{kind}");
        assert!(completed.turn.tool_calls[0].input.is_empty());
    }
}

#[tokio::test]
async fn five_thousand_deltas_arrive_in_order_and_the_connection_is_used_again() {
    for kind in KINDS {
        let turn = ScriptTurn {
            repeat: Some(Repeat { text: "tick ".to_owned(), times: 5000, stamp: false }),
            ..ScriptTurn::default()
        };
        let server = ModelServer::start(Script::of(vec![turn])).await.unwrap();
        let (events, completed) = collect(&server, kind, &asking("hi"), quick()).await;
        assert_eq!(events.len(), 5000);
        assert_eq!(completed.unwrap().turn.text, "tick ".repeat(5000));
    }
}
