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
use trestle_store::{Offer, RunnerRow, Store, StoreError};

use crate::parked::{Line, Parked, Polls};

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

/// Who is to be asked about in a pool.
#[derive(Default)]
enum Due {
    /// Nobody.
    #[default]
    Nobody,
    /// The runners whose polls arrived since the last look.
    Arrived(Vec<RunnerId>),
    /// Everybody: the queue changed.
    Everybody,
}

#[derive(Default)]
struct Pool {
    polls: Polls,
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
                    tell_all(pool.polls.remove(&runner));
                }
            }
            Command::LookAgain => {
                for pool in self.pools.values_mut() {
                    pool.due = Due::Everybody;
                    tell_all(pool.polls.remove_all());
                }
            }
        }
    }

    fn park(&mut self, pool: String, parked: Parked) {
        let pool = self.pools.entry(pool).or_default();
        match &mut pool.due {
            Due::Nobody => pool.due = Due::Arrived(vec![parked.runner.clone()]),
            Due::Arrived(runners) => runners.push(parked.runner.clone()),
            Due::Everybody => {}
        }
        pool.polls.park(parked);
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
            let lines = match std::mem::take(&mut pool.due) {
                Due::Nobody => continue,
                Due::Arrived(runners) => pool.polls.lines_of(&runners),
                Due::Everybody => pool.polls.lines(),
            };
            if lines.is_empty() {
                continue;
            }
            pool.again = match look(self.store.as_ref(), name, pool, lines).await {
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
        self.pools.retain(|_, pool| !pool.polls.is_empty());
    }
}

/// Asks the store for offers. What is true of a few runners is true of all
/// with the same labels, so a line of which none was offered anything is not
/// asked about further: ten thousand idle polls cost as much as a few.
async fn look(
    store: &dyn Store,
    name: &str,
    pool: &mut Pool,
    mut lines: Vec<Line>,
) -> Result<Option<i64>, StoreError> {
    let mut asked = FIRST_ASKED;
    while !lines.is_empty() {
        let batches: Vec<Vec<RunnerId>> =
            lines.iter_mut().map(|line| pool.polls.next_of(line, asked)).collect();
        let asked_about = batches.concat();
        if asked_about.is_empty() {
            break;
        }
        let offers = store.make_offers(&asked_about).await?;
        let offered: HashSet<RunnerId> = offers.iter().map(|offer| offer.runner.clone()).collect();
        for offer in offers {
            deliver(&mut pool.polls, offer);
        }
        lines = lines
            .into_iter()
            .zip(batches)
            .filter(|(_, batch)| batch.iter().any(|runner| offered.contains(runner)))
            .map(|(line, _)| line)
            .collect();
        asked = (asked * 2).min(MOST_ASKED);
    }
    store.next_offer_at(name).await
}

/// Gives an offer to the newest poll of its runner: an older one may belong
/// to a connection that is dead without the server knowing.
fn deliver(polls: &mut Polls, offer: Offer) {
    let runner = offer.runner.clone();
    let mut delivery = Delivery::Offer(offer);
    while let Some(newest) = polls.take_newest(&runner) {
        match newest.send(delivery) {
            Ok(()) => return,
            Err(back) => delivery = back,
        }
    }
    // Every poll went away; the offer is made again when its time is over.
}

fn tell_all(polls: Vec<oneshot::Sender<Delivery>>) {
    for poll in polls {
        let _ = poll.send(Delivery::LookAgain);
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
