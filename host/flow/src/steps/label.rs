//! Data about a step for the logs of runs. Nodes carry it in a label that the runtime does not read.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::read::RawStep;
use crate::graph::Node;

/// The label's name on nodes.
pub(super) const LABEL: &str = "step";

/// The steps label of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLabel {
    /// Name of the tool in the step.
    pub tool: String,
    /// Name under which later steps find the result.
    pub save_as: String,
}

/// Returns the label with which the node of a step tells its tool and the name of its result.
pub(super) fn from_step(step: &RawStep<'_>) -> Json {
    let members = [("tool", step.tool.0.as_str()), ("saveAs", step.saved_as())];
    Json::object(members.map(|(key, text)| (key, Json::from(text))))
}

/// Returns the steps label of a node, if it has one.
pub fn step_label(node: &Node) -> Option<StepLabel> {
    serde_json::from_value(node.labels.get(LABEL)?.to_serde()).ok()
}
