//! The inference relay.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trestle_contract::ErrorCode;
use trestle_contract::ids::RunId;
use trestle_store::Store;

use crate::failure::Failure;
use crate::vault::Vault;

/// The operator's model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Name of the model.
    pub model: Option<String>,
}

/// Relays turns to model providers.
pub(crate) struct Relay;

impl Relay {
    pub(crate) fn new(_: ModelConfig, _: Arc<dyn Store>, _: Arc<Vault>) -> Self {
        Self
    }

    pub(crate) async fn relay(&self, _: &RunId, _: u64, _: Bytes) -> Response {
        Failure::new(ErrorCode::ModelUnresolved, "no model is configured").into_response()
    }

    pub(crate) fn stop_run(&self, _: &RunId) {}
}
