//! Settles edges and joins (the page `readiness` of the manual).

use flowcell_contract::Failure;
use flowcell_flow::graph::{EdgeIx, Join, On};

use super::{Decider, race, ready};
use crate::{
    capture::{self, Field},
    fact::{Fact, SkipReason, TaskKey},
    state::{EdgeState, Phase, RunState},
};

/// Settles an edge of a task that ended. Returns true if the edge fired.
///
/// An edge that leaves a cycle settles once, when it fires or when the last pass has ended. In a later pass it neither
/// fires again nor handles a failure. If the condition of an edge that goes back fails, the edge is not settled, and the
/// end of the pass decides. If that of another edge fails, the join of the target decides, or fails at once with `any`.
pub(super) fn settle_edge(decider: &mut Decider<'_>, source: TaskKey, edge: EdgeIx) -> bool {
    let graph = decider.state.graph.clone();
    let line = graph.edge(edge);
    let (loops, goes_back) = (decider.state.loops, decider.state.goes_back(edge));
    if loops {
        let is_over = goes_back && is_over_limit(decider.state, TaskKey { node: line.to, ..source });
        if is_over || decider.state.scope(source.scope).edges[line.slot as usize] != EdgeState::Pending {
            return false;
        }
    }
    let fired = match edge_holds(decider.state, decider.now, source, edge) {
        Ok(fired) => fired,
        Err(_) if goes_back => return false,
        Err(failure) => {
            if graph.node(line.to).join == Join::Any {
                fail_target(decider, TaskKey { node: line.to, ..source }, failure);
            }
            false
        }
    };
    if fired || !(loops && line.leaves.is_some()) {
        decider.emit(Fact::EdgeSettled { scope: source.scope, edge, fired });
    }
    fired
}

/// Returns true if a task has ended as an edge from it requires, and the edge's `when` holds.
pub(super) fn edge_holds(state: &RunState, now: u64, source: TaskKey, edge: EdgeIx) -> Result<bool, Failure> {
    let line = state.graph.edge(edge);
    let node = state.graph.node(source.node);
    let phase = state.task(source).phase;
    let failed = phase == Phase::Failed;
    let reached = match line.on {
        On::Success => phase == Phase::Succeeded || (failed && node.policy.continue_on_error),
        On::Error => failed,
        On::End => failed || phase == Phase::Succeeded,
    };
    match &line.when {
        Some(when) if reached => {
            let place = format!("`when` of the edge from `{}`", node.id);
            capture::holds((state, now), source, when, (Field::Edge(edge), &place))
        }
        _ => Ok(reached),
    }
}

/// Fails a task that waits for an edge whose `when` fails (rule 6).
fn fail_target(decider: &mut Decider<'_>, target: TaskKey, failure: Failure) {
    if decider.state.task(target).phase == Phase::Waiting {
        ready::fail(decider, target, failure);
    }
}

/// Returns the failure of the first edge to a task that did not fire because its `when` fails.
fn failed_condition(decider: &Decider<'_>, key: TaskKey) -> Option<Failure> {
    let state = &*decider.state;
    let mut conditions = state.graph.node(key.node).incoming.iter().filter(|edge| {
        let line = state.graph.edge(**edge);
        let is_skipped = state.scope(key.scope).edges[line.slot as usize] == EdgeState::Skipped;
        is_skipped && line.when.is_some() && !state.goes_back(**edge)
    });
    conditions.find_map(|edge| {
        let source = TaskKey { node: state.graph.edge(*edge).from, ..key };
        edge_holds(state, decider.now, source, *edge).err()
    })
}

/// Rule 2: decides whether a waiting task's join has opened, or can no longer open. Only a task with `join: any` ends before
/// all tasks in front of it have ended: what tasks behind it read must not depend on timing.
pub(super) fn settle_join(decider: &mut Decider<'_>, key: TaskKey) {
    let task = decider.state.task(key);
    if task.phase != Phase::Waiting {
        return;
    }
    let node = decider.state.graph.node(key.node);
    let awaited = node.incoming.iter().filter(|edge| !decider.state.goes_back(**edge));
    let settled = awaited.count() as u32 - task.pending;
    let skipped = settled - task.fired;
    match node.join {
        Join::Any if task.fired > 0 => {
            ready::open(decider, key);
            race::won(decider, key);
        }
        _ if task.pending > 0 => {}
        join => {
            let opens = task.fired > 0 && !(join == Join::All && skipped > 0);
            match failed_condition(decider, key) {
                Some(failure) => ready::fail(decider, key, failure),
                None if opens => ready::open(decider, key),
                None => ready::skip(decider, key, SkipReason::Join),
            }
        }
    }
}

/// Returns true if the cycle that begins at this task is in the pass beyond its limit. This pass only fails the entry, and
/// no other follows.
pub(super) fn is_over_limit(state: &RunState, entry: TaskKey) -> bool {
    let cycle = state.cycle_of(entry.node);
    cycle.is_some_and(|cycle| state.round(entry.scope, cycle).pass >= state.graph.cycle(cycle).max_passes)
}
