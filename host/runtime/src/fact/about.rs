//! The facts about a run that expressions can read, besides its input.

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::labels::Labels;
use serde::{Deserialize, Serialize};

/// The facts about a run that expressions can read, besides its input and its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AboutRun {
    /// The id of the run.
    pub run: RunId,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The version of the flow, if the run was started from a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The labels at the start of the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}
