//! Settles what follows from the ends of tasks, and ends scopes (the page `readiness` of the manual).

use flowcell_contract::{Failure, Json, code};
use flowcell_flow::graph::{NodeIx, On, Outcome};

use super::{Decider, close, cycles, edges, passes, ready, undo};
use crate::{
    capture,
    fact::{CancelReason, Fact, PassOutcome, RunEnd, ScopeId, SkipReason, TaskKey, Unsuccessful},
    limits::MAX_FAILED_ITEM_BYTES,
    outcome,
    state::Phase,
};

/// Settles edges and ends scopes until nothing more follows.
pub(super) fn settle(decider: &mut Decider<'_>) {
    loop {
        if let Some(key) = decider.ended.pop_front() {
            settle_edges(decider, key);
        } else if let Some((scope, cycle)) = decider.rounds.pop_front() {
            cycles::check(decider, scope, cycle);
        } else if let Some(scope) = decider.check.pop_front() {
            check_scope(decider, scope);
        } else {
            return;
        }
    }
}

/// Rule 1: settles every edge of a task that ended, once.
fn settle_edges(decider: &mut Decider<'_>, key: TaskKey) {
    let Some(task) = decider.state.find(key) else { return };
    let phase = task.phase;
    decider.check.push_back(key.scope);
    let scope = decider.state.scope(key.scope);
    if scope.closing || scope.undoing.is_some() {
        return;
    }
    let graph = decider.state.graph.clone();
    let node = graph.node(key.node);
    let failed = phase == Phase::Failed;
    let mut handled = !failed || node.policy.continue_on_error;
    for edge in &node.outgoing {
        handled |= edges::settle_edge(decider, key, *edge) && graph.edge(*edge).on != On::Success;
    }
    if !handled {
        decider.emit(Fact::FailureUnhandled { task: key });
        if decider.state.policy.fail_fast {
            return close::scope(decider, key.scope);
        }
    }
    for edge in &node.outgoing {
        edges::settle_join(decider, TaskKey { scope: key.scope, node: graph.edge(*edge).to });
    }
    decider.rounds.extend(decider.state.cycle_of(key.node).map(|cycle| (key.scope, cycle)));
}

/// Does nothing while a task of the scope is active. Otherwise ends the scope if it is closing or no task waits. If
/// tasks wait, skips those that are on cycles, or all of them if none is (rule 5).
fn check_scope(decider: &mut Decider<'_>, id: ScopeId) {
    let Some(scope) = decider.state.scopes.get(&id) else { return };
    if scope.active > 0 {
        return;
    }
    if scope.waiting == 0 || scope.closing {
        return end_scope(decider, id);
    }
    let graph = decider.state.graph.clone();
    let waiting = |node: &&NodeIx| decider.state.task(TaskKey { scope: id, node: **node }).phase == Phase::Waiting;
    let nodes: Vec<_> = graph.body(scope.body).nodes.iter().filter(waiting).copied().collect();
    let on_cycles: Vec<_> = nodes.iter().filter(|node| graph.node(**node).on_cycle).copied().collect();
    // A task outside of all cycles that still waits can only wait for a task on a cycle.
    for node in if on_cycles.is_empty() { nodes } else { on_cycles } {
        ready::skip(decider, TaskKey { scope: id, node }, SkipReason::Unreached);
    }
}

/// Ends a scope. If it ends without success, its tasks are undone first.
fn end_scope(decider: &mut Decider<'_>, id: ScopeId) {
    if decider.state.scope(id).undoing.is_some() {
        return undo::ended(decider, id);
    }
    if undo::go_on(decider, id) {
        return;
    }
    match decider.state.scope(id).owner {
        Some(owner) => {
            let outcome = match undo::outcome_of_pass(decider, id) {
                Some(outcome) => outcome,
                None => pass_outcome(decider, id),
            };
            let unsuccessful = match &outcome {
                PassOutcome::Done(_) => None,
                PassOutcome::Failed(failure) => Some(Unsuccessful::Failed { failure: (**failure).clone(), task: None }),
                PassOutcome::Cancelled => Some(Unsuccessful::Cancelled),
            };
            if !undo::begin(decider, id, unsuccessful) {
                // The failure of an owner that was closed ends its pass as cancelled, and lists what the pass has undone.
                let closing =
                    close::closing_failure(decider, owner).map(|failure| undo::with_undone(decider, id, failure));
                decider.emit(Fact::PassEnded { scope: id, outcome: outcome.clone() });
                passes::ended(decider, owner, outcome, closing);
            }
        }
        None => {
            let end = match undo::end_of_run(decider, || outputs(decider)) {
                Some(end) => end,
                None => run_end(decider),
            };
            let unsuccessful = match &end {
                RunEnd::Succeeded { .. } => None,
                RunEnd::Failed { failure, task, .. } => {
                    let failure = outcome::leaving(failure, outcome::end_names_places(decider.state));
                    Some(Unsuccessful::Failed { failure, task: task.clone() })
                }
                RunEnd::Cancelled { .. } => Some(Unsuccessful::Cancelled),
            };
            if !undo::begin(decider, id, unsuccessful) {
                decider.emit(Fact::PhaseEnded { success: matches!(end, RunEnd::Succeeded { .. }) });
                decider.emit(Fact::RunEnded { end: Box::new(end) });
            }
        }
    }
}

fn pass_outcome(decider: &Decider<'_>, id: ScopeId) -> PassOutcome {
    let scope = decider.state.scope(id);
    if let Some((task, failure)) = &scope.failure {
        return PassOutcome::Failed(Box::new(add_body_place(
            decider,
            id,
            Some(*task),
            outcome::leaving(failure, outcome::names_places(decider.state, *task)),
        )));
    }
    if scope.closing {
        return PassOutcome::Cancelled;
    }
    let graph = &decider.state.graph;
    let output = |node: NodeIx| decider.state.task(TaskKey { scope: id, node }).output.clone().unwrap_or_default();
    match &graph.body(scope.body).outcome {
        Outcome::Sink(node) => PassOutcome::Done(output(*node)),
        Outcome::Sinks(nodes) => {
            let names = graph.names_in(scope.body);
            let members = nodes.iter().map(|node| (names.name(&graph.node(*node).id).0.clone(), output(*node)));
            PassOutcome::Done(Json::object(members))
        }
        Outcome::Output(binding) => match capture::render_in((decider.state, decider.now), id, binding) {
            Ok(value) => PassOutcome::Done(value),
            Err(failure) => PassOutcome::Failed(Box::new(add_body_place(decider, id, None, failure))),
        },
    }
}

/// Adds the place of a failure in a body to its details: the number of the pass, the node and the item. `task` is the
/// failed task; `None`: the output of the pass could not be rendered.
fn add_body_place(decider: &Decider<'_>, id: ScopeId, task: Option<TaskKey>, failure: Failure) -> Failure {
    let scope = decider.state.scope(id);
    let mut place = vec![("pass", Json::from(scope.index))];
    if let Some(task) = task {
        place.push(("node", Json::from(&*decider.state.graph.node(task.node).id.0)));
        place.push(("task", Json::from(decider.state.address(task))));
    }
    if let Some(item) = scope.variables.get("item") {
        let fits = item.measure(MAX_FAILED_ITEM_BYTES).is_ok();
        place.push(if fits { ("item", item.clone()) } else { ("itemTooLarge", Json::from(true)) });
    }
    outcome::add_place(failure, "body", place)
}

fn run_end(decider: &Decider<'_>) -> RunEnd {
    let state = &*decider.state;
    let scope = state.scope(ScopeId::ROOT);
    match state.cancel {
        Some(CancelReason::Requested) => return RunEnd::Cancelled { outputs: outputs(decider) },
        Some(CancelReason::TooLarge) => {
            let what = match state.events > state.max_events {
                true => format!(
                    "has more than {} events; move parts into other flows (`control.subflow`)",
                    state.max_events
                ),
                false if state.shares_budget => {
                    "and the other runs of this test have more events and files than fit in memory; test with \
                     smaller values"
                        .to_owned()
                }
                false => format!(
                    "has events of more than {} MiB; pass large values as files, or move parts into other flows \
                     (`control.subflow`)",
                    state.max_bytes >> 20
                ),
            };
            let message = match state.shares_budget {
                true => format!("the run {what}"),
                false => format!("the run {what}, because each called flow is a separate run"),
            };
            let failure = Failure::new(code::RUN_TOO_LARGE, message);
            return RunEnd::Failed { outputs: outputs(decider), failure, task: None };
        }
        Some(CancelReason::TotalTimeout) => {
            let limit = state.policy.total_timeout_ms.unwrap_or_default();
            let message = format!("the run took longer than its totalTimeoutMs of {limit}");
            let failure = Failure::new(code::TOTAL_TIMEOUT, message);
            return RunEnd::Failed { outputs: outputs(decider), failure, task: None };
        }
        None => {}
    }
    if let Some((task, failure)) = &scope.failure {
        let task = Some(state.address(*task));
        return RunEnd::Failed { outputs: outputs(decider), failure: failure.clone(), task };
    }
    match &state.graph.outputs {
        None => match capture::check_size(decider.state.recorded_outputs(), "the outputs of the run's nodes") {
            Ok(outputs) => RunEnd::Succeeded { outputs },
            Err(failure) => RunEnd::Failed { outputs: outputs(decider), failure, task: None },
        },
        Some(binding) => match capture::render_in((state, decider.now), ScopeId::ROOT, binding) {
            Ok(outputs) => RunEnd::Succeeded { outputs },
            Err(failure) => RunEnd::Failed { outputs: outputs(decider), failure, task: None },
        },
    }
}

/// Returns the outputs of all nodes of the flow itself, or an empty object if together they exceed the limit of a
/// value.
fn outputs(decider: &Decider<'_>) -> Json {
    capture::check_size(decider.state.recorded_outputs(), "the outputs").unwrap_or_else(|_| Json::object::<&str>([]))
}
