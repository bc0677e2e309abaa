//! The Runner Control API: what one run process asks of the control plane
//! (docs/protocol/control.md).

mod artifacts;
mod children;
mod later;
mod lifecycle;
mod metering;
mod providers;
mod secrets;

use trestle_domain::{Admission, Call, admit};
use trestle_store::{Conflict, StoreError, VersionRow};

use crate::auth::RunAuth;
use crate::failure::{Answer, Failure};
use crate::routes::Table;
use crate::state::State;

pub(crate) use artifacts::neutral_type;
pub(crate) use secrets::place as secret_place;

pub(crate) fn routes(table: &mut Table) {
    lifecycle::routes(table);
    metering::routes(table);
    secrets::routes(table);
    providers::routes(table);
    artifacts::routes(table);
    children::routes(table);
    later::routes(table);
}

/// Refuses a session that no longer holds its run. Calls that change
/// something are judged again by the store, inside their transaction.
async fn held(state: &State, auth: &RunAuth) -> Answer<()> {
    let access = state.store().access(&auth.fence()).await?;
    match admit(&access, Call::Ordinary, state.now()) {
        Admission::Allow => Ok(()),
        Admission::Unknown => Err(Failure::unauthorized("the run token is unknown")),
        Admission::Repeat | Admission::Cancel(_) | Admission::Conflict => {
            Err(StoreError::from(Conflict::Displaced).into())
        }
    }
}

/// The pinned version of the calling run.
async fn pinned(state: &State, auth: &RunAuth) -> Answer<VersionRow> {
    let run = state.store().run(auth.run()).await?;
    Ok(state.store().version(&run.version).await?)
}
