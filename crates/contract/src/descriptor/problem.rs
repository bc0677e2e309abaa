//! What is said when a descriptor is wrong.

use std::fmt;

use serde::Serialize;

use crate::error::ErrorCode;

/// A place in the descriptor's text. Both numbers start at 1; `column` counts Unicode characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// One rule that the descriptor breaks (`docs/protocol/descriptor.md` §3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescriptorError {
    /// Field, segments joined with `.`, array positions as numbers; `(root)` for the whole document.
    pub path: String,
    /// Where in the text, when the descriptor was read from text.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)?;
        if let Some(position) = self.position {
            write!(formatter, " (line {}, column {})", position.line, position.column)?;
        }
        Ok(())
    }
}

/// How far reading came before it stopped (`docs/protocol/descriptor.md` §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorStage {
    /// The text is not JSONC.
    Syntax,
    /// The text is JSONC, and the value breaks rules.
    Rules,
}

/// Everything that is wrong with one descriptor. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorErrors {
    /// The descriptor's file name, as the author knows it.
    pub file: String,
    /// What kind of reading failed.
    pub stage: DescriptorStage,
    /// The problems, in the order of the fields.
    pub problems: Vec<DescriptorError>,
}

impl DescriptorErrors {
    /// The wire code of an invalid descriptor: always [`ErrorCode::ValidationFailed`].
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        ErrorCode::ValidationFailed
    }

    /// The first problem that has a hint, as advice for the whole descriptor.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.problems.iter().find_map(|problem| problem.hint.as_deref())
    }
}

impl fmt::Display for DescriptorErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            DescriptorStage::Syntax => {
                write!(formatter, "{} is not valid JSONC", self.file)?;
                for problem in &self.problems {
                    write!(formatter, ": {}", problem.message)?;
                    if let Some(position) = problem.position {
                        write!(formatter, " (line {}, column {})", position.line, position.column)?;
                    }
                }
            }
            DescriptorStage::Rules => {
                write!(formatter, "{} failed descriptor validation:", self.file)?;
                for problem in &self.problems {
                    write!(formatter, "\n  {problem}")?;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for DescriptorErrors {}

/// Something that is accepted and probably not meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Field, as in [`DescriptorError::path`]; `(root)` for the text as a whole.
    pub path: String,
    /// Where in the text, when the descriptor was read from text.
    pub position: Option<Position>,
    /// What was found, and what will happen.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}
