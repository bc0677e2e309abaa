//! Anthropic Messages.

mod decode;
mod encode;

pub(crate) use decode::AnthropicDecoder;
pub(crate) use encode::encode;
