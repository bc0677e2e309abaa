//! From text to a valid descriptor, and the stored form (`docs/protocol/descriptor.md` §3).

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::MAX_DESCRIPTOR_BYTES;
use super::jsonc::{Document, Member, Node, NodeKind};
use super::model::{Descriptor, Trigger};
use super::problem::{DescriptorError, DescriptorErrors, DescriptorStage, Position, Warning};
use super::read::{ROOT, Reader};
use super::read_fields::{self, secret_reference};
use crate::json::RawJson;

/// A descriptor read from its file.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedDescriptor {
    /// The descriptor, valid and defaulted.
    pub descriptor: Descriptor,
    /// What is accepted and probably not meant.
    pub warnings: Vec<Warning>,
    /// The text, for looking up positions of fields.
    pub document: Document,
}

/// Reads the text of `workflow.jsonc` or `workflow.json`; `file` names it in messages.
///
/// # Errors
/// [`DescriptorErrors`] with every problem of every field, or the first problem of the syntax. Its code is
/// `VALIDATION_FAILED`.
pub fn parse_descriptor(file: &str, bytes: &[u8]) -> Result<ParsedDescriptor, DescriptorErrors> {
    let document = open(file, bytes)?;
    let members = root_members(file, &document)?;
    if let Some(member) =
        members.iter().find(|member| matches!(member.key.as_str(), "input_schema" | "output_schema"))
    {
        let message = format!("\"{}\" is derived from the program's types at deploy", member.key);
        let hint = "remove the key; the types of run's parameter and result say the same";
        return Err(single(file, &document, &member.key, member.key_offset, message, hint));
    }
    let (read, warnings, problems) = read_root(&document, members, |_, _| ());
    match read {
        Some((descriptor, ())) if problems.is_empty() => {
            Ok(ParsedDescriptor { descriptor, warnings, document })
        }
        _ => Err(DescriptorErrors { file: file.to_owned(), stage: DescriptorStage::Rules, problems }),
    }
}

/// What control planes store and send: the defaulted descriptor, and the schemas derived at deploy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    /// The descriptor.
    #[serde(flatten)]
    pub descriptor: Descriptor,
    /// JSON Schema of the input, an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<RawJson>,
    /// JSON Schema of the output, an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<RawJson>,
}

impl Manifest {
    /// A manifest without schemas.
    #[must_use]
    pub fn new(descriptor: Descriptor) -> Self {
        Self { descriptor, input_schema: None, output_schema: None }
    }

    /// Reads a stored manifest, with the same rules as the descriptor plus the two schemas. Reading what was written
    /// changes nothing.
    ///
    /// # Errors
    /// [`DescriptorErrors`] as of [`parse_descriptor`].
    pub fn from_json(text: &str) -> Result<Self, DescriptorErrors> {
        const FILE: &str = "manifest";
        let document = open(FILE, text.as_bytes())?;
        let members = root_members(FILE, &document)?;
        let (read, _, problems) = read_root(&document, members, |reader, fields| {
            let input_schema = fields.optional(reader, "input_schema", schema_object);
            let output_schema = fields.optional(reader, "output_schema", schema_object);
            (input_schema, output_schema)
        });
        match read {
            Some((descriptor, (input_schema, output_schema))) if problems.is_empty() => {
                Ok(Self { descriptor, input_schema, output_schema })
            }
            _ => Err(DescriptorErrors { file: FILE.into(), stage: DescriptorStage::Rules, problems }),
        }
    }
}

fn schema_object(reader: &mut Reader, path: &str, node: &Node) -> Option<RawJson> {
    if !matches!(node.kind, NodeKind::Object(_)) {
        reader.mismatch(path, node, "an object");
        return None;
    }
    let mut text = String::new();
    node.write_json(&mut text);
    RawJson::parse(&text).ok()
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(D::Error::custom)
    }
}

impl JsonSchema for Manifest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = Descriptor::json_schema(generator);
        if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
            for key in ["input_schema", "output_schema"] {
                let value =
                    serde_json::json!({ "type": "object", "description": "JSON Schema derived at deploy." });
                properties.insert(key.into(), value);
            }
        }
        schema
    }
}

fn open(file: &str, bytes: &[u8]) -> Result<Document, DescriptorErrors> {
    let syntax = |message: String, position| DescriptorErrors {
        file: file.to_owned(),
        stage: DescriptorStage::Syntax,
        problems: vec![DescriptorError { path: ROOT.into(), position, message, hint: None }],
    };
    if bytes.len() > MAX_DESCRIPTOR_BYTES {
        return Err(syntax(
            format!("{} bytes, more than the {MAX_DESCRIPTOR_BYTES} allowed", bytes.len()),
            None,
        ));
    }
    Document::parse(bytes)
        .map_err(|error| syntax(error.message, Some(Position { line: error.line, column: error.column })))
}

fn root_members<'d>(file: &str, document: &'d Document) -> Result<&'d [Member], DescriptorErrors> {
    match &document.root.kind {
        NodeKind::Object(members) => Ok(members),
        _ => {
            let message = format!("a single JSON object is required, found {}", document.root.describe());
            let hint =
                "the smallest descriptor is { \"slug\": \"ping\", \"triggers\": [{ \"kind\": \"manual\" }] }";
            Err(single(file, document, ROOT, document.root.offset, message, hint))
        }
    }
}

fn single(
    file: &str,
    document: &Document,
    path: &str,
    offset: usize,
    message: String,
    hint: &str,
) -> DescriptorErrors {
    let position = Some(document.position(offset));
    let problem = DescriptorError { path: path.into(), position, message, hint: Some(hint.into()) };
    DescriptorErrors { file: file.to_owned(), stage: DescriptorStage::Rules, problems: vec![problem] }
}

type ReadRoot<T> = (Option<(Descriptor, T)>, Vec<Warning>, Vec<DescriptorError>);

/// Reads the root object; `$schema` is an editor's key and is dropped. `more` reads keys beyond the descriptor's.
fn read_root<T>(
    document: &Document,
    members: &[Member],
    more: impl FnOnce(&mut Reader, &mut super::read::Fields<'_>) -> T,
) -> ReadRoot<T> {
    let root = Node {
        kind: NodeKind::Object(members.iter().filter(|member| member.key != "$schema").cloned().collect()),
        offset: document.root.offset,
    };
    let mut reader = Reader::new(document);
    let read = reader.fields(ROOT, &root).and_then(|mut fields| {
        let descriptor = read_fields::descriptor(&mut reader, &mut fields);
        let extra = more(&mut reader, &mut fields);
        fields.finish(&mut reader);
        descriptor.map(|descriptor| (descriptor, extra))
    });
    if let Some((descriptor, _)) = &read {
        warn_about(descriptor, document, &mut reader.warnings);
    }
    (read, reader.warnings, reader.problems)
}

/// What the rules accept and no author means.
fn warn_about(descriptor: &Descriptor, document: &Document, warnings: &mut Vec<Warning>) {
    let mut warn = |path: String, message: String| {
        warnings.push(Warning { position: document.locate(&path), path, message });
    };
    let granted: Vec<&str> = descriptor
        .permissions
        .iter()
        .flat_map(|permissions| permissions.secrets.iter().flatten())
        .map(|grant| grant.name.as_str())
        .collect();
    for (index, name) in granted.iter().enumerate() {
        if granted[..index].contains(name) {
            warn(format!("permissions.secrets.{index}"), format!("the secret \"{name}\" is listed twice"));
        }
    }
    for (key, value) in descriptor.env.iter().flatten() {
        if let Some(name) = secret_reference(value)
            && !granted.contains(&name)
        {
            let message = format!(
                "the secret \"{name}\" is not listed in permissions.secrets; runs will fail with FORBIDDEN"
            );
            warn(format!("env.{key}"), message);
        }
    }
    for (index, trigger) in descriptor.triggers.iter().enumerate() {
        if descriptor.triggers[..index].contains(trigger) {
            warn(format!("triggers.{index}"), "the same trigger is listed twice".into());
        }
        if let Trigger::WorkflowRun(trigger) = trigger
            && trigger.workflows.contains(&descriptor.slug)
        {
            warn(format!("triggers.{index}"), "the workflow starts itself at its own end".into());
        }
    }
    if descriptor.slug.bytes().all(|byte| byte == b'-') {
        warn("slug".into(), "the slug has only hyphens".into());
    }
}
