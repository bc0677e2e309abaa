use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trestle_contract::pool::{LeaseReleaseReason, LeaseReleaseRequest};
use trestle_contract::{LeaseId, RunId, WorkerId};
use trestle_domain::Backoff;
use trestle_domain::{BootClock, Clock};
use trestle_sandbox::end_adopted;
use trestle_sandbox::slot::{Assignment, LeaseTerms, SlotOutcome, SlotReport};

use crate::capacity::Slot;
use crate::claim_env::program_entries;
use crate::client::{Claimed, PoolClient};
use crate::heartbeat::{LeaseEnd, LeaseKeeper, as_millis};
use crate::slot_process::SlotProcess;
use crate::standby::{Refill, Starter};
use crate::unsent_result::{Sent, UnsentResult};
use crate::work_directory::{LeaseRecord, WorkDirectory};
use crate::{RunnerError, Timing};

/// What every run of this machine shares.
pub(crate) struct Machine {
    pub(crate) client: PoolClient,
    pub(crate) runner_id: String,
    pub(crate) token: SecretString,
    pub(crate) starter: Starter,
    pub(crate) work: WorkDirectory,
    /// Set: claim nothing more.
    pub(crate) drain: CancellationToken,
    /// Whether it was the control plane that asked for the drain.
    pub(crate) drained_from_outside: AtomicBool,
    /// Set: give the runs back and end.
    pub(crate) stop: CancellationToken,
    /// Set: end every process at once.
    pub(crate) kill: CancellationToken,
}

impl Machine {
    /// Claims nothing more because the control plane said so.
    pub(crate) fn drain_for_control_plane(&self, run_id: Option<&RunId>) {
        if !self.drain.is_cancelled() {
            self.drained_from_outside.store(true, Ordering::Relaxed);
            match run_id {
                Some(run_id) => tracing::info!(%run_id, "drain_requested"),
                None => tracing::info!("drain_requested"),
            }
        }
        self.drain.cancel();
    }
}

/// How the execution of a run came out, as far as this machine is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// It was executed, whatever became of it.
    Executed,
    /// It could not be started here.
    NotStarted(String),
}

/// One claimed run on this machine, from the claim to the last removed file.
pub(crate) struct AssignedRun {
    pub(crate) machine: Arc<Machine>,
    pub(crate) claimed: Claimed,
    /// When the claim was sent, on the boot clock: the lease cannot have begun earlier.
    pub(crate) claim_sent_ms: i64,
    pub(crate) slot: Slot,
    pub(crate) standing_by: Option<SlotProcess>,
    /// Has the slot that stood by replaced, when the run is over at the latest.
    pub(crate) refill: Option<Refill>,
}

impl AssignedRun {
    /// Executes the run. Nothing of it is left afterwards.
    pub(crate) async fn execute(mut self) -> RunEnd {
        let run_id = self.claimed.claim.run_id.clone();
        tracing::info!(%run_id, lease_id = %self.claimed.claim.lease_id, "run_started");
        match self.supervise().await {
            Ok(outcome) => {
                tracing::info!(%run_id, ?outcome, "run_finished");
                RunEnd::Executed
            }
            Err(error) => {
                tracing::warn!(%run_id, %error, "run_not_executed");
                self.release(LeaseReleaseReason::Died).await;
                RunEnd::NotStarted(error.to_string())
            }
        }
    }

    async fn supervise(&mut self) -> Result<Option<SlotOutcome>, RunnerError> {
        let _record = self.machine.work.record(&self.lease_record())?;
        let standing_by = self.standing_by.take();
        let prestarted = standing_by.is_some();
        let mut process = match standing_by {
            Some(process) => process,
            None => self.machine.starter.cold().await?,
        };
        let handed_over = match self.assignment(&process) {
            Ok(assignment) => process
                .assign(assignment)
                .await
                .map_err(RunnerError::file("assign a run in", process.directory.path())),
            Err(error) => Err(error),
        };
        // A cold interpreter start holds a permit until the interpreter is up.
        let starts = Arc::clone(&self.machine.starter.starts);
        let mut permit = if prestarted { None } else { starts.acquire_owned().await.ok() };
        let outcome = match handed_over {
            Ok(()) => self.watch(&mut process, &mut permit).await,
            Err(error) => {
                process.discard(self.machine.starter.config.timing.grace).await;
                return Err(error);
            }
        };
        drop(permit);
        let unsent = self.unsent_result(&process, outcome.as_ref());
        process.discard(Duration::ZERO).await;
        if let Some(unsent) = unsent
            && self.send(&unsent).await == Sent::Stored
        {
            tracing::info!(run_id = %self.claimed.claim.run_id, "unsent_result_stored");
            return Ok(outcome);
        }
        if outcome.is_none() {
            end_adopted().await;
            let stopping = self.machine.stop.is_cancelled();
            self.release(if stopping { LeaseReleaseReason::Handback } else { LeaseReleaseReason::Died })
                .await;
        }
        Ok(outcome)
    }

    fn assignment(&self, process: &SlotProcess) -> Result<Assignment, RunnerError> {
        let claim = &self.claimed.claim;
        let config = &self.machine.starter.config;
        let [workspace_dir, tmp_dir, program_root] = process.directory.prepare()?;
        let (env, dropped) = program_entries(&claim.env, &config.forwarded_env);
        if !dropped.is_empty() {
            tracing::warn!(run_id = %claim.run_id, entries = ?dropped, "environment_entries_dropped");
        }
        let byo_providers =
            claim.byo_providers.iter().filter_map(|provider| serde_json::to_value(provider).ok()).collect();
        Ok(Assignment {
            run_id: claim.run_id.to_string(),
            control_plane_url: claim.control_plane.base_url.as_str().to_owned(),
            run_token: claim.control_plane.run_token.expose().to_owned(),
            api_token: Some(claim.control_plane.api_token.expose().to_owned()),
            worker_id: worker_id(&self.machine.runner_id, &claim.lease_id),
            env,
            byo_providers,
            workspace_dir,
            tmp_dir,
            program_root,
            node: self.machine.starter.node.clone(),
            lease: LeaseTerms {
                seconds: config.lease_seconds,
                renew_every_ms: (config.lease_seconds * 1000 / 6).max(1),
            },
        })
    }

    /// Listens to the run process and keeps its lease, until the process has ended.
    async fn watch(
        &mut self,
        process: &mut SlotProcess,
        permit: &mut Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Option<SlotOutcome> {
        let grace = self.machine.starter.config.timing.grace;
        let mut keeper = LeaseKeeper::new(Arc::clone(&self.machine), &self.claimed, self.claim_sent_ms);
        let (machine, handle) = (Arc::clone(&self.machine), process.process.clone());
        let mut outcome = None;
        let mut stopping = false;
        loop {
            tokio::select! {
                report = process.reader.next::<SlotReport>() => match report {
                    Ok(Some(SlotReport::Started)) => drop(permit.take()),
                    Ok(Some(SlotReport::Waiting { waiting })) => self.slot.lend(waiting),
                    Ok(Some(SlotReport::Exited { outcome: ended })) => {
                        if ends_the_lease(&ended) {
                            self.slot.finish();
                            self.refill = None;
                        }
                        outcome = Some(ended);
                    }
                    Ok(Some(SlotReport::Ready | SlotReport::Accepted)) => {}
                    Ok(None) | Err(_) => {
                        // It closed its socket: it is at its end, or not ours any more.
                        let _ = tokio::time::timeout(grace, handle.wait()).await;
                        return outcome;
                    }
                },
                // Something that it started may hold its socket open: its own end counts.
                _ = handle.wait() => return outcome.or(last_word(process, grace).await),
                end = keeper.keep() => return self.cut_off(process, end).await,
                () = machine.stop.cancelled(), if !stopping => {
                    stopping = true;
                    // It gives the run back by itself; what does not end in time is ended.
                    tokio::select! {
                        ended = handle.terminate(grace) => if let Err(error) = ended {
                            tracing::warn!(%error, "run_process_not_ended");
                        },
                        () = machine.kill.cancelled() => {
                            kill(process, "killed").await;
                            return None;
                        }
                    }
                },
            }
        }
    }

    async fn cut_off(&self, process: &SlotProcess, end: LeaseEnd) -> Option<SlotOutcome> {
        if end == LeaseEnd::CancelOverdue {
            tracing::warn!(run_id = %self.claimed.claim.run_id, "cancel_overdue");
            let grace = self.machine.starter.config.timing.grace;
            if let Err(error) = process.process.terminate(grace).await {
                tracing::warn!(%error, "run_process_not_ended");
            }
            // Nobody holds it any more: the control plane writes its end when it is given back.
            return None;
        }
        tracing::warn!(run_id = %self.claimed.claim.run_id, "{}", end.word());
        kill(process, end.word()).await;
        Some(SlotOutcome::LeaseLost)
    }

    /// The end of the run that its process could not have stored, when the process said nothing better.
    fn unsent_result(&self, process: &SlotProcess, outcome: Option<&SlotOutcome>) -> Option<UnsentResult> {
        let claim = &self.claimed.claim;
        matches!(outcome, None | Some(SlotOutcome::Abandoned { .. })).then_some(())?;
        UnsentResult::find(process.directory.path(), claim.control_plane.base_url.as_str(), &claim.run_id)
    }

    /// Sends it in the place of the process. Whether the run is still ours is for the control plane to say.
    async fn send(&self, unsent: &UnsentResult) -> Sent {
        let limit = if self.machine.stop.is_cancelled() {
            self.machine.starter.config.timing.grace
        } else {
            self.claimed.lease
        };
        let deadline = BootClock.now_ms().saturating_add(i64::try_from(limit.as_millis()).unwrap_or(0));
        let token = SecretString::from(self.claimed.claim.control_plane.run_token.expose().to_owned());
        tokio::select! {
            sent = unsent.send(self.machine.client.http(), &token, deadline) => sent,
            () = self.machine.kill.cancelled() => Sent::Unanswered,
        }
    }

    fn lease_record(&self) -> LeaseRecord {
        LeaseRecord {
            lease_id: self.claimed.claim.lease_id.clone(),
            run_id: self.claimed.claim.run_id.clone(),
        }
    }

    async fn release(&self, reason: LeaseReleaseReason) {
        let Machine { client, token, starter, .. } = self.machine.as_ref();
        let timing = &starter.config.timing;
        // Whoever wants an end at once waits for no network: a moment, and the lease runs out.
        let hurry = async {
            self.machine.kill.cancelled().await;
            tokio::time::sleep(timing.grace / 5).await;
        };
        tokio::select! {
            () = release(client, token, timing, self.lease_record(), reason) => {}
            () = hurry => {}
        }
    }
}

/// Whether the control plane counts the run as ended or taken back: its slot may take the next one while the
/// process is cleaned up.
fn ends_the_lease(outcome: &SlotOutcome) -> bool {
    match outcome {
        SlotOutcome::Completed
        | SlotOutcome::Failed { .. }
        | SlotOutcome::Aborted { .. }
        | SlotOutcome::Released { .. }
        | SlotOutcome::ClaimLost
        | SlotOutcome::LeaseLost => true,
        SlotOutcome::Abandoned { .. } => false,
    }
}

/// What a process that is gone had said of its end.
async fn last_word(process: &mut SlotProcess, within: Duration) -> Option<SlotOutcome> {
    let read = async {
        while let Ok(Some(report)) = process.reader.next::<SlotReport>().await {
            if let SlotReport::Exited { outcome } = report {
                return Some(outcome);
            }
        }
        None
    };
    tokio::time::timeout(within, read).await.ok().flatten()
}

/// Whoever has the run now must not meet this process at work: no grace.
async fn kill(process: &SlotProcess, why: &'static str) {
    if let Err(error) = process.process.kill().await {
        tracing::warn!(%error, why, "run_process_not_ended");
    }
}

/// Names this attempt: a process that a former one left behind on this machine never has the same name.
fn worker_id(runner: &str, lease: &LeaseId) -> String {
    let both = format!("{runner}:{lease}");
    if WorkerId::new(both.as_str()).is_ok() { both } else { lease.to_string() }
}

/// Gives a run back. Tried again for as long as one call may take; a failure costs time only: the lease runs out.
pub(crate) async fn release(
    client: &PoolClient,
    token: &SecretString,
    timing: &Timing,
    record: LeaseRecord,
    reason: LeaseReleaseReason,
) {
    let request = LeaseReleaseRequest { lease_id: record.lease_id, run_id: record.run_id, reason };
    let give_up = Instant::now() + timing.call_deadline;
    let mut backoff = Backoff::new(as_millis(timing.retry_base), as_millis(timing.retry_ceiling));
    loop {
        let error = match client.release(token, &request).await {
            Ok(()) => {
                tracing::info!(run_id = %request.run_id, ?reason, "run_released");
                return;
            }
            Err(error) => error,
        };
        let wait = Duration::from_millis(backoff.next_ms()).max(error.retry_after().unwrap_or_default());
        if !error.is_passing() || Instant::now() + wait > give_up {
            tracing::warn!(run_id = %request.run_id, %error, "run_not_released");
            return;
        }
        tokio::time::sleep(wait).await;
    }
}
