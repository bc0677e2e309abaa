//! From a version and an input to a run that can be queued.

use trestle_contract::RawJson;
use trestle_contract::descriptor::{CallableBy, Concurrency, KeyTemplate, Lane, Manifest, RunsOn};
use trestle_store::{NewRun, Placement, Trigger, VersionRow};

use crate::failure::{Answer, Failure};
use crate::state::State;

/// Who starts a run, as `callable_by` judges it.
pub(crate) enum Caller<'a> {
    /// A person (or a program with the administrator's token).
    Person,
    /// A run of the workflow with this slug.
    Workflow(&'a str),
}

/// The run of `version` with `input`, ready to be created. The caller adds
/// its parent or its idempotency key.
pub(crate) fn new_run(
    state: &State,
    version: &VersionRow,
    caller: &Caller<'_>,
    input: Option<RawJson>,
    actor: RawJson,
) -> Answer<NewRun> {
    let manifest: Manifest = version.manifest.decode().map_err(Failure::internal)?;
    may_call(&manifest.descriptor.callable_by, caller)?;
    check_size(state, input.as_ref())?;
    if let Some(schema) = &manifest.input_schema {
        check_schema(schema, input.as_ref())?;
    }
    let descriptor = &manifest.descriptor;
    let concurrency_key = match &descriptor.concurrency {
        Concurrency::Serial(Lane { key }) | Concurrency::LatestWins(Lane { key }) => {
            resolve("concurrency.key", key.as_deref(), input.as_ref())?
        }
        Concurrency::Unlimited => None,
    };
    let workspace_key = descriptor.workspace.as_ref().and_then(|workspace| workspace.key.as_deref());
    Ok(NewRun {
        workflow: version.workflow.clone(),
        version: Some(version.id.clone()),
        workspace_key: resolve("workspace.key", workspace_key, input.as_ref())?,
        concurrency_key,
        input,
        trigger: Trigger { kind: "manual".to_owned(), payload: None, request: None },
        actor,
        environment: None,
        retried_from: None,
        placement: placement(&state.config().hosted_pool, &descriptor.runs_on)?,
        parent: None,
        idempotency: None,
    })
}

/// Program JSON has the same bound wherever it comes from.
fn check_size(state: &State, input: Option<&RawJson>) -> Answer<()> {
    let limit = state.config().limits.input;
    let size = input.map_or(0, |input| input.get().len() as u64);
    if size > limit {
        return Err(Failure::new(
            trestle_contract::ErrorCode::PayloadTooLarge,
            format!("the input has {size} bytes, at most {limit} are allowed"),
        )
        .hint("store large data elsewhere and pass its address"));
    }
    Ok(())
}

fn check_schema(schema: &RawJson, input: Option<&RawJson>) -> Answer<()> {
    let null = RawJson::null();
    let unreadable = |error: serde_json::Error| {
        Failure::invalid(format!("the input cannot be checked against the input schema: {error}"))
    };
    let schema = schema.to_value().map_err(Failure::internal)?;
    let value = input.unwrap_or(&null).to_value().map_err(unreadable)?;
    let validator = match jsonschema::draft202012::new(&schema) {
        Ok(validator) => validator,
        // A schema that does not compile judges nothing.
        Err(error) => {
            tracing::warn!(%error, "an input schema does not compile");
            return Ok(());
        }
    };
    // A missing input reaches the program as `{}` where its schema wants an
    // object, so that form counts too.
    let empty = serde_json::json!({});
    if validator.is_valid(&value) || (value.is_null() && validator.is_valid(&empty)) {
        return Ok(());
    }
    let mut problems: Vec<String> = validator
        .iter_errors(&value)
        .take(5)
        .map(|error| {
            let place = error.instance_path().to_string();
            format!("{} {error}", if place.is_empty() { "(root)" } else { &place })
        })
        .collect();
    problems.sort();
    Err(Failure::invalid(format!("the input does not fit the workflow: {}", problems.join("; ")))
        .hint("the workflow's input_schema says what it takes"))
}

fn resolve(field: &str, template: Option<&str>, input: Option<&RawJson>) -> Answer<Option<String>> {
    let Some(template) = template else { return Ok(None) };
    let template = KeyTemplate::parse(template)
        .map_err(|_| Failure::internal(format!("{field} of a stored manifest does not parse")))?;
    let value = input
        .map_or(Ok(serde_json::Value::Null), RawJson::to_value)
        .map_err(|error| Failure::invalid(format!("{field} cannot be resolved: {error}")))?;
    template.evaluate(&value).map(Some).map_err(|error| {
        Failure::invalid(format!("{field} cannot be resolved from the input: {error}"))
            .hint("give the input the field that the template names, or the template a fallback")
    })
}

fn may_call(callable_by: &CallableBy, caller: &Caller<'_>) -> Answer<()> {
    let allowed = match (callable_by, caller) {
        (CallableBy::AnyoneInOrg, _)
        | (CallableBy::UsersOnly, Caller::Person)
        | (CallableBy::WorkflowsOnly, Caller::Workflow(_)) => true,
        // The administrator has the role of an owner.
        (CallableBy::Roles(roles), Caller::Person) => {
            roles.iter().any(|role| matches!(role.as_str(), "owner" | "admin"))
        }
        (CallableBy::Workflows(slugs), Caller::Workflow(slug)) => slugs.iter().any(|allowed| allowed == slug),
        _ => false,
    };
    if allowed {
        Ok(())
    } else {
        Err(Failure::forbidden("the workflow's callable_by does not admit this caller")
            .hint("change callable_by of the called workflow"))
    }
}

fn placement(hosted_pool: &str, runs_on: &RunsOn) -> Answer<Placement> {
    let hosted = |label: &str| {
        Ok(Placement {
            runs_on: RawJson::encode(label).map_err(Failure::internal)?,
            pool: hosted_pool.to_owned(),
            labels: Vec::new(),
        })
    };
    match runs_on {
        RunsOn::Hosted(label) => hosted(label.as_str()),
        RunsOn::HostedSized(runner) => hosted(runner.label.as_str()),
        RunsOn::SelfHosted(own) => Ok(Placement {
            runs_on: RawJson::encode(runs_on).map_err(Failure::internal)?,
            pool: own.pool.clone(),
            labels: own.labels.clone().unwrap_or_default(),
        }),
    }
}
