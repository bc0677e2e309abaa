//! Runners and pools, seen by people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{EpochMs, Token};
use crate::ids::{PoolId, RunnerId};
use crate::pool::{Arch, Label, Os};
use crate::tolerant::objects;

/// `POST /v1/orgs/{slug}/runners`, request: enrols in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct EnrolRunnerRequest {
    /// Name of the pool; created when it does not exist.
    pub pool: Label,
    /// Machine name.
    pub name: Label,
    /// What the machine offers.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<Os>,
    /// Architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// Version of the runner, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A runner just enrolled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct EnrolledRunner {
    /// The runner.
    pub id: RunnerId,
}

/// `POST /v1/orgs/{slug}/runners`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct EnrolRunnerResponse {
    /// The runner.
    pub runner: EnrolledRunner,
    /// Its standing credential; shown this once.
    pub runner_token: Token,
}

/// `POST /v1/orgs/{slug}/runner-pools/{pool}/registration-tokens`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RegistrationToken {
    /// Single use.
    pub registration_token: Token,
    /// Until when.
    pub expires_at: EpochMs,
}

/// What a runner is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum RunnerStatus {
    /// Waiting for work.
    Idle,
    /// Working.
    Busy,
    /// Finishing, claims nothing.
    Draining,
    /// Not seen for a while.
    Offline,
}

/// One row of the list of runners.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct RunnerRow {
    /// The runner.
    pub id: RunnerId,
    /// Its pool.
    pub pool_id: PoolId,
    /// Machine name.
    pub name: String,
    /// What the machine offers.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Operating system.
    #[serde(default)]
    pub os: Option<Os>,
    /// Architecture.
    #[serde(default)]
    pub arch: Option<Arch>,
    /// What it is doing.
    pub status: RunnerStatus,
    /// When it last polled or sent a heartbeat.
    #[serde(default)]
    pub last_seen_at: Option<EpochMs>,
    /// Version of the runner.
    #[serde(default)]
    pub version: Option<String>,
    /// When it was enrolled.
    pub created_at: EpochMs,
    /// Why it is draining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_reason: Option<String>,
}

/// `GET /v1/orgs/{slug}/runners`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct RunnerList {
    /// By name.
    pub runners: Vec<RunnerRow>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct PoolRow {
    /// The pool.
    pub id: PoolId,
    /// Its name.
    pub name: String,
}

/// `GET /v1/orgs/{slug}/runner-pools`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct PoolList {
    /// By name.
    pub pools: Vec<PoolRow>,
}

objects!(
    EnrolRunnerRequest,
    EnrolledRunner,
    EnrolRunnerResponse,
    RegistrationToken,
    RunnerRow,
    RunnerList,
    PoolRow,
    PoolList
);
