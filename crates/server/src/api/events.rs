//! Events of a run: the list and the live stream
//! (docs/protocol/public-api.md §7.7 and §7.8).

use axum::extract::State as FromState;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use trestle_contract::api::EventList;

use super::runs::run_row;
use crate::auth::Reach;
use crate::extract::{Parameters, Segments};
use crate::failure::{Answer, Failure, shown};
use crate::routes::{Route, Table};
use crate::state::State;
use crate::stream::{self, Channels};

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::GET, "/v1/runs/{run}/events", Reach::Read, "All events of a run")
            .query("since", "Only events after this cursor")
            .query("channels", "Only these channels, separated by commas")
            .query("limit", "At most so many events")
            .answers::<EventList>(StatusCode::OK),
        list,
    );
    table.add(
        Route::api(Method::GET, "/v1/runs/{run}/stream", Reach::Read, "The events of a run as they happen")
            .query("since", "Only events after this cursor")
            .query("channels", "Only these channels, separated by commas")
            .header("last-event-id", "Only events after this cursor")
            .streams("text/event-stream"),
        live,
    );
}

#[derive(Deserialize)]
struct ListQuery {
    since: Option<String>,
    channels: Option<String>,
    limit: Option<String>,
}

async fn list(
    FromState(state): FromState<State>,
    Segments(run): Segments<String>,
    Parameters(query): Parameters<ListQuery>,
) -> Answer<Response> {
    let row = run_row(&state, &run).await?;
    let channels = Channels::parse(query.channels.as_deref())?;
    let after = stream::resume_point("since", query.since.as_deref())?;
    let limit = query
        .limit
        .map(|text| {
            text.parse().map_err(|_| {
                Failure::invalid(format!("limit must be a whole number, not `{}`", shown(&text)))
            })
        })
        .transpose()?;
    Ok(stream::list(state, row.id, after, channels, limit))
}

#[derive(Deserialize)]
struct StreamQuery {
    since: Option<String>,
    channels: Option<String>,
}

async fn live(
    FromState(state): FromState<State>,
    Segments(run): Segments<String>,
    Parameters(query): Parameters<StreamQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    // Everything that can be refused is refused before the stream begins.
    let row = run_row(&state, &run).await?;
    let channels = Channels::parse(query.channels.as_deref())?;
    let after = stream::stream_resume_point(&headers, query.since.as_deref())?;
    Ok(stream::live(state, row.id, after, channels))
}
