//! Program JSON: what it keeps, what it refuses.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trestle_contract::json::{MAX_DEPTH, MAX_INPUT_BYTES, RawJson, RawJsonError, RawObject};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holder {
    value: RawJson,
    #[serde(default)]
    list: Vec<RawJson>,
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// JSON texts with blanks, odd numbers, escapes and repeated keys.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0".to_owned()),
        Just("1.0".to_owned()),
        Just("1e400".to_owned()),
        Just("123456789012345678901234567890".to_owned()),
        Just("9007199254740993".to_owned()),
        Just("\"\\u0000\"".to_owned()),
        Just("\"\\ud83d\"".to_owned()),
        Just("\"\\/\"".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "[^\\x00-\\x1f\"\\\\]{0,12}".prop_map(|text| format!("\"{text}\"")),
    ];
    let blank = prop_oneof![Just(""), Just(" "), Just("\n\t")];
    leaf.prop_recursive(6, 64, 5, move |inner| {
        let blank = blank.clone();
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), blank.clone()).prop_map(|(items, blank)| format!(
                "[{blank}{}{blank}]",
                items.join(&format!("{blank},{blank}"))
            )),
            (prop::collection::vec(("[a-c]{1,2}", inner), 0..5), blank).prop_map(|(items, blank)| {
                let items: Vec<_> = items
                    .into_iter()
                    .map(|(key, value)| format!("\"{key}\"{blank}:{blank}{value}"))
                    .collect();
                format!("{{{blank}{}{blank}}}", items.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_text_survives_reading_and_writing(text in json_text()) {
        let json = RawJson::parse(&text).unwrap();
        prop_assert_eq!(json.get(), text.as_str());
        let holder: Holder = serde_json::from_str(&format!(r#"{{"value":{text},"list":[{text},{text}]}}"#)).unwrap();
        prop_assert_eq!(holder.value.get(), text.as_str());
        let written = serde_json::to_string(&holder).unwrap();
        prop_assert_eq!(written, format!(r#"{{"value":{text},"list":[{text},{text}]}}"#));
        prop_assert_eq!(RawObject::parse(&text).is_ok(), text.starts_with('{'));
    }

    #[test]
    fn what_serde_json_refuses_is_refused_and_nothing_else(text in "[\\[\\]{}:,\"\\\\0-9a-u \n-]{0,24}") {
        let accepted = serde_json::from_str::<Value>(&text);
        let json = RawJson::parse(&text);
        // A tree cannot hold every number or lone surrogate that a text can, so only one direction is strict.
        if accepted.is_ok() {
            prop_assert!(json.is_ok(), "{text}");
        }
        if json.is_err() {
            prop_assert!(accepted.is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_is_judged_exactly(depth in 1_usize..1100) {
        prop_assert_eq!(RawJson::parse(&nested(depth)).is_ok(), depth <= MAX_DEPTH);
    }

    #[test]
    fn brackets_inside_of_strings_do_not_nest(count in 1_usize..2000) {
        let text = format!("\"\\\"{}\"", "[".repeat(count));
        prop_assert!(RawJson::parse(&text).is_ok());
    }
}

#[test]
fn ten_thousand_levels_are_refused_without_recursion() {
    let text = nested(10_000);
    // A thread with a small stack would overflow if anything recursed per level.
    let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
        assert_eq!(RawJson::parse(&text), Err(RawJsonError::TooDeep));
        let inside = format!(r#"{{"value":{text}}}"#);
        assert!(serde_json::from_str::<Holder>(&inside).is_err());
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn the_deepest_accepted_value_becomes_a_tree_too() {
    let json = RawJson::parse(&nested(MAX_DEPTH)).unwrap();
    assert_eq!(json.to_value().unwrap().to_string(), json.get());
}

#[test]
fn a_raw_nul_is_refused_and_an_escaped_one_kept() {
    assert_eq!(RawJson::parse("\"a\0b\""), Err(RawJsonError::Nul));
    assert!(!RawJsonError::Nul.hint().is_empty());
    let escaped = RawJson::parse(r#""a\u0000b""#).unwrap();
    assert_eq!(escaped.get(), r#""a\u0000b""#);
    assert_eq!(escaped.decode::<String>().unwrap(), "a\0b");
    assert!(serde_json::from_str::<Holder>("{\"value\":\"a\0b\"}").is_err());
}

#[test]
fn control_characters_bad_utf8_and_several_values_are_refused() {
    for text in ["\"a\nb\"", "1 2", "", "  ", "{\"a\":}", "[1,]", "nul", "'a'", "{a:1}"] {
        assert!(matches!(RawJson::parse(text), Err(RawJsonError::Syntax(_))), "{text:?}");
    }
    assert!(matches!(RawJson::parse_bytes(b"\"\xff\"", 100), Err(RawJsonError::Syntax(_))));
}

#[test]
fn a_value_above_its_cap_is_refused_by_size_alone() {
    let text = format!("\"{}\"", "x".repeat(MAX_INPUT_BYTES));
    assert_eq!(
        RawJson::parse_bytes(text.as_bytes(), MAX_INPUT_BYTES),
        Err(RawJsonError::TooLarge { actual: MAX_INPUT_BYTES + 2, max: MAX_INPUT_BYTES })
    );
    assert!(RawJson::parse_bytes(&text.as_bytes()[..0], 10).is_err());
    assert!(RawJson::parse_bytes(b" {} ", 4).is_ok());
}

#[test]
fn blanks_around_a_value_are_not_part_of_it() {
    assert_eq!(RawJson::parse(" \n [1] ").unwrap().get(), "[1]");
}

#[test]
fn null_is_the_default_and_equals_itself() {
    assert!(RawJson::default().is_null());
    assert_eq!(RawJson::null(), RawJson::parse("null").unwrap());
    assert_eq!(RawObject::empty().get(), "{}");
}
