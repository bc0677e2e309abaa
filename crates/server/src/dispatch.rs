//! Offers: one task holds the parked polls of all pools and asks the store for
//! offers whenever a poll arrives, a queue changes, or an unclaimed offer can
//! be made again. Many polls cost one transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trestle_contract::ids::RunnerId;
use trestle_store::{Offer, RunnerRow, Store};

/// What a parked poll is told.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// An offer for its runner.
    Offer(Offer),
    /// The runner changed: look at it again.
    LookAgain,
}

/// How often a pool is looked at again after the store failed.
const RETRY: Duration = Duration::from_millis(250);

enum Command {
    Wait { pool: String, runner: RunnerId, deliver: oneshot::Sender<Delivery> },
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
        self.tell(Command::Wait { pool: runner.pool.clone(), runner: runner.id.clone(), deliver }).await;
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
    deliver: oneshot::Sender<Delivery>,
}

/// Who is to be asked about in a pool.
#[derive(Default)]
enum Due {
    /// Nobody.
    #[default]
    Nobody,
    /// Polls that arrived since the last look.
    Arrived(Vec<RunnerId>),
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
            Command::Wait { pool, runner, deliver } => self.park(pool, runner, deliver),
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

    fn park(&mut self, pool: String, runner: RunnerId, deliver: oneshot::Sender<Delivery>) {
        let pool = self.pools.entry(pool).or_default();
        // Polls that went away are dropped now and then, so that their number
        // stays below that of the live ones.
        if pool.parked.len().is_power_of_two() {
            pool.parked.retain(|parked| !parked.deliver.is_closed());
        }
        match &mut pool.due {
            Due::Nobody => pool.due = Due::Arrived(vec![runner.clone()]),
            Due::Arrived(runners) => runners.push(runner.clone()),
            Due::Everybody => {}
        }
        pool.parked.push(Parked { runner, deliver });
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
            let runners = match std::mem::take(&mut pool.due) {
                Due::Nobody => continue,
                Due::Arrived(runners) => distinct(runners),
                Due::Everybody => {
                    pool.parked.retain(|parked| !parked.deliver.is_closed());
                    distinct(pool.parked.iter().map(|parked| parked.runner.clone()))
                }
            };
            if runners.is_empty() {
                continue;
            }
            let looked = match self.store.make_offers(&runners).await {
                Ok(offers) => {
                    for offer in offers {
                        deliver(&mut pool.parked, offer);
                    }
                    self.store.next_offer_at(name).await
                }
                Err(error) => Err(error),
            };
            pool.again = match looked {
                Ok(next) => next.map(|at| {
                    let wait = u64::try_from(at - self.store.now_ms()).unwrap_or(0);
                    Instant::now() + Duration::from_millis(wait.max(1))
                }),
                Err(error) => {
                    tracing::warn!(%error, pool = %name, "no offers could be made");
                    pool.due = Due::Nobody;
                    Some(Instant::now() + RETRY)
                }
            };
        }
        self.pools.retain(|_, pool| !pool.parked.is_empty());
    }
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

fn distinct(runners: impl IntoIterator<Item = RunnerId>) -> Vec<RunnerId> {
    let mut seen = HashSet::new();
    runners.into_iter().filter(|runner| seen.insert(runner.clone())).collect()
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
