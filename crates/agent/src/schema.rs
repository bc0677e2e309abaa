//! JSON Schemas of answers, and the JSON values within a text.

use jsonschema::Validator;
use trestle_contract::json::RawJson;

use crate::AgentError;

/// Compiles a schema of draft 2020-12, or of the draft that its `$schema` names. References
/// lead nowhere but into the schema itself.
pub(crate) fn compile(schema: &serde_json::Value) -> Result<Validator, AgentError> {
    jsonschema::options().offline().build(schema).map_err(|error| {
        let problem: String = error.to_string().chars().take(300).collect();
        AgentError::invalid(
            format!("schema is not a usable JSON Schema: {problem}"),
            "use JSON Schema draft 2020-12, with $ref only to parts of the same schema",
        )
    })
}

/// Every text that may be the answer's value, the likelier first: the whole, what code fences
/// hold, and each object or array in between. Values within values are not tried.
pub(crate) fn candidates(text: &str) -> Vec<RawJson> {
    let whole = text.trim();
    let mut found: Vec<RawJson> = Vec::new();
    let mut add = |text: &str| {
        let parsed = RawJson::parse(text.trim()).ok().filter(|value| !found.contains(value));
        found.extend(parsed);
    };
    add(whole);
    for fenced in fences(whole) {
        add(fenced);
    }
    let mut rest = whole;
    while let Some(at) = rest.find(['{', '[']) {
        rest = &rest[at..];
        match value_at_start(rest) {
            Some(value) => {
                add(value);
                rest = &rest[value.len()..];
            }
            None => rest = &rest[1..],
        }
    }
    found
}

/// The insides of all fenced blocks.
fn fences(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").skip(1).step_by(2).map(|block| {
        // The first line may name a language.
        let tag = block.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(0);
        let tagged = matches!(block[..tag].to_ascii_lowercase().as_str(), "json" | "jsonc" | "json5");
        if tagged { &block[tag..] } else { block }
    })
}

/// The balanced object or array with which a text begins, if what it spans is JSON.
fn value_at_start(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return text.get(..=at).filter(|span| RawJson::parse(span).is_ok());
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<String> {
        candidates(text).iter().map(|value| value.get().to_owned()).collect()
    }

    #[test]
    fn values_are_found_wherever_a_model_puts_them() {
        for (text, expected) in [
            ("{\"a\":1}", vec!["{\"a\":1}"]),
            ("  5 ", vec!["5"]),
            ("\"x\"", vec!["\"x\""]),
            ("```json\n{\"a\": 1.0}\n```", vec!["{\"a\": 1.0}"]),
            ("```\n[1]\n```", vec!["[1]"]),
            ("```JSON\n7\n```", vec!["7"]),
            ("Here: {\"a\":1} ok?", vec!["{\"a\":1}"]),
            ("{\"a\":1} and more", vec!["{\"a\":1}"]),
            ("see [1] then {\"a\":\"}\"}", vec!["[1]", "{\"a\":\"}\"}"]),
            ("{not} {\"b\":2}", vec!["{\"b\":2}"]),
            ("nothing", vec![]),
            ("{\"a\":", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn the_text_of_a_value_is_kept() {
        assert_eq!(texts("x {\"b\":9007199254740993, \"a\":1.50}"), ["{\"b\":9007199254740993, \"a\":1.50}"]);
    }

    #[test]
    fn schemas_that_reach_outside_are_refused() {
        for schema in [
            serde_json::json!({ "$ref": "https://example.com/schema.json" }),
            serde_json::json!({ "$ref": "file:///etc/passwd" }),
            serde_json::json!({ "type": "strange" }),
            serde_json::json!({ "properties": { "a": { "pattern": "(" } } }),
        ] {
            assert!(compile(&schema).is_err(), "{schema}");
        }
        assert!(compile(&serde_json::json!({ "$defs": { "a": {} }, "$ref": "#/$defs/a" })).is_ok());
        assert!(
            compile(&serde_json::json!({ "$schema": "http://json-schema.org/draft-07/schema#" })).is_ok()
        );
    }

    #[test]
    fn tuples_are_checked_as_draft_2020_12_does() {
        let schema =
            compile(&serde_json::json!({ "prefixItems": [{ "type": "string" }], "items": false })).unwrap();
        assert!(schema.is_valid(&serde_json::json!(["a"])));
        assert!(!schema.is_valid(&serde_json::json!([1])));
        assert!(!schema.is_valid(&serde_json::json!(["a", 1])));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "[\\[\\]{}\"\\\\,:a1` \n]{0,40}") {
            for value in candidates(&text) {
                prop_assert!(text.contains(value.get()));
            }
        }

        #[test]
        fn a_value_in_prose_is_found(before in "[a-z .,!]{0,20}", key in "[a-z\\\\\"{}\\[\\]]{0,6}", after in "[a-z .,!]{0,20}") {
            let value = serde_json::json!({ key: [1, { "x": "}" }] }).to_string();
            let text = format!("{before}{value}{after}");
            prop_assert!(texts(&text).contains(&value));
        }
    }
}
