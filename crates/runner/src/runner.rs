use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trestle_contract::pool::{Declaration, LeaseReleaseReason, Offer, PollAction};
use trestle_domain::{Backoff, BootClock, Clock};
use trestle_sandbox::{Isolation, become_subreaper, find_node, watch_adopted};

use crate::assignment::{AssignedRun, Machine, release};
use crate::capacity::Capacity;
use crate::client::PoolClient;
use crate::standby::{Standby, Starter};
use crate::work_directory::WorkDirectory;
use crate::{Config, Identity, RunnerError};

/// One machine of a pool: polls, claims, starts run processes, keeps their leases, cleans up.
pub struct Runner {
    machine: Arc<Machine>,
    config: Arc<Config>,
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

/// What a run executed by [`Runner::run`] ended for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A drain was asked for, here or by the control plane.
    Drained,
    /// The one run of `once` was executed.
    Once,
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
        let work = WorkDirectory::open(&config.work_dir)?;
        let config = Arc::new(Config { work_dir: work.path().to_owned(), ..config });
        let token = SecretString::from(identity.runner_token.clone());
        for record in work.sweep() {
            release(&client, &token, record, LeaseReleaseReason::Died).await;
        }
        tracing::info!(runner_id = %identity.runner_id, work_dir = %work.path().display(), node = %node.path.display(), node_version = %node.version, "daemon_started");
        let machine = Machine {
            client,
            runner_id: identity.runner_id.clone(),
            token,
            starter: Starter::new(Arc::clone(&config), isolation, node),
            work,
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
        };
        Ok(Self { machine: Arc::new(machine), config })
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
    /// When the control plane refuses this runner (401 or 403 on a poll); runs in progress are finished first.
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
        runs: &mut JoinSet<()>,
        standby: &mut Standby,
        online: impl FnOnce() + Send,
    ) -> Result<Ended, RunnerError> {
        let capacity = Capacity::new(self.config.slots);
        let ceiling = self.config.timing.retry_ceiling;
        let mut backoff = Backoff::new(millis(self.config.timing.retry_base), millis(ceiling));
        let mut online = Some(online);
        loop {
            while runs.try_join_next().is_some() {}
            tokio::select! {
                () = self.machine.drain.cancelled() => return Ok(Ended::Drained),
                () = capacity.free() => {}
            }
            // A poll in flight is dropped by a drain: an offer that was not claimed is offered again.
            let step = tokio::select! {
                () = self.machine.drain.cancelled() => return Ok(Ended::Drained),
                step = self.machine.client.poll(&self.machine.token) => step,
            };
            let step = match step {
                Ok(answer) => {
                    if let Some(online) = online.take() {
                        online();
                    }
                    if answer.action == Some(PollAction::Drain) {
                        tracing::info!("drain_requested");
                        return Ok(Ended::Drained);
                    }
                    match answer.assignment {
                        Some(offer) => self.claim(offer, &capacity, standby, runs).await,
                        None => Ok(false),
                    }
                }
                Err(error) => Err(error),
            };
            match step {
                Ok(executed) => {
                    backoff.reset();
                    if executed && self.config.once {
                        return Ok(Ended::Once);
                    }
                }
                Err(error @ RunnerError::Refused { operation: "poll", status: 401 | 403, .. }) => {
                    tracing::error!(%error, "daemon_rejected");
                    return Err(error);
                }
                Err(error) => {
                    let wait = Duration::from_millis(backoff.next_ms());
                    tracing::warn!(%error, retry_in_ms = millis(wait), "daemon_iteration_failed");
                    tokio::select! {
                        () = self.machine.drain.cancelled() => return Ok(Ended::Drained),
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Claims an offer and starts its run; false when another runner won.
    async fn claim(
        &self,
        offer: Offer,
        capacity: &Capacity,
        standby: &mut Standby,
        runs: &mut JoinSet<()>,
    ) -> Result<bool, RunnerError> {
        let claim_sent_ms = BootClock.now_ms();
        // A claim in flight is not dropped by a drain: it may have been granted already.
        let Some(claimed) =
            self.machine.client.claim(&self.machine.token, offer.assignment_id.as_str()).await?
        else {
            return Ok(false);
        };
        let cold = claimed.claim.env.keys().any(|name| crate::config::needs_cold_start(name));
        let run = AssignedRun {
            machine: Arc::clone(&self.machine),
            claimed,
            claim_sent_ms,
            slot: capacity.take(),
            standing_by: if cold { None } else { standby.take() },
        };
        runs.spawn(run.execute());
        Ok(true)
    }

    /// Lets runs finish; gives back what is left when the drain's time is over.
    async fn finish(&self, mut runs: JoinSet<()>) {
        let all = async { while runs.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.timing.drain, all).await.is_err() {
            self.machine.stop.cancel();
            while runs.join_next().await.is_some() {}
        }
    }
}

/// What this version says of itself on every poll and claim.
pub(crate) fn declaration() -> Declaration {
    // The version of the crate is of a fitting length, as the test beside this shows.
    Declaration::of_runner(env!("CARGO_PKG_VERSION")).unwrap_or_else(|_| unreachable!("the version is short"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_declaration_fits_the_protocol() {
        assert_eq!(super::declaration().contract_version.get(), 1);
    }
}
