//! The capabilities, one module each.

mod agent;
mod artifacts;
mod session;
mod shell;
mod sleep;
mod workflows;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use trestle_contract::host::{
    AgentParams, BrowserEvalParams, BrowserNavigateParams, BrowserScreenshotParams, BrowserSinceParams,
    CallParams, Empty, HumanInputParams, IdTokenParams, Method, OpenBrowserParams, OpenDesktopParams,
    ReportReturnParams, RequestId, ScheduleParams, SecretGetParams, SessionParams, ShellParams, SleepParams,
};
use trestle_contract::{ErrorCode, RawJson};

use super::connection::Peer;
use super::framing::LineBytes;
use super::{Capabilities, HostFailure, explain};

use artifacts::ArtifactSource;
pub(crate) use artifacts::large_artifact;
pub(crate) use session::resolve_secret;

/// The parameters of a request.
pub(crate) enum Request {
    /// As they were sent.
    Params(Option<RawJson>),
    /// A whole line that is too large for memory: an artifact.
    Large(LineBytes),
}

/// A call whose parameters fit its method.
pub(crate) enum Call {
    Bootstrap,
    ReportReturn(ReportReturnParams),
    Agent {
        params: Box<AgentParams>,
        call_id: String,
        number: u64,
    },
    ChildResult {
        params: CallParams,
        ordinal: u64,
    },
    ChildStart {
        params: CallParams,
        ordinal: u64,
    },
    Sleep(SleepParams),
    Secret(SecretGetParams),
    Artifact(ArtifactSource),
    Shell(ShellParams),
    ApiToken,
    Usage,
    /// Known, and not available here.
    Unavailable {
        what: &'static str,
        hint: &'static str,
    },
}

fn read<P: DeserializeOwned>(method: Method, params: Option<RawJson>) -> Result<P, HostFailure> {
    explain::read(method, params.as_ref())
}

impl Capabilities {
    /// Checks the parameters and fixes what depends on the order of calls.
    pub(super) fn prepare(
        &self,
        method: Method,
        id: &RequestId,
        request: Request,
    ) -> Result<Call, HostFailure> {
        let params = match request {
            Request::Large(line) => return Ok(Call::Artifact(ArtifactSource::Line(line))),
            Request::Params(params) => params,
        };
        let unavailable = |what, hint| Ok(Call::Unavailable { what, hint });
        match method {
            Method::Bootstrap => read::<Empty>(method, params).map(|_| Call::Bootstrap),
            Method::ReportReturn => read(method, params).map(Call::ReportReturn),
            Method::Agent => {
                let params = Box::new(read(method, params)?);
                Ok(Call::Agent { params, call_id: id.to_string(), number: self.next_agent() })
            }
            Method::WorkflowsCall => {
                let params: CallParams = read(method, params)?;
                let ordinal = self.next_ordinal(&params)?;
                Ok(Call::ChildResult { params, ordinal })
            }
            Method::WorkflowsRun => {
                let params: CallParams = read(method, params)?;
                let ordinal = self.next_ordinal(&params)?;
                Ok(Call::ChildStart { params, ordinal })
            }
            Method::Sleep => read(method, params).map(Call::Sleep),
            Method::SecretsGet => read(method, params).map(Call::Secret),
            Method::ArtifactsWrite => {
                read(method, params).map(|params| Call::Artifact(ArtifactSource::Params(params)))
            }
            Method::Shell => read(method, params).map(Call::Shell),
            Method::AuthApiToken => read::<Empty>(method, params).map(|_| Call::ApiToken),
            Method::UsageGet => read::<Empty>(method, params).map(|_| Call::Usage),
            Method::WorkflowsSchedule => {
                read::<ScheduleParams>(method, params)?;
                unavailable(
                    "workflows.schedule",
                    "start the workflow with workflows.run, or give it a cron trigger",
                )
            }
            Method::HumanInput => {
                read::<HumanInputParams>(method, params)?;
                unavailable("humanInput", "pass the decision as input of the run")
            }
            Method::AuthIdToken => {
                read::<IdTokenParams>(method, params)?;
                unavailable("auth.idToken", "store a credential as a secret and read it with secrets.get")
            }
            _ => {
                check_computer_params(method, params)?;
                unavailable(method.as_str(), "there is no browser and no desktop on this runner")
            }
        }
    }

    /// Does what was asked for, unless the run is being ended.
    pub(super) async fn execute(
        self: &Arc<Self>,
        call: Call,
        peer: &Arc<Peer>,
    ) -> Result<RawJson, HostFailure> {
        if self.is_draining.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(HostFailure::new(ErrorCode::ConnectionClosed, "the program has ended"));
        }
        self.check_alive()?;
        let _in_flight = self.activity.begin(matches!(call, Call::ChildResult { .. }));
        match call {
            // An agent ends itself in order: it still has to say that its turn is over.
            Call::Agent { params, call_id, number } => self.agent(*params, call_id, number, peer).await,
            // A command's tree is ended before the call is.
            Call::Shell(params) => self.shell(params).await,
            call => match self.abort.race(self.perform(call, peer)).await {
                Ok(result) => result,
                Err(reason) => Err(HostFailure::aborted(reason)),
            },
        }
    }

    async fn perform(&self, call: Call, peer: &Arc<Peer>) -> Result<RawJson, HostFailure> {
        match call {
            Call::Bootstrap => self.bootstrap(peer),
            Call::ReportReturn(params) => self.report_return(params, peer),
            Call::ChildResult { params, ordinal } => encoded(&self.call_workflow(params, ordinal).await?),
            Call::ChildStart { params, ordinal } => encoded(&self.run_workflow(params, ordinal).await?),
            Call::Sleep(params) => {
                self.sleep(params).await?;
                encoded(&Empty {})
            }
            Call::Secret(params) => encoded(&self.secret(params).await?),
            Call::Artifact(source) => encoded(&self.write_artifact(source).await?),
            Call::ApiToken => encoded(&self.api_token()?),
            Call::Usage => encoded(&self.budget.snapshot()),
            Call::Unavailable { what, hint } => {
                Err(HostFailure::new(ErrorCode::Unsupported, format!("{what} is not available here"))
                    .with_hint(hint))
            }
            Call::Agent { .. } | Call::Shell(_) => {
                Err(HostFailure::internal("this call is handled elsewhere"))
            }
        }
    }
}

fn check_computer_params(method: Method, params: Option<RawJson>) -> Result<(), HostFailure> {
    match method {
        Method::OpenBrowser => read::<OpenBrowserParams>(method, params).map(drop),
        Method::OpenDesktop => read::<OpenDesktopParams>(method, params).map(drop),
        Method::BrowserNavigate => read::<BrowserNavigateParams>(method, params).map(drop),
        Method::BrowserScreenshot => read::<BrowserScreenshotParams>(method, params).map(drop),
        Method::BrowserConsole | Method::BrowserNetwork => {
            read::<BrowserSinceParams>(method, params).map(drop)
        }
        Method::BrowserEval => read::<BrowserEvalParams>(method, params).map(drop),
        _ => read::<SessionParams>(method, params).map(drop),
    }
}

fn encoded<T: serde::Serialize>(value: &T) -> Result<RawJson, HostFailure> {
    RawJson::encode(value).map_err(|error| HostFailure::internal(error.to_string()))
}
