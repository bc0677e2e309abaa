//! Secrets. The store sees sealed bytes only.

/// A secret to be stored.
#[derive(Clone)]
pub struct NewSecret {
    /// Name.
    pub name: String,
    /// Environment; `None` is the organisation's own value.
    pub environment: Option<String>,
    /// Scope word of the API (`org`, `user`).
    pub scope: String,
    /// Kind word of the API (`api_key`, …).
    pub kind: String,
    /// Description.
    pub description: Option<String>,
    /// Last four characters for display, if the value is long enough to show them.
    pub last4: Option<String>,
    /// The sealed value.
    pub sealed: Vec<u8>,
    /// What to do when the name is taken in that environment.
    pub if_exists: IfExists,
}

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NewSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to do when a name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Refuse with [`crate::Conflict::NameTaken`].
    Refuse,
    /// Replace the value, keep the id.
    Replace,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Its id.
    pub id: String,
    /// Name.
    pub name: String,
    /// Environment; `None` is the organisation's own value.
    pub environment: Option<String>,
    /// Scope word.
    pub scope: String,
    /// Kind word.
    pub kind: String,
    /// Description.
    pub description: Option<String>,
    /// Last four characters.
    pub last4: Option<String>,
    /// Creation, ms.
    pub created_at: i64,
    /// Last change of the value, ms.
    pub updated_at: i64,
}
