//! Standard decorators and `accessor` fields, which no Node version reads yet, written out as plain classes.
//!
//! The text changes inside its lines only, so that positions keep their lines and the rest of the way (types, source
//! maps) needs no special case. A decorated class becomes
//!
//! ```text
//! let C = __trestle_decorated([classDecorator], (__t0) => { let C; C = class { … }; return C = __t0.end(C); });
//! ```
//!
//! and the decorators of a member become the computed key of an extra method, which the language evaluates exactly
//! when decorators are: in order, before the class exists. The helper removes these methods again before any code
//! of the class runs.

use std::borrow::Cow;
use std::collections::HashMap;

use oxc::allocator::Allocator;
use oxc::ast::ast::{
    AccessorProperty, Class, ClassElement, Decorator, ExportDeclaration, ExportDefaultDeclaration,
    ExportDefaultDeclarationKind, MethodDefinition, MethodDefinitionKind, PropertyDefinition, PropertyKey,
};
use oxc::ast_visit::{Visit, walk};
use oxc::parser::Parser;
use oxc::span::{GetSpan as _, SourceType, Span};

use crate::script::TextError;

/// The helper that written-out classes call; it is imported where it is used.
pub(crate) const HELPER: &str = "__trestle_decorated";
/// The helper's name among the helpers of transformed code.
pub(crate) const HELPER_NAME: &str = "decorated";

/// Writes out decorators and accessor fields. With legacy decorators, which another transform handles, only accessor
/// fields without decorators are written out. Text without either is returned as it is.
pub(crate) fn write_out(text: &str, kind: SourceType, legacy: bool) -> Result<Cow<'_, str>, Vec<TextError>> {
    if !text.contains('@') && !text.contains("accessor") {
        return Ok(Cow::Borrowed(text));
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, kind.with_module(true)).parse();
    if parsed.panicked || parsed.diagnostics.has_errors() {
        // The same problem is found, and reported, by the one who reads the module.
        return Ok(Cow::Borrowed(text));
    }
    let mut writer =
        Writer { text, legacy, edits: Vec::new(), errors: Vec::new(), exported: HashMap::new(), classes: 0 };
    writer.visit_program(&parsed.program);
    if !writer.errors.is_empty() {
        return Err(writer.errors);
    }
    if writer.edits.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(writer.apply()))
}

/// How a class declaration is exported.
#[derive(Clone, Copy, PartialEq)]
enum Export {
    No,
    Named,
    Default,
}

/// Replaces a range of the text; an empty range inserts.
struct Edit {
    start: usize,
    end: usize,
    order: usize,
    text: String,
}

struct Writer<'t> {
    text: &'t str,
    legacy: bool,
    edits: Vec<Edit>,
    errors: Vec<TextError>,
    /// Exported class declarations by the start of their body, with the start of the statement.
    exported: HashMap<u32, (Export, usize)>,
    classes: usize,
}

impl Writer<'_> {
    fn edit(&mut self, start: usize, end: usize, text: impl Into<String>) {
        let order = self.edits.len();
        self.edits.push(Edit { start, end, order, text: text.into() });
    }

    fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.edit(at, at, text);
    }

    /// Removes a range, and keeps its line ends.
    fn blank(&mut self, start: usize, end: usize) {
        let kept: String = self.text[start..end]
            .chars()
            .map(|character| if character == '\n' { '\n' } else { ' ' })
            .collect();
        self.edit(start, end, kept);
    }

    fn apply(mut self) -> String {
        self.edits.sort_by_key(|edit| (edit.start, edit.end, edit.order));
        let mut out = String::with_capacity(self.text.len() * 2);
        let mut at = 0;
        for edit in &self.edits {
            out.push_str(&self.text[at..edit.start]);
            out.push_str(&edit.text);
            at = edit.end;
        }
        out.push_str(&self.text[at..]);
        out
    }

    fn refuse(&mut self, offset: u32, message: &str) {
        self.errors.push(TextError {
            message: message.into(),
            hint: Some("decorate a public member, or set \"experimentalDecorators\" in tsconfig.json".into()),
            offset: offset as usize,
        });
    }

    /// `@a @b(…)` becomes `a, b(…),`.
    fn list(&mut self, decorators: &[Decorator<'_>]) {
        for decorator in decorators {
            let start = decorator.span.start as usize;
            self.edit(start, start + 1, "");
            self.insert(decorator.span.end as usize, ",");
        }
    }

    /// The next word or sign after blanks and comments, with its start.
    fn next_word(&self, from: usize) -> Option<(usize, &str)> {
        let bytes = self.text.as_bytes();
        let mut at = from;
        loop {
            let rest = &self.text[at..];
            if rest.starts_with("//") {
                at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                at += rest.find("*/")? + 2;
            } else if bytes.get(at)?.is_ascii_whitespace() {
                at += 1;
            } else {
                break;
            }
        }
        let rest = &self.text[at..];
        let length = rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        Some((at, &rest[..length.unwrap_or(rest.len()).max(1).min(rest.len())]))
    }

    /// Blanks `export`, `default` and `abstract` around the decorators; the end of the keyword `class`.
    fn class_keyword(&mut self, start: usize, decorators: &[Decorator<'_>]) -> Option<(usize, usize)> {
        let mut at = start;
        loop {
            if let Some(decorator) = decorators.iter().find(|decorator| {
                self.next_word(at).is_some_and(|(word, _)| decorator.span.start as usize == word)
            }) {
                at = decorator.span.end as usize;
                continue;
            }
            let (word_start, word) = self.next_word(at)?;
            let word_end = word_start + word.len();
            match word {
                "class" => return Some((word_start, word_end)),
                "export" | "default" | "abstract" => self.blank(word_start, word_end),
                _ => return None,
            }
            at = word_end;
        }
    }

    fn class(&mut self, class: &Class<'_>) {
        let body_start = class.body.span.start as usize;
        let (export, statement) = self
            .exported
            .get(&class.body.span.start)
            .copied()
            .unwrap_or((Export::No, class.span.start as usize));
        let first =
            class.decorators.first().map_or(statement, |first| statement.min(first.span.start as usize));
        let index = self.classes;
        self.classes += 1;
        let state = format!("__t{index}");
        let Some((keyword, keyword_end)) = self.class_keyword(first, &class.decorators) else {
            return self.refuse(class.span.start, "this decorated class cannot be read");
        };
        let own_name = class.id.as_ref().map(|id| id.name.to_string());
        let default_name = format!("__default{index}");
        let name = own_name.clone().unwrap_or_else(|| match export {
            Export::Default => default_name,
            Export::No | Export::Named => format!("__c{index}"),
        });
        let shown = own_name
            .unwrap_or_else(|| if export == Export::Default { "default".into() } else { String::new() });
        let open = match (class.is_declaration(), export) {
            (true, Export::Named) => format!("export let {name} = {HELPER}(["),
            (true, Export::No | Export::Default) => format!("let {name} = {HELPER}(["),
            (false, _) => format!("{HELPER}(["),
        };
        self.insert(first, open);
        self.list(&class.decorators);
        if let Some(id) = &class.id {
            self.blank(id.span.start as usize, id.span.end as usize);
        }
        self.edit(keyword, keyword_end, format!("], ({state}) => {{ let {name}; {name} = class"));
        let close = match (class.is_declaration(), export) {
            (true, Export::Default) => {
                format!("; return {name} = {state}.end({name}); }}); export {{ {name} as default }};")
            }
            (true, Export::No | Export::Named) => format!("; return {name} = {state}.end({name}); }});"),
            (false, _) => format!("; return {name} = {state}.end({name}); }})"),
        };
        self.insert(class.span.end as usize, close);
        let quoted = serde_json::Value::from(shown).to_string();
        let mut start = format!("static{{{name}={state}.apply(this,{quoted});}}");
        if class.body.body.iter().any(starts_instances) {
            start.push_str(&format!("#{state}s={state}.start(this);"));
        }
        self.insert(body_start + 1, start);
        let mut number = 0;
        for element in &class.body.body {
            match element {
                ClassElement::MethodDefinition(method) if !method.decorators.is_empty() => {
                    self.method(method, &state);
                    number += 1;
                }
                ClassElement::PropertyDefinition(field) if !field.decorators.is_empty() => {
                    self.field(field, &state, number);
                    number += 1;
                }
                ClassElement::AccessorProperty(accessor) => {
                    let decorated = !accessor.decorators.is_empty();
                    self.accessor(accessor, decorated.then_some((state.as_str(), number)));
                    number += usize::from(decorated);
                }
                _ => {}
            }
        }
    }

    /// The decorators of a member as the computed key of an extra method.
    fn member(
        &mut self,
        decorators: &[Decorator<'_>],
        state: &str,
        kind: &str,
        key: &PropertyKey<'_>,
        rest: &str,
    ) {
        let (Some(first), Some(last)) = (decorators.first(), decorators.last()) else { return };
        let name = match key {
            PropertyKey::StaticIdentifier(name) => serde_json::Value::from(name.name.as_str()).to_string(),
            PropertyKey::PrivateIdentifier(name) => {
                serde_json::Value::from(format!("#{}", name.name)).to_string()
            }
            PropertyKey::StringLiteral(literal) => {
                serde_json::Value::from(literal.value.as_str()).to_string()
            }
            PropertyKey::NumericLiteral(literal) => {
                format!("String({})", &self.text[literal.span.start as usize..literal.span.end as usize])
            }
            computed => {
                let span = computed.span();
                self.insert(span.start as usize, format!("{state}.key("));
                self.insert(span.end as usize, ")");
                "undefined".to_owned()
            }
        };
        self.insert(first.span.start as usize, format!("static [{state}.at(["));
        self.list(decorators);
        self.insert(last.span.end as usize, format!("],\"{kind}\",{name},{rest})](){{}} "));
    }

    fn method(&mut self, method: &MethodDefinition<'_>, state: &str) {
        if method.key.is_private_identifier() {
            return self.refuse(method.span.start, "decorators of private methods are not supported");
        }
        let kind = match method.kind {
            MethodDefinitionKind::Get => "getter",
            MethodDefinitionKind::Set => "setter",
            MethodDefinitionKind::Method | MethodDefinitionKind::Constructor => "method",
        };
        self.member(&method.decorators, state, kind, &method.key, &format!("{}", method.r#static));
    }

    fn field(&mut self, field: &PropertyDefinition<'_>, state: &str, number: usize) {
        self.member(&field.decorators, state, "field", &field.key, &access(&field.key, field.r#static));
        let value = field.value.as_ref().map(|value| value.span());
        self.initial(
            value,
            field.key.span(),
            field.type_annotation.as_ref().map(|kind| kind.span),
            field.span,
            state,
            number,
        );
        let after = match field.r#static {
            true => format!("static{{{state}.extra(this,{number});}}"),
            false => format!("#{state}x{number}={state}.extra(this,{number});"),
        };
        self.after(field.span, &after);
    }

    /// Puts the initial value through the decorators.
    fn initial(
        &mut self,
        value: Option<Span>,
        key: Span,
        annotation: Option<Span>,
        whole: Span,
        state: &str,
        number: usize,
    ) {
        if let Some(value) = value {
            self.insert(value.start as usize, format!("{state}.init(this,{number},"));
            self.insert(value.end as usize, ")");
            return;
        }
        // `name!: Type` promises a value that is now there.
        let until = annotation.map_or(whole.end, |annotation| annotation.start) as usize;
        if let Some(mark) = self.text[key.end as usize..until].find('!') {
            let mark = key.end as usize + mark;
            self.blank(mark, mark + 1);
        }
        let end = whole.end as usize;
        let end = if self.text[..end].ends_with(';') { end - 1 } else { end };
        self.insert(end, format!(" = {state}.init(this,{number})"));
    }

    fn after(&mut self, whole: Span, text: &str) {
        let end = whole.end as usize;
        let separator = if self.text[..end].ends_with(';') { "" } else { ";" };
        self.insert(end, format!("{separator}{text}"));
    }

    fn accessor(&mut self, accessor: &AccessorProperty<'_>, decorated: Option<(&str, usize)>) {
        let key = accessor.key.span();
        let (name, store) = match &accessor.key {
            PropertyKey::StaticIdentifier(name) => (name.name.to_string(), format!("#{}__value", name.name)),
            PropertyKey::PrivateIdentifier(name) => {
                (format!("#{}", name.name), format!("#{}__value", name.name))
            }
            _ => return self.refuse(accessor.span.start, "an `accessor` field needs a plain name"),
        };
        if let Some((state, number)) = decorated {
            if accessor.key.is_private_identifier() {
                return self.refuse(accessor.span.start, "decorators of private accessors are not supported");
            }
            let rest = format!("{}", accessor.r#static);
            self.member(&accessor.decorators, state, "accessor", &accessor.key, &rest);
            let value = accessor.value.as_ref().map(|value| value.span());
            let annotation = accessor.type_annotation.as_ref().map(|kind| kind.span);
            self.initial(value, key, annotation, accessor.span, state, number);
        }
        let modifiers = accessor.decorators.last().map_or(accessor.span.start, |last| last.span.end) as usize;
        let lines = self.text[modifiers..key.end as usize].matches('\n').count();
        let prefix = if accessor.r#static { "static " } else { "" };
        self.edit(modifiers, key.end as usize, format!("{}{prefix}{store}", "\n".repeat(lines)));
        let mut after = format!(
            "{prefix}get {name}(){{return this.{store};}}{prefix}set {name}(value){{this.{store}=value;}}"
        );
        if let Some((state, number)) = decorated {
            after.push_str(&match accessor.r#static {
                true => format!("static{{{state}.extra(this,{number});}}"),
                false => format!("#{state}x{number}={state}.extra(this,{number});"),
            });
        }
        self.after(accessor.span, &after);
    }

    fn is_decorated(&self, class: &Class<'_>) -> bool {
        !self.legacy
            && (!class.decorators.is_empty()
                || class.body.body.iter().any(|element| decorator_count(element) > 0))
    }
}

impl<'a> Visit<'a> for Writer<'_> {
    fn visit_export_declaration(&mut self, export: &ExportDeclaration<'a>) {
        if let oxc::ast::ast::Declaration::ClassDeclaration(class) = &export.declaration {
            self.exported.insert(class.body.span.start, (Export::Named, export.span.start as usize));
        }
        walk::walk_export_declaration(self, export);
    }

    fn visit_export_default_declaration(&mut self, export: &ExportDefaultDeclaration<'a>) {
        if let ExportDefaultDeclarationKind::ClassDeclaration(class) = &export.declaration {
            self.exported.insert(class.body.span.start, (Export::Default, export.span.start as usize));
        }
        walk::walk_export_default_declaration(self, export);
    }

    fn visit_class(&mut self, class: &Class<'a>) {
        if class.declare {
            return;
        }
        if self.is_decorated(class) {
            self.class(class);
        } else {
            for element in &class.body.body {
                if let ClassElement::AccessorProperty(accessor) = element
                    && accessor.decorators.is_empty()
                {
                    self.accessor(accessor, None);
                }
            }
        }
        walk::walk_class(self, class);
    }
}

fn decorator_count(element: &ClassElement<'_>) -> usize {
    match element {
        ClassElement::MethodDefinition(method) => method.decorators.len(),
        ClassElement::PropertyDefinition(field) => field.decorators.len(),
        ClassElement::AccessorProperty(accessor) => accessor.decorators.len(),
        _ => 0,
    }
}

/// Whether decorators of the member may want to see each new instance.
fn starts_instances(element: &ClassElement<'_>) -> bool {
    decorator_count(element) > 0
        && match element {
            ClassElement::MethodDefinition(method) => !method.r#static,
            _ => false,
        }
}

/// The rest of a field's record: static or not, and for private names how to reach them.
fn access(key: &PropertyKey<'_>, is_static: bool) -> String {
    match key {
        PropertyKey::PrivateIdentifier(name) => {
            let name = &name.name;
            format!("{is_static},{{has:(o)=>#{name} in o,get:(o)=>o.#{name},set:(o,v)=>{{o.#{name}=v;}}}}")
        }
        _ => format!("{is_static}"),
    }
}
