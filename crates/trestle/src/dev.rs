use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{Flock, FlockArg};
use trestle_cli::{
    CliError, Client, EXIT_CANCELLED, Renderer, RunEnd, Selection, Terminal, commands, follow,
};
use trestle_contract::ErrorCode;

use crate::arguments::DevArgs;
use crate::plane::{HOST_WARNING, Plane, PlaneOptions};
use crate::up::Interrupt;
use crate::{dotenv, failure, logging};

/// `trestle dev`: the way of production in a data directory that is thrown away.
pub(crate) async fn dev(terminal: &Terminal, args: DevArgs) -> Result<u8, CliError> {
    logging::start("warn");
    let interrupt = Interrupt::listen()?;
    let input = args.input.as_deref().map(commands::parse_input).transpose()?;
    let secrets = secrets(&args)?;
    let artifact = commands::build(terminal, &args.directory)?;
    let mut others = Vec::new();
    for directory in &args.with {
        others.push(commands::build(terminal, directory)?);
    }
    let scratch = Scratch::create()?;
    let step = terminal.step("starting the server");
    let options = PlaneOptions {
        data: scratch.path.join("data"),
        listen: args.listen,
        public_url: args.public_url.clone(),
        model: args.model.clone(),
        lease_seconds: args.work.lease,
    };
    let plane = Arc::new(Plane::start(options).await?);
    drop(step);
    let client = plane.client()?;
    for (name, value) in secrets {
        commands::set_secret(&client, &name, value, None).await?;
    }
    for other in &others {
        commands::deploy_artifact(terminal, &client, other, args.allow_unsupported).await?;
    }
    let deployed = commands::deploy_artifact(terminal, &client, &artifact, args.allow_unsupported).await?;
    terminal.note(HOST_WARNING);
    let outcome = execute(terminal, &plane, &client, &args, &deployed.workflow_id, input, &interrupt).await;
    if let Ok(plane) = Arc::try_unwrap(plane).map_err(drop) {
        plane.stop().await;
    }
    scratch.remove();
    outcome
}

async fn execute(
    terminal: &Terminal,
    plane: &Arc<Plane>,
    client: &Client,
    args: &DevArgs,
    workflow_id: &str,
    input: Option<trestle_contract::RawJson>,
    interrupt: &Interrupt,
) -> Result<u8, CliError> {
    let handle: Arc<Mutex<Option<trestle_runner::Handle>>> = Arc::default();
    let keep = Arc::clone(&handle);
    let runner = plane.run_runner(&args.work, 0, move |started| {
        *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(started)
    });
    tokio::pin!(runner);
    if let Some(input) = &input {
        commands::warn_of_large_integers(terminal, input);
    }
    let run_id = commands::trigger(client, workflow_id, input).await?;
    let mut renderer = Renderer::new(Selection::verbose().without_output());
    let following = follow(client, &run_id, 0, |followed| {
        terminal.side(&renderer.render(followed.event));
        Ok(())
    });
    tokio::pin!(following);
    let mut interrupts = 0;
    let end = loop {
        tokio::select! {
            end = &mut following => break end?,
            ended = &mut runner => {
                ended?;
                return Err(CliError::new(ErrorCode::Unavailable, "the runner of this process ended before the run did"));
            }
            () = interrupt.next() => {
                interrupts += 1;
                if interrupts > 1 {
                    let started = handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    if let Some(handle) = started {
                        handle.kill();
                        runner.await?;
                    }
                    return Ok(EXIT_CANCELLED);
                }
                terminal.note("cancelling; press Ctrl-C again to end at once");
                commands::cancel_run(client, &run_id).await?;
            }
        }
    };
    finish(terminal, client, &run_id, &end).await?;
    let started = handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(handle) = started {
        handle.drain();
        runner.await?;
    }
    Ok(end.exit())
}

/// Saves what the run left, and prints its output as data.
async fn finish(terminal: &Terminal, client: &Client, run_id: &str, end: &RunEnd) -> Result<(), CliError> {
    let directory = Path::new(".trestle/dev").join(run_id);
    for file in commands::save_artifacts(client, run_id, &directory).await? {
        terminal.note(&format!("artifact: ./{}", file.display()));
    }
    if end.error.is_none()
        && let Some(output) = commands::output_of(client, run_id).await?
    {
        terminal.data(&trestle_cli::pretty_json(output.get())).map_err(|error| {
            CliError::new(ErrorCode::InternalError, format!("cannot write the output: {error}"))
        })?;
    }
    Ok(())
}

/// The secrets of the command line and the file, later ones over earlier ones.
fn secrets(args: &DevArgs) -> Result<Vec<(String, String)>, CliError> {
    let mut secrets = match &args.env_file {
        Some(file) => dotenv::read(file)?,
        None => Vec::new(),
    };
    for given in &args.secrets {
        let (name, source) =
            given.split_once('=').map_or((given.as_str(), None), |(name, source)| (name, Some(source)));
        let value = match source.map(|source| (source, source.strip_prefix('@'))) {
            None => std::env::var(name).map_err(|_| {
                CliError::usage(format!("--secret {name}: there is no environment variable {name}"))
                    .hint(format!("or give a file: --secret {name}=@FILE"))
            })?,
            Some((_, Some(file))) => {
                let text = fs::read_to_string(file).map_err(|error| {
                    CliError::usage(format!("--secret {name}: cannot read {file}: {error}"))
                })?;
                text.strip_suffix('\n')
                    .map_or(text.clone(), |text| text.strip_suffix('\r').unwrap_or(text).to_owned())
            }
            Some((_, None)) => {
                return Err(CliError::usage(format!(
                    "--secret {name}=…: a value on the command line is visible to every user of this machine"
                ))
                .hint(format!(
                    "give a file: --secret {name}=@FILE, or export {name} and give --secret {name}"
                )));
            }
        };
        secrets.push((name.to_owned(), value));
    }
    Ok(secrets)
}

/// A directory that is thrown away, locked while its process lives so that the next start can tell leftovers.
struct Scratch {
    path: PathBuf,
    _lock: Flock<fs::File>,
}

impl Scratch {
    fn create() -> Result<Self, CliError> {
        let root = std::env::temp_dir().join(format!("trestle-dev-{}", nix::unistd::getuid()));
        let failed =
            |path: &Path, error: std::io::Error| failure::of_file("use the scratch directory", path, &error);
        match fs::DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(&root, error));
            }
            _ => {}
        }
        // Somebody else's directory under this name would hand them everything that the run does.
        let owner = std::os::unix::fs::MetadataExt::uid(
            &fs::symlink_metadata(&root).map_err(|error| failed(&root, error))?,
        );
        if owner != nix::unistd::getuid().as_raw()
            || !fs::symlink_metadata(&root).is_ok_and(|found| found.is_dir())
        {
            return Err(failed(&root, std::io::ErrorKind::PermissionDenied.into()));
        }
        remove_leftovers(&root);
        for number in 0..1000 {
            let path = root.join(format!("{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock =
                        lock(&path).ok_or_else(|| failed(&path, std::io::ErrorKind::WouldBlock.into()))?;
                    return Ok(Self { path, _lock: lock });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&root, std::io::ErrorKind::AlreadyExists.into()))
    }

    fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock(directory: &Path) -> Option<Flock<fs::File>> {
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(directory.join("dev.lock"))
        .ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        // A directory that is just being made has no lock file yet; it is young.
        if entry.path().join("dev.lock").exists() && lock(&entry.path()).is_some() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_go_and_what_is_in_use_stays() {
        let root = tempfile::tempdir().unwrap();
        for name in ["left", "used", "young"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        drop(lock(&root.path().join("left")).unwrap());
        let _held = lock(&root.path().join("used")).unwrap();
        remove_leftovers(root.path());
        let mut names: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["used", "young"]);
    }
}
