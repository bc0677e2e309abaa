use thiserror::Error;

/// The longest sleep a program may ask for: seven days.
pub const MAX_SLEEP_MS: i64 = 7 * 24 * 3_600_000;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is not a duration; write a number and a unit, such as 500ms, 90s, 15m, 1h30m or 7 days")]
pub struct DurationError {
    text: String,
}

/// Reads a duration: one or more pairs of a number and a unit (`ms`, `s`, `m`, `h`, `d`, or
/// the words for them), with or without blanks. Fractions are allowed. The result is in
/// milliseconds, rounded down.
pub fn parse_duration_ms(text: &str) -> Result<i64, DurationError> {
    let fail = || DurationError { text: text.chars().take(80).collect() };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(fail());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let value: f64 = number.parse().map_err(|_| fail())?;
        total += value * unit_ms(unit).ok_or_else(fail)?;
        rest = next.trim_start();
    }
    // 2^53 ms are 285,000 years; beyond it a double no longer counts milliseconds.
    if total.is_finite() && total <= 9_007_199_254_740_992.0 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "checked to lie within the exact range of a double"
        )]
        Ok(total as i64)
    } else {
        Err(fail())
    }
}

fn unit_ms(unit: &str) -> Option<f64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
        "d" | "day" | "days" => 86_400_000.0,
        _ => return None,
    })
}

/// A duration as a person writes it, in its two largest units: `2d 3h`, `1m 5s`, `40ms`.
pub fn format_duration(ms: i64) -> String {
    const UNITS: [(i64, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let ms = ms.max(0);
    let first = UNITS.iter().position(|(size, _)| ms >= *size);
    let Some(first) = first else { return "0s".to_owned() };
    let (size, name) = UNITS[first];
    let mut text = format!("{}{name}", ms / size);
    if let Some((next_size, next_name)) = UNITS.get(first + 1).filter(|(_, name)| *name != "ms") {
        let rest = ms % size / next_size;
        if rest > 0 {
            text.push_str(&format!(" {rest}{next_name}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_in_every_spelling() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            (" 15 m ", 900_000),
            ("1h30m", 5_400_000),
            ("1h 30 min", 5_400_000),
            ("7 days", MAX_SLEEP_MS),
            ("5 minutes", 300_000),
            ("1.5s", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_bounded_echo() {
        for text in ["", "  ", "5", "s", "5 parsecs", "-5s", "1..5s", "5s x", "1e3s", "99999999999999999999d"]
        {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
        let error = parse_duration_ms(&"9".repeat(10_000)).unwrap_err();
        assert!(error.to_string().len() < 250);
    }

    #[test]
    fn durations_are_shown_in_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (-4, "0s"),
            (40, "40ms"),
            (1_000, "1s"),
            (1_900, "1s"),
            (65_000, "1m 5s"),
            (3_600_000, "1h"),
            (183_600_000, "2d 3h"),
        ] {
            assert_eq!(format_duration(ms), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_otherwise(text in ".{0,40}") {
            if let Ok(ms) = parse_duration_ms(&text) {
                prop_assert!(ms >= 0);
            }
        }

        #[test]
        fn pairs_add_up(hours in 0_i64..1000, minutes in 0_i64..1000, seconds in 0_i64..1000) {
            prop_assert_eq!(parse_duration_ms(&format!("{hours}h{minutes}m{seconds}s")), Ok(hours * 3_600_000 + minutes * 60_000 + seconds * 1_000));
        }
    }
}
