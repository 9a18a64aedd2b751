//! Turns facts into events: indices become names, and durations are computed.

mod agents;
mod members;
mod rounds;
mod undos;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{BuiltIn, Json, Question, RunId, ScopePath, Tenant, Wake, text::revealed};
use flowcell_flow::graph::{Graph, NodeIx};

use agents::AgentCall;
pub(crate) use agents::FLOW_STEP;
use members::{
    add_scope, end_members, expiry_members, name_of, note_members, question_members, quota_members, reference_members,
};
use rounds::Rounds;
use undos::Undos;

use crate::{
    call_log::{ALLOW, DENY, Reply},
    event::Event,
    fact::{Asked, CallRecord, CancelReason, Fact, Migrated, Note, PassOutcome, ScopeId, TaskKey, Unsuccessful},
    ports::Unit,
    question::QuestionRef,
};

/// The phase that every run has.
pub const DEFAULT_PHASE: &str = "Run Flow";

/// The capability whose calls have events of their own: `service:…` instead of `call:…`.
const SERVICES: &str = BuiltIn::Services.name();

/// Turns the facts of one run into events, in order.
pub struct Projector {
    tenant: Tenant,
    run_id: RunId,
    graph: Arc<Graph>,
    started: u64,
    /// The seed of the digests of questions.
    seed: u64,
    scopes: HashMap<ScopeId, ScopePath>,
    rounds: Rounds,
    undos: Undos,
    tasks: HashMap<TaskKey, Attempts>,
    /// Calls of agent runs that are in progress.
    open_agent_calls: HashMap<(TaskKey, u32), AgentCall>,
    /// Calls of services that are in progress. They have their own events.
    open_service_calls: HashSet<(TaskKey, u32)>,
}

type Members = Vec<(&'static str, Json)>;

/// The attempts of a task.
#[derive(Clone, Copy, Default)]
struct Attempts {
    /// Number of attempts begun, in earlier passes of a cycle too.
    begun: u32,
    /// Number of resumes of the latest attempt.
    resumes: u32,
    /// The time at which the latest attempt began, in milliseconds since 1970.
    since: u64,
}

impl Projector {
    /// Creates a projector that has seen no unit.
    pub fn new(tenant: Tenant, run_id: RunId, graph: Arc<Graph>) -> Projector {
        let scopes = HashMap::from([(ScopeId::ROOT, ScopePath::root())]);
        Projector {
            tenant,
            run_id,
            graph,
            started: 0,
            seed: 0,
            scopes,
            rounds: Rounds::default(),
            undos: Undos::default(),
            tasks: HashMap::new(),
            open_agent_calls: HashMap::new(),
            open_service_calls: HashSet::new(),
        }
    }

    /// Replaces the graph, before a unit with which the run moves to another version of its flow. The new graph keeps the
    /// indices of the one before.
    pub fn set_graph(&mut self, graph: Arc<Graph>) {
        self.graph = graph;
    }

    /// Turns a unit into events.
    pub fn project(&mut self, unit: &Unit) -> Vec<Event> {
        let numbered = (unit.first_seq..).zip(&unit.facts);
        numbered.map(|(seq, fact)| self.event(seq, unit.ts, fact)).collect()
    }

    /// Updates the projector with a unit without returning its events. Later events depend on the unit.
    pub fn pass_over(&mut self, unit: &Unit) {
        for fact in &unit.facts {
            match fact {
                Fact::RunStarted { seed, loops, .. } => self.run_started(unit.ts, *seed, *loops),
                Fact::PassStarted { scope, owner, index, .. } => self.pass_started(*scope, *owner, *index),
                Fact::UndoStarted { scope, undone, undo, path, .. } => {
                    self.undo_started(TaskKey { scope: *scope, node: *undo }, *undone, path)
                }
                Fact::PassEnded { scope, .. } | Fact::UndoEnded { scope } => self.forget_scope(*scope),
                Fact::CyclePassStarted { scope, entry, pass } => {
                    self.rounds.begin(&self.graph, *scope, *entry, *pass);
                }
                Fact::AttemptStarted { task } => self.attempt_started(*task, unit.ts),
                Fact::TaskResumed { task } => self.task_resumed(*task),
                Fact::Migrated { migration } => _ = self.migrated(migration),
                Fact::CallStarted { task, call } => {
                    self.record_agent_call(*task, call);
                    self.record_service_call(*task, call);
                }
                Fact::CallEnded { task, ordinal, reply, .. } => {
                    self.agent_call_replied(*task, *ordinal, reply);
                    self.open_service_calls.remove(&(*task, *ordinal));
                }
                Fact::TaskBlocked { task, reason, .. } => self.agent_blocked(*task, reason),
                Fact::TaskResolved { task, resolution } => self.agent_resolved(*task, resolution),
                Fact::Agent { task, agent_fact, .. } => _ = self.agent_event(*task, agent_fact),
                Fact::TaskSucceeded { task, .. } | Fact::TaskFailed { task, .. } | Fact::TaskCancelled { task, .. } => {
                    self.remove_attempts(*task);
                }
                _ => {}
            }
        }
    }

    fn run_started(&mut self, ts: u64, seed: u64, loops: bool) {
        (self.started, self.seed, self.rounds.loops) = (ts, seed, loops);
    }

    fn pass_started(&mut self, scope: ScopeId, owner: TaskKey, index: u32) {
        let path = self.path_of(owner).address(&self.graph.node(owner.node).id);
        self.scopes.insert(scope, ScopePath::from(format!("{path}[{index}]")));
    }

    /// Removes the attempts of a task that has ended.
    fn remove_attempts(&mut self, task: TaskKey) -> Option<Attempts> {
        let attempts = self.tasks.remove(&task)?;
        self.rounds.task_ended(&self.graph, task, attempts.begun);
        Some(attempts)
    }

    fn undo_started(&mut self, task: TaskKey, undone: TaskKey, path: &str) {
        let path = ScopePath::from(path.to_owned());
        self.undos.begin(task, path.address(&self.graph.node(undone.node).id));
        self.scopes.insert(task.scope, path);
    }

    fn forget_scope(&mut self, scope: ScopeId) {
        self.scopes.remove(&scope);
        self.undos.forget(scope);
        self.rounds.scope_ended(scope);
    }

    fn undo_members(&self, scope: ScopeId) -> Members {
        let Some((task, undone)) = self.undos.get(scope) else { return Vec::new() };
        self.with(task, [("undoes", Json::from(undone))])
    }

    fn attempt_started(&mut self, task: TaskKey, ts: u64) {
        let passed = self.rounds.passed(task);
        let entry = self.tasks.entry(task).or_insert(Attempts { begun: passed, ..Attempts::default() });
        *entry = Attempts { begun: entry.begun + 1, resumes: 0, since: ts };
    }

    /// Updates the numbers of attempts, and returns the versions and the nodes that are gone or start anew.
    fn migrated(&mut self, migration: &Migrated) -> Members {
        let task = |node| TaskKey { scope: ScopeId::ROOT, node };
        for restarted in &migration.restarted {
            self.tasks.remove(&task(restarted.old));
            let attempts = Attempts { begun: restarted.attempts, ..Attempts::default() };
            self.tasks.insert(task(restarted.new), attempts);
        }
        let dropped = migration.dropped.iter().map(|node| Json::from(self.graph.node(*node).id.0.clone()));
        let mut members = vec![("dropped", Json::array(dropped))];
        members.extend(migration.from_version.map(|version| ("fromVersion", Json::from(version))));
        members.extend(migration.version.map(|version| ("version", Json::from(version))));
        if !migration.names.is_empty() {
            let names = migration.names.iter().map(|(id, name)| (id.0.clone(), Json::from(name.0.clone())));
            members.push(("names", Json::object(names)));
        }
        members
    }

    fn task_resumed(&mut self, task: TaskKey) {
        self.tasks.entry(task).or_default().resumes += 1;
    }

    fn event(&mut self, seq: u64, ts: u64, fact: &Fact) -> Event {
        let (kind, members) = self.describe(fact, ts);
        let (tenant, run_id) = (self.tenant.clone(), self.run_id.clone());
        Event { seq, ts, tenant, run_id, kind, data: Json::object(members) }
    }

    fn describe(&mut self, fact: &Fact, ts: u64) -> (&'static str, Members) {
        match fact {
            Fact::RunStarted { input, seed, loops, .. } => {
                self.run_started(ts, *seed, *loops);
                ("harness:start", vec![("name", Json::from(self.graph.name.clone())), ("input", input.clone())])
            }
            Fact::RunResumed { .. } => ("harness:resumed", Vec::new()),
            Fact::RunAccompanied => ("harness:accompanied", Vec::new()),
            Fact::Migrated { migration } => ("harness:migrated", self.migrated(migration)),
            Fact::RunParked { due, reason, quota, .. } => {
                let mut members = vec![("reason", name_of(reason))];
                members.extend(due.map(|due| ("due", Json::from(due))));
                members.extend(quota.iter().flat_map(|hold| quota_members(hold)));
                ("harness:parked", members)
            }
            Fact::QuotaReached(hold) => ("harness:paused", quota_members(hold)),
            Fact::QuotaRenewed => ("harness:renewed", Vec::new()),
            Fact::RunEnded { end } => ("harness:complete", end_members(end, ts.saturating_sub(self.started))),
            Fact::PhaseStarted => ("phase:start", vec![("name", Json::from(DEFAULT_PHASE))]),
            Fact::PhaseEnded { success: true } => ("phase:complete", vec![("name", Json::from(DEFAULT_PHASE))]),
            Fact::PhaseEnded { success: false } => ("phase:failed", vec![("name", Json::from(DEFAULT_PHASE))]),
            Fact::EdgeSettled { scope, edge, fired } => {
                let line = self.graph.edge(*edge);
                let id = |node| Json::from(self.graph.node(node).id.0.clone());
                let mut members = vec![("from", id(line.from)), ("to", id(line.to))];
                let path = self.rounds.path_of_edge(&self.graph, line, *scope, self.path(*scope));
                add_scope(path, &mut members);
                (if *fired { "edge:fired" } else { "edge:skipped" }, members)
            }
            Fact::ScopeClosing { scope } => ("scope:closing", self.scope_members(*scope)),
            Fact::PassStarted { scope, owner, index, .. } => {
                self.pass_started(*scope, *owner, *index);
                ("pass:start", self.scope_members(*scope))
            }
            Fact::PassEnded { scope, outcome } => {
                let mut members = self.scope_members(*scope);
                members.push(match outcome {
                    PassOutcome::Done(value) => ("outcome", value.clone()),
                    PassOutcome::Failed(failure) => ("error", failure.to_json()),
                    PassOutcome::Cancelled => ("cancelled", Json::from(true)),
                });
                self.forget_scope(*scope);
                ("pass:complete", members)
            }
            Fact::CyclePassStarted { scope, entry, pass } => {
                self.rounds.begin(&self.graph, *scope, *entry, *pass);
                ("cycle:pass", self.cycle_members(*scope, *entry))
            }
            Fact::CycleEnded { scope, entry } => {
                let mut members = self.cycle_members(*scope, *entry);
                members.push(("passes", Json::from(self.rounds.count(&self.graph, *scope, *entry))));
                ("cycle:complete", members)
            }
            Fact::UndosBegan { scope, end } => {
                let mut members = self.scope_members(*scope);
                members.push(match &**end {
                    Unsuccessful::Failed { failure, .. } => ("error", failure.to_json()),
                    Unsuccessful::Cancelled => ("cancelled", Json::from(true)),
                });
                ("scope:undoing", members)
            }
            Fact::UndoStarted { scope, undone, undo, path, .. } => {
                self.undo_started(TaskKey { scope: *scope, node: *undo }, *undone, path);
                ("undo:start", self.undo_members(*scope))
            }
            Fact::UndoEnded { scope } => {
                let members = self.undo_members(*scope);
                self.forget_scope(*scope);
                ("undo:complete", members)
            }
            Fact::EventKept { name, payload } => {
                ("event:kept", vec![("name", Json::from(&**name)), ("payload", payload.json().clone())])
            }
            Fact::EventTaken { name } => ("event:taken", vec![("name", Json::from(&**name))]),
            Fact::MessageSent { content } => ("session:message", vec![("content", content.json().clone())]),
            Fact::CancelRequested { reason } => {
                let reason = match reason {
                    CancelReason::Requested => "requested",
                    CancelReason::TotalTimeout => "total_timeout",
                    CancelReason::TooLarge => "run_too_large",
                };
                ("session:abort", vec![("reason", Json::from(reason))])
            }
            _ => self.task_event(fact, ts),
        }
    }

    fn task_event(&mut self, fact: &Fact, ts: u64) -> (&'static str, Members) {
        match fact {
            Fact::TaskReady { task, .. } => ("task:ready", self.task(*task)),
            Fact::TaskSkipped { task, reason } => ("task:skipped", self.with(*task, [("reason", name_of(reason))])),
            Fact::AttemptStarted { task } => {
                self.attempt_started(*task, ts);
                let node_type = Json::from(self.graph.node(task.node).node_type.name.clone());
                ("task:start", self.with(*task, [("nodeType", node_type)]))
            }
            Fact::TaskResumed { task } => {
                self.task_resumed(*task);
                ("task:resumed", self.task(*task))
            }
            Fact::TaskPaused { task, pause, .. } => ("task:paused", self.pause_members(*task, &pause.until, ts)),
            Fact::TaskWoken { task, index, .. } => ("task:woken", self.with(*task, [("index", Json::from(*index))])),
            Fact::TaskRetrying { task, failure, delay_ms, .. } => {
                ("task:retry", self.with(*task, [("delayMs", Json::from(*delay_ms)), ("error", failure.to_json())]))
            }
            Fact::RetryDue { task } => ("task:due", self.task(*task)),
            Fact::TaskSucceeded { task, output, .. } => {
                let members = self.ended(*task, ts, [("result", output.json().clone())]);
                ("task:complete", members)
            }
            Fact::TaskFailed { task, failure, .. } => {
                ("task:failed", self.ended(*task, ts, [("error", failure.to_json())]))
            }
            Fact::CallStarted { task, call } => {
                self.record_agent_call(*task, call);
                let members = [
                    ("call", Json::from(call.ordinal)),
                    ("interface", Json::from(call.interface.clone())),
                    ("function", Json::from(call.function.clone())),
                    ("effect", name_of(&call.effect)),
                    ("key", Json::from(call.key.clone())),
                    ("about", call.about.clone()),
                ];
                let mut members = self.with(*task, members);
                if let Some(ask) = &call.ask {
                    members.push(("question", Json::object(self.permission(*task, call, ask))));
                }
                (if self.record_service_call(*task, call) { "service:call" } else { "call:start" }, members)
            }
            Fact::CallRepeated { task, ordinal, .. } => {
                ("call:repeated", self.with(*task, [("call", Json::from(*ordinal))]))
            }
            Fact::CallHeld { task, ordinal, .. } => ("call:held", self.with(*task, [("call", Json::from(*ordinal))])),
            Fact::CallEnded { task, attempt, ordinal, reply } => {
                self.agent_call_replied(*task, *ordinal, reply);
                self.call_ended(*task, *attempt, *ordinal, reply)
            }
            Fact::CallDecided { task, attempt, ordinal, allowed, answer, digest } => {
                let decision = if *allowed { "allow" } else { "deny" };
                let mut members =
                    self.with(*task, [("call", Json::from(*ordinal)), ("decision", Json::from(decision))]);
                members.retain(|(name, _)| *name != "attempt");
                members.push(("attempt", Json::from(*attempt)));
                members.extend(digest.as_deref().map(|digest| ("digest", Json::from(digest))));
                members.push(("expired", Json::from(answer.is_none())));
                members.extend(self.step_of(*task));
                ("agent:tool:decision", members)
            }
            Fact::Agent { task, agent_fact, .. } => self.agent_event(*task, agent_fact),
            Fact::TaskIdle { task, due } => {
                let mut members = self.task(*task);
                members.extend(due.map(|due| ("due", Json::from(due))));
                ("task:idle", members)
            }
            Fact::TaskBusy { task } => ("task:busy", self.task(*task)),
            Fact::TaskBlocked { task, reason, .. } => {
                self.agent_blocked(*task, reason);
                let members = [("reason", Json::from(reason.name())), ("message", Json::from(reason.to_string()))];
                ("task:blocked", self.with(*task, members))
            }
            Fact::TaskResolved { task, resolution } => {
                self.agent_resolved(*task, resolution);
                ("task:resolved", self.with(*task, [("resolution", name_of(resolution))]))
            }
            Fact::AttemptRepeated { task } => ("task:repeated", self.task(*task)),
            Fact::TaskCancelled { task, .. } => ("task:cancelled", self.ended(*task, ts, [])),
            Fact::TaskClosing { task, .. } => ("task:closing", self.task(*task)),
            Fact::FailureUnhandled { task } => ("task:unhandled", self.task(*task)),
            Fact::Replied { task, answer, digest, .. } => {
                let mut members = self.with(*task, [("answer", answer.clone())]);
                members.extend(digest.as_deref().map(|digest| ("digest", Json::from(digest))));
                ("session:reply", members)
            }
            Fact::Noted { task, note } => self.note_event(*task, note),
            // All other facts are about the run or a scope, and `describe` has handled them.
            _ => ("unknown", Vec::new()),
        }
    }

    /// Returns true for a call of a service, and remembers this call until its end.
    fn record_service_call(&mut self, task: TaskKey, call: &CallRecord) -> bool {
        let is_service = &*call.interface == SERVICES;
        if is_service {
            self.open_service_calls.insert((task, call.ordinal));
        }
        is_service
    }

    /// Describes the end of a call. The reply itself stays in the journal: it may be large, and it is meant only for
    /// the node.
    fn call_ended(&mut self, task: TaskKey, attempt: u32, call: u32, reply: &Reply) -> (&'static str, Members) {
        let mut members = self.with(task, [("call", Json::from(call))]);
        // The end of a late call belongs to the attempt that began the call.
        members.retain(|(name, _)| *name != "attempt");
        members.push(("attempt", Json::from(attempt)));
        let is_service = self.open_service_calls.remove(&(task, call));
        match reply {
            Ok(_) => (if is_service { "service:result" } else { "call:result" }, members),
            Err(failure) => {
                members.push(("error", failure.to_json()));
                (if is_service { "service:error" } else { "call:error" }, members)
            }
        }
    }

    fn note_event(&self, task: TaskKey, note: &Note) -> (&'static str, Members) {
        let (name, about) = note_members(note);
        (name, self.task(task).into_iter().chain(about).collect())
    }

    fn pause_members(&self, task: TaskKey, until: &[Wake], ts: u64) -> Members {
        let names = Json::array(until.iter().map(|wake| Json::from(wake.name())));
        let mut members = self.with(task, [("until", names)]);
        for wake in until {
            match wake {
                Wake::Answer(question) => {
                    let expires = expiry_members(until, ts);
                    members.push(("question", Json::object(self.question(task, question).into_iter().chain(expires))));
                }
                Wake::Event(name) => members.push(("event", Json::from(name.clone()))),
                Wake::Flow(call) => members.push(("flow", Json::from(call.name.clone()))),
                _ => {}
            }
        }
        members
    }

    /// Describes a gate's question, with the attempt and the digest by which an answer refers to this question.
    fn question(&self, task: TaskKey, question: &Question) -> Members {
        let Attempts { begun, resumes, .. } = self.tasks.get(&task).copied().unwrap_or_default();
        let asked = QuestionRef::of_gate(self.seed, task, begun, resumes, question);
        question_members(self.path_of(task).address(&self.graph.node(task.node).id), question, asked)
    }

    /// Describes the question whether a call may leave. `arguments` is present if the prompt shows only a part of
    /// them.
    fn permission(&self, task: TaskKey, call: &CallRecord, ask: &Asked) -> Members {
        let attempt = self.tasks.get(&task).map_or(0, |attempts| attempts.begun);
        let asked = QuestionRef::of_call(self.seed, task, (attempt, call.ordinal), &call.digest);
        let mut members = vec![
            ("address", Json::from(self.permission_address(task, call.ordinal))),
            ("prompt", Json::from(revealed(&ask.prompt))),
            ("choices", Json::array([ALLOW, DENY].map(Json::from))),
            ("allowText", Json::from(false)),
            ("expires", Json::from(ask.expires)),
        ];
        members.extend(reference_members(asked));
        members.extend(ask.arguments.as_ref().map(|arguments| ("arguments", arguments.json().clone())));
        members
    }

    fn path(&self, scope: ScopeId) -> ScopePath {
        self.scopes.get(&scope).cloned().unwrap_or_else(ScopePath::root)
    }

    fn path_of(&self, task: TaskKey) -> ScopePath {
        self.rounds.path_of_task(&self.graph, task, self.path(task.scope))
    }

    fn scope_members(&self, scope: ScopeId) -> Members {
        let mut members = Vec::new();
        add_scope(self.path(scope), &mut members);
        members
    }

    fn cycle_members(&self, scope: ScopeId, entry: NodeIx) -> Members {
        let mut members = vec![("entry", Json::from(self.graph.node(entry).id.0.clone()))];
        add_scope(self.path_of(TaskKey { scope, node: entry }), &mut members);
        members
    }

    fn task(&self, key: TaskKey) -> Members {
        self.with(key, [])
    }

    fn with<const N: usize>(&self, key: TaskKey, more: [(&'static str, Json); N]) -> Members {
        let id = Json::from(self.graph.node(key.node).id.0.clone());
        let mut members = vec![("taskId", id.clone()), ("nodeId", id)];
        add_scope(self.path_of(key), &mut members);
        if let Some(attempts) = self.tasks.get(&key) {
            members.push(("attempt", Json::from(attempts.begun)));
        }
        members.extend(more);
        members
    }

    fn ended<const N: usize>(&mut self, key: TaskKey, ts: u64, more: [(&'static str, Json); N]) -> Members {
        let mut members = self.with(key, more);
        if let Some(attempts) = self.remove_attempts(key) {
            members.push(("durationMs", Json::from(ts.saturating_sub(attempts.since))));
        }
        members
    }
}
