//! The passes of the cycles of edges in a scope.

use std::collections::BTreeMap;

use flowcell_contract::Json;
use flowcell_flow::graph::{Cycle, EdgeIx, NodeIx};

/// The current pass of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Round {
    /// The number of the pass, from 0.
    pub(crate) pass: u32,
    /// Number of nodes and inner cycles directly in this cycle that have not ended in this pass.
    pub(crate) open: u32,
    /// True after the last pass has ended.
    pub(crate) ended: bool,
    /// The edges that began this pass, with the values behind them, in the order of the file.
    pub(crate) began_by: Vec<(EdgeIx, Json)>,
    /// The outputs of the cycle's nodes in the pass before.
    pub(crate) previous: BTreeMap<NodeIx, Json>,
}

/// An edge that left a cycle in a pass that was not the last one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    pub(crate) edge: EdgeIx,
    /// The value behind the edge.
    pub(crate) value: Json,
    /// The outputs of the nodes of the cycle that the edge left, as a node behind the edge reads them.
    pub(crate) outputs: BTreeMap<NodeIx, Seen>,
}

/// The output of a node in one pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The passes of the node's cycles, the outermost first.
    pub(crate) passes: Vec<u32>,
    /// The output. `None`: the node has not ended in this pass.
    pub(crate) output: Option<Json>,
}

impl Round {
    /// Returns the state of a cycle before its first pass.
    pub(crate) fn new(cycle: &Cycle) -> Round {
        Round { open: cycle.members, ..Round::default() }
    }
}
