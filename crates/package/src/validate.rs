//! Inputs that the descriptor itself gives to runs, held to the derived schema.

use serde_json::{Value, json};
use trestle_contract::descriptor::{Descriptor, Trigger};

use crate::types::Schemas;

/// Problems of one input that a message names.
const NAMED_PROBLEMS: usize = 5;

/// The input of a cron trigger that the program does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronProblem {
    /// The field's path in the descriptor.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// Whether a deploy is refused: what is written down can never be right.
    pub refused: bool,
}

/// Holds the static inputs of cron triggers to the input schema (`docs/protocol/descriptor.md` §5.1). A schema that
/// does not compile judges nothing.
#[must_use]
pub fn check_cron_inputs(descriptor: &Descriptor, schemas: &Schemas) -> Vec<CronProblem> {
    let validator = schemas.input.as_ref().and_then(|schema| {
        jsonschema::draft202012::options()
            .should_validate_formats(false)
            .should_ignore_unknown_formats(true)
            .build(schema)
            .ok()
    });
    let Some(validator) = validator else { return Vec::new() };
    let mut problems = Vec::new();
    for (index, trigger) in descriptor.triggers.iter().enumerate() {
        let Trigger::Cron(cron) = trigger else { continue };
        let Some(input) = &cron.input else {
            if !validator.is_valid(&Value::Null) && !validator.is_valid(&json!({})) {
                problems.push(CronProblem {
                    field: format!("triggers.{index}"),
                    message: "the trigger has no input, and the program does not run without one".into(),
                    refused: false,
                });
            }
            continue;
        };
        let Ok(input) = input.to_value() else { continue };
        let found: Vec<String> = validator
            .iter_errors(&input)
            .take(NAMED_PROBLEMS)
            .map(|error| {
                let place = error.instance_path().to_string();
                format!("{} {error}", if place.is_empty() { "(root)" } else { &place })
            })
            .collect();
        if !found.is_empty() {
            problems.push(CronProblem {
                field: format!("triggers.{index}.input"),
                message: format!("does not fit the program: {}", found.join("; ")),
                refused: true,
            });
        }
    }
    problems
}
