use super::Facts;
use crate::{EntryKind, FileTree};

/// Tools whose paths are relative to the working directory.
const FILE_TOOLS: [&str; 8] = ["read", "write", "edit", "ls", "grep", "glob", "apply_patch", "bash"];
const MAX_NAMES: usize = 30;
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// What the model should know about where and when it works.
pub(super) fn block(facts: &Facts, directory: Option<&FileTree>) -> String {
    let clock =
        if facts.has_any(&["clock"]) { " (the clock tool tells the exact time, in any zone)" } else { "" };
    let mut lines = vec![format!("Date: {} UTC{clock}", date(facts.now_ms))];
    if facts.has_any(&FILE_TOOLS) {
        lines.extend(directory.and_then(listing));
    }
    format!("<env>\n{}\n</env>", lines.join("\n"))
}

fn listing(directory: &FileTree) -> Option<String> {
    let mut entries = directory.list(".").ok()?;
    if entries.is_empty() {
        return Some("Working directory: empty. Tool paths are relative to it.".to_owned());
    }
    entries.sort_by(|a, b| a.name.encode_utf16().cmp(b.name.encode_utf16()));
    let folded = entries.len().saturating_sub(MAX_NAMES);
    let names: Vec<String> = entries
        .into_iter()
        .take(MAX_NAMES)
        .map(|entry| {
            let directory = entry.kind == EntryKind::Directory
                || (entry.kind == EntryKind::Other && directory.is_directory(&entry.name));
            if directory { format!("{}/", entry.name) } else { entry.name }
        })
        .collect();
    let more = if folded > 0 { format!(", …(+{folded} more)") } else { String::new() };
    Some(format!("Working directory: {}{more}. Tool paths are relative to it.", names.join(", ")))
}

/// Weekday and date of an instant in UTC: `Monday, 2025-12-01`.
fn date(now_ms: i64) -> String {
    let days = now_ms.div_euclid(86_400_000);
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    // Days since 0000-03-01, so that the leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{weekday}, {year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "Thursday, 1970-01-01"),
            (-1, "Wednesday, 1969-12-31"),
            (951_782_399_999, "Monday, 2000-02-28"),
            (951_782_400_000, "Tuesday, 2000-02-29"),
            (1_764_547_200_000, "Monday, 2025-12-01"),
            (4_107_542_399_999, "Sunday, 2100-02-28"),
            (4_107_542_400_000, "Monday, 2100-03-01"),
            (1_735_689_599_999, "Tuesday, 2024-12-31"),
        ] {
            assert_eq!(date(ms), text);
        }
    }
}
