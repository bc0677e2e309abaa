use std::path::PathBuf;

use trestle_package::{Diagnostic, Report, Severity};

use crate::commands::{print, print_json};
use crate::{CliError, Terminal};

/// `trestle check DIR`
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The workflow's directory.
    #[arg(default_value = ".")]
    pub directory: PathBuf,
    /// Print the findings as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Checks descriptor, syntax and imports without a server.
///
/// # Errors
/// When the output cannot be written; findings are no error but exit code 1.
pub fn check(terminal: &Terminal, args: &CheckArgs) -> Result<u8, CliError> {
    let report = trestle_package::check(&args.directory, &crate::BuildSteps::new(terminal));
    let exit = if report.is_ok() { crate::EXIT_COMPLETED } else { crate::EXIT_FAILED };
    if args.json {
        print_json(terminal, &report)?;
        return Ok(exit);
    }
    note_findings(terminal, &report);
    if report.is_ok() {
        print(terminal, &summary(&report))?;
    }
    Ok(exit)
}

/// Says what a check or a build found.
pub(crate) fn note_findings(terminal: &Terminal, report: &Report) {
    for finding in report.errors.iter().chain(&report.warnings) {
        terminal.note(&finding_text(finding));
    }
}

fn finding_text(finding: &Diagnostic) -> String {
    let kind = match finding.severity {
        Severity::Error => format!("error[{}]", finding.code.reference()),
        Severity::Warning => "warning".to_owned(),
        Severity::Note => "note".to_owned(),
    };
    let hint = finding.hint.as_ref().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
    format!("{kind}: {finding}{hint}")
}

fn summary(report: &Report) -> String {
    let name = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let mut lines = vec![format!(
        "{} is fine: entry {}, {} files, {} bytes",
        name(&report.slug),
        name(&report.entry),
        report.files.len(),
        report.size
    )];
    let schema = |what: &str, schema: &Option<serde_json::Value>, why: &str| match schema {
        Some(schema) => format!("  {what}: {schema}"),
        None => format!("  {what}: any JSON ({why})"),
    };
    lines.push(schema(
        "input",
        &report.schemas.input,
        "the first parameter of run has no type that says more",
    ));
    lines.push(schema("output", &report.schemas.output, "the result of run has no type that says more"));
    for package in &report.packages {
        let version = package.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
        let whole = package.whole.as_ref().map(|why| format!(" (whole: {why})")).unwrap_or_default();
        lines.push(format!("  {}{version}: {} files{whole}", package.name, package.files));
    }
    lines.join("\n")
}
