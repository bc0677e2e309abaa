//! What every handler reaches: the store, the keys, the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use trestle_contract::ids::{OrgId, RunId};
use trestle_domain::ServerKey;
use trestle_store::{Blobs, EventPage, Organisation, Store, StoreResult};

use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::failure::{Answer, Failure};
use crate::feed::{Feeds, Source};
use crate::hub::Hub;
use crate::inference::Relay;
use crate::keys::Keys;
use crate::signed_url::{Grant, Operation, Signer};
use crate::vault::Vault;

/// Shared state of all handlers; cheap to clone.
#[derive(Clone)]
pub(crate) struct State(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) public_url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Blobs,
    pub(crate) organisation: Organisation,
    pub(crate) keys: Keys,
    pub(crate) server_key: ServerKey,
    pub(crate) vault: Arc<Vault>,
    pub(crate) signer: Signer,
    pub(crate) hub: Arc<Hub>,
    pub(crate) feeds: Feeds,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) relay: Relay,
    pub(crate) shutdown: CancellationToken,
    pub(crate) uploads: RwLock<()>,
    pub(crate) parked: Arc<AtomicUsize>,
}

impl State {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The configuration in effect.
    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    /// The blobs.
    pub(crate) fn blobs(&self) -> &Blobs {
        &self.0.blobs
    }

    /// The one organisation of this installation.
    pub(crate) fn organisation(&self) -> &Organisation {
        &self.0.organisation
    }

    pub(crate) fn organisation_id(&self) -> Answer<OrgId> {
        OrgId::new(self.0.organisation.id.clone()).map_err(Failure::internal)
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn server_key(&self) -> &ServerKey {
        &self.0.server_key
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.0.vault
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// The events of the runs that somebody follows.
    pub(crate) fn feeds(&self) -> &Feeds {
        &self.0.feeds
    }

    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }

    /// Counts a poll as parked as long as the answer lives.
    pub(crate) fn park(&self) -> Parked {
        self.0.parked.fetch_add(1, Ordering::Relaxed);
        Parked(Arc::clone(&self.0.parked))
    }

    pub(crate) fn relay(&self) -> &Relay {
        &self.0.relay
    }

    /// Resolves when the server begins to stop.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.0.shutdown
    }

    /// Held for reading while an upload becomes part of something, for writing
    /// while unclaimed uploads are removed: between the two, the bytes of an
    /// upload could vanish under whoever claims it.
    pub(crate) fn uploads(&self) -> &RwLock<()> {
        &self.0.uploads
    }

    /// Origin of every absolute address that is handed out.
    pub(crate) fn public_url(&self) -> &str {
        &self.0.public_url
    }

    /// Store time in milliseconds.
    pub(crate) fn now(&self) -> i64 {
        self.0.store.now_ms()
    }

    /// A signed address for reading an object.
    pub(crate) fn download(
        &self,
        key: &str,
        life: Duration,
        content_type: Option<&str>,
        name: Option<&str>,
    ) -> (String, i64) {
        let expires = self.after(life);
        let grant = Grant {
            operation: Operation::Get,
            key: key.to_owned(),
            expires,
            length: None,
            digest: None,
            content_type: content_type.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        (self.0.signer.address(self.public_url(), &grant), expires)
    }

    /// A signed address for the bytes of an announced upload.
    pub(crate) fn upload(
        &self,
        key: &str,
        length: u64,
        digest: Option<&str>,
        content_type: &str,
    ) -> (String, i64) {
        let expires = self.after(Duration::from_millis(self.config().intervals.upload_ms));
        let grant = Grant {
            operation: Operation::Put,
            key: key.to_owned(),
            expires,
            length: Some(length),
            digest: digest.map(str::to_owned),
            content_type: Some(content_type.to_owned()),
            name: None,
        };
        (self.0.signer.address(self.public_url(), &grant), expires)
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.0.signer
    }

    fn after(&self, life: Duration) -> i64 {
        self.now().saturating_add(i64::try_from(life.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A parked poll, for the count of them.
pub(crate) struct Parked(Arc<AtomicUsize>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl Source for State {
    async fn read(&self, run: &RunId, after: u64, limit: u32) -> StoreResult<EventPage> {
        self.store().read_events(run, after, limit).await
    }

    async fn last_cursor(&self, run: &RunId) -> StoreResult<u64> {
        self.store().last_cursor(run).await
    }

    fn now_ms(&self) -> i64 {
        self.now()
    }
}
