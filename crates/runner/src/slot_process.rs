use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trestle_sandbox::slot::{self, Assignment, NodeRuntime, SlotCommand, SlotReader, SlotReport, SlotWriter};
use trestle_sandbox::{Isolation, Process, ProcessSpec, Stdio, unix_pair};

use crate::run_output::RunOutput;
use crate::{Config, RunnerError};

/// The number under which a run process finds its end of the slot socket.
const SLOT_DESCRIPTOR: i32 = 3;

/// One run process with its directory: started cold for a run, or standing by. Used once.
#[derive(Debug)]
pub(crate) struct SlotProcess {
    pub(crate) process: Process,
    pub(crate) reader: SlotReader,
    pub(crate) writer: SlotWriter,
    pub(crate) directory: SlotDirectory,
    output: RunOutput,
}

impl SlotProcess {
    /// Starts a run process. With `prestart` it brings its interpreter up at once and says so.
    pub(crate) async fn start(
        config: &Config,
        isolation: &dyn Isolation,
        node: &NodeRuntime,
        prestart: bool,
    ) -> Result<Self, RunnerError> {
        let directory = SlotDirectory::create(&config.work_dir)?;
        match Self::start_in(&directory, config, isolation, node, prestart).await {
            Ok((process, reader, writer)) => {
                let output = RunOutput::follow(&process);
                Ok(Self { process, reader, writer, directory, output })
            }
            Err(error) => {
                directory.remove().await;
                Err(error)
            }
        }
    }

    async fn start_in(
        directory: &SlotDirectory,
        config: &Config,
        isolation: &dyn Isolation,
        node: &NodeRuntime,
        prestart: bool,
    ) -> Result<(Process, SlotReader, SlotWriter), RunnerError> {
        let pair = unix_pair().map_err(RunnerError::file("make a socket pair for", directory.path()));
        let (own, theirs) = pair?;
        let mut args: Vec<OsString> =
            vec!["__run".into(), "--slot-fd".into(), SLOT_DESCRIPTOR.to_string().into()];
        args.extend(["--slot-dir".into(), directory.path().into()]);
        if prestart {
            args.extend(["--prestart".into(), "--node".into(), (&node.path).into()]);
            args.extend(["--node-version".into(), (&node.version).into()]);
        }
        let spec = ProcessSpec {
            program: config.executable.clone(),
            args,
            env: config.forwarded_env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: directory.path().to_owned(),
            stdin: Stdio::Null,
            stdout: Stdio::Pipe,
            stderr: Stdio::Pipe,
            extra_fds: vec![(theirs, SLOT_DESCRIPTOR)],
        };
        let process = isolation.spawn(spec).await?;
        let (reader, writer) =
            slot::open(own).map_err(RunnerError::file("open the socket of", directory.path()))?;
        Ok((process, reader, writer))
    }

    /// Waits until the interpreter stands by; false when the process ended instead.
    pub(crate) async fn ready(&mut self) -> bool {
        loop {
            match self.reader.next::<SlotReport>().await {
                Ok(Some(SlotReport::Ready)) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Whether the process is still there.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Hands the run over.
    pub(crate) async fn assign(&mut self, assignment: Assignment) -> std::io::Result<()> {
        self.writer.send(&SlotCommand::Assign(Box::new(assignment))).await
    }

    /// Ends the process tree and removes the directory.
    pub(crate) async fn discard(self, grace: Duration) {
        if let Err(error) = self.process.terminate(grace).await {
            tracing::warn!(%error, "run_process_not_ended");
        }
        self.output.finish().await;
        self.directory.remove().await;
    }
}

/// `<work_dir>/slots/<number>`: everything that one run leaves on this machine lies below it.
#[derive(Debug)]
pub(crate) struct SlotDirectory {
    path: PathBuf,
}

impl SlotDirectory {
    fn create(work_dir: &Path) -> Result<Self, RunnerError> {
        let slots = work_dir.join("slots");
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        // Names are never used twice by one process, and leftovers of another were removed at start.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        loop {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let path = slots.join(format!("{}-{number}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RunnerError::file("create", path)(error)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directories of a run and names them: workspace, temporary files, program.
    pub(crate) fn prepare(&self) -> Result<[PathBuf; 3], RunnerError> {
        let made = ["workspace", "tmp", "program"].map(|name| self.path.join(name));
        for path in &made {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(RunnerError::file("create", path)(error));
                }
                _ => {}
            }
        }
        Ok(made)
    }

    pub(crate) async fn remove(self) {
        let path = self.path;
        let removed =
            tokio::task::spawn_blocking(move || remove_tree(&path).map_err(|error| (path, error))).await;
        if let Ok(Err((path, error))) = removed {
            tracing::warn!(path = %path.display(), %error, "slot_directory_not_removed");
        }
    }
}

/// Removes a tree also when a program took its own permission to write there.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            permit(path)?;
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn permit(path: &Path) -> std::io::Result<()> {
    // Not through links: `symlink_metadata` of a link is no directory.
    if fs::symlink_metadata(path)?.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(path)? {
            permit(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_without_write_permission_is_removed_and_its_links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join("outside");
        fs::create_dir_all(outside.join("kept")).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o555)).unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o500)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o555);
        remove_tree(&tree).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
