//! Puts tool calls together from the fragments of a stream.

use std::borrow::Cow;

use rand::RngExt;
use serde_json::{Map, Value};

/// One fragment as it came; every member may be missing.
#[derive(Debug, Default)]
pub(crate) struct Fragment<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) arguments: Option<Cow<'a, str>>,
}

/// A call whose fragments are all there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AssembledCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments, or the text that was no JSON object.
    pub(crate) input: Result<Map<String, Value>, String>,
}

#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    shape: JsonShape,
}

/// Assembles calls by index where there is one, else by id, else by order.
///
/// A new id, or a new name, at an index that is taken starts a new call, and nothing is appended to arguments that are already a whole
/// JSON document: some servers send every call at index 0.
#[derive(Debug, Default)]
pub(crate) struct ToolCallAssembler {
    calls: Vec<OpenCall>,
    last: Option<usize>,
}

impl ToolCallAssembler {
    /// How many bytes of arguments were collected.
    pub(crate) fn size(&self) -> usize {
        self.calls.iter().map(|call| call.arguments.len() + call.name.len()).sum()
    }

    pub(crate) fn push(&mut self, fragment: Fragment<'_>) {
        let id = fragment.id.filter(|id| !id.is_empty());
        let name = fragment.name.filter(|name| !name.is_empty());
        let arguments = fragment.arguments.filter(|arguments| !arguments.is_empty());
        let position = self.position(fragment.index, id.as_deref(), name.is_some()).filter(|position| {
            !self.calls[*position].is_followed_by(id.as_deref(), name.as_deref(), arguments.as_deref())
        });
        let position = if let Some(position) = position {
            position
        } else {
            if id.is_none()
                && name.is_none()
                && arguments.as_deref().is_none_or(|text| text.trim().is_empty())
            {
                return;
            }
            let previous = fragment
                .index
                .and_then(|index| self.calls.iter().rfind(|call| call.index == Some(index)))
                .or(self.calls.last());
            let inherited = if name.is_none() { previous.map(|call| call.name.clone()) } else { None };
            self.calls.push(OpenCall {
                index: fragment.index,
                id: String::new(),
                name: inherited.unwrap_or_default(),
                arguments: String::new(),
                shape: JsonShape::default(),
            });
            self.calls.len() - 1
        };
        self.last = Some(position);
        let call = &mut self.calls[position];
        if let Some(id) = id {
            call.id = id.into_owned();
        }
        if let Some(name) = name {
            call.name = name.into_owned();
        }
        if let Some(arguments) = arguments
            && !(call.shape.is_complete() && (arguments.trim().is_empty() || *arguments == call.arguments))
        {
            call.shape.read(&arguments);
            call.arguments.push_str(&arguments);
        }
    }

    /// Appends arguments to the call that is open at this index (or is the last one, without an index); nothing else starts here.
    pub(crate) fn append(&mut self, index: Option<u64>, arguments: &str) {
        let position = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None => self.last,
        };
        if let Some(call) = position.and_then(|position| self.calls.get_mut(position)) {
            call.shape.read(arguments);
            call.arguments.push_str(arguments);
        }
    }

    fn position(&self, index: Option<u64>, id: Option<&str>, has_name: bool) -> Option<usize> {
        if let Some(index) = index {
            return self.calls.iter().rposition(|call| call.index == Some(index));
        }
        match id {
            Some(id) => self.calls.iter().rposition(|call| call.id == id),
            None if has_name => self.last.filter(|last| self.calls[*last].name.is_empty()),
            None => self.last,
        }
    }

    /// The calls, by index where all have one, else in the order in which they started. Missing and repeated ids are replaced.
    pub(crate) fn finish(mut self) -> Vec<AssembledCall> {
        if self.calls.iter().all(|call| call.index.is_some()) {
            self.calls.sort_by_key(|call| call.index);
        }
        let mut finished: Vec<AssembledCall> = Vec::with_capacity(self.calls.len());
        for call in self.calls {
            let taken = finished.iter().any(|earlier| earlier.id == call.id);
            let id = if call.id.is_empty() || taken { mint_call_id() } else { call.id };
            finished.push(AssembledCall { id, name: call.name, input: parse_arguments(&call.arguments) });
        }
        finished
    }
}

impl OpenCall {
    /// Whether a fragment with these members, addressed to this call, belongs to another call that starts with it.
    fn is_followed_by(&self, id: Option<&str>, name: Option<&str>, arguments: Option<&str>) -> bool {
        if id.is_some_and(|id| !self.id.is_empty() && self.id != id) {
            return true;
        }
        let same_id = id.is_some_and(|id| self.id == id);
        if name.is_some_and(|name| !self.name.is_empty() && self.name != name) && !same_id {
            return true;
        }
        self.shape.is_complete()
            && !same_id
            && arguments.is_some_and(|text| !text.trim().is_empty() && text != self.arguments)
    }
}

/// An id that does not repeat over the turns of a conversation.
pub(crate) fn mint_call_id() -> String {
    format!("call_{:016x}", rand::rng().random::<u64>())
}

/// Arguments as an object: blank and `null` mean none; a document in a string is unpacked once.
pub(crate) fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(Value::Object(object)) => Ok(object),
            _ if inner.trim().is_empty() => Ok(Map::new()),
            _ => Err(text.to_owned()),
        },
        Ok(_) | Err(_) => Err(text.to_owned()),
    }
}

/// Follows brackets and strings, to know in constant time a byte when a document is whole.
#[derive(Debug, Default)]
struct JsonShape {
    depth: usize,
    in_string: bool,
    escaped: bool,
    opened: bool,
}

impl JsonShape {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    type Row<'a> = (Option<u64>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

    fn assemble(rows: &[Row<'_>]) -> Vec<AssembledCall> {
        let mut assembler = ToolCallAssembler::default();
        for (index, id, name, arguments) in rows {
            assembler.push(Fragment {
                index: *index,
                id: id.map(Cow::Borrowed),
                name: name.map(Cow::Borrowed),
                arguments: arguments.map(Cow::Borrowed),
            });
        }
        assembler.finish()
    }

    fn summary(calls: &[AssembledCall]) -> Value {
        calls
            .iter()
            .map(|call| json!([call.name, call.input.clone().map_or_else(Value::String, Value::Object)]))
            .collect()
    }

    #[test]
    fn each_known_quirk_of_tool_call_streams_gives_the_calls_that_were_meant() {
        let table: &[(&str, &[Row<'_>], Value)] = &[
            (
                "as documented",
                &[
                    (Some(0), Some("a"), Some("f"), Some("")),
                    (Some(0), None, None, Some("{\"x\"")),
                    (Some(0), None, None, Some(":1}")),
                    (Some(1), Some("b"), Some("g"), Some("{}")),
                ],
                json!([["f", {"x": 1}], ["g", {}]]),
            ),
            (
                "every call at index 0 with its own id (33, 34)",
                &[
                    (Some(0), Some("a"), Some("f"), Some("{\"a\":1}")),
                    (Some(0), Some("b"), Some("f"), Some("{\"b\":2}")),
                ],
                json!([["f", {"a": 1}], ["f", {"b": 2}]]),
            ),
            (
                "every call at index 0 without ids, other names",
                &[
                    (Some(0), None, Some("f"), Some("{\"a\":1}")),
                    (Some(0), None, Some("g"), Some("{\"b\":2}")),
                ],
                json!([["f", {"a": 1}], ["g", {"b": 2}]]),
            ),
            (
                "every call at index 0 without ids, same name",
                &[
                    (Some(0), None, Some("f"), Some("{\"a\":1}")),
                    (Some(0), None, Some("f"), Some("{\"b\":2}")),
                ],
                json!([["f", {"a": 1}], ["f", {"b": 2}]]),
            ),
            (
                "interleaved, only the first fragment carries the id (36)",
                &[
                    (Some(0), Some("a"), Some("f"), None),
                    (Some(1), Some("b"), Some("g"), None),
                    (Some(0), None, None, Some("{\"x\":")),
                    (Some(1), None, None, Some("{\"y\":")),
                    (Some(0), None, None, Some("1}")),
                    (Some(1), None, None, Some("2}")),
                ],
                json!([["f", {"x": 1}], ["g", {"y": 2}]]),
            ),
            (
                "id and name repeated on every fragment",
                &[
                    (Some(0), Some("a"), Some("f"), Some("{\"x\":")),
                    (Some(0), Some("a"), Some("f"), Some("1}")),
                ],
                json!([["f", {"x": 1}]]),
            ),
            (
                "id and name present but empty on later fragments",
                &[
                    (Some(0), Some("a"), Some("f"), Some("{\"x\":")),
                    (Some(0), Some(""), Some(""), Some("1}")),
                ],
                json!([["f", {"x": 1}]]),
            ),
            (
                "no index, fragments by id",
                &[
                    (None, Some("a"), Some("f"), Some("{\"x\":")),
                    (None, Some("b"), Some("g"), Some("{\"y\":")),
                    (None, Some("a"), None, Some("1}")),
                    (None, Some("b"), None, Some("2}")),
                ],
                json!([["f", {"x": 1}], ["g", {"y": 2}]]),
            ),
            (
                "no index, no id on later fragments",
                &[
                    (None, Some("a"), Some("f"), Some("{\"x\":")),
                    (None, None, None, Some("1}")),
                    (None, Some("b"), Some("g"), Some("{}")),
                ],
                json!([["f", {"x": 1}], ["g", {}]]),
            ),
            (
                "neither index nor ids",
                &[
                    (None, None, Some("f"), Some("{\"x\":1}")),
                    (None, None, Some("g"), None),
                    (None, None, None, Some("{\"y\":2}")),
                ],
                json!([["f", {"x": 1}], ["g", {"y": 2}]]),
            ),
            ("no arguments at all", &[(Some(0), Some("a"), Some("f"), None)], json!([["f", {}]])),
            ("blank arguments", &[(Some(0), Some("a"), Some("f"), Some("  "))], json!([["f", {}]])),
            ("null arguments", &[(Some(0), Some("a"), Some("f"), Some("null"))], json!([["f", {}]])),
            (
                "document in a string",
                &[(Some(0), Some("a"), Some("f"), Some("\"{\\\"x\\\":1}\""))],
                json!([["f", {"x": 1}]]),
            ),
            (
                "indexes with a gap and out of order",
                &[(Some(4), Some("b"), Some("g"), None), (Some(2), Some("a"), Some("f"), None)],
                json!([["f", {}], ["g", {}]]),
            ),
            (
                "whole arguments repeated at the end",
                &[
                    (Some(0), Some("a"), Some("f"), Some("{\"x\":1}")),
                    (Some(0), None, None, Some("{\"x\":1}")),
                ],
                json!([["f", {"x": 1}]]),
            ),
            (
                "line feed after the end",
                &[(Some(0), Some("a"), Some("f"), Some("{\"x\":1}")), (Some(0), None, None, Some("\n"))],
                json!([["f", {"x": 1}]]),
            ),
            (
                "braces within a string",
                &[
                    (Some(0), Some("a"), Some("f"), Some("{\"x\":\"}\\\"")),
                    (Some(0), None, None, Some("{\"}")),
                ],
                json!([["f", {"x": "}\"{"}]]),
            ),
            (
                "broken arguments stay as text",
                &[(Some(0), Some("a"), Some("f"), Some("{\"x\":"))],
                json!([["f", "{\"x\":"]]),
            ),
            ("a list is no object", &[(Some(0), Some("a"), Some("f"), Some("[1]"))], json!([["f", "[1]"]])),
            (
                "an empty fragment is nothing",
                &[(Some(0), None, None, Some("")), (None, Some(""), Some(""), None)],
                json!([]),
            ),
        ];
        for (name, rows, want) in table {
            assert_eq!(&summary(&assemble(rows)), want, "{name}");
        }
    }

    #[test]
    fn missing_and_repeated_ids_become_unique_ones() {
        let calls = assemble(&[
            (Some(0), None, Some("f"), None),
            (Some(1), Some("x"), Some("f"), None),
            (Some(2), Some("x"), Some("f"), None),
        ]);
        assert_eq!(calls[1].id, "x");
        let mut ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 3);
        assert_ne!(assemble(&[(Some(0), None, Some("f"), None)])[0].id, calls[0].id);
    }

    proptest! {
        #[test]
        fn any_cut_and_interleaving_of_indexed_fragments_gives_the_same_calls(
            inputs in proptest::collection::vec(proptest::collection::btree_map("[a-z]{1,3}", "\\PC{0,8}", 0..3), 1..4),
            sizes in proptest::collection::vec(1usize..5, 1..40),
            order in proptest::collection::vec(0usize..4, 60),
        ) {
            let wanted: Vec<Value> = inputs.iter().map(|input| json!(input)).collect();
            let mut queues: Vec<Vec<String>> = Vec::new();
            for (number, input) in wanted.iter().enumerate() {
                let text: Vec<char> = input.to_string().chars().collect();
                let size = sizes[number % sizes.len()];
                queues.push(text.chunks(size).rev().map(|piece| piece.iter().collect()).collect());
            }
            let mut assembler = ToolCallAssembler::default();
            let mut started = vec![false; queues.len()];
            let mut turns = order.into_iter().cycle();
            while queues.iter().any(|queue| !queue.is_empty()) {
                let pick = turns.next().unwrap_or(0);
                let filled: Vec<usize> = (0..queues.len()).filter(|number| !queues[*number].is_empty()).collect();
                let number = filled[pick % filled.len()];
                let piece = queues[number].pop().unwrap_or_default();
                let first = !std::mem::replace(&mut started[number], true);
                assembler.push(Fragment {
                    index: Some(number as u64),
                    id: first.then(|| Cow::Owned(format!("id{number}"))),
                    name: first.then(|| Cow::Owned(format!("tool{number}"))),
                    arguments: Some(Cow::Owned(piece)),
                });
            }
            let calls = assembler.finish();
            prop_assert_eq!(calls.len(), wanted.len());
            for (number, (call, want)) in calls.iter().zip(&wanted).enumerate() {
                prop_assert_eq!(&call.id, &format!("id{number}"));
                prop_assert_eq!(&Value::Object(call.input.clone().unwrap()), want);
            }
        }
    }
}
