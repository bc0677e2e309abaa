//! Secrets, tokens, search, providers, live view (`docs/protocol/control.md` §6.4, §7.7 and §8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{BoundedString, EpochMs, Token};
use crate::ids::SecretName;
use crate::pool::ByoProvider;
use crate::tolerant::objects;

/// `POST secrets/resolve`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct SecretResolveRequest {
    /// Name of the secret.
    pub name: SecretName,
}

/// `POST secrets/resolve`, response 200.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct SecretResolveResponse {
    /// The value; never shown by `Debug`.
    pub value: String,
}

impl std::fmt::Debug for SecretResolveResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretResolveResponse { value: … }")
    }
}

/// `POST oidc/token`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct OidcTokenRequest {
    /// Who the token is for.
    pub audience: String,
}

/// `POST oidc/token`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct OidcTokenResponse {
    /// The token.
    pub token: Token,
    /// Its lifetime in seconds.
    pub expires_in: u64,
}

/// `POST mcp/token`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct McpTokenRequest {
    /// The MCP server.
    pub server_url: String,
    /// The token that the server just refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidate_token: Option<Token>,
}

/// `POST mcp/token`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct McpTokenResponse {
    /// The token.
    pub access_token: Token,
    /// When it expires; `null` when unknown.
    #[serde(default)]
    pub expires_at: Option<EpochMs>,
}

/// How thorough a web search should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SearchDepth {
    /// Quick.
    Basic,
    /// Thorough.
    Advanced,
}

/// `POST tools/web_search`, request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct WebSearchRequest {
    /// What to look for, 1 to 2000 UTF-16 code units.
    pub query: BoundedString<1, 2000>,
    /// How many results; the server keeps 1 to 20, 5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_results: Option<u64>,
    /// Also return page texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_content: Option<bool>,
    /// How thorough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_depth: Option<SearchDepth>,
}

/// `POST tools/web_search`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct WebSearchResponse {
    /// Always `web_search`.
    pub kind: String,
    /// One line for people.
    pub human_summary: String,
    /// The results.
    pub data: WebSearchData,
}

/// Results of a web search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct WebSearchData {
    /// What was looked for.
    pub query: String,
    /// What was found.
    pub results: Vec<WebSearchHit>,
    /// A summary by the search provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// One result of a web search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct WebSearchHit {
    /// Title.
    pub title: String,
    /// Address.
    pub url: String,
    /// Excerpt.
    pub snippet: String,
    /// Page text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Relevance, as the provider scores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// `GET inference/providers`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct ProvidersResponse {
    /// Providers that the run process may call itself.
    pub providers: Vec<ByoProvider>,
}

/// `POST liveview`, request: pictures of the desktop. Answered 204; never stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct LiveviewRequest {
    /// Base64 JPEGs.
    pub frames: Vec<String>,
}

/// `GET liveview/wanted`, response 200.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(remote = "Self")]
pub struct LiveviewWanted {
    /// Whether someone is watching.
    pub wanted: bool,
}

objects!(
    SecretResolveRequest,
    SecretResolveResponse,
    OidcTokenRequest,
    OidcTokenResponse,
    McpTokenRequest,
    McpTokenResponse,
    WebSearchRequest,
    WebSearchResponse,
    WebSearchData,
    WebSearchHit,
    ProvidersResponse,
    LiveviewRequest,
    LiveviewWanted
);
