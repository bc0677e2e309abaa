//! What a module asks other modules for: static and literal imports, and the signs that it asks for more than can be
//! read from its text.

use std::collections::HashSet;

use oxc::ast::ast::{
    Argument, BindingPattern, CallExpression, ConditionalExpression, ExportAllDeclaration,
    ExportFromDeclaration, Expression, IdentifierReference, ImportDeclaration, ImportDeclarationSpecifier,
    ImportExpression, Program, StaticMemberExpression, TryStatement, UnaryExpression, UnaryOperator,
    VariableDeclarator,
};
use oxc::ast_visit::{Visit, walk};
use oxc::semantic::{Scoping, SymbolId};
use oxc::span::GetSpan as _;

/// Which of Node's two algorithms resolves a specifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum How {
    Import,
    Require,
}

/// What a relative specifier starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Base {
    /// The module that holds it.
    Module,
    /// The root of the artifact: it goes through a `require` made from `import.meta`.
    Root,
}

/// One literal specifier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) specifier: String,
    pub(crate) how: How,
    pub(crate) base: Base,
    /// Byte offset in the source; 0 when the reference was not written by the author.
    pub(crate) offset: u32,
    /// The module handles its absence: inside `try`, or with a `catch` of its own.
    pub(crate) optional: bool,
}

/// A sign that the module needs files which its literal imports do not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// `import(expression)`.
    ComputedImport,
    /// `require(expression)`, or `require` handed around.
    ComputedRequire,
    /// `createRequire(…)`.
    CreateRequire,
    /// `__dirname` or `__filename`.
    Dirname,
    /// `import.meta.url` and its relatives.
    ImportMeta,
}

impl Sign {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::ComputedImport => "imports a computed name",
            Self::ComputedRequire => "requires a computed name",
            Self::CreateRequire => "uses createRequire",
            Self::Dirname => "uses __dirname or __filename",
            Self::ImportMeta => "uses import.meta.url",
        }
    }
}

/// Everything found in one module.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) list: Vec<Reference>,
    /// Signs with the offset of their first appearance.
    pub(crate) signs: Vec<(Sign, u32)>,
    /// `require` is used without being bound in the module.
    pub(crate) free_require: bool,
}

/// Collects the references of a module.
pub(crate) fn collect(program: &Program<'_>, scoping: &Scoping) -> References {
    let mut collector =
        Collector { scoping, made: made_requires(program), found: References::default(), guarded: 0 };
    collector.visit_program(program);
    collector.found
}

/// The text of a literal specifier.
pub(crate) fn literal<'p>(expression: &'p Expression<'_>) -> Option<&'p str> {
    match expression.without_parentheses() {
        Expression::StringLiteral(literal) => Some(literal.value.as_str()),
        Expression::TemplateLiteral(template) if template.expressions.is_empty() => {
            template.quasis.first()?.value.cooked.as_ref().map(|text| text.as_str())
        }
        _ => None,
    }
}

/// How a call loads another module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadCall {
    pub(crate) base: Base,
    /// `require.resolve(…)`: only the path is asked for.
    pub(crate) resolve: bool,
}

/// Whether a call is `require(…)` or `require.resolve(…)`, by the module's own or a made `require`.
pub(crate) fn load_call(
    call: &CallExpression<'_>,
    scoping: &Scoping,
    made: &HashSet<SymbolId>,
) -> Option<LoadCall> {
    let (identifier, resolve) = match &call.callee {
        Expression::Identifier(identifier) => (identifier, false),
        Expression::StaticMemberExpression(member) if member.property.name == "resolve" => {
            match &member.object {
                Expression::Identifier(identifier) => (identifier, true),
                _ => return None,
            }
        }
        _ => return None,
    };
    match symbol(identifier, scoping) {
        Some(symbol) if made.contains(&symbol) => Some(LoadCall { base: Base::Root, resolve }),
        None if identifier.name == "require" => Some(LoadCall { base: Base::Module, resolve }),
        _ => None,
    }
}

fn symbol(identifier: &IdentifierReference<'_>, scoping: &Scoping) -> Option<SymbolId> {
    scoping.get_reference(identifier.reference_id.get()?).symbol_id()
}

/// Names bound to `createRequire(import.meta…)`.
pub(crate) fn made_requires(program: &Program<'_>) -> HashSet<SymbolId> {
    let mut finder = MadeRequires { made: HashSet::new(), aliases: HashSet::new() };
    finder.visit_program(program);
    finder.made
}

struct MadeRequires {
    made: HashSet<SymbolId>,
    /// Local names of the imported `createRequire`.
    aliases: HashSet<String>,
}

impl MadeRequires {
    fn is_maker(&self, callee: &Expression<'_>) -> bool {
        match callee {
            Expression::Identifier(identifier) => {
                identifier.name == "createRequire" || self.aliases.contains(identifier.name.as_str())
            }
            Expression::StaticMemberExpression(member) => member.property.name == "createRequire",
            _ => false,
        }
    }
}

impl<'a> Visit<'a> for MadeRequires {
    fn visit_import_declaration(&mut self, declaration: &ImportDeclaration<'a>) {
        for specifier in declaration.specifiers.iter().flatten() {
            if let ImportDeclarationSpecifier::ImportSpecifier(specifier) = specifier
                && specifier.imported.name() == "createRequire"
            {
                self.aliases.insert(specifier.local.name.to_string());
            }
        }
    }

    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        if let (BindingPattern::BindingIdentifier(name), Some(Expression::CallExpression(call))) =
            (&declarator.id, &declarator.init)
            && self.is_maker(&call.callee)
            && call.arguments.first().is_some_and(mentions_import_meta)
            && let Some(symbol) = name.symbol_id.get()
        {
            self.made.insert(symbol);
        }
        walk::walk_variable_declarator(self, declarator);
    }
}

/// `import.meta.url` and `import.meta.filename`, the two that `createRequire` is given.
fn mentions_import_meta(argument: &Argument<'_>) -> bool {
    match argument {
        Argument::StaticMemberExpression(member) => matches!(member.object, Expression::ImportMeta(_)),
        _ => false,
    }
}

struct Collector<'s> {
    scoping: &'s Scoping,
    made: HashSet<SymbolId>,
    found: References,
    /// How many constructs around the current place handle a missing module.
    guarded: u32,
}

impl Collector<'_> {
    fn add(&mut self, specifier: &str, how: How, base: Base, offset: u32) {
        let optional = self.guarded > 0;
        self.found.list.push(Reference { specifier: specifier.to_owned(), how, base, offset, optional });
    }

    fn sign(&mut self, sign: Sign, offset: u32) {
        if !self.found.signs.iter().any(|(known, _)| *known == sign) {
            self.found.signs.push((sign, offset));
        }
    }

    fn is_free(&self, identifier: &IdentifierReference<'_>, name: &str) -> bool {
        identifier.name == name && symbol(identifier, self.scoping).is_none()
    }

    /// All literals that the argument can be, or the sign that it is computed.
    fn require_argument(&mut self, argument: Option<&Argument<'_>>, base: Base, offset: u32) {
        let Some(expression) = argument.and_then(Argument::as_expression) else {
            return self.sign(Sign::ComputedRequire, offset);
        };
        match expression.without_parentheses() {
            Expression::ConditionalExpression(choice) => self.choice(choice, base),
            other => match literal(other) {
                Some(text) => self.add(text, How::Require, base, expression.span().start),
                None => self.sign(Sign::ComputedRequire, offset),
            },
        }
    }

    fn choice(&mut self, choice: &ConditionalExpression<'_>, base: Base) {
        for branch in [&choice.consequent, &choice.alternate] {
            match literal(branch) {
                Some(text) => self.add(text, How::Require, base, branch.span().start),
                None => self.sign(Sign::ComputedRequire, branch.span().start),
            }
        }
    }
}

impl<'a> Visit<'a> for Collector<'_> {
    fn visit_import_declaration(&mut self, declaration: &ImportDeclaration<'a>) {
        let source = &declaration.source;
        self.add(&source.value, How::Import, Base::Module, source.span.start);
    }

    fn visit_export_from_declaration(&mut self, declaration: &ExportFromDeclaration<'a>) {
        let source = &declaration.source;
        self.add(&source.value, How::Import, Base::Module, source.span.start);
    }

    fn visit_export_all_declaration(&mut self, declaration: &ExportAllDeclaration<'a>) {
        let source = &declaration.source;
        self.add(&source.value, How::Import, Base::Module, source.span.start);
    }

    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        let offset = import.source.span().start;
        match (literal(&import.source), import.source.without_parentheses()) {
            (Some(text), _) => self.add(text, How::Import, Base::Module, offset),
            (None, Expression::ConditionalExpression(choice)) => {
                for branch in [&choice.consequent, &choice.alternate] {
                    match literal(branch) {
                        Some(text) => self.add(text, How::Import, Base::Module, branch.span().start),
                        None => self.sign(Sign::ComputedImport, branch.span().start),
                    }
                }
            }
            (None, _) => {
                self.sign(Sign::ComputedImport, offset);
                walk::walk_import_expression(self, import);
            }
        }
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some(load) = load_call(call, self.scoping, &self.made) {
            self.found.free_require |= load.base == Base::Module;
            self.require_argument(call.arguments.first(), load.base, call.span.start);
            for argument in &call.arguments {
                self.visit_argument(argument);
            }
            return;
        }
        if let Expression::StaticMemberExpression(member) = &call.callee
            && matches!(member.property.name.as_str(), "catch" | "then")
            && matches!(member.object.without_parentheses(), Expression::ImportExpression(_))
            && (member.property.name == "catch" || call.arguments.len() > 1)
        {
            self.guarded += 1;
            walk::walk_call_expression(self, call);
            self.guarded -= 1;
            return;
        }
        let is_maker = match &call.callee {
            Expression::Identifier(identifier) => identifier.name == "createRequire",
            Expression::StaticMemberExpression(member) => member.property.name == "createRequire",
            _ => false,
        };
        if is_maker {
            self.sign(Sign::CreateRequire, call.span.start);
        }
        walk::walk_call_expression(self, call);
    }

    fn visit_static_member_expression(&mut self, member: &StaticMemberExpression<'a>) {
        match &member.object {
            Expression::ImportMeta(_) => {
                if matches!(member.property.name.as_str(), "url" | "dirname" | "filename" | "resolve") {
                    self.sign(Sign::ImportMeta, member.span.start);
                }
            }
            // `require.main`, `require.cache` and the like load nothing.
            Expression::Identifier(identifier) if self.is_free(identifier, "require") => {
                self.found.free_require = true;
            }
            _ => walk::walk_static_member_expression(self, member),
        }
    }

    fn visit_import_meta(&mut self, meta: &oxc::ast::ast::ImportMeta) {
        self.sign(Sign::ImportMeta, meta.span.start);
    }

    fn visit_unary_expression(&mut self, unary: &UnaryExpression<'a>) {
        let tests_a_name = unary.operator == UnaryOperator::Typeof
            && matches!(unary.argument.without_parentheses(), Expression::Identifier(_));
        if !tests_a_name {
            walk::walk_unary_expression(self, unary);
        }
    }

    fn visit_identifier_reference(&mut self, identifier: &IdentifierReference<'a>) {
        if self.is_free(identifier, "require") {
            self.found.free_require = true;
            self.sign(Sign::ComputedRequire, identifier.span.start);
        } else if self.is_free(identifier, "__dirname") || self.is_free(identifier, "__filename") {
            self.sign(Sign::Dirname, identifier.span.start);
        }
    }

    fn visit_try_statement(&mut self, statement: &TryStatement<'a>) {
        let handled = statement.handler.is_some();
        self.guarded += u32::from(handled);
        self.visit_block_statement(&statement.block);
        self.guarded -= u32::from(handled);
        if let Some(handler) = &statement.handler {
            self.visit_catch_clause(handler);
        }
        if let Some(finalizer) = &statement.finalizer {
            self.visit_block_statement(finalizer);
        }
    }
}
