//! JSON Schemas that were derived at deploy, used as they are meant: structure only.

use jsonschema::Validator;
use serde_json::Value;
use trestle_contract::{ErrorCode, RawJson};

use super::HostFailure;

/// Most problems that are listed.
const MOST_PROBLEMS: usize = 20;

fn compile(schema: &RawJson) -> Result<Validator, String> {
    let schema = schema.to_value().map_err(|error| error.to_string())?;
    jsonschema::draft202012::options()
        .should_validate_formats(false)
        .should_ignore_unknown_formats(true)
        .build(&schema)
        .map_err(|error| error.to_string())
}

/// The schema of a workflow's return value.
#[derive(Debug, Default)]
pub(crate) struct OutputSchema {
    validator: Option<Validator>,
}

impl OutputSchema {
    /// Compiles it. A schema that does not compile is not enforced; the text tells why.
    pub(crate) fn new(schema: Option<&RawJson>) -> (Self, Option<String>) {
        match schema.map(compile) {
            None => (Self::default(), None),
            Some(Ok(validator)) => (Self { validator: Some(validator) }, None),
            Some(Err(reason)) => (Self::default(), Some(reason)),
        }
    }

    /// Checks a return value; `null` always passes, because a program may return nothing.
    pub(crate) fn check(&self, value: &RawJson) -> Result<(), HostFailure> {
        let Some(validator) = self.validator.as_ref().filter(|_| !value.is_null()) else { return Ok(()) };
        let tree = value
            .to_value()
            .map_err(|error| HostFailure::invalid(format!("the return value cannot be checked: {error}")))?;
        let problems: Vec<(String, String)> = validator
            .iter_errors(&tree)
            .take(MOST_PROBLEMS)
            .map(|error| (error.instance_path().to_string(), error.to_string()))
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        let place = |path: &String| if path.is_empty() { "(root)".to_owned() } else { path.clone() };
        let text: Vec<String> =
            problems.iter().map(|(path, problem)| format!("{} {problem}", place(path))).collect();
        let list: Vec<Value> = problems
            .iter()
            .map(|(path, problem)| serde_json::json!({ "instancePath": path, "message": problem }))
            .collect();
        Err(HostFailure::new(
            ErrorCode::ValidationFailed,
            format!("the return value does not have the declared type: {}", text.join("; ")),
        )
        .with_hint("return a value of the declared type, or change the type and redeploy")
        .with_detail(&serde_json::json!({ "errors": list })))
    }
}

/// Whether a schema refuses `null` and accepts `{}`: a run without input then gets `{}`.
pub(crate) fn accepts_empty_object_only(schema: &RawJson) -> bool {
    compile(schema).is_ok_and(|validator| {
        !validator.is_valid(&Value::Null) && validator.is_valid(&Value::Object(serde_json::Map::new()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> RawJson {
        RawJson::parse(text).unwrap()
    }

    #[test]
    fn a_mismatch_names_the_place_and_carries_the_list() {
        let schema = json(r#"{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}"#);
        let (schema, warning) = OutputSchema::new(Some(&schema));
        assert_eq!(warning, None);
        assert!(schema.check(&json(r#"{"n":1}"#)).is_ok());
        assert!(schema.check(&RawJson::null()).is_ok());
        let failure = schema.check(&json(r#"{"n":"x"}"#)).unwrap_err();
        assert_eq!(failure.code(), "VALIDATION_FAILED");
        assert!(failure.0.message.contains("/n "), "{failure}");
        assert!(failure.0.detail().unwrap().get().contains("instancePath"));
        assert!(schema.check(&json("{}")).unwrap_err().0.message.contains("(root)"));
    }

    #[test]
    fn formats_are_not_enforced_and_a_broken_schema_is_not_either() {
        let (schema, warning) = OutputSchema::new(Some(&json(r#"{"type":"string","format":"date-time"}"#)));
        assert!(warning.is_none() && schema.check(&json("\"x\"")).is_ok());
        let (schema, warning) = OutputSchema::new(Some(&json(r#"{"type":"nonsense"}"#)));
        assert!(warning.is_some() && schema.check(&json("1")).is_ok());
    }

    #[test]
    fn only_a_schema_that_takes_an_object_and_no_null_turns_nothing_into_an_object() {
        assert!(accepts_empty_object_only(&json(r#"{"type":"object"}"#)));
        assert!(!accepts_empty_object_only(&json(r#"{"type":["object","null"]}"#)));
        assert!(!accepts_empty_object_only(&json(r#"{"type":"object","required":["a"]}"#)));
        assert!(!accepts_empty_object_only(&json(r#"{"type":"nonsense"}"#)));
        assert!(!accepts_empty_object_only(&json("{}")));
    }

    #[test]
    fn a_value_of_the_deepest_allowed_nesting_is_checked() {
        let deep = format!("{}{}", "[".repeat(512), "]".repeat(512));
        let (schema, _) = OutputSchema::new(Some(&json(r#"{"type":"array"}"#)));
        assert!(schema.check(&json(&deep)).is_ok());
    }
}
