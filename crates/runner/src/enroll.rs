use std::path::PathBuf;

use trestle_contract::pool::{Arch, Label, Os, RegisterRequest};
use trestle_domain::{Clock, WallClock};

use crate::{Config, Identity, IdentityDirectory, Joined, PoolClient, RunnerError};

/// What a machine says of itself when it joins a pool.
#[derive(Debug, Clone, Default)]
pub struct Enrolment {
    /// Display name, 1 to 120 characters; the host name by default.
    pub name: Option<String>,
    /// Labels that `runs_on.labels` may ask for; at most 32.
    pub labels: Vec<String>,
}

/// What a registration brought.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Who this machine is from now on.
    pub identity: Identity,
    /// What it joined with.
    pub joined: Joined,
}

/// Redeems a registration token; the pool is the one that the token was tied to.
///
/// # Errors
/// When the control plane refuses the token, or the name or a label does not fit.
pub async fn redeem(url: &str, token: &str, enrolment: &Enrolment) -> Result<Registered, RunnerError> {
    let client = client(url)?;
    let name = enrolment.name.clone().unwrap_or_else(host_name);
    let request = RegisterRequest {
        registration_token: fits("--token", trestle_contract::bounds::Token::new(token))?,
        name: fits("--name", Label::new(name.as_str()))?,
        labels: enrolment.labels()?,
        os: own_os(),
        arch: own_arch(),
        runner_version: Some(crate::runner::declaration().runner_version),
    };
    let answer = client.register(&request).await?;
    let joined = Joined {
        runner_id: answer.runner_id.to_string(),
        labels: enrolment.labels.clone(),
        interval_seconds: Some(answer.poll.interval_seconds.get()),
    };
    let identity = Identity {
        runner_id: answer.runner_id.to_string(),
        runner_token: answer.runner_token.expose().to_owned(),
        control_plane_url: url.to_owned(),
        pool: answer.pool.as_str().to_owned(),
        org: None,
        name,
        created_at: now(),
    };
    Ok(Registered { identity, joined })
}

/// Redeems a registration token and saves the identity.
///
/// # Errors
/// As [`redeem`], and when the identity cannot be saved; the new runner is then removed again.
pub async fn register(
    url: &str,
    token: &str,
    enrolment: &Enrolment,
    directory: &IdentityDirectory,
) -> Result<(Identity, PathBuf), RunnerError> {
    // The token works once: whatever can be found out before is found out before.
    directory.prepare()?;
    let registered = redeem(url, token, enrolment).await?;
    let saved = save(directory, &registered);
    if saved.is_err() {
        let token = registered.identity.runner_token.clone().into();
        if let Err(error) = client(url)?.deregister(&token).await {
            tracing::warn!(runner_id = %registered.identity.runner_id, %error, "runner_not_removed");
        }
    }
    Ok((registered.identity, saved?))
}

/// Saves an identity and what the machine joined with.
///
/// # Errors
/// When a file cannot be written.
pub fn save(directory: &IdentityDirectory, registered: &Registered) -> Result<PathBuf, RunnerError> {
    let file = directory.save(&registered.identity)?;
    directory.save_joined(&registered.identity, &registered.joined)?;
    Ok(file)
}

/// Removes this machine from its pool for good, then forgets the identity; a refused call leaves the file.
///
/// # Errors
/// When there is no identity, or the control plane refuses.
pub async fn deregister(
    url: &str,
    pool: &str,
    directory: &IdentityDirectory,
) -> Result<Identity, RunnerError> {
    let identity = directory
        .load(url, pool)?
        .ok_or_else(|| RunnerError::NotRegistered { url: url.to_owned(), pool: pool.to_owned() })?;
    client(url)?.deregister(&identity.runner_token.clone().into()).await?;
    directory.remove(url, pool)?;
    Ok(identity)
}

fn client(url: &str) -> Result<PoolClient, RunnerError> {
    let timing = Config::default().timing;
    PoolClient::new(url, crate::runner::declaration(), timing.poll_deadline, timing.call_deadline)
}

fn now() -> u64 {
    u64::try_from(WallClock.now_ms()).unwrap_or_default()
}

impl Enrolment {
    /// The labels as the protocol takes them.
    ///
    /// # Errors
    /// When there are more than 32, or one is empty or too long.
    pub fn labels(&self) -> Result<Vec<Label>, RunnerError> {
        if self.labels.len() > trestle_contract::pool::MAX_LABELS {
            return Err(unfit("--labels", "at most 32 labels"));
        }
        self.labels.iter().map(|label| fits("--labels", Label::new(label.as_str()))).collect()
    }

    /// The runner that a control plane enrolled without a registration token.
    #[must_use]
    pub fn enrolled(self, url: &str, org: &str, pool: &str, runner_id: String, token: String) -> Registered {
        let joined = Joined { runner_id: runner_id.clone(), labels: self.labels, interval_seconds: None };
        let identity = Identity {
            runner_id,
            runner_token: token,
            control_plane_url: url.to_owned(),
            pool: pool.to_owned(),
            org: Some(org.to_owned()),
            name: self.name.unwrap_or_else(host_name),
            created_at: now(),
        };
        Registered { identity, joined }
    }
}

fn fits<T, E: std::fmt::Display>(what: &'static str, parsed: Result<T, E>) -> Result<T, RunnerError> {
    parsed.map_err(|error| unfit(what, &error.to_string()))
}

fn unfit(what: &'static str, problem: &str) -> RunnerError {
    RunnerError::InvalidAnswer { what, problem: problem.to_owned() }
}

/// This machine's name, cut to what the protocol takes.
#[must_use]
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let name: String = name.chars().take(60).collect();
    if name.is_empty() { "runner".to_owned() } else { name }
}

/// This machine's operating system, if the protocol has a word for it.
#[must_use]
pub fn own_os() -> Option<Os> {
    match std::env::consts::OS {
        "linux" => Some(Os::Linux),
        "macos" => Some(Os::Macos),
        _ => None,
    }
}

/// This machine's architecture, if the protocol has a word for it.
#[must_use]
pub fn own_arch() -> Option<Arch> {
    match std::env::consts::ARCH {
        "x86_64" => Some(Arch::X64),
        "aarch64" => Some(Arch::Arm64),
        _ => None,
    }
}
