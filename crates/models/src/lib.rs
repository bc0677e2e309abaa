//! Model provider adapters: the neutral turn on the OpenAI-compatible and Anthropic wires.
//!
//! A turn goes in as the neutral conversation of [`trestle_contract::inference`] and comes out as a stream of [`ModelEvent`]s that ends with
//! exactly one [`ModelEvent::Done`] or one [`ModelError`]. What vendors get wrong on the wire ends here.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod anthropic;
mod client;
mod decoder;
mod endpoint;
mod error;
mod http;
mod lenient;
mod openai;
mod progress;
mod request;
mod retry;
mod sse;
mod table;
mod tool_calls;
mod turn;

pub use client::{ModelClient, ModelStream};
pub use endpoint::{Endpoint, EndpointKind};
pub use error::{ErrorClass, ModelError};
pub use http::{HttpOptions, http_client};
pub use progress::TurnProgress;
pub use request::{DEFAULT_MAX_OUTPUT_TOKENS, ModelRequest};
pub use retry::TurnPolicy;
pub use sse::{SseDecoder, SseEvent, SseTooLarge};
pub use table::{LongPromptPrices, ModelEntry, ModelTable};
pub use turn::{CompletedTurn, ModelEvent, StopReason};
