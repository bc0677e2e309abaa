//! Pieces of JSON Schema.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

use super::syntax::Literal;

/// How a big integer is told from other text, exactly as the SDK looks for it.
pub(super) const BIG_INTEGER: &str = "^-?\\d+$";

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1")) })
}

pub(super) fn push(alternatives: &mut Vec<Value>, schema: Value) {
    if !alternatives.contains(&schema) {
        alternatives.push(schema);
    }
}

pub(super) fn is_anything(schema: &Value) -> bool {
    schema.as_object().is_some_and(Map::is_empty)
}

pub(super) fn list(items: Value, is_set: bool) -> Value {
    let mut schema = json!({ "type": "array" });
    if let Some(object) = schema.as_object_mut() {
        if !is_anything(&items) {
            object.insert("items".into(), items);
        }
        if is_set {
            object.insert("uniqueItems".into(), json!(true));
        }
    }
    schema
}

#[allow(clippy::cast_possible_truncation, reason = "only whole numbers in the exact range are converted")]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        return json!(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn plain(literal: &Literal) -> Value {
    match literal {
        Literal::Text(text) => json!(text),
        Literal::Number(value) => number(*value),
        Literal::Boolean(value) => json!(value),
        Literal::BigInt(digits) => json!(digits),
    }
}

fn type_of(literal: &Literal) -> &'static str {
    match literal {
        Literal::Text(_) | Literal::BigInt(_) => "string",
        Literal::Number(_) => "number",
        Literal::Boolean(_) => "boolean",
    }
}

pub(super) fn constant(literal: &Literal) -> Value {
    let mut schema = json!({ "type": type_of(literal), "const": plain(literal) });
    if let (Literal::BigInt(_), Some(object)) = (literal, schema.as_object_mut()) {
        object.insert("pattern".into(), json!(BIG_INTEGER));
    }
    schema
}

pub(super) fn enumeration(literals: &[&Literal]) -> Value {
    let mut values: Vec<Value> = Vec::new();
    for literal in literals {
        push(&mut values, plain(literal));
    }
    if let ([only], [_]) = (literals, values.as_slice()) {
        return constant(only);
    }
    let kinds: BTreeSet<&str> = literals.iter().map(|literal| type_of(literal)).collect();
    let mut schema = json!({ "enum": values });
    if let (Some(kind), 1, Some(object)) = (kinds.first(), kinds.len(), schema.as_object_mut()) {
        object.insert("type".into(), json!(kind));
    }
    schema
}

/// Whether a schema restores something on the way in.
pub(super) fn holds_native(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("format").is_some_and(|format| format == "date-time")
                || object.contains_key("contentEncoding")
                || object.get("pattern").is_some_and(|pattern| pattern == BIG_INTEGER)
                || object.get("uniqueItems") == Some(&Value::Bool(true))
                || object.values().any(holds_native)
        }
        Value::Array(items) => items.iter().any(holds_native),
        _ => false,
    }
}
