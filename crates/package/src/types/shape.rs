//! What a type comes down to, one level deep: its parts are looked at when they are needed.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::syntax::{Literal, Node};
use super::world::ModuleId;

/// Where a written type is read: its module, its namespaces, and what its type parameters stand for.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) module: ModuleId,
    pub(super) namespaces: Vec<String>,
    pub(super) bindings: BTreeMap<String, Lazy>,
    /// Tells scopes of the same text apart by their bindings.
    pub(super) key: String,
}

/// A type that is looked at later.
#[derive(Debug, Clone)]
pub(super) enum Lazy {
    Written(Node, Rc<Scope>),
    /// With a number of its own: an address may be another's later.
    Known(Rc<Shape>, u64),
}

impl Lazy {
    pub(super) fn known(shape: Shape) -> Self {
        Self::of(Rc::new(shape))
    }

    pub(super) fn of(shape: Rc<Shape>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Known(shape, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Equal for types that are certainly equal.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Written(node, scope) => format!("{:p}@{}", Rc::as_ptr(node), scope.key),
            Self::Known(shape, number) => match &**shape {
                Shape::Literal(Literal::Text(text)) => format!("{text:?}"),
                Shape::Literal(literal) => format!("{literal:?}"),
                _ => format!("#{number}"),
            },
        }
    }
}

#[derive(Debug)]
pub(super) enum Shape {
    /// The author leaves it open: any JSON.
    Open,
    /// Not understood: any JSON, and a reason to warn.
    Beyond(String),
    Never,
    Null,
    Nothing,
    Text,
    /// Text in a form of its own, as a pattern.
    TextLike(String),
    Number,
    Boolean,
    BigInt,
    Literal(Literal),
    Date,
    Bytes,
    /// Encoded on the way out, not restored on the way in.
    OneWay {
        name: &'static str,
        encoded: Encoded,
    },
    AnyObject,
    List(Lazy),
    Set(Lazy),
    /// A map and its values; keys are text.
    Map(Lazy),
    Tuple(Vec<Place>),
    Record(Record),
    Union(Vec<Lazy>),
    /// All of them at once, where they are no objects.
    All(Vec<Lazy>),
    Function {
        input: Input,
        output: Option<Lazy>,
    },
    /// What comes later; JSON has none.
    Promise(Lazy),
}

/// How a native value that is not restored looks as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoded {
    Base64,
    Text,
}

#[derive(Debug, Clone)]
pub(super) enum Input {
    None,
    Untyped,
    Typed { lazy: Lazy, optional: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) lazy: Lazy,
    pub(super) optional: bool,
    pub(super) rest: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) lazy: Lazy,
    pub(super) optional: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    /// In the order of the text.
    pub(super) fields: Vec<(String, Field)>,
    pub(super) index: Option<Lazy>,
    /// Methods: JSON has none.
    pub(super) methods: Vec<String>,
}

impl Record {
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| field)
    }

    /// Adds a field; a later one of the same name takes its place.
    pub(super) fn set(&mut self, name: &str, field: Field) {
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = field,
            None => self.fields.push((name.to_owned(), field)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.index.is_none() && self.methods.is_empty()
    }
}
