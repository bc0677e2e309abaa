//! What a check or a build finds out.

use std::fmt;

use serde::Serialize;
use trestle_contract::ErrorCode;
use trestle_contract::descriptor::{DescriptorErrors, Position, Warning};

use crate::types::Schemas;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program is not built.
    Error,
    /// The program is built; something is probably not meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// One finding, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The wire code of the failure that it would be.
    pub code: ErrorCode,
    /// File, relative to the package when it lies inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line and column in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Descriptor field, when the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self {
            severity,
            code: ErrorCode::ValidationFailed,
            file: None,
            position: None,
            field: None,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message)
    }

    pub(crate) fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    pub(crate) fn note(message: impl Into<String>) -> Self {
        Self::new(Severity::Note, message)
    }

    pub(crate) fn code(mut self, code: ErrorCode) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn at(mut self, file: impl Into<String>, position: Option<Position>) -> Self {
        self.file = Some(file.into());
        self.position = position;
        self
    }

    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `file:line:column`, as far as it is known.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        Some(match self.position {
            Some(position) => format!("{file}:{position}"),
            None => file.to_owned(),
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place() {
            write!(formatter, "{place}: ")?;
        }
        if let Some(field) = &self.field {
            write!(formatter, "{field}: ")?;
        }
        formatter.write_str(&self.message)
    }
}

/// A file that ships.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShippedFile {
    /// Path from the artifact's root, with `/`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
}

/// An npm package of the artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShippedPackage {
    /// The package's name.
    pub name: String,
    /// Its version, when its package.json says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Folders in the artifact; more than one when versions conflict.
    pub places: Vec<String>,
    /// Files that ship.
    pub files: usize,
    /// Why all files ship and not only the reachable ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// What a check finds out.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Report {
    /// Slug of the workflow, when the descriptor could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Source file of the program, relative to the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Why the program cannot be built; empty when it can.
    pub errors: Vec<Diagnostic>,
    /// Warnings and notes.
    pub warnings: Vec<Diagnostic>,
    /// Schemas of input and output, derived from the types of `run`.
    #[serde(skip_serializing_if = "Schemas::is_empty")]
    pub schemas: Schemas,
    /// The files that would ship, sorted by path.
    pub files: Vec<ShippedFile>,
    /// npm packages that would ship, sorted by name.
    pub packages: Vec<ShippedPackage>,
    /// Bytes of all files together, before compression.
    pub size: u64,
}

impl Report {
    /// Whether the program can be built.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        match diagnostic.severity {
            Severity::Error => self.errors.push(diagnostic),
            Severity::Warning | Severity::Note => self.warnings.push(diagnostic),
        }
    }
}

/// The program cannot be built: what a check found.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildError {
    /// The findings; at least one of them is an error.
    pub report: Report,
}

impl BuildError {
    /// The wire code of the first error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.report.errors.first().map_or(ErrorCode::ValidationFailed, |error| error.code)
    }

    /// The hint of the first error that has one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.report.errors.iter().find_map(|error| error.hint.as_deref())
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.report.errors.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            write!(formatter, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BuildError {}

/// Descriptor problems as findings.
pub(crate) fn from_descriptor(errors: &DescriptorErrors) -> Vec<Diagnostic> {
    errors
        .problems
        .iter()
        .map(|problem| {
            let mut diagnostic =
                Diagnostic::error(problem.message.clone()).at(errors.file.clone(), problem.position);
            diagnostic.field = (problem.path != "(root)").then(|| problem.path.clone());
            diagnostic.hint.clone_from(&problem.hint);
            diagnostic
        })
        .collect()
}

/// A descriptor warning as a finding.
pub(crate) fn from_warning(file: &str, warning: &Warning) -> Diagnostic {
    let mut diagnostic = Diagnostic::warning(warning.message.clone()).at(file, warning.position);
    diagnostic.field = (warning.path != "(root)").then(|| warning.path.clone());
    diagnostic
}
