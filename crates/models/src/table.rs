//! Prices and context windows of known models: a dated data file, and what an operator puts over it.

use std::path::Path;

use serde::Deserialize;
use trestle_contract::inference::TokenCounts;

use crate::error::{ErrorClass, ModelError};

/// The file that is built in.
const BUILT_IN: &str = include_str!("../data/models.json");

/// What is known about models.
#[derive(Debug, Clone)]
pub struct ModelTable {
    as_of: String,
    entries: Vec<ModelEntry>,
}

/// The form of a table file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TableFile {
    as_of: String,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    models: Vec<ModelEntry>,
}

/// One kind of model. All prices are US dollars per million tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelEntry {
    /// The model's names; `*` stands for any text. Compared without regard to case, with and without a vendor before the last `/`.
    #[serde(rename = "match", deserialize_with = "one_or_several")]
    pub patterns: Vec<String>,
    /// Price of input that comes from no cache.
    #[serde(default)]
    pub input: Option<f64>,
    /// Price of output.
    #[serde(default)]
    pub output: Option<f64>,
    /// Price of input read from a cache; the input price without it.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Price of input written to a cache; the input price without it.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// The prices of a turn with a long prompt.
    #[serde(default)]
    pub above: Option<LongPromptPrices>,
    /// Size of the context window in tokens.
    #[serde(default)]
    pub context: Option<u64>,
    /// The longest answer in tokens.
    #[serde(default)]
    pub max_output: Option<u64>,
}

/// The prices of every token of a turn whose prompt is longer than this.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LongPromptPrices {
    /// The length of the prompt, cached parts included, above which they hold.
    pub input_tokens: u64,
    /// See [`ModelEntry::input`].
    pub input: f64,
    /// See [`ModelEntry::output`].
    pub output: f64,
    /// See [`ModelEntry::cache_read`].
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// See [`ModelEntry::cache_write`].
    #[serde(default)]
    pub cache_write: Option<f64>,
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Names::deserialize(deserializer)? {
        Names::One(name) => vec![name],
        Names::Several(names) => names,
    })
}

/// The longest answer that is asked for even where a model could write more: beyond it a turn is rather a loop than an answer.
const MOST_OUTPUT_TOKENS: u64 = 32_000;

impl ModelTable {
    /// The table that is built in.
    ///
    /// # Errors
    /// Never for a released build: a test reads the file.
    pub fn built_in() -> Result<Self, ModelError> {
        Self::parse(BUILT_IN)
    }

    /// The built-in table with the entries of this file before its own; a file's first match wins.
    ///
    /// # Errors
    /// [`ErrorClass::Configuration`] with the file's name when it cannot be read or has another form.
    pub fn with_file(path: &Path) -> Result<Self, ModelError> {
        let wrong = |why: String| {
            ModelError::new(ErrorClass::Configuration, format!("model table {}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut table = Self::parse(&text).map_err(|error| wrong(error.message))?;
        table.entries.extend(Self::built_in()?.entries);
        Ok(table)
    }

    fn parse(text: &str) -> Result<Self, ModelError> {
        let file: TableFile = serde_json::from_str(text)
            .map_err(|error| ModelError::new(ErrorClass::Configuration, error.to_string()))?;
        for entry in &file.models {
            let long = entry.above.as_ref();
            let prices = [
                entry.input,
                entry.output,
                entry.cache_read,
                entry.cache_write,
                long.map(|prices| prices.input),
                long.map(|prices| prices.output),
                long.and_then(|prices| prices.cache_read),
                long.and_then(|prices| prices.cache_write),
            ];
            if prices.into_iter().flatten().any(|price| !price.is_finite() || price < 0.0) {
                return Err(ModelError::new(
                    ErrorClass::Configuration,
                    format!("{:?} has a price below zero", entry.patterns),
                ));
            }
        }
        Ok(Self { as_of: file.as_of, entries: file.models })
    }

    /// The day that the table's facts are from, `YYYY-MM-DD`.
    #[must_use]
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// What is known about this model.
    #[must_use]
    pub fn find(&self, model: &str) -> Option<&ModelEntry> {
        let name = model.to_ascii_lowercase();
        let bare = name.rsplit('/').next().unwrap_or(&name);
        self.entries.iter().find(|entry| {
            entry.patterns.iter().any(|pattern| {
                let pattern = pattern.to_ascii_lowercase();
                fits(&pattern, &name) || fits(&pattern, bare)
            })
        })
    }

    /// What these counts cost, in millionths of a dollar; nothing when the model has no price here.
    #[must_use]
    pub fn cost_micros(&self, model: &str, counts: &TokenCounts) -> Option<u64> {
        let entry = self.find(model)?;
        let (mut input_price, mut output_price) = (entry.input?, entry.output?);
        let (mut read_price, mut write_price) = (entry.cache_read, entry.cache_write);
        if let Some(long) =
            entry.above.as_ref().filter(|long| counts.input_tokens.unwrap_or(0) > long.input_tokens)
        {
            (input_price, output_price) = (long.input, long.output);
            (read_price, write_price) = (long.cache_read, long.cache_write);
        }
        let read = counts.cached_read_tokens.unwrap_or(0);
        let written = counts.cached_write_tokens.unwrap_or(0);
        let plain = counts.input_tokens.unwrap_or(0).saturating_sub(read).saturating_sub(written);
        let priced = [
            (plain, input_price),
            (read, read_price.unwrap_or(input_price)),
            (written, write_price.unwrap_or(input_price)),
            (counts.output_tokens.unwrap_or(0), output_price),
        ];
        // Dollars per million tokens are millionths of a dollar per token.
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let micros: f64 = priced.iter().map(|(tokens, price)| *tokens as f64 * price).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates when it is cast"
        )]
        Some(micros.round() as u64)
    }

    /// The model's context window in tokens.
    #[must_use]
    pub fn context_tokens(&self, model: &str) -> Option<u64> {
        self.find(model)?.context
    }

    /// The longest answer to ask for.
    #[must_use]
    pub fn max_output_tokens(&self, model: &str) -> Option<u64> {
        self.find(model)?.max_output.map(|most| most.min(MOST_OUTPUT_TOKENS))
    }
}

/// Whether `text` has the form of `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(middle) = last.replace(piece) {
            let Some(at) = rest.find(middle) else { return false };
            rest = &rest[at + middle.len()..];
        }
    }
    match last {
        Some(last) => rest.ends_with(last),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(input: u64, output: u64, read: u64, written: u64) -> TokenCounts {
        TokenCounts {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_read_tokens: Some(read),
            cached_write_tokens: Some(written),
        }
    }

    #[test]
    fn the_built_in_table_is_readable_and_dated() {
        let table = ModelTable::built_in().unwrap();
        assert!(table.as_of().starts_with("20"), "{}", table.as_of());
        for entry in &table.entries {
            assert!(
                entry.input.is_some() && entry.output.is_some() && entry.context.is_some(),
                "{:?}",
                entry.patterns
            );
        }
    }

    #[test]
    fn a_model_is_found_with_and_without_vendor_and_the_smaller_kind_first() {
        let table = ModelTable::built_in().unwrap();
        let price = |model: &str| table.find(model).and_then(|entry| entry.input);
        assert_eq!(price("gpt-4o-mini-2024-07-18"), Some(0.15));
        assert_eq!(price("openai/gpt-4o"), Some(2.5));
        assert_eq!(price("Anthropic/Claude-Sonnet-4-5-20250929"), Some(3.0));
        assert_eq!(price("claude-opus-4-20250514"), Some(15.0));
        assert_eq!(price("claude-opus-4-5"), Some(5.0));
        assert_eq!(price("my-own-model"), None);
        assert_eq!(price("gpt-5-of-next-year"), None);
    }

    #[test]
    fn cached_tokens_have_their_own_price_and_unknown_models_have_none() {
        let table = ModelTable::parse(
            r#"{"asOf": "2025-01-01", "models": [
                {"match": "a", "input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75},
                {"match": ["b", "bb*"], "input": 0.15, "output": 0.6},
                {"match": "long", "input": 1, "output": 2, "cacheRead": 0.5,
                 "above": {"inputTokens": 100, "input": 10, "output": 20, "cacheRead": 5}},
                {"match": "free", "input": 0, "output": 0},
                {"match": "window", "context": 1000}
            ]}"#,
        )
        .unwrap();
        assert_eq!(table.cost_micros("a", &counts(1_000_000, 0, 0, 0)), Some(3_000_000));
        assert_eq!(table.cost_micros("a", &counts(1000, 10, 800, 100)), Some(300 + 240 + 375 + 150));
        assert_eq!(table.cost_micros("bbb", &counts(10, 1, 10, 0)), Some(2));
        assert_eq!(table.cost_micros("long", &counts(100, 1, 10, 0)), Some(90 + 5 + 2));
        assert_eq!(table.cost_micros("long", &counts(101, 1, 10, 0)), Some(910 + 50 + 20));
        assert_eq!(table.cost_micros("a", &TokenCounts::default()), Some(0));
        assert_eq!(table.cost_micros("free", &counts(9, 9, 0, 0)), Some(0));
        assert_eq!(table.cost_micros("window", &counts(9, 9, 0, 0)), None);
        assert_eq!(table.cost_micros("other", &counts(9, 9, 0, 0)), None);
    }

    #[test]
    fn an_operators_file_comes_first_and_a_wrong_one_names_itself() {
        let directory = std::env::temp_dir().join(format!("trestle-model-table-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("models.json");
        std::fs::write(&path, r#"{"asOf": "2025-01-01", "models": [{"match": "gpt-4o*", "input": 1, "output": 1, "context": 7}]}"#).unwrap();
        let table = ModelTable::with_file(&path).unwrap();
        assert_eq!(table.context_tokens("gpt-4o-mini"), Some(7));
        assert!(table.find("claude-sonnet-4-5").is_some());
        for wrong in [
            "{",
            r#"{"asOf": "x", "models": [{"match": "a", "input": -1}]}"#,
            r#"{"asOf": "x", "models": [], "more": 1}"#,
        ] {
            std::fs::write(&path, wrong).unwrap();
            assert!(ModelTable::with_file(&path).unwrap_err().message.contains("models.json"), "{wrong}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, want) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "ab", false),
            ("*b*", "abc", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("*", "", true),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(fits(pattern, text), want, "{pattern} {text}");
        }
    }
}
