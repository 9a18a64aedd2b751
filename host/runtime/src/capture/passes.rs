//! The passes of cycles whose outputs a node behind the cycles reads.
//!
//! A node outside of a cycle reads the pass that an edge left on the way to it. If its output comes from an inner cycle, the
//! source of this edge tells the pass of the inner cycle: it reads the pass that an edge left on the way to this source. So
//! the pass of each cycle depends only on the edges that fired before the reader, and not on passes that have begun since.

use flowcell_flow::graph::{EdgeIx, NodeIx};

use crate::{
    fact::{ScopeId, TaskKey},
    state::{EdgeState, RunState, Seen},
};

/// Returns the output of a node that a reader behind these edges sees: of the edges that have fired, the one with the latest
/// pass of the node counts. If none has fired, the node is seen in its last pass.
pub(super) fn seen_behind(state: &RunState, scope: ScopeId, edges: &[EdgeIx], node: NodeIx) -> Seen {
    let fired = |edge: &EdgeIx| state.scope(scope).edges[state.graph.edge(*edge).slot as usize] == EdgeState::Fired;
    // Edges that have not left an earlier pass come last. In a run of an older version, their pass shows other outputs.
    let seen = |edge: EdgeIx| {
        let at = state.scope(scope).left.iter().position(|left| left.edge == edge).unwrap_or(usize::MAX);
        (seen_through(state, scope, edge, node), at)
    };
    let fired = edges.iter().copied().filter(fired).map(seen);
    let latest = fired.max_by(|(one, at), (other, place)| (&one.passes, at).cmp(&(&other.passes, place)));
    latest.map_or_else(|| seen_now(state, scope, node), |(seen, _)| seen)
}

/// Returns the output of a node of the cycle that an edge has left, as a node behind the edge sees it.
pub(crate) fn seen_through(state: &RunState, scope: ScopeId, edge: EdgeIx, node: NodeIx) -> Seen {
    let left = state.scope(scope).left.iter().find(|left| left.edge == edge);
    if let Some(seen) = left.and_then(|left| left.outputs.get(&node)) {
        return seen.clone();
    }
    let view = (state.graph.edge(edge).from, node);
    match state.graph.views.get(&view).filter(|_| state.nested) {
        Some(edges) => seen_behind(state, scope, edges, node),
        None => seen_now(state, scope, node),
    }
}

/// Returns the output of a node in the current pass.
fn seen_now(state: &RunState, scope: ScopeId, node: NodeIx) -> Seen {
    let cycles: Vec<_> = state.graph.cycles_from(state.cycle_of(node)).collect();
    let passes = cycles.into_iter().rev().map(|cycle| state.round(scope, cycle).pass).collect();
    Seen { passes, output: state.task(TaskKey { scope, node }).output.clone() }
}
