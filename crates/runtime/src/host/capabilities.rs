use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use trestle_agent::FileTree;
use trestle_contract::host::HostErrorBody;
use trestle_contract::{RawJson, RunId};
use trestle_domain::Clock;

use super::{Activity, HostFailure, OutputSchema};
use crate::abort::Abort;
use crate::budget::Budget;
use crate::control::ControlClient;
use crate::events::Emitter;
use crate::inference::Providers;
use crate::lease::Lease;

/// What is known about a run before its program starts.
pub(crate) struct RunFacts {
    pub(crate) run_id: RunId,
    /// The answer to `bootstrap`, the same each time.
    pub(crate) bootstrap: RawJson,
    pub(crate) output_schema: OutputSchema,
    pub(crate) workspace: PathBuf,
    pub(crate) temporary: PathBuf,
    /// Environment of the program, which its shell commands get too.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) package: Option<FileTree>,
    pub(crate) workspace_tree: Option<FileTree>,
    pub(crate) api_token: Option<String>,
    /// Providers whose keys are the organisation's own.
    pub(crate) providers: Providers,
    /// Whether the control plane answers a repeated model call with the same turn.
    pub(crate) honours_turn_keys: bool,
    /// Whether the control plane knows members that the original does not.
    pub(crate) is_extended: bool,
    /// Whether the control plane wants to know which lane a model call went.
    pub(crate) asks_for_lanes: bool,
}

/// Everything that host calls need; one per run.
pub(crate) struct Capabilities {
    pub(crate) facts: RunFacts,
    pub(crate) control: ControlClient,
    pub(crate) emitter: Emitter,
    pub(crate) abort: Abort,
    pub(crate) lease: Lease,
    pub(crate) budget: Budget,
    pub(crate) activity: Activity,
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) boot: Arc<dyn Clock>,
    /// Distinguishes the identifiers of this process from those of an earlier attempt.
    pub(crate) session: String,
    pub(super) program: OnceLock<i32>,
    pub(super) socket: OnceLock<PathBuf>,
    pub(super) bootstrapped: watch::Sender<bool>,
    pub(super) returned: Mutex<ReturnState>,
    pub(super) phases: AtomicU64,
    pub(super) agents: AtomicU64,
    pub(super) turns: AtomicU64,
    pub(super) children: Mutex<HashMap<(String, String), u64>>,
    pub(super) is_draining: AtomicBool,
    /// Reports that nobody waits for until the end.
    pub(super) reports: TaskTracker,
}

/// The return value, as far as it was reported.
#[derive(Debug, Default)]
pub(crate) struct ReturnState {
    /// The value that was accepted last.
    pub(crate) accepted: Option<RawJson>,
    /// Why the last value was refused, if it was.
    pub(crate) refused: Option<HostErrorBody>,
}

/// What [`Capabilities::new`] puts together.
pub(crate) struct Services {
    pub(crate) control: ControlClient,
    pub(crate) emitter: Emitter,
    pub(crate) abort: Abort,
    pub(crate) lease: Lease,
    pub(crate) budget: Budget,
    pub(crate) activity: Activity,
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) boot: Arc<dyn Clock>,
}

impl Capabilities {
    pub(crate) fn new(facts: RunFacts, services: Services) -> Arc<Self> {
        let Services { control, emitter, abort, lease, budget, activity, wall, boot } = services;
        Arc::new(Self {
            facts,
            control,
            emitter,
            abort,
            lease,
            budget,
            activity,
            wall,
            boot,
            session: uuid::Uuid::new_v4().to_string(),
            program: OnceLock::new(),
            socket: OnceLock::new(),
            bootstrapped: watch::Sender::new(false),
            returned: Mutex::default(),
            phases: AtomicU64::new(0),
            agents: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            children: Mutex::default(),
            is_draining: AtomicBool::new(false),
            reports: TaskTracker::new(),
        })
    }

    /// Names the one process that may ask for the input and report the result, and the socket that its
    /// commands find in their environment.
    pub(crate) fn set_program(&self, pid: i32, socket: PathBuf) {
        let _ = self.program.set(pid);
        let _ = self.socket.set(socket);
    }

    /// Whether the program has asked for its input.
    pub(crate) fn is_bootstrapped(&self) -> bool {
        *self.bootstrapped.borrow()
    }

    /// Waits until the program has asked for its input.
    pub(crate) async fn bootstrapped(&self) {
        let _ = self.bootstrapped.subscribe().wait_for(|done| *done).await;
    }

    /// What was reported.
    pub(crate) fn take_return(&self) -> ReturnState {
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the reports that are on their way.
    pub(crate) async fn reports_delivered(&self) {
        self.reports.close();
        self.reports.wait().await;
    }

    /// Refuses when the run is being ended, or when the lease may be over: nothing has an effect then.
    pub(crate) fn check_alive(&self) -> Result<(), HostFailure> {
        if self.lease.is_over() {
            self.abort.request(crate::abort::AbortReason::LeaseLost);
        }
        match self.abort.reason() {
            Some(reason) => Err(HostFailure::aborted(reason)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Capabilities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Capabilities").field("run", &self.facts.run_id).finish_non_exhaustive()
    }
}
