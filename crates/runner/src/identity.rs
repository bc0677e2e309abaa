use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::RunnerError;

/// Who this machine is towards one pool of one control plane; the file shape is shared with the
/// original front ends (`docs/protocol/pool.md` §9). Keys that a later version may add are passed over.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Identifier given at registration.
    pub runner_id: String,
    /// Standing token; worth a machine of the pool.
    pub runner_token: String,
    /// The control plane as the person typed it.
    pub control_plane_url: String,
    /// The pool that the registration token was tied to.
    pub pool: String,
    /// Organisation, when enrolment named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Display name.
    pub name: String,
    /// When it was registered, in milliseconds since the epoch.
    pub created_at: u64,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("runner_id", &self.runner_id)
            .field("control_plane_url", &self.control_plane_url)
            .field("pool", &self.pool)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What this machine joined its pool with. Kept beside the identity, whose shape has no room for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The runner that it is about: another front end may have written the identity anew.
    pub runner_id: String,
    /// Labels.
    pub labels: Vec<String>,
    /// How often to poll, in seconds, as registration was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u64>,
}

/// The directory in which identities are kept, one file for each control plane and pool.
#[derive(Debug, Clone)]
pub struct IdentityDirectory {
    path: PathBuf,
}

impl IdentityDirectory {
    /// Uses `path`; it is made (mode 0700) when the first identity is saved.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// `~/.boardwalk/runner`, shared with the original front ends.
    #[must_use]
    pub fn default_path(home: &Path) -> PathBuf {
        home.join(".boardwalk/runner")
    }

    /// Where the directory is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of one control plane and pool.
    ///
    /// # Errors
    /// When `url` is no absolute address with a host, or the pool name could leave the directory.
    pub fn file(&self, url: &str, pool: &str) -> Result<PathBuf, RunnerError> {
        let host = host_part(url)?;
        // The pool goes in raw, as in the original; a name with a separator would leave the directory.
        if pool.is_empty() || pool.contains(['/', '\\', '\0']) {
            return Err(RunnerError::Address { url: format!("{url} (pool {pool})") });
        }
        Ok(self.path.join(format!("{host}--{pool}.json")))
    }

    /// Makes sure that an identity can be written, before a token is used up for it.
    ///
    /// # Errors
    /// When the directory cannot be made, closed to others, or written to.
    pub fn prepare(&self) -> Result<(), RunnerError> {
        let failed = |error| RunnerError::file("write to", &self.path)(error);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.path).map_err(failed)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let probe = self.path.join(format!(".probe-{}", std::process::id()));
        write_private(&probe, b"x").map_err(failed)?;
        fs::remove_file(probe).map_err(failed)
    }

    /// The saved identity. Missing, unreadable or malformed files count as none. Repairs the mode.
    ///
    /// # Errors
    /// As [`Self::file`], and when the identity under that name is of another origin: its token is not for
    /// whoever answers here.
    pub fn load(&self, url: &str, pool: &str) -> Result<Option<Identity>, RunnerError> {
        let file = self.file(url, pool)?;
        let Some(identity) = fs::read(&file).ok().and_then(|bytes| parse(&bytes)) else { return Ok(None) };
        same_origin(&identity, url)?;
        let _ = fs::set_permissions(&file, fs::Permissions::from_mode(0o600));
        Ok(Some(identity))
    }

    /// Saves an identity under the pool that it is of, atomically, readable by this user alone.
    ///
    /// # Errors
    /// When the file cannot be written, or holds an identity of another origin.
    pub fn save(&self, identity: &Identity) -> Result<PathBuf, RunnerError> {
        self.prepare()?;
        let file = self.file(&identity.control_plane_url, &identity.pool)?;
        if let Some(other) = fs::read(&file).ok().and_then(|bytes| parse(&bytes)) {
            same_origin(&other, &identity.control_plane_url)?;
        }
        let failed = |error| RunnerError::file("save the identity", &file)(error);
        let mut text = serde_json::to_string_pretty(identity).map_err(io::Error::from).map_err(failed)?;
        text.push('\n');
        self.replace(&file, text.as_bytes()).map_err(failed)?;
        Ok(file)
    }

    /// Notes what the machine joined with.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_joined(&self, identity: &Identity, joined: &Joined) -> Result<(), RunnerError> {
        let file = joined_file(&self.file(&identity.control_plane_url, &identity.pool)?);
        let bytes =
            serde_json::to_vec(joined).map_err(io::Error::from).map_err(RunnerError::file("write", &file))?;
        self.replace(&file, &bytes).map_err(RunnerError::file("write", &file))
    }

    /// What the machine joined with, if that is known.
    #[must_use]
    pub fn joined(&self, identity: &Identity) -> Option<Joined> {
        let file = self.file(&identity.control_plane_url, &identity.pool).ok()?;
        let joined: Joined = serde_json::from_slice(&fs::read(joined_file(&file)).ok()?).ok()?;
        (joined.runner_id == identity.runner_id).then_some(joined)
    }

    /// Removes the file of one control plane and pool; a missing file is no error.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn remove(&self, url: &str, pool: &str) -> Result<(), RunnerError> {
        let file = self.file(url, pool)?;
        let _ = fs::remove_file(joined_file(&file));
        let _ = fs::remove_file(file);
        Ok(())
    }

    /// Removes the identity of a runner, wherever it is of; says whether there was one.
    #[must_use]
    pub fn forget(&self, runner_id: &str) -> bool {
        let files =
            fs::read_dir(&self.path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "json")) {
            let found = fs::read(&file).ok().and_then(|bytes| parse(&bytes));
            if found.is_some_and(|identity| identity.runner_id == runner_id) {
                let _ = fs::remove_file(joined_file(&file));
                return fs::remove_file(file).is_ok();
            }
        }
        false
    }

    /// Writes beside the file and renames: a reader, and a machine that loses power, sees the one or the other.
    fn replace(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = file.with_extension(format!("tmp-{}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let written = write_private(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        fs::File::open(&self.path)?.sync_all()
    }
}

fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut handle = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    handle.write_all(bytes)?;
    handle.sync_all()
}

fn joined_file(identity: &Path) -> PathBuf {
    // No `.json`: the original front ends take every such file for an identity.
    identity.with_extension("joined")
}

fn parse(bytes: &[u8]) -> Option<Identity> {
    let identity: Identity = serde_json::from_slice(bytes).ok()?;
    let filled = [&identity.runner_id, &identity.runner_token, &identity.pool, &identity.name];
    (filled.iter().all(|text| !text.is_empty()) && Url::parse(&identity.control_plane_url).is_ok())
        .then_some(identity)
}

/// A name does not tell `http` from `https`, and a token goes to whom it is of.
fn same_origin(identity: &Identity, url: &str) -> Result<(), RunnerError> {
    let origin = |url: &str| Url::parse(url.trim()).ok().map(|url| url.origin());
    if origin(&identity.control_plane_url) == origin(url) {
        return Ok(());
    }
    Err(RunnerError::OtherOrigin { saved: identity.control_plane_url.clone(), asked: url.to_owned() })
}

/// Host with a non-default port; everything outside `[A-Za-z0-9.-]` becomes `_`.
fn host_part(url: &str) -> Result<String, RunnerError> {
    let invalid = || RunnerError::Address { url: url.to_owned() };
    let parsed = Url::parse(url.trim()).map_err(|_| invalid())?;
    let mut host = parsed.host_str().ok_or_else(invalid)?.to_owned();
    if let Some(port) = parsed.port() {
        host.push(':');
        host.push_str(&port.to_string());
    }
    Ok(host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' })
        .collect())
}

#[cfg(test)]
mod tests;
