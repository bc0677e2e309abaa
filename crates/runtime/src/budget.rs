//! What a run has spent, and whether it may go on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use trestle_contract::ErrorCode;
use trestle_contract::control::RunClaimResponse;
use trestle_contract::descriptor::Budget as BudgetLimits;
use trestle_contract::host::{HostErrorBody, UsageDimension, UsageSnapshot};
use trestle_domain::{BudgetCaps, BudgetMeter, MeteredTurn};

use crate::abort::{Abort, AbortReason};
use crate::host::HostFailure;
use crate::watch::UsageMeter;

/// The budget of one run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    caps: BudgetCaps,
    meter: Mutex<BudgetMeter>,
    usage: UsageMeter,
    /// Time of earlier attempts.
    earlier_ms: u64,
    breach: Mutex<Option<HostErrorBody>>,
}

impl Budget {
    /// Starts with what earlier attempts have spent, as the claim tells it.
    pub(crate) fn new(limits: Option<&BudgetLimits>, claim: &RunClaimResponse, usage: UsageMeter) -> Self {
        let (earlier, earlier_ms) = spent_before(claim);
        let caps = limits.map_or_else(BudgetCaps::default, |limits| BudgetCaps {
            max_tokens: limits.max_tokens,
            max_usd: limits.max_usd,
            max_compute_seconds: limits.max_compute_seconds,
        });
        let shared = Shared { caps, meter: Mutex::new(earlier), usage, earlier_ms, breach: Mutex::new(None) };
        Self { shared: Arc::new(shared) }
    }

    /// Counts a model call. The call that passes a limit is delivered; the next park point fails.
    pub(crate) fn record(&self, turn: &MeteredTurn) {
        self.shared.meter.lock().unwrap_or_else(PoisonError::into_inner).record(turn);
    }

    fn seconds(&self) -> u64 {
        self.shared.earlier_ms.saturating_add(self.shared.usage.milliseconds()) / 1_000
    }

    /// Looks at the compute limit while the program runs, because a program that asks for nothing passes no
    /// park point. Ends with the run.
    pub(crate) async fn watch(self, every: Duration, abort: Abort) {
        if self.shared.caps.max_compute_seconds.is_none() {
            return;
        }
        let limits =
            BudgetCaps { max_compute_seconds: self.shared.caps.max_compute_seconds, ..BudgetCaps::default() };
        while self.look(&limits).is_ok() {
            sleep(every).await;
        }
        abort.request(AbortReason::BudgetExceeded);
    }

    /// A park point: refuses to go on past a limit. Once it has, the run fails whatever the program does.
    pub(crate) fn park(&self) -> Result<(), HostFailure> {
        self.look(&self.shared.caps)
    }

    fn look(&self, caps: &BudgetCaps) -> Result<(), HostFailure> {
        let mut known = self.shared.breach.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breach) = &*known {
            return Err(HostFailure(breach.clone()));
        }
        let meter = *self.shared.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(breach) = meter.breach(caps, self.seconds()) else { return Ok(()) };
        let failure = HostFailure::new(ErrorCode::BudgetExceeded, format!("the budget is used up: {breach}"))
            .with_hint("raise the limit under \"budget\" in the descriptor and deploy again");
        *known = Some(failure.0.clone());
        Err(failure)
    }

    /// The limit that was passed at a park point, if one was.
    pub(crate) fn breach(&self) -> Option<HostErrorBody> {
        self.shared.breach.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn snapshot(&self) -> UsageSnapshot {
        let meter = *self.shared.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let caps = &self.shared.caps;
        UsageSnapshot {
            usd: UsageDimension::new(meter.usd(), caps.max_usd),
            tokens: UsageDimension::new(meter.tokens() as f64, caps.max_tokens.map(|cap| cap as f64)),
            compute_seconds: UsageDimension::new(
                self.seconds() as f64,
                caps.max_compute_seconds.map(|cap| cap as f64),
            ),
        }
    }
}

/// What earlier attempts of the run have spent: tokens and cost, and milliseconds of compute. Control planes
/// of the original tell only the counters of the run.
fn spent_before(claim: &RunClaimResponse) -> (BudgetMeter, u64) {
    match claim.usage {
        Some(usage) => (BudgetMeter::starting_at(usage.tokens, usage.usd_micros), usage.compute_ms),
        None => {
            let run = &claim.run;
            let tokens = run.tokens_in.saturating_add(run.tokens_out);
            (BudgetMeter::starting_at(tokens, 0), run.runtime_seconds.saturating_mul(1_000))
        }
    }
}
