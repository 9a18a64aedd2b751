//! Undoes the succeeded tasks of a scope that has failed or was cancelled, one after another, the last one first.

use flowcell_contract::{Failure, Json};

use super::{Decider, ready};
use crate::{
    capture,
    fact::{Fact, PassOutcome, RunEnd, ScopeId, TaskKey, Unsuccessful},
    limits::MAX_LISTED_UNDOS,
    outcome,
};

/// Returns true if a scope that has begun to undo has an undo in progress, and begins the next one otherwise. Returns false
/// if no undo is left, or the scope has not begun to undo.
pub(super) fn go_on(decider: &mut Decider<'_>, id: ScopeId) -> bool {
    match &decider.state.scope(id).undos {
        Some(undos) => undos.live.is_some() || start(decider, id),
        None => false,
    }
}

/// Begins to undo the tasks of a scope that ends in this way. `None`: it succeeds, or its undos have ended. Returns false
/// if the scope ends at once, also if it is a pass of an owner that does not undo: its tasks are undone with a scope around
/// it.
pub(super) fn begin(decider: &mut Decider<'_>, id: ScopeId, end: Option<Unsuccessful>) -> bool {
    let scope = decider.state.scope(id);
    let undoes = scope.owner.is_none_or(|owner| {
        let body = &decider.state.graph.node(owner.node).node_type.body;
        body.as_ref().is_some_and(|body| body.undoes)
    });
    let Some(end) = end.filter(|_| undoes && !scope.undoable.is_empty()) else { return false };
    decider.emit(Fact::UndosBegan { scope: id, end: Box::new(end) });
    start(decider, id)
}

/// Begins to undo the task of a scope that succeeded last. Returns false if no task is left.
fn start(decider: &mut Decider<'_>, within: ScopeId) -> bool {
    let Some(next) = decider.state.scope(within).undoable.last() else { return false };
    let (undone, undo, path) = (next.task, next.undo, next.path.as_str().into());
    let value = next.given.as_ref().map(|(input, output)| {
        let input = capture::render_input(decider.state, undone.node, input.as_deref());
        let task = Json::from(next.address.as_str());
        Json::object([("input", input), ("output", output.clone()), ("task", task)])
    });
    let scope = ScopeId(decider.state.next_scope);
    decider.emit(Fact::UndoStarted { scope, within, undone, undo, path, value });
    ready::open(decider, TaskKey { scope, node: undo });
    true
}

/// Ends an undo, whose task has ended.
pub(super) fn ended(decider: &mut Decider<'_>, id: ScopeId) {
    let Some(within) = decider.state.scope(id).undoing.as_ref().map(|undoing| undoing.within) else { return };
    decider.emit(Fact::UndoEnded { scope: id });
    decider.check.push_back(within);
}

/// Returns the outcome of a pass whose tasks were undone. `None`: it has not begun to undo.
pub(super) fn outcome_of_pass(decider: &Decider<'_>, id: ScopeId) -> Option<PassOutcome> {
    Some(match end_of(decider, id)? {
        Unsuccessful::Failed { failure, .. } => PassOutcome::Failed(Box::new(failure)),
        Unsuccessful::Cancelled => PassOutcome::Cancelled,
    })
}

/// Returns the end of a run whose tasks were undone. `None`: it has not begun to undo.
pub(super) fn end_of_run(decider: &Decider<'_>, outputs: impl FnOnce() -> Json) -> Option<RunEnd> {
    Some(match end_of(decider, ScopeId::ROOT)? {
        Unsuccessful::Failed { failure, task } => RunEnd::Failed { outputs: outputs(), failure, task },
        Unsuccessful::Cancelled => RunEnd::Cancelled { outputs: outputs() },
    })
}

/// Returns the recorded end of a scope. Its failure lists the undos.
fn end_of(decider: &Decider<'_>, id: ScopeId) -> Option<Unsuccessful> {
    let undos = decider.state.scope(id).undos.as_deref()?;
    let Unsuccessful::Failed { failure, task } = &undos.end else { return Some(undos.end.clone()) };
    let failure = with_undone(decider, id, failure.clone());
    Some(Unsuccessful::Failed { failure, task: task.clone() })
}

/// Adds the tasks that a scope has undone to the details of a failure that ends it.
pub(super) fn with_undone(decider: &Decider<'_>, id: ScopeId, failure: Failure) -> Failure {
    let Some(undos) = decider.state.scope(id).undos.as_deref() else { return failure };
    let addresses = |is_undone: bool| {
        let found = undos.ended.iter().filter(|(_, undone)| *undone == is_undone);
        Json::array(found.take(MAX_LISTED_UNDOS).map(|(address, _)| Json::from(address.as_str())))
    };
    let mut members = vec![("count", Json::from(undos.ended.len() as u64)), ("tasks", addresses(true))];
    if undos.ended.iter().any(|(_, is_undone)| !is_undone) {
        members.push(("failed", addresses(false)));
    }
    outcome::add_place(failure, "undone", members)
}
