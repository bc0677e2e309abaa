use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use trestle_sandbox::slot::{self, Assignment, SlotOutcome, SlotReader, SlotReport};
use trestle_sandbox::{
    SandboxError, become_subreaper, end_all_descendants, give_back_start_up_pages, inherited,
    refuse_inspection, watch_adopted,
};

use crate::abort::{Abort, AbortReason};
use crate::args::RunArgs;
use crate::control::Http;
use crate::host::HostSocket;
use crate::program::{LoaderReport, NodeProcess, base_environment, write_sdk};
use crate::runner_link::{ReportWriter, assignment, watch_runner};
use crate::session::{Session, Standby};

/// Runs one run process on a runtime of its own.
#[must_use]
pub fn run(args: RunArgs) -> ExitCode {
    // One thread: a run process waits most of its life, and there are many of them.
    let runtime =
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "the run process cannot start");
                return ExitCode::FAILURE;
            }
        };
    let code = runtime.block_on(Box::pin(main(args)));
    // A thread that still unpacks a program takes away what it wrote when it is done.
    runtime.shutdown_timeout(Duration::from_secs(2));
    code
}

/// Executes one run: waits for its assignment and ends with it. The exit code is 0 for every orderly
/// end, whatever the run's own outcome.
pub async fn main(args: RunArgs) -> ExitCode {
    let result = Box::pin(execute(args)).await;
    // Whatever happened, nothing that was started here outlives this process.
    end_all_descendants(Duration::from_secs(2)).await;
    match result {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the run process ends");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the interpreter ended while it waited for a run")]
    InterpreterGone,
}

async fn execute(args: RunArgs) -> Result<ExitCode, EntryError> {
    refuse_inspection()?;
    become_subreaper()?;
    let reaper = tokio::spawn(watch_adopted());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (mut reader, writer) = slot::open(inherited(args.slot_fd)?)?;
    let writer = ReportWriter::start(writer);
    let http = Arc::new(Http::new(args.timing.connect));
    let mut standby = None;
    if args.prestart.is_some() {
        standby = Some(stand_by(&args, &http, &writer).await?);
    }
    let assigned = tokio::select! {
        assigned = assignment(&mut reader) => assigned?,
        () = interpreter_gone(&mut standby) => return Err(EntryError::InterpreterGone),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(assigned) = assigned else {
        if let Some(standby) = standby {
            standby.node.process.kill().await?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    writer.reports().send(SlotReport::Accepted);
    let outcome = run_assigned(args, assigned, standby, http, (reader, terminate, interrupt), &writer).await;
    let code = match outcome {
        SlotOutcome::Abandoned { .. } => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    };
    let _ = tokio::time::timeout(Duration::from_millis(500), writer.finish(outcome)).await;
    reaper.abort();
    Ok(code)
}

/// Executes the run. When the runner is gone it may not take longer than its deadline, whatever it waits
/// for.
async fn run_assigned(
    args: RunArgs,
    assigned: Assignment,
    standby: Option<Standby>,
    http: Arc<Http>,
    (reader, terminate, interrupt): (SlotReader, Signal, Signal),
    writer: &ReportWriter,
) -> SlotOutcome {
    let abort = Abort::default();
    let watchers = [
        tokio::spawn(watch_runner(reader, abort.clone())),
        tokio::spawn(watch_signals(terminate, interrupt, abort.clone())),
        tokio::spawn(settle_down(args.timing.settled)),
    ];
    let limit = args.timing.runner_gone;
    let session = Session::new(args, assigned, http, abort.clone(), writer.reports());
    let overdue = async {
        abort.wait_until(|reason| reason == AbortReason::RunnerGone).await;
        tokio::time::sleep(limit).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = Box::pin(session.run(standby)) => outcome,
        () = overdue => SlotOutcome::Abandoned { message: "the runner is gone".into() },
    };
    for watcher in watchers {
        watcher.abort();
    }
    outcome
}

/// A run process waits most of its life: what it needed to get its program going it holds no longer.
async fn settle_down(after: Duration) {
    tokio::time::sleep(after).await;
    give_back_start_up_pages();
}

async fn watch_signals(mut terminate: Signal, mut interrupt: Signal, abort: Abort) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    abort.request(AbortReason::Shutdown);
}

/// Loads everything that does not depend on a run.
async fn stand_by(args: &RunArgs, http: &Http, writer: &ReportWriter) -> Result<Standby, EntryError> {
    let sdk = args.slot_dir.join("sdk");
    write_sdk(&sdk)?;
    let Some(runtime) = &args.prestart else { return Err(EntryError::InterpreterGone) };
    let socket = HostSocket::bind()?;
    let mut node = NodeProcess::start(runtime, &sdk, &base_environment(), true).await?;
    http.warm();
    match node.channel.next().await {
        Some(LoaderReport::Ready) => writer.reports().send(SlotReport::Ready),
        _ => {
            let _ = node.process.kill().await;
            return Err(EntryError::InterpreterGone);
        }
    }
    Ok(Standby { node, socket })
}

/// Ends when the waiting interpreter does.
async fn interpreter_gone(standby: &mut Option<Standby>) {
    match standby {
        Some(standby) => {
            let _ = standby.node.process.wait().await;
        }
        None => std::future::pending().await,
    }
}
