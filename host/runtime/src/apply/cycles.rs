//! The passes of cycles of edges.

use std::collections::BTreeMap;

use flowcell_contract::Json;
use flowcell_flow::graph::{CycleIx, NodeIx};

use super::passes;
use crate::{
    capture,
    fact::{ScopeId, TaskKey},
    state::{EdgeState, Left, Round, RunState, Task},
};

/// Counts the end of a task for its cycle.
pub(super) fn task_ended(state: &mut RunState, key: TaskKey) {
    if let Some(cycle) = state.cycle_of(key.node) {
        round_mut(state, key.scope, cycle).open -= 1;
    }
}

/// Begins another pass: keeps the outputs of the pass before, and lets the tasks of all nodes of the cycle start anew.
pub(super) fn begin_pass(state: &mut RunState, scope: ScopeId, entry: NodeIx, pass: u32) {
    let graph = state.graph.clone();
    let cycle = cycle_at(state, entry);
    let line = graph.cycle(cycle);
    let has_fired = |state: &RunState, slot: u32| state.scope(scope).edges[slot as usize] == EdgeState::Fired;
    let value = |state: &RunState, edge| (edge, capture::edge_value(state, scope, edge));
    let began_by = line.back.iter().copied().filter(|edge| has_fired(state, graph.edge(*edge).slot));
    let began_by: Vec<_> = began_by.map(|edge| value(state, edge)).collect();
    let output = |node: &NodeIx| Some((*node, state.task(TaskKey { scope, node: *node }).output.clone()?));
    let previous: BTreeMap<NodeIx, Json> = line.nodes.iter().filter_map(output).collect();
    for &edge in &line.leaving {
        let left = graph.edge(edge);
        let is_new = !state.scope(scope).left.iter().any(|left| left.edge == edge);
        if let Some(around) = left.leaves.filter(|_| is_new && has_fired(state, left.slot)) {
            let (edge, value) = value(state, edge);
            let seen = |node: &NodeIx| (*node, capture::seen_through(state, scope, edge, *node));
            let outputs = graph.cycle(around).nodes.iter().map(seen).collect();
            state.scope_mut(scope).left.push(Left { edge, value, outputs });
        }
    }
    for node in &line.nodes {
        let pending = passes::awaited(state, *node);
        let task = state.task_mut(TaskKey { scope, node: *node });
        let attempt = task.attempt;
        *task = Task { pending, attempt, earlier: attempt, ..Task::default() };
    }
    let scope = state.scope_mut(scope);
    scope.waiting += line.nodes.len() as u32;
    for edge in &line.inner {
        scope.edges[graph.edge(*edge).slot as usize] = EdgeState::Pending;
    }
    scope.left.retain(|left| !line.inner.contains(&left.edge));
    for inner in line.inside.iter().map(|inner| graph.cycle(*inner)) {
        scope.rounds[inner.slot as usize] = Round::new(inner);
    }
    scope.rounds[line.slot as usize] = Round { pass, began_by, previous, ..Round::new(line) };
}

/// Ends a cycle after its last pass.
pub(super) fn end(state: &mut RunState, scope: ScopeId, entry: NodeIx) {
    let cycle = cycle_at(state, entry);
    round_mut(state, scope, cycle).ended = true;
    if let Some(parent) = state.graph.cycle(cycle).parent {
        round_mut(state, scope, parent).open -= 1;
    }
}

fn cycle_at(state: &RunState, entry: NodeIx) -> CycleIx {
    match state.cycle_of(entry) {
        Some(cycle) => cycle,
        None => panic!("the journal repeats `{}`, which begins no cycle", state.graph.node(entry).id),
    }
}

fn round_mut(state: &mut RunState, scope: ScopeId, cycle: CycleIx) -> &mut Round {
    let slot = state.graph.cycle(cycle).slot as usize;
    &mut state.scope_mut(scope).rounds[slot]
}
