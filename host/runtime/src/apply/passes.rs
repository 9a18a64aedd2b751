//! The effects of the beginnings and ends of passes.

use flowcell_contract::{Json, ScopePath};
use flowcell_flow::graph::{BodyIx, NodeIx};

use crate::{
    fact::{PassOutcome, ScopeId, TaskKey},
    outcome,
    state::{EdgeState, Round, RunState, Scope, Task},
};

/// Adds a pass of the owner's body. `renewed`: an earlier attempt of an owner may have had a pass at the same address.
pub(super) fn start(state: &mut RunState, id: ScopeId, (owner, index): (TaskKey, u32), variables: Json, renewed: bool) {
    let graph = state.graph.clone();
    let node = graph.node(owner.node);
    let Some(body) = node.body else { panic!("the journal gives `{}` a pass, but it owns no body", node.id) };
    let path = state.address(owner);
    let mut scope = new_scope(state, body);
    scope.path = ScopePath::from(format!("{path}[{index}]"));
    scope.owner = Some(owner);
    scope.index = index;
    scope.variables = variables.clone();
    scope.renewed = renewed;
    state.scopes.insert(id, scope);
    state.next_scope = id.0 + 1;
    let details = state.task_mut(owner).details();
    details.passes.insert(id);
    details.passes_begun += 1;
    details.variables = variables;
    if let Some(each) = &mut details.each {
        each.next += 1;
    }
}

/// Removes a pass, and keeps its outcome in its owner.
pub(super) fn end(state: &mut RunState, id: ScopeId, ended: &PassOutcome) {
    let Some(scope) = state.scopes.remove(&id) else { panic!("the journal ends pass {}, which is not live", id.0) };
    let Some(owner) = scope.owner else { panic!("the journal ends the flow itself as a pass") };
    let collects = state.graph.node(owner.node).collects.is_some();
    let details = state.task_mut(owner).details();
    details.passes.remove(&id);
    let Some(each) = &mut details.each else {
        if let (true, PassOutcome::Done(value)) = (collects, ended) {
            details.collected.push(value.clone());
        }
        return;
    };
    each.done += 1;
    let result = match ended {
        PassOutcome::Done(value) => value.clone(),
        PassOutcome::Failed(failure) => {
            each.count_failure(failure);
            outcome::failed_item(failure)
        }
        PassOutcome::Cancelled => return,
    };
    details.last = result.clone();
    if let Some(slot) = each.results.get_mut(scope.index as usize) {
        *slot = Some(result);
    }
}

/// Returns a scope whose tasks all wait.
pub(super) fn new_scope(state: &RunState, body: BodyIx) -> Scope {
    let graph = &state.graph;
    let shape = graph.body(body);
    let task = |node: &NodeIx| Task { pending: awaited(state, *node), ..Task::default() };
    let tasks: Vec<_> = shape.nodes.iter().map(task).collect();
    let rounds = shape.cycles.iter().filter(|_| state.loops).map(|cycle| Round::new(graph.cycle(*cycle)));
    Scope {
        body,
        owner: None,
        index: 0,
        path: ScopePath::root(),
        variables: Json::Null,
        waiting: tasks.len() as u32,
        tasks,
        edges: vec![EdgeState::Pending; shape.edges.len()],
        rounds: rounds.collect(),
        left: Vec::new(),
        active: 0,
        failure: None,
        closing: false,
        renewed: false,
        undoable: Vec::new(),
        undos: None,
        undoing: None,
    }
}

/// Returns the number of edges that a task waits for. An edge that goes back begins another pass of its cycle, so no pass
/// waits for it.
pub(super) fn awaited(state: &RunState, node: NodeIx) -> u32 {
    state.graph.node(node).incoming.iter().filter(|edge| !state.goes_back(**edge)).count() as u32
}
