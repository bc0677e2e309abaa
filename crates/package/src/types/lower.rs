//! From parsed text to [`Module`].

use std::path::Path;
use std::rc::Rc;

use oxc::allocator::Allocator;
use oxc::ast::ast::{
    Declaration as Declares, ExportDefaultDeclarationKind, FormalParameters, Function,
    ImportDeclarationSpecifier, PropertyKey, Statement, TSEnumDeclaration, TSImportTypeQualifier,
    TSInterfaceDeclaration, TSLiteral, TSMappedTypeModifierOperator, TSMethodSignatureKind,
    TSNamespaceDeclaration, TSNamespaceDeclarationBody, TSSignature, TSTupleElement, TSType,
    TSTypeAliasDeclaration, TSTypeAnnotation, TSTypeName, TSTypeOperatorOperator, TSTypeParameterDeclaration,
    TSTypeParameterInstantiation, TSTypeQueryExprName, VariableDeclaration,
};
use oxc::parser::Parser;
use oxc::span::SourceType;

use super::syntax::{
    Declaration, Declared, Item, Keyword, Literal, Mapped, Member, Modifier, Module, Name, Node, Origin,
    Parameter, Ty, TypeParameter,
};
use super::values;

/// The name under which an anonymous default export is kept; no author can write it.
const DEFAULT: &str = "default";
/// Types that nest deeper are not followed.
const DEEPEST: usize = 64;

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

fn type_parameters(declared: Option<&TSTypeParameterDeclaration<'_>>) -> Vec<TypeParameter> {
    let parameters = declared.into_iter().flat_map(|declared| &declared.params);
    parameters
        .map(|parameter| TypeParameter {
            name: parameter.name.name.to_string(),
            default: parameter.default.as_ref().map(|default| node(default, 0)),
        })
        .collect()
}

/// The type of a function, as far as its first parameter and its result go.
pub(super) fn signature(
    parameters: &FormalParameters<'_>,
    output: Option<&TSTypeAnnotation<'_>>,
    depth: usize,
) -> Node {
    let input = match (parameters.items.first(), &parameters.rest) {
        (None, None) => Parameter::None,
        (None, Some(_)) => Parameter::Untyped,
        (Some(first), _) => match &first.type_annotation {
            None => Parameter::Untyped,
            Some(annotation) => {
                Parameter::Typed { node: node(&annotation.type_annotation, depth), optional: first.optional }
            }
        },
    };
    let output = output.map(|annotation| node(&annotation.type_annotation, depth));
    Rc::new(Ty::Function { input, output })
}

fn arguments(given: Option<&TSTypeParameterInstantiation<'_>>, depth: usize) -> Vec<Node> {
    given.into_iter().flat_map(|given| &given.params).map(|argument| node(argument, depth)).collect()
}

fn named(name: &TSTypeName<'_>, given: Option<&TSTypeParameterInstantiation<'_>>, depth: usize) -> Node {
    match path(name) {
        Some(path) => Rc::new(Ty::Name(Name { source: None, path, arguments: arguments(given, depth) })),
        None => Rc::new(Ty::Beyond("`this` as a type")),
    }
}

fn path(name: &TSTypeName<'_>) -> Option<Vec<String>> {
    match name {
        TSTypeName::IdentifierReference(identifier) => Some(vec![identifier.name.to_string()]),
        TSTypeName::QualifiedName(qualified) => {
            let mut path = path(&qualified.left)?;
            path.push(qualified.right.name.to_string());
            Some(path)
        }
        TSTypeName::ThisExpression(_) => None,
    }
}

fn qualifier(qualifier: &TSImportTypeQualifier<'_>) -> Vec<String> {
    match qualifier {
        TSImportTypeQualifier::Identifier(identifier) => vec![identifier.name.to_string()],
        TSImportTypeQualifier::QualifiedName(name) => {
            let mut path = self::qualifier(&name.left);
            path.push(name.right.name.to_string());
            path
        }
    }
}

fn members(signatures: &[TSSignature<'_>], depth: usize) -> Vec<Member> {
    let open = || Rc::new(Ty::Keyword(Keyword::Open));
    let key = |key: &PropertyKey<'_>| key.static_name().map(|name| name.to_string());
    signatures
        .iter()
        .filter_map(|signature| match signature {
            TSSignature::TSPropertySignature(property) => Some(Member::Property {
                name: key(&property.key)?,
                node: property
                    .type_annotation
                    .as_ref()
                    .map_or_else(open, |annotation| node(&annotation.type_annotation, depth)),
                optional: property.optional,
            }),
            TSSignature::TSIndexSignature(index) => {
                Some(Member::Index(node(&index.type_annotation.type_annotation, depth)))
            }
            TSSignature::TSMethodSignature(method) => match method.kind {
                TSMethodSignatureKind::Method => Some(Member::Method(key(&method.key)?)),
                // An accessor is a property for whoever reads it.
                TSMethodSignatureKind::Get => Some(Member::Property {
                    name: key(&method.key)?,
                    node: method
                        .return_type
                        .as_ref()
                        .map_or_else(open, |annotation| node(&annotation.type_annotation, depth)),
                    optional: false,
                }),
                TSMethodSignatureKind::Set => None,
            },
            TSSignature::TSCallSignatureDeclaration(_) | TSSignature::TSConstructSignatureDeclaration(_) => {
                Some(Member::Method("(call)".to_owned()))
            }
        })
        .collect()
}

fn item(element: &TSTupleElement<'_>, depth: usize) -> Item {
    let item = |node, optional, rest| Item { node, optional, rest };
    match element {
        TSTupleElement::TSOptionalType(optional) => item(node(&optional.type_annotation, depth), true, false),
        TSTupleElement::TSRestType(rest) => item(node(&rest.type_annotation, depth), false, true),
        TSTupleElement::TSNamedTupleMember(member) => {
            let mut inner = self::item(&member.element_type, depth);
            inner.optional |= member.optional;
            inner
        }
        other => match other.as_ts_type() {
            Some(ty) => item(node(ty, depth), false, false),
            None => item(Rc::new(Ty::Beyond("this form of tuple")), false, false),
        },
    }
}

fn literal(literal: &TSLiteral<'_>) -> Ty {
    match literal {
        TSLiteral::BooleanLiteral(found) => Ty::Literal(Literal::Boolean(found.value)),
        TSLiteral::NumericLiteral(found) => Ty::Literal(Literal::Number(found.value)),
        TSLiteral::StringLiteral(found) => Ty::Literal(Literal::Text(found.value.to_string())),
        TSLiteral::BigIntLiteral(found) => Ty::Literal(Literal::BigInt(found.value.to_string())),
        TSLiteral::TemplateLiteral(found) => match found.single_quasi() {
            Some(text) => Ty::Literal(Literal::Text(text.to_string())),
            None => Ty::Beyond("a computed text"),
        },
        TSLiteral::UnaryExpression(unary) => values::negative(unary),
    }
}

/// A type of the text.
pub(super) fn node(ty: &TSType<'_>, depth: usize) -> Node {
    Rc::new(if depth > DEEPEST { Ty::Beyond("a type nested this deeply") } else { lower(ty, depth + 1) })
}

fn lower(ty: &TSType<'_>, depth: usize) -> Ty {
    let node = |ty: &TSType<'_>| node(ty, depth);
    match ty {
        TSType::TSAnyKeyword(_) | TSType::TSUnknownKeyword(_) => Ty::Keyword(Keyword::Open),
        TSType::TSStringKeyword(_) => Ty::Keyword(Keyword::String),
        TSType::TSNumberKeyword(_) => Ty::Keyword(Keyword::Number),
        TSType::TSBooleanKeyword(_) => Ty::Keyword(Keyword::Boolean),
        TSType::TSBigIntKeyword(_) => Ty::Keyword(Keyword::BigInt),
        TSType::TSNullKeyword(_) => Ty::Keyword(Keyword::Null),
        TSType::TSUndefinedKeyword(_) | TSType::TSVoidKeyword(_) => Ty::Keyword(Keyword::Nothing),
        TSType::TSNeverKeyword(_) => Ty::Keyword(Keyword::Never),
        TSType::TSObjectKeyword(_) => Ty::Keyword(Keyword::Object),
        TSType::TSSymbolKeyword(_) => Ty::Beyond("a symbol"),
        TSType::TSArrayType(array) => Ty::Array(node(&array.element_type)),
        TSType::TSTupleType(tuple) => {
            Ty::Tuple(tuple.element_types.iter().map(|element| item(element, depth)).collect())
        }
        TSType::TSUnionType(union) => Ty::Union(union.types.iter().map(node).collect()),
        TSType::TSIntersectionType(all) => Ty::Intersection(all.types.iter().map(node).collect()),
        TSType::TSParenthesizedType(inner) => lower(&inner.type_annotation, depth),
        TSType::TSLiteralType(found) => literal(&found.literal),
        TSType::TSTypeLiteral(object) => Ty::Object(members(&object.members, depth)),
        TSType::TSTypeReference(reference) => match path(&reference.type_name) {
            Some(path) => {
                let arguments = arguments(reference.type_arguments.as_deref(), depth);
                Ty::Name(Name { source: None, path, arguments })
            }
            None => Ty::Beyond("`this` as a type"),
        },
        TSType::TSImportType(import) => Ty::Name(Name {
            source: Some(import.source.value.to_string()),
            path: import.qualifier.as_ref().map(qualifier).unwrap_or_default(),
            arguments: arguments(import.type_arguments.as_deref(), depth),
        }),
        TSType::TSTypeQuery(query) => {
            let (source, path) = match &query.expr_name {
                TSTypeQueryExprName::TSImportType(import) => {
                    let path = import.qualifier.as_ref().map(qualifier).unwrap_or_default();
                    (Some(import.source.value.to_string()), path)
                }
                other => (None, other.as_ts_type_name().and_then(path).unwrap_or_default()),
            };
            Ty::Typeof(Name { source, path, arguments: Vec::new() })
        }
        TSType::TSTypeOperatorType(operator) => match operator.operator {
            TSTypeOperatorOperator::Keyof => Ty::Keyof(node(&operator.type_annotation)),
            TSTypeOperatorOperator::Readonly => lower(&operator.type_annotation, depth),
            TSTypeOperatorOperator::Unique => Ty::Beyond("a symbol"),
        },
        TSType::TSIndexedAccessType(access) => {
            Ty::Indexed(node(&access.object_type), node(&access.index_type))
        }
        TSType::TSMappedType(mapped) => Ty::Mapped(Mapped {
            key: mapped.key.name.to_string(),
            constraint: node(&mapped.constraint),
            renamed: mapped.name_type.as_ref().map(node),
            value: mapped.type_annotation.as_ref().map(node),
            optional: match mapped.optional {
                None => Modifier::Keep,
                Some(TSMappedTypeModifierOperator::Minus) => Modifier::Remove,
                Some(_) => Modifier::Add,
            },
        }),
        TSType::TSConditionalType(conditional) => Ty::Conditional {
            check: node(&conditional.check_type),
            extends: node(&conditional.extends_type),
            yes: node(&conditional.true_type),
            no: node(&conditional.false_type),
        },
        TSType::TSTemplateLiteralType(template) => {
            let text = |raw: &str, cooked: Option<&str>| cooked.unwrap_or(raw).to_owned();
            Ty::Template(
                template
                    .quasis
                    .iter()
                    .map(|part| text(&part.value.raw, part.value.cooked.as_ref().map(|text| text.as_str())))
                    .collect(),
            )
        }
        TSType::TSFunctionType(function) => {
            return match Rc::try_unwrap(signature(&function.params, Some(&function.return_type), depth)) {
                Ok(signature) => signature,
                Err(_) => Ty::Beyond("this function"),
            };
        }
        TSType::TSConstructorType(_) => Ty::Beyond("a constructor"),
        TSType::TSInferType(_) => Ty::Beyond("`infer`"),
        TSType::TSThisType(_) => Ty::Beyond("`this` as a type"),
        TSType::TSTypePredicate(_) => Ty::Keyword(Keyword::Boolean),
        TSType::TSIntrinsicKeyword(_) => Ty::Keyword(Keyword::String),
        TSType::TSNamedTupleMember(_)
        | TSType::JSDocNullableType(_)
        | TSType::JSDocNonNullableType(_)
        | TSType::JSDocUnknownType(_) => Ty::Beyond("this form of type"),
    }
}
