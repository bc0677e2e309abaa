//! What an operator can set. Every interval is a field, so that tests run the
//! same code on a shorter scale.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inference::ModelConfig;

/// Configuration of the control plane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory that holds the store, the blobs, the keys and `server.json`.
    pub data: PathBuf,
    /// Address to listen on. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Absolute origin that others reach this server under, without a trailing
    /// slash. Every absolute address that the server hands out starts with it;
    /// the `Host` header of a request is never used. Default: the address
    /// that the server listens on.
    pub public_url: Option<String>,
    /// Name of the pool that serves workflows with a hosted `runs_on` label.
    pub hosted_pool: String,
    /// Version that `server.json`, `/healthz` and the OpenAPI document show.
    pub version: String,
    /// The smallest `contract_version` of a runner that is served.
    pub contract_floor: u32,
    /// Id of the runner that lives in the server's own process. What it held
    /// when a former process of this data directory died is taken back at
    /// once, without waiting for its leases.
    pub embedded_runner: Option<String>,
    /// The operator's model.
    pub model: ModelConfig,
    /// Time limits and periods.
    pub intervals: Intervals,
    /// Size limits.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("trestle-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            public_url: None,
            hosted_pool: "default".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            contract_floor: 1,
            embedded_runner: None,
            model: ModelConfig::default(),
            intervals: Intervals::default(),
            limits: Limits::default(),
        }
    }
}

/// Every period and time limit of the server, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Intervals {
    /// Shortest time that a poll without work is held.
    pub poll_hold_min_ms: u64,
    /// Longest time that a poll without work is held.
    pub poll_hold_max_ms: u64,
    /// Assignment lease of a runner that announces itself as ours.
    pub lease_ms: u64,
    /// Assignment lease of any other runner.
    pub foreign_lease_ms: u64,
    /// Life of a registration token.
    pub registration_ms: u64,
    /// Longest time that a call with `x-trestle-wait` is held.
    pub wait_max_ms: u64,
    /// Period of keep-alive comments on an event stream.
    pub keep_alive_ms: u64,
    /// How long a peer may accept no byte before its connection is cut.
    pub stall_ms: u64,
    /// How long a connection may take to send the head of a request, and how
    /// long an idle connection is kept.
    pub head_ms: u64,
    /// How long a request body may make no progress.
    pub body_idle_ms: u64,
    /// Period of the sweep for lapsed leases, uploads and stored answers.
    pub sweep_ms: u64,
    /// Life of an upload address.
    pub upload_ms: u64,
    /// Life of a download address that the server hands out unasked.
    pub download_ms: u64,
    /// Age at which an upload that nobody claimed is removed.
    pub unclaimed_upload_ms: u64,
    /// How long requests in flight may take to end after shutdown began.
    pub drain_ms: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            poll_hold_min_ms: 18_000,
            poll_hold_max_ms: 24_000,
            lease_ms: 90_000,
            foreign_lease_ms: 300_000,
            registration_ms: 3_600_000,
            wait_max_ms: 25_000,
            keep_alive_ms: 12_000,
            stall_ms: 30_000,
            head_ms: 120_000,
            body_idle_ms: 30_000,
            sweep_ms: 1_000,
            upload_ms: 15 * 60_000,
            download_ms: 3_600_000,
            unclaimed_upload_ms: 3_600_000,
            drain_ms: 10_000,
        }
    }
}

impl Intervals {
    /// The same intervals divided by `factor`, each at least one millisecond.
    #[must_use]
    pub fn scaled(&self, factor: u64) -> Self {
        let scale = |value: u64| (value / factor.max(1)).max(1);
        Self {
            poll_hold_min_ms: scale(self.poll_hold_min_ms),
            poll_hold_max_ms: scale(self.poll_hold_max_ms),
            lease_ms: scale(self.lease_ms),
            foreign_lease_ms: scale(self.foreign_lease_ms),
            registration_ms: scale(self.registration_ms),
            wait_max_ms: scale(self.wait_max_ms),
            keep_alive_ms: scale(self.keep_alive_ms),
            stall_ms: scale(self.stall_ms),
            head_ms: scale(self.head_ms),
            body_idle_ms: scale(self.body_idle_ms),
            sweep_ms: scale(self.sweep_ms),
            upload_ms: scale(self.upload_ms),
            download_ms: scale(self.download_ms),
            unclaimed_upload_ms: scale(self.unclaimed_upload_ms),
            drain_ms: scale(self.drain_ms),
        }
    }

    pub(crate) fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keep_alive_ms)
    }
}

/// Size limits of the server, in bytes where no other unit is named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Body of most calls.
    pub body: u64,
    /// Body of telemetry, finalize, inference, journal, suspend and
    /// manifest/write.
    pub large_body: u64,
    /// Body of an inline artifact.
    pub artifact_body: u64,
    /// Program JSON of a trigger or a child.
    pub input: u64,
    /// One artifact of a run.
    pub artifact: u64,
    /// One program artifact.
    pub program: u64,
    /// Largest page of a run list, in rows.
    pub page: u32,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            body: 5 * MIB,
            large_body: 64 * MIB,
            artifact_body: 8 * MIB,
            input: 4 * MIB,
            artifact: 100 * MIB,
            program: 256 * MIB,
            page: 200,
        }
    }
}
