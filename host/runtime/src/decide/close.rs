//! Ends tasks that do not end by themselves: in cancelled scopes, or after their timeout.

use flowcell_contract::Failure;

use super::{Decider, agents, call_ends, ready};
use crate::{
    fact::{Fact, ScopeId, TaskKey},
    state::Phase,
};

/// Closes a scope. Its waiting tasks do not start. Its unfinished tasks are cancelled, after their passes and child
/// runs have ended.
pub(super) fn scope(decider: &mut Decider<'_>, id: ScopeId) {
    let Some(scope) = decider.state.scopes.get(&id).filter(|scope| !scope.closing) else { return };
    let graph = decider.state.graph.clone();
    let nodes = &graph.body(scope.body).nodes;
    decider.emit(Fact::ScopeClosing { scope: id });
    for node in nodes {
        task(decider, TaskKey { scope: id, node: *node }, None);
    }
    decider.check.push_back(id);
}

/// Ends a task with a failure, or as cancelled, once its passes, its child and its calls have ended.
pub(super) fn task(decider: &mut Decider<'_>, key: TaskKey, failure: Option<Failure>) {
    let task = decider.state.task(key);
    if task.phase.is_end() || task.phase == Phase::Closing {
        return;
    }
    call_ends::withdraw_asked(decider, key);
    if failure.is_some() {
        // The task has timed out, perhaps because it waited for these calls.
        call_ends::abandon(decider, key);
    }
    let task = decider.state.task(key);
    let passes: Vec<_> = task.details.iter().flat_map(|details| details.passes.iter().copied()).collect();
    let below = task.phase == Phase::Paused && (!passes.is_empty() || decider.state.waits_for_child(key));
    if !below && !task.has_calls_in_progress() {
        return end_closed(decider, key, failure);
    }
    decider.emit(Fact::TaskClosing { task: key, failure: failure.map(Box::new), received: None });
    for pass in passes {
        scope(decider, pass);
    }
}

/// Ends a closing task with its failure, or as cancelled. Callers do so when no pass, child run or call of the task is
/// left.
pub(super) fn finish(decider: &mut Decider<'_>, key: TaskKey) {
    let failure = closing_failure(decider, key);
    end_closed(decider, key, failure);
}

/// Returns the failure with which a closing task will end. `None`: it was cancelled, or does not close.
pub(super) fn closing_failure(decider: &Decider<'_>, key: TaskKey) -> Option<Failure> {
    decider.state.task(key).details.as_deref().and_then(|details| details.closing.clone())
}

/// Ends a closing task with a failure, or as cancelled.
pub(super) fn end_closed(decider: &mut Decider<'_>, key: TaskKey, failure: Option<Failure>) {
    agents::end_all(decider, key, failure.as_ref());
    match failure {
        Some(failure) => ready::fail(decider, key, failure),
        None => {
            decider.emit(Fact::TaskCancelled { task: key, received: None });
            decider.ended.push_back(key);
        }
    }
}
