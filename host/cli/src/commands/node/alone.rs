//! The flow of one node.

use std::{collections::BTreeMap, path::Path};

use flowcell::{Json, Source};
use serde_json::{Value, json};

/// The id of the node.
pub(super) const NODE: &str = "node";
/// The id of the only node in its body.
pub(super) const PASS: &str = "pass";

/// One node, which a flow is made of.
pub(super) struct Alone<'a> {
    pub(super) node_type: &'a str,
    /// By capability, as a flow writes them.
    pub(super) grants: &'a BTreeMap<String, Value>,
    /// Whether it owns a body.
    pub(super) has_body: bool,
}

impl Alone<'_> {
    /// The flow, as if it lay in this folder. It takes what [`input`] makes, and gives the node's output as `output`.
    pub(super) fn source(&self, folder: &Path) -> Source {
        // Values come through the flow's input, so that braces in them are no bindings.
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

/// What such a flow takes.
pub(super) fn input(input: Json, config: Json) -> Json {
    Json::object([("input", input), ("config", config)])
}
