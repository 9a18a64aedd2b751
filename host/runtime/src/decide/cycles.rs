//! Decides the passes of cycles of edges (the page `loops` of the manual).

use flowcell_contract::{Failure, code};
use flowcell_flow::graph::{Cycle, CycleIx, Edge};

use super::{Decider, edges, ready};
use crate::{
    fact::{Fact, ScopeId, TaskKey},
    limits::MAX_FACTS_BEFORE_PASS,
    state::EdgeState,
};

/// Ends the pass of a cycle if all of its tasks and inner cycles have ended. Then begins another pass if an edge that goes
/// back has fired, and otherwise ends the cycle.
pub(super) fn check(decider: &mut Decider<'_>, scope: ScopeId, cycle: CycleIx) {
    let graph = decider.state.graph.clone();
    let line = graph.cycle(cycle);
    if decider.state.scopes.get(&scope).is_none_or(|scope| scope.closing) {
        return;
    }
    let round = decider.state.round(scope, cycle);
    if round.open > 0 || round.ended {
        return;
    }
    let pass = round.pass + 1;
    let entry = TaskKey { scope, node: line.entry };
    let next = goes_on(decider, scope, line);
    let is_at_once = decider.facts.len() >= MAX_FACTS_BEFORE_PASS;
    if matches!(next, Ok(false)) || is_at_once && !decider.stopped.insert((scope, cycle)) {
        return end(decider, scope, line);
    }
    let id = &graph.node(line.entry).id;
    let failure = match next {
        Err(failure) => Some(failure),
        Ok(_) if is_at_once => {
            let message = format!(
                "passes of the cycle of edges that begins at `{id}` follow each other without a pause, because none of its \
                 nodes runs"
            );
            Some(Failure::new(code::LOOP_LIMIT, message))
        }
        Ok(_) if pass >= line.max_passes => {
            let message = format!(
                "the cycle of edges that begins at `{id}` would begin pass {} of at most {} (`maxPasses`, or `maxIterations` of a \
                 step)",
                u64::from(pass) + 1,
                line.max_passes
            );
            Some(Failure::new(code::LOOP_LIMIT, message))
        }
        Ok(_) => None,
    };
    decider.emit(Fact::CyclePassStarted { scope, entry: line.entry, pass });
    match failure {
        Some(failure) => ready::fail(decider, entry, failure),
        None => ready::open(decider, entry),
    }
}

/// Returns true if an edge that goes back has fired in this pass. The condition of one that is not settled is evaluated
/// again: if it fails now, too, the entry fails in the next pass.
fn goes_on(decider: &Decider<'_>, scope: ScopeId, line: &Cycle) -> Result<bool, Failure> {
    let state = &*decider.state;
    if edges::is_over_limit(state, TaskKey { scope, node: line.entry }) {
        return Ok(false);
    }
    let mut fired = false;
    for edge in &line.back {
        let back = state.graph.edge(*edge);
        let source = TaskKey { scope, node: back.from };
        fired |= match state.scope(scope).edges[back.slot as usize] {
            EdgeState::Fired => true,
            EdgeState::Skipped => false,
            EdgeState::Pending => edges::edge_holds(state, decider.now, source, *edge)?,
        };
    }
    Ok(fired)
}

/// Ends a cycle: settles the edges that leave it and have not fired.
fn end(decider: &mut Decider<'_>, scope: ScopeId, line: &Cycle) {
    let graph = decider.state.graph.clone();
    decider.emit(Fact::CycleEnded { scope, entry: line.entry });
    // The end of the pass around this cycle decides about an edge that goes back to the entry of an outer one.
    let leaves =
        |edge: &Edge| !edge.goes_back && edge.leaves.is_some_and(|cycle| graph.cycle(cycle).entry == line.entry);
    let open: Vec<_> = line.leaving.iter().copied().filter(|edge| leaves(graph.edge(*edge))).collect();
    for edge in &open {
        if decider.state.scope(scope).edges[graph.edge(*edge).slot as usize] == EdgeState::Pending {
            decider.emit(Fact::EdgeSettled { scope, edge: *edge, fired: false });
        }
    }
    for edge in &open {
        edges::settle_join(decider, TaskKey { scope, node: graph.edge(*edge).to });
    }
    decider.rounds.extend(line.parent.map(|parent| (scope, parent)));
}
