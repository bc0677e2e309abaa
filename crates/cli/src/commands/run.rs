use std::io::Read;

use serde::Serialize;
use trestle_contract::api::{RunDetailResponse, RunTriggered, TriggerRequest};
use trestle_contract::error::ErrorCode;
use trestle_contract::json::{MAX_INPUT_BYTES, RawJson};

use crate::client::segment;
use crate::commands::{find_workflow, print, print_json};
use crate::event_stream::{RunEnd, follow};
use crate::renderer::{Renderer, Selection, error_lines, output_text};
use crate::{CliError, Client, Terminal};

/// `trestle run WORKFLOW`
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Slug or id of a deployed workflow.
    pub workflow: String,
    /// Input: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    pub input: Option<String>,
    /// Print the run's id and return at once.
    #[arg(long, conflicts_with = "follow")]
    pub no_wait: bool,
    /// Show the live log while waiting.
    #[arg(long)]
    pub follow: bool,
    /// With --follow a JSON line for each event; else one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A run that was started.
pub type TriggeredRunId = String;

/// How a command waits for its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Not,
    Quietly,
    Follow,
}

/// Reads an input: JSON text, `@FILE`, or `-` for standard input.
///
/// # Errors
/// When the file cannot be read or the text is no JSON that a run may get.
pub fn parse_input(given: &str) -> Result<RawJson, CliError> {
    let unreadable = |what: &str, error: std::io::Error| {
        CliError::usage(format!("cannot read the input from {what}: {error}"))
    };
    let bounded = |source: &mut dyn Read| {
        let mut bytes = Vec::new();
        source.take(MAX_INPUT_BYTES as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = if given == "-" {
        bounded(&mut std::io::stdin()).map_err(|error| unreadable("standard input", error))?
    } else if let Some(file) = given.strip_prefix('@') {
        let mut source = std::fs::File::open(file).map_err(|error| unreadable(file, error))?;
        bounded(&mut source).map_err(|error| unreadable(file, error))?
    } else {
        given.as_bytes().to_vec()
    };
    RawJson::parse_bytes(&bytes, MAX_INPUT_BYTES).map_err(|error| CliError {
        hint: Some(error.hint().to_owned()),
        ..CliError::usage(format!("the input cannot be used: {error}"))
    })
}

/// Warns of integers that a JavaScript program cannot hold exactly.
pub fn warn_of_large_integers(terminal: &Terminal, input: &RawJson) {
    if has_large_integer(input.get()) {
        terminal.note("warning: the input holds integers beyond ±(2^53−1): they travel unchanged, and a JavaScript program rounds them");
    }
}

fn has_large_integer(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
                {
                    at += 1;
                }
                let number = &text[start..at];
                if number.bytes().all(|byte| byte.is_ascii_digit())
                    && number.parse::<u64>().map_or(true, |number| number > 9_007_199_254_740_991)
                {
                    return true;
                }
            }
            _ => at += 1,
        }
    }
    false
}

/// Starts a run of a workflow.
///
/// # Errors
/// When the server refuses it.
pub async fn trigger(
    client: &Client,
    workflow_id: &str,
    input: Option<RawJson>,
) -> Result<TriggeredRunId, CliError> {
    let organisation = client.organisation().await?;
    let path = format!("/v1/orgs/{}/workflows/{}/runs", segment(&organisation), segment(workflow_id));
    let answer: RunTriggered = client.post(&path, &TriggerRequest { input, environment: None }).await?;
    Ok(answer.run.id.to_string())
}

/// `trestle run`.
///
/// # Errors
/// When the workflow is unknown, the input is no JSON, or the server refuses the run.
pub async fn run(terminal: &Terminal, client: &Client, args: &RunArgs) -> Result<u8, CliError> {
    let input = args.input.as_deref().map(parse_input).transpose()?;
    if args.workflow.contains(['/', '\\']) || args.workflow.starts_with('.') {
        return Err(CliError::usage(format!(
            "{} is a path; `trestle run` takes the slug of a deployed workflow",
            args.workflow
        ))
        .hint(format!(
            "`trestle deploy {} --run` deploys it and starts a run; `trestle dev {0}` needs no server",
            args.workflow
        )));
    }
    let workflow = find_workflow(client, &args.workflow).await?;
    let wait = match (args.no_wait, args.follow) {
        (true, _) => Wait::Not,
        (_, true) => Wait::Follow,
        _ => Wait::Quietly,
    };
    start_and_wait(terminal, client, workflow.id.as_str(), input, wait, args.json).await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunReport {
    run_id: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<trestle_contract::event::EventError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<RawJson>,
}

/// Starts a run and waits for it: its log beside, its output as data.
pub(crate) async fn start_and_wait(
    terminal: &Terminal,
    client: &Client,
    workflow_id: &str,
    input: Option<RawJson>,
    wait: Wait,
    json: bool,
) -> Result<u8, CliError> {
    if let Some(input) = &input {
        warn_of_large_integers(terminal, input);
    }
    let run_id = trigger(client, workflow_id, input).await?;
    if wait == Wait::Not {
        if json {
            print_json(
                terminal,
                &RunReport { run_id, status: "queued".to_owned(), error: None, output: None },
            )?;
        } else {
            print(terminal, &run_id)?;
        }
        return Ok(crate::EXIT_COMPLETED);
    }
    terminal.note(&format!("run {run_id}"));
    let lines = json && wait == Wait::Follow;
    let selection = if wait == Wait::Follow { Selection::verbose() } else { Selection::standard() };
    let mut renderer = Renderer::new(selection.without_output());
    let step = (wait == Wait::Quietly).then(|| terminal.step("waiting for the run"));
    let following = follow(client, &run_id, 0, |followed| {
        if lines {
            return print(
                terminal,
                &format!(r#"{{"cursor":{},"event":{}}}"#, followed.cursor, followed.json),
            );
        }
        terminal.side(&renderer.render(followed.event));
        Ok(())
    });
    let end = with_cancel(terminal, client, &run_id, following).await?;
    drop(step);
    if lines {
        return Ok(end.exit());
    }
    report(terminal, client, run_id, &end, json).await
}

/// Lets the first interrupt cancel the run and the second one leave it.
async fn with_cancel(
    terminal: &Terminal,
    client: &Client,
    run_id: &str,
    following: impl Future<Output = Result<RunEnd, CliError>>,
) -> Result<RunEnd, CliError> {
    tokio::pin!(following);
    let mut interrupts = 0;
    loop {
        tokio::select! {
            end = &mut following => return end,
            Ok(()) = tokio::signal::ctrl_c() => {
                interrupts += 1;
                if interrupts > 1 {
                    let message = format!("left run {run_id} while it is being cancelled");
                    return Err(CliError { exit: crate::EXIT_CANCELLED, ..CliError::new(ErrorCode::Cancelled, message) });
                }
                terminal.note("cancelling; press Ctrl-C again to leave");
                super::cancel_run(client, run_id).await?;
            }
        }
    }
}

async fn report(
    terminal: &Terminal,
    client: &Client,
    run_id: String,
    end: &RunEnd,
    json: bool,
) -> Result<u8, CliError> {
    let detail: RunDetailResponse = client.get(&format!("/v1/runs/{}", segment(&run_id))).await?;
    let output = detail.run.output.filter(|_| end.error.is_none());
    if json {
        print_json(
            terminal,
            &RunReport { run_id, status: end.status.to_string(), error: end.error.clone(), output },
        )?;
        return Ok(end.exit());
    }
    if let Some(output) = output {
        print(terminal, &output_text(&output))?;
    }
    if let Some(error) = &end.error {
        terminal.side(&error_lines(error));
    }
    Ok(end.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_refused_with_a_hint() {
        for bad in ["", "{", "nope", "{\"a\":\u{0}}", "@/nonexistent/in.json"] {
            let error = parse_input(bad).unwrap_err();
            assert_eq!(error.exit, crate::EXIT_USAGE, "{bad}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(parse_input(&deep).unwrap_err().hint.is_some());
        let kept = r#"{"n":12345678901234567890,"z":"\u0000"}"#;
        assert_eq!(parse_input(kept).unwrap().get(), kept);
    }

    #[test]
    fn only_integers_that_javascript_rounds_are_warned_of() {
        for (text, large) in [
            ("9007199254740991", false),
            ("9007199254740992", true),
            ("-9007199254740992", true),
            ("1e30", false),
            ("0.12345678901234567890", false),
            (r#"{"a":"9007199254740992\"9007199254740992"}"#, false),
            (r#"[1,{"b":99999999999999999999999}]"#, true),
        ] {
            assert_eq!(has_large_integer(text), large, "{text}");
        }
    }
}
