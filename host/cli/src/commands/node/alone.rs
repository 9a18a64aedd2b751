//! Builds a flow that has one node.

use std::{collections::BTreeMap, path::Path};

use flowcell::{Json, Source};
use serde_json::{Value, json};

/// The id of the node.
pub(super) const NODE: &str = "node";
/// The id of the only node in the body of [`NODE`].
pub(super) const PASS: &str = "pass";

/// The single node of a flow.
pub(super) struct Alone<'a> {
    pub(super) node_type: &'a str,
    /// The grants of each capability, as a flow writes them.
    pub(super) grants: &'a BTreeMap<String, Value>,
    /// Gives the node a body with one no-op node.
    pub(super) has_body: bool,
}

impl Alone<'_> {
    /// Returns the flow as if it were a file in this folder. Its input comes from [`input`], and its output `output` is
    /// that of the node.
    pub(super) fn source(&self, folder: &Path) -> Source {
        // The node takes its values from the flow's input. Braces in literal values would be read as bindings.
        let mut node = json!({
            "id": NODE,
            "type": self.node_type,
            "input": "{{ flow.input.input }}",
            "config": "{{ flow.input.config }}",
            "grants": self.grants,
        });
        if self.has_body {
            node["body"] = json!({ "nodes": [{ "id": PASS, "type": "control.noop" }] });
        }
        let name = self.node_type.replace(['.', '@'], "-");
        let flow = json!({
            "flow": { "name": name, "outputs": { "output": format!("{{{{ {NODE} }}}}") } },
            "nodes": [node],
        });
        Source { name: folder.join(format!("{name}.json")).display().to_string(), text: flow.to_string() }
    }
}

/// Returns the input of such a flow.
pub(super) fn input(input: Json, config: Json) -> Json {
    Json::object([("input", input), ("config", config)])
}
