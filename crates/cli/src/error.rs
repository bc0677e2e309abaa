use std::fmt;

use trestle_contract::error::ErrorCode;

/// Exit code of a run that completed.
pub const EXIT_COMPLETED: u8 = 0;
/// Exit code of a run that failed, and of every error.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of a command line that cannot be understood.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a run that was cancelled.
pub const EXIT_CANCELLED: u8 = 130;

/// A failure as a person sees it: what happened, its code, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// Stable code.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Exit code of the process.
    pub exit: u8,
}

impl CliError {
    /// An error without a hint, with exit code 1.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, exit: EXIT_FAILED }
    }

    /// A command line that cannot be understood, with exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: EXIT_USAGE, ..Self::new(ErrorCode::ValidationFailed, message) }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for CliError {
    /// `error: …`, an indented message for further lines, `hint: …`, and the reference of the code.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.message.lines();
        write!(formatter, "error[{}]: {}", self.code.reference(), lines.next().unwrap_or_default())?;
        for line in lines {
            write!(formatter, "\n  {line}")?;
        }
        for line in self.hint.iter().flat_map(|hint| hint.lines()) {
            write!(formatter, "\nhint: {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}
