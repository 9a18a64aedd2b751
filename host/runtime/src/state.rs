//! The state of a run: everything that its facts so far amount to.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::{Failure, FanOut, Json, Pause, ScopePath, Value};
use flowcell_flow::graph::{BodyIx, EdgeIx, FlowPolicy, Graph, NodeIx};

use crate::{
    agents::Agents,
    call_log::CallLog,
    fact::{BlockReason, CancelReason, ParkReason, RunEnd, ScopeId, TaskKey, Write},
    limits::{MAX_IDLE_RESUMES, MAX_LONE_DEATHS, MAX_RUN_BYTES, MAX_RUN_EVENTS},
};

/// The deaths of the process of a run that has not moved on meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deaths {
    /// How often the run was resumed by itself while it had something to do.
    pub(crate) resumed: u32,
    /// Those at which nothing else was driven in the process.
    pub(crate) lone: u32,
    /// How often the run was resumed alone.
    pub(crate) tried: u32,
    /// Nothing else is driven in the process now.
    pub(crate) alone: bool,
}

/// A run, folded from its facts by [`RunState::apply`].
#[derive(Clone, Debug)]
pub struct RunState {
    /// The flow that the run has pinned.
    pub graph: Arc<Graph>,
    /// The flow's policies, as the caller changed them.
    pub policy: FlowPolicy,
    /// `{ "input": … }`, the root `flow` of expressions.
    pub(crate) flow_root: Json,
    /// From which attempts derive their random streams.
    pub(crate) seed: u64,
    /// When the run is over at the latest.
    pub(crate) deadline: Option<u64>,
    /// When it began and when it ended, in milliseconds since 1970.
    pub(crate) began: u64,
    pub(crate) ended: Option<u64>,
    /// Live scopes.
    pub(crate) scopes: HashMap<ScopeId, Scope>,
    /// The next scope's id.
    pub(crate) next_scope: u32,
    /// Tasks that wait for a permit, in order.
    pub(crate) queue: VecDeque<TaskKey>,
    /// Attempts that hold a permit.
    pub(crate) running: u32,
    /// Paused tasks, for events and for looking questions up.
    pub(crate) paused: BTreeSet<TaskKey>,
    /// Named events that nobody waited for, oldest first.
    pub(crate) kept: VecDeque<(Box<str>, Value)>,
    /// Why the run is being cancelled.
    pub(crate) cancel: Option<CancelReason>,
    /// The deaths of its process since it last moved on.
    pub(crate) deaths: Deaths,
    /// The store was brought back from an older copy, and nobody has resumed the run since.
    pub(crate) restored: bool,
    /// How the run ended.
    pub(crate) end: Option<RunEnd>,
    /// What happened so far, counted.
    pub(crate) events: u64,
    /// How many events the run may have.
    pub(crate) max_events: u64,
    /// How large they are together.
    pub(crate) bytes: u64,
    /// How large they may be together.
    pub(crate) max_bytes: u64,
    /// The limit is what other runs have left of a budget that they share.
    pub(crate) shares_budget: bool,
}

/// One pass through a body, or the flow itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scope {
    pub(crate) body: BodyIx,
    pub(crate) owner: Option<TaskKey>,
    pub(crate) index: u32,
    pub(crate) path: ScopePath,
    /// The owner's variables, an object.
    pub(crate) variables: Json,
    pub(crate) tasks: Vec<Task>,
    pub(crate) edges: Vec<EdgeState>,
    /// Tasks that are ready, running, paused, delayed or closing.
    pub(crate) active: u32,
    /// Tasks that are waiting.
    pub(crate) waiting: u32,
    /// The first failure that nothing handles.
    pub(crate) failure: Option<(TaskKey, Failure)>,
    /// Nothing starts here any more.
    pub(crate) closing: bool,
}

/// One execution of a node in one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    /// Incoming edges that are not settled.
    pub(crate) pending: u32,
    /// Incoming edges that fired.
    pub(crate) fired: u32,
    /// The edge that fired first.
    pub(crate) opened: Option<EdgeIx>,
    /// Attempts begun.
    pub(crate) attempt: u32,
    /// Resumes of this attempt.
    pub(crate) resumes: u32,
    /// Running time of this attempt before it was last resumed.
    pub(crate) ran_ms: u64,
    /// When it last began to run, for its timers.
    pub(crate) since: u64,
    /// The time that its attempt sees, the same however often it is begun again.
    pub(crate) clock: u64,
    pub(crate) deadline: Option<u64>,
    pub(crate) captured: Option<Arc<Captured>>,
    /// The recorded output, of whatever end.
    pub(crate) output: Option<Json>,
    /// The input of a failed task, for its error edges.
    pub(crate) failed_input: Option<Json>,
    /// What only tasks that pause or retry have.
    pub(crate) rest: Option<Box<TaskRest>>,
    /// Its calls that leave the host.
    pub(crate) calls: Option<Box<CallLog>>,
    /// How its last question ended: with an answer, or without.
    pub(crate) answered: Option<bool>,
    /// It waits for people alone.
    pub(crate) idle: bool,
    /// When the wait is over that its attempt was last in.
    pub(crate) wait_until: Option<u64>,
    /// Its agent runs.
    pub(crate) agents: Option<Box<Agents>>,
    /// Why it cannot go on, and from which phase.
    pub(crate) blocked: Option<Box<(BlockReason, Phase)>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskRest {
    pub(crate) pause: Option<Pause>,
    /// Passes of its body that are live.
    pub(crate) passes: BTreeSet<ScopeId>,
    /// Passes begun in this attempt.
    pub(crate) passes_begun: u32,
    /// The previous pass's outcome.
    pub(crate) last: Json,
    /// The variables of the latest pass.
    pub(crate) variables: Json,
    pub(crate) each: Option<Each>,
    /// The outcomes of the passes of this attempt, in order, if the node collects them.
    pub(crate) collected: Vec<Json>,
    /// What the component left when it paused.
    pub(crate) state: Option<Value>,
    /// The state that it had written by then.
    pub(crate) writes: Box<[Write]>,
    /// What woke it.
    pub(crate) woken: Option<Value>,
    /// When the delay before the next attempt is over.
    pub(crate) retry_due: u64,
    /// What a closing task ends with; none: cancelled.
    pub(crate) closing: Option<Failure>,
}

/// A fan-out under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Each {
    pub(crate) fan_out: FanOut,
    /// The next item to begin with.
    pub(crate) next: u32,
    pub(crate) done: u32,
    pub(crate) results: Vec<Option<Json>>,
    /// The failure that stopped it.
    pub(crate) failure: Option<Failure>,
}

/// What a task's input and config name, as it was when the task became ready. In a strict flow it may be missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Captured {
    pub(crate) input: Box<[Option<Json>]>,
    pub(crate) config: Box<[Option<Json>]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Waiting,
    /// In the queue, to begin an attempt.
    Ready,
    /// In the queue, to go on with an attempt.
    Woken,
    Running,
    Paused,
    /// Between two attempts.
    Delayed,
    /// Until a person has decided how to go on.
    Blocked,
    /// In the queue, to go through its attempt again.
    Resolved,
    /// Over, but passes, a child or calls have to end first.
    Closing,
    Succeeded,
    Failed,
    Skipped,
    Cancelled,
}

impl Phase {
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed | Phase::Skipped | Phase::Cancelled)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EdgeState {
    #[default]
    Pending,
    Fired,
    Skipped,
}

impl RunState {
    /// A run of which nothing has happened yet.
    pub fn new(graph: Arc<Graph>, policy: FlowPolicy) -> RunState {
        RunState {
            graph,
            policy,
            flow_root: Json::Null,
            seed: 0,
            deadline: None,
            began: 0,
            ended: None,
            scopes: HashMap::new(),
            next_scope: 0,
            queue: VecDeque::new(),
            running: 0,
            paused: BTreeSet::new(),
            kept: VecDeque::new(),
            cancel: None,
            deaths: Deaths::default(),
            restored: false,
            end: None,
            events: 0,
            max_events: MAX_RUN_EVENTS,
            bytes: 0,
            max_bytes: MAX_RUN_BYTES,
            shares_budget: false,
        }
    }

    /// The whole input of the run, once it has begun.
    pub(crate) fn input(&self) -> Option<&Json> {
        self.flow_root.get("input")
    }

    /// How long the run took, in milliseconds, once it has ended: what its last event says.
    pub(crate) fn took(&self) -> Option<u64> {
        self.ended.map(|ended| ended.saturating_sub(self.began))
    }

    /// The outputs of every node of the flow itself, by id.
    pub(crate) fn recorded_outputs(&self) -> Json {
        let graph = &self.graph;
        let Some(scope) = self.scopes.get(&ScopeId::ROOT) else { return Json::Null };
        let nodes = graph.body(scope.body).nodes.iter().zip(&scope.tasks);
        let recorded = nodes.filter_map(|(node, task)| Some((graph.node(*node).id.0.clone(), task.output.clone()?)));
        Json::object(recorded)
    }

    /// Whether it has more, or larger, events than a run may have.
    pub(crate) fn is_too_large(&self) -> bool {
        self.events > self.max_events || self.bytes > self.max_bytes
    }

    /// How the run ended, if it did.
    pub fn end(&self) -> Option<&RunEnd> {
        self.end.as_ref()
    }

    pub(crate) fn scope(&self, scope: ScopeId) -> &Scope {
        &self.scopes[&scope]
    }

    /// The scope, if it is live and was begun.
    pub(crate) fn find(&self, key: TaskKey) -> Option<&Task> {
        let slot = self.graph.node(key.node).slot as usize;
        self.scopes.get(&key.scope).and_then(|scope| scope.tasks.get(slot))
    }

    pub(crate) fn task(&self, key: TaskKey) -> &Task {
        &self.scopes[&key.scope].tasks[self.graph.node(key.node).slot as usize]
    }

    /// Whether the task still runs this attempt; what a withdrawn attempt answers is of no meaning.
    pub(crate) fn is_running(&self, key: TaskKey, attempt: (u32, u32)) -> bool {
        let running = |task: &Task| task.phase == Phase::Running && (task.attempt, task.resumes) == attempt;
        self.find(key).is_some_and(running)
    }

    /// Why nobody drives it by itself any more: its process died while it was alone there, or its past is not known.
    pub(crate) fn held(&self) -> Option<ParkReason> {
        match self.restored {
            true => Some(ParkReason::Restored),
            false => (self.deaths.lone >= MAX_LONE_DEATHS).then_some(ParkReason::CrashLoop),
        }
    }

    /// Whether its process has died so often, without the run moving on, that it is tried alone.
    pub(crate) fn is_suspect(&self) -> bool {
        self.deaths.resumed >= MAX_IDLE_RESUMES
    }

    /// Whether nothing else is driven in its process, as far as the run knows.
    pub(crate) fn is_alone(&self) -> bool {
        self.deaths.alone
    }

    /// The address of a task: `approve`, or `process[3].approve`.
    pub fn address(&self, key: TaskKey) -> String {
        self.scope(key.scope).path.address(&self.graph.node(key.node).id)
    }

    /// The task at an address.
    pub fn task_at(&self, address: &str) -> Option<TaskKey> {
        let (path, node) = address.rsplit_once('.').unwrap_or(("", address));
        let (scope_id, scope) = self.scopes.iter().find(|(_, scope)| scope.path.as_str() == path)?;
        let nodes = &self.graph.body(scope.body).nodes;
        let node = nodes.iter().find(|ix| self.graph.node(**ix).id.as_str() == node)?;
        Some(TaskKey { scope: *scope_id, node: *node })
    }

    /// The live pass through the body that `node` is in, seen from `scope` outwards.
    pub(crate) fn scope_of(&self, scope: ScopeId, node: NodeIx) -> Option<ScopeId> {
        let body = self.graph.node(node).body_of;
        let mut at = scope;
        loop {
            let current = self.scopes.get(&at)?;
            if current.body == body {
                return Some(at);
            }
            at = current.owner?.scope;
        }
    }

    /// The pass, seen from `scope` outwards, through the body that `owner` owns.
    pub(crate) fn pass_of(&self, scope: ScopeId, owner: NodeIx) -> Option<&Scope> {
        let mut at = scope;
        loop {
            let current = self.scopes.get(&at)?;
            let current_owner = current.owner?;
            if current_owner.node == owner {
                return Some(current);
            }
            at = current_owner.scope;
        }
    }
}

/// Two states are equal if they are of the same graph and everything that happened amounts to the same.
impl PartialEq for RunState {
    fn eq(&self, other: &RunState) -> bool {
        let Self {
            graph,
            policy,
            flow_root,
            seed,
            deadline,
            began,
            ended,
            scopes,
            next_scope,
            queue,
            running,
            paused,
            kept,
            cancel,
            deaths,
            restored,
            end,
            events,
            max_events: _,
            bytes,
            max_bytes: _,
            shares_budget: _,
        } = self;
        Arc::ptr_eq(graph, &other.graph)
            && (policy, flow_root, seed, deadline) == (&other.policy, &other.flow_root, &other.seed, &other.deadline)
            && (began, ended) == (&other.began, &other.ended)
            && (scopes, next_scope, queue) == (&other.scopes, &other.next_scope, &other.queue)
            && (running, paused, kept) == (&other.running, &other.paused, &other.kept)
            && (cancel, deaths, end) == (&other.cancel, &other.deaths, &other.end)
            && *restored == other.restored
            && (events, bytes) == (&other.events, &other.bytes)
    }
}

impl Task {
    /// Whether calls of it are under way.
    pub(crate) fn calls_out(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.under_way().next().is_some())
    }

    pub(crate) fn calls(&mut self) -> &mut CallLog {
        self.calls.get_or_insert_default()
    }

    /// It waits for people alone from now on.
    pub(crate) fn rest_from(&mut self, ts: u64, due: Option<u64>) {
        self.ran_ms += ts.saturating_sub(self.since);
        (self.idle, self.wait_until) = (true, due);
    }

    pub(crate) fn agents(&mut self) -> &mut Agents {
        self.agents.get_or_insert_default()
    }

    pub(crate) fn rest(&mut self) -> &mut TaskRest {
        self.rest.get_or_insert_default()
    }
}
