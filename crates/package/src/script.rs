//! One local module: TypeScript and JSX become JavaScript, references are found, and later rewritten.

use std::collections::BTreeSet;
use std::path::Path;

use oxc::allocator::Allocator;
use oxc::ast::ast::{ExportDefaultDeclarationKind, Expression, Program, Statement};
use oxc::codegen::{Codegen, CodegenOptions, CommentOptions};
use oxc::diagnostics::OxcDiagnostic;
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::{Scoping, SemanticBuilder};
use oxc::span::SourceType;
use oxc::syntax::module_record::ModuleRecord;
use oxc::transformer::{EnvOptions, JsxRuntime, Module, TransformOptions, Transformer};
use oxc_resolver::CompilerOptions;

use crate::decorators;
use crate::references::{Base, How, Reference, References, collect};
use crate::rewrite::{self, Rewrite};

/// Where transformed code finds its helpers, before the specifier is rewritten.
pub(crate) const HELPER_MODULE: &str = "trestle:helpers";
/// The oldest Node that programs run on.
const TARGET: &str = "node20";

/// The specifier of a helper.
pub(crate) fn helper_specifier(name: &str) -> String {
    format!("{HELPER_MODULE}/helpers/{name}")
}

/// How a module is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Format {
    Esm,
    CommonJs,
}

/// A problem of the text, with its byte offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextError {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) offset: usize,
}

/// What the default export of a module is, as far as its text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultExport {
    Missing,
    /// Something that can never be called.
    NotCallable(&'static str, u32),
    Present,
}

/// What a module is and asks for, after its types are gone.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub(crate) format: Format,
    pub(crate) references: References,
    /// Names that other modules can import, without those of `export *`.
    pub(crate) exports: BTreeSet<String>,
    /// Specifiers of `export * from`.
    pub(crate) stars: Vec<String>,
    pub(crate) default_export: DefaultExport,
    /// The text that offsets count in, when it is not the author's own.
    pub(crate) prepared: Option<String>,
}

/// The JavaScript of a module.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) code: String,
    /// The source map's JSON.
    pub(crate) map: String,
}

/// A local module's text and how to read it.
pub(crate) struct Script<'s> {
    pub(crate) path: &'s Path,
    pub(crate) text: &'s str,
    pub(crate) settings: Option<&'s CompilerOptions>,
}

impl Script<'_> {
    /// Reads the module.
    ///
    /// # Errors
    /// All syntax errors.
    pub(crate) fn analyse(&self) -> Result<Analysis, Vec<TextError>> {
        let format = self.format()?;
        let allocator = Allocator::default();
        let source = self.prepared(&allocator)?;
        let mut parsed = self.parse(&allocator, source, format)?;
        let default_export = default_export(&parsed.program, &parsed.record, format);
        self.transform(&allocator, &mut parsed.program, format)?;
        let scoping = SemanticBuilder::new().build(&parsed.program).semantic.into_scoping();
        let mut references = collect(&parsed.program, &scoping);
        if scoping.root_unresolved_references().keys().any(|name| name.as_str() == decorators::HELPER) {
            references.list.push(Reference {
                specifier: helper_specifier(decorators::HELPER_NAME),
                how: if format == Format::CommonJs { How::Require } else { How::Import },
                base: Base::Module,
                offset: 0,
                optional: false,
            });
        }
        let (exports, stars) = rewrite::exports(&parsed.program);
        let prepared = (source != self.text).then(|| source.to_owned());
        Ok(Analysis { format, references, exports, stars, default_export, prepared })
    }

    /// Writes the module's JavaScript. `source_name` is what stack traces call the source, relative to the map.
    ///
    /// # Errors
    /// As [`Script::analyse`].
    pub(crate) fn emit(
        &self,
        format: Format,
        rewrite: &Rewrite<'_>,
        source_name: &str,
        map_name: &str,
    ) -> Result<Emitted, Vec<TextError>> {
        let allocator = Allocator::default();
        let source = self.prepared(&allocator)?;
        let mut parsed = self.parse(&allocator, source, format)?;
        self.transform(&allocator, &mut parsed.program, format)?;
        let scoping = SemanticBuilder::new().build(&parsed.program).semantic.into_scoping();
        let header = rewrite::apply(&allocator, &mut parsed.program, &scoping, format, rewrite);
        parsed.program.hashbang = None;
        let options = CodegenOptions {
            source_map_path: Some(source_name.into()),
            comments: CommentOptions { normal: false, jsdoc: false, ..CommentOptions::default() },
            ..CodegenOptions::default()
        };
        let printed = Codegen::new().with_options(options).build(&parsed.program);
        let map = printed.map.map(|map| map.to_json_string()).unwrap_or_default();
        let lines = header.matches('\n').count();
        let map = finish_map(&map, lines, source_name, self.text);
        let code = format!("{header}{}//# sourceMappingURL={map_name}\n", with_line_end(printed.code));
        Ok(Emitted { code, map })
    }

    /// ES modules and CommonJS are told apart by what the file does, not by a package.json.
    fn format(&self) -> Result<Format, Vec<TextError>> {
        let extension = self.extension();
        match extension {
            "mjs" | "mts" => return Ok(Format::Esm),
            "cjs" => return Ok(Format::CommonJs),
            _ => {}
        }
        let allocator = Allocator::default();
        let source = self.prepared(&allocator)?;
        let kind = self.source_type().with_unambiguous(true);
        let parsed = Parser::new(&allocator, source, kind).parse();
        // What TypeScript writes for CommonJS counts as CommonJS only in a file that says so by its name.
        let commonjs_syntax = parsed.program.body.iter().any(|statement| {
            matches!(statement, Statement::TSExportAssignment(_) | Statement::TSImportEqualsDeclaration(_))
        });
        let module_syntax = parsed.program.body.iter().any(|statement| {
            statement.is_module_declaration() && !matches!(statement, Statement::TSExportAssignment(_))
        });
        if module_syntax || !parsed.module_record.import_metas.is_empty() {
            return Ok(Format::Esm);
        }
        if commonjs_syntax {
            return Ok(if extension == "cts" { Format::CommonJs } else { Format::Esm });
        }
        let semantic = SemanticBuilder::new().build(&parsed.program).semantic;
        let free = semantic.scoping().root_unresolved_references();
        let uses = |name: &str| free.keys().any(|key| key.as_str() == name);
        let commonjs = uses("module") || uses("exports") || uses("require") || uses("__dirname");
        Ok(if commonjs || extension == "cts" { Format::CommonJs } else { Format::Esm })
    }

    fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }

    fn source_type(&self) -> SourceType {
        let kind = SourceType::from_path(self.path).unwrap_or_default();
        // Plain JavaScript may hold JSX, as bundlers allow.
        if kind.is_javascript() { kind.with_jsx(true) } else { kind }
    }

    /// The text to parse: the author's, with standard decorators written out.
    fn prepared<'a>(&self, allocator: &'a Allocator) -> Result<&'a str, Vec<TextError>> {
        let legacy = self.settings.and_then(|settings| settings.experimental_decorators).unwrap_or(false);
        let text = decorators::write_out(self.text, self.source_type(), legacy)?;
        Ok(allocator.alloc_str(&text))
    }

    fn parse<'a>(
        &self,
        allocator: &'a Allocator,
        source: &'a str,
        format: Format,
    ) -> Result<Parsed<'a>, Vec<TextError>> {
        let kind = match format {
            Format::Esm => self.source_type().with_module(true),
            Format::CommonJs => self.source_type().with_commonjs(true),
        };
        let options = ParseOptions {
            parse_regular_expression: true,
            allow_return_outside_function: format == Format::CommonJs,
            ..ParseOptions::default()
        };
        let parsed = Parser::new(allocator, source, kind).with_options(options).parse();
        let errors: Vec<TextError> = parsed.diagnostics.errors().map(text_error).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut program = parsed.program;
        if format == Format::Esm {
            rewrite::modernise(allocator, &mut program);
        }
        Ok(Parsed { program, record: parsed.module_record })
    }

    fn transform<'a>(
        &self,
        allocator: &'a Allocator,
        program: &mut Program<'a>,
        format: Format,
    ) -> Result<(), Vec<TextError>> {
        let semantic = SemanticBuilder::new()
            .with_check_syntax_error(true)
            .with_excess_capacity(2.0)
            .with_enum_eval(true)
            .build(program);
        let errors: Vec<TextError> = semantic.diagnostics.errors().map(text_error).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let scoping: Scoping = semantic.semantic.into_scoping();
        let options = self.transform_options(format);
        let transformed =
            Transformer::new(allocator, self.path, &options).build_with_scoping(scoping, program);
        let errors: Vec<TextError> = transformed.diagnostics.errors().map(text_error).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn transform_options(&self, format: Format) -> TransformOptions {
        let mut options = TransformOptions {
            env: EnvOptions::from_target(TARGET).unwrap_or_default(),
            ..TransformOptions::default()
        };
        options.helper_loader.module_name = HELPER_MODULE.into();
        options.jsx.pure = false;
        if format == Format::CommonJs {
            options.env.module = Module::CommonJS;
        }
        let Some(settings) = self.settings else { return options };
        options.decorator.legacy = settings.experimental_decorators.unwrap_or(false);
        options.decorator.emit_decorator_metadata = settings.emit_decorator_metadata.unwrap_or(false);
        options.decorator.strict_null_checks =
            settings.strict_null_checks.or(settings.strict).unwrap_or(true);
        options.typescript.only_remove_type_imports = settings.verbatim_module_syntax.unwrap_or(false);
        options.typescript.remove_class_fields_without_initializer = !defines_class_fields(settings);
        if settings.jsx.as_deref() == Some("react") {
            options.jsx.runtime = JsxRuntime::Classic;
            options.jsx.pragma.clone_from(&settings.jsx_factory);
            options.jsx.pragma_frag.clone_from(&settings.jsx_fragment_factory);
            if let Some(factory) = &settings.jsx_factory {
                options.typescript.jsx_pragma = factory.clone().into();
            }
            if let Some(factory) = &settings.jsx_fragment_factory {
                options.typescript.jsx_pragma_frag = factory.clone().into();
            }
        } else {
            options.jsx.import_source.clone_from(&settings.jsx_import_source);
        }
        options
    }
}

struct Parsed<'a> {
    program: Program<'a>,
    record: ModuleRecord<'a>,
}

/// TypeScript defines fields, instead of assigning them, from ES2022 on unless told otherwise.
fn defines_class_fields(settings: &CompilerOptions) -> bool {
    settings.use_define_for_class_fields.unwrap_or_else(|| {
        let target = settings.target.as_deref().unwrap_or("esnext").to_ascii_lowercase();
        match target.strip_prefix("es") {
            Some("next") => true,
            Some(year) => year.parse::<u32>().is_ok_and(|year| year >= 2022),
            None => true,
        }
    })
}

fn text_error(diagnostic: &OxcDiagnostic) -> TextError {
    let offset = diagnostic.labels.first().map_or(0, |label| label.offset() as usize);
    TextError {
        message: diagnostic.message.to_string(),
        hint: diagnostic.help.as_ref().map(ToString::to_string),
        offset,
    }
}

fn default_export(program: &Program<'_>, record: &ModuleRecord<'_>, format: Format) -> DefaultExport {
    if format == Format::CommonJs {
        return DefaultExport::Present;
    }
    let found = program.body.iter().find_map(|statement| match statement {
        Statement::ExportDefaultDeclaration(declaration) => Some(declaration),
        _ => None,
    });
    let Some(declaration) = found else {
        let named = record.exported_bindings.keys().any(|name| name.as_str() == "default");
        return if named { DefaultExport::Present } else { DefaultExport::Missing };
    };
    let what = match &declaration.declaration {
        ExportDefaultDeclarationKind::FunctionDeclaration(_) => return DefaultExport::Present,
        ExportDefaultDeclarationKind::ClassDeclaration(_) => "a class",
        ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => return DefaultExport::Missing,
        other => match other.as_expression().map(Expression::get_inner_expression) {
            Some(Expression::ObjectExpression(_)) => "an object",
            Some(Expression::ArrayExpression(_)) => "an array",
            Some(Expression::ClassExpression(_)) => "a class",
            Some(Expression::StringLiteral(_) | Expression::TemplateLiteral(_)) => "a text",
            Some(Expression::NumericLiteral(_)) => "a number",
            Some(Expression::BooleanLiteral(_)) => "a boolean",
            Some(Expression::NullLiteral(_)) => "null",
            _ => return DefaultExport::Present,
        },
    };
    DefaultExport::NotCallable(what, declaration.span.start)
}

fn with_line_end(mut code: String) -> String {
    if !code.is_empty() && !code.ends_with('\n') {
        code.push('\n');
    }
    code
}

/// Moves the map below the header, and gives it the author's text.
fn finish_map(map: &str, header_lines: usize, source_name: &str, text: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(map).unwrap_or_default();
    let mappings = value.get("mappings").and_then(serde_json::Value::as_str).unwrap_or_default();
    let mappings = format!("{}{mappings}", ";".repeat(header_lines));
    let names = value.get_mut("names").map(serde_json::Value::take).unwrap_or_else(|| serde_json::json!([]));
    // Written by hand to fix the order of keys.
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "{{\"version\":3,\"sources\":[{}],\"sourcesContent\":[{}],\"names\":{names},\"mappings\":{}}}\n",
        quote(source_name),
        quote(text),
        quote(&mappings),
    )
}
