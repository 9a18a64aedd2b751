//! Moves a run to another version of its flow.

use std::collections::HashSet;

use flowcell_flow::graph::{BodyIx, NodeIx, On};

use super::{Decider, close, edges, ready, settle};
use crate::{
    fact::{Fact, Migrated, ParkReason, ScopeId, TaskKey},
    state::{EdgeState, Phase},
};

/// Records the move, and decides what follows from it for the nodes that start anew: settles the edges to them from
/// nodes that have ended, and makes those ready whose joins are open. If the new version does not handle a failure and has
/// `failFast`, ends the other nodes instead. Then parks the run, due at once.
pub(super) fn migrate(decider: &mut Decider<'_>, migration: Box<Migrated>) {
    let failed = decider.state.scope(ScopeId::ROOT).failure.as_ref().map(|(task, _)| *task);
    decider.emit(Fact::Migrated { migration });
    let graph = decider.state.graph.clone();
    let shape = graph.body(BodyIx::ROOT);
    let key = |node: NodeIx| TaskKey { scope: ScopeId::ROOT, node };
    // A target whose edge's `when` fails ends below, and then settles its own edges like any task that ends.
    let has_ended = |node: &NodeIx| decider.state.task(key(*node)).phase.is_end();
    let ended: HashSet<NodeIx> = shape.nodes.iter().copied().filter(has_ended).collect();
    for edge in &shape.edges {
        let line = graph.edge(*edge);
        let is_open = decider.state.scope(ScopeId::ROOT).edges[line.slot as usize] == EdgeState::Pending;
        if is_open && ended.contains(&line.from) {
            edges::settle_edge(decider, key(line.from), *edge);
        }
    }
    let is_unhandled = |task: &TaskKey| {
        let (node, scope) = (graph.node(task.node), decider.state.scope(ScopeId::ROOT));
        let handles = |edge: &&flowcell_flow::graph::EdgeIx| {
            let line = graph.edge(**edge);
            line.on != On::Success && scope.edges[line.slot as usize] == EdgeState::Fired
        };
        decider.state.find(*task).is_some_and(|task| task.phase == Phase::Failed)
            && !node.policy.continue_on_error
            && !node.outgoing.iter().any(|edge| handles(&edge))
    };
    let tasks = shape.nodes.iter().copied().filter(|node| ended.contains(node)).map(key);
    if let Some(task) = failed.into_iter().chain(tasks).find(is_unhandled) {
        decider.emit(Fact::FailureUnhandled { task });
        if decider.state.policy.fail_fast {
            close::scope(decider, ScopeId::ROOT);
        }
    }
    let opens = !decider.state.scope(ScopeId::ROOT).closing;
    for node in shape.nodes.iter().filter(|_| opens) {
        match graph.node(*node).incoming.is_empty() {
            true if decider.state.task(key(*node)).phase == Phase::Waiting => ready::open(decider, key(*node)),
            true => {}
            false => edges::settle_join(decider, key(*node)),
        }
    }
    decider.check.push_back(ScopeId::ROOT);
    settle::settle(decider);
    if decider.state.end.is_none() {
        decider.emit(Fact::RunParked {
            due: Some(decider.now),
            reason: ParkReason::Waiting,
            waits_for: None,
            quota: None,
        });
    }
}
