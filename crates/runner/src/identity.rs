use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::RunnerError;

/// Who this machine is towards one pool of one control plane; the file shape is shared with the
/// original front ends (`docs/protocol/pool.md` §9).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

    /// The saved identity. Missing, unreadable or malformed files count as none. Repairs the mode.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn load(&self, url: &str, pool: &str) -> Result<Option<Identity>, RunnerError> {
        let file = self.file(url, pool)?;
        let Some(identity) = fs::read(&file).ok().and_then(|bytes| parse(&bytes)) else { return Ok(None) };
        let _ = fs::set_permissions(&file, fs::Permissions::from_mode(0o600));
        Ok(Some(identity))
    }

    /// Saves an identity under the pool that it is of, atomically, readable by this user alone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, identity: &Identity) -> Result<PathBuf, RunnerError> {
        let file = self.file(&identity.control_plane_url, &identity.pool)?;
        let failed = |error| RunnerError::file("save the identity", &file)(error);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.path).map_err(failed)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let mut text = serde_json::to_string_pretty(identity).map_err(io::Error::from).map_err(failed)?;
        text.push('\n');
        let temporary = file.with_extension("json.tmp");
        let write = || {
            let _ = fs::remove_file(&temporary);
            let mut handle =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            handle.write_all(text.as_bytes())?;
            handle.sync_all()?;
            fs::rename(&temporary, &file)
        };
        write().map_err(failed)?;
        Ok(file)
    }

    /// Removes the file of one control plane and pool; a missing file is no error.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn remove(&self, url: &str, pool: &str) -> Result<(), RunnerError> {
        let _ = fs::remove_file(self.file(url, pool)?);
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<Identity> {
    let identity: Identity = serde_json::from_slice(bytes).ok()?;
    let filled = [&identity.runner_id, &identity.runner_token, &identity.pool, &identity.name];
    (filled.iter().all(|text| !text.is_empty()) && Url::parse(&identity.control_plane_url).is_ok())
        .then_some(identity)
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
mod tests {
    use super::*;

    fn identity(url: &str, pool: &str) -> Identity {
        Identity {
            runner_id: "01R".into(),
            runner_token: "bwkr_x".into(),
            control_plane_url: url.into(),
            pool: pool.into(),
            org: None,
            name: "box".into(),
            created_at: 1,
        }
    }

    #[test]
    fn file_names_follow_the_shared_table() {
        let directory = IdentityDirectory::new("/i");
        for (url, pool, name) in [
            ("https://api.x", "default", "api.x--default.json"),
            ("http://api.x:80/", "default", "api.x--default.json"),
            ("http://127.0.0.1:8080/base", "gpu", "127.0.0.1_8080--gpu.json"),
            ("http://[::1]:9", "p", "___1__9--p.json"),
        ] {
            assert_eq!(directory.file(url, pool).unwrap(), Path::new("/i").join(name));
        }
        assert!(directory.file("https://api.x", "../etc").is_err());
        assert!(directory.file("api.x", "default").is_err());
    }

    #[test]
    fn identity_is_private_and_survives_a_round_trip() {
        let home = tempfile::tempdir().unwrap();
        let directory = IdentityDirectory::new(home.path().join("a/b"));
        let saved = identity("http://127.0.0.1:7070", "default");
        let file = directory.save(&saved).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(directory.path()), 0o700);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(directory.load("http://127.0.0.1:7070", "default").unwrap(), Some(saved.clone()));
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        directory.save(&saved).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert!(fs::read_to_string(&file).unwrap().ends_with("}\n"));
        directory.remove("http://127.0.0.1:7070", "default").unwrap();
        assert_eq!(directory.load("http://127.0.0.1:7070", "default").unwrap(), None);
    }

    #[test]
    fn a_malformed_identity_counts_as_none() {
        let home = tempfile::tempdir().unwrap();
        let directory = IdentityDirectory::new(home.path());
        let file = directory.save(&identity("http://x", "default")).unwrap();
        let good = fs::read_to_string(&file).unwrap();
        for bad in [
            "".to_owned(),
            "{}".to_owned(),
            good.replace("\"01R\"", "\"\""),
            good.replace("{", "{\"extra\":1,"),
            good.replace("http://x", "x"),
        ] {
            fs::write(&file, bad).unwrap();
            assert_eq!(directory.load("http://x", "default").unwrap(), None);
        }
    }

    #[test]
    fn debug_output_of_an_identity_holds_no_token() {
        assert!(!format!("{:?}", identity("http://x", "p")).contains("bwkr_x"));
    }
}
