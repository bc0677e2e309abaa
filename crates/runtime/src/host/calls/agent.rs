use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use trestle_agent::{
    AgentError, FileTree, FrameStream, Host, LeafRequest, ModelCall, ModelUsage, ToolInvocation, run_leaf,
};
use trestle_contract::control::TokenUsageRequest;
use trestle_contract::event::EventBody;
use trestle_contract::host::{AgentParams, AgentResult, HostErrorBody, ToolInvokeParams};
use trestle_contract::inference::{InferenceFrame, InferenceRequest};
use trestle_contract::{ErrorCode, NonEmptyString, RawJson, SecretName};
use trestle_domain::{MeteredTurn, Redactor};

use super::super::connection::Peer;
use super::{Capabilities, HostFailure, encoded};
use crate::abort::AbortReason;
use crate::control::{self, StreamItem};
use crate::events::Emitter;
use crate::inference::{Direct, DirectCall};

/// How long an agent may take to say that its turn is over, once the run is being ended.
const LAST_WORDS: Duration = Duration::from_millis(700);

impl Capabilities {
    pub(super) fn next_agent(&self) -> u64 {
        self.agents.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) async fn agent(
        self: &Arc<Self>,
        params: AgentParams,
        call_id: String,
        number: u64,
        peer: &Arc<Peer>,
    ) -> Result<RawJson, HostFailure> {
        let host = AgentHost {
            capabilities: Arc::clone(self),
            peer: Arc::clone(peer),
            number,
            direct_calls: Mutex::default(),
        };
        let request = LeafRequest {
            agent_id: NonEmptyString::saturating(format!("agent-{number}")),
            call_id,
            prompt: params.prompt,
            options: params.opts.unwrap_or_default(),
        };
        let leaf = run_leaf(&host, request);
        let overdue = async {
            let reason = self.abort.wait().await;
            tokio::time::sleep(LAST_WORDS).await;
            reason
        };
        tokio::select! {
            biased;
            result = leaf => match result {
                Ok(output) => encoded(&AgentResult { output }),
                Err(error) => Err(from_agent(error)),
            },
            reason = overdue => Err(HostFailure::aborted(reason)),
        }
    }

    /// Counts what a model call used and reports it, beside everything else; all reports are awaited before
    /// the end.
    fn record_turn(self: &Arc<Self>, agent: u64, usage: &ModelUsage, is_brokered: bool) {
        self.budget.record(&MeteredTurn {
            input_tokens: usage.counts.input_tokens.unwrap_or(0),
            output_tokens: usage.counts.output_tokens.unwrap_or(0),
            cached_read_tokens: usage.counts.cached_read_tokens.unwrap_or(0),
            cached_write_tokens: usage.counts.cached_write_tokens.unwrap_or(0),
            cost_micros: usage.cost_micros.unwrap_or(0),
        });
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let request = TokenUsageRequest {
            input_tokens: usage.counts.input_tokens.unwrap_or(0),
            output_tokens: usage.counts.output_tokens.unwrap_or(0),
            model: usage.model_ref.clone(),
            identifier: NonEmptyString::saturating(format!(
                "{}:{}:{agent}:{turn}",
                self.facts.run_id.as_str(),
                self.session
            )),
            cached_read_tokens: usage.counts.cached_read_tokens,
            cached_write_tokens: usage.counts.cached_write_tokens,
            brokered: self.facts.asks_for_lanes.then_some(is_brokered),
        };
        let control = self.control.clone();
        let pause = control.timing().finalize_backoff / 10;
        self.reports.spawn(async move {
            while let Err(error) = control.token_usage(&request).await {
                if error.is_final() {
                    tracing::warn!(%error, "the tokens of a model call were not taken");
                    return;
                }
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// The key of a provider, resolved for this one call. What the control plane calls it is not shown.
    async fn provider_key(&self, direct: &Direct) -> Result<Option<String>, AgentError> {
        let Some(name) = &direct.key_name else { return Ok(None) };
        let unresolved = |code, what: &str| {
            AgentError::new(code, format!("the key of the provider {} {what}", direct.name))
                .with_hint("add the provider again with `trestle inference add`")
        };
        let name = SecretName::new(name.as_str())
            .map_err(|_| unresolved(ErrorCode::ValidationFailed, "has a name that cannot be asked for"))?;
        match self.control.secret(name).await {
            Ok(answer) => Ok(Some(answer.value)),
            Err(error) => Err(match error.status() {
                Some(404) => unresolved(ErrorCode::NotFound, "has no value"),
                Some(403) => unresolved(ErrorCode::Forbidden, "is not for this run"),
                _ => unresolved(ErrorCode::InternalError, "cannot be resolved"),
            }),
        }
    }
}

/// The world of one agent.
struct AgentHost {
    capabilities: Arc<Capabilities>,
    peer: Arc<Peer>,
    number: u64,
    /// Keys of the model calls that do not go through the control plane.
    direct_calls: Mutex<HashSet<String>>,
}

#[async_trait]
impl Host for AgentHost {
    fn now_ms(&self) -> i64 {
        self.capabilities.wall.now_ms()
    }

    fn redactor(&self) -> Redactor {
        self.capabilities.emitter.redactor().clone()
    }

    fn workspace(&self) -> Option<&FileTree> {
        self.capabilities.facts.workspace_tree.as_ref()
    }

    fn package(&self) -> Option<&FileTree> {
        self.capabilities.facts.package.as_ref()
    }

    async fn cancelled(&self) -> AgentError {
        ended(self.capabilities.abort.wait().await)
    }

    async fn clear_budget(&self) -> Result<(), AgentError> {
        self.capabilities.check_alive().and_then(|()| self.capabilities.budget.park()).map_err(into_agent)
    }

    async fn infer(
        &self,
        call: &ModelCall,
        mut request: InferenceRequest,
    ) -> Result<FrameStream, AgentError> {
        let capabilities = &self.capabilities;
        let direct = capabilities.facts.providers.route(&request, &capabilities.control).await;
        if let Some(direct) = direct {
            return self.infer_directly(call, direct, request).await;
        }
        // Unique beyond this process: another attempt may hold another conversation under the same number.
        request.turn_key =
            capabilities.facts.honours_turn_keys.then(|| format!("{}/{}", capabilities.session, call.key()));
        let body = serde_json::to_vec(&request)
            .map_err(|error| AgentError::new(ErrorCode::InternalError, error.to_string()))?;
        let call = control::ModelCall::new(
            capabilities.control.clone(),
            Bytes::from(body),
            capabilities.facts.honours_turn_keys,
        );
        Ok(frames(Lane::Brokered(Box::new(call)), capabilities.emitter.clone()))
    }

    async fn invoke_tool(&self, invocation: ToolInvocation) -> Result<RawJson, AgentError> {
        let params = ToolInvokeParams {
            call_id: NonEmptyString::saturating(invocation.call_id),
            tool: NonEmptyString::saturating(invocation.tool),
            input: invocation.input,
        };
        let ceiling = self.capabilities.control.timing().tool_answer;
        match self.capabilities.abort.race(self.peer.invoke_tool(&params, ceiling)).await {
            Ok(Ok(output)) => Ok(output),
            // Whatever the handler threw, the model gets to see it: a handler ends no run.
            Ok(Err(failure)) => Err(AgentError::new(ErrorCode::ToolError, failure.0.message)),
            Err(reason) => Err(ended(reason)),
        }
    }

    async fn record_usage(&self, call: &ModelCall, usage: ModelUsage) {
        let is_direct = self.direct_calls().remove(&call.key());
        // A direct call that broke off knows best what it has used, and has told it as it was dropped.
        if !(is_direct && usage.estimated) {
            self.capabilities.record_turn(self.number, &usage, !is_direct);
        }
    }

    fn begin_turn(&self, turn_id: &str, body: EventBody) {
        self.capabilities.emitter.emit_for(turn_id, body);
    }

    fn emit(&self, turn_id: &str, body: EventBody) {
        self.capabilities.emitter.emit_for(turn_id, body);
    }
}

impl AgentHost {
    /// Calls a provider with the organisation's own key.
    async fn infer_directly(
        &self,
        call: &ModelCall,
        direct: Direct,
        request: InferenceRequest,
    ) -> Result<FrameStream, AgentError> {
        let capabilities = &self.capabilities;
        let key = capabilities.provider_key(&direct).await?;
        self.direct_calls().insert(call.key());
        let (owner, number) = (Arc::clone(capabilities), self.number);
        let model_ref = Some(format!("{}/{}", direct.name, direct.model));
        let broken_off = move |counts| {
            let usage = ModelUsage { model_ref, counts, cost_micros: None, estimated: true };
            owner.record_turn(number, &usage, false);
        };
        let redactor = capabilities.emitter.redactor();
        let timing = capabilities.control.timing();
        let call = DirectCall::new(&direct, key, request, redactor, timing, broken_off)
            .map_err(|error| into_agent(HostFailure::from(&error)))?;
        Ok(frames(Lane::Direct(Box::new(call)), capabilities.emitter.clone()))
    }

    fn direct_calls(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.direct_calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A model call under way.
enum Lane {
    Brokered(Box<control::ModelCall>),
    Direct(Box<DirectCall>),
}

impl Lane {
    async fn next(&mut self) -> StreamItem {
        match self {
            Self::Brokered(call) => call.next().await,
            Self::Direct(call) => call.next().await,
        }
    }
}

/// The call's frames. When events cannot be delivered as fast as the model speaks, the model waits.
fn frames(call: Lane, emitter: Emitter) -> FrameStream {
    stream::unfold(Some(call), move |call| {
        let emitter = emitter.clone();
        async move {
            let mut call = call?;
            emitter.room().await;
            let item = match call.next().await {
                StreamItem::Text(text) => Ok(InferenceFrame::Delta { text }),
                StreamItem::Reasoning(text) => Ok(InferenceFrame::Reasoning { text }),
                StreamItem::Reset => Ok(InferenceFrame::Reset),
                StreamItem::Finished(result) => return Some((Ok(InferenceFrame::Result(result)), None)),
                StreamItem::Failed { code, message, hint } => {
                    let code = ErrorCode::from_code(&code).unwrap_or(ErrorCode::ProviderError);
                    let mut error = AgentError::new(code, message);
                    error.hint = hint;
                    return Some((Err(error), None));
                }
            };
            Some((item, Some(call)))
        }
    })
    .boxed()
}

fn from_agent(error: AgentError) -> HostFailure {
    let mut body = HostErrorBody::new(error.code, error.message);
    if let Some(hint) = error.hint {
        body = body.with_hint(hint);
    }
    if let Some(reason) = error.reason {
        body = body.with_reason(reason);
    }
    if let Some(detail) = error.detail.and_then(|detail| detail.to_value().ok()) {
        body = body.with_detail(&detail);
    }
    HostFailure(body)
}

fn into_agent(failure: HostFailure) -> AgentError {
    let code = ErrorCode::from_code(failure.code()).unwrap_or(ErrorCode::InternalError);
    let mut error = AgentError::new(code, failure.0.message.clone());
    error.hint = failure.0.hint();
    error.detail = failure.0.detail();
    error
}

/// What an agent hears of a run that is being ended.
fn ended(reason: AbortReason) -> AgentError {
    let mut error = into_agent(HostFailure::aborted(reason));
    error.reason = Some(reason.word().to_owned());
    error
}
