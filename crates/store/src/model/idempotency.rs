//! Answers kept for repeats of a request.

/// An answer to be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// HTTP status.
    pub status: u16,
    /// Content type, when there is a body.
    pub content_type: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

/// What a request with a key has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyStart {
    /// Do the work, then call `finish_idempotent`, or `abandon_idempotent` when it failed in a way
    /// that a repeat may heal.
    Fresh,
    /// Give this answer again.
    Answered(StoredAnswer),
}
