//! Type operators: unions taken apart, intersections, `keyof`, indexing, mapped and conditional types.

use std::rc::Rc;

use super::evaluate::{Evaluator, beyond, bound};
use super::shape::{Field, Lazy, Record, Scope, Shape};
use super::syntax::{Literal, Mapped, Modifier, Node, Ty};

/// Branches beyond these are not multiplied out.
const MOST_BRANCHES: usize = 256;

/// The keys that a type stands for.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) names: Vec<String>,
    /// Any text.
    pub(super) open: bool,
}

impl Evaluator<'_> {
    /// The alternatives of a type, unions within unions taken apart.
    pub(super) fn branches(&mut self, lazy: &Lazy) -> Vec<(Lazy, Rc<Shape>)> {
        let mut found = Vec::new();
        self.add_branches(lazy, &mut found, 0);
        found
    }

    fn add_branches(&mut self, lazy: &Lazy, found: &mut Vec<(Lazy, Rc<Shape>)>, depth: usize) {
        let shape = self.shape(lazy);
        match &*shape {
            _ if found.len() >= 4_096 => {}
            Shape::Union(parts) if depth < 64 => {
                for part in parts {
                    self.add_branches(part, found, depth + 1);
                }
            }
            Shape::Never => {}
            _ => found.push((lazy.clone(), shape)),
        }
    }

    pub(super) fn keys(&mut self, lazy: &Lazy) -> Option<Keys> {
        let mut keys = Keys::default();
        for (_, shape) in self.branches(lazy) {
            match &*shape {
                Shape::Literal(Literal::Text(text)) => keys.names.push(text.clone()),
                Shape::Literal(Literal::Number(number)) => keys.names.push(number.to_string()),
                Shape::Text | Shape::Number | Shape::TextLike(_) => keys.open = true,
                _ => return None,
            }
        }
        Some(keys)
    }

    /// `keyof T`.
    pub(super) fn keys_of(&mut self, lazy: &Lazy) -> Rc<Shape> {
        match &*self.shape(lazy) {
            Shape::Record(record) => {
                let text = |name: &String| Lazy::known(Shape::Literal(Literal::Text(name.clone())));
                let mut parts: Vec<Lazy> =
                    record.fields.iter().map(|(name, _)| name).chain(&record.methods).map(text).collect();
                parts.extend(record.index.iter().map(|_| Lazy::known(Shape::Text)));
                Rc::new(Shape::Union(parts))
            }
            Shape::Open => Rc::new(Shape::Text),
            Shape::Beyond(why) => beyond(why.clone()),
            _ => beyond("`keyof` of what is no object"),
        }
    }

    /// `T[K]`.
    pub(super) fn indexed(&mut self, object: &Lazy, index: &Lazy) -> Rc<Shape> {
        let shape = self.shape(object);
        let position = match &*self.shape(index) {
            Shape::Literal(Literal::Number(number)) => Some(*number),
            Shape::Literal(Literal::Text(text)) => text.parse().ok(),
            _ => None,
        };
        match &*shape {
            Shape::Open => shape,
            Shape::Beyond(_) => shape,
            Shape::Record(record) => self.field_of(record, index),
            Shape::List(item) | Shape::Set(item) => self.shape(item),
            Shape::Tuple(places) => match position {
                Some(position) => {
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
                    let place = places.get(position as usize);
                    match place {
                        Some(place) => self.shape(&place.lazy),
                        None => beyond("a tuple has no such place"),
                    }
                }
                None => Rc::new(Shape::Union(places.iter().map(|place| place.lazy.clone()).collect())),
            },
            Shape::Union(parts) => {
                let parts = parts.clone();
                Rc::new(Shape::Union(parts.iter().map(|part| Lazy::of(self.indexed(part, index))).collect()))
            }
            _ => beyond("a part of what has no parts"),
        }
    }

    fn field_of(&mut self, record: &Record, index: &Lazy) -> Rc<Shape> {
        let Some(keys) = self.keys(index) else { return beyond("a computed key") };
        let mut parts = Vec::new();
        let mut add = |field: &Field| {
            parts.push(field.lazy.clone());
            if field.optional {
                parts.push(Lazy::known(Shape::Nothing));
            }
        };
        for name in &keys.names {
            match (record.field(name), &record.index) {
                (Some(field), _) => add(field),
                (None, Some(rest)) => add(&Field { lazy: rest.clone(), optional: false }),
                (None, None) => return beyond(format!("there is no property `{name}`")),
            }
        }
        if keys.open {
            match &record.index {
                Some(rest) => add(&Field { lazy: rest.clone(), optional: false }),
                None => return beyond("a computed key"),
            }
        }
        match parts.as_slice() {
            [only] => self.shape(only),
            _ => Rc::new(Shape::Union(parts)),
        }
    }

    /// `A & B`.
    pub(super) fn intersection(&mut self, parts: Vec<Lazy>) -> Rc<Shape> {
        let mut shapes: Vec<(Lazy, Rc<Shape>)> = Vec::new();
        for part in parts {
            let shape = self.shape(&part);
            match &*shape {
                Shape::Beyond(_) | Shape::Never => return shape,
                Shape::Open => {}
                Shape::All(inner) => {
                    for lazy in inner {
                        let shape = self.shape(lazy);
                        shapes.push((lazy.clone(), shape));
                    }
                }
                _ => shapes.push((part, shape)),
            }
        }
        let is_any_object = |shape: &Shape| match shape {
            Shape::AnyObject => true,
            Shape::Record(record) => record.is_empty(),
            _ => false,
        };
        if shapes.iter().any(|(_, shape)| !is_any_object(shape)) {
            let narrowed = shapes.iter().any(|(_, shape)| is_any_object(shape));
            shapes.retain(|(_, shape)| !is_any_object(shape));
            // `T & {}` is a T that is not null.
            if narrowed && let [(only, _)] = shapes.as_slice() {
                return self.without_null(&only.clone());
            }
        }
        if let Some(at) = shapes.iter().position(|(_, shape)| matches!(&**shape, Shape::Union(_))) {
            let (union, _) = shapes.remove(at);
            let branches = self.branches(&union);
            if branches.len() > MOST_BRANCHES {
                return beyond("an intersection with too many alternatives");
            }
            let rest: Vec<Lazy> = shapes.into_iter().map(|(lazy, _)| lazy).collect();
            let mut alternatives = Vec::new();
            for (branch, _) in branches {
                let all = rest.iter().cloned().chain([branch]).collect();
                alternatives.push(Lazy::of(self.intersection(all)));
            }
            return Rc::new(Shape::Union(alternatives));
        }
        self.joined(shapes)
    }

    fn joined(&mut self, shapes: Vec<(Lazy, Rc<Shape>)>) -> Rc<Shape> {
        let mut record = Record::default();
        let mut others: Vec<(Lazy, Rc<Shape>)> = Vec::new();
        let mut records = 0;
        for (lazy, shape) in shapes {
            match &*shape {
                Shape::Record(part) => {
                    records += 1;
                    self.join(&mut record, part);
                }
                _ if others.iter().any(|(_, known)| same_kind(known, &shape)) => {
                    // The narrower of two of one kind.
                    if matches!(&*shape, Shape::Literal(_)) {
                        others.retain(|(_, known)| !same_kind(known, &shape));
                        others.push((lazy, shape));
                    }
                }
                _ => others.push((lazy, shape)),
            }
        }
        match (others.as_slice(), records) {
            ([], 0) => Rc::new(Shape::Open),
            ([], _) => Rc::new(Shape::Record(record)),
            // A brand on a text, a number, a date is nothing that JSON shows.
            ([(_, only)], _) => Rc::clone(only),
            _ => Rc::new(Shape::All(others.into_iter().map(|(lazy, _)| lazy).collect())),
        }
    }

    fn join(&mut self, record: &mut Record, part: &Record) {
        for (name, field) in &part.fields {
            let joined = match record.field(name) {
                None => field.clone(),
                Some(known) => {
                    let optional = known.optional && field.optional;
                    let both = vec![known.lazy.clone(), field.lazy.clone()];
                    Field { lazy: Lazy::of(self.intersection(both)), optional }
                }
            };
            record.set(name, joined);
        }
        if part.index.is_some() {
            record.index.clone_from(&part.index);
        }
        record.methods.extend(part.methods.iter().cloned());
    }

    pub(super) fn without_null(&mut self, lazy: &Lazy) -> Rc<Shape> {
        let branches = self.branches(lazy);
        let left =
            branches.into_iter().filter(|(_, shape)| !matches!(&**shape, Shape::Null | Shape::Nothing));
        union_of(left.collect())
    }

    /// `{ [K in …]: … }`.
    pub(super) fn mapped(&mut self, mapped: &Mapped, scope: &Rc<Scope>) -> Rc<Shape> {
        let source = match &*mapped.constraint {
            Ty::Keyof(of) => {
                let lazy = Lazy::Written(Rc::clone(of), Rc::clone(scope));
                match &*self.shape(&lazy) {
                    Shape::Record(record) => Some(record.clone()),
                    Shape::Beyond(why) => return beyond(why.clone()),
                    _ => return beyond("a type that is made from the keys of what is no object"),
                }
            }
            _ => None,
        };
        let constraint = Lazy::Written(Rc::clone(&mapped.constraint), Rc::clone(scope));
        let Some(keys) = self.keys(&constraint) else {
            return beyond("a type that is made from computed keys");
        };
        let value = |scope: Scope| match &mapped.value {
            Some(node) => Lazy::Written(Rc::clone(node), Rc::new(scope)),
            None => Lazy::known(Shape::Open),
        };
        let mut record = Record::default();
        for name in keys.names {
            let inner = scope.with(&mapped.key, Lazy::known(Shape::Literal(Literal::Text(name.clone()))));
            let was_optional =
                source.as_ref().and_then(|source| source.field(&name)).is_some_and(|field| field.optional);
            let renamed = match &mapped.renamed {
                None => vec![name],
                Some(node) => {
                    let inner = scope.with(&mapped.key, Lazy::known(Shape::Literal(Literal::Text(name))));
                    match self.keys(&Lazy::Written(Rc::clone(node), Rc::new(inner))) {
                        Some(keys) if !keys.open => keys.names,
                        _ => return beyond("a type with computed property names"),
                    }
                }
            };
            let mut lazy = value(inner);
            let optional = match mapped.optional {
                Modifier::Keep => was_optional,
                Modifier::Add => true,
                Modifier::Remove => {
                    lazy = Lazy::of(self.without_nothing(&lazy));
                    false
                }
            };
            for name in renamed {
                record.set(&name, Field { lazy: lazy.clone(), optional });
            }
        }
        if keys.open {
            record.index = Some(value(scope.with(&mapped.key, Lazy::known(Shape::Text))));
        }
        Rc::new(Shape::Record(record))
    }

    pub(super) fn without_nothing(&mut self, lazy: &Lazy) -> Rc<Shape> {
        let branches = self.branches(lazy);
        union_of(branches.into_iter().filter(|(_, shape)| !matches!(&**shape, Shape::Nothing)).collect())
    }

    /// `A extends B ? C : D`, for each alternative of a type parameter on its own.
    pub(super) fn conditional(&mut self, parts: [&Node; 4], scope: &Rc<Scope>) -> Rc<Shape> {
        let [check, extends, yes, no] = parts;
        let parameter = match &**check {
            Ty::Name(name) if bound(check, scope).is_some() => name.path.first().cloned(),
            _ => None,
        };
        let whole = Lazy::Written(Rc::clone(check), Rc::clone(scope));
        let cases: Vec<(Lazy, Rc<Scope>)> = match parameter {
            None => vec![(whole, Rc::clone(scope))],
            Some(parameter) => {
                let branches = self.branches(&whole);
                branches
                    .into_iter()
                    .map(|(lazy, _)| (lazy.clone(), Rc::new(scope.with(&parameter, lazy))))
                    .collect()
            }
        };
        let mut results = Vec::new();
        for (lazy, scope) in cases {
            let target = Lazy::Written(Rc::clone(extends), Rc::clone(&scope));
            let chosen = match self.assignable(&lazy, &target, 0) {
                Some(true) => yes,
                Some(false) => no,
                None => return beyond("a conditional type that cannot be decided here"),
            };
            results.push(Lazy::Written(Rc::clone(chosen), scope));
        }
        match results.as_slice() {
            [only] => self.shape(only),
            _ => Rc::new(Shape::Union(results)),
        }
    }
}

/// A union of what is left of one.
pub(super) fn union_of(branches: Vec<(Lazy, Rc<Shape>)>) -> Rc<Shape> {
    match branches.as_slice() {
        [] => Rc::new(Shape::Never),
        [(_, only)] => Rc::clone(only),
        _ => Rc::new(Shape::Union(branches.into_iter().map(|(lazy, _)| lazy).collect())),
    }
}

fn same_kind(left: &Shape, right: &Shape) -> bool {
    let kind = |shape: &Shape| match shape {
        Shape::Text | Shape::TextLike(_) | Shape::Literal(Literal::Text(_)) => Some(0),
        Shape::Number | Shape::Literal(Literal::Number(_)) => Some(1),
        Shape::Boolean | Shape::Literal(Literal::Boolean(_)) => Some(2),
        Shape::BigInt | Shape::Literal(Literal::BigInt(_)) => Some(3),
        Shape::Date => Some(4),
        Shape::Bytes => Some(5),
        _ => None,
    };
    kind(left).is_some() && kind(left) == kind(right)
}
