//! Names and arguments of tools.

use flowcell_flow::graph::Graph;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::http::fault::Fault;

/// What the names of this program's own tools begin with. A flow with such a name is no tool.
pub(super) const PREFIX: &str = "flowcell_";

/// Reads arguments as a body over HTTP is read.
pub(super) fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, Fault> {
    // Some bodies keep parts of their text as it is.
    let read = serde_json::from_str(&arguments.to_string());
    read.map_err(|error| Fault::bad_request(format!("the arguments are not what is asked for: {error}")))
}

/// The schema of a flow's input, with its defaults: what has one need not be given.
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
