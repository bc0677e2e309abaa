//! Descriptor fields that have no engine yet (`docs/protocol/descriptor.md` §5.11).
//!
//! A field that narrows what a run may do is never ignored: the deploy is refused, or, on demand, every run says that
//! the field has no effect. A field that only adds something deploys with a warning.

use trestle_contract::descriptor::{CallableBy, Concurrency, Descriptor, Egress, EgressLevel, Persist};

/// A field that would have no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The field's path in the descriptor.
    pub field: String,
    /// What will not happen.
    pub message: String,
    /// Whether the deploy is refused unless unsupported fields are allowed.
    pub refused: bool,
}

/// The fields of a descriptor that have no effect yet, in the order of the reference.
#[must_use]
pub fn unsupported(descriptor: &Descriptor) -> Vec<Unsupported> {
    let mut found = Vec::new();
    let mut add =
        |field: String, message: String, refused| found.push(Unsupported { field, message, refused });
    for (index, trigger) in descriptor.triggers.iter().enumerate() {
        if trigger.kind() != "manual" {
            let message =
                format!("{} triggers do not fire yet; runs start by hand or by call", trigger.kind());
            add(format!("triggers.{index}"), message, false);
        }
    }
    if let Some(workspace) = &descriptor.workspace {
        match &workspace.persist {
            Some(Persist::All(true) | Persist::Paths(_)) => {
                add("workspace.persist".into(), "the workspace does not outlive its run yet".into(), false);
            }
            Some(Persist::All(false)) | None => {}
        }
        if workspace.key.is_some() {
            add("workspace.key".into(), "state is not kept apart by key yet".into(), true);
        }
    }
    if descriptor.recording.is_some() {
        add("recording".into(), "desktops are not recorded yet".into(), false);
    }
    match &descriptor.concurrency {
        Concurrency::Unlimited => {}
        Concurrency::Serial(_) | Concurrency::LatestWins(_) => {
            add("concurrency".into(), "runs are not limited yet, they all start at once".into(), true);
        }
    }
    if descriptor.container.is_some() {
        add("container".into(), "runs are not put into a container yet".into(), true);
    }
    if descriptor.callable_by != CallableBy::AnyoneInOrg {
        add("callable_by".into(), "callers are not restricted yet".into(), true);
    }
    if descriptor.egress.as_ref().map(Egress::level).is_some_and(|level| level != EgressLevel::Full) {
        add("egress".into(), "connections are not restricted yet".into(), true);
    }
    if descriptor.notifications.as_ref().is_some_and(|notifications| !notifications.is_empty()) {
        add("notifications".into(), "nobody is notified yet".into(), false);
    }
    found
}
