//! The effects of successes that can be undone, and of undos.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::Json;
use flowcell_flow::graph::{NodeIx, Reference};

use super::passes;
use crate::{
    capture,
    fact::{ScopeId, TaskKey, Unsuccessful},
    state::{Captured, Phase, RunState, Scope, Task, Undoable, Undoing, Undos},
};

/// Keeps the values that the undo of a task needs, when the task has succeeded. `input`: the captured values of the task's input.
pub(super) fn keep(state: &mut RunState, task: TaskKey, input: Option<Arc<Captured>>, ts: u64) {
    let Some(undo) = state.graph.node(task.node).undo else { return };
    // The node that undoes the task sees the same names as the task, and the task itself.
    let captured = capture::capture(state, TaskKey { scope: task.scope, node: undo }, ts);
    let given = uses_undo(state, undo).then(|| (input, state.task(task).output.clone().unwrap_or_default()));
    let (order, address, path) = (state.events, state.address(task), state.scope(task.scope).path.clone());
    state.scope_mut(task.scope).undoable.push(Undoable { order, task, address, path, undo, captured, given });
}

fn uses_undo(state: &RunState, node: NodeIx) -> bool {
    let node = state.graph.node(node);
    node.input.references.contains(&Reference::Undo) || node.config.references.contains(&Reference::Undo)
}

/// Moves the tasks that can be undone from a pass that ends to the scope around it.
pub(super) fn hand_up(state: &mut RunState, id: ScopeId) {
    let ended = state.scope_mut(id);
    let undoable = std::mem::take(&mut ended.undoable);
    let renewed = ended.renewed;
    if let Some(owner) = ended.owner.filter(|_| !undoable.is_empty()) {
        let around = &mut state.scope_mut(owner.scope).undoable;
        if renewed {
            // An earlier attempt of the owner may have handed up the same task. Its calls are the same, and are undone once.
            let again: HashSet<_> = undoable.iter().map(|undoable| undoable.address.as_str()).collect();
            around.retain(|earlier| !again.contains(earlier.address.as_str()));
        }
        around.extend(undoable);
    }
}

/// Begins to undo the tasks of a scope. The time limit of its owner stands still.
pub(super) fn begin(state: &mut RunState, id: ScopeId, end: &Unsuccessful, ts: u64) {
    let deadline = state.scope(id).owner.and_then(|owner| state.task_mut(owner).deadline.take());
    let left_ms = deadline.map(|deadline| deadline.saturating_sub(ts));
    let scope = state.scope_mut(id);
    scope.undoable.sort_by_key(|undoable| undoable.order);
    scope.undos = Some(Box::new(Undos { end: end.clone(), live: None, left_ms, ended: Vec::new() }));
}

/// Lets the time limit of an owner go on, when a pass whose tasks were undone ends.
pub(super) fn release(state: &mut RunState, id: ScopeId, ts: u64) {
    let scope = state.scope(id);
    let left_ms = scope.undos.as_ref().and_then(|undos| undos.left_ms);
    if let (Some(left_ms), Some(owner)) = (left_ms, scope.owner) {
        state.task_mut(owner).deadline = Some(ts.saturating_add(left_ms));
    }
}

/// Adds the scope of the task that undoes the last task of the scope `within` that is not undone.
pub(super) fn start(state: &mut RunState, id: ScopeId, within: ScopeId, value: Option<Json>) {
    let around = state.scope_mut(within);
    let undoable = around.undoable.pop();
    let (Some(undoable), Some(undos)) = (undoable, &mut around.undos) else {
        panic!("the journal undoes a task of scope {}, which has none to undo", within.0)
    };
    undos.live = Some(id);
    let scope = Scope {
        path: undoable.path.clone(),
        tasks: vec![Task::default()],
        edges: Vec::new(),
        waiting: 1,
        // An earlier undo may have called flows under the same address.
        renewed: true,
        undoing: Some(Box::new(Undoing { within, undoable, value })),
        ..passes::new_scope(state, state.scope(within).body)
    };
    state.scopes.insert(id, scope);
    state.next_scope = id.0 + 1;
}

/// Removes the scope of an undo, and keeps its outcome.
pub(super) fn end(state: &mut RunState, id: ScopeId) {
    let scope = state.scopes.remove(&id);
    let Some((task, undoing)) = scope.and_then(|mut scope| Some((scope.tasks.pop()?, scope.undoing?))) else {
        panic!("the journal ends undo {}, which is not live", id.0)
    };
    let is_undone = task.phase == Phase::Succeeded;
    let Undoing { within, undoable, .. } = *undoing;
    if is_undone {
        *state.undone.entry(undoable.address.clone()).or_default() += 1;
    }
    if let Some(undos) = &mut state.scope_mut(within).undos {
        undos.live = None;
        undos.ended.push((undoable.address, is_undone));
    }
}
