//! The JSON Schema of flows with everything of the catalog, for editors that read schemas only.

use flowcell_contract::{Catalog, NodeType};
use serde_json::{Map, Value, json};

/// Keywords with a schema, with a list of schemas, and with a map of schemas.
const ONE: [&str; 5] = ["items", "additionalProperties", "not", "contains", "propertyNames"];
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const MAPS: [&str; 3] = ["properties", "patternProperties", "$defs"];

/// Adds the node types of a catalog to the schema of the graph dialect: their names, and the schemas of their inputs
/// and configs. A text with `{{ }}` may stand for each value.
pub fn with_catalog(mut schema: Value, catalog: &Catalog) -> Value {
    let (mut names, mut titles, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    for kind in newest(catalog) {
        names.push(json!(kind.name));
        titles.push(json!(kind.title));
        let mut fields = Map::new();
        for (field, written) in [("input", &kind.input), ("config", &kind.config)] {
            // Editors show this name. No sign of it has another meaning in a reference.
            let name = format!("{}.{field}", kind.name);
            let mut converted = converted(written, &format!("#/$defs/{name}"));
            // A prompt may come from `promptFile`.
            if let Some(required) = converted.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| name != "prompt");
            }
            schema["$defs"][&name] = converted;
            fields.insert(field.into(), json!({ "anyOf": [{ "$ref": format!("#/$defs/{name}") }, binding()] }));
        }
        let name = format!("^{}(@|$)", kind.name.replace('.', r"\."));
        rules.push(json!({
            "if": { "required": ["type"], "properties": { "type": { "type": "string", "pattern": name } } },
            "then": { "properties": fields },
        }));
    }
    let node = &mut schema["$defs"]["node"];
    node["properties"]["type"] = json!({
        "description": "A node type, such as control.if, or acme.greet@1.2",
        "anyOf": [{ "enum": names, "enumDescriptions": titles }, { "type": "string", "pattern": r"^[^.]+\.[^@]+@" }],
    });
    node["allOf"] = Value::Array(rules);
    schema
}

/// Returns the newest version of each type.
fn newest(catalog: &Catalog) -> impl Iterator<Item = &NodeType> {
    let mut last = None;
    catalog.types().map(|kind| &**kind).filter(move |kind| {
        let is_first = last != Some(&kind.name);
        last = Some(&kind.name);
        is_first
    })
}

fn binding() -> Value {
    json!({ "type": "string", "pattern": r"\{\{" })
}

/// Returns the schema of a type for a flow's text: without marks, with references below `root`, and with texts in place
/// of values.
fn converted(schema: &Value, root: &str) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let mut result = Map::new();
    for (key, value) in members.iter().filter(|(key, _)| *key != "x-flowcell") {
        let key = key.as_str();
        let value = match value {
            Value::String(target) if key == "$ref" => {
                json!(format!("{root}{}", target.trim_start_matches('#')))
            }
            Value::Array(parts) if LISTS.contains(&key) => parts.iter().map(|part| converted(part, root)).collect(),
            Value::Object(parts) if MAPS.contains(&key) => {
                let part = |(name, part): (&String, &Value)| (name.clone(), relaxed(converted(part, root)));
                Value::Object(parts.iter().map(part).collect())
            }
            _ if ONE.contains(&key) => relaxed(converted(value, root)),
            other => other.clone(),
        };
        result.insert(key.to_owned(), value);
    }
    Value::Object(result)
}

/// Returns a schema that also admits a text with `{{ }}`.
fn relaxed(schema: Value) -> Value {
    let Some(members) = schema.as_object() else { return schema };
    let admits_all_texts =
        !["type", "enum", "const", "pattern", "anyOf", "oneOf", "allOf", "$ref", "format", "maxLength", "minLength"]
            .iter()
            .any(|keyword| members.contains_key(*keyword));
    let is_text = members.get("type").is_some_and(|name| name == "string")
        && !["enum", "pattern", "maxLength", "minLength", "format"]
            .iter()
            .any(|keyword| members.contains_key(*keyword));
    if admits_all_texts || is_text {
        return schema;
    }
    let description = members.get("description").cloned();
    let mut result = json!({ "anyOf": [schema, binding()] });
    if let Some(description) = description {
        result["description"] = description;
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Json;
    use flowcell_schema::{Budget, Schema};

    use super::*;
    use crate::kit::{CATALOG, EXAMPLES};

    /// Repeats a check that takes more than its time on a busy machine.
    fn patiently<T, E: std::fmt::Debug>(check: impl Fn() -> Result<T, E>) -> T {
        (0..20).find_map(|_| check().ok()).unwrap_or_else(|| check().unwrap())
    }

    #[test]
    fn examples_fit_the_schema_and_wrong_inputs_do_not() {
        let schema = with_catalog(flowcell_flow::schema(), &CATALOG);
        let schema = patiently(|| Schema::compile(&schema));
        for source in EXAMPLES.iter() {
            let value: Value = serde_yaml::from_str(&source.text).unwrap();
            let value = Json::from(value);
            let errors = patiently(|| schema.errors(&value, Budget::FULL));
            assert!(errors.is_empty(), "{}: {errors:#?}", source.name);
        }
        let node = |kind: &str, input: Value| json!({ "flow": { "name": "a" }, "nodes": [{ "id": "x", "type": kind, "input": input }] });
        let is_valid = |flow: Value| {
            let flow = Json::from(flow);
            patiently(|| schema.is_valid(&flow, Budget::FULL))
        };
        assert!(is_valid(node("control.foreach", json!({ "list": "{{ flow.input.a }}", "concurrency": "{{ 2 }}" }))));
        for (kind, input) in [
            ("control.foreach", json!({ "list": "a" })),
            ("control.foreach@0.1", json!({ "list": [], "conc": 2 })),
            ("control.iff", json!({})),
            ("control.if", json!({})),
        ] {
            assert!(!is_valid(node(kind, input.clone())), "{kind} {input}");
        }
    }
}
