//! Model providers. The store sees sealed keys only.

/// A provider to be stored.
#[derive(Clone)]
pub struct NewProvider {
    /// Name that programs use.
    pub name: String,
    /// Source word of the API (`openai_compatible`, …).
    pub source: String,
    /// Address; `None` is the vendor's own.
    pub base_url: Option<String>,
    /// The sealed key, if it needs one.
    pub sealed: Option<Vec<u8>>,
}

impl std::fmt::Debug for NewProvider {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("NewProvider")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A provider without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    /// Name.
    pub name: String,
    /// Source word.
    pub source: String,
    /// Address.
    pub base_url: Option<String>,
    /// Whether a key is stored.
    pub has_key: bool,
    /// Creation, ms.
    pub created_at: i64,
}
