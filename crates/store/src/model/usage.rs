//! What runs use: compute time and model turns.

use trestle_contract::ids::RunId;

use super::lease::Fence;
use super::run::RunTotals;

/// A compute-time report.
#[derive(Debug, Clone)]
pub struct ComputeUsage {
    /// From the run token.
    pub fence: Fence,
    /// Identifies the report. Of repeats the largest counts; different ones are summed.
    pub identifier: String,
    /// vCPU-seconds since the former report.
    pub seconds: i64,
}

/// Token counts of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TurnTokens {
    /// Input tokens.
    pub input: i64,
    /// Output tokens.
    pub output: i64,
    /// Part of `input` that was read from a cache.
    pub cached_read: i64,
    /// Part of `input` that was written to a cache.
    pub cached_write: i64,
}

/// A token report of a run process.
#[derive(Debug, Clone)]
pub struct TokenReport {
    /// From the run token.
    pub fence: Fence,
    /// Identifies the call. Of repeats the largest numbers hold.
    pub identifier: String,
    /// Model, if told.
    pub model: Option<String>,
    /// Counts.
    pub tokens: TurnTokens,
    /// Whether it counts towards the run's totals: true for models that the run process called
    /// itself, false for brokered turns, which the relay meters.
    pub counted: bool,
    /// Cost in millionths of a US dollar, as far as the model's price is known.
    pub cost_micros: i64,
}

/// The meter row of one brokered turn.
#[derive(Debug, Clone)]
pub struct TurnMeter {
    /// The run. Not fenced: what the provider charged is recorded whoever holds the run.
    pub run: RunId,
    /// Identifies the turn; there is one row per key, and the first one stays.
    pub turn_key: String,
    /// Model that was called, as `provider/model`.
    pub model: String,
    /// Counts.
    pub tokens: TurnTokens,
    /// Cost in millionths of a US dollar.
    pub cost_micros: i64,
    /// True when the counts were not told by the provider.
    pub estimated: bool,
    /// Hash of the request, so that a repeat under the same key can be told from another request.
    pub request_digest: [u8; 32],
    /// The sealed result, kept until the run ends so that a repeat gets it without a second call
    /// of the model. At most 16 MiB.
    pub result: Option<Vec<u8>>,
}

/// A metered turn as a repeat of its request finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTurn {
    /// Hash of the request.
    pub request_digest: [u8; 32],
    /// The sealed result, if it was kept.
    pub result: Option<Vec<u8>>,
    /// The meter row.
    pub row: TurnRow,
}

/// What metering a turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metered {
    /// False when the turn was metered before.
    pub recorded: bool,
    /// The run's totals now.
    pub totals: RunTotals,
}

/// A stored meter row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Turn key or report identifier.
    pub key: String,
    /// Model.
    pub model: Option<String>,
    /// Counts.
    pub tokens: TurnTokens,
    /// Cost in millionths of a US dollar.
    pub cost_micros: i64,
    /// Whether the counts are estimated.
    pub estimated: bool,
    /// Whether it counts towards the run's totals.
    pub counted: bool,
    /// When, ms.
    pub at: i64,
}
