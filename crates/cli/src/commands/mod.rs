//! The commands that talk to a server, and those that need none.

mod check;
mod deploy;
mod inference;
mod init;
mod run;
mod runners;
mod runs;
mod secrets;
mod workflows;

pub use check::{CheckArgs, check};
pub use deploy::{DeployArgs, Deployed, build, deploy, deploy_artifact};
pub use inference::{InferenceCommand, inference};
pub use init::{InitArgs, init};
pub use run::{RunArgs, TriggeredRunId, parse_input, run, trigger, warn_of_large_integers};
pub use runners::{
    change_runner, delete_runner, enrol_runner, mint_registration_token, runner_token, runners,
};
pub use runs::{CancelArgs, RunsArgs, cancel, cancel_run, output_of, runs, save_artifacts};
pub use secrets::{SecretsCommand, secrets, set_secret};
pub use workflows::{WorkflowsCommand, workflows};

use serde::Serialize;
use trestle_contract::api::{WorkflowList, WorkflowRow};
use trestle_contract::error::ErrorCode;

use crate::client::segment;
use crate::{CliError, Client, Terminal};

/// Writes a value as one indented JSON document to the data side.
pub(crate) fn print_json(terminal: &Terminal, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::new(ErrorCode::InternalError, error.to_string()))?;
    print(terminal, &crate::pretty_json(&text))
}

/// Writes to the data side; a reader that left ends the command.
pub(crate) fn print(terminal: &Terminal, text: &str) -> Result<(), CliError> {
    terminal
        .data(text)
        .map_err(|error| CliError::new(ErrorCode::InternalError, format!("cannot write the output: {error}")))
}

/// Finds a workflow by its id or slug.
pub(crate) async fn find_workflow(client: &Client, reference: &str) -> Result<WorkflowRow, CliError> {
    let organisation = client.organisation().await?;
    let list: WorkflowList = client.get(&format!("/v1/orgs/{}/workflows", segment(&organisation))).await?;
    let found = list
        .workflows
        .iter()
        .find(|row| row.slug.as_str() == reference || row.id.as_str().eq_ignore_ascii_case(reference));
    found.cloned().ok_or_else(|| {
        let near = nearest(reference, list.workflows.iter().map(|row| row.slug.as_str()));
        let error = CliError::new(ErrorCode::NotFound, format!("no workflow {reference}"));
        match near {
            Some(near) => error.hint(format!("did you mean {near}? `trestle workflows` lists them")),
            None => error.hint("`trestle workflows` lists them; `trestle deploy DIR` adds one"),
        }
    })
}

/// The name that is most like `wanted`, if one is like it at all.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
        .min()
        .map(|(_, name)| name)
}

fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// A table with a line for each row, columns two blanks apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_one_meant() {
        let names = ["nightly-report", "hello", "triage"];
        assert_eq!(nearest("nightly-reprot", names.into_iter()), Some("nightly-report"));
        assert_eq!(nearest("helo", names.into_iter()), Some("hello"));
        assert_eq!(nearest("deploy", names.into_iter()), None);
        assert_eq!([distance("", "abc"), distance("abc", "abc"), distance("kitten", "sitting")], [3, 0, 3]);
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        assert_eq!(table(&[row(&["a", "long cell", "x"]), row(&["bbb", "é"])]), "a    long cell  x\nbbb  é");
    }
}
