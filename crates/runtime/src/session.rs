//! One run in its order: claim, prepare, program, end (`docs/protocol/control.md` §15).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use trestle_contract::control::{RunClaimResponse, RunError};
use trestle_contract::event::{EventBody, RunStatus};
use trestle_contract::{ErrorCode, RunId};
use trestle_domain::{BootClock, Clock, Redactor, WallClock};
use trestle_sandbox::slot::{Assignment, NodeRuntime, SlotOutcome};

use crate::abort::{Abort, AbortReason};
use crate::args::RunArgs;
use crate::budget::Budget;
use crate::control::{ControlClient, Http};
use crate::events::{Emitter, Mirror, TelemetrySender};
use crate::finalize::{RunEnd, Written, finalize};
use crate::host::{Activity, Capabilities, HostSocket, Services};
use crate::lease::Lease;
use crate::prepare::{NotReady, Ready, prepare, version};
use crate::program::{
    NodeProcess, PrepareError, Verdict, base_environment, decide, needs_cold_start, write_sdk,
};
use crate::runner_link::Reports;
use crate::supervise::run_program;
use crate::timing::Timing;
use crate::watch::{UsageMeter, watch_cancel, watch_credit};

/// An interpreter that waits, and the socket that its program will use.
pub(crate) struct Standby {
    pub(crate) node: NodeProcess,
    pub(crate) socket: HostSocket,
}

/// One assigned run.
pub(crate) struct Session {
    assignment: Assignment,
    slot: PathBuf,
    /// A log for a terminal; a relative name lies in the directory of this process.
    run_log: Option<PathBuf>,
    timing: Timing,
    http: Arc<Http>,
    abort: Abort,
    reports: Reports,
    boot: Arc<dyn Clock>,
    wall: Arc<dyn Clock>,
}

/// How the part between claim and end came out.
enum Attempt {
    Ended(Verdict),
    Failed(PrepareError),
    /// Given back without a word about the program.
    Unavailable(String),
}

/// What lives from the claim until after the end.
struct Held {
    control: ControlClient,
    emitter: Emitter,
    lease: Lease,
    usage: UsageMeter,
    _tasks: [AbortOnDropHandle<()>; 3],
}

impl Session {
    pub(crate) fn new(
        args: RunArgs,
        assignment: Assignment,
        http: Arc<Http>,
        abort: Abort,
        reports: Reports,
    ) -> Self {
        Self {
            assignment,
            slot: args.slot_dir,
            run_log: args.run_log,
            timing: args.timing,
            http,
            abort,
            reports,
            boot: Arc::new(BootClock),
            wall: Arc::new(WallClock),
        }
    }

    pub(crate) async fn run(self, standby: Option<Standby>) -> SlotOutcome {
        let abandoned = |message: String| SlotOutcome::Abandoned { message };
        let control = match ControlClient::new(Arc::clone(&self.http), &self.assignment, self.timing.clone())
        {
            Ok(control) => control,
            Err(message) => return abandoned(message),
        };
        let run_id = match RunId::new(self.assignment.run_id.clone()) {
            Ok(run_id) => run_id,
            Err(error) => return abandoned(format!("run id: {error}")),
        };
        // A cold start begins now: the interpreter loads while the run is claimed and fetched.
        let starting = self.begin_start(standby);
        let lease = Lease::new(Arc::clone(&self.boot), self.assignment.lease, &self.timing);
        let sent = lease.before_request();
        let granted = match self.abort.race(control.claim()).await {
            Ok(Ok(granted)) => granted,
            Ok(Err(error)) if error.status() == Some(409) => return SlotOutcome::ClaimLost,
            Ok(Err(error)) => return abandoned(error.to_string()),
            Err(reason) => return self.give_back(&control, reason.word()).await,
        };
        lease.granted(sent, granted.length_ms);
        let server_ms = match (granted.answer.lease_until, granted.length_ms) {
            (Some(until), Some(length_ms)) => Some(until.get_signed().saturating_sub(length_ms)),
            _ => None,
        };
        let claim = granted.answer;
        control.fence_by(lease.clone());
        let held = self.hold(control, lease, sent, run_id, &claim);
        if let Some(server_ms) = server_ms {
            held.emitter.catch_up_with(server_ms);
        }
        held.emitter.emit(EventBody::RunStatus { status: RunStatus::Running, error: None });
        let attempt = self.attempt(&held, starting, &claim).await;
        self.conclude(held, attempt).await
    }

    /// Starts what accompanies the run from the claim until after its end.
    fn hold(
        &self,
        control: ControlClient,
        lease: Lease,
        claimed_ms: i64,
        run: RunId,
        claim: &RunClaimResponse,
    ) -> Held {
        let redactor = Redactor::default();
        redactor.add("run token", &self.assignment.run_token);
        if let Some(token) = &self.assignment.api_token {
            redactor.add("API token", token);
        }
        let last_cursor = claim.last_event_cursor.unwrap_or(0);
        let emitter =
            Emitter::new(&run, last_cursor, Arc::clone(&self.wall), redactor.clone(), self.slot.clone());
        if let Some(log) = &self.run_log {
            match Mirror::open(&self.slot.join(log)) {
                Ok(mirror) => emitter.mirror_to(mirror),
                Err(error) => tracing::warn!(%error, path = %log.display(), "the run's log cannot be opened"),
            }
        }
        let usage = UsageMeter::new(
            control.clone(),
            Arc::clone(&self.boot),
            run.as_str(),
            claimed_ms,
            claim.is_extended(),
        );
        let sender = TelemetrySender::new(emitter.clone(), self.abort.clone(), &self.timing);
        let telemetry = {
            let control = control.clone();
            async move {
                sender
                    .run(|frames| {
                        let control = control.clone();
                        async move { control.telemetry(frames).await }
                    })
                    .await;
            }
        };
        let renew_every = Duration::from_millis(self.assignment.lease.renew_every_ms.max(1));
        let keeping = lease.clone().keep(control.clone(), renew_every, self.abort.clone(), redactor);
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(telemetry)),
            AbortOnDropHandle::new(tokio::spawn(keeping)),
            AbortOnDropHandle::new(tokio::spawn(watch_cancel(control.clone(), self.abort.clone()))),
        ];
        Held { control, emitter, lease, usage, _tasks: tasks }
    }

    /// The interpreter: the waiting one, or one that starts beside everything else. None when the run's
    /// own environment has to be there as it starts.
    fn begin_start(&self, standby: Option<Standby>) -> Starting {
        let cold = needs_cold_start(self.assignment.env.keys());
        match standby {
            Some(standby) if !cold => Starting::Waiting(Box::new(standby)),
            _ if cold => Starting::Later,
            _ => {
                let (node, slot) = (self.assignment.node.clone(), self.slot.clone());
                Starting::Begun(AbortOnDropHandle::new(tokio::spawn(async move {
                    start_interpreter(&node, slot, &base_environment()).await
                })))
            }
        }
    }

    async fn attempt(&self, held: &Held, starting: Starting, claim: &RunClaimResponse) -> Attempt {
        if let Err(error) = self.assignment.node.check() {
            let refused =
                PrepareError::new(ErrorCode::UnsupportedRuntime, error.to_string()).with_hint(error.hint());
            return Attempt::Failed(refused);
        }
        let ready = async {
            let version = version(&held.control).await?;
            let ready =
                prepare(&held.control, &held.emitter, &self.assignment, &self.slot, claim, &version).await?;
            Ok::<_, NotReady>((version, ready))
        };
        let (version, Ready { facts, files }) = match self.abort.race(ready).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(NotReady::Failed(error))) => return Attempt::Failed(error),
            Ok(Err(NotReady::Unavailable(error))) => return Attempt::Unavailable(error.to_string()),
            Err(reason) => return Attempt::Unavailable(reason.word().to_owned()),
        };
        let Standby { node, socket } =
            match self.abort.race(self.finish_start(starting, &facts.environment)).await {
                Ok(Ok(standby)) => standby,
                Ok(Err(error)) => return Attempt::Failed(error),
                Err(reason) => return Attempt::Unavailable(reason.word().to_owned()),
            };
        let limits = version.manifest.descriptor.budget.as_ref();
        let services = Services {
            control: held.control.clone(),
            emitter: held.emitter.clone(),
            abort: self.abort.clone(),
            lease: held.lease.clone(),
            budget: Budget::new(limits, claim, held.usage.clone()),
            activity: Activity::default(),
            wall: Arc::clone(&self.wall),
            boot: Arc::clone(&self.boot),
        };
        let capabilities = Capabilities::new(facts, services);
        let _watchers = [
            AbortOnDropHandle::new(tokio::spawn(watch_credit(held.control.clone(), self.abort.clone()))),
            AbortOnDropHandle::new(tokio::spawn(held.usage.clone().run(self.timing.usage))),
            AbortOnDropHandle::new(tokio::spawn(
                capabilities.budget.clone().watch(self.timing.budget_check, self.abort.clone()),
            )),
        ];
        let ending = run_program(node, &files, &capabilities, socket, &self.reports).await;
        // Nobody waits for its files to be gone: the end of the run comes first.
        tokio::task::spawn_blocking(move || drop(files));
        if !self.patiently(capabilities.reports_delivered()).await {
            tracing::warn!("not every report of used tokens was delivered in time");
        }
        Attempt::Ended(decide(ending))
    }

    async fn finish_start(
        &self,
        starting: Starting,
        environment: &std::collections::BTreeMap<String, String>,
    ) -> Result<Standby, PrepareError> {
        // Secrets may have brought a name that only counts at the start.
        let cold =
            needs_cold_start(environment.keys().filter(|name| !base_environment().contains_key(*name)));
        match starting {
            Starting::Waiting(standby) if !cold => Ok(*standby),
            Starting::Begun(begun) if !cold => {
                begun.await.map_err(|error| PrepareError::internal(error.to_string()))?
            }
            _ => start_interpreter(&self.assignment.node, self.slot.clone(), environment).await,
        }
    }

    /// Waits for something to be delivered: as long as an outage may last that loses nothing, or for a moment
    /// once the run is being ended. False when it was not delivered.
    async fn patiently(&self, delivery: impl Future<Output = ()>) -> bool {
        let hurried = async {
            self.abort.wait().await;
            sleep(self.timing.telemetry_flush_aborted).await;
        };
        tokio::select! {
            biased;
            () = delivery => true,
            () = hurried => false,
            () = sleep(Duration::from_secs(self.assignment.lease.seconds)) => false,
        }
    }

    /// Writes the end, or gives the run back. Nothing is written for a run that is not ours any more.
    async fn conclude(self, held: Held, attempt: Attempt) -> SlotOutcome {
        let has_run = matches!(attempt, Attempt::Ended(_));
        let end = match (self.abort.reason(), attempt) {
            (Some(AbortReason::LeaseLost), _) => return SlotOutcome::LeaseLost,
            (Some(reason @ (AbortReason::Shutdown | AbortReason::RunnerGone)), _) => {
                return self.hand_back(held, reason.word()).await;
            }
            (Some(AbortReason::BudgetExceeded), Attempt::Ended(Verdict::Failed(error))) => {
                RunEnd::Failed(error)
            }
            (
                Some(
                    reason @ (AbortReason::Cancelled
                    | AbortReason::CreditExhausted
                    | AbortReason::BudgetExceeded),
                ),
                _,
            ) => RunEnd::Failed(aborted(reason)),
            (None, Attempt::Unavailable(message)) => {
                tracing::warn!(message, "the run is given back");
                return self.hand_back(held, "unavailable").await;
            }
            (None, Attempt::Ended(Verdict::Crashed(message))) => {
                tracing::warn!(message, "the run is given back");
                let text = format!("{message}; the run is started again unless its attempts are used up");
                let stream = trestle_contract::event::StandardStream::Stderr;
                held.emitter.emit(EventBody::ProgramOutput { stream, text });
                return self.hand_back(held, "crashed").await;
            }
            (None, Attempt::Failed(error)) => RunEnd::Failed(RunError {
                code: error.code,
                message: error.message,
                hint: error.hint,
                reason: None,
            }),
            (None, Attempt::Ended(Verdict::Failed(error))) => RunEnd::Failed(error),
            (None, Attempt::Ended(Verdict::Completed(value))) => RunEnd::Completed(value),
        };
        let end = redacted(&held.emitter, end);
        if let RunEnd::Completed(value) = &end
            && !value.is_null()
        {
            held.emitter.emit(EventBody::Output { value: value.clone() });
        }
        let usage = async {
            // Nothing is charged for a run whose program could not even be started.
            if has_run {
                held.usage.deliver().await;
            }
        };
        let delivered = self.patiently(async { tokio::join!(held.emitter.flushed(), usage).0 }).await;
        if !delivered {
            tracing::warn!("not everything was delivered before the end of the run");
        }
        match finalize(&held.control, &held.lease, &self.slot, end).await {
            Written::Stored(end) => {
                // The control plane takes late events for a while.
                let _ = timeout(self.timing.telemetry_flush, held.emitter.flushed()).await;
                outcome(end)
            }
            Written::Displaced => SlotOutcome::LeaseLost,
            Written::Refused(error) => SlotOutcome::Abandoned { message: error.to_string() },
        }
    }

    /// Gives the run back after delivering what there is of it.
    async fn hand_back(&self, held: Held, reason: &str) -> SlotOutcome {
        let delivery = async { tokio::join!(held.emitter.flushed(), held.usage.deliver()).0 };
        if !self.patiently(delivery).await {
            tracing::warn!("not everything was delivered before the run was given back");
        }
        self.give_back(&held.control, reason).await
    }

    /// A runner that stops waits for a moment only; otherwise the lease is the limit, which has to run out
    /// when the run is not given back.
    async fn give_back(&self, control: &ControlClient, reason: &str) -> SlotOutcome {
        let stopping = |reason| {
            matches!(reason, AbortReason::Shutdown | AbortReason::RunnerGone | AbortReason::LeaseLost)
        };
        let hurried = async {
            self.abort.wait_until(stopping).await;
            sleep(self.timing.release).await;
        };
        tokio::select! {
            biased;
            released = control.release(reason) => if let Err(error) = released {
                tracing::debug!(%error, "the run was not given back; its lease has to run out");
            },
            () = hurried => tracing::debug!("the run was not given back in time; its lease has to run out"),
        }
        SlotOutcome::Released { reason: reason.to_owned() }
    }
}

/// Where the interpreter is on its way.
enum Starting {
    /// It waits, loaded.
    Waiting(Box<Standby>),
    /// It was started beside the claim.
    Begun(AbortOnDropHandle<Result<Standby, PrepareError>>),
    /// It is started when the environment is known.
    Later,
}

async fn start_interpreter(
    node: &NodeRuntime,
    slot: PathBuf,
    environment: &std::collections::BTreeMap<String, String>,
) -> Result<Standby, PrepareError> {
    let failed = |error: String| PrepareError::new(ErrorCode::HostBuildFailed, error);
    let sdk = slot.join("sdk");
    if !sdk.is_dir() {
        write_sdk(&sdk).map_err(|error| failed(format!("cannot write the SDK: {error}")))?;
    }
    let socket =
        HostSocket::bind().map_err(|error| failed(format!("cannot open the host socket: {error}")))?;
    let node = NodeProcess::start(node, &sdk, environment, false).await.map_err(|error| {
        PrepareError::new(ErrorCode::UnsupportedRuntime, error.to_string())
            .with_hint("install Node.js 24, or name an interpreter with --node or TRESTLE_NODE")
    })?;
    Ok(Standby { node, socket })
}

fn outcome(end: RunEnd) -> SlotOutcome {
    match end {
        RunEnd::Failed(RunError { reason: Some(reason), .. }) => SlotOutcome::Aborted { reason },
        RunEnd::Failed(error) => SlotOutcome::Failed { code: error.code },
        RunEnd::Completed(_) => SlotOutcome::Completed,
    }
}

fn aborted(reason: AbortReason) -> RunError {
    let message = match reason {
        AbortReason::CreditExhausted => "the run was ended: no credit is left",
        AbortReason::BudgetExceeded => {
            let message = "the run was ended: its budget is used up";
            let code = ErrorCode::BudgetExceeded.as_str().into();
            return RunError { code, message: message.into(), hint: None, reason: None };
        }
        _ => "the run was cancelled",
    };
    RunError {
        code: ErrorCode::RunAborted.as_str().into(),
        message: message.into(),
        hint: None,
        reason: Some(reason.word().into()),
    }
}

/// Errors are for people and lose their secrets; a return value is for whoever called and keeps its bytes.
fn redacted(emitter: &Emitter, end: RunEnd) -> RunEnd {
    let redactor = emitter.redactor();
    match end {
        RunEnd::Failed(error) => RunEnd::Failed(RunError {
            code: error.code,
            message: redactor.redact_str(&error.message),
            hint: error.hint.map(|hint| redactor.redact_str(&hint)),
            reason: error.reason,
        }),
        completed @ RunEnd::Completed(_) => completed,
    }
}
