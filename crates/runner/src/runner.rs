use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secrecy::SecretString;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use trestle_contract::pool::{Declaration, LeaseReleaseReason, Offer, PollAction, PollResponse};
use trestle_contract::{LeaseId, RunId};
use trestle_domain::{Backoff, BootClock, Clock};
use trestle_sandbox::{Isolation, become_subreaper, find_node, give_back_start_up_pages, watch_adopted};

use crate::assignment::{AssignedRun, Machine, RunEnd, release};
use crate::capacity::Capacity;
use crate::client::{ClaimAnswer, Claimed, PoolClient};
use crate::heartbeat::as_millis;
use crate::pace::Pace;
use crate::standby::{Standby, Starter};
use crate::work_directory::{LeaseRecord, WorkDirectory};
use crate::{Config, Identity, RunnerError, Timing, offers};

/// How often a claim is sent whose answer is lost.
const CLAIM_TRIES: u32 = 4;
/// So many runs in a row that could not be started end the runner.
const MAX_START_FAILURES: u32 = 5;

/// One machine of a pool: polls, claims, starts run processes, keeps their leases, cleans up.
pub struct Runner {
    machine: Arc<Machine>,
    config: Arc<Config>,
    pool: String,
}

/// How to end a [`Runner`].
#[derive(Debug, Clone)]
pub struct Handle {
    drain: CancellationToken,
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Handle {
    /// Claim nothing more; the runner ends when its runs have.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Give the runs back and end.
    pub fn stop(&self) {
        self.drain.cancel();
        self.stop.cancel();
    }

    /// End every process of every run at once, and end.
    pub fn kill(&self) {
        self.stop();
        self.kill.cancel();
    }
}

/// What [`Runner::run`] ended for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A drain was asked for here.
    Drained,
    /// The control plane asked for a drain: started again, it would only be drained again.
    DrainedByControlPlane,
    /// The one run of `once` was executed.
    Once,
    /// No run came within the idle limit.
    Idle,
}

/// How a poll came out.
enum Polled {
    /// It was answered, or failed.
    Answered(Result<PollResponse, RunnerError>),
    /// Something else was first.
    Ended(Ended),
}

/// What a poll led to.
enum Step {
    /// No offer, or another runner was first.
    Nothing,
    /// A run that is executed now.
    Started,
    /// The end of polling.
    Ended(Ended),
}

impl Runner {
    /// Prepares the machine: finds Node, takes the work directory, gives back what a runner that died held.
    ///
    /// # Errors
    /// When Node is missing or too old, or the work directory cannot be used or is in use.
    pub async fn start(
        config: Config,
        identity: &Identity,
        isolation: Arc<dyn Isolation>,
    ) -> Result<Self, RunnerError> {
        let declaration = declaration();
        let client = PoolClient::new(
            &config.url,
            declaration,
            config.timing.poll_deadline,
            config.timing.call_deadline,
        )?;
        let path = config
            .forwarded_env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map_or("", |(_, value)| value.as_str());
        let node = find_node(config.node.as_deref(), path.as_ref()).await?;
        if let Some(warning) = node.warning() {
            tracing::warn!("{warning}");
        }
        let work = WorkDirectory::open(&config.work_dir, &identity.runner_id).await?;
        let config = Arc::new(Config { work_dir: work.path().to_owned(), ..config });
        let token = SecretString::from(identity.runner_token.clone());
        for record in work.sweep() {
            release(&client, &token, &config.timing, record, LeaseReleaseReason::Died).await;
        }
        tracing::info!(runner_id = %identity.runner_id, work_dir = %work.path().display(), node = %node.path.display(), node_version = %node.version, "daemon_started");
        let machine = Machine {
            client,
            runner_id: identity.runner_id.clone(),
            token,
            starter: Starter::new(Arc::clone(&config), isolation, node),
            work,
            drain: CancellationToken::new(),
            drained_from_outside: AtomicBool::new(false),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
        };
        Ok(Self { machine: Arc::new(machine), config, pool: identity.pool.clone() })
    }

    /// How to end it from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            drain: self.machine.drain.clone(),
            stop: self.machine.stop.clone(),
            kill: self.machine.kill.clone(),
        }
    }

    /// The interpreter that programs get.
    #[must_use]
    pub fn node(&self) -> &trestle_sandbox::slot::NodeRuntime {
        &self.machine.starter.node
    }

    /// Works until drained. `online` is called once, after the first poll that was answered.
    ///
    /// # Errors
    /// When the control plane refuses this runner (401 or 403 on a poll), or no run process can be started here;
    /// runs in progress are finished first.
    pub async fn run(self, online: impl FnOnce() + Send) -> Result<Ended, RunnerError> {
        // What a run process leaves behind when it is killed comes to this process, and is ended here.
        become_subreaper()?;
        let reaping = tokio::spawn(watch_adopted());
        let mut runs = JoinSet::new();
        let mut standby = Standby::start(self.machine.starter.clone(), self.config.prestart);
        let ended = self.work(&mut runs, &mut standby, online).await;
        standby.stop(self.config.timing.grace).await;
        self.finish(runs).await;
        reaping.abort();
        tracing::info!(runner_id = %self.machine.runner_id, "daemon_stopped");
        ended
    }

    async fn work(
        &self,
        runs: &mut JoinSet<RunEnd>,
        standby: &mut Standby,
        online: impl FnOnce() + Send,
    ) -> Result<Ended, RunnerError> {
        let timing = &self.config.timing;
        let capacity = Capacity::new(self.config.slots);
        let mut backoff = Backoff::new(as_millis(timing.retry_base), as_millis(timing.retry_ceiling));
        let mut pace = Pace::new(timing.poll_gap_first, timing.poll_gap);
        let mut tally = Tally::new(timing);
        let mut online = Some(online);
        loop {
            // Room for a run first: an offer that cannot be taken would keep it from other machines.
            tokio::select! {
                biased;
                () = self.machine.drain.cancelled() => return Ok(self.drained()),
                Some(ended) = runs.join_next(), if !runs.is_empty() => { tally.note(ended)?; continue; }
                () = capacity.free() => {}
            }
            if let Some(until) = tally.pause().into_iter().chain(pace.next()).max()
                && self.pause(until).await
            {
                return Ok(self.drained());
            }
            let sent = Instant::now();
            let step = match self.poll(runs, &mut tally).await? {
                Polled::Ended(ended) => return Ok(ended),
                Polled::Answered(Err(error)) => Err(error),
                Polled::Answered(Ok(answer)) => {
                    if let Some(online) = online.take() {
                        online();
                        give_back_start_up_pages();
                    }
                    self.act_on(answer, &capacity, standby, runs).await
                }
            };
            match step {
                Ok(Step::Ended(ended)) => return Ok(ended),
                Ok(Step::Nothing) => {
                    backoff.reset();
                    pace.fruitless(sent);
                }
                Ok(Step::Started) => {
                    backoff.reset();
                    pace.fruitful();
                    if self.config.once && self.executed(runs, &mut tally).await? {
                        return Ok(Ended::Once);
                    }
                }
                Err(error @ RunnerError::Refused { operation: "poll", status: 401 | 403, .. }) => {
                    tracing::error!(%error, "daemon_rejected");
                    return Err(error);
                }
                Err(error) => {
                    let asked = error.retry_after().unwrap_or_default();
                    let wait = Duration::from_millis(backoff.next_ms()).max(asked);
                    tracing::warn!(%error, retry_in_ms = as_millis(wait), "daemon_iteration_failed");
                    if self.pause(Instant::now() + wait).await {
                        return Ok(self.drained());
                    }
                }
            }
        }
    }

    fn drained(&self) -> Ended {
        if self.machine.drained_from_outside.load(Ordering::Relaxed) {
            Ended::DrainedByControlPlane
        } else {
            Ended::Drained
        }
    }

    /// Waits until then; true when a drain came first.
    async fn pause(&self, until: Instant) -> bool {
        tokio::select! {
            biased;
            () = self.machine.drain.cancelled() => true,
            () = sleep_until(until) => false,
        }
    }

    /// One poll. A drain drops it: an offer that was not claimed is made again.
    async fn poll(&self, runs: &mut JoinSet<RunEnd>, tally: &mut Tally) -> Result<Polled, RunnerError> {
        let poll = self.machine.client.poll(&self.machine.token);
        tokio::pin!(poll);
        loop {
            let idle_until = self.config.idle_limit.map(|limit| tally.last_run + limit);
            tokio::select! {
                biased;
                () = self.machine.drain.cancelled() => return Ok(Polled::Ended(self.drained())),
                Some(ended) = runs.join_next(), if !runs.is_empty() => { tally.note(ended)?; }
                answer = &mut poll => return Ok(Polled::Answered(answer)),
                () = async { sleep_until(idle_until.unwrap_or_else(Instant::now)).await },
                    if idle_until.is_some() && runs.is_empty() => return Ok(Polled::Ended(Ended::Idle)),
            }
        }
    }

    async fn act_on(
        &self,
        answer: PollResponse,
        capacity: &Capacity,
        standby: &mut Standby,
        runs: &mut JoinSet<RunEnd>,
    ) -> Result<Step, RunnerError> {
        if answer.action == Some(PollAction::Drain) {
            self.machine.drain_for_control_plane(None);
            return Ok(Step::Ended(self.drained()));
        }
        let Some(offer) = answer.assignment else { return Ok(Step::Nothing) };
        // Asked for while the poll was on its way: the offer goes to somebody else.
        if self.machine.drain.is_cancelled() {
            return Ok(Step::Ended(self.drained()));
        }
        offers::check(&offer, &self.pool, self.config.labels.as_deref())?;
        let Some((claimed, claim_sent_ms)) = self.claim(&offer).await? else { return Ok(Step::Nothing) };
        let cold = claimed.claim.env.keys().any(|name| crate::config::needs_cold_start(name));
        let (standing_by, refill) = if cold { None } else { standby.take() }.unzip();
        let run = AssignedRun {
            machine: Arc::clone(&self.machine),
            claimed,
            claim_sent_ms,
            slot: capacity.take(),
            standing_by,
            refill,
        };
        runs.spawn(run.execute());
        Ok(Step::Started)
    }

    /// Claims an offer; `None` when another runner won. A claim whose answer was lost may have been granted: it
    /// is made again, and a control plane that knows it answers the same. It is not dropped by a drain.
    async fn claim(&self, offer: &Offer) -> Result<Option<(Claimed, i64)>, RunnerError> {
        let Machine { client, token, .. } = self.machine.as_ref();
        let timing = &self.config.timing;
        let mut backoff = Backoff::new(as_millis(timing.retry_base), as_millis(timing.retry_ceiling));
        for left in (0..CLAIM_TRIES).rev() {
            let sent_ms = BootClock.now_ms();
            match client.claim(token, offer.assignment_id.as_str()).await {
                Ok(ClaimAnswer::Lost) => return Ok(None),
                Ok(ClaimAnswer::Won(claimed)) => {
                    if let Err(error) = offers::check_claim(&claimed.claim, offer) {
                        let lease = (claimed.claim.lease_id, claimed.claim.run_id);
                        self.give_back(Some(lease)).await;
                        return Err(error);
                    }
                    return Ok(Some((*claimed, sent_ms)));
                }
                Ok(ClaimAnswer::Unusable { lease, error }) => {
                    self.give_back(lease).await;
                    return Err(error);
                }
                Err(error) if left == 0 || !error.is_passing() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "claim_repeated");
                    let asked = error.retry_after().unwrap_or_default().min(timing.retry_ceiling);
                    let wait = Duration::from_millis(backoff.next_ms()).max(asked);
                    tokio::select! {
                        () = self.machine.stop.cancelled() => return Err(error),
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
        Ok(None)
    }

    /// A claim that cannot be executed here is no reason for its run to wait until the lease ends.
    async fn give_back(&self, lease: Option<(LeaseId, RunId)>) {
        if let Some((lease_id, run_id)) = lease {
            let record = LeaseRecord { lease_id, run_id };
            let Machine { client, token, .. } = self.machine.as_ref();
            release(client, token, &self.config.timing, record, LeaseReleaseReason::Died).await;
        }
    }

    /// Waits for the run of `once`; false when it could not be started. A drain leaves the wait to the end.
    async fn executed(&self, runs: &mut JoinSet<RunEnd>, tally: &mut Tally) -> Result<bool, RunnerError> {
        tokio::select! {
            biased;
            () = self.machine.drain.cancelled() => Ok(true),
            ended = runs.join_next() => match ended {
                Some(ended) => tally.note(ended),
                None => Ok(false),
            }
        }
    }

    /// Lets runs finish; gives back what is left when the drain's time is over.
    async fn finish(&self, mut runs: JoinSet<RunEnd>) {
        let all = async { while runs.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.timing.drain, all).await.is_err() {
            self.machine.stop.cancel();
            while runs.join_next().await.is_some() {}
        }
    }
}

/// How the runs of this machine come out, as far as the machine itself is to blame.
struct Tally {
    backoff: Backoff,
    failures: u32,
    resume: Option<Instant>,
    last_run: Instant,
}

impl Tally {
    fn new(timing: &Timing) -> Self {
        Self {
            backoff: Backoff::new(as_millis(timing.retry_base), as_millis(timing.retry_ceiling)),
            failures: 0,
            resume: None,
            last_run: Instant::now(),
        }
    }

    /// Takes note of a run that is over; true when it was executed.
    fn note(&mut self, ended: Result<RunEnd, JoinError>) -> Result<bool, RunnerError> {
        self.last_run = Instant::now();
        let reason = match ended {
            Ok(RunEnd::Executed) => {
                self.failures = 0;
                self.resume = None;
                self.backoff.reset();
                return Ok(true);
            }
            Ok(RunEnd::NotStarted(reason)) => reason,
            Err(error) => error.to_string(),
        };
        self.failures += 1;
        if self.failures >= MAX_START_FAILURES {
            return Err(RunnerError::CannotStart { count: self.failures, reason });
        }
        // A machine on which nothing starts must not eat up the attempts of one run after the other.
        self.resume = Some(Instant::now() + Duration::from_millis(self.backoff.next_ms()));
        Ok(false)
    }

    fn pause(&self) -> Option<Instant> {
        self.resume
    }
}

/// What this version says of itself on every poll and claim.
pub(crate) fn declaration() -> Declaration {
    // The version of the crate is of a fitting length, as the test beside this shows.
    Declaration::of_runner(env!("CARGO_PKG_VERSION")).unwrap_or_else(|_| unreachable!("the version is short"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_declaration_fits_the_protocol() {
        assert_eq!(super::declaration().contract_version.get(), 1);
    }
}
