use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use trestle_cli::{AddressSources, CliError, Client, EXIT_CANCELLED, EXIT_COMPLETED, Terminal, commands};
use trestle_contract::ErrorCode;
use trestle_contract::api::EnrolRunnerRequest;
use trestle_contract::pool::Label;
use trestle_runner::{Ended, Enrolment, Identity, IdentityDirectory, Runner, RunnerError};
use trestle_sandbox::HostIsolation;

use crate::arguments::{RunnerCommand, RunnerStartArgs};
use crate::plane::{HOST_WARNING, identity_directory, runner_config};
use crate::up::Interrupt;
use crate::{client, failure, logging};

/// The control plane drained this runner: started again, it would be drained again.
pub(crate) const EXIT_DRAINED: u8 = 3;
/// No run came within the idle limit.
const EXIT_IDLE: u8 = 4;

/// `trestle runner …`
pub(crate) async fn runner(terminal: &Terminal, action: RunnerCommand) -> Result<u8, CliError> {
    match action {
        RunnerCommand::Token { server, pool, json } => {
            commands::runner_token(terminal, &client(&server)?, &pool, json).await
        }
        RunnerCommand::Register { url, token, name, labels, identity } => {
            let enrolment = Enrolment { name, labels: trimmed(labels) };
            register(terminal, &url, &token, enrolment, identity.identity_dir.as_deref()).await
        }
        RunnerCommand::Start(mut args) => {
            args.labels = trimmed(std::mem::take(&mut args.labels));
            let administrator = Administrator::find(&args.url, args.token.as_deref());
            start(terminal, *args, "info", administrator).await
        }
        RunnerCommand::Drain { server, runner } => {
            commands::change_runner(terminal, &client(&server)?, &runner, true).await
        }
        RunnerCommand::Resume { server, runner } => {
            commands::change_runner(terminal, &client(&server)?, &runner, false).await
        }
        RunnerCommand::Remove { server, runner, yes, identity } => {
            if !yes {
                return Err(CliError::new(ErrorCode::ValidationFailed, "nothing was removed").hint(
                    "add --yes: the runner's token is dead at once and its runs start over elsewhere",
                ));
            }
            commands::delete_runner(&client(&server)?, &runner).await?;
            let forgotten = identity_directory(identity.identity_dir.as_deref())?.forget(&runner);
            let place = if forgotten { ", and its identity on this machine" } else { "" };
            print_line(terminal, &format!("removed {runner}{place}"))?;
            Ok(EXIT_COMPLETED)
        }
        RunnerCommand::Deregister { url, pool, identity } => {
            deregister(terminal, &url, &pool, identity.identity_dir.as_deref()).await
        }
    }
}

fn trimmed(labels: Vec<String>) -> Vec<String> {
    labels.into_iter().map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect()
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

/// Works for a server until drained; the first request to end drains, the second ends at once. With an
/// administrator's token it joins the pool first if needed, and once again if this runner was removed.
pub(crate) async fn start(
    terminal: &Terminal,
    args: RunnerStartArgs,
    log: &str,
    administrator: Option<Administrator>,
) -> Result<u8, CliError> {
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
    let saved = directory.load(&args.url, &args.pool).map_err(|error| failure::of_runner(&error))?;
    terminal.note(HOST_WARNING);
    let mut identity = match (saved, &administrator) {
        (Some(saved), _) => saved,
        (None, Some(administrator)) => {
            let enrolment = Enrolment { name: args.name.clone(), labels: args.labels.clone() };
            administrator.enrol(terminal, &args, enrolment, &directory).await?
        }
        (None, None) => {
            return Err(failure::of_runner(&RunnerError::NotRegistered {
                url: args.url.clone(),
                pool: args.pool.clone(),
            }));
        }
    };
    let mut again = true;
    loop {
        let config = config(&args, &identity, &directory)?;
        let ended = work(terminal, config, &identity, &interrupt).await;
        match (ended, &administrator) {
            (Err(RunnerError::Refused { operation: "poll", status: 401, .. }), Some(administrator))
                if again =>
            {
                again = false;
                terminal.note("this runner was removed; it joins its pool again");
                // What the machine joined with is what it joins with again.
                let labels = directory.joined(&identity).map(|joined| joined.labels);
                let enrolment = Enrolment {
                    name: Some(identity.name.clone()),
                    labels: labels.unwrap_or_else(|| args.labels.clone()),
                };
                administrator.forget(terminal, &identity.runner_id, &directory).await;
                identity = administrator.enrol(terminal, &args, enrolment, &directory).await?;
            }
            (Err(error), _) => return Err(failure::of_runner(&error)),
            (Ok(code), _) => return Ok(code),
        }
    }
}

fn config(
    args: &RunnerStartArgs,
    identity: &Identity,
    directory: &IdentityDirectory,
) -> Result<trestle_runner::Config, CliError> {
    let joined = directory.joined(identity);
    let mut config = trestle_runner::Config {
        url: args.url.clone(),
        work_dir: args.work_dir.clone().unwrap_or_else(|| directory.path().join("work")),
        once: args.once,
        idle_limit: args.idle.map(Duration::from_secs),
        labels: joined.as_ref().map(|joined| joined.labels.clone()),
        ..runner_config(&args.work)?
    };
    if let Some(seconds) = joined.and_then(|joined| joined.interval_seconds) {
        config.timing.poll_gap = Duration::from_secs(seconds);
    }
    Ok(config)
}

/// Works as one identity until drained, interrupted or refused.
async fn work(
    terminal: &Terminal,
    config: trestle_runner::Config,
    identity: &Identity,
    interrupt: &Interrupt,
) -> Result<u8, RunnerError> {
    let url = config.url.clone();
    let slots = config.slots;
    let runner = Runner::start(config, identity, Arc::new(HostIsolation)).await?;
    let handle = runner.handle();
    terminal
        .note(&format!("connecting to {} as {} (pool {}, {slots} slots)", url, identity.name, identity.pool));
    let online = terminal.clone();
    let work = runner.run(move || online.note("online: waiting for runs"));
    tokio::pin!(work);
    let mut requests = 0;
    loop {
        tokio::select! {
            ended = &mut work => return Ok(exit_code(terminal, ended?)),
            () = interrupt.next() => {
                requests += 1;
                if requests > 1 {
                    handle.kill();
                    return work.await.map(|_| EXIT_CANCELLED);
                }
                terminal.note("draining: runs in progress are finished; press Ctrl-C again to end at once");
                handle.drain();
            }
        }
    }
}

fn exit_code(terminal: &Terminal, ended: Ended) -> u8 {
    match ended {
        Ended::Drained | Ended::Once => EXIT_COMPLETED,
        Ended::DrainedByControlPlane => {
            terminal.note("drained by the server; `trestle runners` says why, `trestle runner resume ID` lets it claim again");
            EXIT_DRAINED
        }
        Ended::Idle => {
            terminal.note("no run came within the idle limit");
            EXIT_IDLE
        }
    }
}

/// Who may add this machine to a pool and remove it.
pub(crate) struct Administrator {
    client: Client,
}

impl Administrator {
    /// The administrator that the command line or the environment names, if any.
    fn find(url: &str, token: Option<&str>) -> Option<Self> {
        let sources = AddressSources {
            url: Some(url.to_owned()),
            token: token.map(ToOwned::to_owned),
            environment: crate::server_environment(),
            // Not the token of a server that happens to run here: it was not meant for this.
            data: PathBuf::from("/dev/null"),
        };
        Client::new(sources.find().ok()?).ok().map(|client| Self { client })
    }

    async fn enrol(
        &self,
        terminal: &Terminal,
        args: &RunnerStartArgs,
        enrolment: Enrolment,
        directory: &IdentityDirectory,
    ) -> Result<Identity, CliError> {
        let runner = |error: RunnerError| failure::of_runner(&error);
        let unfit = |what: &str, error: &dyn std::fmt::Display| CliError::usage(format!("{what}: {error}"));
        directory.prepare().map_err(runner)?;
        let organisation = self.client.organisation().await?;
        let name = enrolment.name.clone().unwrap_or_else(trestle_runner::host_name);
        let request = EnrolRunnerRequest {
            pool: Label::new(args.pool.as_str()).map_err(|error| unfit("--pool", &error))?,
            name: Label::new(name.as_str()).map_err(|error| unfit("--name", &error))?,
            labels: enrolment.labels().map_err(runner)?,
            os: trestle_runner::own_os(),
            arch: trestle_runner::own_arch(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        };
        let answer = commands::enrol_runner(&self.client, &organisation, &request).await?;
        let id = answer.runner.id.to_string();
        let enrolment = Enrolment { name: Some(name), ..enrolment };
        let token = answer.runner_token.expose().to_owned();
        let registered = enrolment.enrolled(&args.url, &organisation, &args.pool, id.clone(), token);
        if let Err(error) = trestle_runner::save(directory, &registered) {
            // Nobody could ever work as this runner.
            self.forget(terminal, &id, directory).await;
            return Err(failure::of_runner(&error));
        }
        terminal.note(&format!("registered {id} in pool {}", args.pool));
        Ok(registered.identity)
    }

    /// Removes a runner here and there, as far as that goes.
    async fn forget(&self, terminal: &Terminal, runner: &str, directory: &IdentityDirectory) {
        if let Err(error) = commands::delete_runner(&self.client, runner).await {
            terminal.note(&format!("{runner} was not removed: {error}"));
        }
        let _ = directory.forget(runner);
    }
}

fn print_line(terminal: &Terminal, text: &str) -> Result<(), CliError> {
    terminal
        .data(text)
        .map_err(|error| CliError::new(ErrorCode::InternalError, format!("cannot write the output: {error}")))
}
