//! The queue, offers and leases.

use trestle_contract::ids::{AssignmentId, LeaseId, RunId, RunnerId};
use trestle_contract::json::RawJson;

use super::run::RunRow;

/// Proof of a session: the run and the epoch that its token carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The run.
    pub run: RunId,
    /// The fencing token that the session's run token carries.
    pub epoch: u64,
}

/// An offer made to a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The runner it was made to.
    pub runner: RunnerId,
    /// The assignment to claim.
    pub assignment: AssignmentId,
    /// The run.
    pub run: RunId,
    /// Organisation of the run.
    pub organisation: String,
    /// `runs_on` as the offer shows it.
    pub runs_on: RawJson,
    /// Since when it waits, ms.
    pub queued_at: i64,
}

/// A runner's claim of an assignment.
#[derive(Debug, Clone)]
pub struct AssignmentClaim {
    /// The claiming runner.
    pub runner: RunnerId,
    /// The assignment.
    pub assignment: AssignmentId,
    /// Length of the assignment lease, ms.
    pub lease_ms: i64,
}

/// A claimed assignment.
#[derive(Debug, Clone)]
pub struct ClaimedAssignment {
    /// The lease.
    pub lease: LeaseId,
    /// The run as it is now; `run.epoch` is the epoch to mint tokens with.
    pub run: RunRow,
    /// End of the lease, ms.
    pub lease_expires_at: i64,
    /// True when this runner had claimed it before: the same lease again.
    pub repeated: bool,
}

/// A run process's claim of its run.
#[derive(Debug, Clone)]
pub struct RunClaim {
    /// From the run token.
    pub fence: Fence,
    /// For display.
    pub worker: String,
    /// Nonce of the run process. A repeat is the same claim only with the same nonce; a process
    /// without one (the original's) is known by its epoch alone.
    pub session: Option<String>,
    /// Length of the run lease, ms.
    pub lease_ms: i64,
    /// Whether this process sends its telemetry batches one after the other. The order of another's
    /// batches is restored by holding readers back at gaps.
    pub ordered_telemetry: bool,
}

/// A claimed run.
#[derive(Debug, Clone)]
pub struct ClaimedRun {
    /// The run as it is now.
    pub run: RunRow,
    /// End of the run lease, ms.
    pub lease_until: i64,
    /// Highest stored cursor of the run.
    pub last_event_cursor: u64,
    /// True when this session had claimed before.
    pub repeated: bool,
}

/// Whether a lease counts as a used slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// It uses a slot.
    Active,
    /// Its run only waits for children: its slot is lent.
    Lent,
    /// Its run is parked.
    Parked,
}

/// A runner's beat.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The runner.
    pub runner: RunnerId,
    /// The lease.
    pub lease: LeaseId,
    /// The run that the lease is for.
    pub run: RunId,
    /// Length of the renewed lease, ms; never shortens it.
    pub lease_ms: i64,
}

/// Answer to a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// The new end of the lease, ms.
    pub lease_expires_at: i64,
    /// Whether the run is to be cancelled.
    pub cancel: bool,
    /// Whether the runner is to stop claiming.
    pub drain: bool,
}

/// Who gives a run back without finalizing it.
#[derive(Debug, Clone)]
pub enum Releaser {
    /// The run process (or whoever holds its token).
    Session(Fence),
    /// The runner that holds the assignment lease.
    Runner {
        /// The runner.
        runner: RunnerId,
        /// Its lease.
        lease: LeaseId,
    },
}

/// Why a run is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// Its process died. Counts towards the three lost attempts.
    Died,
    /// It was handed back on purpose (drain, shutdown). Starts over without counting as lost.
    Handback,
}

/// What became of a run that was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakenBack {
    /// It waits for a runner again.
    Requeued,
    /// It was `cancelling` and is `cancelled`.
    Cancelled,
    /// It was lost three times and has `failed` with `CRASHED`.
    Crashed,
    /// It had ended before; only the lease was closed.
    AlreadyEnded,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Runs taken back and what became of them.
    pub taken_back: Vec<(RunId, TakenBack)>,
    /// Runners that were told to drain because they lost too many leases in a row.
    pub drained: Vec<RunnerId>,
    /// When the next lease lapses, ms; `None` when there is none.
    pub next_expiry: Option<i64>,
}

/// What a session is told about cancelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelState {
    /// True when the run is `cancelling` or `cancelled`, or this epoch is displaced.
    pub requested: bool,
}
