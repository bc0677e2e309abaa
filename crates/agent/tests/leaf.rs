//! Whole leaves against a scripted host: what is sent to the model, which events appear in
//! which order, and how each kind of end looks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use scripted::{Reply, ScriptedHost, call, delta, request, text_turn, tool_turn};
use serde_json::json;
use trestle_agent::{AgentError, ModelCallKind, run_leaf};
use trestle_contract::ErrorCode;
use trestle_contract::inference::{ChatMessage, Content, ContentPart, InferenceFrame};
use trestle_contract::json::RawJson;

const WEATHER: &str = r#"[{"name":"weather","description":"d","input_schema":{"type":"object"}},
    {"name":"slow","description":"d","input_schema":{"type":"object"}}]"#;

#[tokio::test]
async fn a_plain_answer_has_the_plain_sequence_of_events() {
    let host = ScriptedHost::new();
    host.model(vec![Reply::frames(vec![delta("Hel"), delta("lo"), text_turn("Hello", 10, 4)])]);
    let answer = run_leaf(&host, request("Say hello", json!({ "name": "greeter" }))).await.unwrap();
    assert_eq!(answer.get(), "\"Hello\"");
    assert_eq!(
        host.kinds(),
        ["turn_started", "text_start", "text_delta", "text_delta", "text_end", "turn_ended"]
    );
    let events = host.events();
    assert_eq!(events[0], json!({ "agentId": "agent-1", "agentName": "greeter", "kind": "turn_started" }));
    assert_eq!(events[1], json!({ "blockId": "text-1", "kind": "text_start" }));
    assert_eq!(events[2], json!({ "blockId": "text-1", "text": "Hel", "kind": "text_delta" }));
    assert_eq!(
        events[5],
        json!({
            "agentId": "agent-1", "agentName": "greeter", "kind": "turn_ended", "reason": "complete",
            "usage": { "inputTokens": 10, "outputTokens": 4 },
        })
    );
    let turns = host.turn_ids();
    assert!(turns[0].starts_with("turn-") && turns.iter().all(|turn| *turn == turns[0]));
    assert_eq!(host.usages(), [(Some("test/model".to_owned()), 10, 4, false)]);
    let requests = host.requests();
    let [sent] = &requests[..] else { panic!("one model call") };
    let [ChatMessage::User { content: Content::Text(text) }] = &sent.messages[..] else {
        panic!("one bare text")
    };
    assert!(
        text.ends_with("\n\nSay hello") && text.starts_with("<env>\nDate: Monday, 2025-12-01 UTC\n</env>")
    );
    assert!(sent.tools.is_empty() && sent.reasoning.is_none());
}

#[tokio::test]
async fn an_answer_that_was_not_streamed_is_shown_too_and_an_empty_one_is_not() {
    let host = ScriptedHost::new();
    host.model(vec![Reply::frames(vec![text_turn("whole", 1, 1)])]);
    assert_eq!(run_leaf(&host, request("p", json!({}))).await.unwrap().get(), "\"whole\"");
    assert_eq!(host.kinds(), ["turn_started", "text_start", "text_delta", "text_end", "turn_ended"]);
    let host = ScriptedHost::new();
    host.model(vec![Reply::frames(vec![text_turn("", 1, 1)])]);
    assert_eq!(run_leaf(&host, request("p", json!({}))).await.unwrap().get(), "\"\"");
    assert_eq!(host.kinds(), ["turn_started", "turn_ended"]);
}

#[tokio::test]
async fn tools_run_at_once_and_their_results_go_back_in_call_order() {
    let host = ScriptedHost::new();
    host.model(vec![
        Reply::frames(vec![
            delta("Looking"),
            tool_turn(
                "Looking",
                vec![call("c1", "slow", json!({ "q": 1 })), call("c2", "weather", json!({}))],
                10,
                1,
            ),
        ]),
        Reply::frames(vec![delta("Done"), text_turn("Done", 20, 2)]),
    ]);
    // The first call can finish only after the second one has.
    host.tool("slow", |gate| {
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            Ok(RawJson::parse("{\"b\": 1.50}").unwrap())
        })
    });
    host.tool("weather", |gate| {
        Box::pin(async move {
            gate.add_permits(1);
            Ok(RawJson::parse("\"sunny\\nand warm\"").unwrap())
        })
    });
    let options = json!({ "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
    assert_eq!(run_leaf(&host, request("p", options)).await.unwrap().get(), "\"Done\"");
    assert_eq!(
        host.kinds()[1..],
        [
            "text_start",
            "text_delta",
            "text_end",
            "tool_call_start",
            "tool_call_input_complete",
            "tool_call_executing",
            "tool_call_start",
            "tool_call_input_complete",
            "tool_call_executing",
            "tool_call_result",
            "tool_call_result",
            "text_start",
            "text_delta",
            "text_end",
            "turn_ended",
        ]
    );
    let events = host.events();
    assert_eq!(events[4], json!({ "kind": "tool_call_start", "toolCallId": "c1", "toolName": "slow" }));
    assert_eq!(
        events[5],
        json!({ "kind": "tool_call_input_complete", "toolCallId": "c1", "input": { "q": 1 } })
    );
    let result = json!({ "kind": "tool_call_result", "toolCallId": "c2", "result": { "humanSummary": "sunny and warm" } });
    assert_eq!(events[10], result, "the faster one is shown first");
    assert_eq!(events[12]["blockId"], "text-2");
    assert_eq!(events.last().unwrap()["usage"], json!({ "inputTokens": 30, "outputTokens": 3 }));
    let requests = host.requests();
    assert_eq!(
        requests[0].tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
        ["weather", "slow"]
    );
    assert_eq!(
        serde_json::to_value(&requests[1].messages[1..]).unwrap(),
        json!([
            { "role": "assistant", "text": "Looking", "toolCalls": [
                { "id": "c1", "name": "slow", "input": { "q": 1 } }, { "id": "c2", "name": "weather", "input": {} },
            ] },
            { "role": "tool_results", "results": [
                { "id": "c1", "content": "{\"b\": 1.50}", "isError": false },
                { "id": "c2", "content": "sunny\nand warm", "isError": false },
            ] },
        ])
    );
    let calls = host.invocations();
    assert_eq!((calls[0].call_id.as_str(), calls[0].turn, calls[0].input.get()), ("17", 1, "{\"q\":1}"));
}

#[tokio::test]
async fn a_tool_that_fails_or_does_not_exist_goes_back_to_the_model() {
    let host = ScriptedHost::new();
    let mut broken = call("c3", "weather", json!({}));
    broken.invalid_input = Some("{\"q\": ".to_owned());
    host.model(vec![
        Reply::frames(vec![tool_turn(
            "",
            vec![call("c1", "weather", json!({})), call("c2", "invented", json!({})), broken],
            1,
            1,
        )]),
        Reply::frames(vec![text_turn("ok", 1, 1)]),
    ]);
    host.tool("weather", |_| {
        Box::pin(async { Err(AgentError::new(ErrorCode::ToolError, "no network").with_hint("try later")) })
    });
    let options = json!({ "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
    run_leaf(&host, request("p", options)).await.unwrap();
    let of = |id: &str| -> Vec<serde_json::Value> {
        host.events().into_iter().filter(|event| event["toolCallId"] == id).collect()
    };
    assert_eq!(
        of("c1").iter().map(|event| event["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["tool_call_start", "tool_call_input_complete", "tool_call_executing", "tool_call_error"]
    );
    assert_eq!(of("c1")[3]["error"], json!({ "code": "TOOL_ERROR", "message": "no network" }));
    for id in ["c2", "c3"] {
        let kinds: Vec<_> = of(id).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
        assert_eq!(
            kinds,
            ["tool_call_start", "tool_call_input_complete", "tool_call_error"],
            "{id} never ran"
        );
        assert_eq!(of(id)[2]["error"]["code"], "VALIDATION_FAILED");
    }
    let requests = host.requests();
    let ChatMessage::ToolResults { results } = &requests[1].messages[2] else { panic!("results") };
    let shown: Vec<(bool, String)> =
        results.iter().map(|result| (result.is_error, result.content.text())).collect();
    assert_eq!(shown[0], (true, "Tool failed: no network\nHint: try later".to_owned()));
    assert!(
        shown[1].0
            && shown[1].1.contains("there is no tool \"invented\"")
            && shown[1].1.contains("weather, slow")
    );
    assert!(shown[2].0 && shown[2].1.contains("arguments were not a JSON object"));
    assert_eq!(host.invocations().len(), 1);
}

#[tokio::test]
async fn two_leaves_at_once_keep_to_their_own_turns() {
    let host = ScriptedHost::new();
    host.model(vec![
        Reply::frames(vec![delta("a"), text_turn("a", 1, 1)]).after(1),
        Reply::frames(vec![delta("b"), text_turn("b", 2, 2)]).releases(1),
    ]);
    let mut second = request("second", json!({ "name": "critic" }));
    second.agent_id = "agent-2".try_into().unwrap();
    let (first, second) = tokio::join!(run_leaf(&host, request("first", json!({}))), run_leaf(&host, second));
    // Which of the two asks first is open; the reply to that one is held until the other has its own.
    let mut answers = [first.unwrap().get().to_owned(), second.unwrap().get().to_owned()];
    answers.sort();
    assert_eq!(answers, ["\"a\"", "\"b\""]);
    let mut turns = host.turn_ids();
    turns.sort();
    turns.dedup();
    assert_eq!(turns.len(), 2);
    for turn in turns {
        let kinds = host.kinds_of(&turn);
        assert_eq!(kinds, ["turn_started", "text_start", "text_delta", "text_end", "turn_ended"]);
    }
    assert_eq!(host.begun(), 2);
}

#[tokio::test]
async fn a_reset_voids_the_open_block_and_nothing_of_it_comes_back() {
    let host = ScriptedHost::new();
    host.secret("KEY", "hunter22");
    host.model(vec![Reply::frames(vec![
        delta("first hunt"),
        InferenceFrame::Reset,
        delta("er22 second"),
        InferenceFrame::Ping,
        text_turn("er22 second", 1, 1),
    ])]);
    let answer = run_leaf(&host, request("p", json!({}))).await.unwrap();
    assert_eq!(answer.get(), "\"er22 second\"");
    assert_eq!(
        host.kinds(),
        ["turn_started", "text_start", "text_delta", "turn_reset", "text_delta", "text_end", "turn_ended"]
    );
    assert_eq!(host.texts(), ["first ", "er22 second"], "what was held back is void too");
}

#[tokio::test]
async fn reasoning_is_shown_and_never_becomes_part_of_the_conversation() {
    let host = ScriptedHost::new();
    host.model(vec![
        Reply::frames(vec![
            InferenceFrame::Reasoning { text: "hmm".to_owned() },
            delta("x"),
            tool_turn("x", vec![call("c", "weather", json!({}))], 1, 1),
        ]),
        Reply::frames(vec![text_turn("y", 1, 1)]),
    ]);
    host.tool("weather", |_| Box::pin(async { Ok(RawJson::null()) }));
    let options = json!({
        "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap(),
        "reasoning": { "effort": "high", "maxTokens": 100, "exclude": false },
    });
    run_leaf(&host, request("p", options)).await.unwrap();
    assert_eq!(host.kinds()[1..4], ["reasoning_delta", "text_start", "text_delta"]);
    let requests = host.requests();
    assert!(!serde_json::to_string(&requests[1].messages).unwrap().contains("hmm"));
    assert_eq!(serde_json::to_value(&requests[0].reasoning).unwrap(), json!({ "effort": "high" }));
    assert_eq!(requests[0].reasoning, requests[1].reasoning);
    let ChatMessage::ToolResults { results } = &requests[1].messages[2] else { panic!("results") };
    assert_eq!(results[0].content, Content::Text(String::new()), "null is no text");
}

#[tokio::test]
async fn no_secret_reaches_the_model_the_events_or_the_error() {
    let host = ScriptedHost::new();
    host.secret("KEY", "hunter22-value");
    host.model(vec![
        Reply::frames(vec![
            delta("it is hunt"),
            delta("er22-val"),
            InferenceFrame::Reasoning { text: "hunter22-value".to_owned() },
            delta("ue!"),
            tool_turn(
                "it is hunter22-value!",
                vec![call("c", "weather", json!({ "k": "hunter22-value" }))],
                1,
                1,
            ),
        ]),
        Reply::fails(
            AgentError::new(ErrorCode::ProviderError, "400: key hunter22-value")
                .with_hint("not hunter22-value"),
        ),
    ]);
    host.tool("weather", |_| {
        Box::pin(async { Ok(RawJson::parse("{\"token\":\"hunter22-value\"}").unwrap()) })
    });
    let options = json!({
        "name": "hunter22-value",
        "tools": [{ "name": "weather", "description": "uses hunter22-value", "input_schema": { "default": "hunter22-value" } }],
        "attachments": [{ "mimeType": "a/b", "data": "aGk=", "filename": "hunter22-value.txt" }],
    });
    let error = run_leaf(&host, request("use hunter22-value", options)).await.unwrap_err();
    assert_eq!(error.message, "400: key [redacted:KEY]");
    assert_eq!(error.hint.as_deref(), Some("not [redacted:KEY]"));
    let events = serde_json::to_string(&host.events()).unwrap();
    let requests = serde_json::to_string(&host.requests()).unwrap();
    for (where_, text) in [("events", &events), ("requests", &requests)] {
        assert!(!text.contains("hunter22"), "{where_}: {text}");
        assert!(text.matches("[redacted:KEY]").count() >= 4, "{where_}: {text}");
    }
    assert_eq!(host.texts().concat(), "it is [redacted:KEY]!");
    assert_eq!(
        host.invocations()[0].input.get(),
        "{\"k\":\"hunter22-value\"}",
        "the tool gets what the model wrote"
    );
}

#[tokio::test]
async fn an_answer_that_misses_its_schema_gets_one_more_turn() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let host = ScriptedHost::new();
    host.model(vec![
        Reply::frames(vec![delta("{\"n\":\"five\"}"), text_turn("{\"n\":\"five\"}", 10, 1)]),
        Reply::frames(vec![delta("Sure: {\"n\": 5.0}"), text_turn("Sure: {\"n\": 5.0}", 20, 2)]),
    ]);
    let options =
        json!({ "schema": schema, "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
    let answer = run_leaf(&host, request("p", options)).await.unwrap();
    assert_eq!(answer.get(), "{\"n\": 5.0}", "byte for byte");
    let events = host.events();
    let blocks: Vec<_> = events
        .iter()
        .filter(|event| event["kind"] == "text_start")
        .map(|event| event["blockId"].clone())
        .collect();
    assert_eq!(blocks, ["text-1", "text-schema-retry"]);
    assert_eq!(events.last().unwrap()["usage"], json!({ "inputTokens": 30, "outputTokens": 3 }));
    let requests = host.requests();
    assert!(
        requests[0].messages[0..1]
            .iter()
            .any(|message| serde_json::to_string(message).unwrap().contains("JSON Schema"))
    );
    assert!(!requests[0].tools.is_empty() && requests[1].tools.is_empty());
    let ChatMessage::User { content } = requests[1].messages.last().unwrap() else { panic!("a correction") };
    assert!(content.text().contains("/n:") && content.text().contains("integer"), "{}", content.text());
    assert_eq!(host.calls()[1].kind, ModelCallKind::SchemaRetry);
    assert_eq!(
        host.calls().iter().map(|call| call.key()).collect::<Vec<_>>(),
        ["agent-1/1", "agent-1/2/schema-retry"]
    );
}

#[tokio::test]
async fn a_second_miss_is_a_validation_failure_with_its_turn_ended() {
    for (answer, fragment) in
        [("no json", "not valid JSON (after a retry)"), ("{}", "does not satisfy its schema (after a retry)")]
    {
        let host = ScriptedHost::new();
        host.model(vec![
            Reply::frames(vec![text_turn(answer, 1, 1)]),
            Reply::frames(vec![text_turn(answer, 1, 1)]),
        ]);
        let error =
            run_leaf(&host, request("p", json!({ "schema": { "required": ["n"] } }))).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationFailed);
        assert!(error.message.contains(fragment), "{}", error.message);
        assert!(error.hint.unwrap().contains(answer));
        assert_eq!(host.kinds().iter().filter(|kind| *kind == "turn_ended").count(), 1);
        let events = host.events();
        let last = events.last().unwrap();
        assert_eq!(
            (last["reason"].as_str(), last["error"]["code"].as_str()),
            (Some("error"), Some("VALIDATION_FAILED"))
        );
        assert_eq!(last["error"].get("hint"), None);
    }
}

#[tokio::test]
async fn a_budget_stops_the_loop_before_the_next_call_and_keeps_the_answer_that_crossed_it() {
    let host = ScriptedHost::new();
    host.budget(15);
    host.model(vec![
        Reply::frames(vec![tool_turn("", vec![call("c", "weather", json!({}))], 10, 6)]),
        Reply::frames(vec![text_turn("never", 1, 1)]),
    ]);
    host.tool("weather", |_| Box::pin(async { Ok(RawJson::null()) }));
    let options = json!({ "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
    let error = run_leaf(&host, request("p", options)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BudgetExceeded);
    assert_eq!(host.requests().len(), 1);
    assert_eq!(host.events().last().unwrap()["error"]["code"], "BUDGET_EXCEEDED");

    let host = ScriptedHost::new();
    host.budget(15);
    host.model(vec![Reply::frames(vec![text_turn("delivered", 100, 100)])]);
    assert_eq!(run_leaf(&host, request("p", json!({}))).await.unwrap().get(), "\"delivered\"");
}

#[tokio::test]
async fn run_fatal_tool_failures_escape_and_stop_the_others() {
    for code in [ErrorCode::BudgetExceeded, ErrorCode::Cancelled] {
        let host = ScriptedHost::new();
        host.model(vec![Reply::frames(vec![tool_turn(
            "",
            vec![call("c1", "slow", json!({})), call("c2", "weather", json!({}))],
            1,
            1,
        )])]);
        host.tool("slow", |_| Box::pin(std::future::pending()));
        host.tool("weather", move |_| Box::pin(async move { Err(AgentError::new(code, "enough")) }));
        let options = json!({ "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
        let error = run_leaf(&host, request("p", options)).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, "enough"));
        let kinds = host.kinds();
        assert_eq!(kinds[kinds.len() - 3..], ["tool_call_error", "tool_call_error", "turn_ended"]);
        let events = host.events();
        assert_eq!(events[events.len() - 2]["toolCallId"], "c1");
        assert_eq!(events[events.len() - 2]["error"]["code"], "CANCELLED");
    }
}

#[tokio::test]
async fn a_cancel_ends_every_kind_of_wait() {
    for place in ["budget", "connect", "stream", "tool"] {
        let host = ScriptedHost::new();
        match place {
            "budget" => host.hold_budget(),
            "connect" => host.model(vec![Reply::never()]),
            "stream" => host.model(vec![Reply::frames(vec![delta("half an answer")]).then_never()]),
            _ => {
                host.model(vec![Reply::frames(vec![tool_turn(
                    "",
                    vec![call("c", "slow", json!({}))],
                    1,
                    1,
                )])]);
                host.tool("slow", |_| Box::pin(std::future::pending()));
            }
        }
        let options = json!({ "tools": serde_json::from_str::<serde_json::Value>(WEATHER).unwrap() });
        let leaf = run_leaf(&host, request("p", options));
        let cancel = async {
            host.until_waiting().await;
            host.cancel("cancelled");
        };
        let (outcome, ()) = tokio::join!(leaf, cancel);
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.code, error.reason.as_deref()),
            (ErrorCode::Cancelled, Some("cancelled")),
            "{place}"
        );
        let kinds = host.kinds();
        assert_eq!(kinds.iter().filter(|kind| *kind == "turn_ended").count(), 1, "{place}: {kinds:?}");
        assert_eq!(kinds.last().unwrap(), "turn_ended", "{place}");
        assert_eq!(host.events().last().unwrap()["error"]["code"], "CANCELLED");
        if place == "stream" {
            let usages = host.usages();
            assert!(
                usages.len() == 1 && usages[0].3 && usages[0].1 > 0 && usages[0].2 == 4,
                "a guess: {usages:?}"
            );
        }
        if place == "tool" {
            assert_eq!(kinds[kinds.len() - 2], "tool_call_error");
        }
    }
}

#[tokio::test]
async fn a_run_that_is_aborted_already_starts_no_turn() {
    let host = ScriptedHost::new();
    host.cancel("lease_lost");
    let error = run_leaf(&host, request("p", json!({}))).await.unwrap_err();
    assert_eq!(error.reason.as_deref(), Some("lease_lost"));
    assert!(host.events().is_empty() && host.requests().is_empty());
}

#[tokio::test]
async fn bad_options_cost_nothing_and_show_nothing() {
    for options in [
        json!({ "cwd": "missing" }),
        json!({ "cwd": "../out" }),
        json!({ "cwd": "file.txt" }),
        json!({ "skills": ["none"] }),
        json!({ "schema": { "$ref": "https://example.com/x" } }),
        json!({ "schema": { "type": 5 } }),
        json!({ "attachments": [{ "mimeType": "a/b" }] }),
        json!({ "builtins": ["read"] }),
        json!({ "humanInput": true }),
    ] {
        let host = ScriptedHost::new();
        host.write("file.txt", "");
        let error = run_leaf(&host, request("p", options.clone())).await.unwrap_err();
        assert!(matches!(error.code, ErrorCode::ValidationFailed | ErrorCode::Unsupported), "{options}");
        assert!(error.hint.is_some(), "{options}");
        assert!(host.events().is_empty() && host.requests().is_empty(), "{options}");
    }
}

#[tokio::test]
async fn a_failed_model_call_ends_the_turn_with_its_code() {
    for (reply, code, message) in [
        (
            Reply::frames(vec![InferenceFrame::Error {
                error: serde_json::from_value(json!({ "code": "MODEL_UNRESOLVED", "message": "no model" }))
                    .unwrap(),
            }]),
            "MODEL_UNRESOLVED",
            "no model",
        ),
        (
            Reply::frames(vec![InferenceFrame::Error {
                error: serde_json::from_value(json!({ "code": "weird", "message": "overloaded" })).unwrap(),
            }]),
            "PROVIDER_ERROR",
            "overloaded",
        ),
        (Reply::frames(vec![delta("x")]), "PROVIDER_ERROR", "ended without a result"),
        (Reply::fails(AgentError::new(ErrorCode::RateLimit, "slow down")), "RATE_LIMIT", "slow down"),
    ] {
        let host = ScriptedHost::new();
        host.model(vec![reply]);
        let error = run_leaf(&host, request("p", json!({}))).await.unwrap_err();
        assert!(error.message.contains(message), "{}", error.message);
        let events = host.events();
        assert_eq!(events.last().unwrap()["error"]["code"], code);
        assert_eq!(
            host.usages().len(),
            usize::from(message == "ended without a result"),
            "only what had begun is charged"
        );
    }
}

#[tokio::test]
async fn the_last_turn_has_no_tools_and_its_text_is_the_answer() {
    let host = ScriptedHost::new();
    let turn = |n: u64| {
        Reply::frames(vec![tool_turn("so far", vec![call("c", "weather", json!({ "n": n }))], 1, 1)])
    };
    host.model((1..=6).map(turn).collect());
    host.tool("weather", |_| Box::pin(async { Ok(RawJson::null()) }));
    let tools = serde_json::from_str::<serde_json::Value>(WEATHER).unwrap();
    let answer =
        run_leaf(&host, request("p", json!({ "tools": tools, "maxIterations": 5.9 }))).await.unwrap();
    assert_eq!(answer.get(), "\"so far\"");
    let requests = host.requests();
    assert_eq!(requests.len(), 6);
    assert!(requests[..5].iter().all(|request| request.tools.len() == 2) && requests[5].tools.is_empty());
    let notes = |index: usize| serde_json::to_string(&requests[index].messages).unwrap();
    assert!(
        !notes(1).contains("[note: countdown]") && notes(2).contains("[note: countdown] 3 tool turns remain")
    );
    assert_eq!(host.invocations().len(), 5, "the calls of the last turn are not made");
}

#[tokio::test]
async fn an_agent_that_goes_in_circles_is_told_and_then_stopped() {
    let host = ScriptedHost::new();
    let turn = |_| Reply::frames(vec![tool_turn("", vec![call("c", "weather", json!({}))], 1, 1)]);
    host.model((0..6).map(turn).collect());
    host.tool("weather", |_| Box::pin(async { Ok(RawJson::null()) }));
    let tools = serde_json::from_str::<serde_json::Value>(WEATHER).unwrap();
    let error = run_leaf(&host, request("p", json!({ "tools": tools }))).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProgramError);
    assert_eq!(
        (host.requests().len(), host.invocations().len()),
        (5, 4),
        "stopped before the tools of the fifth turn"
    );
    let last = host.requests().pop().unwrap();
    assert_eq!(serde_json::to_string(&last.messages).unwrap().matches("[note: repeated-calls]").count(), 1);
}

#[tokio::test]
async fn attachments_follow_the_text_and_skills_are_read_from_the_package() {
    let host = ScriptedHost::new();
    host.write_package("skills/pdf/SKILL.md", "---\ndescription: Reads PDFs\n---\nUse pdftotext.");
    host.write("api/AGENTS.md", "api guide");
    host.write("AGENTS.md", "root guide");
    host.model(vec![
        Reply::frames(vec![tool_turn("", vec![call("c", "skill", json!({ "name": "pdf" }))], 1, 1)]),
        Reply::frames(vec![text_turn("ok", 1, 1)]),
    ]);
    let options = json!({
        "skills": ["pdf"], "cwd": "api",
        "attachments": [{ "mimeType": "image/png", "data": "aGk=", "filename": "a.png" }, { "mimeType": "text/plain", "url": "https://x/y" }],
    });
    run_leaf(&host, request("PROMPT", options)).await.unwrap();
    let requests = host.requests();
    let ChatMessage::User { content: Content::Parts(parts) } = &requests[0].messages[0] else {
        panic!("parts")
    };
    let ContentPart::Text { text } = &parts[0] else { panic!("text first") };
    assert!(text.contains("- pdf: Reads PDFs") && text.ends_with("PROMPT"));
    assert!(text.contains("api guide") && !text.contains("root guide"), "the working directory decides");
    assert_eq!(
        serde_json::to_value(&parts[1..]).unwrap(),
        json!([
            { "type": "file", "file": { "mimeType": "image/png", "data": "aGk=", "filename": "a.png" } },
            { "type": "file", "file": { "mimeType": "text/plain", "url": "https://x/y" } },
        ])
    );
    assert_eq!(requests[0].tools[0].name, "skill");
    let ChatMessage::ToolResults { results } = &requests[1].messages[2] else { panic!("results") };
    assert_eq!(results[0].content.text(), "<skill name=\"pdf\">\nUse pdftotext.\n</skill>");
    assert!(host.invocations().is_empty(), "skills are not the program's tools");
}
