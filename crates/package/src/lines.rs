//! Byte offsets as lines and columns.

use trestle_contract::descriptor::Position;

/// The position of a byte offset; columns count characters.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    let columns = before[line_start..].iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    let one_based = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
    Position { line: one_based(lines), column: one_based(columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_and_character_columns() {
        let text = "aé\r\nb\n😀c";
        assert_eq!(position(text, 0), Position { line: 1, column: 1 });
        assert_eq!(position(text, 3), Position { line: 1, column: 3 });
        assert_eq!(position(text, text.len() - 1), Position { line: 3, column: 2 });
        assert_eq!(position(text, 999), Position { line: 3, column: 3 });
    }
}
