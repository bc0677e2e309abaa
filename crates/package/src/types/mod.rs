//! JSON Schemas of a program's input and output, from the types of its `run` (`docs/protocol/descriptor.md` §9).
//!
//! Nothing is inferred: only what the author has written down counts. A part that JSON Schema cannot say, or that
//! cannot be followed, stays raw JSON and is reported; the rest is derived all the same.

mod evaluate;
mod library;
mod lower;
mod operators;
mod pieces;
mod schema;
mod shape;
mod syntax;
mod values;
mod world;
mod written;

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::Diagnostic;
use crate::resolve::Resolvers;
use evaluate::Evaluator;
use schema::{Direction, Emitter, Gap, returned};
use shape::{Input, Lazy, Shape};
use world::World;

/// Where an artifact carries what was derived.
pub(crate) const SCHEMAS: &str = ".trestle/schemas.json";
/// Types are followed by recursion: a text made to exhaust the stack exhausts this one.
const STACK: usize = 512 * 1024 * 1024;

/// The derived schemas; none for what the author left open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Schemas {
    /// Of the first parameter of `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Of what `run` returns, or resolves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl Schemas {
    /// Whether nothing was derived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// Reads what an artifact carries; `None` when that is no such thing.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let schemas: Self = serde_json::from_slice(bytes).ok()?;
        let is_schema = |schema: &Option<Value>| schema.as_ref().is_none_or(Value::is_object);
        (is_schema(&schemas.input) && is_schema(&schemas.output)).then_some(schemas)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// Derives the schemas of the program whose entry this is. `name` is the entry as messages show it.
pub(crate) fn derive(entry: &Path, name: &str, resolvers: &Resolvers) -> (Schemas, Vec<Diagnostic>) {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK);
        let derived = builder.spawn_scoped(scope, || derive_here(entry, name, resolvers));
        derived.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

fn derive_here(entry: &Path, name: &str, resolvers: &Resolvers) -> (Schemas, Vec<Diagnostic>) {
    let mut evaluator = Evaluator::new(World::new(resolvers));
    let Some(run) = run_of(&mut evaluator, entry) else { return Default::default() };
    let Shape::Function { input, output } = &*evaluator.shape(&run) else { return Default::default() };
    let mut gaps: Vec<Gap> = Vec::new();
    let mut document = |evaluator: &mut Evaluator<'_>, lazy: &Lazy, direction, place: &str| {
        let mut emitter = Emitter::new(evaluator, direction);
        let document = emitter.document(lazy, place);
        gaps.append(&mut emitter.gaps);
        document
    };
    let input = match input {
        Input::None | Input::Untyped => None,
        Input::Typed { lazy, optional: false } => document(&mut evaluator, lazy, Direction::Input, "input"),
        Input::Typed { lazy, optional: true } => {
            let or_nothing = Lazy::known(Shape::Union(vec![lazy.clone(), Lazy::known(Shape::Null)]));
            document(&mut evaluator, &or_nothing, Direction::Input, "input")
        }
    };
    let output = output.as_ref().and_then(|output| {
        let returned = returned(&mut evaluator, output);
        match &*evaluator.shape(&returned) {
            // It never returns: there is nothing to describe.
            Shape::Never => None,
            _ => document(&mut evaluator, &returned, Direction::Output, "output"),
        }
    });
    let notes = gaps
        .into_iter()
        .map(|Gap { place, why }| {
            Diagnostic::warning(format!("{place} is passed as raw JSON: {why}")).at(name, None)
        })
        .collect();
    (Schemas { input, output }, notes)
}

/// The default export, as a type.
fn run_of(evaluator: &mut Evaluator<'_>, entry: &Path) -> Option<Lazy> {
    let module = evaluator.world.load(entry)?;
    let place = evaluator.world.default_export(module)?;
    let node = evaluator.world.value(&place)?;
    Some(Lazy::Written(node, Evaluator::top(place.module)))
}
