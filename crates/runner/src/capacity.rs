use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// How many runs this machine works on. A run whose only work in flight is waiting for child runs lends its
/// slot, so that a chain of calls finishes on one slot; `alive` bounds what lending can add up to.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    slots: usize,
    counts: Mutex<Counts>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    active: usize,
    alive: usize,
}

/// Alive runs for each slot, at most.
const ALIVE_PER_SLOT: usize = 4;

impl Capacity {
    pub(crate) fn new(slots: usize) -> Self {
        let shared = Shared { slots: slots.max(1), counts: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Waits until another run may be taken.
    pub(crate) async fn free(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.has_room() {
                return;
            }
            changed.await;
        }
    }

    /// Takes a slot for a run that was claimed.
    pub(crate) fn take(&self) -> Slot {
        self.change(|counts| {
            counts.active += 1;
            counts.alive += 1;
        });
        Slot { capacity: self.clone(), lent: false, over: false }
    }

    fn has_room(&self) -> bool {
        let counts = *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.active < self.shared.slots && counts.alive < ALIVE_PER_SLOT * self.shared.slots
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.changed.notify_waiters();
    }
}

/// The slot of one run; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    capacity: Capacity,
    lent: bool,
    over: bool,
}

impl Slot {
    /// Lends the slot while the run only waits, and takes it back.
    pub(crate) fn lend(&mut self, waiting: bool) {
        if self.lent == waiting || self.over {
            return;
        }
        self.lent = waiting;
        self.capacity.change(|counts| if waiting { counts.active -= 1 } else { counts.active += 1 });
    }

    /// Gives the slot to the next run: this one is over for the control plane. Its process counts as alive
    /// until it is cleaned up.
    pub(crate) fn finish(&mut self) {
        self.lend(true);
        self.over = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let lent = self.lent;
        self.capacity.change(|counts| {
            counts.active -= usize::from(!lent);
            counts.alive -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_waiting_runs_fits_one_slot_up_to_the_bound() {
        let capacity = Capacity::new(1);
        let mut chain = Vec::new();
        for _ in 0..ALIVE_PER_SLOT {
            assert!(capacity.has_room());
            let mut slot = capacity.take();
            assert!(!capacity.has_room());
            slot.lend(true);
            slot.lend(true);
            chain.push(slot);
        }
        assert!(!capacity.has_room(), "no more than four alive for one slot");
        chain.pop();
        assert!(capacity.has_room());
        chain[0].lend(false);
        assert!(!capacity.has_room());
        drop(chain);
        assert_eq!(*capacity.shared.counts.lock().unwrap(), Counts::default());
    }

    #[test]
    fn a_run_that_is_over_makes_room_at_once_and_counts_as_alive_until_it_is_cleaned_up() {
        let capacity = Capacity::new(1);
        let mut over = Vec::new();
        for _ in 0..ALIVE_PER_SLOT {
            let mut slot = capacity.take();
            assert!(!capacity.has_room());
            slot.finish();
            // What it still reports of waiting changes nothing.
            slot.lend(false);
            over.push(slot);
        }
        assert!(!capacity.has_room(), "no more than four are cleaned up for one slot");
        over.pop();
        assert!(capacity.has_room());
        drop(over);
        assert_eq!(*capacity.shared.counts.lock().unwrap(), Counts::default());
    }

    #[tokio::test]
    async fn a_waiter_wakes_when_a_slot_comes_back() {
        let capacity = Capacity::new(1);
        let slot = capacity.take();
        let waiter = tokio::spawn({
            let capacity = capacity.clone();
            async move { capacity.free().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(slot);
        waiter.await.unwrap();
    }
}
