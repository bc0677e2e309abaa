//! Random histories, each on a fresh place of the backend's factory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bench, Factory, Held, LEASE, run_claim};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use trestle_contract::ids::RunId;
use trestle_domain::CursorAllocator;
use trestle_store::{LeaseMode, ReleaseReason, Releaser, RunFilter, RunnerRow};

#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Claim(usize),
    ClaimRun(usize),
    Mode(usize, bool),
    Renew(usize),
    Finalize(usize),
    Release(usize, bool),
    Cancel(usize),
    Pass(u16),
    Sweep,
    Send(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Create),
        5 => (0_usize..3).prop_map(Step::Claim),
        5 => (0_usize..64).prop_map(Step::ClaimRun),
        1 => (0_usize..64, any::<bool>()).prop_map(|(index, lent)| Step::Mode(index, lent)),
        2 => (0_usize..64).prop_map(Step::Renew),
        3 => (0_usize..64).prop_map(Step::Finalize),
        1 => (0_usize..64, any::<bool>()).prop_map(|(index, died)| Step::Release(index, died)),
        1 => (0_usize..64).prop_map(Step::Cancel),
        2 => (1_u16..60_000).prop_map(Step::Pass),
        2 => Just(Step::Sweep),
        4 => (0_usize..64, any::<bool>()).prop_map(|(index, turn)| Step::Send(index, turn)),
    ]
}

/// A store under a random history.
struct World {
    bench: Bench,
    runners: Vec<RunnerRow>,
    held: Vec<Held>,
    senders: BTreeMap<(RunId, u64), CursorAllocator>,
    sent: BTreeMap<RunId, Vec<u64>>,
}

impl World {
    async fn new(factory: Arc<dyn Factory>) -> Self {
        let bench = Bench::new(factory).await;
        let mut runners = Vec::new();
        for name in ["one", "two", "three"] {
            runners.push(bench.runner(name, &[]).await);
        }
        Self { bench, runners, held: Vec::new(), senders: BTreeMap::new(), sent: BTreeMap::new() }
    }

    fn pick(&self, index: usize) -> Option<Held> {
        (!self.held.is_empty()).then(|| self.held[index % self.held.len()].clone())
    }

    /// Refusals are part of the game; what must hold afterwards is checked by the caller.
    async fn take(&mut self, step: Step) {
        let store = self.bench.store.clone();
        match step {
            Step::Create => drop(self.bench.run().await),
            Step::Claim(index) => {
                let runner = self.runners[index].clone();
                for offer in self.bench.offers(&[&runner]).await {
                    if let Ok(claimed) = self.bench.take(&offer).await {
                        let fence = trestle_store::Fence { run: claimed.run.id, epoch: claimed.run.epoch };
                        self.held.push(Held {
                            runner: runner.id.clone(),
                            assignment: offer.assignment,
                            lease: claimed.lease,
                            run: fence.run.clone(),
                            fence,
                        });
                    }
                }
            }
            Step::Pass(ms) => self.bench.advance(i64::from(ms)),
            Step::Sweep => drop(store.sweep_leases(100).await.unwrap()),
            Step::ClaimRun(index)
            | Step::Mode(index, _)
            | Step::Renew(index)
            | Step::Finalize(index)
            | Step::Release(index, _)
            | Step::Cancel(index)
            | Step::Send(index, _) => {
                if let Some(held) = self.pick(index) {
                    self.act(step, held).await;
                }
            }
        }
    }

    async fn act(&mut self, step: Step, held: Held) {
        let store = &self.bench.store;
        match step {
            Step::ClaimRun(_) => {
                if let Ok(claimed) = store.claim_run(run_claim(&held.fence, Some("process"), true)).await
                    && !claimed.repeated
                {
                    let cursors = CursorAllocator::resume_after(claimed.last_event_cursor);
                    self.senders.insert((held.run, held.fence.epoch), cursors);
                }
            }
            Step::Mode(_, lent) => {
                let mode = if lent { LeaseMode::Lent } else { LeaseMode::Active };
                let _ = store.set_lease_mode(&held.runner, &held.lease, mode).await;
            }
            Step::Renew(_) => {
                let _ = store.renew(&held.fence, LEASE).await;
                let _ = self.bench.beat(&held).await;
            }
            Step::Finalize(_) => {
                // A sender in order has sent everything before it reports the end.
                if self.bench.complete(&held).await.is_ok() {
                    self.senders.remove(&(held.run, held.fence.epoch));
                }
            }
            Step::Release(_, died) => {
                let reason = if died { ReleaseReason::Died } else { ReleaseReason::Handback };
                let by = Releaser::Runner { runner: held.runner, lease: held.lease };
                let _ = store.release(by, reason).await;
            }
            Step::Cancel(_) => drop(store.request_cancel(&held.run).await.unwrap()),
            Step::Send(_, turn) => {
                if let Some(cursors) = self.senders.get_mut(&(held.run.clone(), held.fence.epoch)) {
                    let stamp = if turn { cursors.begin_turn() } else { cursors.next() };
                    if self.bench.send(&held.fence, &[stamp.cursor]).await.is_ok() {
                        self.sent.entry(held.run).or_default().push(stamp.cursor);
                    }
                }
            }
            Step::Create | Step::Claim(_) | Step::Pass(_) | Step::Sweep => {}
        }
    }

    async fn runs(&self) -> Vec<RunId> {
        let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
        self.bench.store.list_runs(filter).await.unwrap().runs.into_iter().map(|run| run.id).collect()
    }
}

/// Runs the histories on the test's own runtime.
fn histories<C, F>(factory: &Arc<dyn Factory>, check: C)
where
    C: Fn(World, Vec<Step>) -> F,
    F: std::future::Future<Output = Result<(), TestCaseError>>,
{
    let runtime = tokio::runtime::Handle::current();
    let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let outcome = tokio::task::block_in_place(|| {
        runner.run(&prop::collection::vec(step(), 1..60), |steps| {
            runtime.block_on(async {
                let world = World::new(factory.fresh()).await;
                check(world, steps).await
            })
        })
    });
    outcome.unwrap();
}

pub(crate) async fn slots_used_equal_active_leases(factory: Arc<dyn Factory>) {
    histories(&factory, |mut world, steps| async move {
        for step in steps {
            world.take(step).await;
            world.bench.store.sweep_leases(100).await.unwrap();
            for runner in &world.runners {
                let row = world.bench.store.runner(&runner.id).await.unwrap();
                let mut live = 0;
                for held in world.held.iter().filter(|held| held.runner == runner.id) {
                    let access = world.bench.store.access(&held.fence).await.unwrap();
                    if access.epoch == held.fence.epoch && access.pool_lease_until.is_some() {
                        live += 1;
                    }
                }
                prop_assert_eq!(row.active_leases + row.waiting_leases, live);
                prop_assert!(row.active_leases >= 0 && row.waiting_leases >= 0);
            }
        }
        Ok(())
    });
}

pub(crate) async fn cursors_increase_over_attempts(factory: Arc<dyn Factory>) {
    histories(&factory, |mut world, steps| async move {
        for step in steps {
            world.take(step).await;
        }
        world.bench.advance(10_000);
        for run in world.runs().await {
            let page = world.bench.store.read_events(&run, 0, 10_000).await.unwrap();
            let cursors: Vec<u64> = page.frames.iter().map(|frame| frame.cursor.get()).collect();
            prop_assert!(cursors.windows(2).all(|pair| pair[0] < pair[1]));
            // What a process sent in this order stands in this order, over all its attempts.
            let sent = world.sent.remove(&run).unwrap_or_default();
            let stored: Vec<u64> = page
                .frames
                .iter()
                .filter(|frame| &*frame.kind == "phase")
                .map(|frame| frame.cursor.get())
                .collect();
            prop_assert_eq!(stored, sent);
        }
        Ok(())
    });
}

pub(crate) async fn readers_miss_nothing_and_see_nothing_twice(factory: Arc<dyn Factory>) {
    histories(&factory, |mut world, steps| async move {
        let mut places: BTreeMap<RunId, (u64, Vec<u64>)> = BTreeMap::new();
        let mut finished = false;
        for step in steps.into_iter().map(Some).chain([None]) {
            match step {
                Some(step) => world.take(step).await,
                None => {
                    world.bench.advance(10_000);
                    finished = true;
                }
            }
            for run in world.runs().await {
                let place = places.entry(run.clone()).or_default();
                let page = world.bench.store.read_events(&run, place.0, 3).await.unwrap();
                place.0 = page.resume_after;
                place.1.extend(page.frames.iter().map(|frame| frame.cursor.get()));
            }
        }
        prop_assert!(finished);
        for (run, (mut after, mut seen)) in places {
            loop {
                let page = world.bench.store.read_events(&run, after, 10).await.unwrap();
                after = page.resume_after;
                seen.extend(page.frames.iter().map(|frame| frame.cursor.get()));
                if !page.more {
                    break;
                }
            }
            let whole = world.bench.store.read_events(&run, 0, 10_000).await.unwrap();
            let all: Vec<u64> = whole.frames.iter().map(|frame| frame.cursor.get()).collect();
            prop_assert_eq!(seen, all);
        }
        Ok(())
    });
}

pub(crate) async fn a_run_has_one_end(factory: Arc<dyn Factory>) {
    histories(&factory, |mut world, steps| async move {
        let mut ends = BTreeMap::new();
        for step in steps {
            world.take(step).await;
            for run in world.runs().await {
                let status = world.bench.status(&run).await;
                if let Some(end) = ends.get(&run) {
                    prop_assert_eq!(*end, status, "an end is final");
                } else if status.is_terminal() {
                    ends.insert(run, status);
                }
            }
        }
        world.bench.advance(10_000);
        for (run, end) in ends {
            let statuses = world.bench.shown_statuses(&run).await;
            let terminal: Vec<&String> = statuses
                .iter()
                .filter(|status| ["completed", "failed", "cancelled"].contains(&status.as_str()))
                .collect();
            prop_assert_eq!(terminal, [end.as_str()]);
        }
        Ok(())
    });
}
