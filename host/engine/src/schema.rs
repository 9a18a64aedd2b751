//! Checks inputs, configs and outputs against the JSON Schemas of a node type.

use std::sync::OnceLock;

use flowcell_contract::{Failure, Json, NodeType, code};
use flowcell_schema::{Budget, Schema as Compiled, SchemaError, TooCostly, ValidationError};
use serde_json::Value as Schema;

use crate::text::cut;

/// The maximum number of errors in one message.
const MAX_ERRORS: usize = 3;
/// The maximum length in bytes of an error that quotes the wrong value. A longer one is shown without the value.
const MAX_SHOWN_BYTES: usize = 240;

/// A part of an attempt that has its own schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Input,
    Config,
    Output,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Input => "input",
            Part::Config => "config",
            Part::Output => "output",
        }
    }

    /// Returns this part's schema. Fields that are marked as conditions or templates may have any value, since the
    /// host replaces them and the node checks them.
    fn schema(self, node: &NodeType) -> Schema {
        match self {
            Part::Input => without_captured(&node.input),
            Part::Config => node.config.clone(),
            Part::Output => node.output.clone(),
        }
    }
}

/// The result of compiling a schema. `None`: the schema admits every value, so there is nothing to check.
type CompileResult = Result<Option<Compiled>, Failure>;

/// The schemas of one node type. Each is compiled on first use.
#[derive(Default)]
pub(crate) struct Schemas {
    input: OnceLock<CompileResult>,
    config: OnceLock<CompileResult>,
    output: OnceLock<CompileResult>,
}

impl Schemas {
    fn slot(&self, part: Part) -> &OnceLock<CompileResult> {
        match part {
            Part::Input => &self.input,
            Part::Config => &self.config,
            Part::Output => &self.output,
        }
    }

    /// Checks a value if that takes at most about a millisecond. Returns `None` if it takes longer, or if the schema
    /// is not compiled yet. Then the caller calls [`Schemas::check`] on a thread that may block.
    pub(crate) fn check_shortly(&self, node: &NodeType, part: Part, value: &Json) -> Option<Result<(), Failure>> {
        let ready = match self.slot(part).get()? {
            Ok(Some(ready)) => ready,
            Ok(None) => return Some(Ok(())),
            Err(failure) => return Some(Err(failure.clone())),
        };
        Some(verdict(node, part, value, ready.errors(value, Budget::SHORT).ok()?))
    }

    /// Checks a value, and compiles the schema first if necessary. It may block for about 2 s.
    pub(crate) fn check(&self, node: &NodeType, part: Part, value: &Json) -> Result<(), Failure> {
        let ready = self.slot(part).get_or_init(|| compile(node, part));
        let Some(ready) = ready.as_ref().map_err(Clone::clone)? else { return Ok(()) };
        match ready.errors(value, Budget::FULL) {
            Ok(errors) => verdict(node, part, value, errors),
            Err(error) => Err(too_costly(node, part, error)),
        }
    }
}

fn compile(node: &NodeType, part: Part) -> CompileResult {
    let schema = part.schema(node);
    if admits_anything(&schema) {
        return Ok(None);
    }
    Compiled::compile(&schema).map(Some).map_err(|error| match error {
        SchemaError::TooCostly(error) => too_costly(node, part, error),
        error => {
            Failure::new(code::BAD_PACK, format!("the {} schema of `{}` is invalid: {error}", part.name(), node.name))
        }
    })
}

fn too_costly(node: &NodeType, part: Part, error: TooCostly) -> Failure {
    let message = format!("cannot check the {} of `{}` against its schema: {error}", part.name(), node.name);
    Failure::new(code::SCHEMA_TOO_COSTLY, message)
}

fn verdict(node: &NodeType, part: Part, value: &Json, errors: Vec<ValidationError<'_>>) -> Result<(), Failure> {
    if errors.is_empty() {
        return Ok(());
    }
    let (code, config) = match part {
        Part::Input => (code::INVALID_INPUT, ""),
        Part::Config => (code::INVALID_INPUT, "config: "),
        Part::Output => (code::INVALID_OUTPUT, ""),
    };
    Err(Failure::new(code, format!("{}: {config}{}", node.name, describe_errors(value, &errors))))
}

fn describe_errors(value: &Json, errors: &[ValidationError<'_>]) -> String {
    let texts = errors.iter().take(MAX_ERRORS).map(|error| {
        let mut text = error.to_string();
        if text.len() > MAX_SHOWN_BYTES {
            text = cut(error.masked().to_string(), MAX_SHOWN_BYTES);
        }
        let path = error.instance_path().as_str();
        if value.pointer(path).is_some_and(Json::is_file) {
            text.push_str(" (this is a file value, which does not contain the content; read it with `file.content`)");
        }
        match path {
            "" => text,
            path => format!("at `{path}`: {text}"),
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn admits_anything(schema: &Schema) -> bool {
    match schema {
        Schema::Bool(admits) => *admits,
        Schema::Object(keywords) => {
            keywords.keys().all(|key| matches!(key.as_str(), "title" | "description" | "$schema"))
        }
        _ => false,
    }
}

/// Returns the schema with `true` in place of each field that is marked as a condition or a template.
fn without_captured(schema: &Schema) -> Schema {
    let Schema::Object(keywords) = schema else { return schema.clone() };
    let mark = keywords.get("x-flowcell").and_then(|mark| mark.get("as")).and_then(Schema::as_str);
    if matches!(mark, Some("condition" | "template")) {
        return Schema::Bool(true);
    }
    let keywords = keywords.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties", Schema::Object(properties)) => {
                Schema::Object(properties.iter().map(|(key, value)| (key.clone(), without_captured(value))).collect())
            }
            ("items", items) => without_captured(items),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Schema::Object(keywords.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    fn message_of(schema: Schema, value: Schema) -> Option<String> {
        let schema = Compiled::compile(&without_captured(&schema)).unwrap();
        let value = Json::from(value);
        let errors = schema.errors(&value, Budget::FULL).unwrap();
        (!errors.is_empty()).then(|| describe_errors(&value, &errors))
    }

    #[test]
    fn values_are_checked_as_the_schema_says() {
        let cases = [
            (json!({ "type": "integer", "minimum": 2 }), json!(3), None),
            (json!({ "type": "integer" }), json!(3.0), None),
            (json!({ "type": "integer" }), json!(3.5), Some("3.5 is not of type \"integer\"")),
            (json!({ "required": ["a"] }), json!({}), Some("\"a\" is a required property")),
            (
                json!({ "properties": { "a": { "items": { "maxLength": 2 } } } }),
                json!({ "a": ["ää", "äää"] }),
                Some("at `/a/1`: \"äää\" is longer than 2 characters"),
            ),
            (
                json!({ "properties": { "a": true }, "additionalProperties": false }),
                json!({ "x": 1 }),
                Some("Additional properties"),
            ),
            (
                json!({ "properties": { "text": { "type": "string" } } }),
                json!({ "text": { "kind": "file", "fileId": "a" } }),
                Some("read it with `file.content`"),
            ),
            (json!({ "enum": [1, { "a": [null] }] }), json!({ "a": [null] }), None),
            (json!({ "const": 1 }), json!(1.0), None),
            (json!({ "uniqueItems": true }), json!([1, 2, 1.0]), Some("has non-unique elements")),
            (json!({ "propertyNames": { "pattern": "^a" } }), json!({ "b": 1 }), Some("^a")),
            (json!({ "$defs": { "n": { "type": "null" } }, "$ref": "#/$defs/n" }), json!(null), None),
        ];
        for (schema, value, expected) in cases {
            match (message_of(schema.clone(), value.clone()), expected) {
                (None, None) => {}
                (Some(told), Some(expected)) if told.contains(expected) => {}
                (told, _) => panic!("{schema} on {value}: {told:?}"),
            }
        }
    }

    #[test]
    fn captured_fields_are_left_to_the_node() {
        let field = json!({ "type": "string", "x-flowcell": { "as": "condition" } });
        let schema = json!({
            "properties": { "when": field, "cases": { "items": { "properties": { "when": field }, "required": ["name"] } } },
        });
        let captured = json!({ "expr": {}, "vars": {} });
        assert_eq!(
            message_of(schema.clone(), json!({ "when": captured, "cases": [{ "when": captured, "name": 1 }] })),
            None
        );
        assert!(message_of(schema, json!({ "cases": [{ "when": captured }] })).unwrap().contains("\"name\""));
    }

    #[test]
    fn no_reference_leaves_the_schema() {
        for target in ["https://example.com/a.json", "file:///etc/passwd", "other.json"] {
            assert!(Compiled::compile(&json!({ "$ref": target })).is_err(), "{target}");
        }
    }

    #[test]
    fn a_large_value_is_not_shown() {
        let told =
            message_of(json!({ "properties": { "a": { "type": "null" } } }), json!({ "a": "x".repeat(1 << 20) }))
                .unwrap();
        assert!(told.len() < 300 && told.starts_with("at `/a`:"), "{told}");
    }
}
