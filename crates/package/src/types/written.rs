//! Types of the text, without their text.

use std::rc::Rc;

use oxc::ast::ast::{
    FormalParameters, PropertyKey, TSImportTypeQualifier, TSLiteral, TSMappedTypeModifierOperator,
    TSMethodSignatureKind, TSSignature, TSTupleElement, TSType, TSTypeAnnotation, TSTypeName,
    TSTypeOperatorOperator, TSTypeParameterDeclaration, TSTypeParameterInstantiation, TSTypeQueryExprName,
};

use super::syntax::{
    Item, Keyword, Literal, Mapped, Member, Modifier, Name, Node, Parameter, Ty, TypeParameter,
};
use super::values;

/// Types that nest deeper are not followed.
const DEEPEST: usize = 64;

pub(super) fn type_parameters(declared: Option<&TSTypeParameterDeclaration<'_>>) -> Vec<TypeParameter> {
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

pub(super) fn named(
    name: &TSTypeName<'_>,
    given: Option<&TSTypeParameterInstantiation<'_>>,
    depth: usize,
) -> Node {
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

pub(super) fn members(signatures: &[TSSignature<'_>], depth: usize) -> Vec<Member> {
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
            match Rc::try_unwrap(signature(&function.params, Some(&function.return_type), depth)) {
                Ok(signature) => signature,
                Err(_) => Ty::Beyond("this function"),
            }
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
