//! What logs of runs say of a step. It travels as an opaque label; nothing that runs a graph reads it.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::read::RawStep;
use crate::graph::Node;

/// The label's name, on nodes.
pub(super) const LABEL: &str = "step";

/// What the label of a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLabel {
    /// The tool as the step names it.
    pub tool: String,
    /// Under which name later steps find the result.
    pub save_as: String,
}

/// The label of a step.
pub(super) fn of(step: &RawStep<'_>) -> Json {
    let members = [("tool", step.tool.0.as_str()), ("saveAs", step.saved_as())];
    Json::object(members.map(|(key, text)| (key, Json::from(text))))
}

/// What the label of a node says; none if the node has none.
pub fn step_label(node: &Node) -> Option<StepLabel> {
    serde_json::from_value(node.labels.get(LABEL)?.to_serde()).ok()
}
