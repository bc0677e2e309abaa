//! Closed objects: a key more, a key less, a `null` in place of an absent key, or a value of another kind is refused.

use serde_json::{Value, json};

use crate::samples::{closed_objects, for_each, keys, with_added_key, with_value, without_key};

#[test]
fn an_added_key_is_refused_at_any_depth() {
    let mut count = 0;
    for_each(|protocol, entry, group, sample| {
        if !protocol.closed {
            return;
        }
        for place in closed_objects(sample, group) {
            let changed = with_added_key(sample, &place).to_string();
            assert!(
                (entry.round_trip)(&changed).is_err(),
                "{} {}: a key added at {:?} was accepted: {changed}",
                protocol.name,
                entry.name,
                place.exact
            );
            count += 1;
        }
    });
    assert!(count > 130, "only {count} objects");
}

#[test]
fn a_removed_key_is_refused_unless_it_is_optional() {
    let (mut refused, mut accepted) = (0, 0);
    for_each(|protocol, entry, group, sample| {
        if !protocol.closed {
            return;
        }
        for place in keys(sample, group) {
            let changed = without_key(sample, &place).to_string();
            let answer = (entry.round_trip)(&changed);
            let optional = group.optional.contains(&place.general);
            assert_eq!(
                answer.is_ok(),
                optional,
                "{} {} without {}: {answer:?}",
                protocol.name,
                entry.name,
                place.exact
            );
            if optional { accepted += 1 } else { refused += 1 }
        }
    });
    assert!(refused > 250 && accepted > 80, "{refused} refused, {accepted} accepted");
}

#[test]
fn null_is_refused_where_a_key_is_merely_optional() {
    let mut count = 0;
    for_each(|protocol, entry, group, sample| {
        if !protocol.closed {
            return;
        }
        for place in keys(sample, group).into_iter().filter(|place| group.optional.contains(&place.general)) {
            // Data of a failure may be any JSON.
            if entry.name == "HostErrorBody" && place.exact == "/data" {
                continue;
            }
            let changed = with_value(sample, &place, Value::Null).to_string();
            assert!(
                (entry.round_trip)(&changed).is_err(),
                "{} {}: null at {} was accepted",
                protocol.name,
                entry.name,
                place.exact
            );
            count += 1;
        }
    });
    assert!(count > 80, "only {count} keys");
}

#[test]
fn a_value_of_another_kind_is_refused() {
    let mut count = 0;
    for_each(|protocol, entry, group, sample| {
        if !protocol.closed {
            return;
        }
        for place in keys(sample, group).into_iter().filter(|place| !group.open.contains(&place.general)) {
            let other = match sample.pointer(&place.exact).unwrap() {
                Value::String(_) => json!(7),
                Value::Number(_) | Value::Bool(_) => json!("x"),
                Value::Object(_) => json!([1]),
                Value::Array(_) => json!({"x": 1}),
                Value::Null => json!(false),
            };
            // `sleep` takes a number or an object in the same place.
            if entry.name == "SleepParams" && place.exact == "/arg" {
                continue;
            }
            let changed = with_value(sample, &place, other).to_string();
            assert!(
                (entry.round_trip)(&changed).is_err(),
                "{} {}: {changed} was accepted",
                protocol.name,
                entry.name
            );
            count += 1;
        }
    });
    assert!(count > 300, "only {count} keys");
}

#[test]
fn an_array_of_its_values_is_not_an_object() {
    let mut count = 0;
    for_each(|protocol, entry, group, sample| {
        for place in closed_objects(sample, group) {
            // What is no object there is ignored, not refused.
            if entry.name == "InferenceRequest" && place.exact == "/reasoning" {
                continue;
            }
            let values: Vec<Value> =
                sample.pointer(&place.exact).unwrap().as_object().unwrap().values().cloned().collect();
            for array in [json!([]), Value::Array(values)] {
                let changed = with_value(sample, &place, array).to_string();
                assert!(
                    (entry.round_trip)(&changed).is_err(),
                    "{} {}: {changed} was accepted",
                    protocol.name,
                    entry.name
                );
                count += 1;
            }
        }
    });
    assert!(count > 500, "only {count} arrays");
}

#[test]
fn a_declaration_of_before_declarations_is_told_from_a_malformed_one() {
    use trestle_contract::pool::Declaration;
    assert_eq!(Declaration::from_body(b" {} ").unwrap(), None);
    assert_eq!(
        Declaration::from_body(br#"{"contract_version":1,"runner_version":"0.3.40"}"#).unwrap(),
        Some(Declaration::of_runner("0.3.40").unwrap())
    );
    for body in [
        "",
        "[]",
        "null",
        r#"{"contract_version":1}"#,
        r#"{"contract_version":0,"runner_version":"x"}"#,
        r#"{"x":1}"#,
    ] {
        assert!(Declaration::from_body(body.as_bytes()).is_err(), "{body}");
    }
}
