//! Names and arguments of tools.

use flowcell_flow::graph::Graph;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::http::api_error::ApiError;

/// The prefix of the names of the built-in tools. A flow with such a name is not a tool.
pub(super) const PREFIX: &str = "flowcell_";

/// Parses the arguments of a tool like a JSON body of HTTP. Returns 400 if they do not match.
pub(super) fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, ApiError> {
    // Some types keep parts of their JSON text unparsed, so the value is converted to text first.
    let read = serde_json::from_str(&arguments.to_string());
    read.map_err(|error| ApiError::bad_request(format!("the arguments do not fit the tool: {error}")))
}

/// Returns the JSON Schema of a flow's input, with its defaults. Members with a default are optional.
pub(super) fn input_schema(graph: &Graph) -> JsonObject {
    let declared = graph.input_schema.as_ref().and_then(Value::as_object).cloned();
    let is_declared = declared.is_some();
    let mut schema = declared.unwrap_or_default();
    schema.insert("type".into(), "object".into());
    let Value::Object(defaults) = graph.input.to_serde() else { return schema };
    if !defaults.is_empty() {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        for (name, value) in &defaults {
            if !is_declared || properties[name].is_object() {
                properties[name]["default"] = value.clone();
            }
        }
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(|name| defaults.contains_key(name)));
    }
    schema
}
