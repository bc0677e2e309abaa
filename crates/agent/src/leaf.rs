use futures_util::FutureExt;
use trestle_contract::NonEmptyString;
use trestle_contract::bounds::Count;
use trestle_contract::event::{EventBody, EventError, TokenUsage, TurnEndReason};
use trestle_contract::host::AgentOpts;
use trestle_contract::inference::{
    ChatMessage, ChatTurn, Content, ContentPart, InferenceResult, TokenCounts,
};
use trestle_contract::json::RawJson;
use trestle_domain::Placeholder;

use crate::answer::{Answer, AnswerForm};
use crate::guards::Guards;
use crate::plan::Plan;
use crate::transcript::Transcript;
use crate::{AgentError, Host, ModelCallKind};

/// One `agent()` call.
#[derive(Clone, Debug)]
pub struct LeafRequest {
    /// Identity within the run, `agent-<n>`, in call order.
    pub agent_id: NonEmptyString,
    /// The id of the program's request, under which its inline tools are invoked.
    pub call_id: String,
    /// What to do.
    pub prompt: String,
    /// How.
    pub options: AgentOpts,
}

/// Runs an agent to its answer: its final text as a JSON string, or, with a schema, a JSON
/// value that satisfies it.
///
/// Options are checked before the first event and the first model call. From then on
/// `turn_started` and `turn_ended` bracket all events, whatever happens. To stop an agent let
/// [`Host::cancelled`] return; a future that is dropped instead cannot emit its `turn_ended`.
///
/// # Errors
/// `VALIDATION_FAILED` or `UNSUPPORTED` for options; `BUDGET_EXCEEDED` and `CANCELLED`, which
/// end the run; `PROGRAM_ERROR` when the agent goes in circles; else what the model call
/// failed with. Messages and hints hold no known secret.
pub async fn run_leaf(host: &dyn Host, request: LeafRequest) -> Result<RawJson, AgentError> {
    if let Some(error) = host.cancelled().now_or_never() {
        return Err(error);
    }
    let redactor = host.redactor().with_placeholder(Placeholder::Labelled);
    let plan =
        Plan::prepare(host, &request, redactor.clone()).await.map_err(|error| error.redacted(&redactor))?;
    let leaf = Leaf::new(host, request, plan);
    Box::pin(leaf.run()).await
}

/// A leaf in progress.
pub(crate) struct Leaf<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) request: LeafRequest,
    pub(crate) plan: Plan,
    pub(crate) turn_id: String,
    agent_name: Option<NonEmptyString>,
    totals: TokenCounts,
    /// Model calls so far.
    pub(crate) calls: u64,
}

/// How often the model may be called before it has to answer, unless the author says.
const DEFAULT_ITERATIONS: u64 = 500;

impl<'a> Leaf<'a> {
    fn new(host: &'a dyn Host, request: LeafRequest, plan: Plan) -> Self {
        let turn_id = format!("turn-{}", uuid::Uuid::new_v4());
        let name = request.options.name.as_deref().unwrap_or_default();
        let agent_name = NonEmptyString::new(plan.redactor.redact_str(name)).ok();
        Self { host, request, plan, turn_id, agent_name, totals: TokenCounts::default(), calls: 0 }
    }

    async fn run(mut self) -> Result<RawJson, AgentError> {
        self.host.begin_turn(
            &self.turn_id,
            EventBody::TurnStarted {
                agent_id: self.request.agent_id.clone(),
                agent_name: self.agent_name.clone(),
            },
        );
        let outcome = self.converse().await.map_err(|error| error.redacted(&self.plan.redactor));
        let (reason, usage, error) = match &outcome {
            Ok(_) => (TurnEndReason::Complete, Some(self.usage()), None),
            Err(error) => {
                let error = EventError {
                    code: error.code.as_str().to_owned(),
                    message: error.message.clone(),
                    hint: None,
                };
                (TurnEndReason::Error, None, Some(error))
            }
        };
        let agent_id = self.request.agent_id.clone();
        self.emit(EventBody::TurnEnded {
            agent_id,
            agent_name: self.agent_name.clone(),
            reason,
            usage,
            error,
        });
        outcome
    }

    /// The loop, and what its answer is.
    async fn converse(&mut self) -> Result<RawJson, AgentError> {
        let mut transcript = Transcript::new(self.plan.redactor.clone());
        transcript.push(self.first_message());
        let text = self.answer_in_turns(&mut transcript).await?;
        match &self.plan.form {
            AnswerForm::Text => encode_text(&text),
            AnswerForm::Schema(_) => self.structured_answer(&mut transcript, text).await,
        }
    }

    async fn answer_in_turns(&mut self, transcript: &mut Transcript) -> Result<String, AgentError> {
        let limit = self.request.options.iteration_limit().unwrap_or(DEFAULT_ITERATIONS);
        let mut guards = Guards::new(limit);
        let mut iteration = 0_u64;
        loop {
            iteration += 1;
            let last = iteration > limit;
            let tools = if last { Vec::new() } else { self.plan.tools.specs(&self.plan.redactor) };
            let block = format!("text-{iteration}");
            let result = self.model_call(transcript, tools, &block, ModelCallKind::Turn).await?;
            let turn = result.turn;
            if last || !turn.wants_tools || turn.tool_calls.is_empty() {
                return Ok(turn.text);
            }
            let calls = crate::dispatch::with_unique_ids(turn.tool_calls, iteration);
            let repeated = guards.before_tools(&calls)?;
            transcript.push(ChatMessage::Assistant { text: turn.text, tool_calls: calls.clone() });
            let results = self.run_tools(&calls, iteration).await?;
            let notes = guards.after_tools(&calls, &results, iteration, repeated);
            transcript.push(ChatMessage::ToolResults { results });
            transcript.drop_stale_images();
            for note in notes? {
                transcript.push(ChatMessage::User { content: note.into() });
            }
        }
    }

    /// Reads the value out of an answer, with one corrective turn when there is none.
    async fn structured_answer(
        &mut self,
        transcript: &mut Transcript,
        text: String,
    ) -> Result<RawJson, AgentError> {
        let AnswerForm::Schema(schema) = &self.plan.form else { return encode_text(&text) };
        let problem = match schema.read(&text) {
            Answer::Fits(value) => return Ok(value),
            Answer::Misses(problem) => problem,
        };
        let correction = schema.correction(&problem);
        transcript.push(ChatMessage::Assistant { text, tool_calls: Vec::new() });
        transcript.push(ChatMessage::User { content: correction.into() });
        let block = "text-schema-retry";
        let result = self.model_call(transcript, Vec::new(), block, ModelCallKind::SchemaRetry).await?;
        let AnswerForm::Schema(schema) = &self.plan.form else { return encode_text(&result.turn.text) };
        match schema.read(&result.turn.text) {
            Answer::Fits(value) => Ok(value),
            Answer::Misses(problem) => Err(problem.into_error(&result.turn.text)),
        }
    }

    fn first_message(&self) -> ChatMessage {
        let text = self.plan.framing.clone();
        if self.plan.attachments.is_empty() {
            return ChatMessage::User { content: Content::Text(text) };
        }
        let mut parts = vec![ContentPart::Text { text }];
        parts.extend(self.plan.attachments.iter().map(|file| ContentPart::File { file: file.clone() }));
        ChatMessage::User { content: Content::Parts(parts) }
    }

    pub(crate) fn emit(&self, body: EventBody) {
        self.host.emit(&self.turn_id, body);
    }

    pub(crate) fn count(&mut self, result: &InferenceResult) {
        let ChatTurn { usage, .. } = &result.turn;
        let add = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        };
        add(&mut self.totals.input_tokens, usage.input_tokens);
        add(&mut self.totals.output_tokens, usage.output_tokens);
    }

    fn usage(&self) -> TokenUsage {
        let count = |tokens: Option<u64>| Count::new(tokens.unwrap_or(0)).ok();
        TokenUsage {
            input_tokens: count(self.totals.input_tokens),
            output_tokens: count(self.totals.output_tokens),
            ..TokenUsage::default()
        }
    }
}

fn encode_text(text: &str) -> Result<RawJson, AgentError> {
    RawJson::encode(text)
        .map_err(|error| AgentError::new(trestle_contract::ErrorCode::InternalError, error.to_string()))
}
