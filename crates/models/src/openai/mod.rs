//! OpenAI-compatible chat completions.

mod decode;
mod encode;

pub(crate) use decode::OpenAiDecoder;
pub(crate) use encode::encode;
