//! Settles edges and joins, and ends scopes (the page `readiness` of the manual).

use flowcell_contract::{Failure, Json, code};
use flowcell_flow::graph::{EdgeIx, Join, NodeIx, On, Outcome};

use super::{Decider, close, cycles, passes, race, ready, undo};
use crate::{
    capture::{self, Field},
    fact::{CancelReason, Fact, PassOutcome, RunEnd, ScopeId, SkipReason, TaskKey, Unsuccessful},
    limits::MAX_FAILED_ITEM_BYTES,
    outcome,
    state::{EdgeState, Phase, RunState},
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
        handled |= settle_edge(decider, key, *edge) && graph.edge(*edge).on != On::Success;
    }
    if !handled {
        decider.emit(Fact::FailureUnhandled { task: key });
        if decider.state.policy.fail_fast {
            return close::scope(decider, key.scope);
        }
    }
    for edge in &node.outgoing {
        settle_join(decider, TaskKey { scope: key.scope, node: graph.edge(*edge).to });
    }
    decider.rounds.extend(decider.state.cycle_of(key.node).map(|cycle| (key.scope, cycle)));
}

/// Settles an edge of a task that ended. Returns true if the edge fired.
///
/// An edge that leaves a cycle settles once, when it fires or when the last pass has ended. In a later pass it neither
/// fires again nor handles a failure. If the condition of an edge that goes back fails, the edge is not settled, and the
/// end of the pass decides.
pub(super) fn settle_edge(decider: &mut Decider<'_>, source: TaskKey, edge: EdgeIx) -> bool {
    let graph = decider.state.graph.clone();
    let line = graph.edge(edge);
    let loops = decider.state.loops;
    if loops {
        let is_over = line.goes_back && cycles::is_over_limit(decider.state, TaskKey { node: line.to, ..source });
        if is_over || decider.state.scope(source.scope).edges[line.slot as usize] != EdgeState::Pending {
            return false;
        }
    }
    let fired = match edge_holds(decider.state, decider.now, source, edge) {
        Ok(fired) => fired,
        Err(_) if loops && line.goes_back => return false,
        Err(failure) => {
            fail_target(decider, TaskKey { node: line.to, ..source }, failure);
            false
        }
    };
    if fired || !(loops && line.leaves.is_some()) {
        decider.emit(Fact::EdgeSettled { scope: source.scope, edge, fired });
    }
    fired
}

/// Returns true if a task has ended as an edge from it requires, and the edge's `when` holds.
pub(super) fn edge_holds(state: &RunState, now: u64, source: TaskKey, edge: EdgeIx) -> Result<bool, Failure> {
    let line = state.graph.edge(edge);
    let node = state.graph.node(source.node);
    let phase = state.task(source).phase;
    let failed = phase == Phase::Failed;
    let reached = match line.on {
        On::Success => phase == Phase::Succeeded || (failed && node.policy.continue_on_error),
        On::Error => failed,
        On::End => failed || phase == Phase::Succeeded,
    };
    match &line.when {
        Some(when) if reached => {
            let place = format!("`when` of the edge from `{}`", node.id);
            capture::holds((state, now), source, when, (Field::Edge(edge), &place))
        }
        _ => Ok(reached),
    }
}

/// Fails a task that waits for an edge whose `when` fails (rule 6).
fn fail_target(decider: &mut Decider<'_>, target: TaskKey, failure: Failure) {
    if decider.state.task(target).phase == Phase::Waiting {
        ready::fail(decider, target, failure);
    }
}

/// Rule 2: decides whether a waiting task's join has opened, or can no longer open.
pub(super) fn settle_join(decider: &mut Decider<'_>, key: TaskKey) {
    let task = decider.state.task(key);
    if task.phase != Phase::Waiting {
        return;
    }
    let node = decider.state.graph.node(key.node);
    let graph = &decider.state.graph;
    let is_awaited = |edge: &&EdgeIx| !(decider.state.loops && graph.edge(**edge).goes_back);
    let settled = node.incoming.iter().filter(is_awaited).count() as u32 - task.pending;
    let skipped = settled - task.fired;
    match node.join {
        Join::Any if task.fired > 0 => {
            ready::open(decider, key);
            race::won(decider, key);
        }
        Join::All if skipped > 0 => ready::skip(decider, key, SkipReason::Join),
        _ if task.pending > 0 => {}
        _ if task.fired > 0 => ready::open(decider, key),
        _ => ready::skip(decider, key, SkipReason::Join),
    }
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
                decider.emit(Fact::PassEnded { scope: id, outcome: outcome.clone() });
                passes::ended(decider, owner, outcome);
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
                    Some(Unsuccessful::Failed { failure: failure.clone(), task: task.clone() })
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
        return PassOutcome::Failed(Box::new(add_body_place(decider, id, Some(*task), failure.clone())));
    }
    if scope.closing {
        return PassOutcome::Cancelled;
    }
    let graph = &decider.state.graph;
    let output = |node: NodeIx| decider.state.task(TaskKey { scope: id, node }).output.clone().unwrap_or_default();
    match &graph.body(scope.body).outcome {
        Outcome::Sink(node) => PassOutcome::Done(output(*node)),
        Outcome::Sinks(nodes) => {
            let members = nodes.iter().map(|node| (graph.node(*node).id.0.clone(), output(*node)));
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
