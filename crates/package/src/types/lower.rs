//! From parsed text to [`Module`].

use std::path::Path;
use std::rc::Rc;

use oxc::allocator::Allocator;
use oxc::ast::ast::{
    Declaration as Declares, ExportDefaultDeclarationKind, Function, ImportDeclarationSpecifier, Statement,
    TSEnumDeclaration, TSInterfaceDeclaration, TSNamespaceDeclaration, TSNamespaceDeclarationBody,
    TSTypeAliasDeclaration, VariableDeclaration,
};
use oxc::parser::Parser;
use oxc::span::SourceType;

use super::syntax::{Declaration, Declared, Keyword, Module, Origin, Ty};
use super::values;
use super::written::{members, named, node, signature, type_parameters};

/// The name under which an anonymous default export is kept; no author can write it.
const DEFAULT: &str = "default";
/// Reads a module. What does not parse has no types: the build reports it.
pub(super) fn module(path: &Path, text: &str) -> Module {
    let allocator = Allocator::default();
    let kind = SourceType::from_path(path).unwrap_or_default().with_module(true);
    let parsed = Parser::new(&allocator, text, kind).parse();
    let mut lower = Lower { module: Module::default(), scope: Vec::new() };
    for statement in &parsed.program.body {
        lower.statement(statement);
    }
    let mut module = lower.module;
    let name = path.to_string_lossy();
    if [".d.ts", ".d.mts", ".d.cts"].iter().any(|end| name.ends_with(end)) {
        // A declaration file exports what it declares.
        let names: Vec<String> = module.types.keys().chain(module.values.keys()).cloned().collect();
        for name in names.into_iter().filter(|name| !name.contains('.')) {
            module.exports.entry(name.clone()).or_insert(Origin::Local(name));
        }
    }
    module
}

struct Lower {
    module: Module,
    scope: Vec<String>,
}

impl Lower {
    fn qualified(&self, name: &str) -> String {
        self.scope.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(".")
    }

    fn export(&mut self, exported: &str, origin: Origin) {
        if self.scope.is_empty() {
            self.module.exports.insert(exported.to_owned(), origin);
        }
    }

    fn statement(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::ImportDeclaration(import) => {
                let source = import.source.value.to_string();
                for specifier in import.specifiers.iter().flatten() {
                    let (local, origin) = match specifier {
                        ImportDeclarationSpecifier::ImportSpecifier(named) => {
                            let name = named.imported.name().to_string();
                            (&named.local, Origin::Named { source: source.clone(), name })
                        }
                        ImportDeclarationSpecifier::ImportDefaultSpecifier(default) => {
                            let name = DEFAULT.to_owned();
                            (&default.local, Origin::Named { source: source.clone(), name })
                        }
                        ImportDeclarationSpecifier::ImportNamespaceSpecifier(all) => {
                            (&all.local, Origin::Namespace { source: source.clone() })
                        }
                    };
                    self.module.imports.insert(local.name.to_string(), origin);
                }
            }
            Statement::ExportNamedDeclaration(export) => {
                for specifier in &export.specifiers {
                    let local = specifier.local.name().to_string();
                    self.export(&specifier.exported.name(), Origin::Local(local));
                }
            }
            Statement::ExportFromDeclaration(export) => {
                for specifier in &export.specifiers {
                    let (source, name) =
                        (export.source.value.to_string(), specifier.local.name().to_string());
                    self.export(&specifier.exported.name(), Origin::Named { source, name });
                }
            }
            Statement::ExportAllDeclaration(export) => {
                let source = export.source.value.to_string();
                match &export.exported {
                    Some(name) => self.export(&name.name(), Origin::Namespace { source }),
                    None => self.module.stars.push(source),
                }
            }
            Statement::ExportDeclaration(export) => {
                for name in self.declaration(&export.declaration) {
                    self.export(&name, Origin::Local(name.clone()));
                }
            }
            Statement::ExportDefaultDeclaration(export) => self.default_export(&export.declaration),
            other => {
                if let Some(declaration) = other.as_declaration() {
                    self.declaration(declaration);
                }
            }
        }
    }

    fn default_export(&mut self, declaration: &ExportDefaultDeclarationKind<'_>) {
        let name = match declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => self.function(function),
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(interface) => self.interface(interface),
            ExportDefaultDeclarationKind::ClassDeclaration(class) => class.id.as_ref().map_or_else(
                || DEFAULT.to_owned(),
                |id| {
                    let name = id.name.to_string();
                    self.declare(&name, Declaration { parameters: Vec::new(), kind: Declared::Class });
                    name
                },
            ),
            other => match other.as_expression() {
                Some(expression) => match values::name_of(expression) {
                    Some(name) => name,
                    None => {
                        self.module.values.insert(DEFAULT.to_owned(), values::of(expression, false));
                        DEFAULT.to_owned()
                    }
                },
                None => return,
            },
        };
        self.export(DEFAULT, Origin::Local(name));
    }

    /// Keeps a declaration; the names that it declares.
    fn declaration(&mut self, declaration: &Declares<'_>) -> Vec<String> {
        match declaration {
            Declares::TSTypeAliasDeclaration(alias) => vec![self.alias(alias)],
            Declares::TSInterfaceDeclaration(interface) => vec![self.interface(interface)],
            Declares::TSEnumDeclaration(declared) => vec![self.enumeration(declared)],
            Declares::FunctionDeclaration(function) => vec![self.function(function)],
            Declares::VariableDeclaration(variables) => self.variables(variables),
            Declares::TSNamespaceDeclaration(namespace) => vec![self.namespace(namespace)],
            Declares::ClassDeclaration(class) => class
                .id
                .iter()
                .map(|id| {
                    let name = id.name.to_string();
                    self.declare(&name, Declaration { parameters: Vec::new(), kind: Declared::Class });
                    name
                })
                .collect(),
            Declares::TSGlobalDeclaration(global) => {
                for statement in &global.body.body {
                    self.statement(statement);
                }
                Vec::new()
            }
            Declares::TSExternalModuleDeclaration(_) | Declares::TSImportEqualsDeclaration(_) => Vec::new(),
        }
    }

    fn declare(&mut self, name: &str, declaration: Declaration) {
        let name = self.qualified(name);
        self.module.types.entry(name).or_default().push(declaration);
    }

    fn alias(&mut self, alias: &TSTypeAliasDeclaration<'_>) -> String {
        let name = alias.id.name.to_string();
        let parameters = type_parameters(alias.type_parameters.as_deref());
        let kind = Declared::Alias(node(&alias.type_annotation, 0));
        self.declare(&name, Declaration { parameters, kind });
        name
    }

    fn interface(&mut self, interface: &TSInterfaceDeclaration<'_>) -> String {
        let name = interface.id.name.to_string();
        let parameters = type_parameters(interface.type_parameters.as_deref());
        let extends = interface
            .extends
            .iter()
            .map(|heritage| named(&heritage.type_name, heritage.type_arguments.as_deref(), 0))
            .collect();
        let members = Rc::new(members(&interface.body.body, 0));
        self.declare(&name, Declaration { parameters, kind: Declared::Interface { extends, members } });
        name
    }

    fn enumeration(&mut self, declared: &TSEnumDeclaration<'_>) -> String {
        let name = declared.id.name.to_string();
        let kind = Declared::Enum(values::enumerate(declared));
        self.declare(&name, Declaration { parameters: Vec::new(), kind });
        name
    }

    /// Overloads: the first one is what callers see.
    fn function(&mut self, function: &Function<'_>) -> String {
        let name = function.id.as_ref().map_or_else(|| DEFAULT.to_owned(), |id| id.name.to_string());
        let qualified = self.qualified(&name);
        self.module
            .values
            .entry(qualified)
            .or_insert_with(|| signature(&function.params, function.return_type.as_deref(), 0));
        name
    }

    fn variables(&mut self, variables: &VariableDeclaration<'_>) -> Vec<String> {
        let mut names = Vec::new();
        for variable in &variables.declarations {
            let Some(name) = variable.id.get_identifier_name() else { continue };
            let constant = variables.kind.is_const();
            let value = match (&variable.type_annotation, &variable.init) {
                (Some(annotation), _) => node(&annotation.type_annotation, 0),
                (None, Some(init)) => values::of(init, constant && values::is_scalar(init)),
                (None, None) => Rc::new(Ty::Keyword(Keyword::Open)),
            };
            let qualified = self.qualified(&name);
            self.module.values.insert(qualified, value);
            names.push(name.to_string());
        }
        names
    }

    fn namespace(&mut self, namespace: &TSNamespaceDeclaration<'_>) -> String {
        let name = namespace.id.name.to_string();
        self.scope.push(name.clone());
        match &namespace.body {
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => drop(self.namespace(inner)),
            TSNamespaceDeclarationBody::TSModuleBlock(block) => {
                for statement in &block.body {
                    self.statement(statement);
                }
            }
        }
        self.scope.pop();
        name
    }
}
