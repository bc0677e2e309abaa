use async_trait::async_trait;
use futures_util::stream::BoxStream;
use trestle_contract::event::EventBody;
use trestle_contract::inference::{InferenceFrame, InferenceRequest, TokenCounts};
use trestle_contract::json::RawJson;
use trestle_domain::Redactor;

use crate::{AgentError, FileTree};

/// The frames of one model call, ending with `result` or `error`. Dropping it aborts the call.
pub type FrameStream = BoxStream<'static, Result<InferenceFrame, AgentError>>;

/// Everything that an agent needs from the run it belongs to.
///
/// Each thing that a durable run has to record passes through exactly one method: a model
/// call through [`Host::infer`], a tool's start and result through [`Host::invoke_tool`].
#[async_trait]
pub trait Host: Send + Sync {
    /// Wall time in milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;

    /// The live set of the run's secrets. Its placeholder does not matter.
    fn redactor(&self) -> Redactor;

    /// The run's workspace.
    fn workspace(&self) -> Option<&FileTree>;

    /// The root of the program's package, with its `AGENTS.md` and `skills/`.
    fn package(&self) -> Option<&FileTree>;

    /// Waits until the run is aborted and tells why. Every wait of the agent ends then.
    async fn cancelled(&self) -> AgentError;

    /// Called before every model call; returns when the run may spend more. A run over its
    /// budget fails here with `BUDGET_EXCEEDED`, or waits for a person.
    async fn clear_budget(&self) -> Result<(), AgentError>;

    /// Makes one model call. The request's messages hold no known secret.
    async fn infer(&self, call: &ModelCall, request: InferenceRequest) -> Result<FrameStream, AgentError>;

    /// Runs an inline tool in the program. A handler that throws is a plain failure
    /// (`TOOL_ERROR`), which the model gets to see; only `BUDGET_EXCEEDED` and `CANCELLED`
    /// end the agent.
    async fn invoke_tool(&self, invocation: ToolInvocation) -> Result<RawJson, AgentError>;

    /// Counts one model call. Called exactly once for each that was answered, or that broke
    /// off after it had answered in part.
    async fn record_usage(&self, call: &ModelCall, usage: ModelUsage);

    /// Emits the `turn_started` of a turn and opens a block of cursors for it.
    fn begin_turn(&self, turn_id: &str, body: EventBody);

    /// Emits an event of a turn. The order of calls is the order of events.
    fn emit(&self, turn_id: &str, body: EventBody);
}

/// The identity of one model call within its run's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// The agent, `agent-<n>`.
    pub agent_id: String,
    /// Which model call of the agent it is, from 1.
    pub number: u64,
    /// What it is for.
    pub kind: ModelCallKind,
}

/// What a model call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallKind {
    /// A turn of the loop.
    Turn,
    /// The one corrective turn after an answer that does not fit its schema.
    SchemaRetry,
}

impl ModelCall {
    /// A key that is unique within the run's session: `agent-1/3`, `agent-1/3/schema-retry`.
    /// Across sessions it may come again for another conversation.
    pub fn key(&self) -> String {
        match self.kind {
            ModelCallKind::Turn => format!("{}/{}", self.agent_id, self.number),
            ModelCallKind::SchemaRetry => format!("{}/{}/schema-retry", self.agent_id, self.number),
        }
    }
}

/// What a model call used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelUsage {
    /// Which model answered, `provider/model`; none when it broke off before it said so.
    pub model_ref: Option<String>,
    /// Its tokens.
    pub counts: TokenCounts,
    /// Exact cost in millionths of a US dollar, when known.
    pub cost_micros: Option<u64>,
    /// Whether the counts are a guess, because the call broke off.
    pub estimated: bool,
}

/// One call of an inline tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolInvocation {
    /// The `agent` request that declared the tool, as [`crate::LeafRequest::call_id`].
    pub call_id: String,
    /// The agent that asks.
    pub agent_id: String,
    /// The model call that asked for it, from 1.
    pub turn: u64,
    /// The provider's id of the tool call; unique within the turn.
    pub tool_call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Its input, a JSON object.
    pub input: RawJson,
}
