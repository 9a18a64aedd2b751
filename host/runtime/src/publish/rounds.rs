//! The passes of cycles of edges, for the addresses and the numbers of attempts in events.

use std::collections::HashMap;

use flowcell_contract::ScopePath;
use flowcell_flow::graph::{CycleIx, Edge, Graph, NodeIx};

use crate::{
    fact::{ScopeId, TaskKey},
    state::with_cycles,
};

/// The current passes of the cycles, and the attempts in earlier passes.
#[derive(Default)]
pub(super) struct Rounds {
    /// True if cycles of edges repeat their nodes.
    pub(super) loops: bool,
    passes: HashMap<(ScopeId, CycleIx), u32>,
    /// Number of attempts of each task in earlier passes.
    passed: HashMap<TaskKey, u32>,
}

impl Rounds {
    fn cycle_of(&self, graph: &Graph, node: NodeIx) -> Option<CycleIx> {
        graph.node(node).cycle.filter(|_| self.loops)
    }

    /// Begins another pass of the cycle with this entry.
    pub(super) fn begin(&mut self, graph: &Graph, scope: ScopeId, entry: NodeIx, pass: u32) {
        let Some(cycle) = self.cycle_of(graph, entry) else { return };
        self.passes.insert((scope, cycle), pass);
        for inner in &graph.cycle(cycle).inside {
            self.passes.remove(&(scope, *inner));
        }
    }

    /// Returns the number of passes of the cycle with this entry.
    pub(super) fn count(&self, graph: &Graph, scope: ScopeId, entry: NodeIx) -> u32 {
        self.cycle_of(graph, entry).map_or(0, |cycle| self.pass(scope, cycle) + 1)
    }

    fn pass(&self, scope: ScopeId, cycle: CycleIx) -> u32 {
        self.passes.get(&(scope, cycle)).copied().unwrap_or_default()
    }

    /// Adds the passes of a task's cycles to the path of its scope.
    pub(super) fn path_of_task(&self, graph: &Graph, key: TaskKey, path: ScopePath) -> ScopePath {
        with_cycles(path, graph, self.cycle_of(graph, key.node), |cycle| self.pass(key.scope, cycle))
    }

    /// Adds the passes of the cycles that contain both ends of an edge to the path of its scope.
    pub(super) fn path_of_edge(&self, graph: &Graph, edge: &Edge, scope: ScopeId, path: ScopePath) -> ScopePath {
        let around = match edge.leaves {
            Some(cycle) if self.loops => graph.cycle(cycle).parent,
            _ => self.cycle_of(graph, edge.from),
        };
        with_cycles(path, graph, around, |cycle| self.pass(scope, cycle))
    }

    /// Keeps the number of attempts of a task that has ended. Its next pass goes on counting.
    pub(super) fn task_ended(&mut self, graph: &Graph, key: TaskKey, attempts: u32) {
        if self.cycle_of(graph, key.node).is_some() {
            self.passed.insert(key, attempts);
        }
    }

    /// Returns the number of a task's attempts in earlier passes.
    pub(super) fn passed(&self, key: TaskKey) -> u32 {
        self.passed.get(&key).copied().unwrap_or_default()
    }

    /// Forgets a scope that has ended.
    pub(super) fn scope_ended(&mut self, scope: ScopeId) {
        if self.loops {
            self.passes.retain(|(of, _), _| *of != scope);
            self.passed.retain(|key, _| key.scope != scope);
        }
    }
}
