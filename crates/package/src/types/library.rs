//! The types that every program knows without an import.

use std::rc::Rc;

use super::evaluate::{Evaluator, beyond};
use super::operators::union_of;
use super::shape::{Encoded, Field, Lazy, Record, Shape};

/// Known everywhere, and nothing that JSON could carry.
const NOT_JSON: [&str; 18] = [
    "RegExp",
    "Error",
    "TypeError",
    "RangeError",
    "AggregateError",
    "Function",
    "Symbol",
    "WeakMap",
    "WeakSet",
    "WeakRef",
    "DataView",
    "Blob",
    "File",
    "Request",
    "Response",
    "AbortSignal",
    "ReadableStream",
    "Iterable",
];

impl Evaluator<'_> {
    pub(super) fn built_in(&mut self, name: &str, arguments: &[Lazy]) -> Rc<Shape> {
        let first = arguments.first().cloned().unwrap_or_else(|| Lazy::known(Shape::Open));
        let second = arguments.get(1).cloned().unwrap_or_else(|| Lazy::known(Shape::Open));
        Rc::new(match name {
            "Array" | "ReadonlyArray" => Shape::List(first),
            "Set" | "ReadonlySet" => Shape::Set(first),
            "Map" | "ReadonlyMap" => match self.keys(&first) {
                Some(_) => Shape::Map(second),
                None => return beyond("a map whose keys are not text"),
            },
            "Date" => Shape::Date,
            "Uint8Array" => Shape::Bytes,
            "Buffer" => Shape::OneWay { name: "Buffer", encoded: Encoded::Base64 },
            "ArrayBuffer" => Shape::OneWay { name: "ArrayBuffer", encoded: Encoded::Base64 },
            "URL" => Shape::OneWay { name: "URL", encoded: Encoded::Text },
            "String" | "Uppercase" | "Lowercase" | "Capitalize" | "Uncapitalize" => Shape::Text,
            "Number" => Shape::Number,
            "Boolean" => Shape::Boolean,
            "BigInt" => Shape::BigInt,
            "Object" => Shape::AnyObject,
            "Promise" | "PromiseLike" => Shape::Promise(first),
            "Awaited" => return self.awaited(&first),
            "NoInfer" => return self.shape(&first),
            "Readonly" => return self.shape(&first),
            "Partial" => return self.with_optional(&first, true),
            "Required" => return self.with_optional(&first, false),
            "Record" => return self.dictionary(&first, &second),
            "Pick" => return self.picked(&first, &second, true),
            "Omit" => return self.picked(&first, &second, false),
            "Exclude" => return self.filtered(&first, &second, false),
            "Extract" => return self.filtered(&first, &second, true),
            "NonNullable" => return self.without_null(&first),
            "ReturnType" => match &*self.shape(&first) {
                Shape::Function { output: Some(output), .. } => return self.shape(&output.clone()),
                _ => return beyond("the result of a function whose type is not written"),
            },
            name if NOT_JSON.contains(&name) || name.ends_with("Array") => {
                return beyond(format!("`{name}` has no form as JSON that could be restored"));
            }
            _ => return beyond(format!("`{name}` is not declared in the program")),
        })
    }

    /// What is left when a promise was waited for.
    pub(super) fn awaited(&mut self, lazy: &Lazy) -> Rc<Shape> {
        let mut shape = self.shape(lazy);
        for _ in 0..16 {
            let inner = match &*shape {
                Shape::Promise(inner) => inner.clone(),
                Shape::Union(_) => {
                    let branches = self.branches(lazy);
                    if !branches.iter().any(|(_, shape)| matches!(&**shape, Shape::Promise(_))) {
                        return shape;
                    }
                    let parts = branches.into_iter().map(|(lazy, _)| Lazy::of(self.awaited(&lazy)));
                    return Rc::new(Shape::Union(parts.collect()));
                }
                _ => return shape,
            };
            shape = self.shape(&inner);
            if matches!(&*shape, Shape::Union(_)) {
                return self.awaited(&inner);
            }
        }
        shape
    }

    fn with_optional(&mut self, lazy: &Lazy, optional: bool) -> Rc<Shape> {
        let shape = self.shape(lazy);
        match &*shape {
            Shape::Record(record) => {
                let mut changed = Record { index: record.index.clone(), ..Record::default() };
                for (name, field) in &record.fields {
                    let lazy = match optional {
                        true => field.lazy.clone(),
                        false if field.optional => Lazy::of(self.without_nothing(&field.lazy)),
                        false => field.lazy.clone(),
                    };
                    changed.set(name, Field { lazy, optional });
                }
                Rc::new(Shape::Record(changed))
            }
            Shape::Union(parts) => Rc::new(Shape::Union(
                parts.iter().map(|part| Lazy::of(self.with_optional(part, optional))).collect(),
            )),
            _ => shape,
        }
    }

    fn dictionary(&mut self, keys: &Lazy, value: &Lazy) -> Rc<Shape> {
        let Some(keys) = self.keys(keys) else { return beyond("a record with computed keys") };
        let mut record = Record { index: keys.open.then(|| value.clone()), ..Record::default() };
        for name in keys.names {
            record.set(&name, Field { lazy: value.clone(), optional: false });
        }
        Rc::new(Shape::Record(record))
    }

    fn picked(&mut self, object: &Lazy, keys: &Lazy, keep: bool) -> Rc<Shape> {
        let Some(keys) = self.keys(keys) else { return beyond("a choice of computed keys") };
        let shape = self.shape(object);
        let record = match &*shape {
            Shape::Record(record) => record,
            Shape::Open | Shape::Beyond(_) => return shape,
            Shape::Union(_) => {
                let branches = self.branches(object);
                let names = keys.names.into_iter();
                let literal = |name| Lazy::known(Shape::Literal(super::syntax::Literal::Text(name)));
                let again = Lazy::known(Shape::Union(names.map(literal).collect()));
                let parts = branches.into_iter().map(|(lazy, _)| Lazy::of(self.picked(&lazy, &again, keep)));
                return Rc::new(Shape::Union(parts.collect()));
            }
            _ => return beyond("a choice of properties of what is no object"),
        };
        let mut chosen = Record::default();
        for (name, field) in &record.fields {
            if keys.names.contains(name) == keep {
                chosen.set(name, field.clone());
            }
        }
        if keep == keys.open {
            chosen.index.clone_from(&record.index);
        }
        Rc::new(Shape::Record(chosen))
    }

    fn filtered(&mut self, union: &Lazy, by: &Lazy, keep: bool) -> Rc<Shape> {
        let mut left = Vec::new();
        for (lazy, shape) in self.branches(union) {
            match self.assignable(&lazy, by, 0) {
                Some(fits) if fits == keep => left.push((lazy, shape)),
                Some(_) => {}
                None => return beyond("a choice of alternatives that cannot be decided here"),
            }
        }
        union_of(left)
    }

    /// Whether a value of one type is certainly one of the other, or certainly not.
    pub(super) fn assignable(&mut self, from: &Lazy, to: &Lazy, depth: usize) -> Option<bool> {
        use super::syntax::Literal;
        if depth > 16 {
            return None;
        }
        let (source, target) = (self.shape(from), self.shape(to));
        let all = |results: Vec<Option<bool>>| {
            if results.contains(&Some(false)) {
                Some(false)
            } else {
                results.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
            }
        };
        Some(match (&*source, &*target) {
            (Shape::Beyond(_), _) | (_, Shape::Beyond(_)) => return None,
            (_, Shape::Open) | (Shape::Never, _) => true,
            (Shape::Open, _) => return None,
            (_, Shape::Never) => false,
            (Shape::Union(_), _) => {
                let branches = self.branches(from);
                return all(branches.iter().map(|(lazy, _)| self.assignable(lazy, to, depth + 1)).collect());
            }
            (_, Shape::Union(_)) => {
                let branches = self.branches(to);
                let results: Vec<_> =
                    branches.iter().map(|(lazy, _)| self.assignable(from, lazy, depth + 1)).collect();
                if results.contains(&Some(true)) {
                    true
                } else if results.contains(&None) {
                    return None;
                } else {
                    false
                }
            }
            (Shape::Literal(left), Shape::Literal(right)) => left == right,
            (Shape::Literal(Literal::Text(_)) | Shape::TextLike(_), Shape::Text)
            | (Shape::Literal(Literal::Number(_)), Shape::Number)
            | (Shape::Literal(Literal::Boolean(_)), Shape::Boolean)
            | (Shape::Literal(Literal::BigInt(_)), Shape::BigInt)
            | (Shape::Text, Shape::Text)
            | (Shape::Number, Shape::Number)
            | (Shape::Boolean, Shape::Boolean)
            | (Shape::BigInt, Shape::BigInt)
            | (Shape::Null, Shape::Null)
            | (Shape::Nothing, Shape::Nothing)
            | (Shape::Date, Shape::Date)
            | (Shape::Bytes, Shape::Bytes) => true,
            (Shape::Literal(Literal::Text(_)), Shape::TextLike(_)) => return None,
            (left, Shape::AnyObject) => is_object(left),
            (left, Shape::Record(wanted)) if wanted.is_empty() => {
                !matches!(left, Shape::Null | Shape::Nothing)
            }
            (Shape::Record(given), Shape::Record(wanted)) => {
                let mut results = Vec::new();
                for (name, field) in &wanted.fields {
                    results.push(match given.field(name) {
                        None => Some(field.optional),
                        Some(found) if found.optional && !field.optional => Some(false),
                        Some(found) => self.assignable(&found.lazy, &field.lazy, depth + 1),
                    });
                }
                if wanted.index.is_some() || !wanted.methods.is_empty() {
                    results.push(None);
                }
                return all(results);
            }
            (Shape::List(left), Shape::List(right)) | (Shape::Set(left), Shape::Set(right)) => {
                return self.assignable(left, right, depth + 1);
            }
            (Shape::Tuple(places), Shape::List(item)) => {
                let places = places.clone();
                return all(places
                    .iter()
                    .map(|place| self.assignable(&place.lazy, item, depth + 1))
                    .collect());
            }
            (Shape::Function { .. } | Shape::All(_) | Shape::Promise(_) | Shape::Tuple(_), _)
            | (_, Shape::Function { .. } | Shape::All(_) | Shape::Promise(_) | Shape::Tuple(_)) => {
                return None;
            }
            _ => false,
        })
    }
}

fn is_object(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Record(_)
            | Shape::List(_)
            | Shape::Set(_)
            | Shape::Map(_)
            | Shape::Tuple(_)
            | Shape::Date
            | Shape::Bytes
            | Shape::OneWay { .. }
            | Shape::AnyObject
            | Shape::Function { .. }
            | Shape::Promise(_)
    )
}
