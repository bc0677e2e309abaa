//! Sealing of secret values. The store holds nothing but envelopes.

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::keys::Keys;

const FORMAT: u8 = 1;
const KEY_ID: usize = 8;
const NONCE: usize = 24;

/// Why an envelope could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VaultError {
    /// The envelope is cut, of another format, or was changed.
    #[error("a sealed value is damaged")]
    Damaged,
    /// The envelope was sealed with another master key.
    #[error("a sealed value belongs to another master key")]
    OtherKey,
    /// The value could not be sealed.
    #[error("a value could not be sealed")]
    Seal,
}

/// Seals and opens secret values with a key derived from the master key.
///
/// An envelope is: format, key id, nonce, ciphertext with tag. The key id says
/// which master key opens it; the place of the value (its identifier) is
/// authenticated, so that an envelope moved to another row does not open.
pub(crate) struct Vault {
    cipher: XChaCha20Poly1305,
    key_id: [u8; KEY_ID],
}

impl Vault {
    pub(crate) fn new(keys: &Keys) -> Self {
        let key = keys.derive("trestle vault 1");
        let digest = Sha256::digest(key.bytes());
        let mut key_id = [0_u8; KEY_ID];
        key_id.copy_from_slice(&digest[..KEY_ID]);
        Self { cipher: XChaCha20Poly1305::new(&(*key.bytes()).into()), key_id }
    }

    /// Seals `value` for the place `place`.
    pub(crate) fn seal(&self, place: &str, value: &str) -> Result<Vec<u8>, VaultError> {
        let nonce: [u8; NONCE] = rand::random();
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: value.as_bytes(), aad: place.as_bytes() })
            .map_err(|_| VaultError::Seal)?;
        let mut envelope = Vec::with_capacity(1 + KEY_ID + NONCE + sealed.len());
        envelope.push(FORMAT);
        envelope.extend_from_slice(&self.key_id);
        envelope.extend_from_slice(&nonce);
        envelope.extend_from_slice(&sealed);
        Ok(envelope)
    }

    /// Opens an envelope that was sealed for `place`.
    pub(crate) fn open(&self, place: &str, envelope: &[u8]) -> Result<SecretString, VaultError> {
        let (&format, rest) = envelope.split_first().ok_or(VaultError::Damaged)?;
        if format != FORMAT || rest.len() < KEY_ID + NONCE {
            return Err(VaultError::Damaged);
        }
        let (key_id, rest) = rest.split_at(KEY_ID);
        if key_id != self.key_id {
            return Err(VaultError::OtherKey);
        }
        let (nonce, sealed) = rest.split_at(NONCE);
        let mut bytes = [0_u8; NONCE];
        bytes.copy_from_slice(nonce);
        let opened = self
            .cipher
            .decrypt(&XNonce::from(bytes), Payload { msg: sealed, aad: place.as_bytes() })
            .map_err(|_| VaultError::Damaged)?;
        let opened = Zeroizing::new(opened);
        let text = std::str::from_utf8(&opened).map_err(|_| VaultError::Damaged)?;
        Ok(SecretString::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    fn vault() -> (tempfile::TempDir, Vault) {
        let data = tempfile::tempdir().unwrap();
        let vault = Vault::new(&Keys::open(data.path()).unwrap());
        (data, vault)
    }

    #[test]
    fn a_sealed_value_opens_only_in_its_place() {
        let (_data, vault) = vault();
        let envelope = vault.seal("s1", "p\u{e4}ss").unwrap();
        assert_eq!(vault.open("s1", &envelope).unwrap().expose_secret(), "p\u{e4}ss");
        assert_eq!(vault.open("s2", &envelope).unwrap_err(), VaultError::Damaged);
        assert_ne!(envelope, vault.seal("s1", "p\u{e4}ss").unwrap());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (_data, vault) = vault();
        let envelope = vault.seal("s1", "value").unwrap();
        for index in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[index] ^= 1;
            assert!(vault.open("s1", &changed).is_err(), "byte {index}");
            assert!(vault.open("s1", &envelope[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn another_master_key_is_told_apart() {
        let (_first, vault) = vault();
        let (_second, other) = super::tests::vault();
        let envelope = other.seal("s1", "value").unwrap();
        assert_eq!(vault.open("s1", &envelope).unwrap_err(), VaultError::OtherKey);
    }
}
