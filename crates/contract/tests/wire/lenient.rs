//! Lenient objects: a key that is not known is dropped, at any depth.

use crate::samples::{closed_objects, for_each, with_added_key};

#[test]
fn an_added_key_is_dropped_at_any_depth() {
    let mut count = 0;
    for_each(|protocol, entry, group, sample| {
        if protocol.closed {
            return;
        }
        for place in closed_objects(sample, group) {
            let changed = with_added_key(sample, &place).to_string();
            let written = (entry.round_trip)(&changed).unwrap_or_else(|error| {
                panic!("{} {}: a key added at {:?}: {error}", protocol.name, entry.name, place.exact)
            });
            assert_eq!(&written, sample, "{} {} at {:?}", protocol.name, entry.name, place.exact);
            count += 1;
        }
    });
    assert!(count > 130, "only {count} objects");
}

#[test]
fn members_that_mean_something_by_their_absence_have_defaults() {
    use trestle_contract::control::{
        CancelResponse, ChildRequest, FinalizeRequest, ReserveRefusal, ReserveResponse,
    };
    let cancel: CancelResponse = serde_json::from_str("{}").unwrap();
    assert!(!cancel.cancel_requested);
    let child: ChildRequest = serde_json::from_str(r#"{"slug":"s"}"#).unwrap();
    assert!(child.input.is_null());
    assert_eq!((child.ordinal, child.mode), (0, None));
    let refusal: ReserveResponse =
        serde_json::from_str(r#"{"ok":false,"reason":"a reason of tomorrow"}"#).unwrap();
    assert_eq!(refusal.reason, Some(ReserveRefusal::NotEligible));
    let failed: FinalizeRequest = serde_json::from_str(
        r#"{"status":"failed","workerId":"w","output":{"error":{"code":"CRASHED","message":"m","more":1}}}"#,
    )
    .unwrap();
    assert_eq!(failed.error().unwrap().code, "CRASHED");
    let completed: FinalizeRequest =
        serde_json::from_str(r#"{"status":"completed","workerId":"w"}"#).unwrap();
    assert!(completed.output.is_null());
    assert_eq!(completed.error(), None);
}

#[test]
fn a_child_tells_no_schema_from_an_untyped_one() {
    use trestle_contract::control::ChildStatus;
    let absent: ChildStatus = serde_json::from_str(r#"{"id":"c","status":"running"}"#).unwrap();
    let untyped: ChildStatus =
        serde_json::from_str(r#"{"id":"c","status":"running","outputSchema":null}"#).unwrap();
    assert_eq!(absent.output_schema, None);
    assert_eq!(untyped.output_schema, Some(None));
}

#[test]
fn a_null_input_falls_through_to_what_the_trigger_brought() {
    use trestle_contract::control::Run;
    let run = |input: &str| -> Run {
        serde_json::from_str(&format!(
            r#"{{"id":"r","orgId":"o","workflowId":"w","workflowVersionId":"v","actor":{{"type":"user","user_id":"u"}},
               "triggerKind":"manual","triggerPayload":{{"p": 1}},"status":"running","createdAt":1,"input":{input},
               "tokensIn":null}}"#
        ))
        .unwrap()
    };
    assert_eq!(run("null").program_input().get(), r#"{"p": 1}"#);
    assert_eq!(run("0").program_input().get(), "0");
    assert_eq!(run("false").program_input().get(), "false");
}

#[test]
fn a_malformed_webhook_request_is_left_out_entirely() {
    use trestle_contract::control::Run;
    let request = |raw: &str| {
        let run: Run = serde_json::from_str(&format!(
            r#"{{"id":"r","orgId":"o","workflowId":"w","workflowVersionId":"v","actor":{{"type":"webhook","source":"s"}},
               "triggerKind":"webhook","triggerRequest":{raw},"status":"running","createdAt":1}}"#
        ))
        .unwrap();
        run.webhook_request()
    };
    assert!(request(r#"{"method":"POST","path":"/","query":{},"headers":{"a":"b"}}"#).is_some());
    for raw in ["null", "\"x\"", "{}", r#"{"method":"POST","path":"/","query":{"a":1},"headers":{}}"#] {
        assert_eq!(request(raw), None, "{raw}");
    }
}
