//! The undos in progress.

use std::collections::HashMap;

use crate::fact::{ScopeId, TaskKey};

/// Undos by their scopes: the task that undoes another one, and the address of the other one.
#[derive(Default)]
pub(super) struct Undos(HashMap<ScopeId, (TaskKey, String)>);

impl Undos {
    pub(super) fn begin(&mut self, task: TaskKey, undone: String) {
        self.0.insert(task.scope, (task, undone));
    }

    pub(super) fn forget(&mut self, scope: ScopeId) {
        self.0.remove(&scope);
    }

    /// Returns the task of an undo, and the address of the task that it undoes.
    pub(super) fn get(&self, scope: ScopeId) -> Option<(TaskKey, &str)> {
        self.0.get(&scope).map(|(task, undone)| (*task, undone.as_str()))
    }
}
