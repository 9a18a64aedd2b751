//! The versions of its flow that a run has used.

use std::{collections::VecDeque, sync::Arc};

use flowcell_contract::{Failure, code};
use flowcell_flow::{
    combine_versions,
    graph::{FlowPolicy, Graph, Names, NodeIx},
    with_ids_of,
};

use crate::{
    ports::{Pin, Record},
    state::RunState,
};

/// The mark before the number of a scope at the end of a child run's id: the scope began after the calling run moved to
/// another version of its flow, or in a later attempt of the node that owns it.
pub(crate) const SCOPE_MARK: char = '~';

/// The graphs of a run: the graph of the version that it began with, and one for each move to another version. Each
/// graph keeps the indices of the one before, so the last one has the nodes and edges of all facts.
#[derive(Clone)]
pub struct RunGraphs {
    first: Arc<Graph>,
    moved: VecDeque<Arc<Graph>>,
}

impl RunGraphs {
    /// Loads the graphs of a run. `pinned` returns a pinned flow in the pinned version.
    pub fn load(
        record: &Record,
        mut pinned: impl FnMut(&Pin) -> Result<Arc<Graph>, Failure>,
    ) -> Result<RunGraphs, Failure> {
        let mut pins = record.moves.iter().map(|moved| &moved.from).chain([&record.pin]);
        let first = pins.next().unwrap_or(&record.pin);
        let mut graphs = RunGraphs { first: pinned(first)?, moved: VecDeque::new() };
        for (pin, moved) in pins.zip(&record.moves) {
            let names = Names::new(moved.names.clone());
            let version = with_ids(pinned(pin)?, &names);
            let combined = combine_versions(graphs.last(), &version, &moved.dropped);
            graphs.moved.push_back(Arc::new(combined.ok_or_else(misfit)?));
        }
        Ok(graphs)
    }

    /// Returns the graph of the version that the run began with.
    pub(crate) fn first(&self) -> &Arc<Graph> {
        &self.first
    }

    /// Returns the graph that the run uses now.
    pub fn last(&self) -> &Arc<Graph> {
        self.moved.back().unwrap_or(&self.first)
    }

    /// Returns the number of moves to another version.
    pub(crate) fn moves(&self) -> usize {
        self.moved.len()
    }

    /// Returns the version in which a node has its definition: the first version that has the node. A node that stays
    /// when the run moves keeps its definition. Versions count from 0, in the order in which the run has used them.
    pub(crate) fn version_of(&self, node: NodeIx) -> usize {
        let has = |graph: &Arc<Graph>| (node.0 as usize) < graph.nodes.len();
        std::iter::once(&self.first).chain(&self.moved).position(has).unwrap_or_default()
    }

    /// Returns the version that a run in this state uses, counted as by [`RunGraphs::version_of`].
    pub(crate) fn version_in(&self, state: &RunState) -> usize {
        self.moved.len() - state.later.len()
    }

    /// Returns the state of the run before its first fact.
    pub(crate) fn state(&self, policy: FlowPolicy) -> RunState {
        let mut state = RunState::new(self.first.clone(), policy);
        state.later = self.moved.clone();
        state
    }
}

/// Returns a version of a flow whose nodes have the ids that the run keeps. `names` has their names in this version.
pub(crate) fn with_ids(version: Arc<Graph>, names: &Names) -> Arc<Graph> {
    if names.is_empty() { version } else { Arc::new(with_ids_of(&version, names)) }
}

/// Returns the failure of a record whose versions cannot be combined.
pub(crate) fn misfit() -> Failure {
    let message = "the versions of the flow that the run has used do not fit its record";
    Failure::new(code::FLOW_NOT_FOUND, message)
}
