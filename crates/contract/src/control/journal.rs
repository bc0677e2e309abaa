//! The journal and suspension (`docs/protocol/control.md` §12.5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gates::HumanInputGate;
use crate::bounds::Positive;
use crate::ids::WorkerId;
use crate::inference::ChatMessage;
use crate::json::RawJson;
use crate::tolerant::{objects, present};

/// What a journal entry stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum JournalKind {
    /// An `agent()` call.
    Agent,
    /// A step.
    Step,
    /// A gate.
    HumanInput,
    /// A sleep.
    Sleep,
    /// A called workflow.
    WorkflowCall,
}

/// How far a journal entry is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum JournalState {
    /// Waiting.
    Pending,
    /// Parked in the middle.
    Suspended,
    /// Done.
    Resolved,
}

/// `GET journal/{seq}`, response 200; 404 when there is no entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct JournalLookup {
    /// Place in the journal.
    pub seq: Positive,
    /// What it stands for.
    pub kind: JournalKind,
    /// Hash of its arguments.
    pub fingerprint: String,
    /// How far it is.
    pub state: JournalState,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub result: Option<RawJson>,
}

/// `POST journal`, request. Answered 204; an entry that is done stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct JournalPut {
    /// Place in the journal.
    pub seq: Positive,
    /// What it stands for.
    pub kind: JournalKind,
    /// Hash of its arguments.
    pub fingerprint: String,
    /// For people.
    pub label: String,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub result: Option<RawJson>,
}

/// What a suspended run waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum SuspendKind {
    /// A human.
    HumanInput,
    /// A time.
    Sleep,
    /// A called workflow.
    WorkflowCall,
}

/// Token totals of a parked agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct LeafTotals {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

/// A parked agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct LeafCheckpoint {
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Model calls so far.
    pub iteration: u64,
    /// Tokens so far.
    pub totals: LeafTotals,
}

/// `POST suspend`, request. Answered 204.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct SuspendRequest {
    /// What it waits for.
    pub reason: SuspendKind,
    /// Place in the journal.
    pub seq: Positive,
    /// Hash of its arguments.
    pub fingerprint: String,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human_input: Option<HumanInputGate>,
    /// The parked agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf_checkpoint: Option<LeafCheckpoint>,
    /// How long to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Positive>,
    /// The called run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<String>,
    /// Owner of the run lease.
    pub worker_id: WorkerId,
}

objects!(JournalLookup, JournalPut, LeafTotals, LeafCheckpoint, SuspendRequest);
