//! The three transactions of a lease and who may still speak for a run, as pure rules.

use trestle_contract::event::RunStatus;

/// The lease of our own runners, in milliseconds.
pub const CLAIM_LEASE_MS: i64 = 90_000;
/// The lease of the original's runners, which renew every two minutes.
pub const ORIGINAL_LEASE_MS: i64 = 300_000;
/// How long after its own finalize a run token may still deliver telemetry.
pub const TELEMETRY_GRACE_MS: i64 = 60_000;
/// A worker stops at least this long before its lease could have expired.
pub const WORKER_MARGIN_FLOOR_MS: i64 = 5_000;
/// The attempts a run gets without reaching finalize.
pub const MAX_ATTEMPTS: u32 = 3;
/// After so many leases lost in a row a runner is drained.
pub const MAX_LOSSES_IN_A_ROW: u32 = 5;
/// After so many lost attempts of one run a runner is not offered it again.
const MAX_LOSSES_OF_ONE_RUN: u32 = 2;

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimDecision {
    /// Take it: the lease is new.
    Grant,
    /// The same caller asks again because it lost the answer: give the same answer, change
    /// nothing.
    Repeat,
    /// Someone else has it, or it is gone: 409.
    Conflict,
}

/// What the store knows about an assignment when a runner claims it.
#[derive(Clone, Copy, Debug)]
pub struct PoolClaimFacts<'a> {
    /// The status of the run.
    pub status: RunStatus,
    /// The runner that asks.
    pub runner: &'a str,
    /// The runner the assignment is offered to; none when the offer was withdrawn.
    pub offered_to: Option<&'a str>,
    /// The runner that holds the assignment under a live pool lease, if any.
    pub held_by: Option<&'a str>,
    /// Whether a run claim was made with the tokens of that lease.
    pub tokens_used: bool,
}

/// Pool claim: offered → leased. A grant takes the next epoch in the same transaction.
pub fn pool_claim(facts: PoolClaimFacts<'_>) -> ClaimDecision {
    match facts.held_by {
        // Once the tokens were used a second process must not get them.
        Some(holder) if holder == facts.runner && !facts.tokens_used && !facts.status.is_terminal() => {
            ClaimDecision::Repeat
        }
        Some(_) => ClaimDecision::Conflict,
        None if facts.offered_to == Some(facts.runner) && facts.status == RunStatus::Pending => {
            ClaimDecision::Grant
        }
        None => ClaimDecision::Conflict,
    }
}

/// What the store knows about a run when a run process claims it.
#[derive(Clone, Copy, Debug)]
pub struct RunClaimFacts<'a> {
    /// Who may speak for the run.
    pub access: RunAccess,
    /// The caller's worker id.
    pub worker: &'a str,
    /// The worker that made the run claim of the current epoch, if any.
    pub claimed_by: Option<&'a str>,
}

/// Run claim: pending → running, `startedAt` on the first one, the run lease begins.
pub fn run_claim(facts: RunClaimFacts<'_>, now_ms: i64) -> ClaimDecision {
    let access = facts.access;
    if access.token_epoch != access.epoch || access.finalized.is_some() || access.lapsed(now_ms) {
        return ClaimDecision::Conflict;
    }
    match facts.claimed_by {
        Some(worker) if worker == facts.worker && !access.status.is_terminal() => ClaimDecision::Repeat,
        Some(_) => ClaimDecision::Conflict,
        None if access.status == RunStatus::Pending => ClaimDecision::Grant,
        None => ClaimDecision::Conflict,
    }
}

/// Who may speak for a run: the fencing facts that every call is judged by, read in the
/// transaction that the call writes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAccess {
    /// The status of the run.
    pub status: RunStatus,
    /// The epoch of the caller's token.
    pub token_epoch: u64,
    /// The current epoch of the run.
    pub epoch: u64,
    /// The epoch that finalized the run, and when (ms), if one did.
    pub finalized: Option<(u64, i64)>,
    /// When the pool lease of the current epoch ends (ms); none when it is closed.
    pub pool_lease_until: Option<i64>,
    /// When the run lease of the current epoch ends (ms); none before the run claim.
    pub run_lease_until: Option<i64>,
}

impl RunAccess {
    /// Whether a lease of the current epoch has lapsed, also when nobody has swept it yet.
    fn lapsed(&self, now_ms: i64) -> bool {
        self.pool_lease_until.is_none_or(|until| expired(until, now_ms))
            || self.run_lease_until.is_some_and(|until| expired(until, now_ms))
    }
}

/// The kinds of calls a run token makes, as far as fencing tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Anything that reads or changes something on behalf of the run.
    Ordinary,
    /// `POST telemetry`.
    Telemetry,
    /// `POST finalize`.
    Finalize,
    /// `GET cancel`.
    Cancel,
}

/// What becomes of a call with a run token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute it.
    Allow,
    /// The repeat of a finished finalize: answer success, change nothing.
    Repeat,
    /// Answer of `GET cancel`: whether the run process shall stop.
    Cancel(bool),
    /// The token's lease is gone: 409.
    Conflict,
    /// No such token was ever minted: 401.
    Unknown,
}

/// Judges a call by the epoch of its token. A displaced epoch gets 409 for all it tries and
/// hears at `GET cancel` that it shall stop; the epoch that finalized may repeat its finalize
/// and, for a minute, deliver its last telemetry.
pub fn admit(access: &RunAccess, call: Call, now_ms: i64) -> Admission {
    let stop = matches!(access.status, RunStatus::Cancelling | RunStatus::Cancelled);
    if access.token_epoch > access.epoch {
        return Admission::Unknown;
    }
    if let Some((epoch, at_ms)) = access.finalized
        && epoch == access.token_epoch
    {
        let in_grace = now_ms.saturating_sub(at_ms) < TELEMETRY_GRACE_MS;
        return match call {
            Call::Finalize => Admission::Repeat,
            Call::Telemetry if in_grace => Admission::Allow,
            Call::Cancel => Admission::Cancel(stop),
            Call::Telemetry | Call::Ordinary => Admission::Conflict,
        };
    }
    let displaced = access.token_epoch < access.epoch || access.status.is_terminal() || access.lapsed(now_ms);
    match call {
        Call::Cancel => Admission::Cancel(stop || displaced),
        _ if displaced => Admission::Conflict,
        Call::Ordinary | Call::Telemetry | Call::Finalize => Admission::Allow,
    }
}

/// Whether a lease that ends at `until_ms` is over.
pub const fn expired(until_ms: i64, now_ms: i64) -> bool {
    now_ms >= until_ms
}

/// The end of a lease after a renewal at `now_ms`: a full length from now, and never earlier
/// than it was (answers may overtake each other).
pub fn renewed_until(until_ms: i64, length_ms: i64, now_ms: i64) -> i64 {
    until_ms.max(now_ms.saturating_add(length_ms))
}

/// The end of a live lease after the server was away: a full length from its start, because
/// no holder could renew while it was down.
pub fn boot_extension(until_ms: i64, length_ms: i64, boot_ms: i64) -> i64 {
    renewed_until(until_ms, length_ms, boot_ms)
}

/// When a worker must have stopped, on its own clock: `sent_ms` is the instant before the
/// request that was answered with a lease of `length_ms`. The margin is the larger of
/// `floor_ms` (5 s in production) and a tenth of the lease, and at most half of it.
pub fn worker_deadline(sent_ms: i64, length_ms: i64, floor_ms: i64) -> i64 {
    let length_ms = length_ms.max(0);
    let margin = floor_ms.max(length_ms / 10).min(length_ms / 2);
    sent_ms.saturating_add(length_ms - margin)
}

/// What becomes of a run whose attempt ended without finalize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOutcome {
    /// It is offered again as this attempt.
    Requeue {
        /// The number of the next attempt, from 1.
        attempt: u32,
    },
    /// It has used up its attempts: `failed` with `CRASHED`.
    Crash,
}

/// Counts a lost attempt (the first attempt is 1).
pub const fn after_loss(lost_attempt: u32) -> LossOutcome {
    if lost_attempt >= MAX_ATTEMPTS {
        LossOutcome::Crash
    } else {
        LossOutcome::Requeue { attempt: lost_attempt + 1 }
    }
}

/// Whether a runner may be offered a run of which it has lost `losses` attempts. A runner on
/// which a run keeps dying leaves it to the others, as long as there are any.
pub const fn may_offer(losses: u32, other_live_runner_in_pool: bool) -> bool {
    losses < MAX_LOSSES_OF_ONE_RUN || !other_live_runner_in_pool
}

/// Whether a runner that lost so many leases in a row, with no finalize between, is drained.
pub const fn must_drain(losses_in_a_row: u32) -> bool {
    losses_in_a_row >= MAX_LOSSES_IN_A_ROW
}

#[cfg(test)]
mod tests;
