//! One face for the decoders of both wires.

use std::collections::VecDeque;

use trestle_contract::inference::TokenCounts;

use crate::anthropic::AnthropicDecoder;
use crate::endpoint::EndpointKind;
use crate::error::ModelError;
use crate::openai::OpenAiDecoder;
use crate::request::ToolNames;
use crate::turn::{AnswerBuilder, CompletedTurn, ModelEvent};

/// Follows an answer of either wire.
pub(crate) enum Decoder {
    OpenAi(OpenAiDecoder),
    Anthropic(AnthropicDecoder),
}

impl Decoder {
    pub(crate) fn new(kind: EndpointKind) -> Self {
        match kind {
            EndpointKind::OpenAiCompatible => Self::OpenAi(OpenAiDecoder::default()),
            EndpointKind::Anthropic => Self::Anthropic(AnthropicDecoder::default()),
        }
    }

    /// Reads one event (or whole document); `true` when the wire has said that nothing more follows.
    pub(crate) fn read(
        &mut self,
        event: &str,
        data: &str,
        ready: &mut VecDeque<ModelEvent>,
    ) -> Result<bool, ModelError> {
        match self {
            Self::OpenAi(decoder) => decoder.read(event, data, ready),
            Self::Anthropic(decoder) => decoder.read(data, ready),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::OpenAi(decoder) => decoder.is_whole(),
            Self::Anthropic(decoder) => decoder.is_whole(),
        }
    }

    /// Bytes of the answer so far.
    pub(crate) fn size(&self) -> usize {
        self.answer().size()
    }

    /// Counts reported so far.
    pub(crate) fn counts(&self) -> TokenCounts {
        self.answer().usage.counts
    }

    fn answer(&self) -> &AnswerBuilder {
        match self {
            Self::OpenAi(decoder) => decoder.answer(),
            Self::Anthropic(decoder) => decoder.answer(),
        }
    }

    pub(crate) fn finish(self, names: &ToolNames) -> Result<CompletedTurn, ModelError> {
        match self {
            Self::OpenAi(decoder) => decoder.finish(names),
            Self::Anthropic(decoder) => decoder.finish(names),
        }
    }
}
