//! The plane as tests hold it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trestle_contract::control::{FinalizeRequest, TokenUsageRequest};
use trestle_contract::event::Event;
use trestle_contract::pool::Phase;

use super::connection;
use super::faults::{Fault, Rule};
use super::model::ModelReply;
use super::state::{ChildOutcome, Exchange, FakeRun, RunState, Stage, State, StoredArtifact};
use crate::clock::{NotInTime, within};

/// Times of the plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a poll without an offer is held.
    pub poll_hold: Duration,
    /// How long a lease is said to last.
    pub lease: Duration,
    /// Registration tokens that may be used, each once, with their pools.
    pub registration_tokens: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            poll_hold: Duration::from_millis(400),
            lease: Duration::from_secs(90),
            registration_tokens: vec![("bwkreg_test".to_owned(), "default".to_owned())],
        }
    }
}

pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) address: SocketAddr,
    /// Where signed addresses lead when that is not here.
    public_url: Mutex<Option<String>>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    pub(super) end: CancellationToken,
}

impl Inner {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the plane knows and wakes whoever waits for a change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let value = change(&mut self.state());
        self.changes.send_modify(|version| *version += 1);
        value
    }

    pub(super) fn url(&self) -> String {
        let public = self.public_url.lock().unwrap_or_else(PoisonError::into_inner);
        public.clone().unwrap_or_else(|| format!("http://{}", self.address))
    }

    /// Waits until something can be found.
    pub(super) async fn find<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(found) = look(&mut self.state()) {
                return found;
            }
            // The sender is kept by `self`, so the channel cannot close.
            let _ = changes.changed().await;
        }
    }
}

/// A control plane on a port of its own. It ends, with all its connections, when it is dropped.
pub struct FakeControlPlane {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for FakeControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeControlPlane").field("address", &self.inner.address).finish_non_exhaustive()
    }
}

impl Drop for FakeControlPlane {
    fn drop(&mut self) {
        self.inner.end.cancel();
    }
}

impl FakeControlPlane {
    /// Listens on the loopback interface.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(options: Options) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let state = State {
            registration_tokens: options.registration_tokens.iter().cloned().collect(),
            ..State::default()
        };
        let inner = Arc::new(Inner {
            options,
            address: listener.local_addr()?,
            public_url: Mutex::default(),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            end: CancellationToken::new(),
        });
        tokio::spawn(connection::accept(listener, Arc::clone(&inner)));
        Ok(Self { inner })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        self.inner.url()
    }

    /// Lets signed addresses lead to this URL, as a proxy in front of the plane needs it.
    pub fn set_public_url(&self, url: &str) {
        let mut public = self.inner.public_url.lock().unwrap_or_else(PoisonError::into_inner);
        *public = Some(url.to_owned());
    }

    /// Queues a run.
    pub fn queue(&self, run: FakeRun) {
        self.inner.change(|state| state.runs.push(RunState::new(run)));
    }

    /// Queues a run that its process may claim at once, without a runner, and gives its run token.
    pub fn lease(&self, run: FakeRun) -> String {
        self.inner.change(|state| {
            let mut run = RunState::new(run);
            run.stage = Stage::Leased;
            run.epoch = 1;
            let token = run.token();
            state.runs.push(run);
            token
        })
    }

    /// Does this to the next so many calls whose path ends with the suffix.
    pub fn fault(&self, suffix: &str, fault: Fault, count: usize) {
        self.fault_of(None, suffix, fault, count);
    }

    /// As [`FakeControlPlane::fault`], for one method only.
    pub fn fault_of(&self, method: Option<&str>, suffix: &str, fault: Fault, count: usize) {
        let rule = Rule { method: method.map(str::to_owned), suffix: suffix.to_owned(), fault, left: count };
        self.inner.change(|state| state.rules.push(rule));
    }

    /// Answers the next model call with this.
    pub fn reply(&self, reply: ModelReply) {
        self.inner.change(|state| state.model_replies.push_back(reply));
    }

    /// Says what the workflow of this slug does when it is called. Without that it completes with `null`.
    pub fn set_child(&self, slug: &str, outcome: ChildOutcome) {
        self.inner.change(|state| state.child_outcomes.insert(slug.to_owned(), outcome));
    }

    /// Asks for a run to be cancelled.
    pub fn cancel(&self, run_id: &str) {
        self.change_run(run_id, |run| run.cancel = true);
    }

    /// Says that a run may not go on for lack of credit.
    pub fn take_credit(&self, run_id: &str) {
        self.change_run(run_id, |run| run.funded = false);
    }

    /// Hands out this run token with the next renewal. The old one is unknown once the new one was used.
    pub fn refresh_token(&self, run_id: &str, token: &str) {
        self.change_run(run_id, |run| run.fresh_token = Some((token.to_owned(), false)));
    }

    /// Takes a run away from whoever holds it: both leases are lost, its token is displaced, it is queued again.
    pub fn displace(&self, run_id: &str) {
        self.change_run(run_id, |run| {
            run.epoch += 1;
            run.requeue();
        });
    }

    /// Lets the assignment lease of a run be lost, as seen by heartbeats, and nothing else.
    pub fn lose_assignment(&self, run_id: &str) {
        self.change_run(run_id, |run| run.lease_lost = true);
    }

    /// Tells every runner to end.
    pub fn drain(&self) {
        self.inner.change(|state| state.runners.iter_mut().for_each(|runner| runner.drained = true));
    }

    /// Makes the tokens of all runners unknown.
    pub fn forget_runners(&self) {
        self.inner.change(|state| state.runners.iter_mut().for_each(|runner| runner.dead = true));
    }

    fn change_run(&self, run_id: &str, change: impl FnOnce(&mut RunState)) {
        self.inner.change(|state| {
            if let Some(run) = state.run(run_id) {
                change(run);
            }
        });
    }

    fn of_run<T: Default>(&self, run_id: &str, read: impl FnOnce(&RunState) -> T) -> T {
        self.inner.state().run(run_id).map(|run| read(run)).unwrap_or_default()
    }

    /// How far a run is; `None` when there is no such run.
    pub fn stage(&self, run_id: &str) -> Option<Stage> {
        self.of_run(run_id, |run| Some(run.stage.clone()))
    }

    /// How a run was finalized.
    pub fn finalized(&self, run_id: &str) -> Option<FinalizeRequest> {
        self.of_run(run_id, |run| run.finalized.as_ref().map(|(_, request)| request.clone()))
    }

    /// Events of a run by cursor.
    pub fn events(&self, run_id: &str) -> Vec<(u64, Event)> {
        self.of_run(run_id, |run| run.events.iter().map(|(cursor, event)| (*cursor, event.clone())).collect())
    }

    /// Artifacts of a run.
    pub fn artifacts(&self, run_id: &str) -> Vec<StoredArtifact> {
        self.of_run(run_id, |run| run.artifacts.clone())
    }

    /// Phases that heartbeats of a run told.
    pub fn phases(&self, run_id: &str) -> Vec<Phase> {
        self.of_run(run_id, |run| run.phases.clone())
    }

    /// How often the lease of a run was renewed.
    pub fn renewals(&self, run_id: &str) -> u64 {
        self.of_run(run_id, |run| run.renewals)
    }

    /// How often a run was given back.
    pub fn releases(&self, run_id: &str) -> usize {
        self.of_run(run_id, |run| run.releases.len())
    }

    /// Compute time that was reported for a run, in seconds.
    pub fn runtime_seconds(&self, run_id: &str) -> u64 {
        self.of_run(run_id, |run| run.usage.values().sum())
    }

    /// Reports of used tokens of a run, each once.
    pub fn token_reports(&self, run_id: &str) -> Vec<TokenUsageRequest> {
        self.of_run(run_id, |run| run.token_reports.clone())
    }

    /// Children of a run, as many as were started: slugs in their order.
    pub fn children(&self, run_id: &str) -> Vec<String> {
        self.of_run(run_id, |run| run.children.iter().map(|child| child.slug.clone()).collect())
    }

    /// The runners that registered, by name.
    pub fn runners(&self) -> Vec<String> {
        self.inner.state().runners.iter().map(|runner| runner.name.clone()).collect()
    }

    /// Every call so far, in the order in which they were answered.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.inner.state().exchanges.clone()
    }

    /// The calls of one operation, such as `finalize` or `/runner/v1/pool/poll`.
    pub fn calls(&self, operation: &str) -> Vec<Exchange> {
        self.exchanges().into_iter().filter(|exchange| exchange.operation() == operation).collect()
    }

    /// What was wrong with requests. A test that does not expect faults asserts that there is none.
    pub fn violations(&self) -> Vec<String> {
        self.inner.state().violations.clone()
    }

    /// Waits until the plane fits a condition.
    ///
    /// # Errors
    /// [`NotInTime`] after the limit.
    pub async fn until(
        &self,
        limit: Duration,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<(), NotInTime> {
        let mut changes = self.inner.changes.subscribe();
        within(limit, what, async {
            loop {
                changes.borrow_and_update();
                if condition(self) {
                    return;
                }
                let _ = changes.changed().await;
            }
        })
        .await
    }

    /// Waits until a run was finalized.
    ///
    /// # Errors
    /// [`NotInTime`] after the limit.
    pub async fn until_finalized(&self, limit: Duration, run_id: &str) -> Result<FinalizeRequest, NotInTime> {
        let what = format!("the end of {run_id}");
        let found = self.inner.find(|state| state.run(run_id)?.finalized.clone());
        within(limit, &what, found).await.map(|(_, request)| request)
    }
}
