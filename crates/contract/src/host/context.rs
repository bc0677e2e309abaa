//! `bootstrap`: what a program learns about its run (`docs/protocol/host.md` §4.1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{BoundedString, Count, EpochMs, NonEmptyString, Positive};
use crate::control::{RunActor, RunTriggerRequest};
use crate::json::{RawJson, RawObject};
use crate::tolerant::{nullable, objects, present};

/// `bootstrap`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BootstrapResult {
    /// What the trigger brought, byte for byte; `null` when nothing.
    pub input: RawJson,
    /// Derived schema of the input; `null` for an untyped workflow.
    #[serde(deserialize_with = "nullable")]
    pub input_schema: Option<RawObject>,
    /// About the run.
    pub context: Context,
}

/// About the run. The set of keys is exactly that of SDK 0.3.12: its client refuses more and fewer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Context {
    /// The run.
    pub run_id: NonEmptyString,
    /// Its workflow.
    pub workflow_id: NonEmptyString,
    /// Sequential number of the deployed version.
    pub workflow_version: Positive,
    /// Its organisation.
    pub org_id: NonEmptyString,
    /// Its environment; `null` is the organisation's base.
    #[serde(deserialize_with = "nullable")]
    pub environment: Option<ContextEnvironment>,
    /// Who started it.
    pub actor: Actor,
    /// Which try this is, from 1.
    pub attempt: Positive,
    /// How it arrived.
    pub trigger: Trigger,
    /// Absolute path of the workspace, the program's working directory.
    pub workspace_dir: NonEmptyString,
}

/// An environment, by id and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ContextEnvironment {
    /// Its id.
    pub id: NonEmptyString,
    /// Its name.
    pub name: NonEmptyString,
}

/// Who started a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum Actor {
    /// A person.
    User {
        /// The person.
        user_id: NonEmptyString,
    },
    /// A run that called this workflow.
    Workflow {
        /// The calling run.
        parent_run_id: NonEmptyString,
        /// Its workflow.
        parent_workflow_id: NonEmptyString,
        /// The synthetic principal `workflow:<workflow id>`, never a person.
        user_id: NonEmptyString,
    },
    /// A webhook.
    Webhook {
        /// Its name.
        source: NonEmptyString,
    },
    /// A schedule.
    Cron {
        /// Its rule.
        rule: NonEmptyString,
    },
    /// The end of another run.
    Event {
        /// The subscription.
        subscription_id: NonEmptyString,
        /// The run that ended.
        source_run_id: NonEmptyString,
        /// Its workflow.
        source_workflow_id: NonEmptyString,
        /// What happened to it.
        event_type: NonEmptyString,
        /// How many such links led here.
        event_chain_depth: Count,
    },
}

impl Actor {
    /// The `source` of the trigger that goes with this actor.
    pub fn trigger_source(&self) -> Option<&NonEmptyString> {
        match self {
            Self::Cron { rule } => Some(rule),
            Self::Webhook { source } => Some(source),
            Self::Event { subscription_id, .. } => Some(subscription_id),
            Self::User { .. } | Self::Workflow { .. } => None,
        }
    }
}

impl From<&RunActor> for Actor {
    /// Empty texts, which the program's side would refuse, become `-`.
    fn from(actor: &RunActor) -> Self {
        let text = |text: &String| NonEmptyString::saturating(text.as_str());
        match actor {
            RunActor::User { user_id } => Self::User { user_id: text(user_id) },
            RunActor::Workflow { parent_run_id, parent_workflow_id, user_id } => Self::Workflow {
                parent_run_id: text(parent_run_id),
                parent_workflow_id: text(parent_workflow_id),
                user_id: text(user_id),
            },
            RunActor::Webhook { source } => Self::Webhook { source: text(source) },
            RunActor::Cron { rule } => Self::Cron { rule: text(rule) },
            RunActor::Event {
                subscription_id,
                source_run_id,
                source_workflow_id,
                event_type,
                event_chain_depth,
            } => Self::Event {
                subscription_id: text(subscription_id),
                source_run_id: text(source_run_id),
                source_workflow_id: text(source_workflow_id),
                event_type: text(event_type),
                event_chain_depth: Count::saturating(*event_chain_depth),
            },
        }
    }
}

/// How a run arrived: its transport only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum TriggerKind {
    /// A schedule.
    Cron,
    /// A webhook.
    Webhook,
    /// Anything else, calls and subscriptions included.
    Manual,
}

impl TriggerKind {
    /// Reads the control plane's text; unknown kinds are shown as manual.
    pub fn from_wire(text: &str) -> Self {
        match text {
            "cron" => Self::Cron,
            "webhook" => Self::Webhook,
            _ => Self::Manual,
        }
    }
}

/// How a run arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Trigger {
    /// Transport.
    pub kind: TriggerKind,
    /// When the run was created.
    pub fired_at: EpochMs,
    /// Rule, webhook or subscription.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub source: Option<NonEmptyString>,
    /// The webhook's request. Only for SDKs that know it, see [`sdk_knows_trigger_request`].
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub request: Option<TriggerRequest>,
}

/// The HTTP request behind a webhook run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct TriggerRequest {
    /// Method, 1 to 16 UTF-16 code units.
    pub method: BoundedString<1, 16>,
    /// Path, at most 2048 UTF-16 code units.
    pub path: BoundedString<0, 2048>,
    /// Query, as sent.
    pub query: BTreeMap<String, String>,
    /// Headers without credentials, names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl TriggerRequest {
    /// Takes over a request, when it fits: a program would die of one that does not.
    pub fn from_run(request: RunTriggerRequest) -> Option<Self> {
        Some(Self {
            method: BoundedString::new(request.method).ok()?,
            path: BoundedString::new(request.path).ok()?,
            query: request.query,
            headers: request.headers,
        })
    }
}

/// The first SDK whose client accepts `trigger.request`.
const FIRST_WITH_TRIGGER_REQUEST: [u64; 3] = [0, 3, 12];

/// Whether the SDK that a program was built against accepts `trigger.request`. A range (`^0.3.12`) counts as its lower
/// bound; what is no version (`*`, `latest`, a path) counts as the newest, since we provide the SDK ourselves.
pub fn sdk_knows_trigger_request(sdk_version: &str) -> bool {
    match version_numbers(sdk_version) {
        Some(version) => version >= FIRST_WITH_TRIGGER_REQUEST,
        None => true,
    }
}

fn version_numbers(text: &str) -> Option<[u64; 3]> {
    let text = text.trim().trim_start_matches(['^', '~', '=', '>', 'v', ' ']);
    let core = text.split(['-', '+', ' ']).next()?;
    let mut parts = core.split('.');
    let mut next = || match parts.next() {
        None => Some(0),
        Some("x" | "X" | "*") => Some(0),
        Some(part) => part.parse::<u64>().ok(),
    };
    if core.is_empty() || core.starts_with(['x', 'X', '*']) {
        return None;
    }
    Some([next()?, next()?, next()?])
}

impl Trigger {
    /// The same trigger as a program of this SDK version accepts it.
    #[must_use]
    pub fn for_sdk(mut self, sdk_version: &str) -> Self {
        if self.kind != TriggerKind::Webhook || !sdk_knows_trigger_request(sdk_version) {
            self.request = None;
        }
        self
    }
}

objects!(BootstrapResult, Context, ContextEnvironment, Actor, Trigger, TriggerRequest);
