//! Metering and telemetry (`docs/protocol/control.md` §4 and §6).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{NonEmptyString, Positive};
use crate::tolerant::objects;

/// `POST usage`, request: compute time since the last report. Answered 204.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct UsageRequest {
    /// Seconds of one processor.
    pub runtime_seconds: Positive,
    /// Identity of the report; a repeat changes nothing unless it tells more.
    pub identifier: NonEmptyString,
    /// Seconds of this process so far; lets a repeat after a lost answer lose nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_seconds: Option<u64>,
}

/// `POST usage/tokens`, request: tokens of one model call. Answered 204.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct TokenUsageRequest {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Which model, `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Identity of the report; a repeat changes nothing unless it tells more.
    pub identifier: NonEmptyString,
    /// Part of the input that came from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_tokens: Option<u64>,
    /// Part of the input that was written into the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write_tokens: Option<u64>,
    /// True for a turn that the control plane relayed, and so has metered itself; false for one that the run process
    /// made. Run processes of the original do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokered: Option<bool>,
}

/// `POST telemetry`, request: a batch of events. Answered 204.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct TelemetryRequest {
    /// Each element is a JSON document in a string; see [`crate::event::EventFrame::parse_batch_element`].
    pub frames: Vec<String>,
}

objects!(UsageRequest, TokenUsageRequest, TelemetryRequest);
