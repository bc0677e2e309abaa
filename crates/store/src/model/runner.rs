//! Runners, pools and registration tokens.

use trestle_contract::ids::RunnerId;

/// SHA-256 of a token. Tokens themselves are never stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Hashes a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(token.as_bytes()).into())
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TokenHash(…)")
    }
}

/// A runner to be registered.
#[derive(Debug, Clone)]
pub struct NewRunner {
    /// Display name.
    pub name: String,
    /// Its labels; repeats are dropped.
    pub labels: Vec<String>,
    /// `linux`, `macos`, `windows`.
    pub os: Option<String>,
    /// `x64`, `arm64`.
    pub arch: Option<String>,
    /// Version it told, for display.
    pub version: Option<String>,
    /// Hash of its token.
    pub token: TokenHash,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRow {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Creation, ms.
    pub created_at: i64,
}

/// A runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerRow {
    /// Its id.
    pub id: RunnerId,
    /// Pool id.
    pub pool_id: String,
    /// Pool name.
    pub pool: String,
    /// Display name.
    pub name: String,
    /// Labels, sorted.
    pub labels: Vec<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// Version it told last.
    pub version: Option<String>,
    /// Creation, ms.
    pub created_at: i64,
    /// Last poll, claim or beat, ms.
    pub last_seen_at: Option<i64>,
    /// Why it was told to drain.
    pub drain_reason: Option<String>,
    /// Leases in mode active.
    pub active_leases: i64,
    /// Leases in another mode.
    pub waiting_leases: i64,
}

/// A registration token as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationTokenRow {
    /// Pool that it registers for.
    pub pool: String,
    /// When it stops working, ms.
    pub expires_at: i64,
}
