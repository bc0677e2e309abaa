use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ByoProvider, ClaimResponse, ControlPlane};
use crate::bounds::EpochMs;
use crate::ids::{EnvironmentId, LeaseId, RunId, WorkflowId};
use crate::tolerant::nullable;

/// What a claim handed over, whatever the age of the control plane that answered it
/// (`docs/protocol/pool.md` §11.1).
#[derive(Debug, Clone, PartialEq)]
pub struct GrantedClaim {
    /// The lease now held.
    pub lease_id: LeaseId,
    /// The run.
    pub run_id: RunId,
    /// Where the run keeps what outlives it; control planes of before persistence name none.
    pub scope: Option<PersistenceScope>,
    /// First expiry of the assignment lease.
    pub lease_expires_at: EpochMs,
    /// How the run process reaches the control plane.
    pub control_plane: ControlPlane,
    /// Resolved environment of the run.
    pub env: BTreeMap<String, String>,
    /// Model providers that the run process may call itself.
    pub byo_providers: Vec<ByoProvider>,
}

/// The three parts of a persistence scope, as they came: none of them is a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistenceScope {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The environment; `None` is the base scope.
    pub environment_id: Option<EnvironmentId>,
    /// The resolved `workspace.key`; `None` is the single scope.
    pub workspace_key: Option<String>,
}

/// The keys of before keyed workspaces.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfUnkeyedWorkspaces {
    lease_id: LeaseId,
    run_id: RunId,
    workflow_id: WorkflowId,
    #[serde(deserialize_with = "nullable")]
    environment_id: Option<EnvironmentId>,
    lease_expires_at: EpochMs,
    control_plane: ControlPlane,
    env: BTreeMap<String, String>,
    byo_providers: Vec<ByoProvider>,
}

/// The keys of before persistence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNoPersistence {
    lease_id: LeaseId,
    run_id: RunId,
    lease_expires_at: EpochMs,
    control_plane: ControlPlane,
    env: BTreeMap<String, String>,
    byo_providers: Vec<ByoProvider>,
}

impl GrantedClaim {
    /// Reads an answer whose keys are exactly those of one of the two older revisions.
    #[must_use]
    pub fn from_older_body(body: &[u8]) -> Option<Self> {
        if let Ok(claim) = serde_json::from_slice::<OfUnkeyedWorkspaces>(body) {
            return Some(Self {
                lease_id: claim.lease_id,
                run_id: claim.run_id,
                scope: Some(PersistenceScope {
                    workflow_id: claim.workflow_id,
                    environment_id: claim.environment_id,
                    workspace_key: None,
                }),
                lease_expires_at: claim.lease_expires_at,
                control_plane: claim.control_plane,
                env: claim.env,
                byo_providers: claim.byo_providers,
            });
        }
        let claim = serde_json::from_slice::<OfNoPersistence>(body).ok()?;
        Some(Self {
            lease_id: claim.lease_id,
            run_id: claim.run_id,
            scope: None,
            lease_expires_at: claim.lease_expires_at,
            control_plane: claim.control_plane,
            env: claim.env,
            byo_providers: claim.byo_providers,
        })
    }
}

impl From<ClaimResponse> for GrantedClaim {
    fn from(claim: ClaimResponse) -> Self {
        Self {
            lease_id: claim.lease_id,
            run_id: claim.run_id,
            scope: Some(PersistenceScope {
                workflow_id: claim.workflow_id,
                environment_id: claim.environment_id,
                workspace_key: claim.workspace_key,
            }),
            lease_expires_at: claim.lease_expires_at,
            control_plane: claim.control_plane,
            env: claim.env,
            byo_providers: claim.byo_providers,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body(without: &[&str]) -> Value {
        let mut body = json!({
            "lease_id": "01L", "run_id": "01R", "workflow_id": "01W", "environment_id": null,
            "workspace_key": "k", "lease_expires_at": 1, "env": { "A": "b" }, "byo_providers": [],
            "control_plane": { "base_url": "https://api.x", "run_token": "r", "api_token": "a" },
        });
        for key in without {
            body.as_object_mut().unwrap().remove(*key);
        }
        body
    }

    fn older(body: &Value) -> Option<GrantedClaim> {
        GrantedClaim::from_older_body(body.to_string().as_bytes())
    }

    #[test]
    fn claims_of_older_revisions_are_read_with_exactly_their_keys() {
        let unkeyed = older(&body(&["workspace_key"])).unwrap();
        assert_eq!(unkeyed.scope.unwrap().workflow_id.as_str(), "01W");
        let bare = older(&body(&["workspace_key", "workflow_id", "environment_id"])).unwrap();
        assert_eq!((bare.scope, bare.env["A"].as_str()), (None, "b"));
        // Every mixture of revisions is none of them.
        assert_eq!(older(&body(&["workflow_id"])), None);
        assert_eq!(older(&body(&["environment_id", "workspace_key"])), None);
        assert_eq!(older(&body(&["workspace_key", "env"])), None);
        let mut more = body(&["workspace_key"]);
        more["extra"] = json!(1);
        assert_eq!(older(&more), None);
        let mut null = body(&["workspace_key"]);
        null["env"] = Value::Null;
        assert_eq!(older(&null), None);
    }

    #[test]
    fn a_claim_of_today_keeps_its_whole_scope() {
        let today: ClaimResponse = serde_json::from_value(body(&[])).unwrap();
        let scope = GrantedClaim::from(today).scope.unwrap();
        assert_eq!((scope.environment_id, scope.workspace_key.as_deref()), (None, Some("k")));
    }
}
