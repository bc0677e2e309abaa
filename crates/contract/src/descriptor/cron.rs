//! The syntax of cron expressions (`docs/protocol/descriptor.md` §5.1).
//!
//! The original format checks only the number of fields, so that a typing error surfaces when nothing fires. Here the
//! fields are read when the descriptor is.

/// A cron expression that no schedule can be made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not five or six fields.
    #[error("a cron expression has 5 fields, or 6 with seconds first; this one has {0}")]
    FieldCount(usize),
    /// One field is wrong.
    #[error("the {field} field `{text}` is wrong: {message}")]
    Field {
        /// Which field.
        field: &'static str,
        /// The field's text.
        text: String,
        /// What is wrong.
        message: String,
    },
}

struct FieldRule {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const RULES: [FieldRule; 6] = [
    FieldRule { name: "second", low: 0, high: 59, names: &[] },
    FieldRule { name: "minute", low: 0, high: 59, names: &[] },
    FieldRule { name: "hour", low: 0, high: 23, names: &[] },
    FieldRule { name: "day", low: 1, high: 31, names: &[] },
    FieldRule { name: "month", low: 1, high: 12, names: &MONTHS },
    FieldRule { name: "weekday", low: 0, high: 7, names: &WEEKDAYS },
];

/// Checks an expression of five fields, or six with seconds first.
///
/// # Errors
/// [`CronError`] for a wrong number of fields, or the first field that is wrong.
pub fn check_cron(expression: &str) -> Result<(), CronError> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let rules = match fields.len() {
        5 => &RULES[1..],
        6 => &RULES[..],
        count => return Err(CronError::FieldCount(count)),
    };
    for (text, rule) in fields.iter().zip(rules) {
        for item in text.split(',') {
            check_item(item, rule).map_err(|message| CronError::Field {
                field: rule.name,
                text: (*text).to_owned(),
                message,
            })?;
        }
    }
    Ok(())
}

fn check_item(item: &str, rule: &FieldRule) -> Result<(), String> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    if let Some(step) = step {
        match step.parse::<u32>() {
            Ok(1..) if step.bytes().all(|byte| byte.is_ascii_digit()) => {}
            _ => return Err(format!("the step after `/` must be a whole number from 1, found `{step}`")),
        }
    }
    if range == "*" {
        return Ok(());
    }
    match range.split_once('-') {
        Some((first, last)) => {
            if position(first, rule)? > position(last, rule)? {
                return Err(format!("the range `{range}` runs backwards"));
            }
            Ok(())
        }
        None => position(range, rule).map(|_| ()),
    }
}

fn position(text: &str, rule: &FieldRule) -> Result<u32, String> {
    if text.is_empty() {
        return Err("a value is missing".into());
    }
    let lower = text.to_ascii_lowercase();
    if let Some(index) = rule.names.iter().position(|name| *name == lower) {
        return Ok(rule.low + u32::try_from(index).unwrap_or(0));
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(number) if is_number && (rule.low..=rule.high).contains(&number) => Ok(number),
        _ if rule.names.is_empty() => {
            Err(format!("`{text}` is not a number from {} to {}", rule.low, rule.high))
        }
        _ => Err(format!("`{text}` is neither a number from {} to {} nor a name", rule.low, rule.high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_expressions_are_accepted() {
        for expression in [
            "30 2 * * *",
            "*/15 * * * * *",
            "  0   9-17/2 1,15 JAN-mar MON-fri ",
            "5/10 * * * 7",
            "0 0 31 12 0-7",
        ] {
            assert_eq!(check_cron(expression), Ok(()), "{expression}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        for (expression, part) in [
            ("@hourly", "this one has 1"),
            ("* * * *", "this one has 4"),
            ("* * * * * * *", "this one has 7"),
            ("a b c d e", "minute field `a`"),
            ("60 * * * *", "0 to 59"),
            ("* 24 * * *", "hour field"),
            ("* * 0 * *", "day field"),
            ("* * * 13 *", "month field"),
            ("* * * * 8", "weekday field"),
            ("* * L * *", "day field"),
            ("5-1 * * * *", "backwards"),
            ("*/0 * * * *", "from 1"),
            ("*/+2 * * * *", "from 1"),
            ("1//2 * * * *", "from 1"),
            ("1,,2 * * * *", "missing"),
            ("-1 * * * *", "missing"),
            ("? * * * *", "minute field"),
            ("* * * * MON#2", "weekday field"),
            ("60 * * * * *", "second field"),
        ] {
            let message = check_cron(expression).unwrap_err().to_string();
            assert!(message.contains(part), "{expression}: {message}");
        }
    }
}
