//! Secrets, environments and variables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::EpochMs;
use crate::ids::{EnvironmentId, SecretId, SecretName};
use crate::tolerant::objects;

/// Whose a secret is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum SecretScope {
    /// The organisation's.
    #[default]
    Org,
    /// A person's.
    User,
}

/// What a secret is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// A key.
    #[default]
    ApiKey,
    /// An OAuth token.
    OauthToken,
    /// A role at AWS.
    AwsRole,
    /// A credential for an MCP server.
    McpCredential,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct SecretRow {
    /// The secret.
    pub id: SecretId,
    /// Its name.
    pub name: SecretName,
    /// Whose it is.
    #[serde(default)]
    pub scope: SecretScope,
    /// Environment it belongs to; `null` for all.
    #[serde(default)]
    pub environment_id: Option<EnvironmentId>,
    /// What it is.
    #[serde(default)]
    pub kind: SecretKind,
    /// Last four characters, of values long enough to show them.
    #[serde(default)]
    pub last4: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
    /// When it was created.
    #[serde(default)]
    pub created_at: Option<EpochMs>,
}

/// `GET /v1/orgs/{slug}/secrets`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct SecretList {
    /// By name.
    pub secrets: Vec<SecretRow>,
    /// For the next page; `null` on the last.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// One secret, without its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct SecretResponse {
    /// The secret.
    pub secret: SecretRow,
}

/// `POST /v1/orgs/{slug}/secrets`, request; 409 when the name is taken.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct CreateSecretRequest {
    /// Its name.
    pub name: SecretName,
    /// Its value; never shown by `Debug`.
    pub value: String,
    /// Whose it is.
    #[serde(default)]
    pub scope: SecretScope,
    /// What it is.
    #[serde(default)]
    pub kind: SecretKind,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Environment it belongs to; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<EnvironmentId>,
}

impl std::fmt::Debug for CreateSecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateSecretRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `POST /v1/secrets/{id}/rotate`, request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct RotateSecretRequest {
    /// The new value; never shown by `Debug`.
    pub value: String,
}

impl std::fmt::Debug for RotateSecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RotateSecretRequest { value: … }")
    }
}

/// An environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct EnvironmentRow {
    /// The environment.
    pub id: EnvironmentId,
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
}

/// `GET /v1/orgs/{slug}/environments`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct EnvironmentList {
    /// By name.
    pub environments: Vec<EnvironmentRow>,
}

/// `POST /v1/orgs/{slug}/environments`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct CreateEnvironmentRequest {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// `POST /v1/orgs/{slug}/environments`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct EnvironmentResponse {
    /// The environment.
    pub environment: EnvironmentRow,
}

/// A variable: not secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct VariableRow {
    /// The variable.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
    /// Environment it belongs to; `null` for all.
    #[serde(default)]
    pub environment_id: Option<EnvironmentId>,
}

/// `GET /v1/orgs/{slug}/env-variables`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct VariableList {
    /// By name.
    pub variables: Vec<VariableRow>,
}

/// `POST /v1/orgs/{slug}/env-variables`, request: creates or replaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct SetVariableRequest {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Environment it belongs to; `null` for all.
    #[serde(default)]
    pub environment_id: Option<EnvironmentId>,
}

/// `POST /v1/orgs/{slug}/env-variables`, response 201.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct VariableResponse {
    /// The variable.
    pub variable: VariableRow,
}

objects!(
    SecretRow,
    SecretList,
    SecretResponse,
    CreateSecretRequest,
    RotateSecretRequest,
    EnvironmentRow,
    EnvironmentList,
    CreateEnvironmentRequest,
    EnvironmentResponse,
    VariableRow,
    VariableList,
    SetVariableRequest,
    VariableResponse
);
