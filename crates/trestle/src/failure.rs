use std::process::ExitCode;

use trestle_cli::{CliError, Terminal};
use trestle_contract::ErrorCode;
use trestle_runner::RunnerError;
use trestle_store::StoreError;

/// Shows a failure to a person and gives the exit code that goes with it.
pub(crate) fn report(terminal: &Terminal, error: &CliError) -> ExitCode {
    terminal.note(&error.to_string());
    ExitCode::from(error.exit)
}

/// A failure of the runner as a person sees it.
pub(crate) fn of_runner(error: &RunnerError) -> CliError {
    CliError { hint: error.hint(), ..CliError::new(error.code(), error.to_string()) }
}

/// A failure of the server as a person sees it.
pub(crate) fn of_server(error: &trestle_server::Error) -> CliError {
    if let trestle_server::Error::Store(error) = error {
        return of_store(error);
    }
    CliError { hint: error.hint(), ..CliError::new(error.code(), error.to_string()) }
}

/// A failure of the store as a person sees it.
pub(crate) fn of_store(error: &StoreError) -> CliError {
    let (code, hint) = match error {
        StoreError::Locked { .. } => (
            ErrorCode::DataDirectory,
            "another server works in this directory: stop it, or choose another one with --data",
        ),
        StoreError::Denied { .. } => (
            ErrorCode::DataDirectory,
            "choose a directory that this user may write to with --data, or mend its permissions",
        ),
        StoreError::Full(_) => {
            (ErrorCode::Unavailable, "make room on the disk of the data directory, then start again")
        }
        StoreError::Corrupt(_) => {
            (ErrorCode::DataDirectory, "restore the data directory from a backup; nothing was changed")
        }
        _ => (ErrorCode::InternalError, "start again with TRESTLE_LOG=debug and report what it says"),
    };
    CliError::new(code, error.to_string()).hint(hint)
}

/// A failure of the file system as a person sees it.
pub(crate) fn of_file(action: &str, path: &std::path::Path, error: &std::io::Error) -> CliError {
    CliError::new(ErrorCode::DataDirectory, format!("cannot {action} {}: {error}", path.display())).hint(
        "check that the directory exists, that this user may write there, and that the disk is not full",
    )
}
