//! Deploys (docs/protocol/public-api.md §5). The server opens the artifact and
//! is the judge of what is in it; the caller's word counts for nothing but
//! the digest.

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use serde::Deserialize;
use trestle_contract::api::{
    ArtifactReference, DeployRequest, DeployResponse, DeployWarning, DeployedVersion, DeployedWorkflow,
    ProgramFile, UploadUrlRequest, UploadUrlResponse,
};
use trestle_contract::descriptor::{Descriptor, DescriptorErrors, Manifest};
use trestle_contract::ids::Slug;
use trestle_contract::{ErrorCode, RawJson};
use trestle_package::artifact::{
    ArtifactContents, ArtifactError, Limits, derive_schemas, inspect, read_files,
};
use trestle_package::{Schemas, check_cron_inputs, unsupported};
use trestle_store::{DeployTarget, NewUpload, NewVersion, ProgramRow, UploadPurpose};

use super::workflows::workflow_id;
use super::{check_organisation, unsigned};
use crate::auth::Reach;
use crate::blobs::reader;
use crate::body::{Json, Reply};
use crate::extract::{Parameters, Segments};
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

const CONTENT_TYPE: &str = "application/gzip";
/// Sources beyond this are not shown.
const SHOWN_SOURCES: u64 = 1024 * 1024;
/// Problems of a descriptor that one message names.
const NAMED_PROBLEMS: usize = 10;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(
            Method::POST,
            "/v1/orgs/{org}/workflows/artifact-upload-url",
            Reach::Administer,
            "An address for the bytes of a program artifact",
        )
        .takes::<UploadUrlRequest>()
        .answers::<UploadUrlResponse>(StatusCode::CREATED),
        upload_url,
    );
    table.add(
        Route::api(
            Method::POST,
            "/v1/orgs/{org}/workflows",
            Reach::Administer,
            "Deploys an uploaded artifact as the workflow that its descriptor names",
        )
        .query("allowUnsupported", "true deploys in spite of fields without an engine")
        .takes::<DeployRequest>()
        .answers::<DeployResponse>(StatusCode::CREATED)
        .answers::<DeployResponse>(StatusCode::OK),
        create,
    );
    table.add(
        Route::api(
            Method::PATCH,
            "/v1/workflows/{workflow}",
            Reach::Administer,
            "Deploys an uploaded artifact as a version of this workflow",
        )
        .query("allowUnsupported", "true deploys in spite of fields without an engine")
        .takes::<DeployRequest>()
        .answers::<DeployResponse>(StatusCode::OK),
        update,
    );
}

fn key_of(artifact_digest: &str) -> String {
    format!("programs/{artifact_digest}.tgz")
}

async fn upload_url(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Json(request): Json<UploadUrlRequest>,
) -> Answer<Reply<UploadUrlResponse>> {
    check_organisation(&state, &org)?;
    let limit = state.config().limits.program;
    if request.size > limit {
        return Err(Failure::new(
            ErrorCode::PayloadTooLarge,
            format!("the artifact has {} bytes, at most {limit} are allowed", request.size),
        )
        .hint("ship less: check the globs of \"files\""));
    }
    let digest = request.digest.as_str();
    let key = key_of(digest);
    let lifetime = state.config().intervals.unclaimed_upload_ms;
    state
        .store()
        .create_upload(NewUpload {
            key: key.clone(),
            purpose: UploadPurpose::Program,
            blob_key: key.clone(),
            size: request.size,
            sha256: Some(digest.to_owned()),
            content_type: CONTENT_TYPE.to_owned(),
            metadata: None,
            lifetime_ms: i64::try_from(lifetime).unwrap_or(i64::MAX),
        })
        .await?;
    let (upload_url, _) = state.upload(&key, request.size, Some(digest), CONTENT_TYPE);
    Ok(Reply::created(UploadUrlResponse { upload_url, content_type: CONTENT_TYPE.to_owned() }))
}

#[derive(Deserialize)]
struct DeployQuery {
    #[serde(rename = "allowUnsupported")]
    allow_unsupported: Option<bool>,
}

async fn create(
    FromState(state): FromState<State>,
    Segments(org): Segments<String>,
    Parameters(query): Parameters<DeployQuery>,
    Json(request): Json<DeployRequest>,
) -> Answer<Reply<DeployResponse>> {
    check_organisation(&state, &org)?;
    let allow = request.allow_unsupported || query.allow_unsupported == Some(true);
    let (status, answer) = deploy(&state, None, &request.artifact, allow).await?;
    Ok(Reply(status, answer))
}

async fn update(
    FromState(state): FromState<State>,
    Segments(workflow): Segments<String>,
    Parameters(query): Parameters<DeployQuery>,
    Json(request): Json<DeployRequest>,
) -> Answer<Reply<DeployResponse>> {
    let row = state.store().workflow(&workflow_id(&workflow)?).await?;
    let allow = request.allow_unsupported || query.allow_unsupported == Some(true);
    let (_, answer) = deploy(&state, Some(row), &request.artifact, allow).await?;
    Ok(Reply::ok(answer))
}

async fn deploy(
    state: &State,
    workflow: Option<trestle_store::WorkflowRow>,
    reference: &ArtifactReference,
    allow_unsupported: bool,
) -> Answer<(StatusCode, DeployResponse)> {
    let _claiming = state.uploads().read().await;
    let key = key_of(reference.digest.as_str());
    match state.blobs().size(&key).await? {
        Some(size) if size == reference.size => {}
        Some(size) => {
            return Err(Failure::invalid(format!(
                "artifact.size is {}, but {size} bytes were uploaded",
                reference.size
            )));
        }
        None => {
            return Err(Failure::invalid("the artifact was not uploaded, or its upload has expired")
                .hint("ask for an upload address and PUT the bytes first"));
        }
    }
    let Opened { contents, schemas, sources } = opened(state, &key).await?;
    let parsed = contents.descriptor().map_err(|errors| refused_descriptor(&errors))?;
    let mut warnings: Vec<DeployWarning> = contents
        .warnings
        .iter()
        .map(|message| DeployWarning { message: message.clone(), field: None })
        .collect();
    warnings.extend(parsed.warnings.iter().map(|warning| DeployWarning {
        message: warning.message.clone(),
        field: (warning.path != "(root)").then(|| warning.path.clone()),
    }));
    let descriptor = parsed.descriptor;
    let repeated = check_supported(&descriptor, allow_unsupported, &mut warnings)?;
    warn_about_environment(&descriptor, &mut warnings);
    check_cron(&descriptor, &schemas, &mut warnings)?;
    if let Some(workflow) = &workflow
        && workflow.slug != descriptor.slug
    {
        warnings.push(DeployWarning {
            message: format!(
                "the descriptor's slug `{}` is ignored: a workflow keeps its slug `{}`",
                descriptor.slug, workflow.slug
            ),
            field: Some("slug".to_owned()),
        });
    }
    let target = match workflow {
        Some(workflow) => DeployTarget::Workflow(workflow.id),
        None => DeployTarget::Slug(descriptor.slug.clone()),
    };
    let deployed = state
        .store()
        .deploy(new_version(
            target,
            manifest_of(descriptor, schemas)?,
            contents,
            sources,
            reference,
            repeated,
            key,
        )?)
        .await?;
    let status = if deployed.workflow_created { StatusCode::CREATED } else { StatusCode::OK };
    let answer = DeployResponse {
        workflow: DeployedWorkflow {
            id: deployed.workflow.id,
            slug: Slug::new(deployed.workflow.slug).map_err(Failure::internal)?,
            current_version_id: deployed.workflow.current_version,
        },
        version: DeployedVersion { id: deployed.version.id, number: unsigned(deployed.version.number) },
        warnings,
    };
    Ok((status, answer))
}

fn new_version(
    target: DeployTarget,
    manifest: Manifest,
    contents: ArtifactContents,
    sources: Option<Vec<ProgramFile>>,
    reference: &ArtifactReference,
    repeated: Vec<String>,
    blob_key: String,
) -> Answer<NewVersion> {
    let mut trigger_kinds: Vec<String> = Vec::new();
    for trigger in &manifest.descriptor.triggers {
        if !trigger_kinds.iter().any(|kind| kind == trigger.kind()) {
            trigger_kinds.push(trigger.kind().to_owned());
        }
    }
    let allowed = RawJson::parse(r#"{"allowUnsupported":true}"#).map_err(Failure::internal)?;
    Ok(NewVersion {
        target,
        identity: contents.identity,
        title: manifest.descriptor.title.clone(),
        manifest: RawJson::encode(&manifest).map_err(Failure::internal)?,
        trigger_kinds,
        program: ProgramRow {
            digest: reference.digest.as_str().to_owned(),
            size: reference.size,
            entry: contents.entry,
            sdk_version: sdk_version(&reference.sdk_version),
            lockfile_digest: reference.lockfile_digest.clone(),
            blob_key,
        },
        source_files: sources.map(|files| RawJson::encode(&files)).transpose().map_err(Failure::internal)?,
        deploy_options: (!repeated.is_empty()).then_some(allowed),
        warnings: repeated,
    })
}

/// What the caller says about its SDK, or `*`.
fn sdk_version(text: &str) -> String {
    let plain = text.len() <= 64 && !text.chars().any(char::is_control);
    if text.is_empty() || !plain { "*".to_owned() } else { text.to_owned() }
}

/// The descriptor with the schemas of the program's types.
fn manifest_of(descriptor: Descriptor, schemas: Schemas) -> Answer<Manifest> {
    let raw = |schema: Option<serde_json::Value>| {
        schema.map(|schema| RawJson::encode(&schema)).transpose().map_err(Failure::internal)
    };
    Ok(Manifest { descriptor, input_schema: raw(schemas.input)?, output_schema: raw(schemas.output)? })
}

/// Refuses a cron input that the program cannot take; warns about one that is missing.
fn check_cron(descriptor: &Descriptor, schemas: &Schemas, warnings: &mut Vec<DeployWarning>) -> Answer<()> {
    for problem in check_cron_inputs(descriptor, schemas) {
        if problem.refused {
            return Err(Failure::invalid(format!("{}: {}", problem.field, problem.message))
                .hint("the type of run's first parameter says what it takes"));
        }
        warnings.push(DeployWarning { message: problem.message, field: Some(problem.field) });
    }
    Ok(())
}

/// What an artifact holds.
struct Opened {
    contents: ArtifactContents,
    schemas: Schemas,
    sources: Option<Vec<ProgramFile>>,
}

/// Reads the whole artifact for what is in it, for its sources, and, when its own build has derived no schemas, for
/// the types of its program.
async fn opened(state: &State, key: &str) -> Answer<Opened> {
    let limits = Limits { packed_bytes: state.config().limits.program, ..Limits::default() };
    let first = reader(state, key).await?;
    let second = reader(state, key).await?;
    let third = reader(state, key).await?;
    let opened = tokio::task::spawn_blocking(move || {
        let mut contents = inspect(first, &limits)?;
        let sources = read_files(second, |path| path.starts_with(".bw-src/"), SHOWN_SOURCES, &limits)?;
        let schemas = match contents.schemas.take() {
            Some(schemas) => schemas,
            None => {
                let (schemas, gaps) = derive_schemas(third, &contents, &limits)?;
                contents.warnings.extend(gaps);
                schemas
            }
        };
        Ok::<_, ArtifactError>((contents, schemas, sources))
    });
    let (contents, schemas, sources) = opened.await.map_err(Failure::internal)?.map_err(|error| {
        let failure = Failure::new(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    Ok(Opened { contents, schemas, sources: sources.and_then(shown_sources) })
}

/// The sources as text; none when one of them is none.
fn shown_sources(files: Vec<(String, Vec<u8>)>) -> Option<Vec<ProgramFile>> {
    files
        .into_iter()
        .map(|(path, content)| {
            Some(ProgramFile {
                path: path.strip_prefix(".bw-src/")?.to_owned(),
                content: String::from_utf8(content).ok()?,
            })
        })
        .collect()
}

fn refused_descriptor(errors: &DescriptorErrors) -> Failure {
    let mut named: Vec<String> =
        errors.problems.iter().take(NAMED_PROBLEMS).map(ToString::to_string).collect();
    if errors.problems.len() > NAMED_PROBLEMS {
        named.push(format!("and {} more", errors.problems.len() - NAMED_PROBLEMS));
    }
    let failure = Failure::invalid(format!("{} is not valid: {}", errors.file, named.join("; ")));
    match errors.problems.iter().find_map(|problem| problem.hint.clone()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Refuses fields that must not be ignored; warns about those that may. The
/// answer holds what each run has to say again.
fn check_supported(
    descriptor: &Descriptor,
    allow: bool,
    warnings: &mut Vec<DeployWarning>,
) -> Answer<Vec<String>> {
    let found = unsupported(descriptor);
    let refused: Vec<String> = found
        .iter()
        .filter(|field| field.refused)
        .map(|field| format!("{}: {}", field.field, field.message))
        .collect();
    if !refused.is_empty() && !allow {
        return Err(Failure::unsupported(format!(
            "the descriptor asks for what this server cannot do yet: {}",
            refused.join("; ")
        ))
        .hint("remove the field, or deploy with --allow-unsupported; each run then warns"));
    }
    warnings.extend(
        found.into_iter().map(|field| DeployWarning { message: field.message, field: Some(field.field) }),
    );
    Ok(refused)
}

/// A variable that refers to a secret is resolved by our run process only.
fn warn_about_environment(descriptor: &Descriptor, warnings: &mut Vec<DeployWarning>) {
    let references = descriptor.env.iter().flatten().filter(|(_, value)| value.contains("${{"));
    for (name, _) in references {
        warnings.push(DeployWarning {
            message: "the reference to a secret is resolved by Trestle's own runners; \
                      others leave the variable out"
                .to_owned(),
            field: Some(format!("env.{name}")),
        });
    }
}
