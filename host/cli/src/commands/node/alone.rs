//! Builds a flow that has one node.

use std::{collections::BTreeMap, path::Path};

use flowcell::{Json, Source};
use serde_json::{Value, json};

/// The id of the node.
pub(super) const NODE_ID: &str = "node";
/// The id of the only node in the body of [`NODE_ID`].
pub(super) const PASS_ID: &str = "pass";

/// The single node of a flow.
pub(super) struct SingleNodeFlow<'a> {
    pub(super) node_type: &'a str,
    /// The grants of each capability, as a flow writes them.
    pub(super) grants: &'a BTreeMap<String, Value>,
    /// True if the node has a body, which then contains one no-op node with the id [`PASS_ID`].
    pub(super) has_body: bool,
    /// The running time of an attempt. `None`: the default.
    pub(super) timeout_ms: Option<u64>,
}

impl SingleNodeFlow<'_> {
    /// Returns the flow as if it were a file in this folder. The caller builds the flow's input with [`input`]. The
    /// flow's only output, `output`, is the output of the node.
    pub(super) fn source(&self, folder: &Path) -> Source {
        // The node gets its values by bindings from the flow's input. Literal values with `{{ }}` would be read as
        // bindings.
        let mut node = json!({
            "id": NODE_ID,
            "type": self.node_type,
            "input": "{{ flow.input.input }}",
            "config": "{{ flow.input.config }}",
            "grants": self.grants,
        });
        if self.has_body {
            node["body"] = json!({ "nodes": [{ "id": PASS_ID, "type": "control.noop" }] });
        }
        if let Some(timeout_ms) = self.timeout_ms {
            node["policy"] = json!({ "timeoutMs": timeout_ms });
        }
        let name = self.node_type.replace(['.', '@'], "-");
        let flow = json!({
            "flow": { "name": name, "outputs": { "output": format!("{{{{ {NODE_ID} }}}}") } },
            "nodes": [node],
        });
        Source { name: folder.join(format!("{name}.json")).display().to_string(), text: flow.to_string() }
    }
}

/// Returns the input for the flow that [`SingleNodeFlow::source`] builds: the input and the config of its node.
pub(super) fn input(input: Json, config: Json) -> Json {
    Json::object([("input", input), ("config", config)])
}
