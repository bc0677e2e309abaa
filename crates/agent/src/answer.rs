use jsonschema::Validator;
use trestle_contract::ErrorCode;
use trestle_contract::json::{JsonObject, RawJson};

use crate::AgentError;
use crate::schema;

/// What an answer has to be.
pub(crate) enum AnswerForm {
    /// Any text.
    Text,
    /// A JSON value that satisfies a schema.
    Schema(Box<AnswerSchema>),
}

/// A schema for answers.
pub(crate) struct AnswerSchema {
    text: String,
    validator: Validator,
}

/// How an answer compares to its schema.
pub(crate) enum Answer {
    /// It holds this value, byte for byte.
    Fits(RawJson),
    /// It holds none.
    Misses(Problem),
}

/// Why an answer does not fit.
pub(crate) enum Problem {
    /// There is no JSON value in it.
    NotJson,
    /// Its value breaks the schema in these ways.
    Invalid(Vec<String>),
}

/// How many violations the model is told about at once.
const MAX_VIOLATIONS: usize = 10;

impl AnswerForm {
    pub(crate) fn of(schema: Option<&JsonObject>) -> Result<Self, AgentError> {
        let Some(schema) = schema else { return Ok(Self::Text) };
        let document = serde_json::Value::Object(schema.clone());
        let validator = schema::compile(&document)?;
        Ok(Self::Schema(Box::new(AnswerSchema { text: document.to_string(), validator })))
    }

    /// The last paragraph of the first message.
    pub(crate) fn instruction(&self) -> Option<String> {
        match self {
            Self::Text => None,
            Self::Schema(schema) => Some(schema.demand()),
        }
    }
}

impl AnswerSchema {
    fn demand(&self) -> String {
        format!(
            "Answer with one JSON value and nothing else: no prose, no code fence. It must satisfy this JSON Schema:\n{}",
            self.text
        )
    }

    /// Finds the first value in an answer that satisfies the schema.
    pub(crate) fn read(&self, text: &str) -> Answer {
        let mut first = None;
        for candidate in schema::candidates(text) {
            let Ok(value) = candidate.to_value() else { continue };
            let violations = self.violations(&value);
            if violations.is_empty() {
                return Answer::Fits(candidate);
            }
            first.get_or_insert(violations);
        }
        Answer::Misses(first.map_or(Problem::NotJson, Problem::Invalid))
    }

    fn violations(&self, value: &serde_json::Value) -> Vec<String> {
        let describe = |error: jsonschema::ValidationError<'_>| {
            let at = error.instance_path().to_string();
            let at = if at.is_empty() { "the value".to_owned() } else { at };
            let problem: String = error.to_string().chars().take(300).collect();
            format!("{at}: {problem}")
        };
        self.validator.iter_errors(value).take(MAX_VIOLATIONS).map(describe).collect()
    }

    /// What the model is told after an answer that does not fit.
    pub(crate) fn correction(&self, problem: &Problem) -> String {
        let fault = match problem {
            Problem::NotJson => "Your answer was not valid JSON.".to_owned(),
            Problem::Invalid(violations) => {
                format!("Your answer does not satisfy the schema:\n- {}", violations.join("\n- "))
            }
        };
        format!("{fault}\n\n{}", self.demand())
    }
}

impl Problem {
    /// The failure of a call whose second answer does not fit either.
    pub(crate) fn into_error(self, answer: &str) -> AgentError {
        let start: String = answer.trim().chars().take(80).collect();
        let start = serde_json::Value::from(start);
        let message = match self {
            Self::NotJson => "the agent's answer is not valid JSON (after a retry)".to_owned(),
            Self::Invalid(violations) => {
                format!(
                    "the agent's answer does not satisfy its schema (after a retry): {}",
                    violations.join("; ")
                )
            }
        };
        AgentError::new(ErrorCode::ValidationFailed, message).with_hint(format!(
            "the answer begins with {start}; simplify the schema or ask for the value more plainly"
        ))
    }
}
