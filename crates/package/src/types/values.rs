//! The types of values that are written out: constants, enum members, functions.

use std::collections::BTreeMap;
use std::rc::Rc;

use oxc::ast::ast::{
    ArrayExpressionElement, Expression, ObjectPropertyKind, TSEnumDeclaration, TSType, UnaryExpression,
};
use oxc::syntax::operator::{BinaryOperator, UnaryOperator};

use super::syntax::{Item, Keyword, Literal, Member, Name, Node, Ty};
use super::written::{node, signature};

/// The name that an expression consists of: `run`, also in parentheses and under an assertion.
pub(super) fn name_of(expression: &Expression<'_>) -> Option<String> {
    match expression.get_inner_expression() {
        Expression::Identifier(identifier) => Some(identifier.name.to_string()),
        _ => None,
    }
}

/// Whether a constant of this value keeps it as its type: `const A = "a"` is an `"a"`.
pub(super) fn is_scalar(expression: &Expression<'_>) -> bool {
    matches!(
        expression,
        Expression::StringLiteral(_)
            | Expression::NumericLiteral(_)
            | Expression::BooleanLiteral(_)
            | Expression::BigIntLiteral(_)
            | Expression::UnaryExpression(_)
            | Expression::TemplateLiteral(_)
    )
}

/// The type of an expression; `exact` as under `as const`.
pub(super) fn of(expression: &Expression<'_>, exact: bool) -> Node {
    let ty = match expression {
        Expression::TSAsExpression(cast) => return asserted(&cast.expression, &cast.type_annotation),
        Expression::TSTypeAssertion(cast) => return asserted(&cast.expression, &cast.type_annotation),
        Expression::TSSatisfiesExpression(checked) => {
            return satisfied(&checked.expression, &checked.type_annotation);
        }
        Expression::TSNonNullExpression(inner) => return of(&inner.expression, exact),
        Expression::ParenthesizedExpression(inner) => return of(&inner.expression, exact),
        Expression::ArrowFunctionExpression(arrow) => {
            return signature(&arrow.params, arrow.return_type.as_deref(), 0);
        }
        Expression::FunctionExpression(function) => {
            return signature(&function.params, function.return_type.as_deref(), 0);
        }
        Expression::CallExpression(call) => match frozen(call) {
            Some(inner) => return of(inner, exact),
            None => Ty::Beyond("the result of a call"),
        },
        Expression::Identifier(identifier) if identifier.name != "undefined" => {
            Ty::Typeof(Name { source: None, path: vec![identifier.name.to_string()], arguments: Vec::new() })
        }
        Expression::Identifier(_) => Ty::Keyword(Keyword::Nothing),
        Expression::NullLiteral(_) => Ty::Keyword(Keyword::Null),
        Expression::ArrayExpression(array) => return elements(&array.elements, exact),
        Expression::ObjectExpression(object) => {
            let members: Option<Vec<Member>> = object
                .properties
                .iter()
                .map(|property| match property {
                    ObjectPropertyKind::ObjectProperty(property) if property.method => {
                        Some(Member::Method(property.key.static_name()?.to_string()))
                    }
                    ObjectPropertyKind::ObjectProperty(property) => Some(Member::Property {
                        name: property.key.static_name()?.to_string(),
                        node: of(&property.value, exact),
                        optional: false,
                    }),
                    ObjectPropertyKind::SpreadProperty(_) => None,
                })
                .collect();
            members.map_or(Ty::Beyond("an object with computed keys"), Ty::Object)
        }
        other => match constant(other, &BTreeMap::new()) {
            Some(literal) if exact => Ty::Literal(literal),
            Some(Literal::Text(_)) => Ty::Keyword(Keyword::String),
            Some(Literal::Number(_)) => Ty::Keyword(Keyword::Number),
            Some(Literal::Boolean(_)) => Ty::Keyword(Keyword::Boolean),
            Some(Literal::BigInt(_)) => Ty::Keyword(Keyword::BigInt),
            None => Ty::Beyond("a computed value"),
        },
    };
    Rc::new(ty)
}

fn asserted(expression: &Expression<'_>, ty: &TSType<'_>) -> Node {
    let is_const = matches!(ty, TSType::TSTypeReference(reference)
        if reference.type_name.get_identifier_reference().is_some_and(|name| name.name == "const"));
    if is_const { of(expression, true) } else { node(ty, 0) }
}

/// `satisfies` keeps the expression's own type; a function without types of its own takes the other's.
fn satisfied(expression: &Expression<'_>, ty: &TSType<'_>) -> Node {
    let own = of(expression, false);
    let untyped = matches!(&*own, Ty::Function { input, output }
        if output.is_none() && !matches!(input, super::syntax::Parameter::Typed { .. }));
    if untyped { node(ty, 0) } else { own }
}

/// `Object.freeze(x)` is an x.
fn frozen<'e, 'a>(call: &'e oxc::ast::ast::CallExpression<'a>) -> Option<&'e Expression<'a>> {
    let Expression::StaticMemberExpression(member) = &call.callee else { return None };
    let object = name_of(&member.object)?;
    (object == "Object" && member.property.name == "freeze")
        .then(|| call.arguments.first()?.as_expression())?
}

fn elements(elements: &[ArrayExpressionElement<'_>], exact: bool) -> Node {
    let nodes: Option<Vec<Node>> =
        elements.iter().map(|element| element.as_expression().map(|element| of(element, exact))).collect();
    Rc::new(match nodes {
        None => Ty::Beyond("a list with spread elements"),
        Some(nodes) if exact => {
            Ty::Tuple(nodes.into_iter().map(|node| Item { node, optional: false, rest: false }).collect())
        }
        Some(nodes) if nodes.is_empty() => Ty::Array(Rc::new(Ty::Keyword(Keyword::Open))),
        Some(nodes) => Ty::Array(Rc::new(Ty::Union(nodes))),
    })
}

/// A number behind its sign, as literal types have it.
pub(super) fn negative(unary: &UnaryExpression<'_>) -> Ty {
    let value = match &unary.argument {
        Expression::NumericLiteral(number) => Literal::Number(number.value),
        Expression::BigIntLiteral(number) => Literal::BigInt(number.value.to_string()),
        _ => return Ty::Beyond("a computed number"),
    };
    match (unary.operator, value) {
        (UnaryOperator::UnaryPlus, value) => Ty::Literal(value),
        (UnaryOperator::UnaryNegation, Literal::Number(number)) => Ty::Literal(Literal::Number(-number)),
        (UnaryOperator::UnaryNegation, Literal::BigInt(digits)) => {
            Ty::Literal(Literal::BigInt(format!("-{digits}")))
        }
        _ => Ty::Beyond("a computed number"),
    }
}

/// The members of an enum with their values.
pub(super) fn enumerate(declared: &TSEnumDeclaration<'_>) -> Vec<(String, Option<Literal>)> {
    let mut known: BTreeMap<String, Literal> = BTreeMap::new();
    let mut next = Some(0.0);
    let mut members = Vec::new();
    for member in &declared.body.members {
        let name = member.id.static_name().to_string();
        let value = match &member.initializer {
            None => next.map(Literal::Number),
            Some(initializer) => constant(initializer, &known),
        };
        next = match &value {
            Some(Literal::Number(number)) => Some(number + 1.0),
            _ => None,
        };
        if let Some(value) = &value {
            known.insert(name.clone(), value.clone());
        }
        members.push((name, value));
    }
    members
}

/// The value of an expression that needs nothing but the members before it.
fn constant(expression: &Expression<'_>, known: &BTreeMap<String, Literal>) -> Option<Literal> {
    match expression.get_inner_expression() {
        Expression::StringLiteral(found) => Some(Literal::Text(found.value.to_string())),
        Expression::NumericLiteral(found) => Some(Literal::Number(found.value)),
        Expression::BooleanLiteral(found) => Some(Literal::Boolean(found.value)),
        Expression::BigIntLiteral(found) => Some(Literal::BigInt(found.value.to_string())),
        Expression::TemplateLiteral(found) => {
            found.single_quasi().map(|text| Literal::Text(text.to_string()))
        }
        Expression::Identifier(found) => known.get(found.name.as_str()).cloned(),
        Expression::StaticMemberExpression(member) => known.get(member.property.name.as_str()).cloned(),
        Expression::UnaryExpression(unary) => match (unary.operator, constant(&unary.argument, known)?) {
            (UnaryOperator::UnaryNegation, Literal::Number(number)) => Some(Literal::Number(-number)),
            (UnaryOperator::UnaryNegation, Literal::BigInt(digits)) => {
                Some(Literal::BigInt(format!("-{digits}")))
            }
            (UnaryOperator::UnaryPlus, Literal::Number(number)) => Some(Literal::Number(number)),
            (UnaryOperator::BitwiseNot, Literal::Number(number)) => {
                Some(Literal::Number(f64::from(!whole(number))))
            }
            _ => None,
        },
        Expression::BinaryExpression(binary) => {
            let (left, right) = (constant(&binary.left, known)?, constant(&binary.right, known)?);
            match (left, right) {
                (Literal::Text(left), Literal::Text(right))
                    if binary.operator == BinaryOperator::Addition =>
                {
                    Some(Literal::Text(left + &right))
                }
                (Literal::Number(left), Literal::Number(right)) => {
                    arithmetic(binary.operator, left, right).map(Literal::Number)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "flags of enums are small; others wrap as in the language"
)]
fn whole(number: f64) -> i32 {
    number as i64 as i32
}

fn arithmetic(operator: BinaryOperator, left: f64, right: f64) -> Option<f64> {
    let shift = |right: f64| u32::try_from(whole(right) & 31).unwrap_or(0);
    Some(match operator {
        BinaryOperator::Addition => left + right,
        BinaryOperator::Subtraction => left - right,
        BinaryOperator::Multiplication => left * right,
        BinaryOperator::ShiftLeft => f64::from(whole(left).wrapping_shl(shift(right))),
        BinaryOperator::ShiftRight => f64::from(whole(left).wrapping_shr(shift(right))),
        BinaryOperator::BitwiseOR => f64::from(whole(left) | whole(right)),
        BinaryOperator::BitwiseAnd => f64::from(whole(left) & whole(right)),
        BinaryOperator::BitwiseXOR => f64::from(whole(left) ^ whole(right)),
        _ => return None,
    })
}
