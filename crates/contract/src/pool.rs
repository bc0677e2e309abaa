//! The pool protocol: enrolment, poll, claim, heartbeat, deregister (`docs/protocol/pool.md`).
//!
//! Every object is closed in both directions. "Optional" keys may be absent and are never `null`; nullable keys
//! are always present.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::bounds::{BoundedInt, BoundedString, EpochMs, Token};
use crate::ids::{AssignmentId, EnvironmentId, LeaseId, OrgId, RunId, RunnerId, WorkflowId};
use crate::tolerant::{nullable, objects, present};

mod granted;

pub use granted::{GrantedClaim, PersistenceScope};

/// The revision of the pool protocol that this crate describes.
pub const CONTRACT_VERSION: u64 = 1;
/// The most labels that a runner may register with.
pub const MAX_LABELS: usize = 32;

/// A label, a display name or a pool name: 1 to 120 UTF-16 code units.
pub type Label = BoundedString<1, 120>;
/// A version text, for display: 1 to 64 UTF-16 code units.
pub type VersionText = BoundedString<1, 64>;

/// An absolute URL, by the rules of the WHATWG parser. The text is kept as it was written, without blanks around it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct AbsoluteUrl(String);

impl AbsoluteUrl {
    /// Checks a text.
    ///
    /// # Errors
    /// The parser's error when the text is no absolute URL.
    pub fn new(text: impl AsRef<str>) -> Result<Self, url::ParseError> {
        let text = text.as_ref().trim();
        url::Url::parse(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AbsoluteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for AbsoluteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AbsoluteUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for AbsoluteUrl {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "AbsoluteUrl".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uri" })
    }
}

/// Operating system of a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

/// Processor architecture of a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// 64-bit x86.
    X64,
    /// 64-bit ARM.
    Arm64,
}

/// `POST /runner/v1/register`, request. The token in the body is the credential; it names the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct RegisterRequest {
    /// Single-use registration token.
    pub registration_token: Token,
    /// Machine name, for display.
    pub name: Label,
    /// What the machine offers; at most [`MAX_LABELS`].
    #[serde(default, deserialize_with = "labels")]
    #[schemars(length(max = 32))]
    pub labels: Vec<Label>,
    /// Operating system; absent when it is none of the known ones.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub os: Option<Os>,
    /// Architecture; absent when it is none of the known ones.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub arch: Option<Arch>,
    /// Version of the runner, for display.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub runner_version: Option<VersionText>,
}

fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Label>, D::Error> {
    let labels = Vec::<Label>::deserialize(deserializer)?;
    if labels.len() > MAX_LABELS {
        return Err(de::Error::invalid_length(labels.len(), &"at most 32 labels"));
    }
    Ok(labels)
}

/// `POST /runner/v1/register`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct RegisterResponse {
    /// The new runner.
    pub runner_id: RunnerId,
    /// Pool of the token.
    pub pool: Label,
    /// Standing credential of the runner; shown this once.
    pub runner_token: Token,
    /// Where and how often to poll; informational.
    pub poll: PollHint,
}

/// Where and how often a runner is expected to poll. Clients build the URL from their own base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct PollHint {
    /// Absolute URL of the poll endpoint.
    pub url: AbsoluteUrl,
    /// Suggested pause, 1 to 300 seconds.
    pub interval_seconds: BoundedInt<1, 300>,
}

/// What a runner declares on every poll and every claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Declaration {
    /// Revision of the protocol that the runner speaks.
    pub contract_version: BoundedInt<1, { crate::bounds::MAX_SAFE_INTEGER }>,
    /// Version of the runner, for display; nothing is decided by it.
    pub runner_version: VersionText,
}

impl Declaration {
    /// The declaration of a runner that speaks [`CONTRACT_VERSION`].
    ///
    /// # Errors
    /// When the version text is empty or longer than 64 code units.
    pub fn of_runner(runner_version: &str) -> Result<Self, crate::bounds::RangeError> {
        Ok(Self {
            contract_version: BoundedInt::saturating(CONTRACT_VERSION),
            runner_version: VersionText::new(runner_version)?,
        })
    }

    /// Reads a body. Runners of before the declaration sent `{}`, which reads as `None`: it is to be refused as too
    /// old (403), not as malformed (400).
    ///
    /// # Errors
    /// The error of `serde_json` for every other body.
    pub fn from_body(body: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        if serde_json::from_slice::<DeregisterRequest>(body).is_ok() {
            return Ok(None);
        }
        serde_json::from_slice(body).map(Some)
    }
}

/// `POST /runner/v1/pool/poll`, request.
pub type PollRequest = Declaration;
/// `POST /runner/v1/pool/assignments/{assignment_id}/claim`, request.
pub type ClaimRequest = Declaration;

/// `POST /runner/v1/pool/poll`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct PollResponse {
    /// At most one offer; `null` when nothing matched while the poll was held.
    #[serde(deserialize_with = "nullable")]
    pub assignment: Option<Offer>,
    /// Tells the runner to end. An offer beside it is to be ignored.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub action: Option<PollAction>,
}

/// What a poll may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PollAction {
    /// Stop claiming and end.
    Drain,
}

/// A run offered to a pool. Carries no credential; several runners may see the same offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Offer {
    /// What to claim.
    pub assignment_id: AssignmentId,
    /// The run.
    pub run_id: RunId,
    /// Its organisation.
    pub org_id: OrgId,
    /// Where it wants to run.
    pub runs_on: RunsOn,
    /// When it was queued.
    pub queued_at: EpochMs,
}

/// Where a run wants to run: a pool of one's own machines, or a plain hosted label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RunsOn {
    /// A hosted label, such as `boardwalk/linux`.
    Hosted(Label),
    /// A pool and the labels that the runner must have.
    SelfHosted(SelfHosted),
}

/// The object form of [`RunsOn`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SelfHosted {
    /// Always `self-hosted`.
    pub kind: SelfHostedKind,
    /// Name of the pool.
    pub pool: Label,
    /// Labels that a runner must all have.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub labels: Option<Vec<Label>>,
}

/// The one value of the discriminator of [`SelfHosted`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
pub enum SelfHostedKind {
    /// A pool of one's own machines.
    #[serde(rename = "self-hosted")]
    SelfHosted,
}

/// `POST /runner/v1/pool/assignments/{assignment_id}/claim`, response 200. The only payload of this protocol that
/// carries credentials of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ClaimResponse {
    /// The lease now held.
    pub lease_id: LeaseId,
    /// The run.
    pub run_id: RunId,
    /// Part one of the persistence scope.
    pub workflow_id: WorkflowId,
    /// Part two of the persistence scope; `null` is the base scope.
    #[serde(deserialize_with = "nullable")]
    pub environment_id: Option<EnvironmentId>,
    /// Part three of the persistence scope, the resolved `workspace.key`. Unbounded: never use it as a path unchecked.
    #[serde(deserialize_with = "nullable")]
    pub workspace_key: Option<String>,
    /// First expiry of the assignment lease.
    pub lease_expires_at: EpochMs,
    /// How the run process reaches the control plane.
    pub control_plane: ControlPlane,
    /// Resolved environment of the run. Never holds secrets.
    pub env: BTreeMap<String, String>,
    /// Model providers that the run process may call itself.
    pub byo_providers: Vec<ByoProvider>,
}

/// How a run process reaches the control plane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ControlPlane {
    /// Origin to which `/runner/v1/runs/{run_id}/…` is appended.
    pub base_url: AbsoluteUrl,
    /// Credential for the runner control API of this run.
    pub run_token: Token,
    /// Credential for the public API, limited to the run's permissions.
    pub api_token: Token,
}

/// A model provider whose key is a secret of the organisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ByoProvider {
    /// Name that `agent({provider})` uses.
    pub name: BoundedString<1, 120>,
    /// Kind of adapter, such as `openai_compatible` or `anthropic`.
    pub source: BoundedString<1, 64>,
    /// Base URL; `null` for adapters that need none.
    #[serde(deserialize_with = "nullable")]
    pub base_url: Option<String>,
    /// NAME of the secret with the key; `null` for keyless providers.
    #[serde(deserialize_with = "nullable")]
    pub auth_secret_name: Option<String>,
}

/// `POST /runner/v1/pool/heartbeat`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HeartbeatRequest {
    /// The lease to keep.
    pub lease_id: LeaseId,
    /// Its run.
    pub run_id: RunId,
    /// How far the run is.
    pub phase: Phase,
}

/// How far a run is, seen from its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Fetching and placing the program.
    Preparing,
    /// The program runs.
    Running,
    /// The program ended; results are being written.
    Finalizing,
}

/// `POST /runner/v1/pool/heartbeat`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HeartbeatResponse {
    /// New expiry of the lease.
    pub lease_expires_at: EpochMs,
    /// What the runner should do.
    pub action: HeartbeatAction,
}

/// What a heartbeat may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum HeartbeatAction {
    /// Go on.
    Continue,
    /// The run is to be cancelled. The run process learns it by itself too.
    Cancel,
    /// Claim nothing after this run.
    Drain,
}

/// `POST /runner/v1/pool/deregister`, request: an empty object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct DeregisterRequest {}

/// `POST /runner/v1/pool/release`, request: the run's process is gone, or the runner gives the run back. Answered 204.
/// An addition of ours; other runners do not know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct LeaseReleaseRequest {
    /// The lease.
    pub lease_id: LeaseId,
    /// Its run.
    pub run_id: RunId,
    /// Why.
    pub reason: LeaseReleaseReason,
}

/// Why a lease is given back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum LeaseReleaseReason {
    /// The run's process died; the attempt counts as lost.
    Died,
    /// On purpose; the attempt does not count.
    Handback,
}

objects!(
    RegisterRequest,
    RegisterResponse,
    PollHint,
    Declaration,
    PollResponse,
    Offer,
    SelfHosted,
    ClaimResponse,
    ControlPlane,
    ByoProvider,
    HeartbeatRequest,
    HeartbeatResponse,
    DeregisterRequest,
    LeaseReleaseRequest
);
