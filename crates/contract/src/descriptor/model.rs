//! The descriptor as types (`docs/protocol/descriptor.md` §4–§5). Serialising writes the stored form: defaults filled
//! in, keys in the order of the reference. Lengths are UTF-16 units.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::json::RawJson;

/// A valid workflow descriptor with its defaults filled in.
///
/// Read it with [`super::parse_descriptor`] or through [`super::Manifest`]; both check every rule.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Identity of the workflow in its organisation: 1 to 100 letters, digits and hyphens; case counts.
    #[schemars(length(min = 1, max = 100), regex(pattern = r"^[a-zA-Z0-9-]+$"))]
    pub slug: String,
    /// Display label, 1 to 200 units in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub title: Option<String>,
    /// What the workflow is for, at most 1,000 units.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub description: Option<String>,
    /// Program file relative to the package; without it the first existing default counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub entry: Option<String>,
    /// What starts a run; at least one.
    #[schemars(length(min = 1))]
    pub triggers: Vec<Trigger>,
    /// Environment of the program: at most 100 names; a value is literal, or exactly `${{ secrets.NAME }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// What of the workspace outlives a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Whether the desktop of a hosted run is recorded; on when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<bool>,
    /// Upper bounds of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How many runs may be active together.
    #[serde(default)]
    #[schemars(default)]
    pub concurrency: Concurrency,
    /// Where runs execute.
    #[serde(default)]
    #[schemars(default)]
    pub runs_on: RunsOn,
    /// Container image that the run is put into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// What the run may reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Who may start the workflow by hand or by call.
    #[serde(default)]
    #[schemars(default)]
    pub callable_by: CallableBy,
    /// Which hosts the run may connect to; open when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Who is told when a run ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notifications: Option<Vec<Notification>>,
    /// Further files that ship with the package: paths, folders, or globs with `*`, `**`, `?`; 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub files: Option<Vec<String>>,
}

/// What starts a run (`docs/protocol/descriptor.md` §5.1).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// Command line, console, API, and calls of other workflows.
    Manual,
    /// A schedule.
    Cron(CronTrigger),
    /// A delivery to a named endpoint.
    Webhook(WebhookTrigger),
    /// The end of another workflow's run.
    WorkflowRun(WorkflowRunTrigger),
    /// An event of a GitHub repository.
    Github(GithubTrigger),
    /// An event of a Linear issue.
    Linear(IssueTrigger),
    /// An event of a Jira issue.
    Jira(IssueTrigger),
    /// An event of a Notion page.
    Notion(NotionTrigger),
}

impl Trigger {
    /// The `kind` as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Cron(_) => "cron",
            Self::Webhook(_) => "webhook",
            Self::WorkflowRun(_) => "workflow_run",
            Self::Github(_) => "github",
            Self::Linear(_) => "linear",
            Self::Jira(_) => "jira",
            Self::Notion(_) => "notion",
        }
    }
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CronTrigger {
    /// Five fields, or six with seconds first; 1 to 120 units.
    #[schemars(length(min = 1, max = 120))]
    pub expr: String,
    /// Time zone name, 1 to 80 units; UTC when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80))]
    pub timezone: Option<String>,
    /// Input of the runs, a JSON object, kept byte for byte; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub input: Option<RawJson>,
}

/// A webhook endpoint. Several workflows may share a name; all of them run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookTrigger {
    /// Endpoint name: 1 to 100 letters, digits and hyphens.
    #[schemars(length(min = 1, max = 100), regex(pattern = r"^[a-zA-Z0-9-]+$"))]
    pub name: String,
}

/// The end of a run of another workflow of the same organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowRunTrigger {
    /// Slugs of the workflows, 1 to 20.
    #[schemars(length(min = 1, max = 20))]
    pub workflows: Vec<String>,
    /// Which ends count; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub conclusions: Option<Vec<Conclusion>>,
}

/// An event of a GitHub repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GithubTrigger {
    /// Which event.
    pub event: GithubEvent,
    /// Repositories as `owner/name`, 1 to 50; all connected ones when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50))]
    pub repos: Option<Vec<String>>,
}

/// An event of an issue tracker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueTrigger {
    /// Which event.
    pub event: IssueEvent,
}

/// An event of a Notion page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotionTrigger {
    /// Which event.
    pub event: NotionEvent,
}

/// What of the workspace outlives a run (`docs/protocol/descriptor.md` §5.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// Everything, or the listed paths; nothing when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Persist>,
    /// Template of the state's key: one independent state per resolved key; 1 to 200 units.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub key: Option<String>,
}

/// What is kept of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Persist {
    /// Everything (`true`) or nothing (`false`).
    All(bool),
    /// These paths, 1 to 50.
    Paths(#[schemars(length(min = 1, max = 50))] Vec<String>),
}

/// Upper bounds of one run (`docs/protocol/descriptor.md` §5.4).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Model tokens; breached when exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Estimated model cost in US dollars; breached when exceeded.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shortest_number")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_usd: Option<f64>,
    /// Seconds of active computing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_compute_seconds: Option<u64>,
}

/// Writes 5 as `5`, not `5.0`, as every JavaScript reader would.
fn shortest_number<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    const LARGEST_EXACT: f64 = 9_007_199_254_740_991.0;
    match value {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive, below 2^53"
        )]
        Some(number) if number.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(number) => {
            serializer.serialize_u64(*number as u64)
        }
        Some(number) => serializer.serialize_f64(*number),
        None => serializer.serialize_none(),
    }
}

/// How many runs may be active together (`docs/protocol/descriptor.md` §5.5).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Concurrency {
    /// One at a time per lane, first come, first served.
    Serial(Lane),
    /// One at a time per lane; a new run replaces those still waiting.
    LatestWins(Lane),
    /// Any number.
    #[default]
    Unlimited,
}

/// The lane of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Template of the lane's key, 1 to 200 units; one lane for the workflow when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub key: Option<String>,
}

/// Where runs execute (`docs/protocol/descriptor.md` §5.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RunsOn {
    /// A hosted runner of the usual size.
    Hosted(HostedLabel),
    /// A hosted runner with a size.
    HostedSized(HostedRunner),
    /// A runner of one's own.
    SelfHosted(SelfHosted),
}

impl Default for RunsOn {
    fn default() -> Self {
        Self::Hosted(HostedLabel::Linux)
    }
}

/// Labels of hosted runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub enum HostedLabel {
    /// The usual one.
    #[serde(rename = "boardwalk/linux")]
    Linux,
    /// With Node only.
    #[serde(rename = "boardwalk/linux-node")]
    LinuxNode,
    /// With Python only.
    #[serde(rename = "boardwalk/linux-python")]
    LinuxPython,
}

impl HostedLabel {
    /// The label as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "boardwalk/linux",
            Self::LinuxNode => "boardwalk/linux-node",
            Self::LinuxPython => "boardwalk/linux-python",
        }
    }
}

/// A hosted runner with a size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostedRunner {
    /// Which runner.
    pub label: HostedLabel,
    /// How large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<HostedSize>,
}

/// Sizes of hosted runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum HostedSize {
    Small,
    Medium,
    Large,
    Xlarge,
}

/// Runners of one's own: a pool, and labels that the runner must carry, all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename = "self-hosted", deny_unknown_fields)]
#[schemars(rename = "SelfHosted", transform = require_kind)]
pub struct SelfHosted {
    /// Pool name, 1 to 120 units.
    #[serde(default = "default_pool")]
    #[schemars(default = "default_pool", length(min = 1, max = 120))]
    pub pool: String,
    /// Labels of 1 to 120 units each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
}

/// Adds the key that tells a self-hosted placement from a hosted one: the generator does not know tags of structs.
fn require_kind(schema: &mut schemars::Schema) {
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        properties.insert("kind".into(), serde_json::json!({ "type": "string", "const": "self-hosted" }));
    }
    schema.insert("required".into(), serde_json::json!(["kind"]));
}

/// The pool of a self-hosted `runs_on` that names none.
pub(super) fn default_pool() -> String {
    "default".into()
}

/// Container image of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// Image reference, 1 to 512 units.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// What a run may reach (`docs/protocol/descriptor.md` §5.7).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    /// Whether it may mint identity tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_token: Option<IdTokenGrant>,
    /// Its reach to artifacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Grant>,
    /// Its reach to workflows and runs; reading when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Grant>,
    /// The secrets that it may read; no other is readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<SecretGrant>>,
}

/// A readable secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretGrant {
    /// The secret's name, 1 to 120 units.
    #[schemars(length(min = 1, max = 120))]
    pub name: String,
}

/// Who may start a workflow by hand or by call (`docs/protocol/descriptor.md` §5.8).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallableBy {
    /// Members and workflows.
    #[default]
    AnyoneInOrg,
    /// Members.
    UsersOnly,
    /// Workflows.
    WorkflowsOnly,
    /// Members with one of these roles.
    Roles(Vec<CallerRole>),
    /// These workflows, by slug.
    Workflows(Vec<String>),
}

/// Where a run may connect to (`docs/protocol/descriptor.md` §5.9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "level", rename_all = "snake_case", deny_unknown_fields)]
pub enum Egress {
    /// Only to these hosts.
    Custom {
        /// Host patterns of 1 to 256 units; at least one.
        #[schemars(length(min = 1))]
        allow: Vec<String>,
    },
    /// Nowhere.
    None,
    /// Anywhere.
    Full,
}

/// The level of an [`Egress`], without its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressLevel {
    /// Only to listed hosts.
    Custom,
    /// Nowhere.
    None,
    /// Anywhere.
    Full,
}

impl Egress {
    /// The level.
    #[must_use]
    pub fn level(&self) -> EgressLevel {
        match self {
            Self::Custom { .. } => EgressLevel::Custom,
            Self::None => EgressLevel::None,
            Self::Full => EgressLevel::Full,
        }
    }
}

/// A message at the end of a run (`docs/protocol/descriptor.md` §5.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// Which end.
    pub on: NotifyOn,
    /// By which way; `budget_exceeded` goes by email only.
    pub channel: Channel,
    /// Address, 1 to 2,048 units.
    #[schemars(length(min = 1, max = 2048))]
    pub target: String,
    /// Text, at most 10,000 units; not with `budget_exceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10000))]
    pub template: Option<String>,
}

/// A closed list of words: the enum, and the reader of its words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub(super) const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];

            /// The word as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// How a run of another workflow ended.
    Conclusion {
        /// Completed.
        Success = "success",
        /// Failed.
        Failure = "failure",
        /// Cancelled.
        Cancelled = "cancelled",
    }
}

words! {
    /// Events of a GitHub repository.
    GithubEvent {
        /// A pull request was opened or became ready for review.
        PrOpened = "pr.opened",
        /// A pull request was merged.
        PrMerged = "pr.merged",
        /// An issue was opened.
        IssueOpened = "issue.opened",
        /// An issue was commented.
        IssueCommented = "issue.commented",
        /// A check suite completed.
        CiCompleted = "ci.completed",
    }
}

words! {
    /// Events of an issue tracker.
    IssueEvent {
        /// An issue was created.
        Created = "issue.created",
        /// An issue changed its status.
        StatusChanged = "issue.status_changed",
        /// An issue was commented.
        Commented = "issue.commented",
    }
}

words! {
    /// Events of a Notion page.
    NotionEvent {
        /// A page was created.
        PageCreated = "page.created",
        /// A page was updated; rapid edits are merged.
        PageUpdated = "page.updated",
        /// A comment was created.
        CommentCreated = "comment.created",
    }
}

words! {
    /// Reach to identity tokens.
    IdTokenGrant {
        /// None.
        None = "none",
        /// May mint.
        Write = "write",
    }
}

words! {
    /// Reach to a kind of object.
    Grant {
        /// None.
        None = "none",
        /// May read.
        Read = "read",
        /// May read and write.
        Write = "write",
    }
}

words! {
    /// Roles of members.
    CallerRole {
        /// Owner.
        Owner = "owner",
        /// Administrator.
        Admin = "admin",
        /// Member.
        Member = "member",
        /// Viewer.
        Viewer = "viewer",
    }
}

words! {
    /// Which end of a run is told.
    NotifyOn {
        /// Completed.
        Completion = "completion",
        /// Failed.
        Failure = "failure",
        /// Cancelled.
        Cancelled = "cancelled",
        /// Stopped by its budget.
        BudgetExceeded = "budget_exceeded",
    }
}

words! {
    /// By which way a notification goes.
    Channel {
        /// Mail.
        Email = "email",
        /// HTTP.
        Webhook = "webhook",
    }
}

impl HostedLabel {
    pub(super) const WORDS: &'static [(&'static str, Self)] = &[
        ("boardwalk/linux", Self::Linux),
        ("boardwalk/linux-node", Self::LinuxNode),
        ("boardwalk/linux-python", Self::LinuxPython),
    ];
}

impl HostedSize {
    pub(super) const WORDS: &'static [(&'static str, Self)] =
        &[("small", Self::Small), ("medium", Self::Medium), ("large", Self::Large), ("xlarge", Self::Xlarge)];
}
