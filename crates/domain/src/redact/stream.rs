use super::{Redactor, into_text};

/// Replaces secrets in a stream of bytes that comes in chunks. Whatever the chunks, the
/// output together is the redaction of the whole; only bytes that may still become a secret
/// are held back.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: Vec<u8>,
}

impl StreamRedactor {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }

    /// Takes a chunk and returns what can be shown now.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        self.advance(false)
    }

    /// Ends the stream (or a part of it, such as an attempt) and returns what was held back.
    /// The redactor may be used again for what follows.
    pub fn finish(&mut self) -> Vec<u8> {
        self.advance(true)
    }

    /// Forgets what was held back.
    pub fn discard(&mut self) {
        self.held.clear();
    }

    /// The bytes that are held back: the beginning of a secret, so far.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    fn advance(&mut self, complete: bool) -> Vec<u8> {
        let set = self.redactor.snapshot();
        let mut out = Vec::with_capacity(self.held.len());
        let shown =
            set.scan(&self.held, complete, |piece| self.redactor.write(&set, &self.held, piece, &mut out));
        self.held.drain(..shown);
        out
    }
}

/// As [`StreamRedactor`], for chunks of text.
#[derive(Debug)]
pub struct TextRedactor(StreamRedactor);

impl TextRedactor {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self(StreamRedactor::new(redactor))
    }

    /// Takes a chunk and returns what can be shown now; it may be empty.
    pub fn push(&mut self, chunk: &str) -> String {
        into_text(self.0.push(chunk.as_bytes()))
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(&mut self) -> String {
        into_text(self.0.finish())
    }

    /// Forgets what was held back.
    pub fn discard(&mut self) {
        self.0.discard();
    }
}
