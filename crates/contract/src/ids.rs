//! Identifiers: opaque strings of 1 to 128 UTF-16 code units, one type per thing named.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::bounds::utf16_len;

/// A text that is not an identifier of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty or too long.
    #[error("{kind} has length {actual}, expected 1 to {max}")]
    Length {
        /// Name of the identifier's type.
        kind: &'static str,
        /// Length found, in UTF-16 code units.
        actual: usize,
        /// Largest length allowed.
        max: usize,
    },
    /// Not 64 lower-case hexadecimal digits.
    #[error("expected 64 lower-case hexadecimal digits")]
    Digest,
}

macro_rules! identifiers {
    ($( $(#[doc = $doc:literal])+ $name:ident <= $max:literal; )+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest text allowed, in UTF-16 code units.
            pub const MAX_LEN: usize = $max;

            /// Checks the length.
            ///
            /// # Errors
            /// [`IdError::Length`] when the text is empty or longer than [`Self::MAX_LEN`].
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let actual = utf16_len(&text);
                if (1..=$max).contains(&actual) {
                    Ok(Self(text.into()))
                } else {
                    Err(IdError::Length { kind: stringify!($name), actual, max: $max })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "minLength": 1, "maxLength": $max })
            }
        }

    )+ };
}

identifiers! {
    /// A run.
    RunId <= 128;
    /// A workflow.
    WorkflowId <= 128;
    /// A pinned version of a workflow.
    VersionId <= 128;
    /// An organisation.
    OrgId <= 128;
    /// An environment of an organisation.
    EnvironmentId <= 128;
    /// A runner: one enrolled machine.
    RunnerId <= 128;
    /// A runner pool.
    PoolId <= 128;
    /// An assignment: a run offered to a pool.
    AssignmentId <= 128;
    /// A lease.
    LeaseId <= 128;
    /// A stored artifact.
    ArtifactId <= 128;
    /// A pending upload.
    UploadId <= 128;
    /// A stored secret.
    SecretId <= 128;
    /// A schedule.
    ScheduleId <= 128;
    /// A person or a synthetic principal.
    UserId <= 128;
    /// One run process: the owner of a run lease.
    WorkerId <= 200;
    /// The name of a secret.
    SecretName <= 200;
    /// The name of a pool.
    PoolName <= 120;
    /// The slug of a workflow or an organisation.
    Slug <= 200;
}

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Digest(Arc<str>);

impl Digest {
    /// Checks the form. Upper-case digits are accepted and lowered.
    ///
    /// # Errors
    /// [`IdError::Digest`] when it is not 64 hexadecimal digits.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let mut text = text.into();
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            text.make_ascii_lowercase();
            Ok(Self(text.into()))
        } else {
            Err(IdError::Digest)
        }
    }

    /// The digest of these 32 bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in bytes {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        Self(text.into())
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Digest {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for Digest {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}
