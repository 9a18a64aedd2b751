//! Ends tasks that do not end by themselves: in cancelled scopes, or after their timeout.

use flowcell_contract::Failure;

use super::Decider;
use crate::{
    fact::{Fact, ScopeId, TaskKey},
    state::Phase,
};

impl Decider<'_> {
    /// Closes a scope. Its waiting tasks do not start. Its unfinished tasks are cancelled, after their passes and child
    /// runs have ended.
    pub(super) fn close_scope(&mut self, id: ScopeId) {
        let Some(scope) = self.state.scopes.get(&id).filter(|scope| !scope.closing) else { return };
        let graph = self.state.graph.clone();
        let nodes = &graph.body(scope.body).nodes;
        self.emit(Fact::ScopeClosing { scope: id });
        for node in nodes {
            self.close_task(TaskKey { scope: id, node: *node }, None);
        }
        self.check.push_back(id);
    }

    /// Ends a task with a failure, or as cancelled, once its passes, its child and its calls have ended.
    pub(super) fn close_task(&mut self, key: TaskKey, failure: Option<Failure>) {
        let task = self.state.task(key);
        if task.phase.is_end() || task.phase == Phase::Closing {
            return;
        }
        self.withdraw_asked(key);
        if failure.is_some() {
            // The task has timed out, perhaps because it waited for these calls.
            self.abandon_calls(key);
        }
        let task = self.state.task(key);
        let passes: Vec<_> = task.details.iter().flat_map(|details| details.passes.iter().copied()).collect();
        let below = task.phase == Phase::Paused && (!passes.is_empty() || self.state.waits_for_child(key));
        if !below && !task.has_calls_in_progress() {
            return self.end_closed(key, failure);
        }
        self.emit(Fact::TaskClosing { task: key, failure: failure.map(Box::new), received: None });
        for pass in passes {
            self.close_scope(pass);
        }
    }

    /// Ends a closing task after the end of its last pass, its child or its last call.
    pub(super) fn finish_closing(&mut self, key: TaskKey) {
        let failure = self.state.task(key).details.as_deref().and_then(|details| details.closing.clone());
        self.end_closed(key, failure);
    }

    fn end_closed(&mut self, key: TaskKey, failure: Option<Failure>) {
        self.end_agents(key, failure.as_ref());
        match failure {
            Some(failure) => self.fail(key, failure),
            None => {
                self.emit(Fact::TaskCancelled { task: key, received: None });
                self.ended.push_back(key);
            }
        }
    }
}
