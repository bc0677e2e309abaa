//! From a claimed run to a program that is ready to start.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use futures_util::future::try_join_all;
use trestle_agent::FileTree;
use trestle_contract::control::{RunClaimResponse, VersionResponse};
use trestle_contract::descriptor::{Manifest, secret_reference};
use trestle_contract::event::{EventBody, StandardStream};
use trestle_contract::host::{
    Actor, BootstrapResult, Context, ContextEnvironment, Trigger, TriggerKind, TriggerRequest,
};
use trestle_contract::{ErrorCode, NonEmptyString, Positive, RawJson, RawObject};
use trestle_sandbox::slot::Assignment;

use crate::control::{ControlClient, ControlError};
use crate::events::Emitter;
use crate::host::{HostFailure, OutputSchema, RunFacts, accepts_empty_object_only, resolve_secret};
use crate::inference::Providers;
use crate::program::{
    self, PrepareError, ProgramFiles, base_environment, link_sdk, program_environment, write_sdk,
};

/// Why a run does not get as far as its program.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// The run fails with this.
    Failed(PrepareError),
    /// It says nothing about the run: it is given back.
    Unavailable(ControlError),
}

impl From<PrepareError> for NotReady {
    fn from(error: PrepareError) -> Self {
        Self::Failed(error)
    }
}

impl From<HostFailure> for PrepareError {
    fn from(failure: HostFailure) -> Self {
        Self { code: failure.code().to_owned(), message: failure.0.message.clone(), hint: failure.0.hint() }
    }
}

/// The version of a claimed run.
pub(crate) struct Version {
    pub(crate) manifest: Manifest,
    pub(crate) answer: VersionResponse,
}

/// Asks for the version and reads its manifest.
pub(crate) async fn version(control: &ControlClient) -> Result<Version, NotReady> {
    let answer = match control.version().await {
        Ok(answer) => answer,
        Err(error) if error.status() == Some(404) => {
            return Err(PrepareError::internal("the version that the run is pinned to does not exist")
                .with_hint("deploy the workflow and start a new run")
                .into());
        }
        Err(error @ ControlError::Shape { .. }) => {
            return Err(PrepareError::internal(error.to_string()).into());
        }
        Err(error) => return Err(NotReady::Unavailable(error)),
    };
    let manifest = Manifest::from_json(answer.manifest.get())
        .map_err(|error| PrepareError::internal(format!("the stored manifest is not valid: {error}")))?;
    Ok(Version { manifest, answer })
}

/// Everything about a run whose program can start.
pub(crate) struct Ready {
    pub(crate) facts: RunFacts,
    pub(crate) files: ProgramFiles,
}

/// Fetches the program and resolves what it is given, side by side.
pub(crate) async fn prepare(
    control: &ControlClient,
    emitter: &Emitter,
    assignment: &Assignment,
    slot: &Path,
    claim: &RunClaimResponse,
    version: &Version,
) -> Result<Ready, NotReady> {
    let workspace = usable_directory(&assignment.workspace_dir)?;
    let temporary = usable_directory(&assignment.tmp_dir)?;
    let sdk = slot.join("sdk");
    let (files, own) = tokio::try_join!(
        program::fetch(control, &version.answer.program, &assignment.program_root, &workspace),
        resolve_environment(control, emitter, assignment, &version.manifest),
    )?;
    if !sdk.is_dir() {
        write_sdk(&sdk).map_err(|error| PrepareError::internal(format!("cannot write the SDK: {error}")))?;
    }
    link_sdk(&files.directory, &sdk)?;
    let environment = program_environment(&base_environment(), &workspace, &temporary, &own);
    let (output_schema, warning) = OutputSchema::new(version.manifest.output_schema.as_ref());
    if let Some(reason) = warning {
        let text = format!(
            "warning: the return value is not checked, because the output schema is not valid: {reason}"
        );
        emitter.emit(EventBody::ProgramOutput { stream: StandardStream::Stderr, text });
    }
    let bootstrap = bootstrap_of(claim, version, &workspace)?;
    let has = |wanted: &str| claim.capabilities.iter().flatten().any(|capability| capability == wanted);
    let facts = RunFacts {
        run_id: claim.run.id.clone(),
        bootstrap,
        output_schema,
        environment,
        package: FileTree::open(&files.directory).ok(),
        workspace_tree: FileTree::open(&workspace).ok(),
        workspace,
        temporary,
        api_token: assignment.api_token.clone(),
        providers: Providers::of_claim(&assignment.byo_providers),
        honours_turn_keys: has("turnKey"),
        is_extended: claim.is_extended(),
        asks_for_lanes: has("brokered"),
    };
    Ok(Ready { facts, files })
}

fn usable_directory(directory: &Path) -> Result<PathBuf, PrepareError> {
    let unusable = |error: std::io::Error| {
        PrepareError::new(
            ErrorCode::HostBuildFailed,
            format!("{} cannot be used: {error}", directory.display()),
        )
    };
    fs::create_dir_all(directory).map_err(unusable)?;
    // Programs compare it with their working directory, which has no links in it.
    fs::canonicalize(directory).map_err(unusable)
}

/// The environment entries of the run: literal ones, those of the claim, and secrets. Every secret is
/// known to the redactor before the program exists.
async fn resolve_environment(
    control: &ControlClient,
    emitter: &Emitter,
    assignment: &Assignment,
    manifest: &Manifest,
) -> Result<BTreeMap<String, String>, PrepareError> {
    let mut environment = BTreeMap::new();
    let mut secrets = Vec::new();
    for (name, value) in manifest.descriptor.env.iter().flatten() {
        match secret_reference(value) {
            Some(secret) => secrets.push((name.clone(), secret.to_owned())),
            None => {
                environment.insert(name.clone(), value.clone());
            }
        }
    }
    environment.extend(assignment.env.clone());
    let resolved = try_join_all(secrets.into_iter().map(|(name, secret)| async move {
        let value = resolve_secret(control.clone(), &secret).await?;
        Ok::<_, HostFailure>((name, secret, value))
    }))
    .await?;
    for (name, secret, value) in resolved {
        emitter.redactor().add(&secret, &value);
        environment.insert(name, value);
    }
    if let Some(name) = environment.iter().find(|(_, value)| value.contains('\0')).map(|(name, _)| name) {
        return Err(PrepareError::invalid(
            format!("the environment entry {name} holds a NUL byte"),
            "a program cannot be given such a value; read the secret with secrets.get instead",
        ));
    }
    Ok(environment)
}

fn bootstrap_of(
    claim: &RunClaimResponse,
    version: &Version,
    workspace: &Path,
) -> Result<RawJson, PrepareError> {
    let run = &claim.run;
    let input = run.program_input();
    let schema = version.manifest.input_schema.as_ref();
    let wants_object = input.is_null() && schema.is_some_and(accepts_empty_object_only);
    let input = if wants_object { RawObject::empty().as_json().clone() } else { input.clone() };
    let actor = Actor::from(&run.actor);
    let trigger = Trigger {
        kind: TriggerKind::from_wire(&run.trigger_kind),
        fired_at: run.created_at,
        source: actor.trigger_source().cloned(),
        request: run.webhook_request().and_then(TriggerRequest::from_run),
    };
    let text = |text: &str| NonEmptyString::saturating(text);
    let result = BootstrapResult {
        input,
        input_schema: schema.and_then(|schema| RawObject::try_from(schema.clone()).ok()),
        context: Context {
            run_id: text(run.id.as_str()),
            workflow_id: text(run.workflow_id.as_str()),
            workflow_version: Positive::saturating(claim.workflow_version.unwrap_or(1)),
            org_id: text(run.org_id.as_str()),
            environment: claim
                .environment
                .as_ref()
                .map(|found| ContextEnvironment { id: text(found.id.as_str()), name: text(&found.name) }),
            actor,
            attempt: Positive::saturating(run.attempt.unwrap_or(1)),
            trigger: trigger.for_sdk(&version.answer.program.sdk_version),
            workspace_dir: text(&workspace.display().to_string()),
        },
    };
    RawJson::encode(&result)
        .map_err(|error| PrepareError::internal(format!("the input cannot be passed on: {error}")))
}
