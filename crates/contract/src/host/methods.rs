//! Parameters and results of every method (`docs/protocol/host.md` §4 to §8).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::options::{AgentOpts, HumanInputOpts, HumanInputResult};
use crate::bounds::NonEmptyString;
use crate::json::{RawJson, RawObject};
use crate::tolerant::{nullable, objects, present};

macro_rules! methods {
    ($( $(#[doc = $doc:literal])+ $name:ident = $text:literal; )+) => {
        /// Every method that a program may call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $( $(#[doc = $doc])+ $name, )+ }

        impl Method {
            /// Every method.
            pub const ALL: &'static [Method] = &[$(Method::$name),+];

            /// As written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// Reads a name.
            pub fn from_name(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

methods! {
    /// Input, schema and context of the run. For the loader.
    Bootstrap = "bootstrap";
    /// The return value. For the loader.
    ReportReturn = "report_return";
    /// One agent call.
    Agent = "agent";
    /// Start a workflow and wait for it.
    WorkflowsCall = "workflows.call";
    /// Start a workflow.
    WorkflowsRun = "workflows.run";
    /// Start a workflow later.
    WorkflowsSchedule = "workflows.schedule";
    /// Wait.
    Sleep = "sleep";
    /// Ask people.
    HumanInput = "humanInput";
    /// The value of a secret.
    SecretsGet = "secrets.get";
    /// Store a file.
    ArtifactsWrite = "artifacts.write";
    /// Open a browser.
    OpenBrowser = "computer.openBrowser";
    /// Go to a page.
    BrowserNavigate = "computer.browser.navigate";
    /// The page's address.
    BrowserUrl = "computer.browser.url";
    /// The page's title.
    BrowserTitle = "computer.browser.title";
    /// A picture of the page.
    BrowserScreenshot = "computer.browser.screenshot";
    /// What the page logged.
    BrowserConsole = "computer.browser.console";
    /// What the page requested.
    BrowserNetwork = "computer.browser.network";
    /// Run an expression in the page.
    BrowserEval = "computer.browser.eval";
    /// Close the browser.
    BrowserClose = "computer.browser.close";
    /// Open a desktop.
    OpenDesktop = "computer.openDesktop";
    /// A picture of the desktop.
    DesktopScreenshot = "computer.desktop.screenshot";
    /// Close the desktop.
    DesktopClose = "computer.desktop.close";
    /// Run a command.
    Shell = "shell";
    /// An identity token.
    AuthIdToken = "auth.idToken";
    /// A token for the public API.
    AuthApiToken = "auth.apiToken";
    /// What the run has spent.
    UsageGet = "usage.get";
}

/// The notification by which a program marks a phase.
pub const PHASE: &str = "phase";
/// The request by which the host asks a program to answer a tool call.
pub const TOOL_INVOKE: &str = "tool_invoke";
/// The notification by which the host tells that it no longer waits for an answer. Additive: clients that do not know
/// it ignore it.
pub const TOOL_CANCEL: &str = "tool_cancel";
/// The notification by which the host tells that the run is cancelled.
pub const CANCEL: &str = "cancel";

/// `{}`: parameters of `bootstrap`, `auth.apiToken` and `usage.get`, result of many methods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Empty {}

/// `report_return`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ReportReturnParams {
    /// The return value, byte for byte.
    pub value: RawJson,
}

/// `agent`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct AgentParams {
    /// What to do.
    pub prompt: String,
    /// How.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<AgentOpts>,
}

/// `agent`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct AgentResult {
    /// The final text, or the parsed value when a schema was given.
    pub output: RawJson,
}

/// Options of `workflows.call` and `workflows.run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct CallOpts {
    /// The author's key: takes the place of input and order in the child's identity.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub idempotency_key: Option<String>,
}

/// `workflows.call` and `workflows.run`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct CallParams {
    /// The workflow.
    pub slug: NonEmptyString,
    /// Its input, byte for byte.
    pub input: RawJson,
    /// Options.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<CallOpts>,
}

/// `workflows.call`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct CallResult {
    /// The child's return value.
    pub output: RawJson,
    /// Output schema of the called version; `null` when it has none.
    #[serde(deserialize_with = "nullable")]
    pub output_schema: Option<RawObject>,
}

/// `workflows.run`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct WorkflowRunResult {
    /// The child.
    pub run_id: NonEmptyString,
}

/// Options of `workflows.schedule`: exactly one of `cron`, `rate`, `at` (the host checks).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ScheduleOpts {
    /// Cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cron: Option<String>,
    /// `<n> <unit>`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub rate: Option<String>,
    /// ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub at: Option<String>,
    /// IANA zone of the cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub timezone: Option<String>,
    /// The author's key.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub idempotency_key: Option<String>,
}

/// `workflows.schedule`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ScheduleParams {
    /// The workflow.
    pub slug: NonEmptyString,
    /// Its input.
    pub input: RawJson,
    /// When.
    pub opts: ScheduleOpts,
}

/// `workflows.schedule`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ScheduleResult {
    /// The schedule.
    pub schedule_id: NonEmptyString,
}

/// How long to sleep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, rename_all_fields = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum SleepArg {
    /// Milliseconds, not negative.
    Milliseconds(#[serde(deserialize_with = "not_negative")] f64),
    /// Milliseconds, not negative.
    Duration {
        /// Milliseconds.
        #[serde(deserialize_with = "not_negative")]
        duration_ms: f64,
    },
    /// Until a time.
    Until {
        /// ISO 8601.
        until: NonEmptyString,
    },
}

fn not_negative<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err(serde::de::Error::custom("expected a number that is not negative"))
    }
}

/// `sleep`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SleepParams {
    /// How long.
    pub arg: SleepArg,
}

/// `humanInput`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HumanInputParams {
    /// The question.
    pub opts: HumanInputOpts,
}

/// `humanInput`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HumanInputReply {
    /// The answer.
    pub result: HumanInputResult,
}

/// `secrets.get`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SecretGetParams {
    /// Name of the secret.
    pub name: NonEmptyString,
}

/// `secrets.get`, result.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SecretGetResult {
    /// The value; never shown by `Debug`.
    pub value: String,
}

impl std::fmt::Debug for SecretGetResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretGetResult { value: … }")
    }
}

/// Bytes of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(tag = "encoding", rename_all = "lowercase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum ArtifactBody {
    /// As text.
    Utf8 {
        /// The text.
        data: String,
    },
    /// As base64.
    Base64 {
        /// The base64 text.
        data: String,
    },
}

/// `artifacts.write`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ArtifactWriteParams {
    /// File name.
    pub name: NonEmptyString,
    /// MIME type.
    pub content_type: NonEmptyString,
    /// Bytes.
    pub body: ArtifactBody,
    /// The author's own facts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub metadata: Option<RawObject>,
}

/// A stored artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ArtifactRef {
    /// The artifact.
    pub id: NonEmptyString,
    /// File name.
    pub name: NonEmptyString,
    /// Where to read it.
    pub url: NonEmptyString,
}

/// `artifacts.write`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ArtifactWriteResult {
    /// The stored artifact.
    #[serde(rename = "ref")]
    pub reference: ArtifactRef,
}

/// Options of `shell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ShellOpts {
    /// Directory, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cwd: Option<String>,
    /// Environment, merged over the program's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub env: Option<BTreeMap<String, String>>,
    /// How long it may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub timeout_ms: Option<f64>,
    /// How much it may print per stream, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_buffer: Option<f64>,
}

/// `shell`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ShellParams {
    /// The command.
    pub cmd: NonEmptyString,
    /// Options.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<ShellOpts>,
}

/// `shell`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ShellResult {
    /// Exit code; 128 + signal when a signal ended it.
    pub exit_code: i64,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
}

/// `auth.idToken`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct IdTokenParams {
    /// Who the token is for.
    pub audience: NonEmptyString,
}

/// `auth.idToken` and `auth.apiToken`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct TokenResult {
    /// The token.
    pub token: crate::bounds::Token,
}

/// One dimension of what a run has spent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct UsageDimension {
    /// Spent so far, not negative.
    pub spent: f64,
    /// Allowed; `null` when there is no cap.
    #[serde(deserialize_with = "nullable")]
    pub cap: Option<f64>,
    /// Left; `null` when there is no cap.
    #[serde(deserialize_with = "nullable")]
    pub remaining: Option<f64>,
}

impl UsageDimension {
    /// Spent against a cap.
    pub fn new(spent: f64, cap: Option<f64>) -> Self {
        Self { spent, cap, remaining: cap.map(|cap| (cap - spent).max(0.0)) }
    }
}

/// `usage.get`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct UsageSnapshot {
    /// US dollars.
    pub usd: UsageDimension,
    /// Input and output tokens.
    pub tokens: UsageDimension,
    /// Seconds of compute.
    pub compute_seconds: UsageDimension,
}

/// Options of `phase`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct PhaseOpts {
    /// Identity of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub id: Option<NonEmptyString>,
}

/// `phase`, parameters. A notification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct PhaseParams {
    /// Name of the phase.
    pub name: NonEmptyString,
    /// Options.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<PhaseOpts>,
}

/// `tool_invoke`, parameters. A request of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ToolInvokeParams {
    /// Identity of the `agent` request, as text.
    pub call_id: NonEmptyString,
    /// The tool.
    pub tool: NonEmptyString,
    /// Its input.
    pub input: RawJson,
}

/// `tool_invoke`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ToolInvokeResult {
    /// What the tool answered.
    pub output: RawJson,
}

/// `cancel`, parameters. A notification of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct CancelParams {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub reason: Option<NonEmptyString>,
}

/// `tool_cancel`, parameters: the host no longer waits for the answer to one of its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ToolCancelParams {
    /// The id of the `tool_invoke` request.
    pub id: i64,
}

objects!(
    Empty,
    ReportReturnParams,
    AgentParams,
    AgentResult,
    CallOpts,
    CallParams,
    CallResult,
    WorkflowRunResult,
    ScheduleOpts,
    ScheduleParams,
    ScheduleResult,
    SleepArg,
    SleepParams,
    HumanInputParams,
    HumanInputReply,
    SecretGetParams,
    SecretGetResult,
    ArtifactBody,
    ArtifactWriteParams,
    ArtifactRef,
    ArtifactWriteResult,
    ShellOpts,
    ShellParams,
    ShellResult,
    IdTokenParams,
    TokenResult,
    UsageDimension,
    UsageSnapshot,
    PhaseOpts,
    PhaseParams,
    ToolInvokeParams,
    ToolInvokeResult,
    CancelParams,
    ToolCancelParams
);
