use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The secret that run and API tokens are derived from; 32 bytes.
#[derive(Clone)]
pub struct ServerKey([u8; 32]);

impl Drop for ServerKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ServerKey {
    /// Takes 32 random bytes as key.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A fresh random key.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// A key for one purpose, so that no two uses of the master key share bytes.
    pub fn derive(&self, purpose: &str) -> Self {
        Self(mac(self, &[b"derive", purpose.as_bytes()]))
    }

    /// The bytes, to store them.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An authentication code over fields, each hashed with its length.
    pub fn authenticate(&self, fields: &[&[u8]]) -> [u8; 32] {
        mac(self, fields)
    }
}

impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerKey(…)")
    }
}

/// The tokens that one session of a run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunTokenKind {
    /// For the Runner Control API of this run.
    Run,
    /// For the public API, with the scopes of the run's permissions.
    Api,
}

impl RunTokenKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Run => "bwrt_",
            Self::Api => "bwk_",
        }
    }

    const fn word(self) -> &'static [u8] {
        match self {
            Self::Run => b"run",
            Self::Api => b"api",
        }
    }
}

/// What a derived token says, once its code was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedToken {
    /// What it may be used for.
    pub kind: RunTokenKind,
    /// The run it belongs to.
    pub run: String,
    /// The epoch it was minted for.
    pub epoch: u64,
}

/// The token of an epoch of a run: prefix, run, epoch and a code over them. It is derived
/// anew when a claim is repeated, so the server stores nothing.
pub fn derive_token(key: &ServerKey, kind: RunTokenKind, run: &str, epoch: u64) -> String {
    let code = token_code(key, kind, run, epoch);
    format!("{}{run}.{epoch}.{}", kind.prefix(), BASE64_URL_SAFE_NO_PAD.encode(code))
}

/// Reads a derived token and verifies its code in constant time; none for anything else.
pub fn verify_token(key: &ServerKey, token: &str) -> Option<DerivedToken> {
    let (kind, rest) = [RunTokenKind::Run, RunTokenKind::Api]
        .into_iter()
        .find_map(|kind| token.strip_prefix(kind.prefix()).map(|rest| (kind, rest)))?;
    let (rest, code) = rest.rsplit_once('.')?;
    let (run, epoch) = rest.rsplit_once('.')?;
    let code = BASE64_URL_SAFE_NO_PAD.decode(code).ok()?;
    let parsed: u64 = epoch.parse().ok()?;
    // One token has one spelling: "007" and "+7" are not epoch 7.
    let same_spelling = parsed.to_string() == epoch;
    let same_code = bool::from(token_code(key, kind, run, parsed).ct_eq(code.as_slice()));
    (same_spelling && same_code).then(|| DerivedToken { kind, run: run.to_owned(), epoch: parsed })
}

fn token_code(key: &ServerKey, kind: RunTokenKind, run: &str, epoch: u64) -> [u8; 32] {
    mac(key, &[b"token", kind.word(), run.as_bytes(), &epoch.to_be_bytes()])
}

fn mac(key: &ServerKey, fields: &[&[u8]]) -> [u8; 32] {
    // A key of any length is accepted by HMAC; 32 bytes always are.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key.0) else { return [0; 32] };
    for field in fields {
        mac.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(field);
    }
    mac.finalize().into_bytes().into()
}

/// Every kind of bearer token, told by its prefix alone: which check applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Derived, for the Runner Control API.
    Run,
    /// Derived for a run, or random for the administrator: the public API.
    Api,
    /// Random, registers one runner, once.
    Registration,
    /// Random, identifies a runner.
    Runner,
}

impl TokenKind {
    /// The kind a token claims to be; says nothing about its validity.
    pub fn of(token: &str) -> Option<Self> {
        [("bwrt_", Self::Run), ("bwk_", Self::Api), ("bwkreg_", Self::Registration), ("bwkr_", Self::Runner)]
            .into_iter()
            .find_map(|(prefix, kind)| token.starts_with(prefix).then_some(kind))
    }
}

/// Tokens that are random and stored hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RandomToken {
    /// Registers one runner, once.
    Registration,
    /// Identifies a runner.
    Runner,
    /// Everything under `/v1`.
    Admin,
}

/// A fresh random token of 256 bits.
pub fn new_random_token(kind: RandomToken) -> String {
    let prefix = match kind {
        RandomToken::Registration => "bwkreg_",
        RandomToken::Runner => "bwkr_",
        RandomToken::Admin => "bwk_",
    };
    let mut bytes: [u8; 32] = rand::random();
    let token = format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    bytes.zeroize();
    token
}

/// The form in which random tokens are stored: lower-case hex SHA-256. They carry 256 random
/// bits, so a plain hash is enough.
pub fn hash_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUN: &str = "01JZXA2M4N5P6Q7R8S9T0VWXYZ";

    fn key() -> ServerKey {
        ServerKey::new([7; 32])
    }

    #[test]
    fn a_derived_token_is_the_same_each_time_and_reads_back() {
        for kind in [RunTokenKind::Run, RunTokenKind::Api] {
            let token = derive_token(&key(), kind, RUN, 3);
            assert_eq!(token, derive_token(&key(), kind, RUN, 3));
            assert_eq!(
                verify_token(&key(), &token),
                Some(DerivedToken { kind, run: RUN.to_owned(), epoch: 3 })
            );
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        assert!(derive_token(&key(), RunTokenKind::Run, RUN, 3).starts_with("bwrt_"));
        assert!(derive_token(&key(), RunTokenKind::Api, RUN, 3).starts_with("bwk_"));
    }

    #[test]
    fn a_token_of_another_kind_epoch_run_or_key_is_another() {
        let token = derive_token(&key(), RunTokenKind::Run, RUN, 3);
        let (head, code) = token.rsplit_once('.').unwrap();
        for forged in [
            format!("{}.{code}", head.replace("bwrt_", "bwk_")),
            format!("{}.{code}", head.replace(".3", ".4")),
            format!("{}.{code}", head.replace(".3", ".03")),
            format!("{}.{code}", head.replace(".3", ".+3")),
            format!("{}.{code}", head.replace("01JZ", "01KZ")),
            format!("{head}.{}", code.replace(code.chars().next().unwrap(), "_")),
            format!("{head}."),
            head.to_owned(),
            format!("{token}A"),
            String::new(),
            "bwrt_".to_owned(),
        ] {
            assert_ne!(forged, token);
            assert_eq!(verify_token(&key(), &forged), None, "{forged}");
        }
        assert_eq!(verify_token(&ServerKey::new([8; 32]), &token), None);
    }

    #[test]
    fn random_tokens_are_random_and_known_by_their_prefix() {
        for (kind, expected) in [
            (RandomToken::Registration, TokenKind::Registration),
            (RandomToken::Runner, TokenKind::Runner),
            (RandomToken::Admin, TokenKind::Api),
        ] {
            let token = new_random_token(kind);
            assert_eq!(TokenKind::of(&token), Some(expected));
            assert_ne!(token, new_random_token(kind));
            assert_eq!(verify_token(&key(), &token), None);
            assert_eq!(hash_token(&token).len(), 64);
        }
        assert_eq!(TokenKind::of(&derive_token(&key(), RunTokenKind::Run, RUN, 1)), Some(TokenKind::Run));
        assert_eq!(TokenKind::of("eyJhbGciOi"), None);
    }

    #[test]
    fn keys_do_not_show_themselves() {
        assert_eq!(format!("{:?}", key()), "ServerKey(…)");
        assert_ne!(key().derive("tokens").bytes(), key().derive("urls").bytes());
        assert_ne!(ServerKey::random().bytes(), ServerKey::random().bytes());
    }

    proptest! {
        #[test]
        fn no_changed_byte_passes(at in 0_usize..80, to in any::<u8>()) {
            let token = derive_token(&key(), RunTokenKind::Run, RUN, 12);
            let mut bytes = token.clone().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != to);
            bytes[at] = to;
            if let Ok(changed) = String::from_utf8(bytes) {
                prop_assert_eq!(verify_token(&key(), &changed), None);
            }
        }
    }
}
