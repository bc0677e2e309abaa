use std::sync::{Arc, Mutex, PoisonError};

use trestle_cli::{CliError, EXIT_CANCELLED, EXIT_COMPLETED, Terminal};
use trestle_contract::ErrorCode;

use crate::arguments::UpArgs;
use crate::logging;
use crate::plane::{HOST_WARNING, Plane, PlaneOptions};

/// `trestle up`: the server and a runner, until interrupted.
pub(crate) async fn up(terminal: &Terminal, args: UpArgs) -> Result<u8, CliError> {
    logging::start("info");
    let interrupt = Interrupt::listen()?;
    let options = PlaneOptions {
        data: args.data,
        listen: args.listen,
        public_url: args.public_url,
        model: args.model,
        lease_seconds: args.work.lease,
    };
    let plane = Arc::new(Plane::start(options).await?);
    announce(terminal, &plane, args.no_runner);
    let outcome = if args.no_runner {
        interrupt.next().await;
        Ok(EXIT_COMPLETED)
    } else {
        work(terminal, &plane, &args.work, &interrupt).await
    };
    if let Ok(plane) = Arc::try_unwrap(plane).map_err(drop) {
        tokio::select! {
            () = plane.stop() => {}
            () = interrupt.next() => return Ok(EXIT_CANCELLED),
        }
    }
    outcome
}

fn announce(terminal: &Terminal, plane: &Plane, no_runner: bool) {
    terminal.note(&format!("Trestle {} listens on {}", env!("CARGO_PKG_VERSION"), plane.server.url()));
    if plane.server.public_url() != plane.server.url() {
        terminal.note(&format!("public address: {}", plane.server.public_url()));
    }
    terminal.note(&format!("data: {}", plane.data.display()));
    terminal.note(&format!("admin token: {}", plane.server.admin_token_file().display()));
    if !no_runner {
        terminal.note(HOST_WARNING);
    }
}

async fn work(
    terminal: &Terminal,
    plane: &Arc<Plane>,
    work: &crate::arguments::WorkOptions,
    interrupt: &Interrupt,
) -> Result<u8, CliError> {
    let handle: Arc<Mutex<Option<trestle_runner::Handle>>> = Arc::default();
    let keep = Arc::clone(&handle);
    let runner = plane.run_runner(work, 1, move |started| {
        *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(started)
    });
    tokio::pin!(runner);
    tokio::select! {
        ended = &mut runner => {
            ended?;
            return Err(CliError::new(ErrorCode::Unavailable, "the runner of this process was drained")
                .hint("start again, or use --no-runner with runners of your own"));
        }
        () = interrupt.next() => {}
    }
    terminal.note("stopping: runs in progress are given back and go on at the next start; press Ctrl-C again to end at once");
    let started = handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(handle) = started else { return Ok(EXIT_COMPLETED) };
    handle.stop();
    tokio::select! {
        ended = &mut runner => return ended.map(|()| EXIT_COMPLETED),
        () = interrupt.next() => handle.kill(),
    }
    runner.await.map(|()| EXIT_CANCELLED)
}

/// Requests to end: SIGINT and SIGTERM count the same.
pub(crate) struct Interrupt {
    signals: tokio::sync::Mutex<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

impl Interrupt {
    pub(crate) fn listen() -> Result<Self, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error: std::io::Error| {
            CliError::new(ErrorCode::InternalError, format!("cannot listen for signals: {error}"))
        };
        let pair = (
            signal(SignalKind::interrupt()).map_err(failed)?,
            signal(SignalKind::terminate()).map_err(failed)?,
        );
        Ok(Self { signals: tokio::sync::Mutex::new(pair) })
    }

    /// Resolves at the next request.
    pub(crate) async fn next(&self) {
        let mut signals = self.signals.lock().await;
        let (interrupt, terminate) = &mut *signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
