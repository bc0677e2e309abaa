//! Key templates of `concurrency.key` and `workspace.key` (`docs/protocol/descriptor.md` §6).

use serde_json::Value;

/// One thing that is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at index {index}: {message}")]
pub struct TemplateProblem {
    /// Index of the interpolation's `$`, in UTF-16 units from 0.
    pub index: usize,
    /// What is wrong.
    pub message: String,
}

/// A template cannot be resolved for this input. The run is not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing, or null, where the key needs a value, and the template has no fallback.
    #[error("`{path}` is missing from the input and has no fallback")]
    Missing {
        /// The path as written in the template.
        path: String,
    },
    /// An object or array cannot be part of a key.
    #[error("`{path}` is {found}, only text, numbers and booleans can be part of a key")]
    NotScalar {
        /// The path as written in the template.
        path: String,
        /// What the input holds there.
        found: &'static str,
    },
}

/// A parsed template: literal text and interpolations of the run's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Input { path: String, accessors: Vec<Accessor>, fallback: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Accessor {
    Field(String),
    Index(usize),
}

impl KeyTemplate {
    /// Reads a template. One without interpolations is legal: a constant.
    ///
    /// # Errors
    /// All problems of all interpolations, each with its index.
    pub fn parse(text: &str) -> Result<Self, Vec<TemplateProblem>> {
        let mut parts = Vec::new();
        let mut problems = Vec::new();
        let mut rest = text;
        let mut index = 0;
        while let Some(start) = rest.find("${") {
            if start > 0 {
                parts.push(Part::Literal(rest[..start].to_owned()));
            }
            index += utf16_length(&rest[..start]);
            let after = &rest[start + 2..];
            let Some(end) = after.find('}') else {
                problems.push(TemplateProblem { index, message: "`${` is never closed with `}`".into() });
                rest = "";
                break;
            };
            match interpolation(&after[..end]) {
                Ok(part) => parts.push(part),
                Err(messages) => {
                    problems.extend(messages.into_iter().map(|message| TemplateProblem { index, message }));
                }
            }
            index += utf16_length(&after[..end]) + 3;
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        if problems.is_empty() { Ok(Self { parts }) } else { Err(problems) }
    }

    /// Whether the key is the same for every input.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// The key of one input. Text goes in as it is, booleans as `true` and `false`, integers with all their digits,
    /// other numbers in their shortest form; a missing or null value takes the fallback.
    ///
    /// # Errors
    /// [`KeyError`] when a value is missing without fallback, or is an object or array.
    pub fn evaluate(&self, input: &Value) -> Result<String, KeyError> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.push_str(text),
                Part::Input { path, accessors, fallback } => match lookup(input, accessors) {
                    None | Some(Value::Null) => match fallback {
                        Some(text) => key.push_str(text),
                        None => return Err(KeyError::Missing { path: path.clone() }),
                    },
                    Some(Value::String(text)) => key.push_str(text),
                    Some(Value::Bool(value)) => key.push_str(if *value { "true" } else { "false" }),
                    Some(Value::Number(number)) => key.push_str(&number_text(number)),
                    Some(Value::Array(_)) => {
                        return Err(KeyError::NotScalar { path: path.clone(), found: "an array" });
                    }
                    Some(Value::Object(_)) => {
                        return Err(KeyError::NotScalar { path: path.clone(), found: "an object" });
                    }
                },
            }
        }
        Ok(key)
    }
}

fn utf16_length(text: &str) -> usize {
    text.encode_utf16().count()
}

fn lookup<'v>(input: &'v Value, accessors: &[Accessor]) -> Option<&'v Value> {
    accessors.iter().try_fold(input, |value, accessor| match accessor {
        Accessor::Field(name) => value.as_object()?.get(name),
        Accessor::Index(index) => value.as_array()?.get(*index),
    })
}

fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if !number.is_i64() && !number.is_u64() => {
            // 1.0 and 1 are one number, so they are one key; Display of f64 never uses an exponent.
            let text = format!("{float}");
            if text == "-0" { "0".into() } else { text }
        }
        _ => number.to_string(),
    }
}

fn interpolation(body: &str) -> Result<Part, Vec<String>> {
    let (path, fallback) = match body.split_once("??") {
        Some((path, fallback)) => (path.trim(), Some(fallback.trim())),
        None => (body.trim(), None),
    };
    let mut problems = Vec::new();
    let fallback = match fallback.map(quoted).transpose() {
        Ok(fallback) => fallback,
        Err(message) => {
            problems.push(message);
            None
        }
    };
    match accessors(path) {
        Ok(accessors) if problems.is_empty() => {
            return Ok(Part::Input { path: path.to_owned(), accessors, fallback });
        }
        Ok(_) => {}
        Err(message) => problems.push(message),
    }
    Err(problems)
}

fn quoted(text: &str) -> Result<String, String> {
    let Some(quote) = text.chars().next() else {
        return Err("the fallback after `??` is missing".into());
    };
    let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match inner {
        Some(inner) if matches!(quote, '\'' | '"') && !inner.contains(['\\', quote]) => {
            if inner.is_empty() {
                Err("the fallback is empty; a key cannot be empty text".into())
            } else {
                Ok(inner.to_owned())
            }
        }
        _ => Err(format!("the fallback must be one quoted text such as 'none', found `{text}`")),
    }
}

fn accessors(path: &str) -> Result<Vec<Accessor>, String> {
    if path.is_empty() {
        return Err("the interpolation is empty".into());
    }
    let Some(mut rest) = path.strip_prefix("input") else {
        return Err(format!("`{path}` must start with `input.`"));
    };
    if rest.is_empty() {
        return Err("the whole input is never one value; name a field such as `input.id`".into());
    }
    if !rest.starts_with(['.', '[']) {
        return Err(format!("`{path}` must start with `input.`"));
    }
    let mut accessors = Vec::new();
    while let Some(character) = rest.chars().next() {
        let (accessor, length) = match character {
            '.' => field(&rest[1..])?,
            '[' => index(&rest[1..])?,
            other => return Err(unexpected(other)),
        };
        accessors.push(accessor);
        rest = &rest[1 + length..];
    }
    Ok(accessors)
}

/// A field name after its dot; the length is that of the name.
fn field(text: &str) -> Result<(Accessor, usize), String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '$');
    let length = text.find(|character| !is_part(character)).unwrap_or(text.len());
    let name = &text[..length];
    match text.chars().next() {
        None | Some('.' | '[') => Err("a field name is missing after `.`".into()),
        Some(character) if character.is_ascii_digit() => {
            Err(format!("`{name}` is no field name: it starts with a digit (positions are written `[0]`)"))
        }
        Some(character) if !is_part(character) => Err(unexpected(character)),
        Some(_) => Ok((Accessor::Field(name.to_owned()), length)),
    }
}

/// A position after its opening bracket; the length includes the closing one.
fn index(text: &str) -> Result<(Accessor, usize), String> {
    let Some(end) = text.find(']') else {
        return Err("`[` is never closed with `]`".into());
    };
    let digits = &text[..end];
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse::<usize>() {
        Ok(index) if plain && (digits == "0" || !digits.starts_with('0')) => {
            Ok((Accessor::Index(index), end + 1))
        }
        _ => Err(format!("`[{digits}]` is no position: write a whole number such as `[0]`")),
    }
}

fn unexpected(character: char) -> String {
    match character {
        character if character.is_whitespace() => "a path cannot hold white space".into(),
        '(' | ')' => "a key template cannot call a function".into(),
        '+' | '-' | '*' | '/' | '%' | '<' | '>' | '!' | '&' | '|' | '?' | '=' | '~' | '^' => {
            format!("a key template cannot compute: operator `{character}`")
        }
        other => format!("unexpected character `{other}`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn problems(text: &str) -> Vec<(usize, String)> {
        let problems = KeyTemplate::parse(text).unwrap_err();
        problems.into_iter().map(|problem| (problem.index, problem.message)).collect()
    }

    #[test]
    fn every_template_of_the_reference_table_has_its_verdict() {
        for valid in [
            "${input.a}",
            "${input[0]}",
            "${ input.a[0].b ?? \"none\" }",
            "${input.a??'n'}",
            "x",
            "{input.a}",
        ] {
            assert!(KeyTemplate::parse(valid).is_ok(), "{valid}");
        }
        for (text, part) in [
            ("${}", "empty"),
            ("${?? 'x'}", "empty"),
            ("${input}", "whole input"),
            ("${repo}", "must start with `input.`"),
            ("${inputs.a}", "must start with `input.`"),
            ("${ input . a }", "must start with `input.`"),
            ("${input.a()}", "function"),
            ("${input.a-b}", "operator `-`"),
            ("${input.a+1}", "operator `+`"),
            ("${input.a b}", "white space"),
            ("${input.é}", "unexpected character `é`"),
            ("${input.a@b}", "unexpected character `@`"),
            ("${input.a.}", "missing after `.`"),
            ("${input..a}", "missing after `.`"),
            ("${input.1a}", "starts with a digit"),
            ("${input[\"a\"]}", "no position"),
            ("${input.a[01]}", "no position"),
            ("${input.a[-1]}", "no position"),
            ("${input.a[0}", "never closed with `]`"),
            ("${input.a ?? ''}", "empty"),
            ("${input.a ?? }", "missing"),
            ("${input.a ?? n}", "one quoted text"),
            ("${input.a ?? input.b}", "one quoted text"),
            ("${input.a ?? \"b\" ?? \"c\"}", "one quoted text"),
            ("${input.a", "never closed"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, 0, "{text}");
            assert!(found[0].1.contains(part), "{text}: {found:?}");
        }
    }

    #[test]
    fn problems_are_collected_with_utf16_indexes_fallback_first() {
        let found = problems("😀${repo ?? n}-${input.a+1}${x");
        assert_eq!(found.iter().map(|problem| problem.0).collect::<Vec<_>>(), [2, 2, 15, 27]);
        assert!(found[0].1.contains("fallback"));
        assert!(found[1].1.contains("must start"));
    }

    #[test]
    fn dollars_without_a_brace_are_literal() {
        let template = KeyTemplate::parse("$5 $${input.a} $").unwrap();
        assert_eq!(template.evaluate(&json!({"a": "x"})).unwrap(), "$5 $x $");
        assert!(!template.is_constant());
        assert!(KeyTemplate::parse("lane").unwrap().is_constant());
    }

    #[test]
    fn scalars_become_text_and_integers_keep_every_digit() {
        let template = KeyTemplate::parse("${input.v ?? 'none'}").unwrap();
        for (value, expected) in [
            ("\"a b\"", "a b"),
            ("true", "true"),
            ("9007199254740993", "9007199254740993"),
            ("-3", "-3"),
            ("1.0", "1"),
            ("-0.0", "0"),
            ("1.25", "1.25"),
            ("null", "none"),
        ] {
            let input: Value = serde_json::from_str(&format!("{{\"v\":{value}}}")).unwrap();
            assert_eq!(template.evaluate(&input).unwrap(), expected, "{value}");
        }
        assert_eq!(template.evaluate(&Value::Null).unwrap(), "none");
    }

    #[test]
    fn missing_values_without_fallback_and_containers_are_errors() {
        let template = KeyTemplate::parse("${input.rows[1].id}").unwrap();
        assert_eq!(template.evaluate(&json!({"rows": [{}, {"id": 7}]})).unwrap(), "7");
        let missing = template.evaluate(&json!({"rows": [{}]})).unwrap_err();
        assert_eq!(missing, KeyError::Missing { path: "input.rows[1].id".into() });
        let whole = template.evaluate(&json!({"rows": [0, {"id": []}]})).unwrap_err();
        assert!(matches!(whole, KeyError::NotScalar { found: "an array", .. }));
        let inherited = KeyTemplate::parse("${input.__proto__ ?? 'own'}").unwrap();
        assert_eq!(inherited.evaluate(&json!({})).unwrap(), "own");
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused_at_an_index_inside_it(text in "\\PC{0,40}") {
            match KeyTemplate::parse(&text) {
                Ok(template) => prop_assert_eq!(!text.contains("${"), template.is_constant()),
                Err(problems) => {
                    let units: Vec<u16> = text.encode_utf16().collect();
                    for problem in problems {
                        prop_assert_eq!(units[problem.index], u16::from(b'$'));
                    }
                }
            }
        }
    }
}
