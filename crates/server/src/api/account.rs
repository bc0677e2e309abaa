//! Who calls (docs/protocol/public-api.md §4).

use axum::extract::State as FromState;
use http::{Method, StatusCode};
use trestle_contract::api::{Me, MeUser, Membership, Role};
use trestle_contract::ids::{Slug, UserId};

use crate::auth::{ApiAuth, Reach};
use crate::body::Reply;
use crate::failure::{Answer, Failure};
use crate::routes::{Route, Table};
use crate::state::State;

pub(super) fn routes(table: &mut Table) {
    table.add(
        Route::api(Method::GET, "/v1/me", Reach::Identity, "Who calls, and where it belongs")
            .answers::<Me>(StatusCode::OK),
        me,
    );
}

async fn me(FromState(state): FromState<State>, auth: ApiAuth) -> Answer<Reply<Me>> {
    let organisation = state.organisation();
    let (id, name, role) = match &auth {
        ApiAuth::Administrator => ("administrator".to_owned(), "Administrator".to_owned(), Role::Owner),
        ApiAuth::Run { run, reach } => {
            let role = match reach {
                Reach::Identity | Reach::Read => Role::Viewer,
                Reach::Trigger | Reach::Administer => Role::Member,
            };
            (format!("run:{run}"), format!("Run {run}"), role)
        }
    };
    // A token of a program belongs to nobody with a mailbox.
    let email = format!("{}@{}.invalid", id.replace(':', "-"), organisation.slug);
    Ok(Reply::ok(Me {
        user: MeUser { id: UserId::new(id).map_err(Failure::internal)?, email, name: Some(name) },
        memberships: vec![Membership {
            org_id: state.organisation_id()?,
            slug: Slug::new(organisation.slug.clone()).map_err(Failure::internal)?,
            role,
            name: Some("Local".to_owned()),
            plan: None,
        }],
    }))
}
