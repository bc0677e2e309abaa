/// Exponential back-off with full jitter: the wait before retry `n` (from 0) is drawn evenly
/// from zero to `min(limit, base · 2ⁿ)`, so that many clients of one dead server do not come
/// back in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base_ms: u64,
    limit_ms: u64,
    tries: u32,
}

impl Backoff {
    /// A schedule that starts at `base_ms` and never waits longer than `limit_ms`.
    pub const fn new(base_ms: u64, limit_ms: u64) -> Self {
        Self { base_ms, limit_ms, tries: 0 }
    }

    /// The longest wait that the next retry may draw.
    pub fn ceiling_ms(&self) -> u64 {
        let factor = 1_u64.checked_shl(self.tries).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.limit_ms)
    }

    /// Draws the next wait in milliseconds and raises the ceiling for the one after it.
    pub fn next_ms(&mut self) -> u64 {
        self.next_with(rand::random::<u64>())
    }

    /// As [`Backoff::next_ms`] with the random number given.
    pub fn next_with(&mut self, random: u64) -> u64 {
        let ceiling = self.ceiling_ms();
        self.tries = self.tries.saturating_add(1);
        ceiling.checked_add(1).map_or(random, |values| random % values)
    }

    /// How often a wait was drawn since the last success.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_limit_and_starts_over() {
        let mut backoff = Backoff::new(500, 3_000);
        let ceilings: Vec<u64> = (0..5)
            .map(|_| {
                let ceiling = backoff.ceiling_ms();
                backoff.next_ms();
                ceiling
            })
            .collect();
        assert_eq!(ceilings, [500, 1_000, 2_000, 3_000, 3_000]);
        backoff.reset();
        assert_eq!(backoff.ceiling_ms(), 500);
    }

    #[test]
    fn both_ends_of_the_range_are_drawn() {
        let mut backoff = Backoff::new(10, 10);
        assert_eq!(backoff.next_with(0), 0);
        assert_eq!(backoff.next_with(10), 10);
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_its_ceiling(base in 1_u64..10_000, limit in 1_u64..100_000, randoms in prop::collection::vec(any::<u64>(), 1..100)) {
            let mut backoff = Backoff::new(base, limit);
            for random in randoms {
                let ceiling = backoff.ceiling_ms();
                prop_assert!(ceiling <= limit);
                prop_assert!(backoff.next_with(random) <= ceiling);
            }
        }
    }
}
