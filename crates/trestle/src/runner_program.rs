//! The command line of the original runner program, for machines whose start scripts call it
//! (`docs/protocol/pool.md` §8.1): unknown flags are passed over, the first occurrence of a flag counts, and a
//! value that is missing or looks like a flag counts as not given.

use std::path::PathBuf;
use std::process::ExitCode;

use trestle_cli::{CliError, EXIT_FAILED, Terminal};
use trestle_runner::Enrolment;

use crate::arguments::{IdentityOptions, RunnerStartArgs, WorkOptions};
use crate::{failure, runner_commands};

const USAGE: &str = "usage:
  boardwalk-runner register --url URL --token TOKEN [--name NAME] [--labels a,b] [--identity-dir DIR]
  boardwalk-runner start --url URL [--pool POOL] [--work-dir DIR] [--once] [--identity-dir DIR] --host
  boardwalk-runner deregister --url URL [--pool POOL] [--identity-dir DIR]
  any of them: --verbose, --debug";

pub(crate) async fn main(arguments: Vec<String>) -> ExitCode {
    let terminal = Terminal::standard();
    let flags = Flags(&arguments);
    let result = match arguments.first().map(String::as_str) {
        None | Some("help" | "--help") => {
            terminal.note(USAGE);
            return ExitCode::SUCCESS;
        }
        Some("register") => register(&terminal, flags).await,
        Some("start") => start(&terminal, flags).await,
        Some("deregister") => deregister(&terminal, flags).await,
        Some(_) => {
            terminal.note(USAGE);
            return ExitCode::from(EXIT_FAILED);
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => failure::report(&terminal, &error),
    }
}

async fn register(terminal: &Terminal, flags: Flags<'_>) -> Result<u8, CliError> {
    let (url, token) = (flags.required("--url")?, flags.required("--token")?);
    let labels = flags
        .value("--labels")
        .map(|labels| labels.split(',').filter(|label| !label.is_empty()).map(ToOwned::to_owned).collect());
    let enrolment =
        Enrolment { name: flags.value("--name").map(ToOwned::to_owned), labels: labels.unwrap_or_default() };
    let directory = flags.path("--identity-dir");
    runner_commands::register(terminal, url, token, enrolment, directory.as_deref()).await
}

async fn start(terminal: &Terminal, flags: Flags<'_>) -> Result<u8, CliError> {
    let args = RunnerStartArgs {
        url: flags.required("--url")?.to_owned(),
        pool: flags.value("--pool").unwrap_or("default").to_owned(),
        host: flags.has("--host"),
        work_dir: flags.path("--work-dir"),
        once: flags.has("--once"),
        idle: None,
        name: None,
        labels: Vec::new(),
        token: None,
        identity: IdentityOptions { identity_dir: flags.path("--identity-dir") },
        work: WorkOptions {
            slots: Some(1),
            prestart: None,
            lease: 90,
            node: std::env::var_os("TRESTLE_NODE").map(PathBuf::from),
        },
    };
    let level = std::env::var("BOARDWALK_RUNNER_LOG_LEVEL").unwrap_or_default().to_ascii_lowercase();
    let debug = std::env::var("BOARDWALK_RUNNER_DEBUG").is_ok_and(|value| value == "1");
    let log = match level.as_str() {
        _ if debug || flags.has("--debug") || flags.has("--verbose") => "debug",
        "debug" | "warn" | "error" => &level,
        _ => "info",
    };
    // The reference ends with 0 after every drain, and never joins a pool by itself.
    match runner_commands::start(terminal, args, log, None).await? {
        runner_commands::EXIT_DRAINED => Ok(trestle_cli::EXIT_COMPLETED),
        code => Ok(code),
    }
}

async fn deregister(terminal: &Terminal, flags: Flags<'_>) -> Result<u8, CliError> {
    let pool = flags.value("--pool").unwrap_or("default");
    let directory = flags.path("--identity-dir");
    runner_commands::deregister(terminal, flags.required("--url")?, pool, directory.as_deref()).await
}

#[derive(Clone, Copy)]
struct Flags<'a>(&'a [String]);

impl<'a> Flags<'a> {
    fn has(self, flag: &str) -> bool {
        self.0.iter().any(|argument| argument == flag)
    }

    fn value(self, flag: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|argument| argument == flag)?;
        self.0.get(at + 1).map(String::as_str).filter(|value| !value.starts_with("--"))
    }

    fn path(self, flag: &str) -> Option<PathBuf> {
        self.value(flag).map(PathBuf::from)
    }

    fn required(self, flag: &str) -> Result<&'a str, CliError> {
        // The original's exit code for a missing flag is 1.
        self.value(flag).ok_or_else(|| CliError {
            exit: EXIT_FAILED,
            ..CliError::usage(format!("missing required flag {flag}")).hint(USAGE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_the_original_reads_them() {
        let arguments: Vec<String> = [
            "start",
            "--url",
            "http://a",
            "--pool",
            "--once",
            "--url",
            "http://b",
            "--unknown",
            "x",
            "--work-dir",
        ]
        .map(ToOwned::to_owned)
        .into();
        let flags = Flags(&arguments);
        assert_eq!(flags.value("--url"), Some("http://a"));
        assert_eq!(flags.value("--pool"), None);
        assert_eq!(flags.value("--work-dir"), None);
        assert!(flags.has("--once") && !flags.has("--host"));
        let error = flags.required("--token").unwrap_err();
        assert!(error.message.contains("--token") && error.exit == 1);
    }
}
