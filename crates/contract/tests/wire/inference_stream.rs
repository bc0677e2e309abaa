//! The answer stream of a model call (`docs/protocol/control.md` §7.3).

use trestle_contract::Positive;
use trestle_contract::host::{ReasoningOption, ReasoningSettings};
use trestle_contract::inference::{
    ChatMessage, Content, ContentPart, Effort, InferenceFrame, InferenceRequest, Reasoning, TokenCounts,
};

fn parse(line: &str) -> Option<InferenceFrame> {
    InferenceFrame::parse_line(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn frames_of_every_kind_are_written_and_read() {
    for line in [
        r#"{"t":"delta","text":"Hi"}"#,
        r#"{"t":"reasoning","text":"hm"}"#,
        r#"{"t":"reset"}"#,
        r#"{"t":"ping"}"#,
        r#"{"t":"error","error":{"code":"PROVIDER_ERROR","message":"m"}}"#,
        r#"{"t":"result","turn":{"text":"t","toolCalls":[{"id":"c","name":"n","input":{"a":1}}],"usage":{"inputTokens":1,"outputTokens":2,"cachedReadTokens":3,"cachedWriteTokens":4},"wantsTools":true},"modelRef":"p/m","costMicros":5,"contextTokens":6}"#,
    ] {
        let frame = parse(line).unwrap();
        assert_eq!(frame.to_line(), format!("{line}\n"));
        assert_eq!(frame.is_terminal(), line.contains("error") || line.contains("result"));
    }
    assert_eq!(parse("  \r"), None);
}

#[test]
fn odd_members_read_as_their_defaults() {
    assert_eq!(parse(r#"{"t":"delta"}"#), Some(InferenceFrame::Delta { text: String::new() }));
    assert_eq!(parse(r#"{"t":"delta","text":7}"#), Some(InferenceFrame::Delta { text: String::new() }));
    assert_eq!(parse(r#"{"t":"tomorrow","x":1}"#), Some(InferenceFrame::Ping));
    for line in [r#"{"t":"error"}"#, r#"{"t":"error","error":7}"#, r#"{"t":"error","error":{}}"#] {
        let Some(InferenceFrame::Error { error }) = parse(line) else { panic!("{line}") };
        assert_eq!(error.code, "INTERNAL_ERROR");
        assert!(!error.message.is_empty());
    }
    let line = r#"{"t":"result","turn":{"text":"","toolCalls":[],"usage":{"inputTokens":"x"},"wantsTools":1},"modelRef":"m","costMicros":-1,"contextTokens":0}"#;
    let Some(InferenceFrame::Result(result)) = parse(line) else { panic!("{line}") };
    assert_eq!(result.turn.usage, TokenCounts::default());
    assert!(!result.turn.wants_tools);
    assert_eq!((result.cost_micros, result.context_tokens), (None, None));
}

#[test]
fn a_result_without_what_makes_it_one_is_malformed() {
    for line in [
        r#"{"t":"result"}"#,
        r#"{"t":"result","turn":{"text":"","toolCalls":[]}}"#,
        r#"{"t":"result","turn":{"text":"","toolCalls":[]},"modelRef":""}"#,
        r#"{"t":"result","turn":{"text":7,"toolCalls":[]},"modelRef":"m"}"#,
        r#"{"t":"result","turn":{"text":"","toolCalls":{}},"modelRef":"m"}"#,
        r#"{"text":"x"}"#,
        r#"{"t":7}"#,
        "[]",
        "{",
    ] {
        assert!(InferenceFrame::parse_line(line).is_err(), "{line}");
    }
}

#[test]
fn a_text_frame_is_one_line_whatever_the_text() {
    let frame = InferenceFrame::Delta { text: "a\nb\r\n\u{2028}\"\\".to_owned() };
    let line = frame.to_line();
    assert_eq!(line.matches('\n').count(), 1);
    assert_eq!(parse(&line), Some(frame));
}

#[test]
fn reasoning_that_is_no_object_is_ignored() {
    for raw in ["7", "null", "\"high\"", "[]"] {
        let request: InferenceRequest =
            serde_json::from_str(&format!(r#"{{"messages":[],"tools":[],"reasoning":{raw}}}"#)).unwrap();
        assert_eq!(request.reasoning, None, "{raw}");
    }
    for body in [
        r#"{"messages":[]}"#,
        r#"{"tools":[]}"#,
        r#"{"messages":{},"tools":[]}"#,
        r#"{"messages":[],"tools":[],"model":7}"#,
    ] {
        assert!(serde_json::from_str::<InferenceRequest>(body).is_err(), "{body}");
    }
}

#[test]
fn a_text_equals_one_text_part() {
    let parts = Content::Parts(vec![
        ContentPart::Text { text: "a".to_owned() },
        ContentPart::Text { text: "b".to_owned() },
    ]);
    assert_eq!(parts.text(), Content::from("ab").text());
    let message: ChatMessage = serde_json::from_str(r#"{"role":"user","content":"x"}"#).unwrap();
    assert_eq!(serde_json::to_string(&message).unwrap(), r#"{"role":"user","content":"x"}"#);
    assert!(serde_json::from_str::<ChatMessage>(r#"{"role":"system","content":"x"}"#).is_err());
}

#[test]
fn effort_wins_over_a_token_budget() {
    let settings = ReasoningSettings {
        effort: Some(Effort::Low),
        max_tokens: Some(Positive::saturating(9)),
        exclude: Some(false),
    };
    let reasoning = Reasoning::from(&ReasoningOption::Settings(settings));
    assert_eq!(serde_json::to_string(&reasoning).unwrap(), r#"{"effort":"low"}"#);
    let budget =
        ReasoningSettings { effort: None, max_tokens: Some(Positive::saturating(9)), exclude: Some(true) };
    let reasoning = Reasoning::from(&ReasoningOption::Settings(budget));
    assert_eq!(serde_json::to_string(&reasoning).unwrap(), r#"{"maxTokens":9,"exclude":true}"#);
    let named = Reasoning::from(&ReasoningOption::Effort(Effort::Xhigh));
    assert_eq!(serde_json::to_string(&named).unwrap(), r#"{"effort":"xhigh"}"#);
}
