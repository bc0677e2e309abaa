//! The turns under way, so that repeats find them and the end of a run ends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trestle_contract::ids::RunId;

use super::ledger::TurnIdentity;
use super::turn::Turn;

/// All turns under way, by run and then by turn key, or by the key of the meter row where there is no other.
#[derive(Default)]
pub(super) struct Registry {
    turns: Mutex<HashMap<RunId, HashMap<String, Arc<Turn>>>>,
}

/// What became of a turn that was added.
pub(super) enum Registered {
    /// It is the only one of its key.
    First,
    /// Another one of its key is under way.
    Taken(Arc<Turn>),
}

impl Registry {
    pub(super) fn find(&self, run: &RunId, key: &str) -> Option<Arc<Turn>> {
        self.turns().get(run)?.get(key).cloned()
    }

    pub(super) fn add(&self, turn: &Arc<Turn>) -> Registered {
        let mut turns = self.turns();
        let of_run = turns.entry(turn.identity.run.clone()).or_default();
        if let Some(other) = of_run.get(key(&turn.identity)) {
            return Registered::Taken(Arc::clone(other));
        }
        of_run.insert(key(&turn.identity).to_owned(), Arc::clone(turn));
        Registered::First
    }

    /// The turn is over.
    pub(super) fn remove(&self, identity: &TurnIdentity) {
        let mut turns = self.turns();
        if let Some(of_run) = turns.get_mut(&identity.run) {
            // Two turns of one key can be there only one after the other, with another row.
            if of_run.get(key(identity)).is_some_and(|turn| turn.identity.row == identity.row) {
                of_run.remove(key(identity));
            }
            if of_run.is_empty() {
                turns.remove(&identity.run);
            }
        }
    }

    pub(super) fn of_run(&self, run: &RunId) -> Vec<Arc<Turn>> {
        self.turns().get(run).map(|of_run| of_run.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn all(&self) -> Vec<Arc<Turn>> {
        self.turns().values().flat_map(HashMap::values).cloned().collect()
    }

    /// Nothing panics while the lock is held, so a poisoned one is still whole.
    fn turns(&self) -> MutexGuard<'_, HashMap<RunId, HashMap<String, Arc<Turn>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(identity: &TurnIdentity) -> &str {
    identity.key.as_deref().unwrap_or(&identity.row)
}
