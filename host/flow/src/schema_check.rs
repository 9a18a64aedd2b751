//! Checks literal values against the schemas of node types.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use flowcell_contract::{Json, MarkKind, NodeType, Trait};
use flowcell_schema::{Budget, Schema, SchemaError, TooCostly, ValidationError, ValidationErrorKind, thread_time};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    key_hints, numbers,
    patterns::{self, PatternError},
    yaml::{Kind, Span, Tree},
};

/// Maximum number of characters of a validator's message.
const MAX_MESSAGE_CHARS: usize = 200;
/// Maximum CPU time for compiling and applying all schemas of one flow.
pub(crate) const SCHEMA_TIME: Duration = Duration::from_secs(10);

/// The reason why a schema cannot be used.
#[derive(Clone, Debug)]
pub(crate) enum CompileError {
    /// The schema is invalid or needs an unsupported feature.
    Invalid(String),
    /// The schema exceeds a limit.
    TooCostly(TooCostly),
}

/// Compiles a schema. References must point to parts of this schema, and its patterns run in linear time.
pub(crate) fn compile(schema: &serde_json::Value) -> Result<Schema, CompileError> {
    Schema::compile(schema).map_err(|error| {
        // If several references fail, the library names any of them; this picks the first, so that the message is
        // deterministic.
        let message = match (&error, outer_reference(schema)) {
            (SchemaError::TooCostly(error), _) => return CompileError::TooCostly(*error),
            (SchemaError::Invalid(invalid), Some(outer))
                if matches!(invalid.kind(), ValidationErrorKind::Referencing(_)) =>
            {
                format!("`{}` refers to another document", for_message(outer))
            }
            _ => error.to_string(),
        };
        CompileError::Invalid(message.chars().take(MAX_MESSAGE_CHARS).collect())
    })
}

/// Reports a schema that exceeds a limit. A flow in a library may contain such a schema; its runs then fail with the
/// same code.
fn report_cost(what: &str, error: &dyn std::fmt::Display, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("{what} cannot be used: {error}");
    let help =
        Some("the size of a schema includes its unfolded references; simplify it, or check details in a node".into());
    diagnostics.new_rule("schema_too_costly", span, message, help);
}

/// Calls `work`, and adds its CPU time to the time that this flow's schemas have taken. If their time exceeds
/// [`SCHEMA_TIME`], reports this once; later calls return `None` and do not call `work`.
fn within_schema_time<T>(
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
    work: impl FnOnce(&mut Diagnostics<'_>) -> T,
) -> Option<T> {
    if diagnostics.schema_time > SCHEMA_TIME {
        return None;
    }
    let since = thread_time();
    let done = work(diagnostics);
    diagnostics.schema_time += thread_time().saturating_sub(since);
    if diagnostics.schema_time > SCHEMA_TIME {
        let message =
            format!("checking the schemas of this flow takes more than {} s of CPU time", SCHEMA_TIME.as_secs());
        diagnostics.new_rule("schema_too_costly", span, message, Some("use fewer or smaller schemas".into()));
    }
    Some(done)
}

/// Returns the first `$ref` that does not refer to a part of the schema itself.
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

/// The checked part of a node.
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

/// A schema with its compiled form.
struct Checker {
    schema: serde_json::Value,
    compiled: Schema,
    /// True if the node type may own a body.
    owns_body: bool,
    /// True for a type of this program.
    is_built_in: bool,
}

/// Parts of the paths in schemas of built-in types that their first versions did not have. A flow in a library may break
/// such a rule in a node that never runs.
const LATER_RULES: [&str; 5] =
    ["/pattern", "/minProperties", "/propertyNames", "/dependentRequired", "/dependentSchemas"];

/// A compiled schema, or the reason why it cannot be used.
type Compiled = Result<Rc<Checker>, CompileError>;

/// The compiled schemas of node types. A schema is compiled once, for all nodes of its type.
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
        diagnostics: &mut Diagnostics<'_>,
    ) {
        within_schema_time(type_span, diagnostics, |diagnostics| {
            self.check_now(tree, (kind, type_span), part, diagnostics)
        });
    }

    fn check_now(
        &self,
        tree: &Tree,
        (kind, type_span): (&NodeType, Span),
        part: Part,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        let key = (kind.full_name(), part);
        let compiled = self.compiled.borrow_mut().entry(key).or_insert_with(|| checker(kind, part)).clone();
        let what = format!("the {} schema of `{}`", part.name(), kind.name);
        let checker = match compiled {
            Ok(checker) => checker,
            Err(CompileError::TooCostly(error)) => return report_cost(&what, &error, type_span, diagnostics),
            Err(CompileError::Invalid(error)) => {
                let message = format!("{what} cannot be used: {error}");
                return diagnostics.error(
                    "bad_schema",
                    type_span,
                    message,
                    Some("the pack's author must fix the schema".into()),
                );
            }
        };
        let value = tree.json();
        let errors = match checker.compiled.errors(&value, Budget::FULL) {
            Ok(errors) => errors,
            Err(error) => return report_cost(&what, &error, tree.span, diagnostics),
        };
        for error in errors {
            let at = tree.nearest(error.instance_path().as_str());
            if !depends_on_bindings(&error, at) {
                report(&error, tree, &checker, part, diagnostics);
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
        accept_everything(&mut schema, &mark.path);
    }
    let compiled = compile(&schema).map_err(|error| match (error, pattern_errors(&schema).into_iter().next()) {
        (CompileError::Invalid(_), Some(pattern_error)) => {
            CompileError::Invalid(format!("{} (at `{}`)", pattern_error.message, for_message(&pattern_error.pointer)))
        }
        (error, _) => error,
    })?;
    Ok(Rc::new(Checker { schema, compiled, owns_body: kind.has(Trait::Body), is_built_in: kind.is_built_in() }))
}

/// Replaces the schema of the field at `path` with one that accepts every value.
fn accept_everything(schema: &mut serde_json::Value, path: &[Arc<str>]) {
    let Some((step, rest)) = path.split_first() else {
        *schema = serde_json::Value::Bool(true);
        return;
    };
    let next = match &**step {
        "*" => schema.get_mut("items"),
        step => schema.get_mut("properties").and_then(|properties| properties.get_mut(step)),
    };
    if let Some(next) = next {
        accept_everything(next, rest);
    }
}

/// Returns true if the error may disappear as soon as the bindings have values, because the value `at` is or contains a
/// binding.
fn depends_on_bindings(error: &ValidationError<'_>, at: &Tree) -> bool {
    // These keywords depend on values below the position, too.
    let wide = ["anyOf", "oneOf", "not", "contains", "uniqueItems", "enum", "const"].contains(&error.kind().keyword());
    // A field that may not be there is refused with every value.
    let is_refused = matches!(error.kind(), ValidationErrorKind::FalseSchema);
    !is_refused && is_bound(at) && (wide || matches!(at.kind, Kind::Scalar(_)))
}

/// Returns true if the value contains a binding.
pub(crate) fn is_bound(tree: &Tree) -> bool {
    match &tree.kind {
        Kind::Scalar(json) => json.as_str().is_some_and(|text| text.contains("{{")),
        Kind::List(items) => items.iter().any(is_bound),
        Kind::Map(entries) => entries.iter().any(|entry| is_bound(&entry.value)),
    }
}

fn report(error: &ValidationError<'_>, tree: &Tree, checker: &Checker, part: Part, diagnostics: &mut Diagnostics<'_>) {
    let schema = &checker.schema;
    let schema_path = error.schema_path().as_str();
    let is_later = checker.is_built_in && LATER_RULES.iter().any(|rule| schema_path.contains(rule));
    let refuse = |diagnostics: &mut Diagnostics<'_>, span: Span, message: String, help: Option<String>| match is_later {
        true => diagnostics.new_rule(part.code(), span, message, help),
        false => diagnostics.error(part.code(), span, message, help),
    };
    let pointer = error.instance_path().as_str();
    let at = tree.nearest(pointer);
    let whole = format!("{}{}", part.name(), pointer.replace('/', "."));
    let whole = for_message(&whole);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            for key in unexpected {
                report_unknown_field(
                    at,
                    key,
                    &whole,
                    schema.pointer(&parent(error.schema_path().as_str())),
                    (part, checker.owns_body),
                    diagnostics,
                );
            }
        }
        // If the map allows no members at all, the validator reports the map instead of its members.
        ValidationErrorKind::FalseSchema if error.schema_path().as_str().ends_with("/additionalProperties") => {
            if let Kind::Map(entries) = &at.kind {
                entries.iter().for_each(|entry| {
                    report_unknown_field(at, &entry.key, &whole, None, (part, checker.owns_body), diagnostics)
                });
            }
        }
        ValidationErrorKind::Required { property } => {
            let property = property.as_str().unwrap_or_default();
            let message = format!("`{whole}` has no `{}`", for_message(property));
            refuse(diagnostics, at.span, message, Some(format!("add `{}: …`", for_message(property))));
        }
        ValidationErrorKind::FalseSchema if beside(schema_path).is_some() => {
            let other = beside(schema_path).unwrap_or_default();
            let message = format!("`{whole}` cannot stand beside `{}`", for_message(other));
            refuse(diagnostics, at.span, message, Some("remove one of them".into()));
        }
        ValidationErrorKind::Constant { expected_value } if beside(schema_path).is_some() => {
            let other = for_message(beside(schema_path).unwrap_or_default());
            let written = expected_value.as_str().map_or_else(|| expected_value.to_string(), str::to_owned);
            let message = format!("`{whole}` must be `{}` beside `{other}`", for_message(&written));
            refuse(diagnostics, at.span, message, Some(format!("remove it, or remove `{other}`")));
        }
        ValidationErrorKind::MinProperties { .. } => {
            let known = schema.pointer(&parent(schema_path)).and_then(|schema| schema.get("properties"));
            let names = known.and_then(|known| known.as_object()).into_iter().flat_map(|known| known.keys());
            let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
            refuse(
                diagnostics,
                at.span,
                format!("`{whole}` is empty"),
                Some(format!("add one of {}", names.join(", "))),
            );
        }
        _ => {
            let cause: String = error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
            let help = value_for(error, at, pointer, schema);
            refuse(diagnostics, at.span, format!("`{whole}` does not match the schema: {cause}"), help);
        }
    }
}

/// Returns the field that excludes another one, or bounds it to one value, by `/dependentSchemas/FIELD/properties/OTHER`.
fn beside(schema_path: &str) -> Option<&str> {
    let (_, rest) = schema_path.rsplit_once("/dependentSchemas/")?;
    rest.split_once("/properties/").map(|(field, _)| field)
}

/// Suggests a value that the schema admits: a number in place of a quoted one, a list in place of its only item, and one
/// of the permitted texts in place of a similar one. For a text of another form, returns the description of the field.
fn value_for(error: &ValidationError<'_>, at: &Tree, pointer: &str, schema: &serde_json::Value) -> Option<String> {
    let wanted = schema.pointer(error.schema_path().as_str())?;
    let (_, key) = pointer.rsplit_once('/')?;
    if error.kind().keyword() == "enum" {
        return did_you_mean(at.text()?, wanted.as_array()?.iter().filter_map(serde_json::Value::as_str));
    }
    if error.kind().keyword() == "pattern" {
        let described = schema.pointer(&parent(error.schema_path().as_str()))?.get("description")?.as_str()?;
        return Some(described.trim_end_matches('.').to_owned());
    }
    let wanted = wanted.as_str().filter(|_| error.kind().keyword() == "type")?;
    match (wanted, &at.kind) {
        ("integer" | "number", _) => numbers::suggest(key, at.text()?),
        ("array", Kind::Scalar(json)) if !json.is_null() => {
            Some(format!("write a list: `{}: [{}]`", for_message(key), for_message(&json.to_string())))
        }
        _ => None,
    }
}

fn parent(pointer: &str) -> String {
    pointer.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default()
}

fn report_unknown_field(
    at: &Tree,
    key: &str,
    whole: &str,
    schema: Option<&serde_json::Value>,
    (part, owns_body): (Part, bool),
    diagnostics: &mut Diagnostics<'_>,
) {
    let span = match &at.kind {
        Kind::Map(entries) => entries.iter().find(|entry| &*entry.key == key).map_or(at.span, |entry| entry.key_span),
        _ => at.span,
    };
    let known = schema.and_then(|schema| schema.get("properties")).and_then(|known| known.as_object());
    let names = || known.into_iter().flat_map(|known| known.keys().map(String::as_str));
    let is_top = part == Part::Input && whole == part.name();
    let beside = is_top.then(|| key_hints::for_input(key, names(), owns_body)).flatten();
    let help = beside.or_else(|| did_you_mean(key, names())).or_else(|| {
        let names: Vec<_> = names().collect();
        (!names.is_empty()).then(|| format!("known fields: {}", names.join(", ")))
    });
    let message = format!("`{whole}` has no field `{}`", for_message(key));
    diagnostics.error(part.code(), span, message, help.or_else(|| Some("remove it".into())));
}

/// Returns the patterns of a schema that make it unusable.
fn pattern_errors(schema: &serde_json::Value) -> Vec<PatternError> {
    patterns::pattern_errors(schema, |schema| Schema::compile(schema).is_ok())
}

/// Reports invalid patterns at their positions.
fn report_patterns(pattern_errors: Vec<PatternError>, schema: &Tree, diagnostics: &mut Diagnostics<'_>) {
    for PatternError { pointer, is_key, message, help } in pattern_errors {
        let span = match is_key {
            true => schema.key_span(&pointer).unwrap_or(schema.span),
            false => schema.nearest(&pointer).span,
        };
        diagnostics.error("bad_schema", span, message, Some(help));
    }
}

/// Compiles a schema in a flow. Reports an unusable schema and returns `None` for it. `what` names the schema in the
/// message.
pub(crate) fn check_schema(schema: &Tree, what: &str, diagnostics: &mut Diagnostics<'_>) -> Option<Schema> {
    within_schema_time(schema.span, diagnostics, |diagnostics| check_schema_now(schema, what, diagnostics)).flatten()
}

fn check_schema_now(schema: &Tree, what: &str, diagnostics: &mut Diagnostics<'_>) -> Option<Schema> {
    let written = schema.json().to_serde();
    let error = match compile(&written) {
        Ok(compiled) => {
            if let Err(error) = compiled.check_new() {
                report_cost(what, &error, schema.span, diagnostics);
            }
            return Some(compiled);
        }
        Err(CompileError::TooCostly(error)) => {
            report_cost(what, &error, schema.span, diagnostics);
            return None;
        }
        Err(CompileError::Invalid(error)) => error,
    };
    let pattern_errors = pattern_errors(&written);
    if pattern_errors.is_empty() {
        let help = Some("write a valid JSON Schema; each `$ref` must stay inside the schema".into());
        diagnostics.error("bad_schema", schema.span, format!("{what} cannot be used: {error}"), help);
    } else {
        report_patterns(pattern_errors, schema, diagnostics);
    }
    None
}

/// Returns the places where the literal parts of a value do not match a schema, with the causes. Reports a schema that
/// exceeds a limit. `what` names the schema in the message.
pub(crate) fn misfits(
    value: &Tree,
    schema: Option<&Schema>,
    what: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<(Span, String)> {
    let Some(schema) = schema else { return Vec::new() };
    let now = |diagnostics: &mut Diagnostics<'_>| misfits_now(value, schema, what, diagnostics);
    within_schema_time(value.span, diagnostics, now).unwrap_or_default()
}

fn misfits_now(value: &Tree, schema: &Schema, what: &str, diagnostics: &mut Diagnostics<'_>) -> Vec<(Span, String)> {
    let json = value.json();
    let errors = match schema.errors(&json, Budget::FULL) {
        Ok(errors) => errors,
        Err(error) => {
            report_cost(what, &error, value.span, diagnostics);
            return Vec::new();
        }
    };
    let misfit = |error: &ValidationError<'_>| {
        let at = value.nearest(error.instance_path().as_str());
        let cause = || error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
        (!depends_on_bindings(error, at)).then(|| (at.span, cause()))
    };
    errors.iter().filter_map(misfit).collect()
}

/// Checks a flow's `inputSchema`, and the defaults of its input against it. Missing members are allowed, because the
/// caller may provide them.
pub(crate) fn check_defaults(schema: &Tree, input: Option<&Tree>, diagnostics: &mut Diagnostics<'_>) {
    let Some(compiled) = check_schema(schema, "`inputSchema`", diagnostics) else { return };
    let Some(input) = input else { return };
    within_schema_time(input.span, diagnostics, |diagnostics| check_defaults_now(&compiled, input, diagnostics));
}

fn check_defaults_now(schema: &Schema, input: &Tree, diagnostics: &mut Diagnostics<'_>) {
    let value: Json = input.json();
    let errors = match schema.errors(&value, Budget::FULL) {
        Ok(errors) => errors,
        Err(error) => return report_cost("`inputSchema`", &error, input.span, diagnostics),
    };
    for error in errors {
        let (pointer, keyword) = (error.instance_path().as_str(), error.kind().keyword());
        let incomplete = ["required", "minProperties", "dependentRequired", "anyOf", "oneOf", "not"];
        if pointer.is_empty() && incomplete.contains(&keyword) {
            continue;
        }
        let cause: String = error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
        let help = Some("change the default in `flow.input`, or `inputSchema`".into());
        let span = input.nearest(pointer).span;
        diagnostics.error("wrong_default", span, format!("the default does not match `inputSchema`: {cause}"), help);
    }
}
