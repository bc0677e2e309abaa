//! Offers: one task holds the parked polls of all pools and asks the store for
//! offers whenever a poll arrives, a queue changes, or an unclaimed offer can
//! be made again. Many polls cost one transaction.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trestle_contract::ids::RunnerId;
use trestle_store::{Offer, RunnerRow, Store, StoreError};

/// What a parked poll is told.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// An offer for its runner.
    Offer(Offer),
    /// The runner changed: look at it again.
    LookAgain,
}

/// Runners of one label set that are asked about first. When one of them is
/// offered something, twice as many are asked about next.
const FIRST_ASKED: usize = 4;
/// Runners of one label set that are asked about at most in one transaction.
const MOST_ASKED: usize = 64;
/// How often a pool is looked at again after the store failed.
const RETRY: Duration = Duration::from_millis(250);

enum Command {
    Wait { pool: String, parked: Parked },
    Queue(String),
    Runner(RunnerId),
    LookAgain,
}

/// Handle of the dispatching task.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    commands: mpsc::Sender<Command>,
}

impl Dispatcher {
    /// Starts the task. It ends, and lets go of every poll, at shutdown.
    pub(crate) fn start(store: Arc<dyn Store>, shutdown: CancellationToken) -> Self {
        let (commands, receiver) = mpsc::channel(1024);
        let task = Task { store, pools: HashMap::new() };
        tokio::spawn(task.run(receiver, shutdown));
        Self { commands }
    }

    /// Parks a poll. The answer comes when there is something for it; the
    /// channel closes at shutdown.
    pub(crate) async fn wait(&self, runner: &RunnerRow) -> oneshot::Receiver<Delivery> {
        let (deliver, delivered) = oneshot::channel();
        self.tell(Command::Wait {
            pool: runner.pool.clone(),
            parked: Parked { runner: runner.id.clone(), labels: runner.labels.clone(), deliver },
        })
        .await;
        delivered
    }

    pub(crate) async fn queue_changed(&self, pool: String) {
        self.tell(Command::Queue(pool)).await;
    }

    pub(crate) async fn runner_changed(&self, runner: RunnerId) {
        self.tell(Command::Runner(runner)).await;
    }

    pub(crate) async fn look_again(&self) {
        self.tell(Command::LookAgain).await;
    }

    async fn tell(&self, command: Command) {
        // A closed channel means shutdown, which the poll sees by itself.
        let _ = self.commands.send(command).await;
    }
}

struct Parked {
    runner: RunnerId,
    labels: Vec<String>,
    deliver: oneshot::Sender<Delivery>,
}

/// Who is to be asked about in a pool.
#[derive(Default)]
enum Due {
    /// Nobody.
    #[default]
    Nobody,
    /// Polls that arrived since the last look: so many of the newest.
    Arrived(usize),
    /// Everybody: the queue changed.
    Everybody,
}

#[derive(Default)]
struct Pool {
    parked: Vec<Parked>,
    due: Due,
    again: Option<Instant>,
}

struct Task {
    store: Arc<dyn Store>,
    pools: HashMap<String, Pool>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, shutdown: CancellationToken) {
        loop {
            let again = self.pools.values().filter_map(|pool| pool.again).min();
            tokio::select! {
                () = shutdown.cancelled() => break,
                command = commands.recv() => match command {
                    None => break,
                    Some(command) => self.take(command),
                },
                () = until(again) => self.timers(Instant::now()),
            }
            // Everything that is there already goes into the same look.
            while let Ok(command) = commands.try_recv() {
                self.take(command);
            }
            self.offer().await;
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Wait { pool, parked } => self.park(pool, parked),
            Command::Queue(pool) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.due = Due::Everybody;
                }
            }
            Command::Runner(runner) => {
                for pool in self.pools.values_mut() {
                    let (told, kept) = std::mem::take(&mut pool.parked)
                        .into_iter()
                        .partition(|parked| parked.runner == runner);
                    pool.parked = kept;
                    tell_all(told);
                }
            }
            Command::LookAgain => {
                for pool in self.pools.values_mut() {
                    pool.due = Due::Everybody;
                    tell_all(std::mem::take(&mut pool.parked));
                }
            }
        }
    }

    fn park(&mut self, pool: String, parked: Parked) {
        let pool = self.pools.entry(pool).or_default();
        // Polls that went away are dropped now and then, so that their number
        // stays below that of the live ones.
        if pool.parked.len().is_power_of_two() {
            pool.parked.retain(|parked| !parked.deliver.is_closed());
        }
        pool.parked.push(parked);
        match &mut pool.due {
            Due::Nobody => pool.due = Due::Arrived(1),
            Due::Arrived(polls) => *polls += 1,
            Due::Everybody => {}
        }
    }

    fn timers(&mut self, now: Instant) {
        for pool in self.pools.values_mut() {
            if pool.again.is_some_and(|again| again <= now) {
                pool.again = None;
                pool.due = Due::Everybody;
            }
        }
    }

    async fn offer(&mut self) {
        for (name, pool) in &mut self.pools {
            let groups = match std::mem::take(&mut pool.due) {
                Due::Nobody => continue,
                Due::Arrived(polls) => {
                    let newest = pool.parked.len().saturating_sub(polls);
                    groups(&pool.parked[newest..])
                }
                Due::Everybody => {
                    pool.parked.retain(|parked| !parked.deliver.is_closed());
                    groups(&pool.parked)
                }
            };
            if groups.is_empty() {
                continue;
            }
            pool.again = match look(self.store.as_ref(), name, pool, groups).await {
                Ok(next) => next.map(|at| {
                    let wait = u64::try_from(at - self.store.now_ms()).unwrap_or(0);
                    Instant::now() + Duration::from_millis(wait.max(1))
                }),
                Err(error) => {
                    tracing::warn!(%error, pool = %name, "no offers could be made");
                    Some(Instant::now() + RETRY)
                }
            };
        }
        self.pools.retain(|_, pool| !pool.parked.is_empty());
    }
}

/// The runners of parked polls by their labels, each once, in order of arrival.
fn groups(parked: &[Parked]) -> Vec<VecDeque<RunnerId>> {
    let mut seen = HashSet::new();
    let mut groups: HashMap<&[String], VecDeque<RunnerId>> = HashMap::new();
    for one in parked.iter().filter(|one| !one.deliver.is_closed()) {
        if seen.insert(&one.runner) {
            groups.entry(&one.labels).or_default().push_back(one.runner.clone());
        }
    }
    groups.into_values().collect()
}

/// Asks the store for offers. What is true of a few runners is true of all
/// with the same labels, so a group of which none was offered anything is not
/// asked about further: ten thousand idle polls cost as much as a few.
async fn look(
    store: &dyn Store,
    name: &str,
    pool: &mut Pool,
    mut groups: Vec<VecDeque<RunnerId>>,
) -> Result<Option<i64>, StoreError> {
    let mut asked = FIRST_ASKED;
    while !groups.is_empty() {
        let batches: Vec<Vec<RunnerId>> =
            groups.iter_mut().map(|group| group.drain(..asked.min(group.len())).collect()).collect();
        let offers = store.make_offers(&batches.concat()).await?;
        let offered: HashSet<RunnerId> = offers.iter().map(|offer| offer.runner.clone()).collect();
        for offer in offers {
            deliver(&mut pool.parked, offer);
        }
        groups = groups
            .into_iter()
            .zip(batches)
            .filter(|(group, batch)| !group.is_empty() && batch.iter().any(|runner| offered.contains(runner)))
            .map(|(group, _)| group)
            .collect();
        asked = (asked * 2).min(MOST_ASKED);
    }
    store.next_offer_at(name).await
}

/// Gives an offer to the newest poll of its runner: an older one may belong
/// to a connection that is dead without the server knowing.
fn deliver(parked: &mut Vec<Parked>, offer: Offer) {
    let mut offer = Delivery::Offer(offer);
    while let Delivery::Offer(inside) = &offer {
        let Some(index) = parked.iter().rposition(|one| one.runner == inside.runner) else {
            // The poll went away; the offer is made again when its time is over.
            return;
        };
        match parked.remove(index).deliver.send(offer) {
            Ok(()) => return,
            Err(back) => offer = back,
        }
    }
}

fn tell_all(parked: Vec<Parked>) {
    for one in parked {
        let _ = one.deliver.send(Delivery::LookAgain);
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
