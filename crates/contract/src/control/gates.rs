//! Gates: waits for a human (`docs/protocol/control.md` §12.1 and §12.2).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{EpochMs, NonEmptyString, Positive};
use crate::json::RawJson;
use crate::tolerant::objects;

/// A question to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct HumanInputGate {
    /// Key of the gate.
    pub key: NonEmptyString,
    /// The question.
    pub prompt: String,
    /// Form of the answer; absent and invalid ones mean free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_spec: Option<RawJson>,
    /// Who may answer: `role:…`, `user:…`; absent for anyone allowed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignees: Option<Vec<String>>,
    /// When it gives up waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<EpochMs>,
    /// What then: `"fail"` or `{"value": …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<RawJson>,
}

/// `POST inputs`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct InputRequest {
    /// Counter of waits of this process.
    pub seq: Positive,
    /// The question.
    pub human_input: HumanInputGate,
}

/// `POST inputs`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(remote = "Self")]
pub struct InputRegistered {
    /// Whether it is new.
    pub registered: bool,
}

/// `GET inputs/{seq}`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct GateAnswers {
    /// Answer by key, of those answered.
    pub answers: BTreeMap<String, RawJson>,
}

objects!(HumanInputGate, InputRequest, InputRegistered, GateAnswers);
