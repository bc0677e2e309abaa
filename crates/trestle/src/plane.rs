use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use trestle_cli::{CliError, Client, ServerAddress};
use trestle_contract::ErrorCode;
use trestle_runner::{Enrolment, Identity, IdentityDirectory, Runner, RunnerError};
use trestle_sandbox::HostIsolation;
use trestle_server::Server;
use trestle_store::{Blobs, DataDir, SqliteStore, Store, StoreOptions};

use crate::arguments::{ModelOptions, ModelProvider, WorkOptions};
use crate::failure;

/// The pool of the runner in the server's own process; hosted `runs_on` labels lead there.
const POOL: &str = "default";
/// Stands for "the server of this data directory" in the saved identity: its port may change.
const EMBEDDED: &str = "http://embedded.invalid";

/// What a server in this process is started with.
pub(crate) struct PlaneOptions {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) model: ModelOptions,
    pub(crate) lease_seconds: u64,
}

/// A running server of this process, and what its own runner needs.
pub(crate) struct Plane {
    pub(crate) server: trestle_server::Handle,
    pub(crate) data: PathBuf,
    store: Arc<dyn Store>,
    // Holds the lock of the data directory.
    _directory: DataDir,
    identities: IdentityDirectory,
}

impl Plane {
    /// Takes the data directory and starts the server on it.
    pub(crate) async fn start(options: PlaneOptions) -> Result<Self, CliError> {
        let directory = DataDir::open(&options.data).map_err(|error| failure::of_store(&error))?;
        let data = directory.path().to_owned();
        let store = SqliteStore::open(&directory, StoreOptions::default())
            .await
            .map_err(|error| failure::of_store(&error))?;
        let blobs = Blobs::local(&directory.blobs()).map_err(|error| failure::of_store(&error))?;
        let identities = IdentityDirectory::new(data.join("runner"));
        let embedded = identities.load(EMBEDDED, POOL).map_err(|error| failure::of_runner(&error))?;
        let lease_ms = options.lease_seconds * 1000;
        let config = trestle_server::Config {
            data: data.clone(),
            listen: options.listen,
            public_url: options.public_url,
            hosted_pool: POOL.to_owned(),
            embedded_runner: embedded.map(|identity| identity.runner_id),
            model: model_config(options.model),
            intervals: trestle_server::Intervals { lease_ms, ..trestle_server::Intervals::default() },
            ..trestle_server::Config::default()
        };
        let store: Arc<dyn Store> = Arc::new(store);
        let server = Server::start(config, Arc::clone(&store), blobs)
            .await
            .map_err(|error| failure::of_server(&error))?;
        Ok(Self { server, data, store, _directory: directory, identities })
    }

    /// A client with the administrator's token.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        let file = self.server.admin_token_file();
        let token = std::fs::read_to_string(file).map_err(|error| failure::of_file("read", file, &error))?;
        Client::new(ServerAddress {
            url: self.server.url().to_owned(),
            token: SecretString::from(token.trim().to_owned()),
        })
    }

    /// Works as a runner of this server until `stop` is asked for; a removed identity is made anew once.
    pub(crate) async fn run_runner(
        &self,
        work: &WorkOptions,
        prestart: u16,
        on_start: impl Fn(trestle_runner::Handle) + Send + Sync,
    ) -> Result<(), CliError> {
        let mut identity = self.identity(false).await?;
        for first in [true, false] {
            let config = trestle_runner::Config {
                url: self.server.public_url().to_owned(),
                work_dir: self.data.join("runner/work"),
                prestart: work.prestart.unwrap_or(prestart).into(),
                ..runner_config(work)?
            };
            let runner = Runner::start(config, &identity, Arc::new(HostIsolation))
                .await
                .map_err(|error| failure::of_runner(&error))?;
            on_start(runner.handle());
            match runner.run(|| {}).await {
                Ok(_) => return Ok(()),
                Err(RunnerError::Refused { operation: "poll", status: 401, .. }) if first => {
                    identity = self.identity(true).await?
                }
                Err(error) => return Err(failure::of_runner(&error)),
            }
        }
        Ok(())
    }

    async fn identity(&self, anew: bool) -> Result<Identity, CliError> {
        let saved = self.identities.load(EMBEDDED, POOL).map_err(|error| failure::of_runner(&error))?;
        if let Some(saved) = saved.filter(|_| !anew) {
            return Ok(saved);
        }
        let token = trestle_cli::commands::mint_registration_token(&self.client()?, POOL).await?;
        let redeemed = trestle_runner::redeem(self.server.public_url(), &token, &Enrolment::default()).await;
        let identity = Identity {
            control_plane_url: EMBEDDED.to_owned(),
            ..redeemed.map_err(|error| failure::of_runner(&error))?.identity
        };
        self.identities.save(&identity).map_err(|error| failure::of_runner(&error))?;
        Ok(identity)
    }

    /// Stops the server and closes the store, so that the next start finds nothing to recover; the lock of the data
    /// directory goes last.
    pub(crate) async fn stop(self) {
        self.server.stop();
        self.server.stopped().await;
        self.store.close().await;
    }
}

/// The part of a runner's configuration that does not depend on where it works.
pub(crate) fn runner_config(work: &WorkOptions) -> Result<trestle_runner::Config, CliError> {
    let executable = std::env::current_exe().map_err(|error| {
        CliError::new(ErrorCode::InternalError, format!("cannot find this program's own file: {error}"))
    })?;
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let default = trestle_runner::Config::default();
    Ok(trestle_runner::Config {
        slots: work.slots.map_or(default.slots, usize::from),
        prestart: work.prestart.map_or(default.prestart, usize::from),
        node: work.node.clone(),
        executable,
        forwarded_env: trestle_runner::forwarded_env(environment),
        lease_seconds: work.lease,
        ..default
    })
}

fn model_config(options: ModelOptions) -> trestle_server::ModelConfig {
    let key = std::env::var("TRESTLE_MODEL_KEY").ok().filter(|key| !key.trim().is_empty());
    trestle_server::ModelConfig {
        model: options.model,
        provider: Some(match options.model_provider {
            ModelProvider::OpenaiCompatible => "openai_compatible".to_owned(),
            ModelProvider::Anthropic => "anthropic".to_owned(),
        }),
        url: options.model_url,
        key: key.map(trestle_server::ModelKey::from),
        ..trestle_server::ModelConfig::default()
    }
}

/// The warning that goes with running programs without isolation.
pub(crate) const HOST_WARNING: &str = "warning: no isolation: programs run as this user, with its files and its network. Run only workflows that you trust.";

/// Where runner identities are kept unless told otherwise.
pub(crate) fn identity_directory(given: Option<&Path>) -> Result<IdentityDirectory, CliError> {
    if let Some(given) = given {
        return Ok(IdentityDirectory::new(given));
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        CliError::usage("HOME is not set").hint("say where identities are kept with --identity-dir")
    })?;
    Ok(IdentityDirectory::new(IdentityDirectory::default_path(Path::new(&home))))
}
