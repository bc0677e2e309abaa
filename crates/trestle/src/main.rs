//! The Trestle binary: arguments, configuration, wiring. Invoked as `boardwalk-runner` it takes that program's
//! arguments.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arguments;
mod dev;
mod dotenv;
mod failure;
mod logging;
mod plane;
mod runner_commands;
mod runner_program;
mod up;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use trestle_cli::{AddressSources, CliError, Client, EXIT_USAGE, Terminal, commands};

use crate::arguments::{Arguments, Command, RunProcess, RunProcessArgs, ServerOptions};

fn main() -> ExitCode {
    let invoked_as = std::env::args_os().next();
    let name = invoked_as.as_deref().map(Path::new).and_then(Path::file_name);
    if name == Some(OsStr::new("boardwalk-runner")) {
        return block_on(runner_program::main(std::env::args().skip(1).collect()));
    }
    let second = std::env::args_os().nth(1);
    if second.as_deref() == Some(OsStr::new("__run"))
        && let Ok(run) = RunProcess::try_parse_from(std::env::args_os().skip(1))
    {
        return run_process(run.args);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data and no failure; clap writes each to the right stream.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    match arguments.command {
        Command::RunProcess(run) => run_process(run),
        command => block_on(execute(command)),
    }
}

/// A run process is small: one thread, and nothing of the rest.
fn run_process(run: RunProcessArgs) -> ExitCode {
    logging::start("warn");
    trestle_runtime::run(run.into())
}

fn block_on(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(worker_threads()).enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            // What a blocking thread still waits for (a terminal, say) must not hold the exit.
            runtime.shutdown_background();
            code
        }
        Err(error) => failure::report(
            &Terminal::standard(),
            &CliError::new(trestle_contract::ErrorCode::InternalError, format!("cannot start: {error}")),
        ),
    }
}

/// Two at least, so that one busy task never holds up a heartbeat.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}

async fn execute(command: Command) -> ExitCode {
    let terminal = Terminal::standard();
    let result = match command {
        Command::Init(args) => commands::init(&terminal, &args),
        Command::Check(args) => commands::check(&terminal, &args),
        Command::Dev(args) => dev::dev(&terminal, *args).await,
        Command::Up(args) => up::up(&terminal, *args).await,
        Command::Deploy { server, args } => match client(&server) {
            Ok(client) => commands::deploy(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Run { server, args } => match client(&server) {
            Ok(client) => commands::run(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Runs { server, args } => match client(&server) {
            Ok(client) => commands::runs(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Cancel { server, args } => match client(&server) {
            Ok(client) => commands::cancel(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Workflows { server, args } => match client(&server) {
            Ok(client) => commands::workflows(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Secrets { server, args } => match client(&server) {
            Ok(client) => commands::secrets(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Inference { server, args } => match client(&server) {
            Ok(client) => commands::inference(&terminal, &client, &args).await,
            Err(error) => Err(error),
        },
        Command::Runners { server, json } => match client(&server) {
            Ok(client) => commands::runners(&terminal, &client, json).await,
            Err(error) => Err(error),
        },
        Command::Runner { action } => runner_commands::runner(&terminal, action).await,
        Command::RunProcess(_) => Err(CliError::usage("__run is started by a runner")),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => failure::report(&terminal, &error),
    }
}

fn client(server: &ServerOptions) -> Result<Client, CliError> {
    let sources = AddressSources {
        url: server.url.clone(),
        token: server.token.clone(),
        environment: server_environment(),
        data: server.data.clone(),
    };
    Client::new(sources.find()?)
}

/// What the environment may say about a server.
fn server_environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("TRESTLE_") || name.starts_with("BOARDWALK_"))
        .collect()
}
