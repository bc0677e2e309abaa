//! Starting and stopping the control plane.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trestle_contract::ids::RunnerId;
use trestle_store::{Blobs, ReleaseReason, Store};

use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::error::Error;
use crate::feed::Feeds;
use crate::hub::{self, Hub};
use crate::inference::Relay;
use crate::keys::{ADMIN_TOKEN, Keys, write_private};
use crate::listener;
use crate::router;
use crate::signed_url::Signer;
use crate::state::{Inner, State};
use crate::sweeper;
use crate::vault::Vault;

/// Name of the file that tells clients on this machine where the server is.
const SERVER_FILE: &str = "server.json";

/// The control plane.
#[derive(Debug)]
pub struct Server;

/// A running control plane; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    address: SocketAddr,
    url: String,
    public_url: String,
    admin_token: PathBuf,
    connections: Arc<AtomicUsize>,
    parked: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    stopped: CancellationToken,
}

#[derive(Serialize)]
struct ServerFile<'a> {
    url: &'a str,
    pid: u32,
    version: &'a str,
}

impl Server {
    /// Listens, takes up where the last process stopped, and serves.
    ///
    /// The store is open already, and its lock makes this process the only
    /// owner of the data directory.
    ///
    /// # Errors
    ///
    /// When the address is taken, a file of the data directory cannot be used,
    /// or the store refuses.
    pub async fn start(config: Config, store: Arc<dyn Store>, blobs: Blobs) -> Result<Handle, Error> {
        let listener = listener::bind(config.listen).await?;
        let address =
            listener.local_addr().map_err(|source| Error::Listen { address: config.listen, source })?;
        let url = local_url(address);
        let public_url = public_url(&config, &url)?;
        let keys = Keys::open(&config.data)?;
        let organisation = store.organisation().await?;
        take_over(&config, store.as_ref()).await?;

        let shutdown = CancellationToken::new();
        let stopped = CancellationToken::new();
        let run_changes = Arc::new(Hub::new());
        let changes = store.changes();
        let dispatcher = Dispatcher::start(Arc::clone(&store), shutdown.clone());
        tokio::spawn(hub::follow(changes, Arc::clone(&run_changes), dispatcher.clone(), shutdown.clone()));
        let vault = Arc::new(Vault::new(&keys));
        let parked = Arc::default();
        let state = State::new(Inner {
            relay: Relay::new(config.model.clone(), Arc::clone(&store), Arc::clone(&vault))?,
            server_key: keys.derive("trestle tokens 1"),
            signer: Signer::new(&keys),
            vault,
            hub: run_changes,
            feeds: Feeds::default(),
            dispatcher,
            organisation,
            public_url: public_url.clone(),
            store,
            blobs,
            keys,
            shutdown: shutdown.clone(),
            uploads: tokio::sync::RwLock::new(()),
            parked: Arc::clone(&parked),
            config,
        });
        write_server_file(&state, &url)?;
        let sweeping = tokio::spawn(sweeper::sweep(state.clone()));
        let handle = Handle {
            address,
            url,
            public_url,
            admin_token: state.config().data.join(ADMIN_TOKEN),
            connections: Arc::default(),
            parked,
            shutdown,
            stopped,
        };
        tokio::spawn(serve(listener, state, sweeping, handle.clone()));
        Ok(handle)
    }
}

async fn serve(listener: tokio::net::TcpListener, state: State, sweeping: JoinHandle<()>, handle: Handle) {
    let router = router::build(state.clone());
    let intervals = state.config().intervals.clone();
    listener::serve(listener, router, intervals, Arc::clone(&handle.connections), handle.shutdown.clone())
        .await;
    let _ = sweeping.await;
    state.relay().shut_down().await;
    // The next process may be there already when this one is slow to end, so
    // only one's own file is removed.
    let path = state.config().data.join(SERVER_FILE);
    let own = std::fs::read(&path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .is_some_and(|file| file["pid"] == std::process::id());
    if own {
        let _ = std::fs::remove_file(&path);
    }
    handle.stopped.cancel();
}

impl Handle {
    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How clients on this machine reach the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The origin of the absolute addresses that the server hands out.
    #[must_use]
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    /// The file with the administrator's token.
    #[must_use]
    pub fn admin_token_file(&self) -> &std::path::Path {
        &self.admin_token
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many polls are parked.
    #[must_use]
    pub fn parked_polls(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// Asks the server to stop: it accepts nothing more, lets parked polls and
    /// streams go, and waits for what is in flight.
    pub fn stop(&self) {
        self.shutdown.cancel();
    }

    /// Resolves when the server has stopped.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }
}

/// Takes up what a former process left: the leases of its own runner, which
/// died with it, end; all others get their full length again.
async fn take_over(config: &Config, store: &dyn Store) -> Result<(), Error> {
    if let Some(runner) = config.embedded_runner.as_deref().and_then(|id| RunnerId::new(id).ok()) {
        let ended = store.end_runner_leases(&runner, ReleaseReason::Died).await;
        match ended {
            Ok(ended) => {
                for (run, fate) in ended {
                    tracing::info!(%run, ?fate, "a run of the former process was taken back");
                }
            }
            Err(trestle_store::StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // Whoever starts the server with its runner wants that runner to work, whatever drained it before.
        match store.resume_runner(&runner).await {
            Ok(()) | Err(trestle_store::StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let extended = store.extend_leases().await?;
    if extended > 0 {
        tracing::info!(extended, "leases were prolonged after the restart");
    }
    Ok(())
}

fn local_url(address: SocketAddr) -> String {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{host}:{}", address.port())
}

fn public_url(config: &Config, local: &str) -> Result<String, Error> {
    let Some(configured) = &config.public_url else {
        return Ok(local.to_owned());
    };
    let trimmed = configured.trim().trim_end_matches('/');
    match url::Url::parse(trimmed) {
        Ok(url)
            if matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none() =>
        {
            Ok(trimmed.to_owned())
        }
        _ => Err(Error::PublicUrl(configured.clone())),
    }
}

fn write_server_file(state: &State, url: &str) -> Result<(), Error> {
    let file = ServerFile { url, pid: std::process::id(), version: &state.config().version };
    let bytes = serde_json::to_vec(&file).unwrap_or_default();
    write_private(&state.config().data.join(SERVER_FILE), &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_address_can_be_connected_to() {
        let url = |text: &str| local_url(text.parse().unwrap());
        assert_eq!(url("127.0.0.1:7070"), "http://127.0.0.1:7070");
        assert_eq!(url("0.0.0.0:1"), "http://127.0.0.1:1");
        assert_eq!(url("[::]:1"), "http://[::1]:1");
        assert_eq!(url("[::1]:1"), "http://[::1]:1");
    }

    #[test]
    fn the_public_address_must_be_absolute() {
        let with = |text: &str| {
            let config = Config { public_url: Some(text.to_owned()), ..Config::default() };
            public_url(&config, "http://local")
        };
        assert_eq!(with("https://t.example/base//").unwrap(), "https://t.example/base");
        for bad in ["t.example", "ftp://t.example", "", "http://", "https://t.example/?a=1"] {
            let error = with(bad).unwrap_err();
            assert!(error.hint().is_some(), "{bad}");
        }
    }
}
