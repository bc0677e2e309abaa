use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a runner is started with.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Origin of the control plane, without a trailing slash. Since 0.1.0.
    pub url: String,
    /// Where runs live while they run; made with mode 0700. Since 0.1.0.
    pub work_dir: PathBuf,
    /// How many runs may work at the same time. Runs that only wait for child runs do not count;
    /// four times as many may be alive. Default: the number of cores. Since 0.1.0.
    pub slots: usize,
    /// How many run processes stand by with an interpreter that has loaded everything but a
    /// program. Since 0.1.0.
    pub prestart: usize,
    /// End after the first run that was executed. Since 0.1.0.
    pub once: bool,
    /// End after so long a time without a run. Never by default. Since 0.1.0.
    pub idle_limit: Option<Duration>,
    /// Labels that this machine is known to be registered with: an offer that asks for others is not claimed.
    /// Since 0.1.0.
    pub labels: Option<Vec<String>>,
    /// The Node to use; `node` on PATH by default. Since 0.1.0.
    pub node: Option<PathBuf>,
    /// The executable that is started as run process, with `__run` as its first argument. Since 0.1.0.
    pub executable: PathBuf,
    /// Environment of run processes: PATH, LANG and proxies of this process, nothing else. Since 0.1.0.
    pub forwarded_env: Vec<(String, String)>,
    /// Length of the run lease that run processes ask for, in seconds. Since 0.1.0.
    pub lease_seconds: u64,
    /// Intervals and deadlines. Since 0.1.0.
    pub timing: Timing,
}

/// Every interval of the runner, so that fault tests can run at a fraction of the real values.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Timing {
    /// Deadline of a poll; the server holds it for up to 24 s.
    pub poll_deadline: Duration,
    /// Deadline of every other pool call.
    pub call_deadline: Duration,
    /// Mean of the first wait after a failed call; doubles up to `retry_ceiling`, with full jitter.
    pub retry_base: Duration,
    /// Longest wait after a failed call.
    pub retry_ceiling: Duration,
    /// Shortest time between two polls after one that brought nothing; doubles up to `poll_gap`.
    pub poll_gap_first: Duration,
    /// Longest time between two polls that bring nothing and are not held by the server.
    pub poll_gap: Duration,
    /// How long the process of a cancelled run may go on before it is ended from here.
    pub cancel_grace: Duration,
    /// Time between two heartbeats of a lease; a sixth of the lease if that is less.
    pub heartbeat: Duration,
    /// Time between two looks at the lease deadline.
    pub deadline_check: Duration,
    /// What a run process gets between the request to end and the kill.
    pub grace: Duration,
    /// When a prestarted slot is replaced while its run goes on; a quarter of it after the run's end.
    pub refill_after: Duration,
    /// How long a drain waits for runs before it gives them back.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll_deadline: Duration::from_secs(60),
            call_deadline: Duration::from_secs(15),
            retry_base: Duration::from_millis(500),
            retry_ceiling: Duration::from_secs(30),
            poll_gap_first: Duration::from_millis(100),
            poll_gap: Duration::from_secs(5),
            cancel_grace: Duration::from_secs(10),
            heartbeat: Duration::from_secs(15),
            deadline_check: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            refill_after: Duration::from_millis(100),
            drain: Duration::from_secs(600),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:7070".to_owned(),
            work_dir: PathBuf::from("./trestle-data/runner/work"),
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            prestart: 1,
            once: false,
            idle_limit: None,
            labels: None,
            node: None,
            executable: PathBuf::from("/proc/self/exe"),
            forwarded_env: Vec::new(),
            lease_seconds: 90,
            timing: Timing::default(),
        }
    }
}

/// Entries of a daemon's environment that run processes get, and nothing else.
const FORWARDED: [&str; 11] = [
    "PATH",
    "LANG",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_USE_ENV_PROXY",
    // Where run processes show their runs; programs do not get these.
    "TRESTLE_RUN_LOG_FILE",
    "BOARDWALK_RUN_LOG_FILE",
];

/// Picks the entries that run processes get out of `environment`.
#[must_use]
pub fn forwarded_env(environment: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    environment.into_iter().filter(|(name, _)| FORWARDED.contains(&name.as_str())).collect()
}

/// Whether a program with this environment entry needs an interpreter that was started with it: Node reads
/// it once, when it starts.
pub(crate) fn needs_cold_start(name: &str) -> bool {
    name.starts_with("NODE_")
        || name.starts_with("LD_")
        || name.starts_with("SSL_CERT_")
        || matches!(name, "UV_THREADPOOL_SIZE" | "OPENSSL_CONF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_entries_are_forwarded() {
        let given =
            [("PATH", "/bin"), ("HOME", "/root"), ("AWS_SECRET_ACCESS_KEY", "x"), ("https_proxy", "p")];
        let kept = forwarded_env(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(
            kept,
            [("PATH".to_owned(), "/bin".to_owned()), ("https_proxy".to_owned(), "p".to_owned())]
        );
    }

    #[test]
    fn entries_that_node_reads_at_start_need_a_cold_start() {
        for name in [
            "NODE_OPTIONS",
            "NODE_EXTRA_CA_CERTS",
            "LD_PRELOAD",
            "SSL_CERT_FILE",
            "UV_THREADPOOL_SIZE",
            "OPENSSL_CONF",
        ] {
            assert!(needs_cold_start(name), "{name}");
        }
        for name in ["PATH", "HOME", "NODEX", "REGION"] {
            assert!(!needs_cold_start(name), "{name}");
        }
    }
}
