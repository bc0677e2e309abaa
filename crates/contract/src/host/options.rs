//! Options of `agent`, `humanInput` and `computer.*` (`docs/protocol/host.md` §5).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{NonEmptyString, Positive};
use crate::inference::{Effort, Reasoning};
use crate::json::JsonObject;
use crate::tolerant::{objects, present};

/// Options of one `agent` call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct AgentOpts {
    /// Name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub name: Option<String>,
    /// Model, handed to the provider as it is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub model: Option<String>,
    /// Who fulfils; absent for the managed lane.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub provider: Option<String>,
    /// How much to think.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub reasoning: Option<ReasoningOption>,
    /// JSON Schema of a structured answer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub schema: Option<JsonObject>,
    /// Tools that the program itself answers.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub tools: Option<Vec<InlineTool>>,
    /// Which of the host's tools to offer; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub builtins: Option<Builtins>,
    /// Directory to work from, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cwd: Option<String>,
    /// MCP servers to connect.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub mcp: Option<Vec<McpServer>>,
    /// Skills of the package to offer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub skills: Option<Vec<String>>,
    /// Directory that survives runs, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub memory: Option<String>,
    /// Whether the model may ask people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub human_input: Option<bool>,
    /// Soft limit of model calls. Values below 1 are ignored, fractions cut.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_iterations: Option<f64>,
    /// A browser or desktop session of this run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub session_id: Option<String>,
    /// Files that go with the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub attachments: Option<Vec<Attachment>>,
}

impl AgentOpts {
    /// The limit of model calls that `max_iterations` asks for, if it asks for one.
    pub fn iteration_limit(&self) -> Option<u64> {
        self.max_iterations
            .filter(|limit| limit.is_finite() && *limit >= 1.0)
            .map(|limit| limit.floor() as u64)
    }
}

/// How much to think: a named effort, or settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged)]
pub enum ReasoningOption {
    /// A named effort.
    Effort(Effort),
    /// Settings.
    Settings(ReasoningSettings),
}

/// Settings of reasoning. When both are given, effort wins over the token budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ReasoningSettings {
    /// Named effort.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub effort: Option<Effort>,
    /// Token budget.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_tokens: Option<Positive>,
    /// Do not return the reasoning text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub exclude: Option<bool>,
}

impl From<&ReasoningOption> for Reasoning {
    fn from(option: &ReasoningOption) -> Self {
        match option {
            ReasoningOption::Effort(effort) => {
                Self { effort: Some(*effort), max_tokens: None, exclude: None }
            }
            ReasoningOption::Settings(settings) => Self {
                effort: settings.effort,
                max_tokens: match settings.effort {
                    Some(_) => None,
                    None => settings.max_tokens.map(Positive::get),
                },
                exclude: settings.exclude.filter(|exclude| *exclude),
            },
        }
    }
}

/// A tool that the program itself answers; only its declaration travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct InlineTool {
    /// Name.
    pub name: NonEmptyString,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its input.
    pub input_schema: JsonObject,
}

/// Which of the host's tools to offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged)]
pub enum Builtins {
    /// A named set.
    Preset(BuiltinsPreset),
    /// Exactly these.
    Names(Vec<String>),
}

/// A named set of the host's tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltinsPreset {
    /// All.
    All,
    /// Those that change nothing.
    ReadOnly,
    /// None.
    None,
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(tag = "transport", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum McpServer {
    /// A program.
    Stdio {
        /// Name; its tools are offered as `<name>__<tool>`.
        name: NonEmptyString,
        /// What to start.
        command: NonEmptyString,
        /// With what arguments.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        args: Option<Vec<String>>,
        /// With what environment.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        env: Option<BTreeMap<String, String>>,
        /// Tools not to offer.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        exclude_tools: Option<Vec<String>>,
    },
    /// An HTTP endpoint.
    Http {
        /// Name; its tools are offered as `<name>__<tool>`.
        name: NonEmptyString,
        /// Where.
        url: NonEmptyString,
        /// With what headers.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        headers: Option<BTreeMap<String, String>>,
        /// Tools not to offer.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        exclude_tools: Option<Vec<String>>,
    },
}

/// A file that goes with a prompt: its bytes or a URL, exactly one of them (the host checks).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Attachment {
    /// MIME type.
    pub mime_type: NonEmptyString,
    /// Bytes, base64.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub data: Option<String>,
    /// Where to fetch it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub url: Option<String>,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub filename: Option<String>,
}

/// Options of a question to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct HumanInputOpts {
    /// Key of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub key: Option<String>,
    /// The question.
    pub prompt: String,
    /// Form of the answer.
    pub input: HumanInputSpec,
    /// Who may answer: `role:…`, `user:…`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub assignees: Option<Vec<String>>,
    /// How long to wait: `<n>` and `s`, `m`, `h` or `d`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub timeout: Option<String>,
    /// What then; fail when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub on_timeout: Option<OnTimeout>,
}

/// Form of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum HumanInputSpec {
    /// Free text.
    Text {
        /// Several lines.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        multiline: Option<bool>,
        /// Shown while empty.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        placeholder: Option<String>,
        /// Must not be blank.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        required: Option<bool>,
    },
    /// One of some.
    Choice {
        /// The options, at least one.
        #[serde(deserialize_with = "at_least_one")]
        #[schemars(length(min = 1))]
        options: Vec<String>,
        /// Whether another text may be given; it may when absent.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        allow_other: Option<bool>,
        /// Label of that.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        other_label: Option<String>,
    },
    /// Several of some.
    Multiselect {
        /// The options, at least one.
        #[serde(deserialize_with = "at_least_one")]
        #[schemars(length(min = 1))]
        options: Vec<String>,
        /// Whether another text may be given; it may when absent.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        allow_other: Option<bool>,
        /// Label of that.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        other_label: Option<String>,
        /// Fewest.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        min: Option<f64>,
        /// Most.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        max: Option<f64>,
    },
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let options = Vec::<String>::deserialize(deserializer)?;
    if options.is_empty() {
        return Err(serde::de::Error::invalid_length(0, &"at least one option"));
    }
    Ok(options)
}

/// What happens when nobody answers in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged, deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum OnTimeout {
    /// The run fails.
    Fail(OnTimeoutFail),
    /// This answer is taken.
    Answer {
        /// The answer.
        value: HumanInputResult,
    },
}

/// The one text of [`OnTimeout`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeoutFail {
    /// The run fails.
    Fail,
}

/// An answer of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(untagged, deny_unknown_fields)]
#[serde(remote = "Self")]
pub enum HumanInputResult {
    /// To a multiselect.
    Values {
        /// Those chosen.
        values: Vec<String>,
        /// Another text.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        other: Option<String>,
    },
    /// To a choice.
    Choice {
        /// The one chosen.
        value: String,
        /// Whether it is none of the options.
        #[serde(rename = "isOther")]
        is_other: bool,
    },
    /// To a text.
    Text {
        /// The text.
        value: String,
    },
}

/// How a browser session is described to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BrowserGrounding {
    /// The host decides.
    Auto,
    /// By accessibility tree.
    A11y,
    /// By pictures.
    Vision,
    /// Not at all.
    None,
}

/// Size of a browser window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct Viewport {
    /// Width in pixels.
    pub width: Positive,
    /// Height in pixels.
    pub height: Positive,
}

/// Options of a browser session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserOpts {
    /// First page.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub start_url: Option<String>,
    /// Window size.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub viewport: Option<Viewport>,
    /// How it is described to a model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub grounding: Option<BrowserGrounding>,
}

/// How a desktop session is described to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DesktopGrounding {
    /// The host decides.
    Auto,
    /// Not at all.
    None,
}

/// Options of a desktop session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct DesktopOpts {
    /// How it is described to a model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub grounding: Option<DesktopGrounding>,
}

objects!(
    AgentOpts,
    ReasoningSettings,
    InlineTool,
    McpServer,
    Attachment,
    HumanInputOpts,
    HumanInputSpec,
    OnTimeout,
    HumanInputResult,
    Viewport,
    BrowserOpts,
    DesktopOpts
);
