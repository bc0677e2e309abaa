//! Metering of turns: exactly one row a turn, and the result beside it where a repeat may ask for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::ExposeSecret as _;
use trestle_contract::ids::RunId;
use trestle_contract::inference::{InferenceError, InferenceFrame, InferenceResult, TokenCounts};
use trestle_models::{CompletedTurn, ModelError, ModelTable, TurnProgress};
use trestle_store::{RelayTurn, Store, StoreResult, TurnMeter, TurnTokens};

use super::resolve::{refusal, refusal_code};
use crate::failure::Failure;
use crate::vault::Vault;

/// Where meter rows and kept results live.
#[async_trait]
pub(super) trait Ledger: Send + Sync {
    /// Writes the row of a turn, once per key.
    async fn meter(&self, turn: TurnMeter) -> StoreResult<()>;
    /// The row of a key, with the result if it was kept.
    async fn find(&self, run: &RunId, key: &str) -> StoreResult<Option<RelayTurn>>;
}

/// The store as a ledger.
pub(super) struct StoreLedger(pub(super) Arc<dyn Store>);

#[async_trait]
impl Ledger for StoreLedger {
    async fn meter(&self, turn: TurnMeter) -> StoreResult<()> {
        self.0.meter_turn(turn).await.map(|_| ())
    }

    async fn find(&self, run: &RunId, key: &str) -> StoreResult<Option<RelayTurn>> {
        self.0.relay_turn(run, key).await
    }
}

/// What every turn is settled with.
pub(super) struct Books {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) vault: Arc<Vault>,
    pub(super) table: ModelTable,
}

/// What is known about a turn before it is answered.
#[derive(Debug, Clone)]
pub(super) struct TurnIdentity {
    pub(super) run: RunId,
    /// The key that a repeat names.
    pub(super) key: Option<String>,
    /// The key of the meter row.
    pub(super) row: String,
    pub(super) digest: [u8; 32],
    pub(super) model: String,
    pub(super) model_ref: String,
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The result's line.
    Result(String),
    /// A failure: as an answer before the stream has begun, and as the last line within it.
    Failed(Failure, String),
}

/// A key for a turn that has none, or whose own key has a row already.
pub(super) fn mint_row_key() -> String {
    format!("relay-{:032x}", rand::random::<u128>())
}

/// The largest result that is kept for a repeat.
const LARGEST_KEPT: usize = 15 * 1024 * 1024;

/// How often a row is tried to be written, and the wait between.
const WRITES: u32 = 3;
const WRITE_WAIT: Duration = Duration::from_millis(200);

impl Books {
    /// Meters a turn that reached its end, and makes its last line.
    pub(super) async fn settle(
        &self,
        identity: &TurnIdentity,
        completed: CompletedTurn,
        progress: &TurnProgress,
    ) -> Outcome {
        let reported = completed.turn.usage;
        let estimated = reported.input_tokens.is_none() || reported.output_tokens.is_none();
        let charged = progress.charged();
        let cost = self.cost(&identity.model, &charged, completed.reported_cost_micros);
        let line = InferenceFrame::Result(Box::new(InferenceResult {
            turn: completed.turn,
            model_ref: identity.model_ref.clone(),
            cost_micros: cost,
            context_tokens: self.table.context_tokens(&identity.model),
        }))
        .to_line();
        let result = identity.key.as_deref().and_then(|key| self.seal(&identity.run, key, &line));
        self.write(identity, &charged, cost.unwrap_or(0), estimated || charged.len() > 1, result).await;
        Outcome::Result(line)
    }

    /// Meters what a failed turn may have cost.
    pub(super) async fn settle_failure(
        &self,
        identity: &TurnIdentity,
        error: &ModelError,
        progress: &TurnProgress,
    ) -> Outcome {
        self.settle_broken(identity, progress).await;
        tracing::info!(run = %identity.run, model = %identity.model_ref, class = ?error.class, status = error.status, attempts = error.attempts, "a model turn failed");
        let message = match error.hint() {
            Some(hint) => format!("{} (hint: {hint})", error.message),
            None => error.message.clone(),
        };
        Outcome::Failed(refusal(error), error_line(refusal_code(error).as_str(), message))
    }

    /// Meters what a turn may have cost that was broken off.
    pub(super) async fn settle_broken(&self, identity: &TurnIdentity, progress: &TurnProgress) {
        let charged = progress.charged();
        if charged.is_empty() {
            return;
        }
        let cost = self.cost(&identity.model, &charged, None);
        self.write(identity, &charged, cost.unwrap_or(0), true, None).await;
    }

    /// What all attempts cost; `last` is what the provider says that the last one did. Nothing when the model has no price.
    fn cost(&self, model: &str, charged: &[TokenCounts], last: Option<u64>) -> Option<u64> {
        let priced = |counts: &[TokenCounts]| {
            counts.iter().map(|counts| self.table.cost_micros(model, counts)).sum::<Option<u64>>()
        };
        match (last, charged.split_last()) {
            (Some(last), Some((_, earlier))) => Some(last.saturating_add(priced(earlier).unwrap_or(0))),
            _ => priced(charged),
        }
    }

    async fn write(
        &self,
        identity: &TurnIdentity,
        charged: &[TokenCounts],
        cost_micros: u64,
        estimated: bool,
        result: Option<Vec<u8>>,
    ) {
        let sum = |count: fn(&TokenCounts) -> Option<u64>| {
            let total = charged.iter().filter_map(count).fold(0_u64, u64::saturating_add);
            i64::try_from(total).unwrap_or(i64::MAX)
        };
        let meter = TurnMeter {
            run: identity.run.clone(),
            turn_key: identity.row.clone(),
            model: identity.model_ref.clone(),
            tokens: TurnTokens {
                input: sum(|counts| counts.input_tokens),
                output: sum(|counts| counts.output_tokens),
                cached_read: sum(|counts| counts.cached_read_tokens),
                cached_write: sum(|counts| counts.cached_write_tokens),
            },
            cost_micros: i64::try_from(cost_micros).unwrap_or(i64::MAX),
            estimated,
            request_digest: identity.digest,
            result,
        };
        for attempt in 1..=WRITES {
            match self.ledger.meter(meter.clone()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(run = %identity.run, row = %identity.row, %error, attempt, "a model turn could not be metered")
                }
            }
            if attempt < WRITES {
                tokio::time::sleep(WRITE_WAIT).await;
            }
        }
    }

    fn seal(&self, run: &RunId, key: &str, line: &str) -> Option<Vec<u8>> {
        if line.len() > LARGEST_KEPT {
            tracing::warn!(%run, bytes = line.len(), "a model's result is too large to be kept for a repeat");
            return None;
        }
        self.vault
            .seal(&place(run, key), line)
            .inspect_err(|error| tracing::error!(%run, %error, "a model's result could not be sealed"))
            .ok()
    }

    /// The kept line of a result.
    pub(super) fn open(&self, run: &RunId, key: &str, sealed: &[u8]) -> Option<String> {
        self.vault
            .open(&place(run, key), sealed)
            .inspect_err(|error| tracing::error!(%run, %error, "a kept result could not be opened"))
            .ok()
            .map(|line| line.expose_secret().to_owned())
    }
}

fn place(run: &RunId, key: &str) -> String {
    format!("relay {run} {key}")
}

/// The last line of a stream that failed.
pub(super) fn error_line(code: &str, message: impl Into<String>) -> String {
    InferenceFrame::Error { error: InferenceError { code: code.to_owned(), message: message.into() } }
        .to_line()
}
