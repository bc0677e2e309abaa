use std::cmp::Ordering;

/// The marks of ASCII in the order of the Unicode collation root; digits and letters follow.
const MARKS: &str = "\t\n\u{b}\u{c}\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

/// Compares names as a person sorts them: marks, digits, then letters regardless of case;
/// between names that differ in case alone, lower case first.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    a.chars().flat_map(primary).cmp(b.chars().flat_map(primary)).then_with(|| {
        // Lower case before upper case, which is the reverse of their code points.
        a.chars().map(char::is_uppercase).cmp(b.chars().map(char::is_uppercase)).then_with(|| a.cmp(b))
    })
}

fn primary(c: char) -> impl Iterator<Item = (u8, u32)> {
    let key = |c: char| {
        if let Some(place) = MARKS.find(c) {
            (0, u32::try_from(place).unwrap_or(u32::MAX))
        } else if c.is_ascii_digit() {
            (1, u32::from(c))
        } else {
            (2, u32::from(c))
        }
    };
    c.to_lowercase().map(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sorted_as_people_do() {
        let sorted = [
            "_x/AGENTS.md",
            "1/AGENTS.md",
            "a/AGENTS.md",
            "about/AGENTS.md",
            "admin/AGENTS.md",
            "AGENTS.md",
            "app/AGENTS.md",
            "packages/a/AGENTS.md",
            "packages/AGENTS.md",
            "src/AGENTS.md",
            "Zed/AGENTS.md",
        ];
        let mut mixed = sorted;
        mixed.reverse();
        mixed.sort_by(|a, b| compare(a, b));
        assert_eq!(mixed, sorted);
        assert_eq!(compare("a", "A"), Ordering::Less);
        assert_eq!(compare("a", "a"), Ordering::Equal);
    }
}
