//! The node `control.merge`: joins several branches. The host waits for the branches, because the manifest marks the
//! field `mode` as the join of the node.

use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(default)]
    mode: Mode,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    All,
    Any,
}

/// Returns `merged: true`. The host has already waited for the branches before it starts this node.
pub(crate) fn run(input: Input) -> Result<Value> {
    match input.mode {
        Mode::All | Mode::Any => Ok(json!({ "merged": true })),
    }
}
