//! Whether the server lives, and whether it can serve.

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::Reply;
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

/// Answer of the health calls.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: String,
    /// Version of the server.
    version: String,
}

pub(crate) fn routes(table: &mut Table) {
    table.add(
        Route::open(Method::GET, "/healthz", "Tells that the process lives")
            .answers::<Health>(StatusCode::OK),
        alive,
    );
    table.add(
        Route::open(Method::GET, "/readyz", "Tells that the store can be read and written")
            .answers::<Health>(StatusCode::OK),
        ready,
    );
}

fn healthy(state: &State) -> Reply<Health> {
    Reply::ok(Health { status: "ok".to_owned(), version: state.config().version.clone() })
}

async fn alive(FromState(state): FromState<State>) -> Reply<Health> {
    healthy(&state)
}

async fn ready(FromState(state): FromState<State>) -> Answer<Reply<Health>> {
    if state.shutdown().is_cancelled() {
        return Err(Failure::new(trestle_contract::ErrorCode::Unavailable, "the server is stopping"));
    }
    state.store().check().await?;
    Ok(healthy(&state))
}
