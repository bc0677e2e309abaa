use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use trestle_contract::pool::{HeartbeatAction, HeartbeatRequest, Phase};
use trestle_domain::{Backoff, BootClock, Clock, WORKER_MARGIN_FLOOR_MS, worker_deadline};

use crate::RunnerError;
use crate::assignment::Machine;
use crate::client::{Beaten, Claimed};

/// A beat that is not answered is followed by the next one after a fifth of the period: what is left of a lease
/// after a long outage must be enough for one that gets through.
const HASTE: u32 = 5;

/// Keeps the assignment lease of one run, and tells when the run may not go on.
pub(crate) struct LeaseKeeper {
    machine: Arc<Machine>,
    request: HeartbeatRequest,
    lease: Duration,
    /// When this machine must have let go of the run, on the clock that also runs in sleep.
    deadline_ms: i64,
    next: Instant,
    /// Beats on their way, each with the time when it was sent.
    beats: JoinSet<(i64, Result<Option<Beaten>, RunnerError>)>,
    failures: Backoff,
    forbidden: bool,
    cancelled_until: Option<Instant>,
    look: tokio::time::Interval,
}

/// So many beats are on their way at most. One that a network swallowed does not hold up the next.
const MOST_BEATS: usize = 6;

/// Why a run may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The control plane gave the run to somebody else.
    Lost,
    /// Nobody answered for so long that it may have.
    NotRenewed,
    /// The runner was removed, or is refused.
    Revoked,
    /// The run was cancelled and its process did not end.
    CancelOverdue,
}

impl LeaseEnd {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lost => "assignment_lease_lost",
            Self::NotRenewed => "assignment_lease_not_renewed",
            Self::Revoked => "runner_revoked",
            Self::CancelOverdue => "cancel_overdue",
        }
    }
}

impl LeaseKeeper {
    /// Keeps the lease that a claim, sent at `claim_sent_ms` of the boot clock, was answered with.
    pub(crate) fn new(machine: Arc<Machine>, claimed: &Claimed, claim_sent_ms: i64) -> Self {
        let timing = &machine.starter.config.timing;
        let mut look = interval(timing.deadline_check);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let ceiling = (timing.heartbeat.min(claimed.lease / 6) / HASTE).min(timing.retry_ceiling);
        let failures = Backoff::new(as_millis(timing.retry_base.min(ceiling)), as_millis(ceiling));
        let mut keeper = Self {
            request: HeartbeatRequest {
                lease_id: claimed.claim.lease_id.clone(),
                run_id: claimed.claim.run_id.clone(),
                phase: Phase::Running,
            },
            lease: claimed.lease,
            deadline_ms: 0,
            next: Instant::now(),
            beats: JoinSet::new(),
            failures,
            forbidden: false,
            cancelled_until: None,
            look,
            machine,
        };
        keeper.held(claim_sent_ms, claimed.lease);
        keeper
    }

    /// Beats until the run may not go on. May be dropped and called again at any time.
    pub(crate) async fn keep(&mut self) -> LeaseEnd {
        loop {
            let overdue = self.cancelled_until;
            tokio::select! {
                () = sleep_until(self.next), if self.beats.len() < MOST_BEATS => self.beat(),
                Some(answer) = self.beats.join_next(), if !self.beats.is_empty() => {
                    // The task of one that was dropped with its runtime, or failed, says nothing.
                    if let Ok((sent_ms, answer)) = answer
                        && let Some(end) = self.heard(sent_ms, answer)
                    {
                        return end;
                    }
                }
                _ = self.look.tick() => if BootClock.now_ms() >= self.deadline_ms {
                    return LeaseEnd::NotRenewed;
                },
                () = async { sleep_until(overdue.unwrap_or_else(Instant::now)).await }, if overdue.is_some() => {
                    return LeaseEnd::CancelOverdue;
                }
            }
        }
    }

    fn beat(&mut self) {
        let (machine, request) = (Arc::clone(&self.machine), self.request.clone());
        let sent_ms = BootClock.now_ms();
        self.beats.spawn(async move { (sent_ms, machine.client.heartbeat(&machine.token, &request).await) });
        self.next = Instant::now() + self.period() / HASTE;
    }

    fn heard(&mut self, sent_ms: i64, answer: Result<Option<Beaten>, RunnerError>) -> Option<LeaseEnd> {
        let run_id = &self.request.run_id;
        match answer {
            Ok(Some(beaten)) => {
                self.held(sent_ms, beaten.lease);
                self.act_on(beaten.action);
                return None;
            }
            Ok(None) => return Some(LeaseEnd::Lost),
            Err(error) => {
                tracing::warn!(%run_id, %error, "heartbeat_failed");
                match error {
                    RunnerError::Refused { status: 401, .. } => return Some(LeaseEnd::Revoked),
                    // Something in between may forbid a call by mistake, but hardly twice in a row.
                    RunnerError::Refused { status: 403, .. } if self.forbidden => {
                        return Some(LeaseEnd::Revoked);
                    }
                    RunnerError::Refused { status: 403, .. } => self.forbidden = true,
                    _ => {}
                }
                let asked = error.retry_after().unwrap_or_default();
                let wait = Duration::from_millis(self.failures.next_ms()).max(asked);
                self.next = Instant::now() + wait.min(self.period());
            }
        }
        None
    }

    /// The lease was granted anew by an answer to what was sent then.
    fn held(&mut self, sent_ms: i64, lease: Duration) {
        self.lease = lease;
        self.beats = JoinSet::new();
        self.failures.reset();
        self.forbidden = false;
        let length = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        // The floor of the margin is meant for real leases; a test's short lease keeps its tenth.
        let deadline = worker_deadline(sent_ms, length, WORKER_MARGIN_FLOOR_MS.min(length / 4));
        self.deadline_ms = self.deadline_ms.max(deadline);
        self.next = Instant::now() + self.period();
    }

    /// Several beats fit into every lease, so that losing one costs nothing.
    fn period(&self) -> Duration {
        self.machine.starter.config.timing.heartbeat.min(self.lease / 6).max(Duration::from_millis(1))
    }

    fn act_on(&mut self, action: HeartbeatAction) {
        match action {
            HeartbeatAction::Continue => {}
            HeartbeatAction::Drain => self.machine.drain_for_control_plane(Some(&self.request.run_id)),
            // The run process learns of it by itself; one that is stuck, or whose program is, is ended.
            HeartbeatAction::Cancel => {
                let grace = self.machine.starter.config.timing.cancel_grace;
                self.cancelled_until.get_or_insert_with(|| Instant::now() + grace);
            }
        }
    }
}

pub(crate) fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
