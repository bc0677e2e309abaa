use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

use crate::registry;
use crate::tree::{ProcessIdentity, Tree, scan};
use crate::{SandboxError, system};

/// What a process is started with. Nothing beyond it is inherited: no environment entry and no
/// descriptor.
#[derive(Debug)]
pub struct ProcessSpec {
    /// Absolute path of the executable.
    pub program: PathBuf,
    /// Arguments after the program's own name.
    pub args: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Standard input.
    pub stdin: Stdio,
    /// Standard output.
    pub stdout: Stdio,
    /// Standard error.
    pub stderr: Stdio,
    /// Further descriptors and their numbers in the new process, from 3 on without a gap.
    pub extra_fds: Vec<(OwnedFd, RawFd)>,
}

/// Where a standard stream of a new process leads.
#[derive(Debug)]
pub enum Stdio {
    /// `/dev/null`.
    Null,
    /// The same place as this process's stream.
    Inherit,
    /// A pipe whose other end is in [`Process`].
    Pipe,
    /// This descriptor.
    Descriptor(OwnedFd),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

impl Exit {
    fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }

    /// The code as a shell reports it: 128 plus the signal's number for a killed process.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// What ending a process took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminated {
    /// How the process itself ended; `None` if not even a kill ended it in time.
    pub exit: Option<Exit>,
    /// Whether nothing of its tree is left.
    pub clean: bool,
}

/// A running process, leader of its own session and group.
#[derive(Debug, Clone)]
pub struct Process {
    inner: Arc<Inner>,
}

/// The ends of the pipes that [`Stdio::Pipe`] asked for.
#[derive(Debug, Default)]
pub struct Pipes {
    /// Writes to the process's standard input.
    pub stdin: Option<pipe::Sender>,
    /// Reads its standard output.
    pub stdout: Option<pipe::Receiver>,
    /// Reads its standard error.
    pub stderr: Option<pipe::Receiver>,
}

#[derive(Debug)]
struct Inner {
    identity: ProcessIdentity,
    handle: AsyncFd<OwnedFd>,
    exit: Mutex<Option<Exit>>,
    pipes: Mutex<Pipes>,
}

impl Process {
    pub(crate) fn new(pid: i32, pipes: Pipes) -> io::Result<Self> {
        // The child is not reaped yet, so its number and its entry in /proc are still its own.
        let identity = ProcessIdentity::of(pid).ok_or(io::ErrorKind::NotFound)?;
        let handle = system::watch(system::pidfd_open(pid)?)?;
        Ok(Self {
            inner: Arc::new(Inner { identity, handle, exit: Mutex::new(None), pipes: Mutex::new(pipes) }),
        })
    }

    /// Its process number, which is also its session's and group's.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.inner.identity.pid
    }

    /// Its number and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.inner.identity
    }

    /// Takes the pipe ends; a second call gets none.
    #[must_use]
    pub fn take_pipes(&self) -> Pipes {
        std::mem::take(&mut *self.inner.pipes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the process has ended; may be called again and from several places.
    ///
    /// # Errors
    /// When the process cannot be observed.
    pub async fn wait(&self) -> Result<Exit, SandboxError> {
        loop {
            if let Some(exit) = self.try_wait()? {
                return Ok(exit);
            }
            let mut ready =
                self.inner.handle.readable().await.map_err(SandboxError::system("wait for a process"))?;
            if self.try_wait()?.is_none() {
                ready.clear_ready();
            }
        }
    }

    /// How the process ended, if it has.
    ///
    /// # Errors
    /// When the process cannot be observed.
    pub fn try_wait(&self) -> Result<Option<Exit>, SandboxError> {
        let mut exit = self.inner.exit.lock().unwrap_or_else(PoisonError::into_inner);
        if exit.is_none() {
            let mut own = registry::own_children();
            if let Some(status) =
                system::reap(self.pid()).map_err(SandboxError::system("wait for a process"))?
            {
                own.remove(&self.pid());
                *exit = Some(Exit::from_status(status));
            }
        }
        Ok(*exit)
    }

    /// Sends a signal to the process's group, or to the process if its group is gone.
    pub fn signal_group(&self, signal: i32) {
        if system::signal_group(self.pid(), signal).is_err()
            && self.inner.exit.lock().is_ok_and(|exit| exit.is_none())
        {
            let _ = system::pidfd_signal(self.inner.handle.get_ref().as_fd(), signal);
        }
    }

    /// Asks the group to end (`SIGTERM`), gives it `grace`, then kills it and every descendant until
    /// two looks find none. Also ends what is left of the tree of a process that has ended already.
    ///
    /// # Errors
    /// When the process cannot be observed.
    pub async fn terminate(&self, grace: Duration) -> Result<Terminated, SandboxError> {
        let mut tree = Tree::of(self.identity());
        // Seen before the first signal: afterwards a member may have lost its parent.
        tree.living(&scan());
        self.signal_group(libc::SIGTERM);
        let _ = timeout_at(Instant::now() + grace, self.wait()).await;
        self.finish(tree).await
    }

    /// Kills the process alone and waits for its end. What it started is left to
    /// [`end_all_descendants`](crate::end_all_descendants), which costs little when there is nothing.
    ///
    /// # Errors
    /// When the process cannot be observed.
    pub async fn kill_alone(&self) -> Result<Exit, SandboxError> {
        if self.try_wait()?.is_none() {
            let _ = system::pidfd_signal(self.inner.handle.get_ref().as_fd(), libc::SIGKILL);
        }
        self.wait().await
    }

    /// Kills the process and its tree at once.
    ///
    /// # Errors
    /// When the process cannot be observed.
    pub async fn kill(&self) -> Result<Terminated, SandboxError> {
        let mut tree = Tree::of(self.identity());
        tree.living(&scan());
        self.finish(tree).await
    }

    async fn finish(&self, mut tree: Tree) -> Result<Terminated, SandboxError> {
        let clean = tree.kill(Duration::from_secs(5)).await;
        let exit = match timeout_at(Instant::now() + Duration::from_secs(1), self.wait()).await {
            Ok(exit) => Some(exit?),
            Err(_) => None,
        };
        Ok(Terminated { exit, clean: clean && exit.is_some() })
    }
}

impl Drop for Inner {
    /// A process whose last handle goes is killed with everything below it, not leaked.
    fn drop(&mut self) {
        let ended = self.exit.get_mut().is_ok_and(|exit| exit.is_some());
        if !ended {
            // Members first: one whose parent is gone cannot be told to belong any more.
            Tree::of(self.identity).kill_now();
            let _ = system::signal_group(self.identity.pid, libc::SIGKILL);
            let _ = system::pidfd_signal(self.handle.get_ref().as_fd(), libc::SIGKILL);
            // From here on it counts as adopted: the watcher reaps it.
            registry::own_children().remove(&self.identity.pid);
        }
    }
}
