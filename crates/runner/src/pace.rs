use std::time::Duration;

use tokio::time::Instant;

/// Keeps polls apart that bring nothing. A control plane that holds its polls is asked again at once; one that
/// does not (or a proxy in front of it that cuts them short) is asked more and more seldom.
#[derive(Debug)]
pub(crate) struct Pace {
    first: Duration,
    longest: Duration,
    fruitless: u32,
    last: Option<Instant>,
}

impl Pace {
    /// After one poll that brought nothing `first` has to lie between its start and that of the next one, after
    /// each further one twice as much, up to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first: first.min(longest), longest, fruitless: 0, last: None }
    }

    /// When the next poll may be sent.
    pub(crate) fn next(&self) -> Option<Instant> {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(self.fruitless.checked_sub(1)?)?);
        Some(self.last? + doubled.min(self.longest))
    }

    /// A poll that was sent at `sent` brought nothing: no offer, or one that another runner got.
    pub(crate) fn fruitless(&mut self, sent: Instant) {
        // One that was held as long as the longest gap did all that a gap is for.
        self.fruitless =
            if sent.elapsed() >= self.longest { 0 } else { self.fruitless.saturating_add(1).min(24) };
        self.last = Some(sent);
    }

    /// A poll brought work.
    pub(crate) fn fruitful(&mut self) {
        self.fruitless = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fruitless_polls_move_apart_up_to_the_longest_gap_and_work_starts_over() {
        let mut pace = Pace::new(100 * MS, 5_000 * MS);
        assert_eq!(pace.next(), None);
        let mut gaps = Vec::new();
        for _ in 0..40 {
            let sent = Instant::now();
            pace.fruitless(sent);
            gaps.push((pace.next().unwrap() - sent).as_millis());
        }
        assert_eq!(gaps[..7], [100, 200, 400, 800, 1600, 3200, 5000]);
        assert!(gaps[7..].iter().all(|gap| *gap == 5000));
        pace.fruitful();
        assert_eq!(pace.next(), None);
        pace.fruitless(Instant::now() - 6_000 * MS);
        assert_eq!(pace.next(), None, "a poll that was held is followed by the next at once");
    }
}
