use std::path::Path;
use std::sync::Arc;

use trestle_cli::{CliError, EXIT_CANCELLED, EXIT_COMPLETED, Terminal, commands};
use trestle_contract::ErrorCode;
use trestle_runner::{Enrolment, Runner};
use trestle_sandbox::HostIsolation;

use crate::arguments::{RunnerCommand, RunnerStartArgs};
use crate::plane::{HOST_WARNING, identity_directory, runner_config};
use crate::up::Interrupt;
use crate::{client, failure, logging};

/// `trestle runner …`
pub(crate) async fn runner(terminal: &Terminal, action: RunnerCommand) -> Result<u8, CliError> {
    match action {
        RunnerCommand::Token { server, pool, json } => {
            commands::runner_token(terminal, &client(&server)?, &pool, json).await
        }
        RunnerCommand::Register { url, token, name, labels, identity } => {
            let labels = labels
                .into_iter()
                .map(|label| label.trim().to_owned())
                .filter(|label| !label.is_empty())
                .collect();
            register(terminal, &url, &token, Enrolment { name, labels }, identity.identity_dir.as_deref())
                .await
        }
        RunnerCommand::Start(args) => start(terminal, args, "info").await,
        RunnerCommand::Deregister { url, pool, identity } => {
            deregister(terminal, &url, &pool, identity.identity_dir.as_deref()).await
        }
    }
}

/// Redeems a registration token, saves the identity and says how to start.
pub(crate) async fn register(
    terminal: &Terminal,
    url: &str,
    token: &str,
    enrolment: Enrolment,
    identity_dir: Option<&Path>,
) -> Result<u8, CliError> {
    let directory = identity_directory(identity_dir)?;
    let registered = trestle_runner::register(url, token, &enrolment, &directory).await;
    let (identity, file) = registered.map_err(|error| failure::of_runner(&error))?;
    terminal.note(&format!("registered {} in pool {}", identity.runner_id, identity.pool));
    terminal.note(&format!("identity: {}", file.display()));
    let pool = if identity.pool == "default" { String::new() } else { format!(" --pool {}", identity.pool) };
    let place =
        identity_dir.map(|directory| format!(" --identity-dir {}", directory.display())).unwrap_or_default();
    terminal.note(&format!("next: trestle runner start --url {url}{pool}{place} --host"));
    print_line(terminal, &identity.runner_id)?;
    Ok(EXIT_COMPLETED)
}

/// Removes this machine from its pool.
pub(crate) async fn deregister(
    terminal: &Terminal,
    url: &str,
    pool: &str,
    identity_dir: Option<&Path>,
) -> Result<u8, CliError> {
    let directory = identity_directory(identity_dir)?;
    let identity = trestle_runner::deregister(url, pool, &directory)
        .await
        .map_err(|error| failure::of_runner(&error))?;
    print_line(terminal, &format!("removed {} from pool {}", identity.runner_id, identity.pool))?;
    Ok(EXIT_COMPLETED)
}

/// Works for a server until drained; the first request to end drains, the second ends at once.
pub(crate) async fn start(terminal: &Terminal, args: RunnerStartArgs, log: &str) -> Result<u8, CliError> {
    logging::start(log);
    let interrupt = Interrupt::listen()?;
    if !args.host {
        return Err(CliError::new(
            ErrorCode::Unsupported,
            "container isolation is not available in this version",
        )
        .hint(
            "add --host to run programs as this user, without isolation; only for workflows that you trust",
        ));
    }
    let directory = identity_directory(args.identity.identity_dir.as_deref())?;
    let identity = directory
        .load(&args.url, &args.pool)
        .map_err(|error| failure::of_runner(&error))?
        .ok_or_else(|| {
            failure::of_runner(&trestle_runner::RunnerError::NotRegistered {
                url: args.url.clone(),
                pool: args.pool.clone(),
            })
        })?;
    let config = trestle_runner::Config {
        url: args.url.clone(),
        work_dir: args.work_dir.unwrap_or_else(|| directory.path().join("work")),
        once: args.once,
        ..runner_config(&args.work)?
    };
    terminal.note(HOST_WARNING);
    let slots = config.slots;
    let runner = Runner::start(config, &identity, Arc::new(HostIsolation))
        .await
        .map_err(|error| failure::of_runner(&error))?;
    let handle = runner.handle();
    terminal.note(&format!(
        "connecting to {} as {} (pool {}, {slots} slots)",
        args.url, identity.name, identity.pool
    ));
    let online = terminal.clone();
    let work = runner.run(move || online.note("online: waiting for runs"));
    tokio::pin!(work);
    let mut requests = 0;
    loop {
        tokio::select! {
            ended = &mut work => return ended.map(|_| EXIT_COMPLETED).map_err(|error| failure::of_runner(&error)),
            () = interrupt.next() => {
                requests += 1;
                if requests > 1 {
                    handle.kill();
                    return work.await.map(|_| EXIT_CANCELLED).map_err(|error| failure::of_runner(&error));
                }
                terminal.note("draining: runs in progress are finished; press Ctrl-C again to end at once");
                handle.drain();
            }
        }
    }
}

fn print_line(terminal: &Terminal, text: &str) -> Result<(), CliError> {
    terminal
        .data(text)
        .map_err(|error| CliError::new(ErrorCode::InternalError, format!("cannot write the output: {error}")))
}
