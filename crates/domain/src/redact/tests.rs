use super::*;
use proptest::prelude::*;

const NAME: &str = "TOKEN";

fn redactor(values: &[&str]) -> Redactor {
    let redactor = Redactor::default();
    for (index, value) in values.iter().enumerate() {
        redactor.add(&format!("S{index}"), value);
    }
    redactor
}

fn stream_in(redactor: &Redactor, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut stream = redactor.stream();
    let mut out = Vec::new();
    let mut rest = text;
    for cut in cuts {
        let (chunk, next) = rest.split_at(cut % (rest.len() + 1));
        out.extend(stream.push(chunk));
        rest = next;
    }
    out.extend(stream.push(rest));
    out.extend(stream.finish());
    out
}

#[test]
fn a_secret_is_replaced_in_every_form() {
    let redactor = redactor(&["pä\"ss'w/ord $1"]);
    for form in [
        "pä\"ss'w/ord $1",
        r#"pä\"ss'w/ord $1"#,
        r#"pä\"ss'w\/ord $1"#,
        r#"p\u00e4\"ss'w/ord $1"#,
        r#"pä\\\"ss'w/ord $1"#,
        "p%C3%A4%22ss'w%2Ford%20%241",
        "p%c3%a4%22ss'w%2ford%20%241",
        "p%C3%A4%22ss%27w%2Ford%20%241",
        "p%C3%A4%22ss%27w%2Ford+%241",
        r#"pä"ss'\''w/ord $1"#,
        "pä\"ss'\"'\"'w/ord $1",
        r#"pä\"ss'w/ord \$1"#,
        r#"pä\"ss\'w/ord\ \$1"#,
    ] {
        assert_eq!(redactor.redact_str(&format!("<{form}>")), "<[REDACTED]>", "{form}");
    }
}

#[test]
fn a_secret_is_replaced_within_base64_at_every_alignment() {
    let secret = "correct horse?>";
    let redactor = redactor(&[secret]);
    for before in ["", "a", "ab", "abc", "user:"] {
        for after in ["", "z", "zy", "zyx"] {
            let text = format!("{before}{secret}{after}");
            for encoded in [
                base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &text),
                base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, &text),
            ] {
                let shown = redactor.redact_str(&encoded);
                assert!(shown.contains("[REDACTED]"), "{text} as {encoded}: {shown}");
                // At most two characters at each end share bits with the neighbours.
                assert!(shown.len() < encoded.len() - 18 + "[REDACTED]".len() + 4, "{shown}");
            }
        }
    }
    let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, secret);
    for broken in
        [format!("{}\n{}", &encoded[..7], &encoded[7..]), format!("{}\r\n{}", &encoded[..1], &encoded[1..])]
    {
        assert!(redactor.redact_str(&broken).starts_with("[REDACTED]"), "wrapped: {broken}");
    }
}

/// Known bug B1.2 and B1.5 of peers: short values blot out ordinary text.
#[test]
fn values_below_the_minimum_are_left_alone() {
    let redactor = redactor(&["abc", "{", "}", " \n ab \n ", "        ", "", "abcd"]);
    assert_eq!(redactor.redact_str("abc { } ab         abcd"), "abc { } ab         [REDACTED]");
    // "abcd" is "YWJjZA" in base64: below the minimum of derived forms.
    assert_eq!(redactor.redact_str("YWJjZA=="), "YWJjZA==");
    let redactor = super::tests::redactor(&["abcdef"]);
    assert_eq!(redactor.redact_str("YWJjZGVm"), "[REDACTED]");
}

/// Known bug B1.1 of peers: line-buffered redaction never sees a multi-line secret.
#[test]
fn a_secret_of_several_lines_is_found_however_its_lines_end() {
    let key = "-----BEGIN KEY-----\nMIIabc\nxyz==\n-----END KEY-----\n";
    let redactor = redactor(&[key]);
    for text in [
        key.to_owned(),
        key.replace('\n', "\r\n"),
        key.replace('\n', "\n    "),
        key.replace('\n', " "),
        key.replace('\n', "\n\n\t"),
    ] {
        let shown = redactor.redact_str(&format!("a {text}b"));
        assert!(shown.starts_with("a [REDACTED]") && !shown.contains("MII"), "{shown}");
        for size in 1..20 {
            let cuts = vec![size; text.len()];
            assert_eq!(stream_in(&redactor, format!("a {text}b").as_bytes(), &cuts), shown.as_bytes());
        }
    }
    let escaped = serde_json::to_string(key).unwrap();
    assert_eq!(redactor.redact_str(&escaped), "\"[REDACTED]\\n\"");
    let escaped = serde_json::to_string(&key.replace('\n', "\r\n")).unwrap();
    assert_eq!(redactor.redact_str(&escaped), "\"[REDACTED]\\r\\n\"");
    assert!(
        !redactor.redact_str("-----BEGIN KEY-----MIIabc").contains("REDACTED"),
        "a gap is at least one blank"
    );
}

/// Known bug B1.6 of peers: of a JSON document only the braces were masked.
#[test]
fn a_secret_document_is_known_by_its_strings_and_in_every_layout() {
    let document = r#"{"type":"svc","key":"p@ss\nword","nested":[{"token":"tok-123"}],"n":5,"id":"ab"}"#;
    let redactor = redactor(&[document]);
    for text in ["p@ss\nword", "p@ss word", "tok-123", "tok%2D123"] {
        let shown = redactor.redact_str(text);
        if text != "tok%2D123" {
            assert_eq!(shown, "[REDACTED]", "{text}");
        }
    }
    let value: serde_json::Value = serde_json::from_str(document).unwrap();
    assert!(
        !redactor.redact_str(&serde_json::to_string_pretty(&value["nested"]).unwrap()).contains("tok-123")
    );
    let pretty = crate::json_text::pretty(document);
    for text in [
        document.to_owned(),
        pretty.clone(),
        pretty.replace("  ", "\t"),
        document.replace(':', ": ").replace(',', ", "),
    ] {
        assert_eq!(redactor.redact_str(&text), "[REDACTED]", "{text}");
    }
    assert_eq!(redactor.redact_str("type key nested { } [ ] 5 svc ab"), "type key nested { } [ ] 5 svc ab");
}

/// Known bug B1.8 of peers: secrets that hold escapes themselves.
#[test]
fn a_secret_with_escapes_in_it_is_found() {
    for secret in ["a%25b%2Fc", r"a\nb\tc\\d", "$(echo hi)`x`", "\u{1}\u{2}binary\u{7f}", "日本語の秘密"]
    {
        let redactor = redactor(&[secret]);
        assert_eq!(redactor.redact_str(secret), "[REDACTED]");
        let json = serde_json::to_string(&serde_json::json!({ "v": secret })).unwrap();
        assert_eq!(redactor.redact_str(&json), r#"{"v":"[REDACTED]"}"#);
        assert_eq!(redactor.redact_json(&RawJson::parse(&json).unwrap()).get(), r#"{"v":"[REDACTED]"}"#);
    }
}

#[test]
fn the_secret_that_starts_first_wins_and_of_those_the_longest() {
    let redactor = Redactor::new(Placeholder::Labelled);
    redactor.add("SHORT", "key-1");
    redactor.add("LONG", "key-12345");
    redactor.add("OVERLAP", "345-tail");
    assert_eq!(
        redactor.redact_str("key-1 key-12345 key-12345-tail"),
        "[redacted:SHORT] [redacted:LONG] [redacted:LONG]-tail"
    );
    let mut stream = redactor.stream();
    assert_eq!(stream.push(b"a key-1"), b"a ");
    assert_eq!(stream.push(b"23"), b"");
    assert_eq!(stream.held(), b"key-123");
    assert_eq!(stream.push(b"x "), b"[redacted:SHORT]23x ");
}

#[test]
fn a_secret_that_the_placeholder_would_show_becomes_stars() {
    let redactor = Redactor::new(Placeholder::Labelled);
    redactor.add("password", "password");
    redactor.add("other", "hunter22");
    redactor.add("password", "another-value");
    assert_eq!(redactor.redact_str("password hunter22"), "*** [redacted:other]");
    assert_eq!(redactor.redact_str("another-value"), "***", "a label shows the value of another secret");
    let redactor = super::tests::redactor(&["REDACTED", "hunter22"]);
    assert_eq!(redactor.redact_str("hunter22 REDACTED"), "*** ***");
    let redactor = super::tests::redactor(&["]abc", "***d", "wxyz"]);
    let shown = redactor.redact_str("wxyzabc wxyzd");
    assert!(!redactor.finds_in(&shown), "{shown}");
}

#[test]
fn a_secret_added_later_counts_from_then_on_everywhere() {
    let redactor = Redactor::default();
    let mut stream = redactor.stream();
    let mut labelled = redactor.with_placeholder(Placeholder::Labelled).text_stream();
    assert_eq!(stream.push(b"hunter22 hun"), b"hunter22 hun");
    assert_eq!(labelled.push("hun"), "hun");
    redactor.add(NAME, "hunter22");
    assert_eq!(stream.push(b"ter22 hunter22 hun"), b"ter22 [REDACTED] ");
    assert_eq!(stream.push(b"ter22"), b"[REDACTED]");
    assert_eq!(labelled.push("hunter22"), "[redacted:TOKEN]");
    stream.push(b"hunt");
    assert_eq!(stream.finish(), b"hunt");
    stream.push(b"hunt");
    stream.discard();
    assert_eq!(stream.push(b"er22"), b"er22");
}

#[test]
fn json_keeps_every_byte_that_is_no_secret() {
    let redactor = redactor(&["hunter22", "12345678", "tr,e", "ab\\ncd"]);
    let json = |text: &str| redactor.redact_json(&RawJson::parse(text).unwrap()).get().to_owned();
    for same in [
        r#"{ "b" : 1.50 , "a" : 90071992547409931 , "s":"\u0041\ud800\/", "d":1, "d":2, "e":1e400 }"#,
        "true",
        "[null,false]",
    ] {
        assert_eq!(json(same), same);
    }
    assert_eq!(json(r#"{"k\u0041":"a hunter22\ud800 é\u0041"}"#), r#"{"k\u0041":"a [REDACTED]\ud800 éA"}"#);
    assert_eq!(
        json(r#"{"hunter22":[1,12345678,-0.123456789]}"#),
        r#"{"[REDACTED]":[1,"[REDACTED]","[REDACTED]"]}"#
    );
    assert_eq!(json(r#"["\u0068unter22", "x"]"#), r#"["[REDACTED]", "x"]"#);
    assert_eq!(json(r#"["ab\ncd"]"#), r#"["[REDACTED]"]"#, "the escapes spell the secret");
    assert_eq!(
        redactor.redact_value(&serde_json::json!({"a": 12_345_678})),
        serde_json::json!({"a": "[REDACTED]"})
    );
}

#[test]
fn a_secret_across_json_members_takes_the_innermost_container() {
    let redactor = redactor(&[r#"{"pin":12,"x":[true]}"#, "true"]);
    let json = |text: &str| redactor.redact_json(&RawJson::parse(text).unwrap()).get().to_owned();
    assert_eq!(json(r#"{"a":{"pin":12,"x":[true]},"b":true}"#), r#"{"a":"[REDACTED]","b":true}"#);
    assert_eq!(json(r#"{"pin":12,"x":[true]}"#), r#""[REDACTED]""#);
}

#[test]
fn bytes_that_are_no_text_pass() {
    let redactor = redactor(&["hunter22"]);
    assert_eq!(redactor.redact_bytes(b"\xff\xfehunter22\x80"), b"\xff\xfe[REDACTED]\x80");
    assert!(redactor.finds_in("ahunter22b") && !redactor.finds_in("ahunter2b"));
}

#[test]
fn a_gap_has_a_bound() {
    let redactor = redactor(&["line one\nline two"]);
    let text = format!("line one{}", " ".repeat(1 << 20));
    let mut stream = redactor.stream();
    let mut shown = 0;
    for chunk in text.as_bytes().chunks(1_000) {
        shown += stream.push(chunk).len();
        assert!(stream.held().len() < 8_192);
    }
    assert_eq!(shown + stream.finish().len(), text.len());
}

/// A small alphabet makes overlaps, borders and near misses likely.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab\\]*]{4,8}",
        3 => "[a-c\"'/%\\\\ é]{4,16}",
        2 => "[ab]{2,5}(\n|\r\n|\n  )[ab]{2,5}((\n)[ab]{1,4})?",
        1 => "\\{\"[ab]{1,2}\":\"[ab]{3,6}\",\"n\":[0-9]{1,2}\\}",
        1 => "[A-Za-z0-9]{20,60}",
    ]
}

fn form_of(secret: &str, form: u8) -> String {
    use base64::Engine;
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
    let json = serde_json::to_string(secret).unwrap();
    match form % 10 {
        0 | 1 => secret.to_owned(),
        2 => json[1..json.len() - 1].to_owned(),
        3 => secret.bytes().map(|b| format!("%{b:02X}")).collect(),
        4 => secret.replace('\'', r"'\''"),
        5 => BASE64_STANDARD.encode(secret),
        6 => BASE64_URL_SAFE.encode(format!("x{secret}y")),
        7 => BASE64_STANDARD.encode(format!("xy{secret}z")),
        8 => secret.replace('\n', "\r\n"),
        _ => secret.replace('\n', " \n\t"),
    }
}

/// Secrets and a text with at least one of them planted in it.
fn planted() -> impl Strategy<Value = (Vec<String>, String)> {
    (
        prop::collection::vec(secret(), 1..4),
        prop::collection::vec(
            (
                "[ab \n\\]\\[*\"'%\\\\é]{0,10}",
                any::<prop::sample::Index>(),
                any::<u8>(),
                prop::option::of(0_usize..12),
            ),
            1..6,
        ),
        "[ab \n\\]*]{0,10}",
    )
        .prop_map(|(secrets, parts, tail)| {
            let mut text = String::new();
            for (index, (filler, which, form, cut)) in parts.iter().enumerate() {
                text.push_str(filler);
                let secret = which.get::<String>(&secrets);
                // The forms of shorter secrets may be below the minimum of derived forms.
                let planted = if secret.len() < 8 { secret.clone() } else { form_of(secret, *form) };
                match cut {
                    // A near miss: the beginning of a secret. The first one is planted whole.
                    Some(cut) if index > 0 => text.extend(planted.chars().take(*cut)),
                    _ => text.push_str(&planted),
                }
            }
            (secrets, text + &tail)
        })
}

fn with_all(secrets: &[String], placeholder: Placeholder) -> Redactor {
    let redactor = Redactor::new(placeholder);
    for (index, secret) in secrets.iter().enumerate() {
        redactor.add(&format!("S{index}"), secret);
    }
    redactor
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_chunking_gives_the_redaction_of_the_whole((secrets, text) in planted(), cuts in prop::collection::vec(0_usize..20, 0..40), labelled in any::<bool>()) {
        let placeholder = if labelled { Placeholder::Labelled } else { Placeholder::default() };
        let redactor = with_all(&secrets, placeholder);
        let whole = redactor.redact_bytes(text.as_bytes());
        prop_assert_eq!(stream_in(&redactor, text.as_bytes(), &cuts), whole.clone());
        let bytewise = vec![1; text.len()];
        prop_assert_eq!(stream_in(&redactor, text.as_bytes(), &bytewise), whole);
    }

    #[test]
    fn no_secret_survives_in_any_form((secrets, text) in planted(), labelled in any::<bool>()) {
        let placeholder = if labelled { Placeholder::Labelled } else { Placeholder::default() };
        let redactor = with_all(&secrets, placeholder);
        let shown = redactor.redact_str(&text);
        for secret in &secrets {
            let trimmed = secret.trim();
            if trimmed.len() >= MIN_RAW_BYTES {
                prop_assert!(!shown.contains(trimmed), "{:?} in {:?}", trimmed, shown);
            }
        }
        prop_assert!(!redactor.finds_in(&shown), "{:?} is not clean: {:?}", text, shown);
        prop_assert_ne!(shown, text, "the planted secret was not replaced");
    }

    #[test]
    fn only_the_beginning_of_a_secret_is_held_back((secrets, text) in planted(), cut in any::<prop::sample::Index>()) {
        let redactor = with_all(&secrets, Placeholder::default());
        let cut = cut.index(text.len() + 1);
        let mut stream = redactor.stream();
        stream.push(&text.as_bytes()[..cut]);
        let held = stream.held().to_vec();
        if !held.is_empty() {
            let set = redactor.snapshot();
            let open = secrets.iter().flat_map(|secret| super::forms::needles_of(secret))
                .any(|needle| needle.test(&held) == super::needle::Found::Prefix);
            prop_assert!(open, "{:?} begins no secret", held);
            drop(set);
        }
    }

    #[test]
    fn json_stays_json_and_shows_no_secret((secrets, text) in planted(), number in any::<i64>()) {
        let redactor = with_all(&secrets, Placeholder::default());
        let value = serde_json::json!({ "text": text, "list": [number, { text.as_str(): true }], "n": null });
        let shown = redactor.redact_json(&RawJson::encode(&value).unwrap());
        prop_assert!(serde_json::from_str::<serde_json::Value>(shown.get()).is_ok());
        let strings: Vec<String> = match shown.to_value().unwrap() {
            serde_json::Value::Object(map) => vec![map["text"].as_str().unwrap_or_default().to_owned()],
            other => vec![other.to_string()],
        };
        for string in strings {
            prop_assert!(!redactor.finds_in(&string), "{:?}", string);
        }
        prop_assert!(!redactor.finds_in(shown.get()), "{}", shown.get());
    }

    #[test]
    fn text_chunks_stay_text((secrets, text) in planted(), sizes in prop::collection::vec(1_usize..5, 1..10)) {
        let redactor = with_all(&secrets, Placeholder::default());
        let mut stream = redactor.text_stream();
        let mut out = String::new();
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        for size in sizes.iter().cycle() {
            if at >= chars.len() {
                break;
            }
            let end = (at + size).min(chars.len());
            out.push_str(&stream.push(&chars[at..end].iter().collect::<String>()));
            at = end;
        }
        out.push_str(&stream.finish());
        prop_assert_eq!(out, redactor.redact_str(&text));
    }
}

#[test]
fn hundreds_of_secrets_added_one_by_one_are_all_found() {
    let redactor = Redactor::new(Placeholder::Labelled);
    let value = |n: u32| format!("s3cr3t/{n:04}/{:08x}", n.wrapping_mul(2_654_435_761));
    for n in 0..400 {
        redactor.add(&format!("S{n}"), &value(n));
    }
    assert_eq!(redactor.len(), 400);
    for n in 0..400 {
        let encoded = value(n).replace('/', "%2f");
        assert_eq!(
            redactor.redact_str(&format!("<{}|{encoded}>", value(n))),
            format!("<[redacted:S{n}]|[redacted:S{n}]>")
        );
    }
    redactor.add("S1", &value(1));
    assert_eq!(redactor.len(), 400, "the same secret again is not another one");
}
