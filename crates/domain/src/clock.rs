use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A source of time in milliseconds.
///
/// What the zero point is depends on the clock: the Unix epoch for [`WallClock`],
/// [`StoreClock`] and usually [`ManualClock`], the boot of the machine for [`BootClock`].
pub trait Clock: Send + Sync {
    /// The present instant in milliseconds since the clock's zero point.
    fn now_ms(&self) -> i64;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now_ms(&self) -> i64 {
        (**self).now_ms()
    }
}

/// A clock that a test moves by hand.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock forward (or backward, for a negative value) by `by_ms`.
    pub fn advance(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Puts the clock to `now_ms`, which may lie in its past.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Milliseconds since the boot of the machine; it runs on while the machine sleeps and no
/// administrator can set it. Deadlines of leases are counted on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now_ms(&self) -> i64 {
        #[cfg(target_os = "linux")]
        let id = nix::time::ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        let id = nix::time::ClockId::CLOCK_MONOTONIC;
        read(id)
    }
}

/// Milliseconds since the Unix epoch as the machine believes; it may jump.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now_ms(&self) -> i64 {
        read(nix::time::ClockId::CLOCK_REALTIME)
    }
}

fn read(id: nix::time::ClockId) -> i64 {
    // The kernel refuses only unknown clock ids, and these three are always known.
    id.now().map_or(0, |time| {
        let seconds = time.tv_sec().saturating_mul(1000);
        seconds.saturating_add(time.tv_nsec() / 1_000_000)
    })
}

/// The one clock that judges leases and wakes: the wall time when the store was opened plus
/// the boot time that went by since, and never below the highest time the store holds.
///
/// So a clock step during the life of the process moves nothing, and a restart on a machine
/// whose wall clock was set back does not revive what had expired.
pub struct StoreClock {
    boot: Arc<dyn Clock>,
    opened_boot_ms: i64,
    opened_ms: i64,
    highest_ms: AtomicI64,
}

impl std::fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClock").field("highest_ms", &self.highest_ms).finish_non_exhaustive()
    }
}

impl StoreClock {
    /// Opens the clock: `wall` is read once, `boot` at every question, and `highest_stored_ms`
    /// is the highest instant that the store has written so far (0 for a new store).
    pub fn open(wall: &dyn Clock, boot: Arc<dyn Clock>, highest_stored_ms: i64) -> Self {
        Self {
            opened_boot_ms: boot.now_ms(),
            opened_ms: wall.now_ms().max(highest_stored_ms),
            highest_ms: AtomicI64::new(highest_stored_ms),
            boot,
        }
    }

    /// The clock of a real machine.
    pub fn system(highest_stored_ms: i64) -> Self {
        Self::open(&WallClock, Arc::new(BootClock), highest_stored_ms)
    }
}

impl Clock for StoreClock {
    fn now_ms(&self) -> i64 {
        let elapsed = self.boot.now_ms().saturating_sub(self.opened_boot_ms).max(0);
        let now = self.opened_ms.saturating_add(elapsed);
        self.highest_ms.fetch_max(now, Ordering::SeqCst).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_store_clock_follows_boot_time_and_ignores_the_wall() {
        let wall = ManualClock::new(1_000_000);
        let boot = Arc::new(ManualClock::new(50));
        let clock = StoreClock::open(&wall, boot.clone(), 0);
        assert_eq!(clock.now_ms(), 1_000_000);
        wall.set(5);
        boot.advance(700);
        assert_eq!(clock.now_ms(), 1_000_700);
    }

    #[test]
    fn a_store_clock_never_falls_below_what_the_store_holds() {
        let boot = Arc::new(ManualClock::new(0));
        let clock = StoreClock::open(&ManualClock::new(10), boot.clone(), 9_000);
        assert_eq!(clock.now_ms(), 9_000);
        boot.advance(1);
        assert_eq!(clock.now_ms(), 9_001, "it goes on from there instead of standing still");
    }

    #[test]
    fn the_machine_clocks_run_forward() {
        let first = BootClock.now_ms();
        assert!(first > 0);
        assert!(BootClock.now_ms() >= first);
        assert!(WallClock.now_ms() > 1_600_000_000_000);
    }

    proptest! {
        #[test]
        fn a_store_clock_is_monotone_under_any_boot_clock(
            wall in 0_i64..1 << 45, stored in 0_i64..1 << 45, steps in prop::collection::vec(-500_i64..500, 1..50),
        ) {
            let boot = Arc::new(ManualClock::new(1_000));
            let clock = StoreClock::open(&ManualClock::new(wall), boot.clone(), stored);
            let mut last = clock.now_ms();
            prop_assert!(last >= stored && last >= wall);
            for step in steps {
                boot.advance(step);
                let now = clock.now_ms();
                prop_assert!(now >= last);
                last = now;
            }
        }
    }
}
