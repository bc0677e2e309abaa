use serde_json::value::RawValue;
use trestle_contract::api::{WorkflowDetail, WorkflowList};

use crate::client::segment;
use crate::commands::{find_workflow, print, table};
use crate::renderer::instant;
use crate::{CliError, Client, Terminal};

/// `trestle workflows`
#[derive(Debug, clap::Args)]
pub struct WorkflowsCommand {
    /// What to do; lists workflows by default.
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List workflows.
    List {
        /// Only those whose slug or title holds this.
        #[arg(short = 'q', long)]
        search: Option<String>,
    },
    /// Show a workflow, its versions, and with --source its program.
    Show {
        /// Slug or id.
        workflow: String,
        /// Print the program's sources.
        #[arg(long)]
        source: bool,
    },
    /// Delete a workflow; its runs stay.
    Delete {
        /// Slug or id.
        workflow: String,
        /// Do it; without this the target is only shown.
        #[arg(long)]
        yes: bool,
    },
    /// Refuse new runs of a workflow.
    Disable {
        /// Slug or id.
        workflow: String,
    },
    /// Accept runs of a workflow again.
    Enable {
        /// Slug or id.
        workflow: String,
    },
}

/// `trestle workflows`.
///
/// # Errors
/// When the workflow is unknown or the server cannot be reached.
pub async fn workflows(
    terminal: &Terminal,
    client: &Client,
    command: &WorkflowsCommand,
) -> Result<u8, CliError> {
    match &command.action {
        None => list(terminal, client, None, command.json).await?,
        Some(Action::List { search }) => list(terminal, client, search.as_deref(), command.json).await?,
        Some(Action::Show { workflow, source }) => {
            show(terminal, client, workflow, *source, command.json).await?
        }
        Some(Action::Delete { workflow, yes }) => {
            let found = find_workflow(client, workflow).await?;
            if *yes {
                client.delete(&format!("/v1/workflows/{}", segment(found.id.as_str()))).await?;
                print(terminal, &format!("deleted {} ({})", found.slug, found.id))?;
            } else {
                print(terminal, &format!("would delete {} ({})", found.slug, found.id))?;
                terminal.note("nothing was deleted; add --yes to do it");
            }
        }
        Some(Action::Disable { workflow }) => {
            switch(terminal, client, workflow, "disable", "disabled").await?
        }
        Some(Action::Enable { workflow }) => switch(terminal, client, workflow, "enable", "enabled").await?,
    }
    Ok(crate::EXIT_COMPLETED)
}

async fn switch(
    terminal: &Terminal,
    client: &Client,
    workflow: &str,
    action: &str,
    done: &str,
) -> Result<(), CliError> {
    let found = find_workflow(client, workflow).await?;
    client.act(&format!("/v1/workflows/{}/{action}", segment(found.id.as_str()))).await?;
    print(terminal, &format!("{done} {}", found.slug))
}

async fn list(
    terminal: &Terminal,
    client: &Client,
    search: Option<&str>,
    json: bool,
) -> Result<(), CliError> {
    let query = search.map(|term| format!("?q={}", segment(term))).unwrap_or_default();
    let path = format!("/v1/orgs/{}/workflows{query}", segment(&client.organisation().await?));
    if json {
        let body: Box<RawValue> = client.get(&path).await?;
        return print(terminal, &crate::pretty_json(body.get()));
    }
    let list: WorkflowList = client.get(&path).await?;
    if list.workflows.is_empty() {
        terminal.note("no workflows; `trestle deploy DIR` adds one");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = list
        .workflows
        .iter()
        .map(|row| {
            let last = row
                .last_run
                .as_ref()
                .map(|run| format!("last run {} {}", run.status, instant(run.at.get_signed())));
            let disabled = if row.disabled_at.is_some() { "disabled" } else { "" };
            vec![
                row.slug.to_string(),
                row.id.to_string(),
                row.trigger_kinds.join(","),
                disabled.to_owned(),
                last.unwrap_or_default(),
            ]
        })
        .collect();
    print(terminal, &table(&rows))
}

async fn show(
    terminal: &Terminal,
    client: &Client,
    workflow: &str,
    source: bool,
    json: bool,
) -> Result<(), CliError> {
    let found = find_workflow(client, workflow).await?;
    let path = format!("/v1/workflows/{}", segment(found.id.as_str()));
    if json {
        let body: Box<RawValue> = client.get(&path).await?;
        return print(terminal, &crate::pretty_json(body.get()));
    }
    let detail: WorkflowDetail = client.get(&path).await?;
    if source {
        let files = detail.program.files.unwrap_or_default();
        return match files.as_slice() {
            [] => {
                terminal.note("the server does not hold the sources of this version");
                Ok(())
            }
            [only] => print(terminal, only.content.trim_end_matches('\n')),
            several => {
                let texts: Vec<String> = several
                    .iter()
                    .map(|file| format!("// ==> {}\n{}", file.path, file.content.trim_end_matches('\n')))
                    .collect();
                print(terminal, &texts.join("\n\n"))
            }
        };
    }
    let mut rows = vec![
        vec!["workflow".to_owned(), detail.workflow.slug.to_string()],
        vec!["id".to_owned(), detail.workflow.id.to_string()],
        vec!["entry".to_owned(), detail.program.entry.unwrap_or_default()],
    ];
    for version in &detail.versions {
        let current =
            if detail.workflow.current_version_id.as_ref() == Some(&version.id) { " (current)" } else { "" };
        rows.push(vec![
            "version".to_owned(),
            format!("{}{current} deployed {}", version.number, instant(version.created_at.get_signed())),
        ]);
    }
    print(terminal, &table(&rows))?;
    print(terminal, &crate::pretty_json(detail.manifest.get()))
}
