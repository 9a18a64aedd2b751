//! Succeeded tasks that can be undone, and their undos.

use std::sync::Arc;

use flowcell_contract::{Json, ScopePath};
use flowcell_flow::graph::NodeIx;

use super::Captured;
use crate::fact::{ScopeId, TaskKey, Unsuccessful};

/// A succeeded task, with everything that the task which undoes it needs. The pass of the task may have ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Undoable {
    /// The number of the event with which the task succeeded.
    pub(crate) order: u64,
    pub(crate) task: TaskKey,
    pub(crate) address: String,
    /// The path of the pass that contains the task.
    pub(crate) path: ScopePath,
    /// The node that undoes the task.
    pub(crate) undo: NodeIx,
    /// The values to which the node that undoes the task refers, as of the success of the task.
    pub(crate) captured: Option<Arc<Captured>>,
    /// The captured values of the task's input, and its output. `None`: the node that undoes the task does not use them.
    pub(crate) given: Option<(Option<Arc<Captured>>, Json)>,
}

/// The undos of a scope that has failed or was cancelled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Undos {
    /// The end of the scope, after its undos.
    pub(crate) end: Unsuccessful,
    /// The undo in progress.
    pub(crate) live: Option<ScopeId>,
    /// The milliseconds that were left of the time limit of the scope's owner. The limit stands still during undos.
    pub(crate) left_ms: Option<u64>,
    /// The addresses of the tasks whose undo has ended, and whether they are undone.
    pub(crate) ended: Vec<(String, bool)>,
}

/// The undo to which a scope with a single task belongs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Undoing {
    /// The scope that has failed or was cancelled.
    pub(crate) within: ScopeId,
    pub(crate) undoable: Undoable,
    /// The value of `undo` in expressions. `None`: the node does not use it.
    pub(crate) value: Option<Json>,
}
