//! Readiness of tasks: opens a task whose join has opened, skips it or fails it.

use flowcell_contract::{Failure, Json};
use flowcell_flow::graph::{NodeIx, On};

use super::Decider;
use crate::{
    capture::{self, Field},
    fact::{BlockReason, Fact, ScopeId, SkipReason, TaskKey},
    state::Phase,
};

/// Makes the nodes ready at which the scope begins, and skips those that the first pass of their cycle does without.
pub(super) fn begin_scope(decider: &mut Decider<'_>, scope: ScopeId) {
    let graph = decider.state.graph.clone();
    for node in &graph.body(decider.state.scope(scope).body).starts {
        open(decider, TaskKey { scope, node: *node });
    }
    for node in &graph.body(decider.state.scope(scope).body).absent {
        skip(decider, TaskKey { scope, node: *node }, SkipReason::Unreached);
    }
    decider.check.push_back(scope);
}

/// Rule 3: makes a task ready after its join has opened. If the node's own `when` is false, the task is skipped.
pub(super) fn open(decider: &mut Decider<'_>, key: TaskKey) {
    let graph = decider.state.graph.clone();
    let node = graph.node(key.node);
    let holds = match &node.when {
        Some(when) => {
            let place = format!("`when` of `{}`", node.id);
            capture::holds((decider.state, decider.now), key, when, (Field::When, &place))
        }
        None => Ok(true),
    };
    match holds {
        Ok(true) => {
            let deadline = node.policy.total_timeout_ms.map(|total| decider.now.saturating_add(total));
            decider.emit(Fact::TaskReady { task: key, deadline });
        }
        Ok(false) => skip(decider, key, SkipReason::When),
        Err(failure) => fail(decider, key, failure),
    }
}

pub(super) fn skip(decider: &mut Decider<'_>, task: TaskKey, reason: SkipReason) {
    decider.emit(Fact::TaskSkipped { task, reason });
    decider.ended.push_back(task);
}

/// Fails a task. A task that undoes another one is blocked instead, until a person has decided.
pub(super) fn fail(decider: &mut Decider<'_>, key: TaskKey, failure: Failure) {
    if decider.state.scope(key.scope).undoing.is_some() {
        return block_undo(decider, key, &failure);
    }
    record_failure(decider, key, failure);
}

/// Records the end of the last attempt of a task that undoes another one, and that the task is blocked.
fn block_undo(decider: &mut Decider<'_>, task: TaskKey, failure: &Failure) {
    let (code, message) = (failure.code.as_str().into(), failure.message.as_str().into());
    let reason = Box::new(BlockReason::UndoFailed { code, message });
    decider.emit(Fact::TaskBlocked { task, reason, received: None });
}

/// Records that a task failed, with its input if an outgoing edge offers it to its target.
pub(super) fn record_failure(decider: &mut Decider<'_>, key: TaskKey, failure: Failure) {
    let input = input_for_edges(decider, key.node, key);
    decider.emit(Fact::TaskFailed { task: key, failure: Box::new(failure), input, received: None });
    decider.ended.push_back(key);
}

/// Returns the input of a failed task, if an edge with `on: error` or `on: end` offers it to its target. If the input
/// could not be rendered, returns those members that can be. Returns `None` for a task that never became ready, except
/// for the entry of a cycle in a further pass: its input is the one with which the pass would have begun.
fn input_for_edges(decider: &Decider<'_>, node: NodeIx, key: TaskKey) -> Option<Json> {
    let (state, graph) = (&*decider.state, &decider.state.graph);
    let carries = graph.node(node).outgoing.iter().any(|edge| graph.edge(*edge).on != On::Success);
    let is_waiting = state.task(key).phase == Phase::Waiting;
    if carries && is_waiting && state.begins_further_pass(key) {
        let captured = capture::capture(state, key, decider.now);
        return Some(capture::render_input(state, node, captured.as_deref()));
    }
    if !carries || is_waiting {
        return None;
    }
    let whole = capture::render(decider.state, key).map(|(input, _)| input);
    Some(whole.unwrap_or_else(|_| capture::render_members(decider.state, key)))
}
