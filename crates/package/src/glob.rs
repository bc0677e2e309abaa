//! The patterns of the descriptor's `files` (`docs/protocol/descriptor.md` §8.3).

use regex::Regex;

/// One item of `files`.
pub(crate) enum Pattern {
    /// A file, or a folder with everything in it.
    Path(String),
    Glob(Regex),
}

impl Pattern {
    /// Reads an item: with `*` or `?` a glob over the whole relative path, else a path. `**` stands for any number of
    /// folders, `*` and `?` stay inside one segment, case counts.
    pub(crate) fn new(item: &str) -> Self {
        if !item.contains(['*', '?']) {
            return Self::Path(item.to_owned());
        }
        let mut expression = String::from("^");
        let mut rest = item;
        while let Some(character) = rest.chars().next() {
            let at_segment_start = rest.len() == item.len() || item[..item.len() - rest.len()].ends_with('/');
            if at_segment_start && let Some(after) = rest.strip_prefix("**/") {
                expression.push_str("(?:[^/]+/)*");
                rest = after;
            } else if let Some(after) = rest.strip_prefix("**") {
                expression.push_str(".*");
                rest = after;
            } else {
                match character {
                    '*' => expression.push_str("[^/]*"),
                    '?' => expression.push_str("[^/]"),
                    other => expression.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
                }
                rest = &rest[character.len_utf8()..];
            }
        }
        expression.push('$');
        match Regex::new(&expression) {
            Ok(regex) => Self::Glob(regex),
            // Only a pattern beyond the engine's size limit ends here; it can still name a file.
            Err(_) => Self::Path(item.to_owned()),
        }
    }

    /// Whether a path relative to the package matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        match self {
            Self::Path(wanted) => {
                path == wanted || path.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
            Self::Glob(regex) => regex.is_match(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_by_segments() {
        for (item, path, expected) in [
            ("*.csv", "a.csv", true),
            ("*.csv", "d/a.csv", false),
            ("a/**", "a/b/c.txt", true),
            ("a/**", "a", false),
            ("a/**/b.txt", "a/b.txt", true),
            ("a/**/b.txt", "a/x/y/b.txt", true),
            ("a/**/b.txt", "a/xb.txt", false),
            ("**/*.md", "x.md", true),
            ("**/*.md", "p/q/x.md", true),
            ("p?.txt", "pa.txt", true),
            ("p?.txt", "p/.txt", false),
            ("a.b*", "aXbc", false),
            ("data", "data/x/y.bin", true),
            ("data", "data", true),
            ("data", "database", false),
            ("A.txt", "a.txt", false),
            ("[x].txt", "x.txt", false),
            ("[x].txt", "[x].txt", true),
        ] {
            assert_eq!(Pattern::new(item).matches(path), expected, "{item} on {path}");
        }
    }
}
