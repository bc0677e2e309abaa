use trestle_contract::pool::{GrantedClaim, Offer, RunsOn};

use crate::RunnerError;
use crate::work_directory::is_plain;

/// Whether an offer is one that this machine may claim. A control plane that offers something else is confused,
/// and a claim would only take the run away from who should have it.
pub(crate) fn check(offer: &Offer, pool: &str, labels: Option<&[String]>) -> Result<(), RunnerError> {
    let wrong = |place: &str, problem: String| {
        Err(RunnerError::InvalidAnswer {
            what: "poll response",
            problem: format!("assignment.{place}: {problem}"),
        })
    };
    let id = offer.assignment_id.as_str();
    if matches!(id, "." | "..") {
        return wrong("assignment_id", format!("{id:?} would change the address of the claim"));
    }
    let RunsOn::SelfHosted(wanted) = &offer.runs_on else { return Ok(()) };
    if wanted.pool.as_str() != pool {
        return wrong("runs_on.pool", format!("{:?} is not this runner's pool", wanted.pool.as_str()));
    }
    let missing = wanted
        .labels
        .iter()
        .flatten()
        .find(|wanted| labels.is_some_and(|own| !own.iter().any(|label| label == wanted.as_str())));
    match missing {
        Some(label) => wrong("runs_on.labels", format!("this runner has no label {:?}", label.as_str())),
        None => Ok(()),
    }
}

/// Whether a claim is for the run that was offered, by an id that can be used in addresses and paths.
pub(crate) fn check_claim(claim: &GrantedClaim, offer: &Offer) -> Result<(), RunnerError> {
    let wrong = |problem: String| {
        Err(RunnerError::InvalidAnswer { what: "claim response", problem: format!("run_id: {problem}") })
    };
    if claim.run_id != offer.run_id {
        return wrong(format!(
            "{:?} was offered, {:?} is claimed",
            offer.run_id.as_str(),
            claim.run_id.as_str()
        ));
    }
    if !is_plain(claim.run_id.as_str()) {
        return wrong(format!("{:?} is no id of letters, digits, `_` and `-`", claim.run_id.as_str()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer(assignment: &str, run: &str, runs_on: serde_json::Value) -> Offer {
        let offer = json!({ "assignment_id": assignment, "run_id": run, "org_id": "o", "runs_on": runs_on, "queued_at": 1 });
        serde_json::from_value(offer).unwrap()
    }

    fn claim(run: &str) -> GrantedClaim {
        let body = json!({
            "lease_id": "l", "run_id": run, "lease_expires_at": 1, "env": {}, "byo_providers": [],
            "control_plane": { "base_url": "http://x", "run_token": "r", "api_token": "a" },
        });
        GrantedClaim::from_older_body(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_offer_for_another_pool_or_other_labels_is_not_claimed() {
        let own = ["gpu".to_owned(), "eu".to_owned()];
        let gpu = json!({ "kind": "self-hosted", "pool": "p", "labels": ["gpu"] });
        check(&offer("a", "r", gpu.clone()), "p", Some(&own)).unwrap();
        check(&offer("a/b c", "r", json!("boardwalk/linux")), "p", Some(&own)).unwrap();
        check(&offer("a", "r", json!({ "kind": "self-hosted", "pool": "p" })), "p", Some(&[])).unwrap();
        // Labels that nobody noted cannot be missed.
        check(&offer("a", "r", gpu.clone()), "p", None).unwrap();
        for (given, labels) in [(&gpu, &own[1..]), (&gpu, &[][..])] {
            let error = check(&offer("a", "r", given.clone()), "p", Some(labels)).unwrap_err();
            assert!(error.to_string().contains("assignment.runs_on.labels"), "{error}");
        }
        let error = check(&offer("a", "r", gpu), "q", Some(&own)).unwrap_err();
        assert!(error.to_string().contains("assignment.runs_on.pool"), "{error}");
        for dots in [".", ".."] {
            let error = check(&offer(dots, "r", json!("x")), "p", None).unwrap_err();
            assert!(error.to_string().contains("assignment.assignment_id"), "{error}");
        }
    }

    #[test]
    fn a_claim_is_for_the_run_that_was_offered_and_its_id_is_harmless() {
        let offered = |run: &str| offer("a", run, json!("x"));
        check_claim(&claim("01R-x_9"), &offered("01R-x_9")).unwrap();
        let error = check_claim(&claim("02"), &offered("01")).unwrap_err();
        assert!(error.to_string().starts_with("Invalid claim response:\n  run_id: "), "{error}");
        for hostile in ["..", ".", "a/b", "../../etc", "a\0b", "a b", "é"] {
            check_claim(&claim(hostile), &offered(hostile)).unwrap_err();
        }
    }
}
