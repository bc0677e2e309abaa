use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use trestle_contract::error::ErrorCode;

use crate::{CliError, Terminal};

/// `trestle init [DIR]`
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// Directory to make; its name becomes the slug.
    #[arg(default_value = ".")]
    pub directory: PathBuf,
}

const SLUG: &str = "{{slug}}";

/// The files of a new workflow. Types are vendored, so that a type check and an editor work offline.
const FILES: &[(&str, &str)] = &[
    ("workflow.jsonc", include_str!("../../templates/init/workflow.jsonc")),
    ("src/index.ts", include_str!("../../templates/init/src/index.ts")),
    ("package.json", include_str!("../../templates/init/package.json")),
    ("tsconfig.json", include_str!("../../templates/init/tsconfig.json")),
    ("README.md", include_str!("../../templates/init/README.md")),
    (".gitignore", include_str!("../../templates/init/gitignore")),
    (".trestle/types/index.d.ts", include_str!("../../../../sdk/typescript/index.d.ts")),
    (".trestle/types/runtime.d.ts", include_str!("../../../../sdk/typescript/runtime.d.ts")),
];

/// Makes a workflow to start from: all files or none; an existing README.md is kept.
///
/// # Errors
/// When a file is there already or cannot be written.
pub fn init(terminal: &Terminal, args: &InitArgs) -> Result<u8, CliError> {
    let directory = &args.directory;
    let present: Vec<&str> = FILES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "README.md" && fs::symlink_metadata(directory.join(name)).is_ok())
        .collect();
    if !present.is_empty() {
        let message = format!("{} already holds {}", directory.display(), present.join(", "));
        return Err(CliError::new(ErrorCode::Conflict, message)
            .hint("name an empty or new directory; nothing was written"));
    }
    let slug = slug_of(directory);
    let mut written = Vec::new();
    for (name, text) in FILES {
        let path = directory.join(name);
        if let Err(error) = write_new(&path, &text.replace(SLUG, &slug)) {
            if error.kind() == std::io::ErrorKind::AlreadyExists && *name == "README.md" {
                continue;
            }
            for path in &written {
                let _ = fs::remove_file(path);
            }
            return Err(CliError::new(
                ErrorCode::InternalError,
                format!("cannot write {}: {error}", path.display()),
            )
            .hint("check that the directory may be written to; nothing was left behind"));
        }
        written.push(path);
    }
    let shown = directory.display();
    terminal.note(&format!("made the workflow {slug} in {shown}"));
    terminal.note(&format!("next: trestle dev {shown} --input '{{\"name\":\"Ada\"}}'"));
    Ok(crate::EXIT_COMPLETED)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// The directory's name in lower case, with everything but letters, digits and dashes turned into dashes.
fn slug_of(directory: &Path) -> String {
    let name = std::path::absolute(directory)
        .ok()
        .and_then(|path| path.file_name().map(|name| name.display().to_string()))
        .unwrap_or_default();
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        let c = if c.is_ascii_alphanumeric() { c } else { '-' };
        if !(c == '-' && (slug.is_empty() || slug.ends_with('-'))) {
            slug.push(c);
        }
    }
    slug.truncate(100);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "my-workflow".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_come_from_directory_names() {
        for (name, slug) in
            [("/a/My Flow!", "my-flow"), ("/a/__x__", "x"), ("/a/é", "my-workflow"), ("/a/b-c2", "b-c2")]
        {
            assert_eq!(slug_of(Path::new(name)), slug);
        }
        assert_eq!(slug_of(&Path::new("/a").join("x".repeat(300))).len(), 100);
    }
}
