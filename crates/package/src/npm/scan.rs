//! Reading the modules of npm packages. They ship byte for byte; only their references matter.

use std::path::Path;

use oxc::allocator::Allocator;
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;

use crate::references::{References, collect};

/// One module of a package.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) references: References,
    /// It is written as an ES module.
    pub(super) is_esm: bool,
    /// It could not be read as JavaScript.
    pub(super) unreadable: bool,
}

/// Reads a `.js`, `.mjs` or `.cjs` file. One that is not JavaScript has no references.
pub(super) fn scan(path: &Path, text: &str) -> Scanned {
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("mjs") => SourceType::mjs(),
        Some("cjs") => SourceType::cjs(),
        _ => SourceType::unambiguous(),
    };
    let allocator = Allocator::default();
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed = Parser::new(&allocator, text, kind).with_options(options).parse();
    if parsed.panicked {
        return Scanned { unreadable: true, ..Scanned::default() };
    }
    let is_esm = parsed.module_record.has_module_syntax;
    let scoping = SemanticBuilder::new().build(&parsed.program).semantic.into_scoping();
    let references = collect(&parsed.program, &scoping);
    Scanned { references, is_esm, unreadable: false }
}
