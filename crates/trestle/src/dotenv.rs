use std::path::Path;

use trestle_cli::CliError;

/// Reads `NAME=VALUE` lines: blank lines and `#` comments are skipped, `export ` is allowed, single quotes keep
/// the text, double quotes know `\n`, `\"` and `\\`, and an unquoted value ends before ` #`.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))?;
    parse(&text).map_err(|line| {
        CliError::usage(format!("{}:{line}: expected NAME=VALUE", path.display()))
            .hint("one entry a line; quote values with blanks or quotes")
    })
}

/// The entries, or the number of the line that is none.
fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let entry = line.split_once('=').and_then(|(name, value)| {
            let name = name.trim();
            let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            Some((name.to_owned(), unquote(value.trim())?)).filter(|_| valid)
        });
        entries.push(entry.ok_or(number + 1)?);
    }
    Ok(entries)
}

fn unquote(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return is_comment(after).then(|| inner.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        let end = value.find(" #").unwrap_or(value.len());
        return Some(value[..end].trim_end().to_owned());
    };
    let mut inner = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return is_comment(chars.as_str()).then_some(inner),
            '\\' => match chars.next()? {
                'n' => inner.push('\n'),
                c @ ('"' | '\\') => inner.push(c),
                c => inner.extend(['\\', c]),
            },
            c => inner.push(c),
        }
    }
}

fn is_comment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_entry_is_read() {
        let text = "# c\n\nA=1\nexport B = two words # note\nC='q # \"x\"' # c\nD=\"a\\nb\\\"\\\\ \\x\"\nE=\nF=a=b#c\n";
        let entries = parse(text).unwrap();
        let pairs: Vec<(&str, &str)> =
            entries.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "q # \"x\""),
                ("D", "a\nb\"\\ \\x"),
                ("E", ""),
                ("F", "a=b#c")
            ]
        );
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        for (text, line) in [("A=1\nnope", 2), ("1A=x", 1), ("A='open", 1), ("A=\"x\" y", 1), ("=x", 1)] {
            assert_eq!(parse(text), Err(line), "{text}");
        }
    }
}
