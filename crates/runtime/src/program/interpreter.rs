use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use tokio::net::unix::pipe;
use trestle_sandbox::slot::NodeRuntime;
use trestle_sandbox::{HostIsolation, Isolation, Process, ProcessSpec, SandboxError, Stdio, unix_pair};

use super::environment::for_process;
use super::loader::LoaderChannel;
use super::sdk::LOADER;

/// A started interpreter that waits for its program, or runs it.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    pub(crate) process: Process,
    pub(crate) channel: LoaderChannel,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

impl NodeProcess {
    /// Starts Node with the loader. `warm` has it load beforehand everything that a run touches.
    pub(crate) async fn start(
        node: &NodeRuntime,
        sdk: &Path,
        environment: &BTreeMap<String, String>,
        warm: bool,
    ) -> Result<Self, SandboxError> {
        let broken = |source: io::Error| SandboxError::Spawn { program: node.path.clone(), source };
        let (own, theirs) = unix_pair().map_err(broken)?;
        let mut args = vec![sdk.join(LOADER).into_os_string()];
        if warm {
            args.push("--warm".into());
        }
        let process = HostIsolation
            .spawn(ProcessSpec {
                program: node.path.clone(),
                args,
                env: for_process(environment),
                cwd: "/".into(),
                stdin: Stdio::Null,
                stdout: Stdio::Pipe,
                stderr: Stdio::Pipe,
                extra_fds: vec![(theirs, 3)],
            })
            .await?;
        let pipes = process.take_pipes();
        let (Some(stdout), Some(stderr)) = (pipes.stdout, pipes.stderr) else {
            return Err(broken(io::ErrorKind::BrokenPipe.into()));
        };
        Ok(Self { process, channel: LoaderChannel::new(own).map_err(broken)?, stdout, stderr })
    }
}
