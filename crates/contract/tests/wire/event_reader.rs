//! The reader of events: the table of what it accepts, and cursors (`docs/protocol/events.md` §2 and §5).

use proptest::prelude::*;
use serde_json::{Value, json};
use trestle_contract::MAX_SAFE_INTEGER;
use trestle_contract::event::{
    Channel, Cursor, CursorError, DEFAULT_CHANNELS, Event, EventBody, MAX_SEQ, STRIDE, channel_of,
    parse_lenient,
};

fn event(kind: &str, rest: Value) -> Value {
    let mut event = json!({"runId": "r", "turnId": "t", "seq": 1, "t": 5, "kind": kind});
    for (key, value) in rest.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

/// What the reader makes of it, as JSON.
fn read(event: &Value) -> Option<Value> {
    parse_lenient(&event.to_string()).ok().map(|event| serde_json::from_str(&event.to_json()).unwrap())
}

#[test]
fn unknown_keys_are_dropped_at_every_closed_depth() {
    let mut with_error =
        event("run_status", json!({"status": "failed", "error": {"code": "C", "message": "m", "zzz": 1}}));
    let read_back = read(&with_error).unwrap();
    with_error["error"].as_object_mut().unwrap().remove("zzz");
    assert_eq!(read_back, with_error);

    let result = event(
        "tool_call_result",
        json!({"toolCallId": "c", "result": {"extra": 1, "data": {"any": {"deep": null}}}}),
    );
    assert_eq!(read(&result).unwrap()["result"], json!({"data": {"any": {"deep": null}}}));

    let usage = event(
        "turn_ended",
        json!({"agentId": "a", "reason": "complete", "usage": {"inputTokens": 1, "gpuTokens": 2}, "parent": "x"}),
    );
    let read_back = read(&usage).unwrap();
    assert_eq!(read_back["usage"], json!({"inputTokens": 1}));
    assert!(read_back.get("parent").is_none());
}

#[test]
fn everything_but_unknown_keys_drops_the_frame() {
    let dropped = [
        event("turn_ended", json!({"agentId": "a", "unknown": 1})),
        event("paused_for_lunch", json!({})),
        event("run_status", json!({"status": "paused"})),
        event("workspace_persist_skipped", json!({"reason": "overwritten"})),
        event(
            "run_status",
            json!({"status": "failed", "error": {"code": "C", "message": "m", "hint": null}}),
        ),
        event("run_status", json!({"status": "failed", "error": null})),
        event("output", json!({})),
        event("output", json!({"value": 1, "seq": 0})),
        event("output", json!({"value": 1, "seq": MAX_SAFE_INTEGER + 1})),
        event("output", json!({"value": 1, "t": 0.5})),
        event("output", json!({"value": 1, "t": -1})),
        event("output", json!({"value": 1, "runId": ""})),
        event("output", json!({"value": 1, "turnId": ""})),
        event("suspended", json!({"reason": "sleep", "wakeAt": -1})),
        event("compaction_started", json!({"agentId": "a", "tokens": 1, "budget": 1, "contextTokens": 0})),
        event("turn_started", json!({"agentId": "a", "agentName": ""})),
        event("turn_started", json!({"agentId": ""})),
        event("tool_call_input_complete", json!({"toolCallId": "c", "input": [1]})),
        event("tool_call_result", json!({"toolCallId": "c", "result": {"data": []}})),
        json!([]),
        json!("run_status"),
        json!(null),
    ];
    for event in dropped {
        assert_eq!(read(&event), None, "{event}");
    }
    for text in ["", "{", "{\"kind\":\"resumed\"", "undefined"] {
        assert!(parse_lenient(text).is_err(), "{text}");
    }
}

#[test]
fn edge_values_are_accepted() {
    let accepted = [
        event("output", json!({"value": null})),
        event("tool_call_executing", json!({"toolCallId": ""})),
        event("text_start", json!({"blockId": ""})),
        event("text_delta", json!({"blockId": "", "text": ""})),
        event("output", json!({"value": 1, "seq": MAX_SAFE_INTEGER})),
        event("resumed", json!({"seq": 7, "t": 0})),
        event("suspended", json!({"reason": "child"})),
    ];
    for event in accepted {
        assert_eq!(read(&event).as_ref(), Some(&event));
    }
}

#[test]
fn whole_numbers_written_with_a_fraction_are_integers() {
    let text = r#"{"runId":"r","turnId":"t","seq":3.0,"t":5e0,"kind":"resumed"}"#;
    assert_eq!(Event::parse(text).unwrap().envelope.seq.get(), 3);
}

#[test]
fn program_json_inside_of_events_survives_byte_for_byte() {
    let value = "{ \"z\":1,\"a\":12345678901234567890123, \"\\u0000\":\"\\ud800\" ,\"a\":1e400}";
    let text = format!(
        "{{\"kind\":\"output\",\"value\":{value},\"runId\":\"r\",\"turnId\":\"r\",\"seq\":1,\"t\":1}}"
    );
    for event in [Event::parse(&text).unwrap(), parse_lenient(&text).unwrap()] {
        assert!(event.to_json().contains(value));
        let EventBody::Output { value: kept } = event.body else { panic!("not an output") };
        assert_eq!(kept.get(), value);
    }
    let input = "{\"q\" : 1.0, \"b\":9007199254740993}";
    let text = format!(
        "{{\"kind\":\"tool_call_input_complete\",\"toolCallId\":\"c\",\"input\":{input},\"runId\":\"r\",\"turnId\":\"t\",\"seq\":1,\"t\":1}}"
    );
    assert!(Event::parse(&text).unwrap().to_json().contains(input));
    let data = "{\"n\":10000000000000000000000}";
    let text = format!(
        "{{\"kind\":\"tool_call_result\",\"toolCallId\":\"c\",\"result\":{{\"data\":{data}}},\"runId\":\"r\",\"turnId\":\"t\",\"seq\":1,\"t\":1}}"
    );
    assert!(Event::parse(&text).unwrap().to_json().contains(data));
}

#[test]
fn a_repeated_key_is_refused_by_producers_and_the_last_one_counts_for_readers() {
    let text = r#"{"runId":"r","turnId":"t","seq":1,"t":1,"kind":"program_output","stream":"stdout","text":"a","text":"b"}"#;
    assert!(Event::parse(text).is_err());
    let EventBody::ProgramOutput { text, .. } = parse_lenient(text).unwrap().body else {
        panic!("not a line")
    };
    assert_eq!(text, "b");
}

#[test]
fn every_kind_belongs_to_exactly_one_channel() {
    assert_eq!(EventBody::CHANNELS.len(), 26);
    let kinds: std::collections::BTreeSet<_> = EventBody::CHANNELS.iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds.len(), 26);
    let of = |channel| EventBody::CHANNELS.iter().filter(|(_, other)| *other == channel).count();
    assert_eq!(Channel::ALL.map(of), [5, 1, 1, 3, 16]);
    assert_eq!(channel_of("phase"), Some(Channel::Phase));
    assert_eq!(channel_of("workspace_persist_skipped"), Some(Channel::Log));
    assert_eq!(channel_of("something_new"), None);
    assert_eq!(DEFAULT_CHANNELS.map(Channel::as_str), ["lifecycle", "phase", "output"]);
    for channel in Channel::ALL {
        assert_eq!(Channel::from_name(channel.as_str()), Some(channel));
    }
    assert_eq!(Channel::from_name(""), None);
}

#[test]
fn cursors_follow_the_stride() {
    assert_eq!(Cursor::from_parts(0, 999_999).unwrap().get(), 999_999);
    assert_eq!(Cursor::from_parts(3, 1).unwrap().get(), 3_000_001);
    assert_eq!(Cursor::from_parts(0, 1_000_000), Err(CursorError::Sequence(1_000_000)));
    assert_eq!(Cursor::from_parts(0, 0), Err(CursorError::Sequence(0)));
    assert_eq!(Cursor::from_parts(u64::MAX, 1), Err(CursorError::Block(u64::MAX)));
    assert_eq!(Cursor::new(0), Err(CursorError::Value(0)));
    assert!(Cursor::new(MAX_SAFE_INTEGER).is_ok());
    assert!(Cursor::new(MAX_SAFE_INTEGER + 1).is_err());
    assert_eq!(Cursor::block_after(None), 0);
    assert_eq!(Cursor::block_after(Some(Cursor::FIRST)), 1);
    assert_eq!(Cursor::block_after(Some(Cursor::new(3_000_016).unwrap())), 4);
    for text in ["0", "-1", "1.5", "\"1\"", "null"] {
        assert!(serde_json::from_str::<Cursor>(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_cursor_comes_apart_as_it_was_put_together(block in 0_u64..MAX_SAFE_INTEGER / STRIDE, seq in 1..=MAX_SEQ) {
        let cursor = Cursor::from_parts(block, seq).unwrap();
        prop_assert_eq!((cursor.block(), cursor.seq()), (block, seq));
        prop_assert!(Cursor::from_parts(Cursor::block_after(Some(cursor)), 1).map_or(true, |next| next > cursor));
        prop_assert_eq!(serde_json::from_str::<Cursor>(&cursor.to_string()).unwrap(), cursor);
    }

    #[test]
    fn the_reader_never_panics(text in "\\PC*") {
        let _ = parse_lenient(&text);
    }
}
