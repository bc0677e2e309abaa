use std::path::{Path, PathBuf};

use serde::Serialize;
use trestle_contract::api::{
    ArtifactReference, DeployRequest, DeployResponse, UploadUrlRequest, UploadUrlResponse, WorkflowList,
};
use trestle_contract::error::ErrorCode;
use trestle_contract::ids::Digest;
use trestle_package::Artifact;

use crate::client::segment;
use crate::commands::check::note_findings;
use crate::commands::run::{self, Wait};
use crate::commands::{print, print_json};
use crate::{BuildSteps, CliError, Client, Terminal};

/// `trestle deploy DIR`
#[derive(Debug, clap::Args)]
pub struct DeployArgs {
    /// The workflow's directory.
    #[arg(default_value = ".")]
    pub directory: PathBuf,
    /// Start a run of what was deployed, and wait for it.
    #[arg(long)]
    pub run: bool,
    /// Input of that run: JSON, @FILE, or - for standard input.
    #[arg(long, requires = "run", value_name = "JSON")]
    pub input: Option<String>,
    /// Deploy although a field of the descriptor has no effect here; every run then says so.
    #[arg(long)]
    pub allow_unsupported: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What a deploy made.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployed {
    /// The workflow.
    pub workflow_id: String,
    /// Its slug.
    pub slug: String,
    /// The current version.
    pub version: u64,
    /// Whether this deploy made it.
    pub changed: bool,
    /// What the server has to say about the descriptor.
    pub warnings: Vec<String>,
}

/// Builds a directory into an artifact and says what was found on the way.
///
/// # Errors
/// When the program cannot be built.
pub fn build(terminal: &Terminal, directory: &Path) -> Result<Artifact, CliError> {
    match trestle_package::build(directory, &BuildSteps::new(terminal)) {
        Ok(artifact) => {
            note_findings(terminal, &artifact.report);
            Ok(artifact)
        }
        Err(error) => {
            note_findings(terminal, &error.report);
            let count = error.report.errors.len();
            let plural = if count == 1 { "error" } else { "errors" };
            Err(CliError::new(
                error.code(),
                format!("{} cannot be built: {count} {plural}", directory.display()),
            ))
        }
    }
}

/// Uploads an artifact and makes it the current version of its workflow.
///
/// # Errors
/// When the server refuses the artifact or its descriptor.
pub async fn deploy_artifact(
    terminal: &Terminal,
    client: &Client,
    artifact: &Artifact,
    allow_unsupported: bool,
) -> Result<Deployed, CliError> {
    let step = terminal.step(&format!("uploading {}", artifact.descriptor.descriptor.slug));
    let organisation = client.organisation().await?;
    let workflows = format!("/v1/orgs/{}/workflows", segment(&organisation));
    let digest = Digest::new(artifact.digest.as_str())
        .map_err(|error| CliError::new(ErrorCode::InternalError, error.to_string()))?;
    let size = artifact.bytes.len() as u64;
    let upload: UploadUrlResponse = client
        .post(&format!("{workflows}/artifact-upload-url"), &UploadUrlRequest { digest: digest.clone(), size })
        .await?;
    client.upload(&upload.upload_url, &upload.content_type, artifact.bytes.clone().into()).await?;
    step.update("registering");
    let known: WorkflowList = client.get(&workflows).await?;
    let known =
        known.workflows.into_iter().find(|row| row.slug.as_str() == artifact.descriptor.descriptor.slug);
    let reference = ArtifactReference {
        digest,
        size,
        entry: artifact.entry.clone(),
        sdk_version: artifact.sdk_version.clone(),
        lockfile_digest: artifact.lockfile_digest.clone(),
    };
    let request = DeployRequest { artifact: reference, allow_unsupported };
    let answer: DeployResponse = match &known {
        Some(row) => client.patch(&format!("/v1/workflows/{}", segment(row.id.as_str())), &request).await?,
        None => client.post(&workflows, &request).await?,
    };
    drop(step);
    let warnings: Vec<String> = answer.warnings.into_iter().map(|warning| warning.message).collect();
    for warning in &warnings {
        terminal.note(&format!("warning: {warning}"));
    }
    let before = known.and_then(|row| row.current_version_id);
    Ok(Deployed {
        changed: before.as_ref() != Some(&answer.version.id),
        workflow_id: answer.workflow.id.to_string(),
        slug: answer.workflow.slug.to_string(),
        version: answer.version.number,
        warnings,
    })
}

/// `trestle deploy`.
///
/// # Errors
/// When the program cannot be built, the server refuses it, or the run of `--run` cannot be started.
pub async fn deploy(terminal: &Terminal, client: &Client, args: &DeployArgs) -> Result<u8, CliError> {
    let input = args.input.as_deref().map(run::parse_input).transpose()?;
    let artifact = build(terminal, &args.directory)?;
    let deployed = deploy_artifact(terminal, client, &artifact, args.allow_unsupported).await?;
    let what = if deployed.changed { "deployed" } else { "unchanged:" };
    let line = format!("{what} {} version {}", deployed.slug, deployed.version);
    if args.run {
        terminal.note(&line);
        return run::start_and_wait(terminal, client, &deployed.workflow_id, input, Wait::Follow, args.json)
            .await;
    }
    if args.json {
        print_json(terminal, &deployed)?;
    } else {
        print(terminal, &line)?;
    }
    Ok(crate::EXIT_COMPLETED)
}
