//! The inference relay (docs/protocol/control.md §7): one model turn in, a stream of NDJSON frames out.
//!
//! A turn is metered exactly once, whoever still listens. With a turn key it is finished even when nobody does, and a repeat of the request
//! joins it or gets what it gave.

mod config;
mod ledger;
mod log;
mod named;
mod registry;
mod relay;
mod resolve;
mod turn;

#[cfg(test)]
mod tests;

pub use config::{ModelConfig, ModelKey};
pub(crate) use relay::Relay;
