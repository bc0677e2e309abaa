use std::path::PathBuf;

use trestle_contract::pool::{Arch, Os, RegisterRequest};
use trestle_domain::{Clock, WallClock};

use crate::{Config, Identity, IdentityDirectory, PoolClient, RunnerError};

/// What a machine says of itself when it joins a pool.
#[derive(Debug, Clone, Default)]
pub struct Enrolment {
    /// Display name, 1 to 120 characters; the host name by default.
    pub name: Option<String>,
    /// Labels that `runs_on.labels` may ask for; at most 32.
    pub labels: Vec<String>,
}

/// Redeems a registration token; the pool is the one that the token was tied to.
///
/// # Errors
/// When the control plane refuses the token, or the name or a label does not fit.
pub async fn redeem(url: &str, token: &str, enrolment: &Enrolment) -> Result<Identity, RunnerError> {
    let timing = Config::default().timing;
    let client =
        PoolClient::new(url, crate::runner::declaration(), timing.poll_deadline, timing.call_deadline)?;
    let name = enrolment.name.clone().unwrap_or_else(host_name);
    let request = RegisterRequest {
        registration_token: fits("--token", trestle_contract::bounds::Token::new(token))?,
        name: fits("--name", trestle_contract::pool::Label::new(name.as_str()))?,
        labels: labels(&enrolment.labels)?,
        os: own_os(),
        arch: own_arch(),
        runner_version: Some(crate::runner::declaration().runner_version),
    };
    let answer = client.register(&request).await?;
    Ok(Identity {
        runner_id: answer.runner_id.to_string(),
        runner_token: answer.runner_token.expose().to_owned(),
        control_plane_url: url.to_owned(),
        pool: answer.pool.as_str().to_owned(),
        org: None,
        name,
        created_at: u64::try_from(WallClock.now_ms()).unwrap_or_default(),
    })
}

/// Redeems a registration token and saves the identity.
///
/// # Errors
/// As [`redeem`], and when the identity cannot be saved.
pub async fn register(
    url: &str,
    token: &str,
    enrolment: &Enrolment,
    directory: &IdentityDirectory,
) -> Result<(Identity, PathBuf), RunnerError> {
    let identity = redeem(url, token, enrolment).await?;
    let file = directory.save(&identity)?;
    Ok((identity, file))
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
    let timing = Config::default().timing;
    let client =
        PoolClient::new(url, crate::runner::declaration(), timing.poll_deadline, timing.call_deadline)?;
    client.deregister(&identity.runner_token.clone().into()).await?;
    directory.remove(url, pool)?;
    Ok(identity)
}

fn labels(given: &[String]) -> Result<Vec<trestle_contract::pool::Label>, RunnerError> {
    if given.len() > trestle_contract::pool::MAX_LABELS {
        return Err(unfit("--labels", "at most 32 labels"));
    }
    given.iter().map(|label| fits("--labels", trestle_contract::pool::Label::new(label.as_str()))).collect()
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

fn own_os() -> Option<Os> {
    match std::env::consts::OS {
        "linux" => Some(Os::Linux),
        "macos" => Some(Os::Macos),
        _ => None,
    }
}

fn own_arch() -> Option<Arch> {
    match std::env::consts::ARCH {
        "x86_64" => Some(Arch::X64),
        "aarch64" => Some(Arch::Arm64),
        _ => None,
    }
}
