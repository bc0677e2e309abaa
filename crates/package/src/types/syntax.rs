//! Types as a module writes them, without the text they came from.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A type that is written once and may be meant several times.
pub(super) type Node = Rc<Ty>;

/// What stands for a type.
#[derive(Debug)]
pub(super) enum Ty {
    Keyword(Keyword),
    Literal(Literal),
    /// `` `a${string}` ``: the texts between the types.
    Template(Vec<String>),
    Array(Node),
    Tuple(Vec<Item>),
    Union(Vec<Node>),
    Intersection(Vec<Node>),
    Object(Vec<Member>),
    /// `A.B<C>`, or of another module: `import("m").A`.
    Name(Name),
    Keyof(Node),
    Indexed(Node, Node),
    Mapped(Mapped),
    Conditional {
        check: Node,
        extends: Node,
        yes: Node,
        no: Node,
    },
    /// `typeof a.b`.
    Typeof(Name),
    Function {
        input: Parameter,
        output: Option<Node>,
    },
    /// Legal, and beyond what is understood.
    Beyond(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// `any` and `unknown`: the author leaves it open.
    Open,
    String,
    Number,
    Boolean,
    BigInt,
    Null,
    /// `undefined` and `void`.
    Nothing,
    Never,
    Object,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(String),
    Number(f64),
    Boolean(bool),
    /// Decimal digits.
    BigInt(String),
}

/// One place of a tuple.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) node: Node,
    pub(super) optional: bool,
    pub(super) rest: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Name {
    /// The module that it is taken from, when it is named on the spot.
    pub(super) source: Option<String>,
    pub(super) path: Vec<String>,
    pub(super) arguments: Vec<Node>,
}

#[derive(Debug)]
pub(super) enum Member {
    Property {
        name: String,
        node: Node,
        optional: bool,
    },
    /// `[key: string]: T`.
    Index(Node),
    /// A method; JSON has none.
    Method(String),
}

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) key: String,
    pub(super) constraint: Node,
    pub(super) renamed: Option<Node>,
    pub(super) value: Option<Node>,
    pub(super) optional: Modifier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Modifier {
    Keep,
    Add,
    Remove,
}

/// The first parameter of a function.
#[derive(Debug, Clone)]
pub(super) enum Parameter {
    /// There is none.
    None,
    /// It has no type, or one that nobody can tell here.
    Untyped,
    Typed {
        node: Node,
        optional: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) struct TypeParameter {
    pub(super) name: String,
    pub(super) default: Option<Node>,
}

/// A declared type; interfaces may be declared in parts.
#[derive(Debug)]
pub(super) struct Declaration {
    pub(super) parameters: Vec<TypeParameter>,
    pub(super) kind: Declared,
}

#[derive(Debug)]
pub(super) enum Declared {
    Alias(Node),
    Interface {
        extends: Vec<Node>,
        members: Rc<Vec<Member>>,
    },
    /// Members in order; a value that is computed in a way that cannot be followed is not known.
    Enum(Vec<(String, Option<Literal>)>),
    Class,
}

/// Where an imported or exported name comes from.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    Local(String),
    Named { source: String, name: String },
    Namespace { source: String },
}

/// The types and typed values of one module. Names inside of a namespace are written `Namespace.Name`.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) types: BTreeMap<String, Vec<Declaration>>,
    pub(super) values: BTreeMap<String, Node>,
    pub(super) imports: BTreeMap<String, Origin>,
    pub(super) exports: BTreeMap<String, Origin>,
    pub(super) stars: Vec<String>,
}
