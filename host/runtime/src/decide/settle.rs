//! Readiness: edges, joins, skips, and the end of scopes (the page `readiness` of the manual).

use flowcell_contract::{Failure, Json, code};
use flowcell_flow::graph::{EdgeIx, Join, NodeIx, On, Outcome};

use super::Decider;
use crate::{
    capture,
    fact::{CancelReason, Fact, PassOutcome, RunEnd, ScopeId, SkipReason, TaskKey},
    limits::FAILED_ITEM_BYTES,
    outcome,
    state::Phase,
};

impl Decider<'_> {
    /// Settles edges and ends scopes until nothing more follows.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(key) = self.ended.pop_front() {
                self.settle_edges(key);
            } else if let Some(scope) = self.check.pop_front() {
                self.check_scope(scope);
            } else {
                return;
            }
        }
    }

    /// Makes the nodes without incoming edges ready.
    pub(super) fn begin_scope(&mut self, scope: ScopeId) {
        let graph = self.state.graph.clone();
        for node in &graph.body(self.state.scope(scope).body).starts {
            self.open(TaskKey { scope, node: *node });
        }
        self.check.push_back(scope);
    }

    /// Rule 1: settles every edge of a task that ended, once.
    fn settle_edges(&mut self, key: TaskKey) {
        let Some(task) = self.state.find(key) else { return };
        let phase = task.phase;
        self.check.push_back(key.scope);
        if self.state.scope(key.scope).closing {
            return;
        }
        let graph = self.state.graph.clone();
        let node = graph.node(key.node);
        let failed = phase == Phase::Failed;
        let mut handled = !failed || node.policy.continue_on_error;
        for edge in &node.outgoing {
            let line = graph.edge(*edge);
            let reached = match line.on {
                On::Success => phase == Phase::Succeeded || (failed && node.policy.continue_on_error),
                On::Error => failed,
                On::End => failed || phase == Phase::Succeeded,
            };
            let fired = reached && self.edge_holds(key, *edge);
            handled |= fired && line.on != On::Success;
            self.emit(Fact::EdgeSettled { scope: key.scope, edge: *edge, fired });
        }
        if !handled {
            self.emit(Fact::FailureUnhandled { task: key });
            if self.state.policy.fail_fast {
                return self.close_scope(key.scope);
            }
        }
        for edge in &node.outgoing {
            self.settle_join(TaskKey { scope: key.scope, node: graph.edge(*edge).to });
        }
    }

    /// Evaluates an edge's `when`. If that fails, the target fails (rule 6).
    fn edge_holds(&mut self, source: TaskKey, edge: EdgeIx) -> bool {
        let graph = self.state.graph.clone();
        let line = graph.edge(edge);
        let Some(when) = &line.when else { return true };
        let place = format!("`when` of the edge from `{}`", graph.node(line.from).id);
        match capture::holds(self.state, source, when, &place) {
            Ok(holds) => holds,
            Err(failure) => {
                let target = TaskKey { scope: source.scope, node: line.to };
                if self.state.task(target).phase == Phase::Waiting {
                    self.fail(target, failure);
                }
                false
            }
        }
    }

    /// Rule 2: decides whether a waiting task's join has opened, or can no longer open.
    fn settle_join(&mut self, key: TaskKey) {
        let task = self.state.task(key);
        if task.phase != Phase::Waiting {
            return;
        }
        let node = self.state.graph.node(key.node);
        let settled = node.incoming.len() as u32 - task.pending;
        let skipped = settled - task.fired;
        match node.join {
            Join::Any if task.fired > 0 => self.open(key),
            Join::All if skipped > 0 => self.skip(key, SkipReason::Join),
            _ if task.pending > 0 => {}
            _ if task.fired > 0 => self.open(key),
            _ => self.skip(key, SkipReason::Join),
        }
    }

    /// Rule 3: makes a task ready after its join has opened. If the node's own `when` is false, the task is skipped.
    fn open(&mut self, key: TaskKey) {
        let graph = self.state.graph.clone();
        let node = graph.node(key.node);
        let holds = match &node.when {
            Some(when) => capture::holds(self.state, key, when, &format!("`when` of `{}`", node.id)),
            None => Ok(true),
        };
        match holds {
            Ok(true) => {
                let deadline = node.policy.total_timeout_ms.map(|total| self.now.saturating_add(total));
                self.emit(Fact::TaskReady { task: key, deadline });
            }
            Ok(false) => self.skip(key, SkipReason::When),
            Err(failure) => self.fail(key, failure),
        }
    }

    fn skip(&mut self, task: TaskKey, reason: SkipReason) {
        self.emit(Fact::TaskSkipped { task, reason });
        self.ended.push_back(task);
    }

    pub(super) fn fail(&mut self, key: TaskKey, failure: Failure) {
        let input = self.input_for_edges(key.node, key);
        self.emit(Fact::TaskFailed { task: key, failure: Box::new(failure), input, received: None });
        self.ended.push_back(key);
    }

    /// Ends a scope without active tasks, or first skips the tasks that wait on cycles (rule 5).
    fn check_scope(&mut self, id: ScopeId) {
        let Some(scope) = self.state.scopes.get(&id) else { return };
        if scope.active > 0 {
            return;
        }
        if scope.waiting == 0 || scope.closing {
            return self.end_scope(id);
        }
        let graph = self.state.graph.clone();
        let waiting = |node: &&NodeIx| self.state.task(TaskKey { scope: id, node: **node }).phase == Phase::Waiting;
        let nodes: Vec<_> = graph.body(scope.body).nodes.iter().filter(waiting).copied().collect();
        let on_cycles: Vec<_> = nodes.iter().filter(|node| graph.node(**node).on_cycle).copied().collect();
        // A task outside of all cycles that still waits can only wait for a task on a cycle.
        for node in if on_cycles.is_empty() { nodes } else { on_cycles } {
            self.skip(TaskKey { scope: id, node }, SkipReason::Unreached);
        }
    }

    fn end_scope(&mut self, id: ScopeId) {
        match self.state.scope(id).owner {
            Some(owner) => {
                let outcome = self.pass_outcome(id);
                self.emit(Fact::PassEnded { scope: id, outcome: outcome.clone() });
                self.pass_ended(owner, outcome);
            }
            None => self.end_run(),
        }
    }

    fn pass_outcome(&self, id: ScopeId) -> PassOutcome {
        let scope = self.state.scope(id);
        if let Some((task, failure)) = &scope.failure {
            return PassOutcome::Failed(Box::new(self.placed_in_body(id, Some(*task), failure.clone())));
        }
        if scope.closing {
            return PassOutcome::Cancelled;
        }
        let graph = &self.state.graph;
        let output = |node: NodeIx| self.state.task(TaskKey { scope: id, node }).output.clone().unwrap_or_default();
        match &graph.body(scope.body).outcome {
            Outcome::Sink(node) => PassOutcome::Done(output(*node)),
            Outcome::Sinks(nodes) => {
                let members = nodes.iter().map(|node| (graph.node(*node).id.0.clone(), output(*node)));
                PassOutcome::Done(Json::object(members))
            }
            Outcome::Output(binding) => match capture::render_in(self.state, id, binding) {
                Ok(value) => PassOutcome::Done(value),
                Err(failure) => PassOutcome::Failed(Box::new(self.placed_in_body(id, None, failure))),
            },
        }
    }

    /// Adds the node, the pass and the item of a failure to its details.
    fn placed_in_body(&self, id: ScopeId, task: Option<TaskKey>, failure: Failure) -> Failure {
        let scope = self.state.scope(id);
        let mut place = vec![("pass", Json::from(scope.index))];
        if let Some(task) = task {
            place.push(("node", Json::from(&*self.state.graph.node(task.node).id.0)));
            place.push(("task", Json::from(self.state.address(task))));
        }
        if let Some(item) = scope.variables.get("item") {
            let fits = item.measure(FAILED_ITEM_BYTES).is_ok();
            place.push(if fits { ("item", item.clone()) } else { ("itemTooLarge", Json::from(true)) });
        }
        outcome::placed(failure, "body", place)
    }

    fn end_run(&mut self) {
        let end = self.run_end();
        self.emit(Fact::PhaseEnded { success: matches!(end, RunEnd::Succeeded { .. }) });
        self.emit(Fact::RunEnded { end: Box::new(end) });
    }

    fn run_end(&self) -> RunEnd {
        let state = &*self.state;
        let scope = state.scope(ScopeId::ROOT);
        match state.cancel {
            Some(CancelReason::Requested) => return RunEnd::Cancelled { outputs: self.outputs() },
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
                return RunEnd::Failed { outputs: self.outputs(), failure, task: None };
            }
            Some(CancelReason::TotalTimeout) => {
                let limit = state.policy.total_timeout_ms.unwrap_or_default();
                let message = format!("the run took longer than its totalTimeoutMs of {limit}");
                let failure = Failure::new(code::TOTAL_TIMEOUT, message);
                return RunEnd::Failed { outputs: self.outputs(), failure, task: None };
            }
            None => {}
        }
        if let Some((task, failure)) = &scope.failure {
            let task = Some(state.address(*task));
            return RunEnd::Failed { outputs: self.outputs(), failure: failure.clone(), task };
        }
        match &state.graph.outputs {
            None => match capture::fits(self.state.recorded_outputs(), "the outputs of the run's nodes") {
                Ok(outputs) => RunEnd::Succeeded { outputs },
                Err(failure) => RunEnd::Failed { outputs: self.outputs(), failure, task: None },
            },
            Some(outputs) => match capture::render_in(state, ScopeId::ROOT, outputs) {
                Ok(outputs) => RunEnd::Succeeded { outputs },
                Err(failure) => RunEnd::Failed { outputs: self.outputs(), failure, task: None },
            },
        }
    }

    /// Returns the outputs of all nodes of the flow itself, or an empty object if together they exceed the limit of a
    /// value.
    fn outputs(&self) -> Json {
        capture::fits(self.state.recorded_outputs(), "the outputs").unwrap_or_else(|_| Json::object::<&str>([]))
    }
}
