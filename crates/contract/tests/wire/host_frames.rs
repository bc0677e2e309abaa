//! Lines of the host protocol (`docs/protocol/host.md` §1).

use proptest::prelude::*;
use trestle_contract::host::{
    FrameError, HostErrorBody, HostFrame, Method, RequestId, SleepArg, SleepParams,
};
use trestle_contract::{ErrorBody, ErrorCode, RawJson};

fn parse(line: &str) -> Result<Option<HostFrame>, FrameError> {
    HostFrame::parse_line(line)
}

fn is_frame(line: &str) -> bool {
    matches!(parse(line), Ok(Some(_)))
}

#[test]
fn the_four_shapes_are_told_apart() {
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","id":1,"method":"bootstrap","params":{}}"#).unwrap(),
        Some(HostFrame::Request {
            id: RequestId::Number(1),
            method: "bootstrap".to_owned(),
            params: Some(RawJson::parse("{}").unwrap())
        })
    );
    assert_eq!(
        parse("  {\"jsonrpc\":\"2.0\",\"method\":\"phase\"}\r\n").unwrap(),
        Some(HostFrame::Notification { method: "phase".to_owned(), params: None })
    );
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","id":"inv-1","result":null}"#).unwrap(),
        Some(HostFrame::Success { id: RequestId::Text("inv-1".to_owned()), result: RawJson::null() })
    );
    let failure =
        parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":"X","message":"","data":null}}"#).unwrap();
    let Some(HostFrame::Failure { id: None, error }) = failure else { panic!("{failure:?}") };
    assert!(error.data.unwrap().is_null());
}

#[test]
fn what_is_no_frame_is_told_from_what_is_no_json() {
    for line in ["{", "hello", "{\"jsonrpc\":\"2.0\"", "\u{0}"] {
        assert!(matches!(parse(line), Err(FrameError::NotJson(_))), "{line}");
    }
    for line in [
        "[]",
        "1",
        "null",
        r#"["2.0",1,"bootstrap",{}]"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#,
        r#"{"id":1,"method":"a"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":"","method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":9007199254740992,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":""}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","extra":1}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":"X","message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":"X"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":"","message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":"X","message":"m","more":1}}"#,
    ] {
        assert!(matches!(parse(line), Err(FrameError::NotAFrame(_))), "{line}: {:?}", parse(line));
    }
    assert_eq!(parse("   \r\n").unwrap(), None);
}

#[test]
fn an_id_is_echoed_with_its_json_type() {
    for id in ["1", "\"1\"", "-3", "\"a b\""] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{}}}}"#);
        let Some(HostFrame::Request { id: parsed, .. }) = parse(&line).unwrap() else { panic!("{line}") };
        let answer = HostFrame::done(parsed).to_line();
        assert_eq!(answer, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"));
    }
}

#[test]
fn a_frame_is_one_line_whatever_blanks_the_program_json_has() {
    let result = RawJson::parse("{\n \"a\": \"x\\ny\",\r\n \"b\": [\n1]}").unwrap();
    let line = HostFrame::Success { id: RequestId::Number(1), result: result.clone() }.to_line();
    assert_eq!(line.matches('\n').count(), 1);
    assert!(!line.contains('\r'));
    let Some(HostFrame::Success { result: read, .. }) = parse(&line).unwrap() else { panic!("{line}") };
    assert_eq!(read.to_value().unwrap(), result.to_value().unwrap());
}

#[test]
fn an_unreadable_request_is_answered_with_a_null_id() {
    let error = HostErrorBody::new(ErrorCode::ProtocolError, "not a frame");
    let line = HostFrame::Failure { id: None, error }.to_line();
    assert_eq!(
        line,
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":\"PROTOCOL_ERROR\",\"message\":\"not a frame\"}}\n"
    );
    assert!(is_frame(&line));
}

#[test]
fn failures_collect_hint_reason_and_detail() {
    let error = HostErrorBody::new(ErrorCode::ChildFailed, "m")
        .with_hint("h")
        .with_detail(&serde_json::json!({"childRunId": "c", "status": "failed"}));
    assert_eq!(error.hint().as_deref(), Some("h"));
    assert_eq!(
        serde_json::to_value(&error).unwrap()["data"],
        serde_json::json!({"hint": "h", "detail": {"childRunId": "c", "status": "failed"}})
    );
    let cancelled = HostErrorBody::new(ErrorCode::Cancelled, "m").with_reason("cancelled");
    assert_eq!(serde_json::to_value(&cancelled).unwrap()["data"], serde_json::json!({"reason": "cancelled"}));
    let mapped = HostErrorBody::from(&ErrorBody::new(ErrorCode::NotFound, "m").with_hint("set it"));
    assert!(!serde_json::to_string(&mapped).unwrap().contains("TR0"));
    assert_eq!(mapped.hint().as_deref(), Some("set it"));
    assert_eq!(&*HostErrorBody::with_code("", "m").code, "INTERNAL_ERROR");
}

#[test]
fn every_method_has_one_name() {
    assert_eq!(Method::ALL.len(), 26);
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.as_str()), Some(*method));
    }
    assert_eq!(Method::from_name("computer.desktop.click"), None);
}

#[test]
fn sleeps_of_every_form_are_read_and_negative_ones_refused() {
    let read = |arg: &str| {
        serde_json::from_str::<SleepParams>(&format!("{{\"arg\":{arg}}}")).map(|params| params.arg)
    };
    assert_eq!(read("0").unwrap(), SleepArg::Milliseconds(0.0));
    assert_eq!(read("{\"durationMs\":1.5}").unwrap(), SleepArg::Duration { duration_ms: 1.5 });
    assert!(matches!(read("{\"until\":\"tomorrow\"}").unwrap(), SleepArg::Until { .. }));
    for arg in [
        "-1",
        "null",
        "\"5s\"",
        "{}",
        "{\"durationMs\":-1}",
        "{\"until\":\"\"}",
        "{\"durationMs\":1,\"until\":\"x\"}",
        "[]",
    ] {
        assert!(read(arg).is_err(), "{arg}");
    }
}

proptest! {
    #[test]
    fn any_line_is_a_frame_a_blank_or_one_of_two_errors(line in "\\PC*") {
        let _ = parse(&line);
    }

    #[test]
    fn params_survive_byte_for_byte(number in "[1-9][0-9]{0,40}", text in "[a-z ]{0,10}") {
        let params = format!("{{ \"b\":{number} ,\"a\": \"{text}\",\"a\":null}}");
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"report_return","params":{params}}}"#);
        let frame = parse(&line).unwrap().unwrap();
        let written = frame.to_line();
        prop_assert_eq!(written.trim_end(), line.as_str());
        let HostFrame::Request { params: Some(read), .. } = frame else { panic!("not a request") };
        prop_assert_eq!(read.get(), params.as_str());
    }
}
