//! A program from its start to its very end: nothing of it is left afterwards.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use trestle_contract::event::StandardStream;
use trestle_sandbox::slot::SlotReport;
use trestle_sandbox::{Exit, Process, end_all_descendants};

use crate::abort::{Abort, AbortReason};
use crate::events::{Closing, ConsoleLimits, Emitter, Flow, copy_console};
use crate::host::{Capabilities, HostServer, HostSocket};
use crate::program::{
    Ending, LoaderAssignment, LoaderChannel, LoaderFailure, LoaderReport, NodeProcess, ProgramFiles,
};
use crate::runner_link::Reports;
use crate::timing::Timing;

/// Reports of a wait that ends at once would only cost the runner work.
const WAIT_SETTLES: Duration = Duration::from_millis(100);
/// Time for the whole tree to be killed.
const KILL_WITHIN: Duration = Duration::from_secs(5);

/// Runs the program in its waiting interpreter.
pub(crate) async fn run_program(
    node: NodeProcess,
    files: &ProgramFiles,
    capabilities: &Arc<Capabilities>,
    socket: HostSocket,
    reports: &Reports,
) -> Ending {
    let NodeProcess { process, mut channel, stdout, stderr } = node;
    let timing = capabilities.control.timing().clone();
    capabilities.set_program(process.pid(), socket.path.clone());
    let socket = Arc::new(socket);
    let server = Arc::new(HostServer::new());
    let serving = {
        let (server, socket, capabilities) =
            (Arc::clone(&server), Arc::clone(&socket), Arc::clone(capabilities));
        AbortOnDropHandle::new(tokio::spawn(async move { server.run(&socket, capabilities).await }))
    };
    let console = Console::start(stdout, stderr, &capabilities.emitter, timing.pipe_drain);
    let told = AbortOnDropHandle::new(tokio::spawn(tell_runner(Arc::clone(capabilities), reports.clone())));
    let assignment = LoaderAssignment {
        sock: socket.path.clone(),
        entry: files.entry.clone(),
        cwd: capabilities.facts.workspace.clone(),
        root: files.directory.clone(),
        env: capabilities.facts.environment.clone(),
    };
    let mut failure = None;
    if let Err(error) = channel.assign(&assignment).await {
        // The process is gone: how it ended tells more.
        tracing::warn!(%error, "the interpreter did not take its program");
    }
    let exit = tokio::select! {
        exit = process.wait() => exit.ok(),
        exit = finished(&mut channel, &mut failure, &process, &console, timing.program_exit) => exit,
        exit = end_when_aborted(&process, &capabilities.abort, &timing) => exit,
    };
    drop(told);
    if !capabilities.is_bootstrapped() {
        reports.send(SlotReport::Started);
    }
    // Reports that were written before the end are still in the channel.
    while let Ok(Some(report)) = timeout(timing.pipe_drain, channel.next()).await {
        note(&mut failure, report);
    }
    if !end_all_descendants(KILL_WITHIN).await {
        tracing::error!("a process of the program could not be ended");
    }
    let (last_line, ()) = tokio::join!(
        console.finish(&capabilities.abort, timing.pipe_drain),
        server.drained(timing.pipe_drain)
    );
    capabilities.close();
    drop(serving);
    let returned = capabilities.take_return();
    Ending {
        returned: returned.accepted,
        refused: returned.refused,
        failure,
        exit,
        last_line,
        breach: capabilities.budget.breach(),
    }
}

fn note(failure: &mut Option<LoaderFailure>, report: LoaderReport) -> bool {
    match report {
        LoaderReport::Ready => false,
        LoaderReport::Returned => true,
        LoaderReport::Failed(found) => {
            // The first failure is the cause of all others.
            failure.get_or_insert(found);
            true
        }
    }
}

/// Waits for the report of an end, then for the end of the program's output. What the interpreter does
/// after that, taking itself apart, is of no use to anybody.
async fn finished(
    channel: &mut LoaderChannel,
    failure: &mut Option<LoaderFailure>,
    process: &Process,
    console: &Console,
    grace: Duration,
) -> Option<Exit> {
    loop {
        match channel.next().await {
            Some(report) => {
                if note(failure, report) {
                    break;
                }
            }
            // The program closed the channel; it may run on.
            None => return process.wait().await.ok(),
        }
    }
    // What the program printed before is still on its way, as fast as the server takes it.
    tokio::select! {
        _ = process.wait() => {}
        () = console.ended() => {}
        () = console.flow.idle(grace) => {}
    }
    process.kill_alone().await.ok()
}

/// Ends the process once the run is being ended: at once when it is not ours any more, step by step
/// otherwise.
async fn end_when_aborted(process: &Process, abort: &Abort, timing: &Timing) -> Option<Exit> {
    let mut reason = abort.wait().await;
    let since = Instant::now();
    loop {
        tokio::select! {
            exit = escalate(process, reason, since, timing) => return exit,
            graver = abort.wait_beyond(reason) => reason = graver,
        }
    }
}

async fn escalate(process: &Process, reason: AbortReason, since: Instant, timing: &Timing) -> Option<Exit> {
    let millis = |time: i64| Duration::from_millis(u64::try_from(time).unwrap_or(0));
    let (terminate, kill) = match reason {
        AbortReason::Cancelled | AbortReason::CreditExhausted | AbortReason::BudgetExceeded => {
            (millis(timing.cancel.terminate_ms), millis(timing.cancel.kill_ms))
        }
        AbortReason::Shutdown => (timing.release / 4, timing.release / 2),
        AbortReason::RunnerGone | AbortReason::LeaseLost => (Duration::ZERO, Duration::ZERO),
    };
    if !kill.is_zero() {
        sleep_until(since + terminate).await;
        process.signal_group(nix::libc::SIGTERM);
        sleep_until(since + kill).await;
    }
    process.kill().await.ok().and_then(|ended| ended.exit)
}

/// Tells the runner when the program has started, and when it only waits for other runs.
async fn tell_runner(capabilities: Arc<Capabilities>, reports: Reports) {
    capabilities.bootstrapped().await;
    reports.send(SlotReport::Started);
    let activity = &capabilities.activity;
    loop {
        activity.until(true).await;
        sleep(WAIT_SETTLES).await;
        if !activity.waits_for_children() {
            continue;
        }
        reports.send(SlotReport::Waiting { waiting: true });
        activity.until(false).await;
        reports.send(SlotReport::Waiting { waiting: false });
    }
}

/// The copies of the program's standard streams.
struct Console {
    copies: TaskTracker,
    handles: [AbortOnDropHandle<()>; 2],
    is_over: watch::Sender<bool>,
    flow: Flow,
    last_line: Arc<Mutex<Option<String>>>,
}

impl Console {
    fn start(
        stdout: tokio::net::unix::pipe::Receiver,
        stderr: tokio::net::unix::pipe::Receiver,
        emitter: &Emitter,
        silence: Duration,
    ) -> Self {
        let is_over = watch::Sender::new(false);
        let flow = Flow::default();
        let closing = Closing::new(is_over.subscribe(), silence, flow.clone());
        let limits = Arc::new(ConsoleLimits::default());
        let last_line = Arc::new(Mutex::new(None));
        let ignored = Arc::new(Mutex::new(None));
        let (first, last) = (Arc::clone(&limits), Arc::clone(&last_line));
        let out =
            copy_console(stdout, StandardStream::Stdout, emitter.clone(), first, ignored, closing.clone());
        let err = copy_console(stderr, StandardStream::Stderr, emitter.clone(), limits, last, closing);
        let copies = TaskTracker::new();
        let handles = [copies.spawn(out), copies.spawn(err)].map(AbortOnDropHandle::new);
        copies.close();
        Self { copies, handles, is_over, flow, last_line }
    }

    /// Waits until nobody can write to the streams any more and everything is copied.
    async fn ended(&self) {
        self.copies.wait().await;
    }

    /// Waits for the rest of the streams; a pipe that somebody else holds open is not waited for, and a run
    /// that is being ended waits for a moment only.
    async fn finish(self, abort: &Abort, within: Duration) -> Option<String> {
        self.is_over.send_replace(true);
        let hurried = async {
            abort.wait().await;
            sleep(within).await;
        };
        tokio::select! {
            () = self.copies.wait() => {}
            () = hurried => {}
        }
        drop(self.handles);
        self.last_line.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
