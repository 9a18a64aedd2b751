//! Whether literal values fit the schemas of node types.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use flowcell_contract::{MarkKind, NodeType};
use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};

use crate::{
    diagnostic::{Findings, did_you_mean},
    fields::shown,
    numbers,
    patterns::{self, Trouble},
    yaml::{Kind, Span, Tree},
};

/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Characters of a validator's message that are repeated.
const MESSAGE: usize = 200;

/// Compiles a schema. It cannot leave its document, and its patterns take linear time.
pub(crate) fn compile(schema: &serde_json::Value) -> Result<Validator, String> {
    let patterns = jsonschema::PatternOptions::regex().size_limit(PATTERN_BYTES);
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    options.build(schema).map_err(|error| {
        // With several references the library names any of them; the same text gives the same finding.
        let message = match (error.kind(), outer_reference(schema)) {
            (ValidationErrorKind::Referencing(_), Some(outer)) => format!("`{}` leaves the schema", shown(outer)),
            _ => error.to_string(),
        };
        message.chars().take(MESSAGE).collect()
    })
}

/// The first `$ref` that is not to a part of the schema itself.
fn outer_reference(schema: &serde_json::Value) -> Option<&str> {
    match schema {
        serde_json::Value::Object(members) => members.iter().find_map(|(key, member)| match member.as_str() {
            Some(target) => (key == "$ref" && !target.starts_with('#')).then_some(target),
            None => outer_reference(member),
        }),
        serde_json::Value::Array(items) => items.iter().find_map(outer_reference),
        _ => None,
    }
}

/// Which part of a node is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Input,
    Config,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Input => "input",
            Part::Config => "config",
        }
    }

    fn code(self) -> &'static str {
        match self {
            Part::Input => "wrong_input",
            Part::Config => "wrong_config",
        }
    }
}

/// A schema as it is checked, ready to use.
struct Checker {
    schema: serde_json::Value,
    validator: Validator,
}

/// A schema, or why it cannot be used.
type Compiled = Result<Rc<Checker>, String>;

/// The compiled schemas of node types: each is compiled once, however many nodes use it.
#[derive(Default)]
pub(crate) struct Schemas {
    compiled: RefCell<HashMap<(String, Part), Compiled>>,
}

impl Schemas {
    /// Checks the literal parts of a node's input or config.
    pub(crate) fn check(
        &self,
        tree: &Tree,
        (kind, type_span): (&NodeType, Span),
        part: Part,
        findings: &mut Findings<'_>,
    ) {
        let key = (kind.full_name(), part);
        let compiled = self.compiled.borrow_mut().entry(key).or_insert_with(|| checker(kind, part)).clone();
        let checker = match compiled {
            Ok(checker) => checker,
            Err(error) => {
                let message = format!("the {} schema of `{}` cannot be used: {error}", part.name(), kind.name);
                return findings.error("bad_schema", type_span, message, Some("the pack needs a correction".into()));
            }
        };
        let value = tree.json().to_serde();
        for error in checker.validator.iter_errors(&value) {
            let at = tree.nearest(error.instance_path().as_str());
            if !depends_on_bindings(&error, at) {
                tell(&error, tree, &checker.schema, part, findings);
            }
        }
    }
}

fn checker(kind: &NodeType, part: Part) -> Compiled {
    let mut schema = match part {
        Part::Input => kind.input.clone(),
        Part::Config => kind.config.clone(),
    };
    let marks = kind.marks.iter().filter(|_| part == Part::Input);
    for mark in marks.filter(|mark| matches!(mark.kind, MarkKind::Condition | MarkKind::Template)) {
        open(&mut schema, &mark.path);
    }
    let validator = compile(&schema).map_err(|error| match troubles(&schema).into_iter().next() {
        Some(trouble) => format!("{} (at `{}`)", trouble.message, shown(&trouble.pointer)),
        None => error,
    })?;
    Ok(Rc::new(Checker { schema, validator }))
}

/// Replaces the schema of a field with one that admits everything.
fn open(schema: &mut serde_json::Value, path: &[Arc<str>]) {
    let Some((step, rest)) = path.split_first() else {
        *schema = serde_json::Value::Bool(true);
        return;
    };
    let next = match &**step {
        "*" => schema.get_mut("items"),
        step => schema.get_mut("properties").and_then(|properties| properties.get_mut(step)),
    };
    if let Some(next) = next {
        open(next, rest);
    }
}

/// Whether the error may be gone once the bindings at or below its place are values.
fn depends_on_bindings(error: &ValidationError<'_>, at: &Tree) -> bool {
    // Whether these hold depends on more than the place that they are told about.
    let wide = ["anyOf", "oneOf", "not", "contains", "uniqueItems", "enum", "const"].contains(&error.kind().keyword());
    is_bound(at) && (wide || matches!(at.kind, Kind::Scalar(_)))
}

/// Whether anything in it is computed.
fn is_bound(tree: &Tree) -> bool {
    match &tree.kind {
        Kind::Scalar(json) => json.as_str().is_some_and(|text| text.contains("{{")),
        Kind::List(items) => items.iter().any(is_bound),
        Kind::Map(entries) => entries.iter().any(|entry| is_bound(&entry.value)),
    }
}

fn tell(error: &ValidationError<'_>, tree: &Tree, schema: &serde_json::Value, part: Part, findings: &mut Findings<'_>) {
    let pointer = error.instance_path().as_str();
    let at = tree.nearest(pointer);
    let whole = format!("{}{}", part.name(), pointer.replace('/', "."));
    let whole = shown(&whole);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            for key in unexpected {
                unknown_field(at, key, &whole, schema.pointer(&parent(error.schema_path().as_str())), part, findings);
            }
        }
        // Where no member is known, the validator tells of the map.
        ValidationErrorKind::FalseSchema if error.schema_path().as_str().ends_with("/additionalProperties") => {
            if let Kind::Map(entries) = &at.kind {
                entries.iter().for_each(|entry| unknown_field(at, &entry.key, &whole, None, part, findings));
            }
        }
        ValidationErrorKind::Required { property } => {
            let property = property.as_str().unwrap_or_default();
            let message = format!("`{whole}` lacks `{}`", shown(property));
            findings.error(part.code(), at.span, message, Some(format!("add `{}: …`", shown(property))));
        }
        _ => {
            let cause: String = error.to_string().chars().take(MESSAGE).collect();
            let help = number_for(error, at, pointer, schema);
            findings.error(part.code(), at.span, format!("`{whole}` does not fit: {cause}"), help);
        }
    }
}

/// The number to write in place of a text, if the schema wants one there.
fn number_for(error: &ValidationError<'_>, at: &Tree, pointer: &str, schema: &serde_json::Value) -> Option<String> {
    let wanted = schema.pointer(error.schema_path().as_str()).filter(|_| error.kind().keyword() == "type")?;
    let (_, key) = pointer.rsplit_once('/')?;
    matches!(wanted.as_str(), Some("integer" | "number")).then(|| numbers::meant(key, at.text()?))?
}

fn parent(pointer: &str) -> String {
    pointer.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default()
}

fn unknown_field(
    at: &Tree,
    key: &str,
    whole: &str,
    schema: Option<&serde_json::Value>,
    part: Part,
    findings: &mut Findings<'_>,
) {
    let span = match &at.kind {
        Kind::Map(entries) => entries.iter().find(|entry| &*entry.key == key).map_or(at.span, |entry| entry.key_span),
        _ => at.span,
    };
    let known = schema.and_then(|schema| schema.get("properties")).and_then(|known| known.as_object());
    let names = || known.into_iter().flat_map(|known| known.keys().map(String::as_str));
    let help = did_you_mean(key, names()).or_else(|| {
        let names: Vec<_> = names().collect();
        (!names.is_empty()).then(|| format!("known here: {}", names.join(", ")))
    });
    let message = format!("`{whole}` has no field `{}`", shown(key));
    findings.error(part.code(), span, message, help.or_else(|| Some("leave it out".into())));
}

/// The patterns of a schema that keep it from being used.
fn troubles(schema: &serde_json::Value) -> Vec<Trouble> {
    patterns::troubles(schema, |schema| compile(schema).is_ok())
}

/// Tells of patterns where they stand.
fn tell_patterns(troubles: Vec<Trouble>, schema: &Tree, findings: &mut Findings<'_>) {
    for Trouble { pointer, is_key, message, help } in troubles {
        let span = match is_key {
            true => schema.key_span(&pointer).unwrap_or(schema.span),
            false => schema.nearest(&pointer).span,
        };
        findings.error("bad_schema", span, message, Some(help));
    }
}

/// Compiles a schema that a flow holds; that it cannot be used is a finding, which calls it `what`.
pub(crate) fn check_schema(schema: &Tree, what: &str, findings: &mut Findings<'_>) -> Option<Validator> {
    let written = schema.json().to_serde();
    let error = match compile(&written) {
        Ok(validator) => return Some(validator),
        Err(error) => error,
    };
    let troubles = troubles(&written);
    if troubles.is_empty() {
        let help = Some("write JSON Schema; a `$ref` stays inside the schema".into());
        findings.error("bad_schema", schema.span, format!("{what} cannot be used: {error}"), help);
    } else {
        tell_patterns(troubles, schema, findings);
    }
    None
}

/// Checks a flow's `inputSchema`, and the defaults of its input against it. What is missing may come from the caller.
pub(crate) fn check_defaults(schema: &Tree, input: Option<&Tree>, findings: &mut Findings<'_>) {
    let Some(validator) = check_schema(schema, "`inputSchema`", findings) else { return };
    let Some(input) = input else { return };
    let value = input.json().to_serde();
    for error in validator.iter_errors(&value) {
        let (pointer, keyword) = (error.instance_path().as_str(), error.kind().keyword());
        let incomplete = ["required", "minProperties", "dependentRequired", "anyOf", "oneOf", "not"];
        if pointer.is_empty() && incomplete.contains(&keyword) {
            continue;
        }
        let cause: String = error.to_string().chars().take(MESSAGE).collect();
        let help = Some("correct the default in `flow.input`, or `inputSchema`".into());
        let span = input.nearest(pointer).span;
        findings.error("wrong_default", span, format!("the default does not fit `inputSchema`: {cause}"), help);
    }
}
