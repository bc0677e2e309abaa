use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use trestle_contract::pool::{
    HeartbeatAction, HeartbeatRequest, LeaseReleaseReason, LeaseReleaseRequest, Phase,
};
use trestle_domain::{BootClock, Clock, WORKER_MARGIN_FLOOR_MS, worker_deadline};
use trestle_sandbox::end_adopted;
use trestle_sandbox::slot::{Assignment, LeaseTerms, SlotOutcome, SlotReport};

use crate::RunnerError;
use crate::capacity::Slot;
use crate::client::{Claimed, PoolClient};
use crate::slot_process::SlotProcess;
use crate::standby::Starter;
use crate::work_directory::{LeaseRecord, WorkDirectory};

/// What every run of this machine shares.
pub(crate) struct Machine {
    pub(crate) client: PoolClient,
    pub(crate) runner_id: String,
    pub(crate) token: SecretString,
    pub(crate) starter: Starter,
    pub(crate) work: WorkDirectory,
    /// Set: claim nothing more.
    pub(crate) drain: CancellationToken,
    /// Set: give the runs back and end.
    pub(crate) stop: CancellationToken,
    /// Set: end every process at once.
    pub(crate) kill: CancellationToken,
}

/// One claimed run on this machine, from the claim to the last removed file.
pub(crate) struct AssignedRun {
    pub(crate) machine: Arc<Machine>,
    pub(crate) claimed: Claimed,
    /// When the claim was sent, on the boot clock: the lease cannot have begun earlier.
    pub(crate) claim_sent_ms: i64,
    pub(crate) slot: Slot,
    pub(crate) standing_by: Option<SlotProcess>,
}

impl AssignedRun {
    /// Executes the run. Nothing of it is left afterwards.
    pub(crate) async fn execute(mut self) {
        let run_id = self.claimed.claim.run_id.clone();
        tracing::info!(%run_id, lease_id = %self.claimed.claim.lease_id, "run_started");
        match self.supervise().await {
            Ok(outcome) => tracing::info!(%run_id, ?outcome, "run_finished"),
            Err(error) => {
                tracing::warn!(%run_id, %error, "run_not_executed");
                self.release(LeaseReleaseReason::Died).await;
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
        process.discard(Duration::ZERO).await;
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
        let byo_providers =
            claim.byo_providers.iter().filter_map(|provider| serde_json::to_value(provider).ok()).collect();
        Ok(Assignment {
            run_id: claim.run_id.to_string(),
            control_plane_url: claim.control_plane.base_url.as_str().to_owned(),
            run_token: claim.control_plane.run_token.expose().to_owned(),
            api_token: Some(claim.control_plane.api_token.expose().to_owned()),
            worker_id: self.machine.runner_id.clone(),
            env: claim.env.clone(),
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
        let timing = self.machine.starter.config.timing.clone();
        let beat_every = timing.heartbeat.min(self.claimed.lease / 6).max(Duration::from_millis(1));
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + beat_every, beat_every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut look = tokio::time::interval(timing.deadline_check);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut deadline = self.deadline(self.claim_sent_ms);
        let mut beating: Option<tokio::task::JoinHandle<Beat>> = None;
        let (machine, handle) = (Arc::clone(&self.machine), process.process.clone());
        let mut outcome = None;
        let mut stopping = false;
        loop {
            tokio::select! {
                report = process.reader.next::<SlotReport>() => match report {
                    Ok(Some(SlotReport::Started)) => drop(permit.take()),
                    Ok(Some(SlotReport::Waiting { waiting })) => self.slot.lend(waiting),
                    Ok(Some(SlotReport::Exited { outcome: ended })) => outcome = Some(ended),
                    Ok(Some(SlotReport::Ready | SlotReport::Accepted)) => {}
                    Ok(None) | Err(_) => {
                        // It closed its socket: it is at its end, or not ours any more.
                        let _ = tokio::time::timeout(timing.grace, handle.wait()).await;
                        return outcome;
                    }
                },
                _ = beat.tick(), if beating.is_none() => beating = Some(self.beat()),
                answer = async { match beating.as_mut() { Some(beating) => beating.await.ok(), None => std::future::pending().await } } => {
                    beating = None;
                    match answer {
                        Some(Beat::Held { sent_ms, drain }) => {
                            deadline = self.deadline(sent_ms);
                            if drain {
                                tracing::info!(run_id = %self.claimed.claim.run_id, "drain_requested");
                                machine.drain.cancel();
                            }
                        }
                        Some(Beat::Lost) => return self.cut_off(process, "assignment_lease_lost").await,
                        Some(Beat::Unknown) | None => {}
                    }
                },
                _ = look.tick() => if BootClock.now_ms() >= deadline {
                    return self.cut_off(process, "assignment_lease_not_renewed").await;
                },
                () = machine.stop.cancelled(), if !stopping => {
                    stopping = true;
                    // It gives the run back by itself; what does not end in time is ended.
                    tokio::select! {
                        ended = handle.terminate(timing.grace) => if let Err(error) = ended {
                            tracing::warn!(%error, "run_process_not_ended");
                        },
                        () = machine.kill.cancelled() => return self.cut_off(process, "killed").await,
                    }
                },
            }
        }
    }

    async fn cut_off(&self, process: &SlotProcess, why: &'static str) -> Option<SlotOutcome> {
        tracing::warn!(run_id = %self.claimed.claim.run_id, "{why}");
        // Whoever has the run now must not meet this process at work: no grace.
        let _ = process.process.kill().await;
        Some(SlotOutcome::LeaseLost)
    }

    fn deadline(&self, sent_ms: i64) -> i64 {
        let length = i64::try_from(self.claimed.lease.as_millis()).unwrap_or(i64::MAX);
        // The floor of the margin is meant for real leases; a test's short lease keeps its tenth.
        worker_deadline(sent_ms, length, WORKER_MARGIN_FLOOR_MS.min(length / 4))
    }

    fn beat(&self) -> tokio::task::JoinHandle<Beat> {
        let machine = Arc::clone(&self.machine);
        let claim = &self.claimed.claim;
        let request = HeartbeatRequest {
            lease_id: claim.lease_id.clone(),
            run_id: claim.run_id.clone(),
            phase: Phase::Running,
        };
        tokio::spawn(async move {
            let sent_ms = BootClock.now_ms();
            match machine.client.heartbeat(&machine.token, &request).await {
                Ok(Some(answer)) => Beat::Held { sent_ms, drain: answer.action == HeartbeatAction::Drain },
                Ok(None) => Beat::Lost,
                Err(error) => {
                    tracing::warn!(run_id = %request.run_id, %error, "heartbeat_failed");
                    Beat::Unknown
                }
            }
        })
    }

    fn lease_record(&self) -> LeaseRecord {
        LeaseRecord {
            lease_id: self.claimed.claim.lease_id.clone(),
            run_id: self.claimed.claim.run_id.clone(),
        }
    }

    async fn release(&self, reason: LeaseReleaseReason) {
        release(&self.machine.client, &self.machine.token, self.lease_record(), reason).await;
    }
}

/// What a heartbeat brought.
enum Beat {
    Held { sent_ms: i64, drain: bool },
    Lost,
    Unknown,
}

/// Gives a run back. A failure costs time only: the lease runs out.
pub(crate) async fn release(
    client: &PoolClient,
    token: &SecretString,
    record: LeaseRecord,
    reason: LeaseReleaseReason,
) {
    let request = LeaseReleaseRequest { lease_id: record.lease_id, run_id: record.run_id, reason };
    match client.release(token, &request).await {
        Ok(()) => tracing::info!(run_id = %request.run_id, ?reason, "run_released"),
        Err(error) => tracing::warn!(run_id = %request.run_id, %error, "run_not_released"),
    }
}
