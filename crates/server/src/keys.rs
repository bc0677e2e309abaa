//! The secrets of one data directory: made at the first start, 0600 from the
//! moment they exist.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use trestle_domain::{RandomToken, ServerKey, new_random_token};
use zeroize::Zeroize as _;

use crate::error::Error;

/// Name of the file with the token of the administrator.
pub(crate) const ADMIN_TOKEN: &str = "admin-token";
/// Name of the file with the key that everything else is derived from.
pub(crate) const MASTER_KEY: &str = "master.key";

const PRIVATE: u32 = 0o600;

/// The keys of a data directory. They leave this type only as derived keys
/// and as answers to comparisons.
pub(crate) struct Keys {
    master: ServerKey,
    admin: [u8; 32],
}

impl Keys {
    /// Reads the keys, making those that do not exist yet.
    pub(crate) fn open(data: &Path) -> Result<Self, Error> {
        let path = data.join(MASTER_KEY);
        let mut text = read_or_create(&path, || hex::encode(ServerKey::random().bytes()))?;
        let mut bytes = [0_u8; 32];
        let decoded = hex::decode_to_slice(text.trim(), &mut bytes);
        text.zeroize();
        let master = ServerKey::new(bytes);
        bytes.zeroize();
        decoded.map_err(|_| Error::Damaged { path, reason: "it must hold 64 hexadecimal digits" })?;

        let path = data.join(ADMIN_TOKEN);
        let mut token = read_or_create(&path, || new_random_token(RandomToken::Admin))?;
        let admin: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        let usable = token.trim().len() >= 16;
        token.zeroize();
        if !usable {
            return Err(Error::Damaged { path, reason: "it must hold a token of at least 16 characters" });
        }
        Ok(Self { master, admin })
    }

    /// A key of its own for each purpose, so that no answer for one purpose
    /// says anything about another.
    pub(crate) fn derive(&self, purpose: &str) -> ServerKey {
        self.master.derive(purpose)
    }

    /// Whether `token` is the administrator's, in constant time.
    pub(crate) fn is_admin(&self, token: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        digest.ct_eq(&self.admin).into()
    }
}

fn read_or_create(path: &Path, make: impl FnOnce() -> String) -> Result<String, Error> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut text = make();
            text.push('\n');
            write_private(path, text.as_bytes())?;
            Ok(text)
        }
        result => result.map_err(|source| file_error("read", path, source)),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode != PRIVATE {
        tracing::warn!(path = %path.display(), "tightened the mode of a key file to 0600");
        file.set_permissions(fs::Permissions::from_mode(PRIVATE))?;
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file that only its owner can read, whole or not at all.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = sibling(path);
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        if let Some(directory) = path.parent() {
            fs::File::open(directory)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        file_error("write", path, source)
    })
}

fn sibling(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{:016x}", rand::random::<u64>()));
    path.with_file_name(name)
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_private_and_survive_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let first = Keys::open(data.path()).unwrap();
        let second = Keys::open(data.path()).unwrap();
        assert_eq!(first.derive("a").bytes(), second.derive("a").bytes());
        assert_ne!(first.derive("a").bytes(), first.derive("b").bytes());
        let token = fs::read_to_string(data.path().join(ADMIN_TOKEN)).unwrap();
        assert!(token.starts_with("bwk_"));
        assert!(second.is_admin(token.trim()));
        assert!(!second.is_admin(&token[..token.len() - 2]));
        for name in [ADMIN_TOKEN, MASTER_KEY] {
            let mode = fs::metadata(data.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_loose_key_file_is_tightened() {
        let data = tempfile::tempdir().unwrap();
        Keys::open(data.path()).unwrap();
        let path = data.path().join(MASTER_KEY);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        Keys::open(data.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_key_file_is_named() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(MASTER_KEY), "short").unwrap();
        let error = Keys::open(data.path()).err().unwrap();
        assert!(error.to_string().contains(MASTER_KEY), "{error}");
        assert!(error.hint().is_some());
    }
}
