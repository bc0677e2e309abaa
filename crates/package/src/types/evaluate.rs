//! From written types to shapes: names are followed, type parameters filled in, operators applied.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::shape::{Field, Input, Lazy, Place as TuplePlace, Record, Scope, Shape};
use super::syntax::{Declared, Item, Keyword, Literal, Member, Name, Node, Parameter, Ty};
use super::world::{ModuleId, Place, Space, World};

/// Types that refer to each other over more steps do not end.
const DEEPEST: usize = 100;
/// Work beyond this is not done: the type is too large to be of use to anybody.
const MOST_STEPS: usize = 200_000;
/// Types of the SDK that stand for any JSON.
const OPEN_SDK_TYPES: [&str; 3] = ["JsonValue", "JsonSchema", "Encodable"];

pub(super) struct Evaluator<'r> {
    pub(super) world: World<'r>,
    depth: usize,
    steps: usize,
}

impl<'r> Evaluator<'r> {
    pub(super) fn new(world: World<'r>) -> Self {
        Self { world, depth: 0, steps: 0 }
    }

    /// The scope of a module's top level.
    pub(super) fn top(module: ModuleId) -> Rc<Scope> {
        Rc::new(Scope { module, namespaces: Vec::new(), bindings: BTreeMap::new(), key: format!("{module}") })
    }

    /// What a type comes down to.
    pub(super) fn shape(&mut self, lazy: &Lazy) -> Rc<Shape> {
        let (node, scope) = match lazy {
            Lazy::Known(shape, _) => return Rc::clone(shape),
            Lazy::Written(node, scope) => (node, scope),
        };
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return beyond("the type is too large to follow");
        }
        if self.depth >= DEEPEST {
            return beyond("the type refers to itself without an end");
        }
        self.depth += 1;
        let shape = self.written(node, scope);
        self.depth -= 1;
        shape
    }

    fn written(&mut self, node: &Node, scope: &Rc<Scope>) -> Rc<Shape> {
        let lazy = |node: &Node| Lazy::Written(Rc::clone(node), Rc::clone(scope));
        let shape = match &**node {
            Ty::Keyword(keyword) => keyword_shape(*keyword),
            Ty::Literal(literal) => Shape::Literal(literal.clone()),
            Ty::Template(texts) => template(texts),
            Ty::Array(item) => Shape::List(lazy(item)),
            Ty::Tuple(items) => return self.tuple(items, scope),
            Ty::Union(parts) => Shape::Union(parts.iter().map(lazy).collect()),
            Ty::Intersection(parts) => {
                let parts = parts.iter().map(lazy).collect();
                return self.intersection(parts);
            }
            Ty::Object(members) => Shape::Record(record(members, scope)),
            Ty::Name(name) => return self.name(name, scope),
            Ty::Keyof(of) => return self.keys_of(&lazy(of)),
            Ty::Indexed(object, index) => return self.indexed(&lazy(object), &lazy(index)),
            Ty::Mapped(mapped) => return self.mapped(mapped, scope),
            Ty::Conditional { check, extends, yes, no } => {
                return self.conditional([check, extends, yes, no], scope);
            }
            Ty::Typeof(name) => return self.type_of_value(name, scope),
            Ty::Function { input, output } => Shape::Function {
                input: match input {
                    Parameter::None => Input::None,
                    Parameter::Untyped => Input::Untyped,
                    Parameter::Typed { node, optional } => {
                        Input::Typed { lazy: lazy(node), optional: *optional }
                    }
                },
                output: output.as_ref().map(lazy),
            },
            Ty::Beyond(what) => Shape::Beyond(format!("{what} cannot be written as JSON Schema")),
        };
        Rc::new(shape)
    }

    fn tuple(&mut self, items: &[Item], scope: &Rc<Scope>) -> Rc<Shape> {
        let mut places = Vec::new();
        for item in items {
            let lazy = Lazy::Written(Rc::clone(&item.node), Rc::clone(scope));
            if !item.rest {
                places.push(TuplePlace { lazy, optional: item.optional, rest: false });
                continue;
            }
            match &*self.shape(&lazy) {
                Shape::Tuple(inner) => places.extend(inner.iter().cloned()),
                Shape::List(inner) => {
                    places.push(TuplePlace { lazy: inner.clone(), optional: true, rest: true });
                }
                _ => return beyond("a tuple with a rest that is no list"),
            }
        }
        let rests = places.iter().filter(|place| place.rest).count();
        if rests > 1 || (rests == 1 && places.last().is_some_and(|last| !last.rest)) {
            return beyond("a tuple whose rest is not at its end");
        }
        Rc::new(Shape::Tuple(places))
    }

    // -- names

    /// An argument, or what a type parameter stands for in its place.
    fn settle(&self, node: &Node, scope: &Rc<Scope>) -> Lazy {
        match bound(node, scope) {
            Some(lazy) => lazy.clone(),
            None => Lazy::Written(Rc::clone(node), Rc::clone(scope)),
        }
    }

    fn place(&mut self, name: &Name, scope: &Scope, space: Space) -> Option<Place> {
        match &name.source {
            Some(source) => self.world.find_in(scope.module, source, &name.path, space),
            None => self.world.find(scope.module, &scope.namespaces, &name.path, space),
        }
    }

    /// The declared name behind a type: equal keys are equal types. None when it is written on the spot.
    pub(super) fn identity(&mut self, lazy: &Lazy) -> Option<(String, String)> {
        let Lazy::Written(node, scope) = lazy else { return None };
        if let Some(bound) = bound(node, scope) {
            return self.identity(&bound.clone());
        }
        let Ty::Name(name) = &**node else { return None };
        let place = self.place(name, scope, Space::Types)?;
        let arguments: Vec<String> =
            name.arguments.iter().map(|argument| self.settle(argument, scope).key()).collect();
        let key = format!("{}:{}<{}>", place.module, place.name, arguments.join(","));
        let simple = place.name.rsplit('.').next().unwrap_or(&place.name).to_owned();
        Some((key, simple))
    }

    fn name(&mut self, name: &Name, scope: &Rc<Scope>) -> Rc<Shape> {
        if let ([only], None) = (name.path.as_slice(), &name.source)
            && let Some(bound) = scope.bindings.get(only)
        {
            return self.shape(&bound.clone());
        }
        let arguments: Vec<Lazy> =
            name.arguments.iter().map(|argument| self.settle(argument, scope)).collect();
        if let Some(place) = self.place(name, scope, Space::Types) {
            return self.open(&place, arguments);
        }
        if let Some(shape) = self.enum_member(name, scope) {
            return shape;
        }
        let Some(first) = name.path.first() else { return beyond("a whole module is no type") };
        let source = match &name.source {
            Some(source) => Some(source.clone()),
            None => self.world.imported_from(scope.module, first).map(str::to_owned),
        };
        match source {
            Some(source) => beyond(format!("`{}` of `{source}` cannot be followed", name.path.join("."))),
            None if name.path.len() == 1 => self.built_in(first, &arguments),
            None => beyond(format!("`{}` is not declared in the program", name.path.join("."))),
        }
    }

    fn enum_member(&mut self, name: &Name, scope: &Scope) -> Option<Rc<Shape>> {
        let (member, path) = name.path.split_last()?;
        let outer = Name { source: name.source.clone(), path: path.to_vec(), arguments: Vec::new() };
        let place = self.place(&outer, scope, Space::Types)?;
        let declarations = self.world.declarations(&place);
        let found = declarations.iter().find_map(|declaration| match &declaration.kind {
            Declared::Enum(members) => members.iter().find(|(known, _)| known == member),
            _ => None,
        })?;
        Some(match &found.1 {
            Some(literal) => Rc::new(Shape::Literal(literal.clone())),
            None => beyond(format!("the value of `{}` is computed", name.path.join("."))),
        })
    }

    fn open(&mut self, place: &Place, arguments: Vec<Lazy>) -> Rc<Shape> {
        if self.world.is_sdk(place.module) && OPEN_SDK_TYPES.contains(&place.name.as_str()) {
            return Rc::new(Shape::Open);
        }
        let scope = self.scope_of(place, arguments);
        let mut record = Record::default();
        let declarations: Vec<Part> = self.world.declarations(place).iter().map(Part::of).collect();
        for part in declarations {
            match part {
                Part::Alias(node) => return self.shape(&Lazy::Written(node, scope)),
                Part::Enum(members) => {
                    if members.iter().any(|(_, value)| value.is_none()) {
                        return beyond(format!("the enum `{}` has computed members", place.name));
                    }
                    let literals = members.into_iter().filter_map(|(_, value)| value);
                    return Rc::new(Shape::Union(
                        literals.map(|literal| Lazy::known(Shape::Literal(literal))).collect(),
                    ));
                }
                Part::Class => {
                    return beyond(format!("`{}` is a class, and JSON holds no instances", place.name));
                }
                Part::Interface(extends, members) => {
                    for base in extends {
                        match &*self.shape(&Lazy::Written(base, Rc::clone(&scope))) {
                            Shape::Record(inherited) => merge(&mut record, inherited),
                            Shape::Beyond(why) => return beyond(why.clone()),
                            _ => return beyond(format!("`{}` extends what is no object", place.name)),
                        }
                    }
                    merge(&mut record, &self::record(&members, &scope));
                }
            }
        }
        Rc::new(Shape::Record(record))
    }

    fn scope_of(&mut self, place: &Place, arguments: Vec<Lazy>) -> Rc<Scope> {
        let mut namespaces: Vec<String> = place.name.split('.').map(str::to_owned).collect();
        namespaces.pop();
        let parameters = self.world.parameters(place).to_vec();
        let keys: Vec<String> = arguments.iter().map(Lazy::key).collect();
        let mut scope = Scope {
            module: place.module,
            namespaces,
            bindings: BTreeMap::new(),
            key: format!("{}:{}<{}>", place.module, place.name, keys.join(",")),
        };
        let mut arguments = arguments.into_iter();
        for parameter in parameters {
            let lazy = arguments.next().unwrap_or_else(|| match &parameter.default {
                // A default may name the parameters before it.
                Some(default) => {
                    let so_far = Scope {
                        module: scope.module,
                        namespaces: scope.namespaces.clone(),
                        bindings: scope.bindings.clone(),
                        key: scope.key.clone(),
                    };
                    Lazy::Written(Rc::clone(default), Rc::new(so_far))
                }
                None => Lazy::known(Shape::Open),
            });
            scope.bindings.insert(parameter.name, lazy);
        }
        Rc::new(scope)
    }

    fn type_of_value(&mut self, name: &Name, scope: &Rc<Scope>) -> Rc<Shape> {
        for length in (1..=name.path.len()).rev() {
            let (path, fields) = name.path.split_at(length);
            let outer = Name { source: name.source.clone(), path: path.to_vec(), arguments: Vec::new() };
            let found = match self.place(&outer, scope, Space::Values) {
                Some(place) => self.world.value(&place).map(|node| {
                    let mut scope = (*Self::top(place.module)).clone_top();
                    scope.namespaces = place.name.split('.').map(str::to_owned).collect();
                    scope.namespaces.pop();
                    Lazy::Written(node, Rc::new(scope))
                }),
                None => self.enum_object(&outer, scope),
            };
            let Some(mut lazy) = found else { continue };
            for field in fields {
                let index = Lazy::known(Shape::Literal(Literal::Text(field.clone())));
                lazy = Lazy::of(self.indexed(&lazy, &index));
            }
            return self.shape(&lazy);
        }
        beyond(format!("the type of `{}` is not written in the program", name.path.join(".")))
    }

    /// An enum as the object that it is at run time.
    fn enum_object(&mut self, name: &Name, scope: &Scope) -> Option<Lazy> {
        let place = self.place(name, scope, Space::Types)?;
        let members =
            self.world.declarations(&place).iter().find_map(|declaration| match &declaration.kind {
                Declared::Enum(members) => Some(members.clone()),
                _ => None,
            })?;
        let mut record = Record::default();
        for (member, value) in members {
            let lazy = Lazy::known(value.map_or(Shape::Open, Shape::Literal));
            record.set(&member, Field { lazy, optional: false });
        }
        Some(Lazy::known(Shape::Record(record)))
    }
}

/// A declaration's parts, out of the world's hands.
enum Part {
    Alias(Node),
    Interface(Vec<Node>, Rc<Vec<Member>>),
    Enum(Vec<(String, Option<Literal>)>),
    Class,
}

impl Part {
    fn of(declaration: &super::syntax::Declaration) -> Self {
        match &declaration.kind {
            Declared::Alias(node) => Self::Alias(Rc::clone(node)),
            Declared::Interface { extends, members } => Self::Interface(extends.clone(), Rc::clone(members)),
            Declared::Enum(members) => Self::Enum(members.clone()),
            Declared::Class => Self::Class,
        }
    }
}

/// What a type parameter stands for.
pub(super) fn bound<'s>(node: &Node, scope: &'s Scope) -> Option<&'s Lazy> {
    match &**node {
        Ty::Name(Name { source: None, path, .. }) if path.len() == 1 => scope.bindings.get(path.first()?),
        _ => None,
    }
}

pub(super) fn beyond(why: impl Into<String>) -> Rc<Shape> {
    Rc::new(Shape::Beyond(why.into()))
}

fn keyword_shape(keyword: Keyword) -> Shape {
    match keyword {
        Keyword::Open => Shape::Open,
        Keyword::String => Shape::Text,
        Keyword::Number => Shape::Number,
        Keyword::Boolean => Shape::Boolean,
        Keyword::BigInt => Shape::BigInt,
        Keyword::Null => Shape::Null,
        Keyword::Nothing => Shape::Nothing,
        Keyword::Never => Shape::Never,
        Keyword::Object => Shape::AnyObject,
    }
}

fn template(texts: &[String]) -> Shape {
    if let [only] = texts {
        return Shape::Literal(Literal::Text(only.clone()));
    }
    if texts.iter().all(String::is_empty) {
        return Shape::Text;
    }
    let escape = |text: &String| {
        text.chars().fold(String::new(), |mut out, letter| {
            if "\\^$.*+?()[]{}|/-".contains(letter) {
                out.push('\\');
            }
            out.push(letter);
            out
        })
    };
    Shape::TextLike(format!("^{}$", texts.iter().map(escape).collect::<Vec<_>>().join("[\\s\\S]*")))
}

fn record(members: &[Member], scope: &Rc<Scope>) -> Record {
    let mut record = Record::default();
    for member in members {
        match member {
            Member::Property { name, node, optional } => {
                let lazy = Lazy::Written(Rc::clone(node), Rc::clone(scope));
                record.set(name, Field { lazy, optional: *optional });
            }
            Member::Index(node) => record.index = Some(Lazy::Written(Rc::clone(node), Rc::clone(scope))),
            Member::Method(name) => record.methods.push(name.clone()),
        }
    }
    record
}

fn merge(record: &mut Record, other: &Record) {
    for (name, field) in &other.fields {
        record.set(name, field.clone());
    }
    if other.index.is_some() {
        record.index.clone_from(&other.index);
    }
    record.methods.extend(other.methods.iter().cloned());
}

impl Scope {
    /// The same place without bindings.
    fn clone_top(&self) -> Self {
        Self {
            module: self.module,
            namespaces: self.namespaces.clone(),
            bindings: BTreeMap::new(),
            key: self.key.clone(),
        }
    }

    /// The same place with one more binding.
    pub(super) fn with(&self, name: &str, lazy: Lazy) -> Self {
        let mut scope = Self { key: format!("{}{{{name}={}}}", self.key, lazy.key()), ..self.clone_top() };
        scope.bindings.clone_from(&self.bindings);
        scope.bindings.insert(name.to_owned(), lazy);
        scope
    }
}
