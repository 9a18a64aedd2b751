//! The move of a run to another version of its flow.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Json, NodeId};
use flowcell_flow::graph::{FlowPolicy, NodeIx};
use serde::{Deserialize, Serialize};

/// The move of a run to another version of its flow. The record of the run has the version before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migrated {
    /// The key of the new version.
    pub pin: Arc<str>,
    /// The number of the version before, if the flow is in a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<u32>,
    /// The number of the new version, if the flow is in a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The nodes of the flow itself that are gone or start anew.
    pub dropped: Box<[NodeIx]>,
    /// The nodes that had begun and start anew.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub restarted: Box<[Restarted]>,
    /// The whole input, if the new version has other defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// The policy of the run from now on, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<FlowPolicy>,
    /// The names of nodes in the new version, by the ids that the run keeps, where they differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<NodeId, NodeId>,
}

/// A node that had begun and starts anew in another version of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// The index of the node before.
    pub old: NodeIx,
    /// The index of the node in the new version.
    pub new: NodeIx,
    /// Number of attempts that the node has begun. The numbers of its further attempts follow.
    pub attempts: u32,
}
