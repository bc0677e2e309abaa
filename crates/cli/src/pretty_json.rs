/// Indents a JSON text by two blanks without touching its tokens: numbers and escapes stay as they were
/// written. The text must be valid JSON; anything else comes out with the same tokens in the same order.
#[must_use]
pub fn pretty_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let mut rest = text.char_indices().peekable();
    while let Some((start, c)) = rest.next() {
        match c {
            '"' => {
                let mut escaped = false;
                let mut end = text.len();
                for (at, c) in rest.by_ref() {
                    if c == '"' && !escaped {
                        end = at + 1;
                        break;
                    }
                    escaped = c == '\\' && !escaped;
                }
                out.push_str(&text[start..end]);
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|(_, next)| next.is_ascii_whitespace()).is_some() {}
                if let Some((_, close)) = rest.next_if(|(_, next)| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_and_structure_is_indented() {
        let text = r#"{"a":[1,{"b":"x,{]\"y\\"},[],{ }],"n":12345678901234567890.10e400,"z":null}"#;
        assert_eq!(
            pretty_json(text),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,{]\\\"y\\\\\"\n    },\n    [],\n    {}\n  ],\n  \"n\": 12345678901234567890.10e400,\n  \"z\": null\n}"
        );
        assert_eq!(pretty_json("\"\\u0000 é\""), "\"\\u0000 é\"");
        assert_eq!(pretty_json(" [ 1 , 2 ] "), "[\n  1,\n  2\n]");
        assert_eq!(pretty_json("\"open"), "\"open");
    }
}
