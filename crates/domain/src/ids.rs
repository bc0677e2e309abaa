use crate::Clock;

/// A fresh ULID in its upper-case form of 26 characters, stamped with the clock's time.
///
/// Ids minted within one millisecond are unique but in no order among themselves.
pub fn new_ulid(clock: &dyn Clock) -> String {
    let now = u64::try_from(clock.now_ms()).unwrap_or(0);
    ulid::Ulid::from_parts(now, rand::random::<u128>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn ulids_are_upper_case_unique_and_ordered_by_time() {
        let clock = ManualClock::new(1_700_000_000_000);
        let mut last = String::new();
        for _ in 0..200 {
            let id = new_ulid(&clock);
            assert_eq!(id.len(), 26);
            assert!(id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()), "{id}");
            assert!(id > last);
            last = id;
            clock.advance(1);
        }
        assert_ne!(new_ulid(&clock), new_ulid(&clock));
    }
}
