//! Who may call what. Every route names its access; the guard judges the
//! token before the handler, and before the body, is touched.

use axum::extract::{FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, header};
use trestle_contract::descriptor::{Grant, Manifest};
use trestle_contract::ids::{RunId, RunnerId};
use trestle_domain::{Admission, Call, RunTokenKind, TokenKind, admit, verify_token};
use trestle_store::{Fence, RunnerRow, StoreError, TokenHash};

use crate::body::discard;
use crate::failure::{Answer, Failure};
use crate::state::State;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: health, registration (its token is in the body), signed
    /// addresses (they carry their own proof).
    Open,
    /// The standing token of a runner.
    Runner,
    /// The run token of the run in the path.
    Run,
    /// The administrator, or a run's API token that reaches so far.
    Api(Reach),
}

/// How far a call of the public API reaches, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Asks only who calls.
    Identity,
    /// Reads workflows, runs and their events.
    Read,
    /// Starts and cancels runs.
    Trigger,
    /// Everything else.
    Administer,
}

/// The runner that calls.
#[derive(Debug, Clone)]
pub(crate) struct RunnerAuth(pub(crate) RunnerRow);

/// The run process that calls: the run and the epoch of its token. Whether
/// the epoch still holds the run is judged by the store, inside the
/// transaction that the call needs.
#[derive(Debug, Clone)]
pub(crate) struct RunAuth {
    run: RunId,
    epoch: u64,
}

impl RunAuth {
    /// The run.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// The proof that the store judges.
    pub(crate) fn fence(&self) -> Fence {
        Fence { run: self.run.clone(), epoch: self.epoch }
    }
}

/// Who calls the public API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiAuth {
    /// The administrator of the installation.
    Administrator,
    /// A run, by its own API token.
    Run {
        /// The run.
        run: RunId,
        /// How far its token reaches.
        reach: Reach,
    },
}

impl ApiAuth {
    /// The principal that idempotency keys belong to.
    pub(crate) fn principal(&self) -> String {
        match self {
            Self::Administrator => "administrator".to_owned(),
            Self::Run { run, .. } => format!("run:{run}"),
        }
    }
}

macro_rules! from_extensions {
    ($type:ty) => {
        impl FromRequestParts<State> for $type {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, Failure> {
                parts
                    .extensions
                    .get::<Self>()
                    .cloned()
                    .ok_or_else(|| Failure::internal("a handler asks for another access than its route"))
            }
        }
    };
}
from_extensions!(RunnerAuth);
from_extensions!(RunAuth);
from_extensions!(ApiAuth);

/// The guard in front of every route.
pub(crate) async fn guard(state: State, access: Access, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match judge(&state, access, &mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(failure) => {
            // The caller may still be sending; it shall read the refusal, not
            // a reset connection.
            discard(body).await;
            failure.into_response()
        }
    }
}

/// Judges the token, and puts who calls beside the request.
async fn judge(state: &State, access: Access, parts: &mut Parts) -> Answer<()> {
    match access {
        Access::Open => {}
        Access::Runner => {
            let auth = runner(state, &parts.headers).await?;
            parts.extensions.insert(auth);
        }
        Access::Run => {
            let auth = run(state, parts)?;
            parts.extensions.insert(auth);
        }
        Access::Api(reach) => {
            let auth = api(state, &parts.headers, reach).await?;
            parts.extensions.insert(auth);
        }
    }
    Ok(())
}

fn bearer(headers: &HeaderMap) -> Answer<&str> {
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or_else(|| {
            Failure::unauthorized("this call needs a token")
                .hint("send it as `Authorization: Bearer <token>`")
        })?
        .to_str()
        .map_err(|_| Failure::unauthorized("the Authorization header is not text"))?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(Failure::unauthorized("the Authorization header holds no bearer token")
            .hint("send it as `Authorization: Bearer <token>`"));
    }
    Ok(token)
}

fn wrong_kind(state: &State, token: &str, wanted: &str, hint: &str) -> Failure {
    let kind = if state.keys().is_admin(token) {
        "the administrator's token"
    } else {
        match TokenKind::of(token) {
            Some(TokenKind::Run) => "a run token",
            Some(TokenKind::Api) => "an API token",
            Some(TokenKind::Registration) => "a registration token",
            Some(TokenKind::Runner) => "a runner token",
            None => "another kind of token",
        }
    };
    Failure::unauthorized(format!("this call needs {wanted}, not {kind}")).hint(hint)
}

async fn runner(state: &State, headers: &HeaderMap) -> Answer<RunnerAuth> {
    const HINT: &str = "register the runner again: trestle runner token, then trestle runner register";
    let token = bearer(headers)?;
    if TokenKind::of(token) != Some(TokenKind::Runner) {
        return Err(wrong_kind(state, token, "a runner token", HINT));
    }
    match state.store().runner_by_token(TokenHash::of(token)).await {
        Ok(row) => Ok(RunnerAuth(row)),
        Err(StoreError::NotFound(_)) => {
            Err(Failure::unauthorized("the runner token is unknown: the runner was removed").hint(HINT))
        }
        Err(error) => Err(error.into()),
    }
}

/// The run and epoch of a derived token of this kind.
fn derived(state: &State, token: &str, kind: RunTokenKind) -> Option<RunAuth> {
    let token = verify_token(state.server_key(), token)?;
    (token.kind == kind).then_some(())?;
    Some(RunAuth { run: RunId::new(token.run).ok()?, epoch: token.epoch })
}

fn run(state: &State, parts: &Parts) -> Answer<RunAuth> {
    const HINT: &str = "the run process gets its run token with the claim of its assignment";
    let token = bearer(&parts.headers)?;
    if TokenKind::of(token) != Some(TokenKind::Run) {
        return Err(wrong_kind(state, token, "a run token", HINT));
    }
    let auth = derived(state, token, RunTokenKind::Run)
        .ok_or_else(|| Failure::unauthorized("the run token is unknown").hint(HINT))?;
    if path_run(parts)? != auth.run.as_str() {
        return Err(Failure::forbidden("the run token belongs to another run"));
    }
    Ok(auth)
}

/// The run id of a control path, decoded.
fn path_run(parts: &Parts) -> Answer<String> {
    let segment = parts
        .uri
        .path()
        .strip_prefix("/runner/v1/runs/")
        .and_then(|rest| rest.split('/').next())
        .ok_or_else(|| Failure::internal("a run route without a run in its path"))?;
    Ok(percent_encoding::percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| Failure::invalid("the run id is not UTF-8"))?
        .into_owned())
}

async fn api(state: &State, headers: &HeaderMap, needed: Reach) -> Answer<ApiAuth> {
    const HINT: &str = "the administrator's token is in the file admin-token of the data directory";
    let token = bearer(headers)?;
    if state.keys().is_admin(token) {
        return Ok(ApiAuth::Administrator);
    }
    if TokenKind::of(token) != Some(TokenKind::Api) {
        return Err(wrong_kind(state, token, "an API token", HINT));
    }
    let auth = derived(state, token, RunTokenKind::Api)
        .ok_or_else(|| Failure::unauthorized("the token is unknown").hint(HINT))?;
    let ended = || Failure::unauthorized("the API token ended with the lease of its run").hint(HINT);
    match state.store().access(&auth.fence()).await {
        Ok(access) if admit(&access, Call::Ordinary, state.now()) == Admission::Allow => {}
        Ok(_) | Err(StoreError::NotFound(_)) => return Err(ended()),
        Err(error) => return Err(error.into()),
    }
    let reach = reach_of(state, &auth.run).await?;
    if reach < needed {
        return Err(Failure::forbidden("the API token of this run does not reach this call").hint(
            match needed {
                Reach::Administer => "only the administrator may do this",
                _ => "the workflow's permissions.contents decides what its API token reaches",
            },
        ));
    }
    Ok(ApiAuth::Run { run: auth.run, reach })
}

/// How far a run's API token reaches: what `permissions.contents` of its
/// workflow says, reading when it says nothing.
async fn reach_of(state: &State, run: &RunId) -> Answer<Reach> {
    let run = state.store().run(run).await?;
    let version = state.store().version(&run.version).await?;
    let manifest: Manifest = version.manifest.decode().map_err(Failure::internal)?;
    let contents = manifest.descriptor.permissions.and_then(|permissions| permissions.contents);
    Ok(match contents {
        Some(Grant::None) => Reach::Identity,
        Some(Grant::Read) | None => Reach::Read,
        Some(Grant::Write) => Reach::Trigger,
    })
}

/// The id of a runner, for handlers that need no more of it.
impl RunnerAuth {
    pub(crate) fn id(&self) -> &RunnerId {
        &self.0.id
    }
}
