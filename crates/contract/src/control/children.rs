//! Called workflows and schedules (`docs/protocol/control.md` §11).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::RunStatus;
use crate::ids::{RunId, ScheduleId, Slug};
use crate::json::RawJson;
use crate::tolerant::{absent_or_null, null_default, objects};

/// How a child relates to the run that starts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum ChildMode {
    /// The parent waits for it, and it is cancelled with the parent.
    #[default]
    Call,
    /// It lives on its own.
    Run,
}

/// `POST children`, request. Answered 201 when the child is new, 200 when it was there already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ChildRequest {
    /// The workflow to start.
    pub slug: Slug,
    /// Its input.
    #[serde(default)]
    pub input: RawJson,
    /// How many calls with the same slug and input this process made before.
    #[serde(default, deserialize_with = "null_default")]
    pub ordinal: u64,
    /// The author's key; takes the place of input and ordinal in the child's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How the child relates to this run; `call` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ChildMode>,
}

/// `POST children`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ChildResponse {
    /// The child.
    pub child_run_id: RunId,
    /// Its status.
    pub status: RunStatus,
    /// Its output so far.
    #[serde(default)]
    pub output: RawJson,
    /// Output schema of the called version; `null` when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent_or_null")]
    pub output_schema: Option<Option<RawJson>>,
}

/// `GET children/{id}`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct ChildStatus {
    /// The child.
    pub id: RunId,
    /// Its status.
    pub status: RunStatus,
    /// Its output: the return value, or `{"error": …}` when it failed.
    #[serde(default)]
    pub output: RawJson,
    /// Output schema of the called version; `null` when it has none.
    #[serde(
        rename = "outputSchema",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "absent_or_null"
    )]
    pub output_schema: Option<Option<RawJson>>,
}

/// A point in time: ISO 8601, or milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged)]
pub enum ScheduleTime {
    /// ISO 8601.
    Text(String),
    /// Milliseconds since the epoch.
    Milliseconds(u64),
}

/// `POST schedules`, request. Exactly one of `cron`, `rate`, `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ScheduleRequest {
    /// The workflow to start.
    pub slug: Slug,
    /// Its input.
    #[serde(default)]
    pub input: RawJson,
    /// Cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// `<n> <unit>`, such as `5 minutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Once, at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<ScheduleTime>,
    /// IANA zone of the cron expression; UTC when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The author's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// `POST schedules`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ScheduleCreated {
    /// The schedule.
    pub schedule_id: ScheduleId,
}

objects!(ChildRequest, ChildResponse, ChildStatus, ScheduleRequest, ScheduleCreated);
