//! The effect of a move to another version of the flow.

use std::collections::{HashMap, HashSet};

use flowcell_flow::graph::{BodyIx, NodeIx};

use crate::{
    fact::{Migrated, ScopeId, TaskKey},
    state::{EdgeState, Phase, RunState, Task},
};

/// Replaces the graph. Tasks of nodes that stay, and everything inside them, remain as they are. The other tasks begin
/// to wait for their joins. Edges to them are not settled.
pub(super) fn fold(state: &mut RunState, migration: &Migrated) {
    let Some(graph) = state.later.pop_front() else {
        panic!("the journal moves the run to another version, but its record does not")
    };
    let before = std::mem::replace(&mut state.graph, graph.clone());
    let dropped: HashSet<NodeIx> = migration.dropped.iter().copied().collect();
    if state.moved_at == 0 {
        state.moved_at = state.next_scope;
    }
    let mut gone = std::mem::take(&mut state.gone);
    let scope = state.scope_mut(ScopeId::ROOT);
    let nodes = before.body(BodyIx::ROOT).nodes.iter().copied();
    let mut tasks: HashMap<NodeIx, Task> = nodes.zip(std::mem::take(&mut scope.tasks)).collect();
    let settled = std::mem::take(&mut scope.edges);
    let shape = graph.body(BodyIx::ROOT);
    for node in &shape.nodes {
        let pending = graph.node(*node).incoming.len() as u32;
        let new = || Task { pending, ..Task::default() };
        scope.tasks.push(tasks.remove(node).unwrap_or_else(new));
    }
    for restarted in &migration.restarted {
        let slot = graph.node(restarted.new).slot as usize;
        let old = tasks.remove(&restarted.old).or_else(|| gone.remove(&restarted.old));
        let (Some(old), Some(task)) = (old, scope.tasks.get_mut(slot)) else {
            panic!("the journal starts a node anew that the run does not have")
        };
        (task.attempt, task.earlier) = (restarted.attempts, restarted.attempts);
        // A call that must not be made twice has its recorded reply in the new version, too.
        task.calls = old.calls;
        task.calls.iter_mut().for_each(|calls| calls.new_attempt());
    }
    let begun = tasks.into_iter().filter(|(_, task)| task.attempt > 0);
    gone.extend(begun.map(|(node, Task { attempt, calls, .. })| (node, Task { attempt, calls, ..Task::default() })));
    let edges = shape.edges.iter().map(|edge| match before.edges.get(edge.0 as usize) {
        Some(line) => settled[line.slot as usize],
        None => EdgeState::Pending,
    });
    scope.edges = edges.collect();
    let waits = |task: &&Task| task.phase == Phase::Waiting;
    scope.waiting = scope.tasks.iter().filter(waits).count() as u32;
    scope.active = scope.tasks.iter().filter(|task| !waits(task) && !task.phase.is_end()).count() as u32;
    // Another fact records a failure that the new version does not handle.
    scope.failure = None;
    let stays = |key: &TaskKey| key.scope != ScopeId::ROOT || !dropped.contains(&key.node);
    state.gone = gone;
    state.queue.retain(stays);
    state.paused.retain(stays);
    if let Some(policy) = &migration.policy {
        state.policy = policy.clone();
    }
    if let Some(about) = &mut state.about {
        about.version = migration.version;
    }
    if let Some(input) = migration.input.clone().or_else(|| state.input().cloned()) {
        state.set_input(&input);
    }
}
