//! What a program is waiting for: a run that only waits for other runs needs no slot.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    calls: usize,
    child_waits: usize,
}

impl Counts {
    fn only_children(self) -> bool {
        self.child_waits > 0 && self.child_waits == self.calls
    }
}

/// Counts the calls in flight. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    counts: Arc<watch::Sender<Counts>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { counts: Arc::new(watch::Sender::new(Counts::default())) }
    }
}

/// A call in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    counts: Arc<watch::Sender<Counts>>,
    is_child_wait: bool,
}

impl Activity {
    pub(crate) fn begin(&self, is_child_wait: bool) -> InFlight {
        self.counts.send_modify(|counts| {
            counts.calls += 1;
            counts.child_waits += usize::from(is_child_wait);
        });
        InFlight { counts: Arc::clone(&self.counts), is_child_wait }
    }

    /// Whether child runs are all that is waited for.
    pub(crate) fn waits_for_children(&self) -> bool {
        self.counts.borrow().only_children()
    }

    /// Waits until the answer of [`Self::waits_for_children`] is this one.
    pub(crate) async fn until(&self, waiting: bool) {
        let mut seen = self.counts.subscribe();
        // The sender lives as long as `self`.
        let _ = seen.wait_for(|counts| counts.only_children() == waiting).await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counts.send_modify(|counts| {
            counts.calls -= 1;
            counts.child_waits -= usize::from(self.is_child_wait);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_only_while_nothing_else_is_in_flight() {
        let activity = Activity::default();
        assert!(!activity.waits_for_children());
        let child = activity.begin(true);
        assert!(activity.waits_for_children());
        let other = activity.begin(false);
        assert!(!activity.waits_for_children());
        drop(other);
        assert!(activity.waits_for_children());
        drop(child);
        assert!(!activity.waits_for_children());
    }
}
