//! Bounded strings and integers: a value of these types has already been checked.
//!
//! String lengths count UTF-16 code units, integers stay within ±(2^53 − 1), as in `docs/protocol/pool.md` §0.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest integer that every JSON peer represents exactly: 2^53 − 1.
pub const MAX_SAFE_INTEGER: u64 = 9_007_199_254_740_991;

/// A string or number outside of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A string of the wrong length, in UTF-16 code units.
    #[error("length {actual} is not between {min} and {max}")]
    Length {
        /// Length found.
        actual: usize,
        /// Smallest length allowed.
        min: usize,
        /// Largest length allowed.
        max: usize,
    },
    /// An integer out of range.
    #[error("{actual} is not between {min} and {max}")]
    Integer {
        /// Value found.
        actual: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
}

/// Length of a string in UTF-16 code units.
pub fn utf16_len(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

/// A string of `MIN..=MAX` UTF-16 code units.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BoundedString<const MIN: usize, const MAX: usize>(String);

/// A string that is not empty.
pub type NonEmptyString = BoundedString<1, { usize::MAX }>;

impl<const MIN: usize, const MAX: usize> BoundedString<MIN, MAX> {
    /// Checks the length.
    ///
    /// # Errors
    /// [`RangeError::Length`] when the text is shorter or longer than allowed.
    pub fn new(text: impl Into<String>) -> Result<Self, RangeError> {
        let text = text.into();
        let actual = utf16_len(&text);
        if (MIN..=MAX).contains(&actual) {
            Ok(Self(text))
        } else {
            Err(RangeError::Length { actual, min: MIN, max: MAX })
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, owned.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl NonEmptyString {
    /// For a text known not to be empty; an empty one becomes `-`.
    pub fn saturating(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self("-".to_owned()) } else { Self(text) }
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Debug for BoundedString<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for BoundedString<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MIN: usize, const MAX: usize> AsRef<str> for BoundedString<MIN, MAX> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> std::ops::Deref for BoundedString<MIN, MAX> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> TryFrom<&str> for BoundedString<MIN, MAX> {
    type Error = RangeError;
    fn try_from(text: &str) -> Result<Self, RangeError> {
        Self::new(text)
    }
}

impl<const MIN: usize, const MAX: usize> TryFrom<String> for BoundedString<MIN, MAX> {
    type Error = RangeError;
    fn try_from(text: String) -> Result<Self, RangeError> {
        Self::new(text)
    }
}

impl<const MIN: usize, const MAX: usize> std::str::FromStr for BoundedString<MIN, MAX> {
    type Err = RangeError;
    fn from_str(text: &str) -> Result<Self, RangeError> {
        Self::new(text)
    }
}

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for BoundedString<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<const MIN: usize, const MAX: usize> JsonSchema for BoundedString<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(bounded_string_name(MIN, MAX))
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string" });
        if MIN > 0 {
            schema.insert("minLength".into(), MIN.into());
        }
        if MAX != usize::MAX {
            schema.insert("maxLength".into(), MAX.into());
        }
        schema
    }
}

fn bounded_string_name(min: usize, max: usize) -> String {
    if max == usize::MAX { format!("TextFrom{min}") } else { format!("Text{min}To{max}") }
}

/// An integer of `MIN..=MAX`. `1.0` reads as 1; `1.5`, `"1"` and `null` are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundedInt<const MIN: u64, const MAX: u64>(u64);

/// An integer from 0 to 2^53 − 1.
pub type Count = BoundedInt<0, MAX_SAFE_INTEGER>;
/// An integer from 1 to 2^53 − 1.
pub type Positive = BoundedInt<1, MAX_SAFE_INTEGER>;
/// Milliseconds since the Unix epoch, 0 to 2^53 − 1.
pub type EpochMs = BoundedInt<0, MAX_SAFE_INTEGER>;

impl<const MIN: u64, const MAX: u64> BoundedInt<MIN, MAX> {
    /// Checks the range.
    ///
    /// # Errors
    /// [`RangeError::Integer`] when the value is out of range.
    pub fn new(value: u64) -> Result<Self, RangeError> {
        if (MIN..=MAX).contains(&value) {
            Ok(Self(value))
        } else {
            Err(RangeError::Integer { actual: value, min: MIN, max: MAX })
        }
    }

    /// The nearest value in range.
    pub const fn saturating(value: u64) -> Self {
        if value < MIN {
            Self(MIN)
        } else if value > MAX {
            Self(MAX)
        } else {
            Self(value)
        }
    }

    /// The nearest value in range, from a signed number.
    pub const fn saturating_signed(value: i64) -> Self {
        if value < 0 { Self::saturating(0) } else { Self::saturating(value.unsigned_abs()) }
    }

    /// The value.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The value as a signed number; lossless, as the largest value fits.
    pub const fn get_signed(self) -> i64 {
        if self.0 > i64::MAX as u64 { i64::MAX } else { self.0 as i64 }
    }
}

impl<const MIN: u64, const MAX: u64> Default for BoundedInt<MIN, MAX> {
    fn default() -> Self {
        Self(MIN)
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Debug for BoundedInt<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for BoundedInt<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for BoundedInt<MIN, MAX> {
    type Error = RangeError;
    fn try_from(value: u64) -> Result<Self, RangeError> {
        Self::new(value)
    }
}

impl<const MIN: u64, const MAX: u64> From<BoundedInt<MIN, MAX>> for u64 {
    fn from(value: BoundedInt<MIN, MAX>) -> u64 {
        value.0
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for BoundedInt<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

struct IntVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> de::Visitor<'_> for IntVisitor<MIN, MAX> {
    type Value = BoundedInt<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer between {MIN} and {MAX}")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        BoundedInt::new(value).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.fract() == 0.0 && value >= 0.0 && value <= MAX_SAFE_INTEGER as f64 {
            self.visit_u64(value as u64)
        } else {
            Err(E::invalid_value(de::Unexpected::Float(value), &self))
        }
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for BoundedInt<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntVisitor::<MIN, MAX>)
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for BoundedInt<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Integer{MIN}To{MAX}"))
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A credential as it travels: not empty, opaque, and never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Token(#[schemars(with = "String")] NonEmptyString);

impl Token {
    /// Wraps a credential.
    ///
    /// # Errors
    /// [`RangeError::Length`] when it is empty.
    pub fn new(text: impl Into<String>) -> Result<Self, RangeError> {
        NonEmptyString::new(text).map(Self)
    }

    /// The credential itself, to be sent or compared, never to be logged.
    pub fn expose(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
