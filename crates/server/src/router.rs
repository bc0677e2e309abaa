//! All routes of all surfaces.

use axum::Router;
use axum::response::IntoResponse as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::failure::Failure;
use crate::routes::Table;
use crate::state::State;
use crate::{api, blobs, control, health, pool};

/// Adds the routes of every surface.
pub(crate) fn add_all(table: &mut Table) {
    health::routes(table);
    pool::routes(table);
    control::routes(table);
    api::routes(table);
    blobs::routes(table);
}

/// The router that serves `state`.
pub(crate) fn build(state: State) -> Router {
    let mut table = Table::serving(state);
    add_all(&mut table);
    table.into_router().layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send + 'static>| {
        Failure::internal("a handler panicked").into_response()
    }))
}
