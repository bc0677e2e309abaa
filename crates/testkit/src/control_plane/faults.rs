//! What can be done to a call.

use bytes::Bytes;
use tokio::sync::watch;

/// What is done to a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is refused with this status, and not executed.
    Refuse(u16),
    /// It is refused with this status and a `Retry-After` of so many seconds, and not executed.
    RefuseFor(u16, u64),
    /// The connection is cut before it is executed.
    CutBefore,
    /// It is executed, and the connection is cut instead of an answer.
    LoseAnswer,
    /// It is executed, and these bytes are sent in place of the answer's body.
    Garble(Bytes),
    /// It is executed, and the JSON of its answer is changed on its way.
    Edit(fn(&mut serde_json::Value)),
    /// It is answered with this status and these bytes, and not executed.
    Say(u16, &'static str),
    /// It waits until the hold is let go, and is executed then.
    Hold(Hold),
}

/// Keeps calls waiting.
#[derive(Debug, Clone)]
pub struct Hold {
    open: watch::Sender<bool>,
}

impl Default for Hold {
    fn default() -> Self {
        Self::new()
    }
}

impl Hold {
    /// A hold that is not let go yet.
    pub fn new() -> Self {
        Self { open: watch::Sender::new(false) }
    }

    /// Lets everything go that waits, and whatever comes.
    pub fn let_go(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        // The sender is kept by `self`, so the channel cannot close.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A fault for the next so many calls that fit.
pub(super) struct Rule {
    pub(super) method: Option<String>,
    /// The end of the path, or with a slash at its end a part of it.
    pub(super) suffix: String,
    pub(super) fault: Fault,
    pub(super) left: usize,
}

impl Rule {
    pub(super) fn fits(&self, method: &str, path: &str) -> bool {
        self.left > 0
            && self.method.as_deref().is_none_or(|wanted| wanted == method)
            && (path == self.suffix
                || (self.suffix.ends_with('/') && path.contains(&self.suffix))
                || path.ends_with(&format!("/{}", self.suffix.trim_start_matches('/'))))
    }
}
