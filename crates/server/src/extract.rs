//! Path and query of a request, refused with an envelope when they do not
//! fit.

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::state::State;

/// The parameters of the path, decoded.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<State> for Segments<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        Path::<T>::from_request_parts(parts, state)
            .await
            .map(|Path(value)| Self(value))
            .map_err(|rejection| Failure::invalid(format!("the path does not fit: {rejection}")))
    }
}

/// The parameters of the query.
#[derive(Debug)]
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<State> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, Failure> {
        Query::<T>::try_from_uri(&parts.uri)
            .map(|Query(value)| Self(value))
            .map_err(|rejection| Failure::invalid(format!("the query does not fit: {rejection}")))
    }
}
