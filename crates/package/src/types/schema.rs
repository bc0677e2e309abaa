//! From shapes to JSON Schema 2020-12 (`docs/protocol/descriptor.md` §9).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::evaluate::Evaluator;
use super::pieces::{BIG_INTEGER, constant, enumeration, holds_native, is_anything, list, push, reference};
use super::shape::{Encoded, Lazy, Place, Record, Shape};
use super::syntax::Literal;

/// Values nested deeper are not described.
const DEEPEST: usize = 48;
/// Parts beyond these are not described: a schema travels with every run.
const MOST_PARTS: usize = 4_000;

/// Which way the values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the program: what JSON cannot hold is restored.
    Input,
    /// From the program: what JSON cannot hold is encoded.
    Output,
}

/// A part of a type that stays raw JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Where it is: `input.items[].when`.
    pub(super) place: String,
    pub(super) why: String,
}

pub(super) struct Emitter<'e, 'r> {
    evaluator: &'e mut Evaluator<'r>,
    direction: Direction,
    /// Named types that are being described, and the name of those that occur in themselves.
    open: Vec<(String, Option<String>)>,
    /// Names of the definitions, by key of the type.
    named: HashMap<String, String>,
    definitions: BTreeMap<String, Value>,
    taken: BTreeSet<String>,
    parts: usize,
    pub(super) gaps: Vec<Gap>,
}

impl<'e, 'r> Emitter<'e, 'r> {
    pub(super) fn new(evaluator: &'e mut Evaluator<'r>, direction: Direction) -> Self {
        Self {
            evaluator,
            direction,
            open: Vec::new(),
            named: HashMap::new(),
            definitions: BTreeMap::new(),
            taken: BTreeSet::new(),
            parts: 0,
            gaps: Vec::new(),
        }
    }

    /// The schema of a whole value; none when it may be anything.
    pub(super) fn document(&mut self, lazy: &Lazy, place: &str) -> Option<Value> {
        let mut schema = self.emit(lazy, place, 0);
        let object = schema.as_object_mut()?;
        if object.is_empty() {
            return None;
        }
        if !self.definitions.is_empty() {
            let definitions = std::mem::take(&mut self.definitions);
            object.insert("$defs".into(), Value::Object(definitions.into_iter().collect()));
        }
        Some(schema)
    }

    fn gap(&mut self, place: &str, why: impl Into<String>) -> Value {
        let gap = Gap { place: place.to_owned(), why: why.into() };
        if !self.gaps.contains(&gap) {
            self.gaps.push(gap);
        }
        json!({})
    }

    fn emit(&mut self, lazy: &Lazy, place: &str, depth: usize) -> Value {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return self.gap("the rest", "the type is too large to be described whole");
        }
        if depth > DEEPEST {
            return self.gap(place, "it is nested too deeply");
        }
        let Some((key, name)) = self.evaluator.identity(lazy) else {
            return self.body(lazy, place, depth);
        };
        if let Some(known) = self.named.get(&key) {
            return reference(known);
        }
        if let Some(at) = self.open.iter().position(|(open, _)| *open == key) {
            let known = self.open.get(at).and_then(|(_, known)| known.clone());
            let definition = known.unwrap_or_else(|| self.free_name(&name));
            if let Some((_, known)) = self.open.get_mut(at) {
                *known = Some(definition.clone());
            }
            return reference(&definition);
        }
        self.open.push((key.clone(), None));
        let body = self.body(lazy, place, depth);
        match self.open.pop() {
            Some((_, Some(definition))) => {
                self.definitions.insert(definition.clone(), body);
                self.named.insert(key, definition.clone());
                reference(&definition)
            }
            _ => body,
        }
    }

    fn free_name(&mut self, name: &str) -> String {
        let mut free = name.to_owned();
        let mut number = 2;
        while !self.taken.insert(free.clone()) {
            free = format!("{name}{number}");
            number += 1;
        }
        free
    }

    fn body(&mut self, lazy: &Lazy, place: &str, depth: usize) -> Value {
        let shape = self.evaluator.shape(lazy);
        match &*shape {
            Shape::Open => json!({}),
            Shape::Beyond(why) => self.gap(place, why.clone()),
            Shape::Never => json!({ "not": {} }),
            Shape::Null | Shape::Nothing => json!({ "type": "null" }),
            Shape::Text => json!({ "type": "string" }),
            Shape::TextLike(pattern) => json!({ "type": "string", "pattern": pattern }),
            Shape::Number => json!({ "type": "number" }),
            Shape::Boolean => json!({ "type": "boolean" }),
            Shape::BigInt => json!({ "type": "string", "pattern": BIG_INTEGER }),
            Shape::Literal(literal) => constant(literal),
            Shape::Date => json!({ "type": "string", "format": "date-time" }),
            Shape::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Shape::OneWay { name, encoded } => self.one_way(name, *encoded, place),
            Shape::AnyObject => json!({ "type": "object" }),
            Shape::List(item) => {
                let items = self.emit(item, &format!("{place}[]"), depth + 1);
                list(items, false)
            }
            Shape::Set(item) => {
                let items = self.emit(item, &format!("{place}[]"), depth + 1);
                list(items, true)
            }
            Shape::Map(value) => match self.direction {
                Direction::Output => {
                    let record = Record { index: Some(value.clone()), ..Record::default() };
                    self.record(&record, place, depth)
                }
                Direction::Input => {
                    self.gap(place, "a `Map` is not restored from JSON; take a `Record` and make one")
                }
            },
            Shape::Tuple(places) => self.tuple(places, place, depth),
            Shape::Record(record) => self.record(record, place, depth),
            Shape::Union(_) => self.union(lazy, place, depth, false),
            Shape::All(parts) => {
                let parts: Vec<Value> = parts.iter().map(|part| self.emit(part, place, depth + 1)).collect();
                json!({ "allOf": parts })
            }
            Shape::Function { .. } => self.gap(place, "a function is left out of JSON"),
            Shape::Promise(_) => {
                self.gap(place, "a promise is not waited for: await it before it is returned")
            }
        }
    }

    fn one_way(&mut self, name: &str, encoded: Encoded, place: &str) -> Value {
        match (self.direction, encoded) {
            (Direction::Output, Encoded::Base64) => json!({ "type": "string", "contentEncoding": "base64" }),
            (Direction::Output, Encoded::Text) => json!({ "type": "string" }),
            (Direction::Input, Encoded::Base64) => {
                self.gap(place, format!("a `{name}` is not restored from JSON; declare a `Uint8Array`"))
            }
            (Direction::Input, Encoded::Text) => {
                self.gap(place, format!("a `{name}` is not restored from JSON; take a `string` and make one"))
            }
        }
    }

    fn tuple(&mut self, places: &[Place], place: &str, depth: usize) -> Value {
        let mut prefix = Vec::new();
        let mut rest = Value::Bool(false);
        let mut required = 0;
        for (index, item) in places.iter().enumerate() {
            let schema = self.emit(&item.lazy, &format!("{place}[{index}]"), depth + 1);
            if item.rest {
                rest = schema;
                continue;
            }
            if !item.optional {
                required = index + 1;
            }
            prefix.push(schema);
        }
        let mut schema = json!({ "type": "array", "items": rest });
        if let Some(object) = schema.as_object_mut() {
            if !prefix.is_empty() {
                object.insert("prefixItems".into(), Value::Array(prefix));
            }
            if required > 0 {
                object.insert("minItems".into(), json!(required));
            }
        }
        schema
    }

    fn record(&mut self, record: &Record, place: &str, depth: usize) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for name in &record.methods {
            self.gap(&format!("{place}.{name}"), "a method is left out of JSON");
        }
        for (name, field) in &record.fields {
            let place = format!("{place}.{name}");
            let shape = self.evaluator.shape(&field.lazy);
            if matches!(&*shape, Shape::Function { .. }) {
                self.gap(&place, "a function is left out of JSON");
                continue;
            }
            let branches = self.evaluator.branches(&field.lazy);
            let may_be_missing =
                field.optional || branches.iter().any(|(_, shape)| matches!(&**shape, Shape::Nothing));
            let schema = match may_be_missing && matches!(&*shape, Shape::Union(_)) {
                true => self.union(&field.lazy, &place, depth + 1, true),
                // `undefined` alone: the property is never there.
                false if matches!(&*shape, Shape::Nothing) => continue,
                false => self.emit(&field.lazy, &place, depth + 1),
            };
            // What JSON leaves out may be missing too.
            if !may_be_missing && !matches!(&*shape, Shape::Beyond(_)) {
                required.push(json!(name));
            }
            properties.insert(name.clone(), schema);
        }
        let mut schema = Map::new();
        schema.insert("type".into(), json!("object"));
        if !properties.is_empty() {
            schema.insert("properties".into(), Value::Object(properties));
        }
        if !required.is_empty() {
            schema.insert("required".into(), Value::Array(required));
        }
        if let Some(index) = &record.index {
            let rest = self.emit(index, &format!("{place}.*"), depth + 1);
            if !is_anything(&rest) {
                schema.insert("additionalProperties".into(), rest);
            }
        }
        Value::Object(schema)
    }

    /// The alternatives of a union; `in_property` when a value that is not there is no alternative.
    fn union(&mut self, lazy: &Lazy, place: &str, depth: usize, in_property: bool) -> Value {
        let branches = self.evaluator.branches(lazy);
        let is = |wanted: fn(&Shape) -> bool| branches.iter().any(|(_, shape)| wanted(shape));
        if is(|shape| matches!(shape, Shape::Open)) {
            return json!({});
        }
        let nullable = is(|shape| matches!(shape, Shape::Null))
            || !in_property && is(|shape| matches!(shape, Shape::Nothing));
        let mut alternatives: Vec<Value> = Vec::new();
        let mut literals: Vec<&Literal> = Vec::new();
        let all_texts = is(|shape| matches!(shape, Shape::Text));
        let all_numbers = is(|shape| matches!(shape, Shape::Number));
        let all_integers = is(|shape| matches!(shape, Shape::BigInt));
        let truth = |value: bool| {
            branches.iter().any(
                |(_, shape)| matches!(&**shape, Shape::Literal(Literal::Boolean(found)) if *found == value),
            )
        };
        let all_booleans = is(|shape| matches!(shape, Shape::Boolean)) || truth(true) && truth(false);
        for (branch, shape) in &branches {
            match &**shape {
                Shape::Null | Shape::Nothing => {}
                Shape::Function { .. } => drop(self.gap(place, "a function is left out of JSON")),
                Shape::Literal(literal) => match literal {
                    Literal::Text(_) if all_texts => {}
                    Literal::Number(_) if all_numbers => {}
                    Literal::BigInt(_) if all_integers => {}
                    Literal::Boolean(_) if all_booleans => {
                        push(&mut alternatives, json!({ "type": "boolean" }))
                    }
                    Literal::BigInt(_) => push(&mut alternatives, constant(literal)),
                    _ => literals.push(literal),
                },
                _ => {
                    let schema = self.emit(branch, place, depth + 1);
                    if is_anything(&schema) {
                        return schema;
                    }
                    push(&mut alternatives, schema);
                }
            }
        }
        if !literals.is_empty() {
            alternatives.insert(0, enumeration(&literals));
        }
        if self.direction == Direction::Input
            && alternatives.len() > 1
            && alternatives.iter().any(holds_native)
        {
            self.gap(
                place,
                "of several alternatives none is restored: dates, big integers, bytes and sets in it arrive as JSON",
            );
        }
        if nullable {
            push(&mut alternatives, json!({ "type": "null" }));
        }
        match alternatives.len() {
            0 => json!({ "not": {} }),
            1 => alternatives.remove(0),
            _ => json!({ "anyOf": alternatives }),
        }
    }
}

/// What a function returns, with the promise around it taken off.
pub(super) fn returned(evaluator: &mut Evaluator<'_>, output: &Lazy) -> Lazy {
    match &*evaluator.shape(output) {
        // The inner type keeps its name, which matters when it occurs in itself.
        Shape::Promise(inner) if !matches!(&*evaluator.shape(inner), Shape::Promise(_)) => inner.clone(),
        Shape::Promise(_) | Shape::Union(_) => {
            let awaited = evaluator.awaited(output);
            match &*awaited {
                Shape::Union(parts)
                    if Rc::ptr_eq(&awaited, &evaluator.shape(output)) && !parts.is_empty() =>
                {
                    output.clone()
                }
                _ => Lazy::of(awaited),
            }
        }
        _ => output.clone(),
    }
}
