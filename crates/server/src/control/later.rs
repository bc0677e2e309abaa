//! Rows of the Runner Control API whose engine does not exist yet. Each
//! answers what makes a run process go on in the best way, with the shape
//! that the finished row will have (docs/protocol/control.md §16).

use axum::extract::State as FromState;
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use trestle_contract::control::{
    GateAnswers, HydrateUrlResponse, InputRegistered, InputRequest, JournalLookup, JournalPut,
    LiveviewRequest, LiveviewWanted, MAX_PACK_DIGESTS, ManifestReadRequest, ManifestReadResponse,
    ManifestWriteRequest, ManifestWriteResponse, McpTokenRequest, McpTokenResponse, OidcTokenRequest,
    OidcTokenResponse, PackDeleteRequest, PackDigests, PackExistsResponse, PackPresignRequest,
    PackPresignResponse, PersistUrlRequest, PersistUrlResponse, ReserveRequest, ReserveResponse,
    ScheduleCreated, ScheduleRequest, SuspendRequest, WebSearchRequest, WebSearchResponse,
};
use trestle_contract::{Digest, ErrorCode, Positive};

use super::held;
use crate::auth::RunAuth;
use crate::body::{Json, Reply};
use crate::extract::Segments;
use crate::failure::{Answer, Failure, shown};
use crate::routes::{BodySize, Route, Table};
use crate::state::State;

/// What a row answers until its engine exists.
#[derive(Clone)]
enum Interim {
    /// A body that means "nothing there" or "not for you".
    Body(serde_json::Value),
    /// Taken and dropped.
    Empty,
    /// Refused.
    Refused(ErrorCode, &'static str, &'static str),
}

pub(super) fn routes(table: &mut Table) {
    machines(table);
    tokens(table);
    workspace(table);
    waits(table);
}

/// A row whose body is read as `T` before it is answered.
fn add<T>(table: &mut Table, route: Route, interim: Interim)
where
    T: DeserializeOwned + Send + 'static,
{
    add_checked::<T>(table, route, |_| Ok(()), interim);
}

/// The same, with a rule that the type does not express.
fn add_checked<T>(table: &mut Table, route: Route, check: fn(&T) -> Answer<()>, interim: Interim)
where
    T: DeserializeOwned + Send + 'static,
{
    table.add(
        route.later(),
        move |FromState(state): FromState<State>, auth: RunAuth, Json(body): Json<T>| {
            let interim = interim.clone();
            async move {
                check(&body)?;
                answer(&state, &auth, interim).await
            }
        },
    );
}

/// A row that reads something, and takes no body.
fn add_reading(table: &mut Table, route: Route, interim: Interim) {
    table.add(route.later(), move |FromState(state): FromState<State>, auth: RunAuth| {
        let interim = interim.clone();
        async move { answer(&state, &auth, interim).await }
    });
}

/// A row that reads what has a sequence number.
fn add_numbered(table: &mut Table, route: Route, interim: Interim) {
    table.add(
        route.later(),
        move |FromState(state): FromState<State>,
              auth: RunAuth,
              Segments((_, seq)): Segments<(String, String)>| {
            let interim = interim.clone();
            async move {
                if !seq.parse::<u64>().is_ok_and(|seq| Positive::new(seq).is_ok()) {
                    return Err(Failure::invalid(format!(
                        "a sequence number is a whole number from 1 on, not `{}`",
                        shown(&seq)
                    )));
                }
                answer(&state, &auth, interim).await
            }
        },
    );
}

fn one_time(request: &ScheduleRequest) -> Answer<()> {
    let told = [request.cron.is_some(), request.rate.is_some(), request.at.is_some()];
    if told.into_iter().filter(|told| *told).count() == 1 {
        return Ok(());
    }
    Err(Failure::invalid("a schedule has exactly one of `cron`, `rate` and `at`"))
}

fn few_digests(digests: &[Digest]) -> Answer<()> {
    if digests.len() <= MAX_PACK_DIGESTS {
        return Ok(());
    }
    Err(Failure::invalid(format!("at most {MAX_PACK_DIGESTS} digests in one call")))
}

async fn answer(state: &State, auth: &RunAuth, interim: Interim) -> Answer<Response> {
    held(state, auth).await?;
    match interim {
        Interim::Body(body) => Ok(Reply::ok(body).into_response()),
        Interim::Empty => Ok(StatusCode::NO_CONTENT.into_response()),
        Interim::Refused(code, message, hint) => Err(Failure::new(code, message).hint(hint)),
    }
}

fn body(value: impl Serialize) -> Interim {
    Interim::Body(serde_json::to_value(value).unwrap_or_default())
}

fn unsupported(message: &'static str, hint: &'static str) -> Interim {
    Interim::Refused(ErrorCode::Unsupported, message, hint)
}

fn post<T: JsonSchema>(path: &'static str, summary: &'static str) -> Route {
    Route::run(Method::POST, path, summary).takes::<T>()
}

fn machines(table: &mut Table) {
    add::<LiveviewRequest>(
        table,
        post::<LiveviewRequest>("/runner/v1/runs/{run}/liveview", "Pictures of the desktop")
            .empty(StatusCode::NO_CONTENT),
        Interim::Empty,
    );
    add_reading(
        table,
        Route::run(
            Method::GET,
            "/runner/v1/runs/{run}/liveview/wanted",
            "Whether someone watches the desktop",
        )
        .answers::<LiveviewWanted>(StatusCode::OK),
        body(LiveviewWanted { wanted: false }),
    );
}

fn tokens(table: &mut Table) {
    add::<OidcTokenRequest>(
        table,
        post::<OidcTokenRequest>("/runner/v1/runs/{run}/oidc/token", "Mints an identity token")
            .answers::<OidcTokenResponse>(StatusCode::OK),
        unsupported(
            "this server does not mint identity tokens yet",
            "use a secret for the credential: permissions.secrets",
        ),
    );
    add::<McpTokenRequest>(
        table,
        post::<McpTokenRequest>("/runner/v1/runs/{run}/mcp/token", "A token for an MCP server")
            .answers::<McpTokenResponse>(StatusCode::OK),
        Interim::Refused(
            ErrorCode::Forbidden,
            "this server holds no connection to that MCP server",
            "pass the server's credential in the headers of the agent's mcp option",
        ),
    );
    add::<WebSearchRequest>(
        table,
        post::<WebSearchRequest>("/runner/v1/runs/{run}/tools/web_search", "Searches the web")
            .answers::<WebSearchResponse>(StatusCode::OK),
        unsupported("this server has no search provider yet", "give the agent an inline tool that searches"),
    );
}

fn workspace(table: &mut Table) {
    const HINT: &str = "write what must outlive the run as an artifact";
    add::<ReserveRequest>(
        table,
        post::<ReserveRequest>("/runner/v1/runs/{run}/workspace/reserve", "Reserves room")
            .answers::<ReserveResponse>(StatusCode::OK),
        body(json!({ "ok": false, "reason": "not_eligible" })),
    );
    add::<ManifestReadRequest>(
        table,
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/workspace/manifest/read",
            "The stored workspace manifest",
        )
        .answers::<ManifestReadResponse>(StatusCode::OK),
        body(json!({ "manifest": null, "generation": null })),
    );
    add::<ManifestWriteRequest>(
        table,
        post::<ManifestWriteRequest>(
            "/runner/v1/runs/{run}/workspace/manifest/write",
            "Replaces the workspace manifest",
        )
        .size(BodySize::Large)
        .answers::<ManifestWriteResponse>(StatusCode::OK),
        unsupported("this server does not store workspaces yet", HINT),
    );
    add_checked::<PackDigests>(
        table,
        post::<PackDigests>("/runner/v1/runs/{run}/workspace/packs/exists", "Which packs exist")
            .answers::<PackExistsResponse>(StatusCode::OK),
        |request| few_digests(&request.digests),
        body(json!({ "existing": [] })),
    );
    add_checked::<PackPresignRequest>(
        table,
        post::<PackPresignRequest>("/runner/v1/runs/{run}/workspace/packs/presign", "Addresses of packs")
            .answers::<PackPresignResponse>(StatusCode::OK),
        |request| few_digests(&request.digests),
        body(json!({ "urls": {} })),
    );
    add_checked::<PackDeleteRequest>(
        table,
        post::<PackDeleteRequest>("/runner/v1/runs/{run}/workspace/packs/delete", "Removes packs")
            .empty(StatusCode::NO_CONTENT),
        |request| few_digests(&request.digests),
        unsupported("this server does not store workspaces yet", HINT),
    );
    add_reading(
        table,
        Route::run(
            Method::POST,
            "/runner/v1/runs/{run}/workspace/hydrate-url",
            "Where to fetch the workspace of older run processes",
        )
        .answers::<HydrateUrlResponse>(StatusCode::OK),
        body(json!({ "url": null })),
    );
    add::<PersistUrlRequest>(
        table,
        post::<PersistUrlRequest>(
            "/runner/v1/runs/{run}/workspace/persist-url",
            "Where to store the workspace of older run processes",
        )
        .answers::<PersistUrlResponse>(StatusCode::OK),
        body(json!({ "url": null })),
    );
}

fn waits(table: &mut Table) {
    const GATES: &str = "decide in the program, or split the workflow at this point";
    const JOURNAL: &str = "this server holds the process during a wait";
    add_checked::<ScheduleRequest>(
        table,
        post::<ScheduleRequest>("/runner/v1/runs/{run}/schedules", "Schedules a workflow")
            .answers::<ScheduleCreated>(StatusCode::CREATED),
        one_time,
        unsupported(
            "this server does not schedule runs yet",
            "start the workflow with workflows.run when it is due",
        ),
    );
    add::<InputRequest>(
        table,
        post::<InputRequest>("/runner/v1/runs/{run}/inputs", "Opens a gate")
            .answers::<InputRegistered>(StatusCode::OK),
        unsupported("this server has no gates for people yet", GATES),
    );
    add_numbered(
        table,
        Route::run(Method::GET, "/runner/v1/runs/{run}/inputs/{seq}", "Answers of a gate")
            .answers::<GateAnswers>(StatusCode::OK),
        unsupported("this server has no gates for people yet", GATES),
    );
    add_numbered(
        table,
        Route::run(
            Method::GET,
            "/runner/v1/runs/{run}/journal/{seq}",
            "An entry of the journal of older run processes",
        )
        .answers::<JournalLookup>(StatusCode::OK),
        Interim::Refused(ErrorCode::NotFound, "the journal has no such entry", JOURNAL),
    );
    add::<JournalPut>(
        table,
        post::<JournalPut>("/runner/v1/runs/{run}/journal", "Writes an entry of the journal")
            .size(BodySize::Large)
            .empty(StatusCode::NO_CONTENT),
        unsupported("this server keeps no journal yet", JOURNAL),
    );
    add::<SuspendRequest>(
        table,
        post::<SuspendRequest>("/runner/v1/runs/{run}/suspend", "Parks the run")
            .size(BodySize::Large)
            .empty(StatusCode::NO_CONTENT),
        unsupported("this server does not park runs yet", JOURNAL),
    );
}
