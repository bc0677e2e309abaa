//! The public API under `/v1` (docs/protocol/public-api.md).

mod account;
mod artifacts;
mod deploy;
mod events;
mod providers;
mod runners;
mod runs;
mod secrets;
mod workflows;

use crate::failure::{Answer, Failure};
use crate::routes::Table;
use crate::state::State;

pub(crate) fn routes(table: &mut Table) {
    account::routes(table);
    workflows::routes(table);
    deploy::routes(table);
    runs::routes(table);
    events::routes(table);
    artifacts::routes(table);
    secrets::routes(table);
    providers::routes(table);
    runners::routes(table);
}

/// Refuses an organisation that is not the one of this installation.
fn check_organisation(state: &State, slug: &str) -> Answer<()> {
    let organisation = state.organisation();
    if slug == organisation.slug || slug == organisation.id {
        Ok(())
    } else {
        Err(Failure::not_found("organisation", slug)
            .hint(format!("this installation has one organisation: {}", organisation.slug)))
    }
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
