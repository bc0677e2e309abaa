//! The host protocol: JSON-RPC lines between a program and the process that runs it (`docs/protocol/host.md`).
//!
//! Every object is closed. [`HostFrame`] reads and writes lines; parameters and results are typed per method and
//! read from the frame's raw text, so that program JSON survives byte for byte.

mod computer;
mod context;
mod frame;
mod methods;
mod options;

pub use computer::{
    BrowserConsoleResult, BrowserEvalParams, BrowserEvalResult, BrowserNavigateParams, BrowserNetworkResult,
    BrowserScreenshotParams, BrowserSinceParams, BrowserTitleResult, BrowserUrlResult, ConsoleEntry,
    ConsoleLevel, NetworkEntry, OpenBrowserParams, OpenDesktopParams, ScreenshotResult, SessionParams,
    SessionResult,
};
pub use context::{
    Actor, BootstrapResult, Context, ContextEnvironment, Trigger, TriggerKind, TriggerRequest,
    sdk_knows_trigger_request,
};
pub use frame::{FrameError, HostErrorBody, HostFrame, RequestId};
pub use methods::{
    AgentParams, AgentResult, ArtifactBody, ArtifactRef, ArtifactWriteParams, ArtifactWriteResult, CANCEL,
    CallOpts, CallParams, CallResult, CancelParams, Empty, HumanInputParams, HumanInputReply, IdTokenParams,
    Method, PHASE, PhaseOpts, PhaseParams, ReportReturnParams, ScheduleOpts, ScheduleParams, ScheduleResult,
    SecretGetParams, SecretGetResult, ShellOpts, ShellParams, ShellResult, SleepArg, SleepParams,
    TOOL_CANCEL, TOOL_INVOKE, TokenResult, ToolCancelParams, ToolInvokeParams, ToolInvokeResult,
    UsageDimension, UsageSnapshot, WorkflowRunResult,
};
pub use options::{
    AgentOpts, Attachment, BrowserGrounding, BrowserOpts, Builtins, BuiltinsPreset, DesktopGrounding,
    DesktopOpts, HumanInputOpts, HumanInputResult, HumanInputSpec, InlineTool, McpServer, OnTimeout,
    OnTimeoutFail, ReasoningOption, ReasoningSettings, Viewport,
};
