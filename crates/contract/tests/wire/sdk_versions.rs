//! What a program of an older SDK is given (`docs/protocol/host.md` §4.1).

use std::collections::BTreeMap;

use trestle_contract::control::{RunActor, RunTriggerRequest};
use trestle_contract::host::{Actor, Trigger, TriggerKind, TriggerRequest, sdk_knows_trigger_request};
use trestle_contract::{EpochMs, NonEmptyString};

fn webhook() -> Trigger {
    let request = RunTriggerRequest {
        method: "POST".to_owned(),
        path: "/hook".to_owned(),
        query: BTreeMap::new(),
        headers: BTreeMap::new(),
    };
    Trigger {
        kind: TriggerKind::Webhook,
        fired_at: EpochMs::saturating(5),
        source: Some(NonEmptyString::new("gh").unwrap()),
        request: TriggerRequest::from_run(request),
    }
}

#[test]
fn the_request_goes_to_sdks_that_know_it_and_to_no_others() {
    for version in [
        "0.3.12",
        "0.3.13",
        "0.4.0",
        "1.0.0",
        "^0.3.12",
        "~0.3.12",
        ">=0.3.12",
        "v0.3.12",
        "0.3.12-beta.1",
        "0.4",
        "1",
        "*",
        "latest",
        "",
        "file:../sdk",
        "x",
    ] {
        assert!(sdk_knows_trigger_request(version), "{version}");
        assert!(webhook().for_sdk(version).request.is_some(), "{version}");
    }
    for version in ["0.3.11", "0.3.0", "0.2.99", "^0.3.1", "0.3", "0.3.x", "0", "~0.1.17"] {
        assert!(!sdk_knows_trigger_request(version), "{version}");
        let trigger = webhook().for_sdk(version);
        assert_eq!(
            serde_json::to_string(&trigger).unwrap(),
            r#"{"kind":"webhook","firedAt":5,"source":"gh"}"#,
            "{version}"
        );
    }
}

#[test]
fn only_webhooks_carry_a_request() {
    let manual = Trigger { kind: TriggerKind::Manual, ..webhook() };
    assert!(manual.for_sdk("0.3.12").request.is_none());
    assert_eq!(TriggerKind::from_wire("workflow_run"), TriggerKind::Manual);
    assert_eq!(TriggerKind::from_wire("cron"), TriggerKind::Cron);
}

#[test]
fn a_request_that_the_sdk_would_refuse_is_left_out() {
    let request = |method: &str, path: String| {
        TriggerRequest::from_run(RunTriggerRequest {
            method: method.to_owned(),
            path,
            query: BTreeMap::new(),
            headers: BTreeMap::new(),
        })
    };
    assert!(request("POST", "/".repeat(2048)).is_some());
    assert!(request("POST", "/".repeat(2049)).is_none());
    assert!(request("", "/".to_owned()).is_none());
    assert!(request("ALONGMETHODNAME17", "/".to_owned()).is_none());
}

#[test]
fn the_actor_decides_the_source() {
    let source = |actor: RunActor| Actor::from(&actor).trigger_source().map(|text| text.as_str().to_owned());
    assert_eq!(source(RunActor::Cron { rule: "0 * * * *".to_owned() }).as_deref(), Some("0 * * * *"));
    assert_eq!(source(RunActor::Webhook { source: "gh".to_owned() }).as_deref(), Some("gh"));
    assert_eq!(source(RunActor::User { user_id: "u".to_owned() }), None);
    let event = RunActor::Event {
        subscription_id: "s".to_owned(),
        source_run_id: "r".to_owned(),
        source_workflow_id: "w".to_owned(),
        event_type: "completed".to_owned(),
        event_chain_depth: 1,
    };
    assert_eq!(source(event).as_deref(), Some("s"));
    assert_eq!(source(RunActor::Webhook { source: String::new() }).as_deref(), Some("-"));
}
