//! Finding and killing every process of a tree, also those that left its session or lost their
//! parent.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::system;

/// A process, told apart from a later one with the same number by the time of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process number.
    pub pid: i32,
    /// Start time in clock ticks since boot, as `/proc/PID/stat` tells it.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// The identity of a living process or zombie; `None` when there is none with this number.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Stat::read(pid).map(|stat| Self { pid, start_time: stat.start_time })
    }

    /// Whether this very process still runs (a zombie does not).
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start_time == self.start_time && !stat.is_dead())
    }

    /// Sends a signal to this very process; a process that is gone is no error.
    pub(crate) fn signal(self, signal: i32) -> io::Result<()> {
        let gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        let handle = match system::pidfd_open(self.pid) {
            Ok(handle) => handle,
            Err(error) if gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The handle is fixed now; if the number was used again, the start time tells.
        if Self::of(self.pid) != Some(self) {
            return Ok(());
        }
        match system::pidfd_signal(handle.as_fd(), signal) {
            Err(error) if !gone(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) state: char,
    pub(crate) start_time: u64,
}

impl Stat {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, text: &[u8]) -> Option<Self> {
        // The command name is in parentheses and may hold spaces, parentheses and any byte.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        ProcessIdentity { pid: self.pid, start_time: self.start_time }
    }
}

/// One look at all processes.
pub(crate) fn scan() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(Stat::read)
        .collect()
}

/// The processes that belong to a tree: what descends from the roots, what shares a session or group
/// with one, and whatever was once seen to belong.
pub(crate) struct Tree {
    root: i32,
    /// Start time of the root if it belongs to the tree itself.
    root_started: Option<u64>,
    seen: HashMap<i32, u64>,
}

impl Tree {
    /// The tree below and including one process.
    pub(crate) fn of(root: ProcessIdentity) -> Self {
        Self {
            root: root.pid,
            root_started: Some(root.start_time),
            seen: HashMap::from([(root.pid, root.start_time)]),
        }
    }

    /// The tree below a process, which itself is spared.
    pub(crate) fn below(root: i32) -> Self {
        Self { root, root_started: None, seen: HashMap::new() }
    }

    /// Those living members that a scan finds.
    pub(crate) fn living(&mut self, processes: &[Stat]) -> Vec<ProcessIdentity> {
        self.seen
            .retain(|pid, start| processes.iter().any(|stat| stat.pid == *pid && stat.start_time == *start));
        let mut members: HashSet<i32> = self.seen.keys().copied().collect();
        if self.root_started.is_none() {
            members.insert(self.root);
        }
        // The root's session and group keep its number as long as one member lives; a process that
        // was given the number later has a session of its own.
        let owns_number = self.root_started.is_some()
            && processes
                .iter()
                .all(|stat| stat.pid != self.root || Some(stat.start_time) == self.root_started);
        loop {
            let before = members.len();
            for stat in processes {
                let joined = owns_number && (stat.session == self.root || stat.group == self.root);
                if members.contains(&stat.parent) || joined {
                    members.insert(stat.pid);
                }
            }
            if members.len() == before {
                break;
            }
        }
        let mut living = Vec::new();
        for stat in processes.iter().filter(|stat| members.contains(&stat.pid)) {
            if self.root_started.is_none() && stat.pid == self.root {
                continue;
            }
            self.seen.insert(stat.pid, stat.start_time);
            if !stat.is_dead() {
                living.push(stat.identity());
            }
        }
        living
    }

    /// Stops, then kills every member until two scans in a row find none; tells whether that was
    /// reached before the deadline.
    pub(crate) async fn kill(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut quiet = 0;
        let mut pause = Duration::from_millis(1);
        loop {
            let living = self.freeze();
            if living.is_empty() {
                quiet += 1;
                if quiet == 2 {
                    return true;
                }
            } else {
                quiet = 0;
                for process in &living {
                    report(process.signal(libc::SIGKILL), "kill");
                }
            }
            crate::registry::reap_adopted();
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Kills every member that is found, without waiting for their end.
    pub(crate) fn kill_now(&mut self) {
        for process in self.freeze() {
            report(process.signal(libc::SIGKILL), "kill");
        }
    }

    /// Stops the members first: a stopped process starts no further one that a scan could miss.
    fn freeze(&mut self) -> Vec<ProcessIdentity> {
        let mut stopped: HashSet<ProcessIdentity> = HashSet::new();
        // A tree that grows faster than it is scanned is killed in the state it has.
        for _ in 0..16 {
            let living = self.living(&scan());
            let fresh: Vec<_> = living.iter().filter(|process| !stopped.contains(process)).copied().collect();
            if fresh.is_empty() {
                return living;
            }
            for process in fresh {
                report(process.signal(libc::SIGSTOP), "stop");
                stopped.insert(process);
            }
        }
        self.living(&scan())
    }
}

fn report(result: io::Result<()>, action: &str) {
    if let Err(error) = result {
        tracing::warn!(%error, action, "cannot signal a process");
    }
}

/// Kills the tree of a process that need not be a child of this one, for example one that an
/// earlier, dead runner left behind. True when nothing of it is left.
pub async fn end_tree(root: ProcessIdentity) -> bool {
    if !root.is_alive() && scan().iter().all(|stat| stat.session != root.pid && stat.group != root.pid) {
        return true;
    }
    Tree::of(root).kill(Duration::from_secs(5)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_and_spaces_does_not_confuse_the_parser() {
        let line = b"77 (a) b (c)) S 1 2 3 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n";
        let stat = Stat::parse(77, line).unwrap();
        assert_eq!(
            (stat.parent, stat.group, stat.session, stat.start_time, stat.state),
            (1, 2, 3, 4242, 'S')
        );
    }

    #[test]
    fn a_member_stays_known_after_its_parent_is_gone() {
        let stat = |pid, parent| Stat { pid, parent, group: pid, session: pid, state: 'S', start_time: 1 };
        let mut tree = Tree::of(ProcessIdentity { pid: 10, start_time: 1 });
        assert_eq!(tree.living(&[stat(10, 5), stat(11, 10), stat(12, 11)]).len(), 3);
        // 11 is gone and 12 was adopted by 5, in a session of its own.
        let left = tree.living(&[stat(5, 1), stat(12, 5), stat(13, 12)]);
        assert_eq!(left.iter().map(|process| process.pid).collect::<Vec<_>>(), [12, 13]);
    }

    #[test]
    fn a_child_that_was_never_seen_beside_its_parent_belongs_by_its_session_or_group() {
        let adopted =
            |pid, group, session| Stat { pid, parent: 1, group, session, state: 'S', start_time: 2 };
        let mut tree = Tree::of(ProcessIdentity { pid: 10, start_time: 1 });
        let found = tree.living(&[adopted(11, 11, 10), adopted(12, 10, 12), adopted(13, 13, 13)]);
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [11, 12]);
    }

    #[test]
    fn a_number_that_was_used_again_is_no_member() {
        let mut tree = Tree::of(ProcessIdentity { pid: 10, start_time: 1 });
        let other = Stat { pid: 10, parent: 1, group: 10, session: 10, state: 'S', start_time: 2 };
        assert!(tree.living(&[other]).is_empty());
    }
}
