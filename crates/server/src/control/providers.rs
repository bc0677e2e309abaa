//! Model providers of a run (docs/protocol/control.md §7.7).

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::control::ProvidersResponse;

use super::held;
use crate::auth::RunAuth;
use crate::body::Reply;
use crate::failure::Answer;
use crate::providers;
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::run(
            Method::GET,
            "/runner/v1/runs/{run}/inference/providers",
            "Model providers that the run process may call itself",
        )
        .answers::<ProvidersResponse>(StatusCode::OK),
        list,
    );
}

async fn list(FromState(state): FromState<State>, auth: RunAuth) -> Answer<Reply<ProvidersResponse>> {
    held(&state, &auth).await?;
    Ok(Reply::ok(ProvidersResponse { providers: providers::listed_for(&state, auth.run()).await? }))
}
