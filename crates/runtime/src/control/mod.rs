//! The Runner Control API as a client (`docs/protocol/control.md`).

mod client;
mod error;
mod http;
mod inference;
mod retry;

pub(crate) use client::ControlClient;
pub(crate) use error::ControlError;
pub(crate) use http::{Http, HttpAnswer};
pub(crate) use inference::{ModelCall, StreamItem};
pub(crate) use retry::{RetryPolicy, Retryable};
