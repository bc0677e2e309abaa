//! Which children this process started itself. Every other child was adopted: an orphan of a
//! descendant, which nobody else will wait for.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::SandboxError;
use crate::system::{self, Children};
use crate::tree::{self, Tree};

static OWN_CHILDREN: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

/// Held while a child is started, so that no look at the children sees it before it is known.
pub(crate) fn own_children() -> MutexGuard<'static, HashSet<i32>> {
    OWN_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

/// Removes adopted children that have ended from the process table; returns how many there were.
pub fn reap_adopted() -> usize {
    let own = own_children();
    let mut reaped = 0;
    loop {
        match system::children() {
            Children::None | Children::Alive => return reaped,
            Children::Ended(pid) if own.contains(&pid) => break,
            Children::Ended(pid) => reaped += usize::from(matches!(system::reap(pid), Ok(Some(_)))),
        }
    }
    // A child of our own hides what lies behind it until its owner has looked at it.
    let own_pid = own_pid();
    reaped
        + tree::scan()
            .iter()
            .filter(|stat| stat.parent == own_pid && stat.is_dead() && !own.contains(&stat.pid))
            .filter(|stat| matches!(system::reap(stat.pid), Ok(Some(_))))
            .count()
}

/// Reaps adopted children whenever one ends, for as long as the future is polled. Run it once in a
/// process that called [`become_subreaper`](crate::become_subreaper) and that starts children through
/// this crate only.
///
/// # Errors
/// When the signal cannot be watched.
pub async fn watch_adopted() -> Result<(), SandboxError> {
    let mut ended = signal(SignalKind::child()).map_err(SandboxError::system("watch for ended children"))?;
    while ended.recv().await.is_some() {
        // Most children that end are our own; their owners come first.
        tokio::time::sleep(Duration::from_millis(5)).await;
        reap_adopted();
    }
    Ok(())
}

/// Kills every adopted child with everything below it. What was started through this crate and still
/// has its parent is spared. True when nothing is left within five seconds.
pub async fn end_adopted() -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let own_pid = own_pid();
        let roots: Vec<_> = {
            let own = own_children();
            tree::scan()
                .into_iter()
                .filter(|stat| stat.parent == own_pid && !stat.is_dead() && !own.contains(&stat.pid))
                .collect()
        };
        if roots.is_empty() {
            reap_adopted();
            return true;
        }
        for root in roots {
            Tree::of(root.identity()).kill(deadline.saturating_duration_since(Instant::now())).await;
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

/// Kills every descendant of this process, which must be a subreaper. True when nothing is left within the given time.
pub async fn end_all_descendants(within: Duration) -> bool {
    // The usual case, told apart without a look at every process of the machine.
    if system::children() == Children::None {
        return true;
    }
    Tree::below(own_pid()).kill(within).await
}
