//! The declarations of a script: its title, inputs and outputs.

use flowcell_sdk::{Failure, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The declarations of a script.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outline {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
}

/// An input or an output.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) optional: bool,
}

/// The kind of value that an input accepts, or that an output gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Img,
    Imgs,
    Text,
    File,
    Json,
}

impl Outline {
    /// Checks that all required inputs are present.
    pub(crate) fn check(&self, inputs: &Map<String, Value>) -> Result<()> {
        let is_missing = |port: &&Port| !port.optional && inputs.get(&port.id).is_none_or(Value::is_null);
        let missing: Vec<_> = self.inputs.iter().filter(is_missing).map(|port| port.id.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let listed = missing.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
        let message = format!("the script needs {listed}; pass it, or declare it with `{{ optional: true }}`");
        Err(Failure::new("missing_input", message).details(json!({ "missing": missing })))
    }

    /// Returns the required outputs that are missing.
    pub(crate) fn missing<'a>(&'a self, outputs: &'a Map<String, Value>) -> impl Iterator<Item = &'a str> {
        let promised = self.outputs.iter().filter(|port| !port.optional).map(|port| port.id.as_str());
        promised.filter(|id| !outputs.contains_key(*id))
    }
}
