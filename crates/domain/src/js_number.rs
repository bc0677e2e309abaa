/// The text that JavaScript's `String(number)` gives for a double; `null` for infinities and
/// NaN, as `JSON.stringify` writes them.
pub fn js_number_text(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rust's exponent form gives the shortest digits that read back as the same double, which
    // are the digits of ECMAScript's Number::toString; only the layout differs.
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", layout(&digits, exponent + 1))
}

/// Lays out digits whose decimal point stands after the first `point` of them.
fn layout(digits: &str, point: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    if count <= point && point <= 21 {
        return format!("{digits}{}", zeros(point - count));
    }
    if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
        return format!("{whole}.{fraction}");
    }
    if -6 < point && point <= 0 {
        return format!("0.{}{digits}", zeros(-point));
    }
    let exponent = point - 1;
    let sign = if exponent < 0 { '-' } else { '+' };
    let (first, rest) = digits.split_at(1);
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{first}{dot}{rest}e{sign}{}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_written_as_javascript_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.234e-7, "1.234e-7"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (0.000_012_3, "0.0000123"),
            (f64::INFINITY, "null"),
            (f64::NAN, "null"),
        ] {
            assert_eq!(js_number_text(value), text);
        }
    }

    proptest! {
        #[test]
        fn every_double_reads_back_as_itself(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let back: f64 = js_number_text(value).parse().unwrap();
            prop_assert_eq!(back, value);
        }
    }
}
