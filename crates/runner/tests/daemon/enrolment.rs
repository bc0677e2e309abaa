//! Joining and leaving a pool.

use trestle_runner::{Enrolment, Identity, IdentityDirectory, RunnerError, deregister, register};
use trestle_testkit::control_plane::Fault;

use crate::support::Machine;

const REGISTER: &str = "/runner/v1/register";

fn enrolment() -> Enrolment {
    Enrolment { name: Some("second".to_owned()), labels: vec!["eu".to_owned()] }
}

#[tokio::test]
async fn what_a_machine_joined_with_is_remembered() {
    let machine = Machine::new().await;
    let joined = machine.identities.joined(&machine.identity).unwrap();
    assert_eq!((joined.labels.as_slice(), joined.interval_seconds), (&["gpu".to_owned()][..], Some(5)));
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_costs_no_token() {
    let machine = Machine::new().await;
    let file = machine.home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let unusable = IdentityDirectory::new(file.join("inside"));
    let calls = machine.plane.calls(REGISTER).len();
    let error = register(&machine.plane.url(), "bwkreg_second", &enrolment(), &unusable).await.unwrap_err();
    assert!(matches!(error, RunnerError::File { .. }), "{error}");
    assert_eq!(machine.plane.calls(REGISTER).len(), calls);
    register(&machine.plane.url(), "bwkreg_second", &enrolment(), &machine.identities).await.unwrap();
}

#[tokio::test]
async fn a_runner_whose_identity_cannot_be_saved_is_removed_again() {
    let machine = Machine::new().await;
    let directory = IdentityDirectory::new(machine.home.path().join("taken"));
    // The same host by another scheme has its identity under the same name.
    let other = Identity {
        control_plane_url: machine.plane.url().replace("http://", "https://"),
        ..machine.identity.clone()
    };
    directory.save(&other).unwrap();
    let error = register(&machine.plane.url(), "bwkreg_second", &enrolment(), &directory).await.unwrap_err();
    assert!(matches!(error, RunnerError::OtherOrigin { .. }), "{error}");
    let removed = machine.plane.calls("/runner/v1/pool/deregister");
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].status, Some(204));
    assert_ne!(removed[0].bearer.as_deref(), Some(machine.identity.runner_token.as_str()));
}

#[tokio::test]
async fn a_registration_that_is_refused_or_answered_otherwise_is_not_repeated() {
    let machine = Machine::new().await;
    for fault in [Fault::Refuse(403), Fault::Refuse(500), Fault::Say(200, "{}"), Fault::Say(201, "{}")] {
        let calls = machine.plane.calls(REGISTER).len();
        machine.plane.fault("register", fault, 1);
        register(&machine.plane.url(), "bwkreg_second", &enrolment(), &machine.identities).await.unwrap_err();
        assert_eq!(machine.plane.calls(REGISTER).len(), calls + 1);
    }
    let error =
        register(&machine.plane.url(), "bwkreg_used", &enrolment(), &machine.identities).await.unwrap_err();
    assert!(error.hint().unwrap().contains("once"), "{error}");
    let labels = vec![String::new()];
    let bad = Enrolment { labels, ..enrolment() };
    register(&machine.plane.url(), "bwkreg_second", &bad, &machine.identities).await.unwrap_err();
    assert!(
        machine.identities.load(&machine.plane.url(), "default").unwrap().is_some(),
        "the saved one is whole"
    );
}

#[tokio::test]
async fn leaving_forgets_the_identity_unless_it_is_refused_and_a_dead_token_has_left_already() {
    let machine = Machine::new().await;
    let (url, identities) = (machine.plane.url(), &machine.identities);
    for status in [403, 500] {
        machine.plane.fault("deregister", Fault::Refuse(status), 1);
        deregister(&url, "default", identities).await.unwrap_err();
        assert!(identities.load(&url, "default").unwrap().is_some());
    }
    machine.plane.forget_runners();
    deregister(&url, "default", identities).await.unwrap();
    assert_eq!(identities.load(&url, "default").unwrap(), None);
    let error = deregister(&url, "default", identities).await.unwrap_err();
    assert!(matches!(error, RunnerError::NotRegistered { .. }), "{error}");
    let bodies: Vec<_> =
        machine.plane.calls("/runner/v1/pool/deregister").iter().map(|call| call.json()).collect();
    assert!(bodies.iter().all(|body| *body == serde_json::json!({})), "{bodies:?}");
}
