//! The text of an event stream (docs/protocol/public-api.md §7.8).

/// Appends one event: cursor, kind, and the event's JSON text.
pub(crate) fn event(out: &mut Vec<u8>, cursor: u64, kind: &str, json: &str) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(cursor.to_string().as_bytes());
    out.extend_from_slice(b"\nevent: ");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'\n');
    data(out, json);
    out.push(b'\n');
}

/// Appends a block without data: it moves the reader's resume point past
/// events that its channels leave out.
pub(crate) fn advance(out: &mut Vec<u8>, cursor: u64) {
    out.extend_from_slice(format!("id: {cursor}\n\n").as_bytes());
}

/// A comment that keeps intermediaries from cutting an idle stream.
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Appends the one transport-level frame: the stream cannot go on.
pub(crate) fn stream_error(out: &mut Vec<u8>, message: &str) {
    out.extend_from_slice(b"event: stream_error\n");
    let body = serde_json::json!({ "message": message }).to_string();
    data(out, &body);
    out.push(b'\n');
}

/// JSON may hold line ends only as white space between its tokens, so a text
/// of several lines can travel as several `data` lines and mean the same.
fn data(out: &mut Vec<u8>, json: &str) {
    for line in json.split(['\n', '\r']) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_four_bare_lines() {
        let mut out = Vec::new();
        event(&mut out, 1_000_001, "run_status", r#"{"kind":"run_status"}"#);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "id: 1000001\nevent: run_status\ndata: {\"kind\":\"run_status\"}\n\n"
        );
    }

    #[test]
    fn white_space_between_tokens_never_ends_an_event() {
        for newline in ["\n", "\r", "\r\n"] {
            let json = format!("{{{newline}\"a\":1{newline}{newline}}}");
            let mut out = Vec::new();
            event(&mut out, 1, "output", &json);
            let text = String::from_utf8(out).unwrap();
            assert!(!text.contains('\r'));
            let read: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            let value: serde_json::Value = serde_json::from_str(&read.join("\n")).unwrap();
            assert_eq!(value, serde_json::json!({ "a": 1 }));
            assert_eq!(text.matches("\n\n").count(), 1, "{text:?}");
        }
    }
}
