//! Changes to a local module's syntax tree: specifiers lead to the emitted files, `import.meta` is the root's, names
//! that were types only are gone.

use std::collections::{BTreeSet, HashSet};

use oxc::allocator::{Allocator, ArenaVec};
use oxc::ast::ast::{
    Argument, BindingPattern, CallExpression, Declaration, ExportAllDeclaration, ExportDefaultDeclaration,
    ExportDefaultDeclarationKind, ExportFromDeclaration, Expression, ImportDeclaration,
    ImportDeclarationSpecifier, ImportExpression, ImportOrExportKind, Program, Statement, StringLiteral,
    TSModuleReference,
};
use oxc::ast::builder::AstBuilder;
use oxc::ast_visit::{Visit, VisitMut, walk, walk_mut};
use oxc::semantic::{ReferenceId, Scoping, SymbolId};
use oxc::span::SPAN;

use crate::decorators;
use crate::references::{Base, How, literal, load_call, made_requires};
use crate::script::{Format, helper_specifier};

/// Name of the root's `import.meta` in emitted modules.
const META: &str = "__trestle_meta";

/// What a specifier becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub(crate) specifier: String,
    /// Import attributes go: the target became a plain module.
    pub(crate) drop_attributes: bool,
}

/// How to rewrite a module.
pub(crate) struct Rewrite<'r> {
    /// The replacement of a specifier, `None` to keep it.
    pub(crate) replace: &'r dyn Fn(&str, How, Base) -> Option<Replacement>,
    /// Whether the module behind a specifier certainly has no such export.
    pub(crate) missing: &'r dyn Fn(&str, &str) -> bool,
    /// Specifier of the module that holds the root's `import.meta`.
    pub(crate) root_module: &'r str,
    /// The artifact's root as a path relative to the emitted module's folder.
    pub(crate) to_root: &'r str,
}

/// Turns TypeScript's CommonJS forms in an ES module into their ES forms.
pub(crate) fn modernise<'a>(allocator: &'a Allocator, program: &mut Program<'a>) {
    let builder = AstBuilder::new(allocator);
    for statement in &mut program.body {
        let replacement = match statement {
            Statement::TSImportEqualsDeclaration(declaration) => {
                let TSModuleReference::ExternalModuleReference(external) = &declaration.module_reference
                else {
                    continue;
                };
                let local =
                    oxc::ast::ast::BindingIdentifier::new(declaration.id.span, declaration.id.name, &builder);
                let specifier = ImportDeclarationSpecifier::new_import_default_specifier(
                    declaration.id.span,
                    local,
                    &builder,
                );
                let source =
                    StringLiteral::new(external.expression.span, external.expression.value, None, &builder);
                let import = ImportDeclaration::boxed(
                    declaration.span,
                    Some(ArenaVec::from_array_in([specifier], &allocator)),
                    source,
                    None,
                    None,
                    declaration.import_kind,
                    &builder,
                );
                Statement::ImportDeclaration(import)
            }
            Statement::TSExportAssignment(assignment) => {
                let placeholder = Expression::new_null_literal(SPAN, &builder);
                let expression = std::mem::replace(&mut assignment.expression, placeholder);
                let declaration = ExportDefaultDeclarationKind::from(expression);
                Statement::ExportDefaultDeclaration(ExportDefaultDeclaration::boxed(
                    assignment.span,
                    declaration,
                    &builder,
                ))
            }
            _ => continue,
        };
        *statement = replacement;
    }
}

/// Exported names, and the specifiers of `export * from`, of a module without types.
pub(crate) fn exports(program: &Program<'_>) -> (BTreeSet<String>, Vec<String>) {
    let mut names = BTreeSet::new();
    let mut stars = Vec::new();
    for statement in &program.body {
        match statement {
            Statement::ExportDefaultDeclaration(_) => {
                names.insert("default".to_owned());
            }
            Statement::ExportDeclaration(export) => declared_names(&export.declaration, &mut names),
            Statement::ExportNamedDeclaration(export) => {
                names.extend(export.specifiers.iter().map(|specifier| specifier.exported.name().to_string()));
            }
            Statement::ExportFromDeclaration(export) => {
                names.extend(export.specifiers.iter().map(|specifier| specifier.exported.name().to_string()));
            }
            Statement::ExportAllDeclaration(export) => match &export.exported {
                Some(name) => {
                    names.insert(name.name().to_string());
                }
                None => stars.push(export.source.value.to_string()),
            },
            _ => {}
        }
    }
    (names, stars)
}

fn declared_names(declaration: &Declaration<'_>, names: &mut BTreeSet<String>) {
    match declaration {
        Declaration::VariableDeclaration(variables) => {
            for declarator in &variables.declarations {
                let mut bound = BoundNames { names };
                bound.visit_binding_pattern(&declarator.id);
            }
        }
        other => names.extend(other.id().map(|id| id.name.to_string())),
    }
}

struct BoundNames<'n> {
    names: &'n mut BTreeSet<String>,
}

impl<'a> Visit<'a> for BoundNames<'_> {
    fn visit_binding_pattern(&mut self, pattern: &BindingPattern<'a>) {
        if let BindingPattern::BindingIdentifier(identifier) = pattern {
            self.names.insert(identifier.name.to_string());
        }
        walk::walk_binding_pattern(self, pattern);
    }

    fn visit_expression(&mut self, _: &Expression<'a>) {
        // Default values bind nothing.
    }
}

/// Rewrites a transformed module, and returns the lines that go before it.
pub(crate) fn apply<'a>(
    allocator: &'a Allocator,
    program: &mut Program<'a>,
    scoping: &Scoping,
    format: Format,
    rewrite: &Rewrite<'_>,
) -> String {
    drop_missing(program, scoping, rewrite);
    let mut rewriter = Rewriter {
        allocator,
        builder: AstBuilder::new(allocator),
        scoping,
        made: made_requires(program),
        rewrite,
        used_meta: false,
    };
    rewriter.visit_program(program);
    let used_meta = rewriter.used_meta;
    let free = scoping.root_unresolved_references();
    let uses = |name: &str| free.keys().any(|key| key.as_str() == name);
    match format {
        Format::Esm => esm_header(used_meta, uses("require"), uses(decorators::HELPER), rewrite),
        Format::CommonJs => {
            let strict = program.directives.iter().any(|directive| directive.directive == "use strict");
            let used_dirname = uses("__dirname") || uses("__filename");
            commonjs_header(strict, used_dirname, uses(decorators::HELPER), rewrite)
        }
    }
}

fn decorators_helper(how: How, rewrite: &Rewrite<'_>) -> String {
    let specifier = helper_specifier(decorators::HELPER_NAME);
    let replacement = (rewrite.replace)(&specifier, how, Base::Module);
    format!("{:?}", replacement.map_or(specifier, |replacement| replacement.specifier))
}

fn esm_header(used_meta: bool, used_require: bool, decorated: bool, rewrite: &Rewrite<'_>) -> String {
    let mut header = String::new();
    if decorated {
        let helper = decorators_helper(How::Import, rewrite);
        header.push_str(&format!("import {} from {helper};", decorators::HELPER));
    }
    if used_meta {
        header.push_str(&format!("import {{ meta as {META} }} from {:?};", rewrite.root_module));
    }
    if used_require {
        header.push_str("import { createRequire as __trestle_create_require } from \"node:module\";");
        header.push_str("const require = __trestle_create_require(import.meta.url);");
    }
    if !header.is_empty() {
        header.push('\n');
    }
    header
}

fn commonjs_header(strict: bool, used_dirname: bool, decorated: bool, rewrite: &Rewrite<'_>) -> String {
    let mut header = String::new();
    if decorated {
        let helper = decorators_helper(How::Require, rewrite);
        header.push_str(&format!("const {} = require({helper});", decorators::HELPER));
    }
    if used_dirname {
        header.push_str(&format!(
            "__dirname = require(\"node:path\").resolve(__dirname, {:?});\
             __filename = require(\"node:path\").join(__dirname, \"index.mjs\");",
            rewrite.to_root,
        ));
    }
    match (header.is_empty(), strict) {
        (true, _) => header,
        (false, true) => format!("\"use strict\";{header}\n"),
        (false, false) => header + "\n",
    }
}

/// Removes imports and re-exports of names that the other module does not have, where nothing reads the value: what
/// is left of types that the text alone does not show to be types.
fn drop_missing(program: &mut Program<'_>, scoping: &Scoping, rewrite: &Rewrite<'_>) {
    let mut exported: HashSet<ReferenceId> = HashSet::new();
    for statement in &program.body {
        if let Statement::ExportNamedDeclaration(export) = statement {
            exported.extend(export.specifiers.iter().filter_map(|specifier| reference_of(&specifier.local)));
        }
    }
    let mut dropped: HashSet<SymbolId> = HashSet::new();
    for statement in &mut program.body {
        match statement {
            Statement::ImportDeclaration(import) => {
                let source = import.source.value.to_string();
                let Some(specifiers) = &mut import.specifiers else { continue };
                specifiers.retain(|specifier| {
                    let (name, local) = match specifier {
                        ImportDeclarationSpecifier::ImportSpecifier(specifier) => {
                            (specifier.imported.name().to_string(), &specifier.local)
                        }
                        ImportDeclarationSpecifier::ImportDefaultSpecifier(specifier) => {
                            ("default".to_owned(), &specifier.local)
                        }
                        ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => return true,
                    };
                    let Some(symbol) = local.symbol_id.get() else { return true };
                    let only_exported =
                        scoping.get_resolved_reference_ids(symbol).iter().all(|id| exported.contains(id));
                    let keep = !only_exported || !(rewrite.missing)(&source, &name);
                    if !keep {
                        dropped.insert(symbol);
                    }
                    keep
                });
            }
            Statement::ExportFromDeclaration(export) => {
                let source = export.source.value.to_string();
                export.specifiers.retain(|specifier| !(rewrite.missing)(&source, &specifier.local.name()));
            }
            _ => {}
        }
    }
    for statement in &mut program.body {
        if let Statement::ExportNamedDeclaration(export) = statement {
            export.specifiers.retain(|specifier| {
                let symbol =
                    reference_of(&specifier.local).and_then(|id| scoping.get_reference(id).symbol_id());
                symbol.is_none_or(|symbol| !dropped.contains(&symbol))
            });
        }
    }
}

fn reference_of(name: &oxc::ast::ast::ModuleExportName<'_>) -> Option<ReferenceId> {
    match name {
        oxc::ast::ast::ModuleExportName::IdentifierReference(identifier) => identifier.reference_id.get(),
        _ => None,
    }
}

struct Rewriter<'a, 'r> {
    allocator: &'a Allocator,
    builder: AstBuilder<'a>,
    scoping: &'r Scoping,
    made: HashSet<SymbolId>,
    rewrite: &'r Rewrite<'r>,
    used_meta: bool,
}

impl<'a> Rewriter<'a, '_> {
    /// Replaces a literal's text; tells whether attributes go.
    fn literal(&self, literal: &mut StringLiteral<'a>, how: How, base: Base) -> bool {
        let Some(replacement) = (self.rewrite.replace)(&literal.value, how, base) else { return false };
        literal.value = self.allocator.alloc_str(&replacement.specifier).into();
        literal.raw = None;
        replacement.drop_attributes
    }

    /// Replaces an expression's text, also that of a template and of both branches of a choice.
    fn expression(&self, expression: &mut Expression<'a>, how: How, base: Base) -> bool {
        match expression {
            Expression::StringLiteral(literal) => self.literal(literal, how, base),
            Expression::ParenthesizedExpression(inner) => self.expression(&mut inner.expression, how, base),
            Expression::ConditionalExpression(choice) => {
                let first = self.expression(&mut choice.consequent, how, base);
                let second = self.expression(&mut choice.alternate, how, base);
                first && second
            }
            other => {
                let Some(replacement) =
                    literal(other).and_then(|text| (self.rewrite.replace)(text, how, base))
                else {
                    return false;
                };
                let text = self.allocator.alloc_str(&replacement.specifier);
                *other = Expression::new_string_literal(SPAN, text, None, &self.builder);
                replacement.drop_attributes
            }
        }
    }
}

impl<'a> VisitMut<'a> for Rewriter<'a, '_> {
    fn visit_import_declaration(&mut self, declaration: &mut ImportDeclaration<'a>) {
        if declaration.import_kind == ImportOrExportKind::Value
            && self.literal(&mut declaration.source, How::Import, Base::Module)
        {
            declaration.with_clause = None;
        }
    }

    fn visit_export_from_declaration(&mut self, declaration: &mut ExportFromDeclaration<'a>) {
        if self.literal(&mut declaration.source, How::Import, Base::Module) {
            declaration.with_clause = None;
        }
    }

    fn visit_export_all_declaration(&mut self, declaration: &mut ExportAllDeclaration<'a>) {
        if self.literal(&mut declaration.source, How::Import, Base::Module) {
            declaration.with_clause = None;
        }
    }

    fn visit_import_expression(&mut self, import: &mut ImportExpression<'a>) {
        if self.expression(&mut import.source, How::Import, Base::Module) {
            import.options = None;
        }
        walk_mut::walk_import_expression(self, import);
    }

    fn visit_call_expression(&mut self, call: &mut CallExpression<'a>) {
        if let Some(load) = load_call(call, self.scoping, &self.made)
            && let Some(argument) = call.arguments.first_mut()
        {
            match argument {
                Argument::StringLiteral(literal) => {
                    self.literal(literal, How::Require, load.base);
                }
                other => {
                    if let Some(expression) = other.as_expression_mut() {
                        self.expression(expression, How::Require, load.base);
                    }
                }
            }
        }
        walk_mut::walk_call_expression(self, call);
    }

    fn visit_expression(&mut self, expression: &mut Expression<'a>) {
        if let Expression::ImportMeta(meta) = expression {
            self.used_meta = true;
            *expression = Expression::new_identifier(meta.span, META, &self.builder);
            return;
        }
        walk_mut::walk_expression(self, expression);
    }
}
