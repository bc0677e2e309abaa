use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use async_trait::async_trait;
use tokio::net::unix::pipe;

use crate::process::Pipes;
use crate::spawn::{RawSpec, c_string, spawn};
use crate::{Process, ProcessSpec, SandboxError, Stdio, registry};

/// A way to start processes apart from this one.
#[async_trait]
pub trait Isolation: Send + Sync {
    /// Starts a process as leader of a new session, with nothing inherited beyond the specification.
    ///
    /// # Errors
    /// When the program or its directory cannot be used, or the operating system refuses.
    async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SandboxError>;
}

/// No isolation beyond an own session: same user, same file system, same network.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostIsolation;

#[async_trait]
impl Isolation for HostIsolation {
    async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SandboxError> {
        start(spec)
    }
}

fn start(spec: ProcessSpec) -> Result<Process, SandboxError> {
    let usable = fs::metadata(&spec.cwd)
        .and_then(|found| if found.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) });
    if let Err(source) = usable {
        return Err(SandboxError::WorkingDirectory { directory: spec.cwd, source });
    }
    let mut arguments = vec![passable(spec.program.as_os_str(), "the program path")?];
    for argument in &spec.args {
        arguments.push(passable(argument, "an argument")?);
    }
    let mut environment = Vec::with_capacity(spec.env.len());
    for (name, value) in &spec.env {
        environment.push(environment_entry(name, value)?);
    }
    let program = spec.program.clone();
    let failed = |source| SandboxError::Spawn { program: program.clone(), source };
    let mut pipes = Pipes::default();
    let mut descriptors: Vec<(OwnedFd, RawFd)> = Vec::with_capacity(3 + spec.extra_fds.len());
    let (stdin, stdin_end) = input(spec.stdin).map_err(failed)?;
    pipes.stdin = stdin_end;
    descriptors.push((stdin, 0));
    let (stdout, stdout_end) = output(spec.stdout, io::stdout().as_fd()).map_err(failed)?;
    pipes.stdout = stdout_end;
    descriptors.push((stdout, 1));
    let (stderr, stderr_end) = output(spec.stderr, io::stderr().as_fd()).map_err(failed)?;
    pipes.stderr = stderr_end;
    descriptors.push((stderr, 2));
    descriptors.extend(spec.extra_fds);
    let mut own = registry::own_children();
    let pid = spawn(&RawSpec {
        program: &spec.program,
        arguments: &arguments,
        environment: &environment,
        directory: &spec.cwd,
        descriptors: &descriptors,
    })
    .map_err(failed)?;
    own.insert(pid);
    drop(own);
    drop(descriptors);
    Process::new(pid, pipes).map_err(failed)
}

fn passable(text: &OsStr, what: &str) -> Result<CString, SandboxError> {
    c_string(text).map_err(|_| SandboxError::Unpassable { what: what.to_owned() })
}

fn environment_entry(name: &OsStr, value: &OsStr) -> Result<CString, SandboxError> {
    let unpassable =
        || SandboxError::Unpassable { what: format!("the environment entry {}", name.display()) };
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(unpassable());
    }
    let mut entry = name.to_owned();
    entry.push("=");
    entry.push(value);
    c_string(&entry).map_err(|_| unpassable())
}

fn input(stdio: Stdio) -> io::Result<(OwnedFd, Option<pipe::Sender>)> {
    match stdio {
        Stdio::Null => Ok((File::open("/dev/null")?.into(), None)),
        Stdio::Inherit => Ok((io::stdin().as_fd().try_clone_to_owned()?, None)),
        Stdio::Descriptor(descriptor) => Ok((descriptor, None)),
        Stdio::Pipe => {
            let (sender, receiver) = pipe::pipe()?;
            Ok((receiver.into_blocking_fd()?, Some(sender)))
        }
    }
}

fn output(stdio: Stdio, own: std::os::fd::BorrowedFd<'_>) -> io::Result<(OwnedFd, Option<pipe::Receiver>)> {
    match stdio {
        Stdio::Null => Ok((OpenOptions::new().write(true).open("/dev/null")?.into(), None)),
        Stdio::Inherit => Ok((own.try_clone_to_owned()?, None)),
        Stdio::Descriptor(descriptor) => Ok((descriptor, None)),
        Stdio::Pipe => {
            let (sender, receiver) = pipe::pipe()?;
            Ok((sender.into_blocking_fd()?, Some(receiver)))
        }
    }
}
