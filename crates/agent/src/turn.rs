use std::pin::{Pin, pin};

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use trestle_contract::ErrorCode;
use trestle_contract::event::EventBody;
use trestle_contract::inference::{
    ChatMessage, Content, InferenceFrame, InferenceRequest, InferenceResult, TokenCounts, ToolSpec,
};
use trestle_domain::TextRedactor;

use crate::leaf::Leaf;
use crate::transcript::Transcript;
use crate::{AgentError, FrameStream, ModelCall, ModelCallKind, ModelUsage};

impl Leaf<'_> {
    /// Makes one model call and shows it as it comes. This is the only place where a model
    /// is called.
    pub(crate) async fn model_call(
        &mut self,
        transcript: &mut Transcript,
        tools: Vec<ToolSpec>,
        block_id: &str,
        kind: ModelCallKind,
    ) -> Result<InferenceResult, AgentError> {
        let mut cancelled = pin!(self.host.cancelled());
        self.unless(&mut cancelled, self.host.clear_budget()).await??;
        self.calls += 1;
        let call =
            ModelCall { agent_id: self.request.agent_id.as_str().to_owned(), number: self.calls, kind };
        let options = &self.request.options;
        let request = InferenceRequest {
            model: options.model.clone(),
            provider: options.provider.clone(),
            messages: transcript.messages().to_vec(),
            tools,
            reasoning: self.plan.reasoning.clone(),
            desktop_session: None,
            turn_key: None,
        };
        let prompt_guess = guess_tokens(&request);
        let frames = self.unless(&mut cancelled, self.host.infer(&call, request)).await??;
        let mut show = Show::new(self, block_id);
        match show.follow(frames, &mut cancelled).await {
            Ok(result) => {
                show.end(&result.turn.text);
                self.host.record_usage(&call, usage_of(&result)).await;
                self.count(&result);
                Ok(result)
            }
            Err(error) => {
                if let Some(usage) = show.guess_usage(prompt_guess) {
                    self.host.record_usage(&call, usage).await;
                }
                Err(error)
            }
        }
    }

    /// Waits for something unless the run is aborted first.
    pub(crate) async fn unless<T, C: Future<Output = AgentError>>(
        &self,
        cancelled: &mut Pin<&mut C>,
        work: impl Future<Output = T>,
    ) -> Result<T, AgentError> {
        match select(cancelled.as_mut(), pin!(work)).await {
            Either::Left((error, _)) => Err(error),
            Either::Right((value, _)) => Ok(value),
        }
    }
}

/// Shows the frames of one model call as events.
struct Show<'l, 'a> {
    leaf: &'l Leaf<'a>,
    block_id: String,
    text: TextRedactor,
    reasoning: TextRedactor,
    opened: bool,
    /// Characters that the model has produced, void ones included: they were charged.
    produced: u64,
}

impl<'l, 'a> Show<'l, 'a> {
    fn new(leaf: &'l Leaf<'a>, block_id: &str) -> Self {
        let redactor = &leaf.plan.redactor;
        Self {
            leaf,
            block_id: block_id.to_owned(),
            text: redactor.text_stream(),
            reasoning: redactor.text_stream(),
            opened: false,
            produced: 0,
        }
    }

    async fn follow<C: Future<Output = AgentError>>(
        &mut self,
        mut frames: FrameStream,
        cancelled: &mut Pin<&mut C>,
    ) -> Result<InferenceResult, AgentError> {
        loop {
            let frame = self.leaf.unless(cancelled, frames.next()).await?;
            match frame.transpose()? {
                Some(InferenceFrame::Delta { text }) => self.delta(&text),
                Some(InferenceFrame::Reasoning { text }) => {
                    self.produced += length(&text);
                    let shown = self.reasoning.push(&text);
                    self.emit_reasoning(shown);
                }
                Some(InferenceFrame::Reset) => {
                    self.text.discard();
                    self.reasoning.discard();
                    self.leaf.emit(EventBody::TurnReset {});
                }
                Some(InferenceFrame::Ping) => {}
                Some(InferenceFrame::Result(result)) => return Ok(*result),
                Some(InferenceFrame::Error { error }) => {
                    let code = ErrorCode::from_code(&error.code).unwrap_or(ErrorCode::ProviderError);
                    return Err(AgentError::new(code, error.message));
                }
                None => {
                    let message = "the model's answer ended without a result";
                    return Err(AgentError::new(ErrorCode::ProviderError, message));
                }
            }
        }
    }

    fn delta(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.produced += length(text);
        if !std::mem::replace(&mut self.opened, true) {
            self.leaf.emit(EventBody::TextStart { block_id: self.block_id.clone() });
        }
        let shown = self.text.push(text);
        self.emit_text(shown);
    }

    /// Shows what was held back and closes the block.
    fn end(&mut self, whole: &str) {
        let held = self.reasoning.finish();
        self.emit_reasoning(held);
        if !self.opened {
            // A model that does not stream still answers in a block.
            self.delta(whole);
        }
        let held = self.text.finish();
        self.emit_text(held);
        if self.opened {
            self.leaf.emit(EventBody::TextEnd { block_id: self.block_id.clone() });
        }
    }

    fn emit_text(&self, text: String) {
        if !text.is_empty() {
            self.leaf.emit(EventBody::TextDelta { block_id: self.block_id.clone(), text });
        }
    }

    fn emit_reasoning(&self, text: String) {
        if !text.is_empty() {
            self.leaf.emit(EventBody::ReasoningDelta { text });
        }
    }

    /// What a call that broke off has probably used; none when the model had not begun.
    fn guess_usage(&self, prompt_guess: u64) -> Option<ModelUsage> {
        (self.produced > 0).then(|| ModelUsage {
            model_ref: None,
            counts: TokenCounts {
                input_tokens: Some(prompt_guess),
                output_tokens: Some(self.produced.div_ceil(4)),
                ..TokenCounts::default()
            },
            cost_micros: None,
            estimated: true,
        })
    }
}

fn usage_of(result: &InferenceResult) -> ModelUsage {
    ModelUsage {
        model_ref: Some(result.model_ref.clone()),
        counts: result.turn.usage,
        cost_micros: result.cost_micros,
        estimated: false,
    }
}

/// A guess at the tokens of a prompt: four characters of text, or 1,500 for a file.
fn guess_tokens(request: &InferenceRequest) -> u64 {
    let content = |content: &Content| match content {
        Content::Text(text) => length(text).div_ceil(4),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                trestle_contract::inference::ContentPart::Text { text } => length(text).div_ceil(4),
                trestle_contract::inference::ContentPart::File { .. } => 1_500,
            })
            .sum(),
    };
    let message = |message: &ChatMessage| match message {
        ChatMessage::User { content: parts } => content(parts),
        ChatMessage::Assistant { text, .. } => length(text).div_ceil(4),
        ChatMessage::ToolResults { results } => results.iter().map(|result| content(&result.content)).sum(),
    };
    request.messages.iter().map(message).sum()
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
