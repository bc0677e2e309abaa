//! The Runner Control API as a client (`docs/protocol/control.md`).

mod client;
mod error;
mod http;
mod inference;
mod retry;
mod transfer;

pub(crate) use client::{ControlClient, Granted};
pub(crate) use error::ControlError;
pub(crate) use http::{Http, HttpAnswer};
pub(crate) use inference::{ModelCall, StreamItem};
pub(crate) use retry::{Attempts, RetryPolicy, is_worth_another};
