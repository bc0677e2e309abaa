//! Runs at the control plane of the test kit, which checks every request strictly.

use std::time::Duration;

use serde_json::Value;
use trestle_contract::control::{FinalStatus, FinalizeRequest};
use trestle_contract::event::{Event, EventBody};
use trestle_sandbox::slot::{LeaseTerms, SlotOutcome};
use trestle_testkit::control_plane::{FakeControlPlane, FakeRun, Options as PlaneOptions};

use super::process::{Options, RunProcess, Target};

pub(crate) const RUN: &str = "01RUN";
/// More than anything takes on a machine that does ten other things.
pub(crate) fn long() -> Duration {
    Duration::from_secs(if super::time_scale() == 1 { 600 } else { 60 })
}

/// A control plane with one run that its process may claim.
pub(crate) struct Fake {
    pub(crate) plane: FakeControlPlane,
    token: String,
    lease: Duration,
    pub(crate) byo_providers: Vec<Value>,
}

impl Fake {
    /// A run of this program.
    pub(crate) async fn start(program: &str, lease: Duration, edit: impl FnOnce(&mut FakeRun)) -> Self {
        let options = PlaneOptions { lease, ..PlaneOptions::default() };
        let plane = FakeControlPlane::start(options).await.unwrap();
        let mut run = FakeRun::new(RUN, super::artifact(&[("index.mjs", program)])).unwrap();
        edit(&mut run);
        let token = plane.lease(run);
        Self { plane, token, lease, byo_providers: Vec::new() }
    }

    pub(crate) fn target(&self, url: &str) -> Target {
        Target {
            url: url.to_owned(),
            run_id: RUN.into(),
            run_token: self.token.clone(),
            byo_providers: self.byo_providers.clone(),
        }
    }

    /// Options that fit the lease.
    pub(crate) fn options(&self) -> Options {
        let renew_every_ms = u64::try_from(self.lease.as_millis()).unwrap() / 6;
        let lease = LeaseTerms { seconds: self.lease.as_secs().max(1), renew_every_ms };
        Options { lease, ..Options::default() }
    }

    /// A run process that was assigned the run, at the plane itself.
    pub(crate) async fn begin(&self, options: Options) -> RunProcess {
        self.begin_at(&self.plane.url(), options).await
    }

    pub(crate) async fn begin_at(&self, url: &str, options: Options) -> RunProcess {
        let mut process = RunProcess::start(options).await;
        process.assign(self.target(url)).await;
        process
    }

    /// The return value of the run, which completed.
    pub(crate) fn output(&self) -> Value {
        let end = self.end();
        assert_eq!(end.status, FinalStatus::Completed, "{}", end.output.get());
        end.output.to_value().unwrap()
    }

    /// The error of the run, which failed.
    pub(crate) fn error(&self) -> Value {
        let end = self.end();
        assert_eq!(end.status, FinalStatus::Failed, "{}", end.output.get());
        end.output.to_value().unwrap()["error"].clone()
    }

    fn end(&self) -> FinalizeRequest {
        self.plane.finalized(RUN).unwrap_or_else(|| panic!("no end; calls: {:?}", self.operations()))
    }

    pub(crate) fn operations(&self) -> Vec<String> {
        let exchanges = self.plane.exchanges();
        exchanges.iter().map(|exchange| format!("{} {}", exchange.method, exchange.operation())).collect()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.plane.events(RUN).into_iter().map(|(_, event)| event).collect()
    }

    /// What the program printed, by lines.
    pub(crate) fn console(&self) -> Vec<String> {
        let line = |event: Event| match event.body {
            EventBody::ProgramOutput { text, .. } => Some(text),
            _ => None,
        };
        self.events().into_iter().filter_map(line).collect()
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&FakeControlPlane) -> bool) {
        self.plane.until(long(), what, condition).await.unwrap_or_else(|late| {
            panic!("{late}; calls: {:?}; violations: {:?}", self.operations(), self.plane.violations())
        });
    }

    /// Waits until the program has printed this line.
    pub(crate) async fn until_line(&self, line: &str) {
        let printed = |plane: &FakeControlPlane| {
            plane.events(RUN).iter().any(
                |(_, event)| matches!(&event.body, EventBody::ProgramOutput { text, .. } if text.as_str() == line),
            )
        };
        self.until(line, printed).await;
    }

    pub(crate) fn assert_faultless(&self) {
        assert_eq!(self.plane.violations(), Vec::<String>::new());
    }
}

/// Waits for the end of the process and asserts that its run completed.
pub(crate) async fn completes(process: &mut RunProcess) {
    assert_eq!(process.outcome().await, SlotOutcome::Completed, "{:?}", process.reports);
    process.assert_tidy();
}
