//! Parameters and results of browser and desktop sessions (`docs/protocol/host.md` §5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::methods::ArtifactWriteResult;
use super::options::{BrowserOpts, DesktopOpts};
use crate::bounds::NonEmptyString;
use crate::json::RawJson;
use crate::tolerant::{objects, present};

/// `computer.openBrowser`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct OpenBrowserParams {
    /// Options.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<BrowserOpts>,
}

/// `computer.openDesktop`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq, Default)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct OpenDesktopParams {
    /// Options.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub opts: Option<DesktopOpts>,
}

/// `computer.openBrowser` and `computer.openDesktop`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SessionResult {
    /// The session.
    pub session_id: NonEmptyString,
}

/// Parameters of methods that need only a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct SessionParams {
    /// The session.
    pub session_id: NonEmptyString,
}

/// `computer.browser.navigate`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserNavigateParams {
    /// The session.
    pub session_id: NonEmptyString,
    /// Where to.
    pub url: NonEmptyString,
}

/// `computer.browser.url`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserUrlResult {
    /// The page's address.
    pub url: String,
}

/// `computer.browser.title`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserTitleResult {
    /// The page's title.
    pub title: String,
}

/// `computer.browser.screenshot`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserScreenshotParams {
    /// The session.
    pub session_id: NonEmptyString,
    /// The whole page instead of the window.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub full_page: Option<bool>,
}

/// `computer.browser.screenshot` and `computer.desktop.screenshot`, result.
pub type ScreenshotResult = ArtifactWriteResult;

/// `computer.browser.console` and `computer.browser.network`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserSinceParams {
    /// The session.
    pub session_id: NonEmptyString,
    /// From this time on, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub since: Option<f64>,
}

/// Level of a console entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleLevel {
    /// `console.log`.
    Log,
    /// `console.info`.
    Info,
    /// `console.warn`.
    Warn,
    /// `console.error`.
    Error,
    /// `console.debug`.
    Debug,
}

/// What a page logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct ConsoleEntry {
    /// Level.
    pub level: ConsoleLevel,
    /// Text.
    pub text: String,
    /// When, milliseconds since the epoch.
    pub timestamp: f64,
}

/// `computer.browser.console`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserConsoleResult {
    /// Oldest first.
    pub entries: Vec<ConsoleEntry>,
}

/// What a page requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct NetworkEntry {
    /// Method.
    pub method: String,
    /// Address.
    pub url: String,
    /// Status; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub status: Option<f64>,
    /// When, milliseconds since the epoch.
    pub timestamp: f64,
}

/// `computer.browser.network`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserNetworkResult {
    /// Oldest first.
    pub entries: Vec<NetworkEntry>,
}

/// `computer.browser.eval`, parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserEvalParams {
    /// The session.
    pub session_id: NonEmptyString,
    /// What to run.
    pub expression: String,
}

/// `computer.browser.eval`, result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
pub struct BrowserEvalResult {
    /// Its value.
    pub value: RawJson,
}

objects!(
    OpenBrowserParams,
    OpenDesktopParams,
    SessionResult,
    SessionParams,
    BrowserNavigateParams,
    BrowserUrlResult,
    BrowserTitleResult,
    BrowserScreenshotParams,
    BrowserSinceParams,
    ConsoleEntry,
    BrowserConsoleResult,
    NetworkEntry,
    BrowserNetworkResult,
    BrowserEvalParams,
    BrowserEvalResult
);
