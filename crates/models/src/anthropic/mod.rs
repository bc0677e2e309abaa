//! Anthropic Messages.

mod decode;
mod encode;
mod thinking;

pub(crate) use decode::AnthropicDecoder;
pub(crate) use encode::encode;
