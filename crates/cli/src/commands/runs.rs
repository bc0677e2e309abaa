use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use trestle_contract::api::{ArtifactRowList, ArtifactUrl, RunDetail, RunDetailResponse, RunList};
use trestle_contract::error::ErrorCode;
use trestle_contract::event::{Channel, RunStatus};

use crate::client::segment;
use crate::commands::{find_workflow, print, table};
use crate::event_stream::{follow, read_snapshot};
use crate::renderer::{Renderer, Selection, instant, output_text};
use crate::{CliError, Client, Terminal};

/// `trestle runs [ID]`
#[derive(Debug, clap::Args)]
pub struct RunsArgs {
    /// A run; without it, runs are listed.
    pub run: Option<String>,
    /// Show the run's log so far.
    #[arg(long, requires = "run", conflicts_with = "follow")]
    pub logs: bool,
    /// Show the run's log until it ends; the exit code tells how.
    #[arg(long, requires = "run")]
    pub follow: bool,
    /// Only these channels: lifecycle, phase, output, log, agent.
    #[arg(long, value_name = "CHANNELS", conflicts_with = "verbose")]
    pub stream: Option<String>,
    /// All channels.
    #[arg(long)]
    pub verbose: bool,
    /// Print JSON: one object, or one `{"cursor","event"}` a line with --logs and --follow.
    #[arg(long)]
    pub json: bool,
    /// Only runs of this workflow (slug or id).
    #[arg(long, conflicts_with = "run")]
    pub workflow: Option<String>,
    /// Only runs with this status.
    #[arg(long, conflicts_with = "run")]
    pub status: Option<String>,
    /// How many runs to list.
    #[arg(long, conflicts_with = "run", default_value_t = 20)]
    pub limit: u32,
}

/// `trestle cancel ID`
#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// The run.
    pub run: String,
}

/// `trestle runs`.
///
/// # Errors
/// When the run or workflow is unknown, a channel or status name is, or the server cannot be reached.
pub async fn runs(terminal: &Terminal, client: &Client, args: &RunsArgs) -> Result<u8, CliError> {
    let selection = selection(args)?;
    let Some(run) = &args.run else { return list(terminal, client, args).await };
    if !args.logs && !args.follow {
        return detail(terminal, client, run, args.json).await;
    }
    let mut renderer = Renderer::new(selection);
    let mut show = |followed: crate::event_stream::FollowedEvent<'_>| {
        if args.json {
            return print(
                terminal,
                &format!(r#"{{"cursor":{},"event":{}}}"#, followed.cursor, followed.json),
            );
        }
        let text = renderer.render(followed.event);
        terminal.data_raw(&text).map_err(|error| {
            CliError::new(ErrorCode::InternalError, format!("cannot write the log: {error}"))
        })
    };
    let exit = if args.follow {
        follow(client, run, 0, &mut show).await?.exit()
    } else {
        read_snapshot(client, run, &mut 0, &mut None, &mut show).await?;
        crate::EXIT_COMPLETED
    };
    let rest = renderer.finish();
    if !args.json && !rest.is_empty() {
        terminal.data_raw(&rest).map_err(|error| {
            CliError::new(ErrorCode::InternalError, format!("cannot write the log: {error}"))
        })?;
    }
    if let Some(note) = renderer.hidden_note() {
        terminal.note(&note);
    }
    Ok(exit)
}

fn selection(args: &RunsArgs) -> Result<Selection, CliError> {
    let Some(stream) = &args.stream else {
        return Ok(if args.verbose { Selection::verbose() } else { Selection::standard() });
    };
    let names: Vec<&str> = stream.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let valid = Channel::ALL.map(Channel::as_str).join(", ");
    let channels: Option<Vec<Channel>> = names.iter().map(|name| Channel::from_name(name)).collect();
    match channels {
        Some(mut channels) if !channels.is_empty() => {
            channels.sort_unstable();
            channels.dedup();
            Ok(Selection::of(channels))
        }
        _ => Err(CliError::usage(format!("--stream {stream} names an unknown channel or none"))
            .hint(format!("the channels are {valid}"))),
    }
}

async fn list(terminal: &Terminal, client: &Client, args: &RunsArgs) -> Result<u8, CliError> {
    let mut query = format!("?limit={}", args.limit);
    if let Some(status) = &args.status {
        let status: RunStatus = status.parse().map_err(|_| {
            let valid = RunStatus::ALL.map(RunStatus::as_str).join(", ");
            CliError::usage(format!("--status {status} is no status"))
                .hint(format!("the statuses are {valid}"))
        })?;
        query.push_str(&format!("&status={status}"));
    }
    let path = match &args.workflow {
        Some(workflow) => {
            let organisation = client.organisation().await?;
            let workflow = find_workflow(client, workflow).await?;
            format!(
                "/v1/orgs/{}/workflows/{}/runs{query}",
                segment(&organisation),
                segment(workflow.id.as_str())
            )
        }
        None => format!("/v1/orgs/{}/runs{query}", segment(&client.organisation().await?)),
    };
    if args.json {
        let body: Box<RawValue> = client.get(&path).await?;
        print(terminal, &crate::pretty_json(body.get()))?;
        return Ok(crate::EXIT_COMPLETED);
    }
    let runs: RunList = client.get(&path).await?;
    if runs.runs.is_empty() {
        terminal.note("no runs");
        return Ok(crate::EXIT_COMPLETED);
    }
    let rows: Vec<Vec<String>> = runs
        .runs
        .iter()
        .map(|run| {
            let slug = run.workflow_slug.clone().unwrap_or_else(|| run.workflow_id.to_string());
            vec![run.id.to_string(), run.status.to_string(), slug, instant(run.created_at.get_signed())]
        })
        .collect();
    print(terminal, &table(&rows))?;
    if runs.next_cursor.is_some() {
        terminal.note("· more runs: raise --limit");
    }
    Ok(crate::EXIT_COMPLETED)
}

async fn detail(terminal: &Terminal, client: &Client, run: &str, json: bool) -> Result<u8, CliError> {
    let path = format!("/v1/runs/{}", segment(run));
    if json {
        let body: Box<RawValue> = client.get(&path).await?;
        print(terminal, &crate::pretty_json(body.get()))?;
        return Ok(crate::EXIT_COMPLETED);
    }
    let detail: RunDetailResponse = client.get(&path).await?;
    let artifacts: ArtifactRowList =
        client.get(&format!("{path}/artifacts")).await.unwrap_or(ArtifactRowList { artifacts: Vec::new() });
    print(terminal, &detail_text(&detail.run, &artifacts))?;
    Ok(crate::EXIT_COMPLETED)
}

fn detail_text(run: &RunDetail, artifacts: &ArtifactRowList) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row =
        |name: &str, value: Option<String>| rows.extend(value.map(|value| vec![name.to_owned(), value]));
    row("run", Some(run.id.to_string()));
    let version = run.workflow_version.map(|version| format!(" version {version}")).unwrap_or_default();
    row(
        "workflow",
        Some(format!(
            "{}{version}",
            run.workflow_slug.clone().unwrap_or_else(|| run.workflow_id.to_string())
        )),
    );
    row("status", Some(run.status.to_string()));
    row("trigger", run.trigger_kind.clone());
    row("parent", run.parent_run_id.as_ref().map(ToString::to_string));
    row("attempt", run.attempt.filter(|attempt| *attempt > 1).map(|attempt| attempt.to_string()));
    row("created", Some(instant(run.created_at.get_signed())));
    row("started", run.started_at.map(|at| instant(at.get_signed())));
    row("completed", run.completed_at.map(|at| instant(at.get_signed())));
    let tokens = run.tokens_in + run.tokens_out;
    row("tokens", (tokens > 0).then(|| format!("{tokens} ({} in, {} out)", run.tokens_in, run.tokens_out)));
    row("cost", run.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.6}")));
    for artifact in &artifacts.artifacts {
        row(
            "artifact",
            Some(format!("{} ({}, {} bytes)", artifact.name, artifact.content_type, artifact.size_bytes)),
        );
    }
    if let Some(error) = &run.error {
        row("error", Some(format!("{}: {}", error.code, error.message)));
        row("hint", error.hint.clone());
    }
    let mut text = table(&rows);
    if let Some(output) = run.output.as_ref().filter(|_| run.error.is_none()) {
        text.push_str("\n\n");
        text.push_str(&output_text(output));
    }
    text
}

/// Asks the server to cancel a run; a run that is over is no error.
///
/// # Errors
/// When the run is unknown or the server cannot be reached.
pub async fn cancel_run(client: &Client, run: &str) -> Result<(), CliError> {
    client.act(&format!("/v1/runs/{}/cancel", segment(run))).await
}

/// `trestle cancel`.
///
/// # Errors
/// As [`cancel_run`].
pub async fn cancel(terminal: &Terminal, client: &Client, args: &CancelArgs) -> Result<u8, CliError> {
    cancel_run(client, &args.run).await?;
    let detail: RunDetailResponse = client.get(&format!("/v1/runs/{}", segment(&args.run))).await?;
    let line = match detail.run.status {
        RunStatus::Cancelled => format!("run {} is cancelled", args.run),
        RunStatus::Cancelling => format!("run {} is being cancelled", args.run),
        RunStatus::Completed | RunStatus::Failed => {
            format!("run {} is over already: {}", args.run, detail.run.status)
        }
        other => format!("asked to cancel run {} ({other})", args.run),
    };
    print(terminal, &line)?;
    Ok(crate::EXIT_COMPLETED)
}

/// The output of a run, byte for byte; `None` while there is none.
///
/// # Errors
/// When the run is unknown or the server cannot be reached.
pub async fn output_of(client: &Client, run: &str) -> Result<Option<trestle_contract::RawJson>, CliError> {
    let detail: RunDetailResponse = client.get(&format!("/v1/runs/{}", segment(run))).await?;
    Ok(detail.run.output)
}

/// Copies the artifacts of a run into a directory; returns the files.
///
/// # Errors
/// When an artifact cannot be fetched or written.
pub async fn save_artifacts(client: &Client, run: &str, directory: &Path) -> Result<Vec<PathBuf>, CliError> {
    let path = format!("/v1/runs/{}/artifacts", segment(run));
    let list: ArtifactRowList = client.get(&path).await?;
    let mut saved = Vec::new();
    for artifact in list.artifacts {
        let address: ArtifactUrl =
            client.get(&format!("{path}/{}/url", segment(artifact.id.as_str()))).await?;
        let failed = |error: &dyn std::fmt::Display| {
            CliError::new(
                ErrorCode::InternalError,
                format!("cannot save the artifact {}: {error}", artifact.name),
            )
        };
        std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
        let target = free_name(directory, &artifact.name);
        let mut answer = client.download(&address.signed_url).await?;
        let mut file = tokio::fs::File::create(&target).await.map_err(|error| failed(&error))?;
        while let Some(chunk) = answer.chunk().await.map_err(|error| failed(&error.without_url()))? {
            tokio::io::AsyncWriteExt::write_all(&mut file, &chunk).await.map_err(|error| failed(&error))?;
        }
        tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(|error| failed(&error))?;
        saved.push(target);
    }
    Ok(saved)
}

/// A file name below `directory` that is free; artifact names come from programs and may hold anything.
fn free_name(directory: &Path, name: &str) -> PathBuf {
    let safe: String = name
        .chars()
        .map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c })
        .take(200)
        .collect();
    let safe = safe.trim_start_matches('.');
    let safe = if safe.is_empty() { "artifact" } else { safe };
    let mut path = directory.join(safe);
    for number in 2.. {
        if !path.exists() {
            break;
        }
        path = directory.join(format!("{number}-{safe}"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifact_names_stay_below_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        for (name, file) in [
            ("report.md", "report.md"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "artifact"),
            ("a\nb", "a_b"),
        ] {
            assert_eq!(free_name(directory.path(), name), directory.path().join(file), "{name}");
        }
        std::fs::write(directory.path().join("x"), "").unwrap();
        assert_eq!(free_name(directory.path(), "x"), directory.path().join("2-x"));
    }
}
