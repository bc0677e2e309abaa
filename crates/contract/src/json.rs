//! Program JSON: inputs, outputs and event values, carried byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

/// The deepest nesting of arrays and objects that is accepted.
pub const MAX_DEPTH: usize = 512;
/// The largest input of a run, in bytes.
pub const MAX_INPUT_BYTES: usize = 4 * 1024 * 1024;
/// The largest line of the host protocol, in bytes.
pub const MAX_HOST_FRAME_BYTES: usize = 192 * 1024 * 1024;
/// The largest body of telemetry, finalize, inference, journal, suspend and manifest writes, in bytes.
pub const MAX_LARGE_BODY_BYTES: usize = 64 * 1024 * 1024;
/// The largest body of an inline artifact, in bytes.
pub const MAX_INLINE_ARTIFACT_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The largest body of every other request, in bytes.
pub const MAX_BODY_BYTES: usize = 5 * 1024 * 1024;

/// An object of JSON whose numbers and key order need not survive (JSON Schemas, tool inputs).
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// Why a text is not accepted as program JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RawJsonError {
    /// Not one JSON value.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A raw NUL byte. (The escape `\u0000` is accepted.)
    #[error("the text holds a raw NUL byte")]
    Nul,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Larger than the cap of its place.
    #[error("{actual} bytes, more than the {max} allowed")]
    TooLarge {
        /// Size found, in bytes.
        actual: usize,
        /// Size allowed, in bytes.
        max: usize,
    },
    /// An object was expected.
    #[error("expected a JSON object")]
    NotAnObject,
}

impl RawJsonError {
    /// What the author can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "send one JSON value encoded as UTF-8",
            Self::Nul => "write NUL as the escape \\u0000 inside of a string",
            Self::TooDeep => "flatten the value, or pass the deep part as a JSON text in a string",
            Self::TooLarge { .. } => "pass a reference (an artifact or a URL) instead of the value itself",
            Self::NotAnObject => "wrap the value in an object",
        }
    }
}

/// One JSON value whose text is kept exactly as it was written. Cheap to clone.
///
/// Reading it from serde works with `serde_json` only, and not through serde's buffered enums
/// (`tag`, `untagged`, `flatten`): those lose the text.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

static NULL: LazyLock<RawJson> = LazyLock::new(|| RawJson(Arc::from(RawValue::NULL.to_owned())));

impl RawJson {
    /// Checks a text and keeps it. Blanks around the value are not part of it.
    ///
    /// # Errors
    /// [`RawJsonError`] when it is not one JSON value, holds a raw NUL, or is nested deeper than [`MAX_DEPTH`].
    pub fn parse(text: &str) -> Result<Self, RawJsonError> {
        if text.bytes().any(|byte| byte == 0) {
            return Err(RawJsonError::Nul);
        }
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|error| RawJsonError::Syntax(error.to_string()))?;
        Self::from_raw(raw)
    }

    /// As [`RawJson::parse`], from bytes and with a cap on their number.
    ///
    /// # Errors
    /// As [`RawJson::parse`]; [`RawJsonError::TooLarge`] above the cap.
    pub fn parse_bytes(bytes: &[u8], max: usize) -> Result<Self, RawJsonError> {
        if bytes.len() > max {
            return Err(RawJsonError::TooLarge { actual: bytes.len(), max });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| RawJsonError::Syntax(error.to_string()))?;
        Self::parse(text)
    }

    fn from_raw(raw: Box<RawValue>) -> Result<Self, RawJsonError> {
        if depth(raw.get()) > MAX_DEPTH {
            return Err(RawJsonError::TooDeep);
        }
        Ok(Self(Arc::from(raw)))
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value `null`.
    pub fn null() -> Self {
        NULL.clone()
    }

    /// Whether it is the value `null`.
    pub fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.get().starts_with('{')
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// [`RawJsonError::Syntax`] when the value has no JSON form, [`RawJsonError::TooDeep`] when it nests too deeply.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, RawJsonError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| RawJsonError::Syntax(error.to_string()))?;
        Self::from_raw(raw)
    }

    /// Decodes into a type, with no limit of nesting but the one this text already passed.
    ///
    /// # Errors
    /// The error of `serde_json` when the value does not have the type's shape.
    pub fn decode<T: de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(self.get());
        deserializer.disable_recursion_limit();
        let value = T::deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// The value as a tree. Lossy: integers beyond 64 bits become floats, of duplicate keys the last one stays.
    ///
    /// # Errors
    /// The error of `serde_json` for a text that only a tree cannot hold (a lone surrogate escape, `1e999`).
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        self.decode()
    }
}

/// The nesting of arrays and objects in a JSON text, found without recursion.
fn depth(text: &str) -> usize {
    let mut deepest = 0_usize;
    let mut level = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl Default for RawJson {
    fn default() -> Self {
        Self::null()
    }
}

/// Two texts are equal when they are the same bytes.
impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl From<&serde_json::Value> for RawJson {
    /// Encodes a tree; one nested too deeply becomes `null` (no tree that was read from program JSON is).
    fn from(value: &serde_json::Value) -> Self {
        Self::encode(value).unwrap_or_default()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for RawJson {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Any JSON value." })
    }
}

/// Program JSON that is an object.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RawObject(RawJson);

impl RawObject {
    /// Checks a text and keeps it.
    ///
    /// # Errors
    /// As [`RawJson::parse`]; [`RawJsonError::NotAnObject`] for another kind of value.
    pub fn parse(text: &str) -> Result<Self, RawJsonError> {
        Self::try_from(RawJson::parse(text)?)
    }

    /// The empty object.
    pub fn empty() -> Self {
        RawJson::parse("{}").map_or_else(|_| Self(RawJson::null()), Self)
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value.
    pub fn as_json(&self) -> &RawJson {
        &self.0
    }

    /// Encodes an object.
    ///
    /// # Errors
    /// As [`RawJson::encode`]; [`RawJsonError::NotAnObject`] when the value is none.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, RawJsonError> {
        Self::try_from(RawJson::encode(value)?)
    }
}

impl TryFrom<RawJson> for RawObject {
    type Error = RawJsonError;
    fn try_from(value: RawJson) -> Result<Self, RawJsonError> {
        if value.is_object() { Ok(Self(value)) } else { Err(RawJsonError::NotAnObject) }
    }
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(RawJson::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for RawObject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "JsonObject".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
