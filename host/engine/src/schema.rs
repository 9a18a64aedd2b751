//! Inputs, configs and outputs against the JSON Schemas of a node type.

use std::sync::OnceLock;

use flowcell_contract::{Failure, Json, NodeType, code};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Schema;

mod tree;

use crate::text::cut;
use tree::Tree;

/// How many errors a message tells.
const TOLD: usize = 3;
/// The longest that one of them is shown with the value it complains about.
const SHOWN_BYTES: usize = 240;

/// The schemas of one node type, each compiled when it is first needed. A schema that admits anything is none.
#[derive(Default)]
pub(crate) struct Schemas {
    input: Compiled,
    config: Compiled,
    output: Compiled,
}

type Compiled = OnceLock<Result<Option<Validator<Tree>>, Failure>>;

impl Schemas {
    /// Checks an input. Fields that the host hands over captured are for the node to check.
    pub(crate) fn check_input(&self, node: &NodeType, input: &Json) -> Result<(), Failure> {
        let schema = || without_captured(&node.input);
        let told = errors(&self.input, node, "input", schema, input)?;
        told.map_or(Ok(()), |told| Err(Failure::new(code::INVALID_INPUT, format!("{}: {told}", node.name))))
    }

    /// Checks a config. None at all is a config too.
    pub(crate) fn check_config(&self, node: &NodeType, config: &Json) -> Result<(), Failure> {
        if config.is_null() {
            return Ok(());
        }
        let told = errors(&self.config, node, "config", || node.config.clone(), config)?;
        told.map_or(Ok(()), |told| Err(Failure::new(code::INVALID_INPUT, format!("{}: config: {told}", node.name))))
    }

    /// Checks an output.
    pub(crate) fn check_output(&self, node: &NodeType, output: &Json) -> Result<(), Failure> {
        let told = errors(&self.output, node, "output", || node.output.clone(), output)?;
        told.map_or(Ok(()), |told| Err(Failure::new(code::INVALID_OUTPUT, format!("{}: {told}", node.name))))
    }
}

/// What is wrong with a value; none if nothing is.
fn errors(
    compiled: &Compiled,
    node: &NodeType,
    part: &str,
    schema: impl FnOnce() -> Schema,
    value: &Json,
) -> Result<Option<String>, Failure> {
    let validator = compiled.get_or_init(|| {
        let schema = schema();
        if admits_anything(&schema) {
            return Ok(None);
        }
        compile(&schema).map(Some).map_err(|error| {
            Failure::new(code::BAD_PACK, format!("the {part} schema of `{}` is wrong: {error}", node.name))
        })
    });
    let validator = match validator {
        Ok(Some(validator)) => validator,
        Ok(None) => return Ok(None),
        Err(failure) => return Err(failure.clone()),
    };
    if validator.is_valid(value) {
        return Ok(None);
    }
    Ok(Some(tell(validator, value)))
}

/// Patterns run in linear time, and no `$ref` leaves the schema: there is no retriever.
fn compile(schema: &Schema) -> Result<Validator<Tree>, String> {
    jsonschema::options_for::<Tree>()
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
        .build(schema)
        .map_err(|error| error.to_string())
}

fn tell(validator: &Validator<Tree>, value: &Json) -> String {
    let told: Vec<_> = validator
        .iter_errors(value)
        .take(TOLD)
        .map(|error| {
            let mut text = error.to_string();
            if text.len() > SHOWN_BYTES {
                text = cut(error.masked().to_string(), SHOWN_BYTES);
            }
            match error.instance_path().as_str() {
                "" => text,
                path => format!("at `{path}`: {text}"),
            }
        })
        .collect();
    told.join("; ")
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

/// The schema with `true` in place of every field that is marked as a condition or a template.
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

    fn told(schema: Schema, value: Schema) -> Option<String> {
        let validator = compile(&without_captured(&schema)).unwrap();
        let value = Json::from(value);
        (!validator.is_valid(&value)).then(|| tell(&validator, &value))
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
            (json!({ "enum": [1, { "a": [null] }] }), json!({ "a": [null] }), None),
            (json!({ "const": 1 }), json!(1.0), None),
            (json!({ "uniqueItems": true }), json!([1, 2, 1.0]), Some("has non-unique elements")),
            (json!({ "propertyNames": { "pattern": "^a" } }), json!({ "b": 1 }), Some("^a")),
            (json!({ "$defs": { "n": { "type": "null" } }, "$ref": "#/$defs/n" }), json!(null), None),
        ];
        for (schema, value, expected) in cases {
            match (told(schema.clone(), value.clone()), expected) {
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
        assert_eq!(told(schema.clone(), json!({ "when": captured, "cases": [{ "when": captured, "name": 1 }] })), None);
        assert!(told(schema, json!({ "cases": [{ "when": captured }] })).unwrap().contains("\"name\""));
    }

    #[test]
    fn no_reference_leaves_the_schema() {
        for target in ["https://example.com/a.json", "file:///etc/passwd", "other.json"] {
            assert!(compile(&json!({ "$ref": target })).is_err(), "{target}");
        }
    }

    #[test]
    fn a_large_value_is_not_shown() {
        let told =
            told(json!({ "properties": { "a": { "type": "null" } } }), json!({ "a": "x".repeat(1 << 20) })).unwrap();
        assert!(told.len() < 300 && told.starts_with("at `/a`:"), "{told}");
    }
}
