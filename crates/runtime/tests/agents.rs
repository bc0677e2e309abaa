//! Agents of real programs against a scripted control plane: streams, tools, repeats, budgets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::plane::{ModelAnswer, Plane, delta, result, tool_call};
use support::process::run;
use trestle_sandbox::slot::SlotOutcome;

async fn plane(program: &str) -> Plane {
    Plane::start(&[("index.mjs", &support::program(program))]).await
}

async fn output_of(plane: &Plane) -> Value {
    let outcome = run(plane).await;
    let finalized = plane.finalized();
    assert_eq!(outcome, SlotOutcome::Completed, "{finalized}");
    finalized["output"].clone()
}

fn text_of(plane: &Plane) -> String {
    plane.events_of("text_delta").iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_answer_streams_as_events_and_is_returned() {
    let plane = plane("one_agent.mjs").await;
    plane.set_model(|_, _| {
        ModelAnswer::Lines(vec![
            json!({ "t": "ping" }),
            json!({ "t": "reasoning", "text": "hm" }),
            delta("Hé"),
            delta("llo"),
            json!({ "t": "new-kind" }),
            result("Héllo"),
        ])
    });
    assert_eq!(output_of(&plane).await, "Héllo");
    assert_eq!(text_of(&plane), "Héllo");
    let kinds: Vec<_> =
        plane.events().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        kinds,
        [
            "run_status",
            "turn_started",
            "reasoning_delta",
            "text_start",
            "text_delta",
            "text_end",
            "turn_ended",
            "output"
        ]
    );
    assert_eq!(*plane.state.frames.lock().unwrap().keys().nth(1).unwrap(), 1_000_001, "a turn opens a block");
    let ended = &plane.events_of("turn_ended")[0];
    assert_eq!(ended["usage"], json!({ "inputTokens": 10, "outputTokens": 4 }));
    let tokens = &plane.calls("usage/tokens")[0].body;
    assert_eq!(tokens["inputTokens"], 10);
    assert_eq!(tokens["model"], "scripted/model");
    let request = plane.state.model_calls.lock().unwrap()[0].clone();
    assert!(request["turnKey"].is_string());
    assert_eq!(request["model"], "m");
}

#[tokio::test]
async fn two_agents_at_once_with_tools_of_the_same_name_reach_their_own_handlers() {
    let plane = plane("two_agents.mjs").await;
    plane.set_model(|_, request| {
        let messages = request["messages"].as_array().unwrap();
        let text = request.to_string();
        let who = if text.contains("agent-a") { "a" } else { "b" };
        if messages.len() == 1 {
            return ModelAnswer::Lines(vec![tool_call("call-1", "lookup", json!({ "who": who }))]);
        }
        let answer = &messages.last().unwrap()["results"][0];
        ModelAnswer::Lines(vec![result(&format!(
            "{} {}",
            answer["content"].as_str().unwrap(),
            answer["isError"]
        ))])
    });
    let output = output_of(&plane).await;
    assert!(output[0].as_str().unwrap().contains("from a"), "{output}");
    assert!(output[0].as_str().unwrap().ends_with("false"), "{output}");
    assert!(
        output[1].as_str().unwrap().contains("b went wrong"),
        "the model sees what a handler threw: {output}"
    );
    assert!(output[1].as_str().unwrap().ends_with("true"), "{output}");
    assert_eq!(plane.events_of("turn_started").len(), 2);
}

#[tokio::test]
async fn a_call_that_breaks_before_content_is_sent_again_with_the_same_bytes() {
    let plane = plane("one_agent.mjs").await;
    plane.state.claim.lock().unwrap()["capabilities"] = json!([]);
    plane.set_model(|number, _| match number {
        1 => ModelAnswer::Status(503, Value::Null),
        2 => ModelAnswer::Broken(vec![json!({ "t": "ping" })]),
        _ => ModelAnswer::Lines(vec![result("third")]),
    });
    assert_eq!(output_of(&plane).await, "third");
    let calls = plane.calls("inference");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.raw == calls[0].raw));
}

#[tokio::test]
async fn a_call_that_breaks_after_content_is_sent_again_only_where_that_is_free() {
    let model = |number: usize, _: &Value| match number {
        1 => ModelAnswer::Broken(vec![delta("half of")]),
        _ => ModelAnswer::Lines(vec![delta("whole"), result("whole")]),
    };
    let keyed = plane("one_agent.mjs").await;
    keyed.set_model(model);
    assert_eq!(output_of(&keyed).await, "whole");
    let kinds: Vec<_> =
        keyed.events().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    let reset = kinds.iter().position(|kind| kind == "turn_reset").expect("what was shown is void");
    assert!(kinds[reset..].contains(&"text_delta".to_owned()), "{kinds:?}");

    let original = plane("one_agent.mjs").await;
    original.state.claim.lock().unwrap()["capabilities"] = Value::Null;
    original.set_model(model);
    assert_eq!(run(&original).await, SlotOutcome::Failed { code: "PROVIDER_ERROR".into() });
    assert_eq!(original.calls("inference").len(), 1);
}

#[tokio::test]
async fn a_refusal_reaches_the_program_in_the_planes_own_words() {
    let plane = plane("one_agent.mjs").await;
    plane.set_model(|_, _| {
        let error =
            json!({ "code": "MODEL_UNRESOLVED", "message": "no model is set", "hint": "set TRESTLE_MODEL" });
        ModelAnswer::Status(422, json!({ "error": error }))
    });
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "MODEL_UNRESOLVED".into() });
    let error = plane.error();
    assert_eq!(error["hint"], "set TRESTLE_MODEL");
    assert_eq!(plane.events_of("turn_ended")[0]["reason"], "error");
}

#[tokio::test]
async fn the_turn_that_passes_a_budget_is_delivered_and_the_run_fails_even_if_the_program_swallows_it() {
    let plane = plane("swallows_budget.mjs").await;
    plane.edit_manifest(|manifest| manifest["budget"] = json!({ "max_tokens": 13 }));
    plane.set_model(|_, _| ModelAnswer::Lines(vec![result("delivered")]));
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "BUDGET_EXCEEDED".into() });
    assert_eq!(plane.console("stdout"), ["delivered", "BUDGET_EXCEEDED"]);
    assert_eq!(plane.calls("inference").len(), 1);
    assert!(plane.error()["message"].as_str().unwrap().contains("max_tokens"));
}

#[tokio::test]
async fn a_secret_never_reaches_the_model_or_the_events_of_an_agent() {
    let plane = plane("secret_agent.mjs").await;
    plane.set_secret("key", "prompt-canary");
    plane.set_model(|number, _| match number {
        1 => ModelAnswer::Lines(vec![
            delta("prompt-"),
            delta("can"),
            delta("ary"),
            tool_call("c", "tell", json!({ "x": "prompt-canary" })),
        ]),
        _ => ModelAnswer::Lines(vec![result("done")]),
    });
    output_of(&plane).await;
    let everything = plane.everything();
    assert!(!everything.contains("canary"), "{everything}");
}

#[tokio::test]
async fn a_drop_after_a_reset_is_recovered_too_and_only_the_last_text_counts() {
    let plane = plane("one_agent.mjs").await;
    plane.set_model(|number, _| match number {
        1 => ModelAnswer::Broken(vec![delta("void"), json!({ "t": "reset" }), delta("void too")]),
        _ => ModelAnswer::Lines(vec![delta("whole"), result("whole")]),
    });
    assert_eq!(output_of(&plane).await, "whole");
    let kinds: Vec<String> =
        plane.events().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    let last_reset = kinds.iter().rposition(|kind| kind == "turn_reset").unwrap();
    assert_eq!(kinds.iter().filter(|kind| *kind == "turn_reset").count(), 2, "{kinds:?}");
    let after: String = plane.events()[last_reset..]
        .iter()
        .filter(|event| event["kind"] == "text_delta")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(after, "whole");
    let calls = plane.calls("inference");
    assert!(calls.iter().all(|call| call.raw == calls[0].raw), "the same turn key in every attempt");
    assert_eq!(plane.calls("usage/tokens").len(), 1);
}

#[tokio::test]
async fn the_word_of_a_models_provider_is_not_asked_for_again() {
    let plane = plane("one_agent.mjs").await;
    plane.set_model(|_, _| {
        ModelAnswer::Status(
            502,
            json!({ "error": { "code": "PROVIDER_ERROR", "message": "the model is gone" } }),
        )
    });
    assert_eq!(run(&plane).await, SlotOutcome::Failed { code: "PROVIDER_ERROR".into() });
    assert_eq!(plane.error()["message"], "the model is gone");
    assert_eq!(plane.calls("inference").len(), 1);
}

#[tokio::test]
async fn cost_and_cached_tokens_of_a_brokered_turn_are_kept() {
    let program = "import { agent, usage } from '@trestle/workflow'; \
        export default async () => { await agent('say', { builtins: 'none' }); return (await usage.get()).usd.spent; }";
    let plane = Plane::start(&[("index.mjs", program)]).await;
    plane.set_model(|_, _| {
        let turn = json!({ "text": "hi", "toolCalls": [], "wantsTools": false,
            "usage": { "inputTokens": 50, "outputTokens": 4, "cachedReadTokens": 30, "cachedWriteTokens": 10 } });
        ModelAnswer::Lines(vec![json!({ "t": "result", "modelRef": "m", "costMicros": 1_250_000, "contextTokens": 8_000, "turn": turn })])
    });
    assert_eq!(output_of(&plane).await, 1.25);
    let report = &plane.calls("usage/tokens")[0].body;
    assert_eq!((&report["cachedReadTokens"], &report["cachedWriteTokens"]), (&json!(30), &json!(10)));
}
