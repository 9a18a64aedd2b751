//! The state of a run, which results from its facts so far.

mod fan_out;
mod round;
mod task;
mod undo;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::{Failure, Json, ScopePath, Value, Wake};
use flowcell_flow::graph::{BodyIx, CycleIx, EdgeIx, FlowPolicy, Graph, NodeIx};

pub(crate) use self::{
    fan_out::Each,
    round::{Left, Round, Seen},
    task::{Captured, LastQuestion, Phase, Task},
    undo::{Undoable, Undoing, Undos},
};
use crate::{
    call_log::Reply,
    fact::{AboutRun, CancelReason, ParkReason, RunEnd, ScopeId, TaskKey},
    limits::{MAX_IDLE_RESUMES, MAX_LONE_DEATHS, MAX_RUN_BYTES, MAX_RUN_EVENTS},
    quota::QuotaHold,
};

/// The mark before the number of undos in the idempotency keys of a task that was undone. No id contains it.
const UNDONE_MARK: char = '~';

/// The deaths of the run's process since the last progress of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deaths {
    /// Number of automatic resumptions of the run while it had work to do.
    pub(crate) resumed: u32,
    /// Number of the resumptions in `resumed` after the death of a process that drove no other run.
    pub(crate) lone: u32,
    /// Number of resumptions in a process without other runs, including those of an idle run.
    pub(crate) tried: u32,
    /// True if the run had work to do at its last resumption, and its process has driven no other run since.
    pub(crate) alone: bool,
}

/// A run, folded from its facts by [`RunState::apply`].
#[derive(Clone, Debug)]
pub struct RunState {
    /// The flow in the version that the run uses.
    pub graph: Arc<Graph>,
    /// The graphs of the versions that the run moves to with later facts.
    pub(crate) later: VecDeque<Arc<Graph>>,
    /// The flow's policy with the overrides from the options of the run.
    pub policy: FlowPolicy,
    /// The root `flow` of expressions: `{ "input": …, "name": …, "version": … }`.
    pub(crate) flow_root: Json,
    /// The facts about the run that expressions can read. `None`: an older version has begun the run.
    pub(crate) about: Option<AboutRun>,
    /// True if cycles of edges repeat their nodes. False: the flow has none, or an older version has begun the run.
    pub(crate) loops: bool,
    /// True if a node behind nested cycles reads the pass of each one that was left.
    pub(crate) nested: bool,
    /// The seed of the attempts' random streams.
    pub(crate) seed: u64,
    /// True if the attempts' seeds do not show that of the run. False: an older version has begun the run.
    pub(crate) hides_seed: bool,
    /// The time at which the run ends at the latest (milliseconds since 1970).
    pub(crate) deadline: Option<u64>,
    /// The time at which the run began, in milliseconds since 1970.
    pub(crate) began: u64,
    /// The time at which the run ended, in milliseconds since 1970.
    pub(crate) ended: Option<u64>,
    /// The live scopes by their ids.
    pub(crate) scopes: HashMap<ScopeId, Scope>,
    /// The id of the scope that begins next.
    pub(crate) next_scope: u32,
    /// The first scope that began after the run moved to another version of its flow. 0: the run has not moved.
    pub(crate) moved_at: u32,
    /// The tasks of nodes that had begun and that a move removed, with the attempts and calls only. A later version may
    /// have such a node again.
    pub(crate) gone: BTreeMap<NodeIx, Task>,
    /// The replies of `once` calls that tasks in bodies have made, by the owner of the body. In a later attempt of the
    /// owner the same calls are answered with them. If owners are inside each other, the outermost one counts that has
    /// retries.
    pub(crate) once_replies: HashMap<TaskKey, HashMap<Arc<str>, Reply>>,
    /// How often the tasks at an address were undone.
    pub(crate) undone: HashMap<String, u64>,
    /// Tasks that wait for a permit, in order.
    pub(crate) queue: VecDeque<TaskKey>,
    /// Number of attempts that hold a permit.
    pub(crate) running: u32,
    /// Paused tasks, to find those that wait for an event or ask a question.
    pub(crate) paused: BTreeSet<TaskKey>,
    /// Named events that no task waited for, oldest first.
    pub(crate) kept: VecDeque<(Box<str>, Value)>,
    /// The reason why the run is being cancelled. `None`: it is not.
    pub(crate) cancel: Option<CancelReason>,
    /// The deaths of the run's process since its last progress.
    pub(crate) deaths: Deaths,
    /// True if the store was restored from an older copy and the run was not resumed by hand since.
    pub(crate) restored: bool,
    /// The quota that is used up, since the run began no further attempt because of it.
    pub(crate) held_by: Option<QuotaHold>,
    /// The quota for which the run is parked: its own, or that of a child run.
    pub(crate) parked_for: Option<QuotaHold>,
    /// The quota that is used up at present, as the driver has asked before this decision. It follows from no fact.
    pub(crate) quota_now: Option<QuotaHold>,
    /// The outcome of the run, after it has ended.
    pub(crate) end: Option<RunEnd>,
    /// True if the run has ended with a failure that may name places inside the run.
    pub(crate) end_names_places: bool,
    /// Number of events so far.
    pub(crate) events: u64,
    /// Maximum number of events.
    pub(crate) max_events: u64,
    /// Bytes of the events so far.
    pub(crate) bytes: u64,
    /// Maximum bytes of the events.
    pub(crate) max_bytes: u64,
    /// True if `max_bytes` depends on a memory budget that several runs share.
    pub(crate) shares_budget: bool,
}

/// One pass through a body, or the flow itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scope {
    pub(crate) body: BodyIx,
    pub(crate) owner: Option<TaskKey>,
    pub(crate) index: u32,
    pub(crate) path: ScopePath,
    /// The owner's variables, as an object.
    pub(crate) variables: Json,
    pub(crate) tasks: Vec<Task>,
    pub(crate) edges: Vec<EdgeState>,
    /// The passes of the cycles of edges, in the order of [`flowcell_flow::graph::Body::cycles`].
    pub(crate) rounds: Vec<Round>,
    /// The edges that left cycles in passes before the last one, in the order of these passes.
    pub(crate) left: Vec<Left>,
    /// Number of tasks that neither wait for their join nor have ended.
    pub(crate) active: u32,
    /// Number of tasks that wait for their join.
    pub(crate) waiting: u32,
    /// The first failure that nothing handles.
    pub(crate) failure: Option<(TaskKey, Failure)>,
    /// True if no further task starts in this scope.
    pub(crate) closing: bool,
    /// True if an earlier attempt of an owner may have had a pass at the same address.
    pub(crate) renewed: bool,
    /// The succeeded tasks, also of passes in the scope that have ended, that a failure of the scope undoes. In order,
    /// once the scope undoes them.
    pub(crate) undoable: Vec<Undoable>,
    /// The undos of the scope, after it has begun to undo.
    pub(crate) undos: Option<Box<Undos>>,
    /// For the scope of an undo, which has only one task: what it undoes.
    pub(crate) undoing: Option<Box<Undoing>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EdgeState {
    #[default]
    Pending,
    Fired,
    Skipped,
}

impl RunState {
    /// Returns the state of a run before its first fact.
    pub fn new(graph: Arc<Graph>, policy: FlowPolicy) -> RunState {
        RunState {
            graph,
            later: VecDeque::new(),
            policy,
            flow_root: Json::Null,
            about: None,
            loops: false,
            nested: false,
            seed: 0,
            hides_seed: false,
            deadline: None,
            began: 0,
            ended: None,
            scopes: HashMap::new(),
            next_scope: 0,
            moved_at: 0,
            gone: BTreeMap::new(),
            once_replies: HashMap::new(),
            undone: HashMap::new(),
            queue: VecDeque::new(),
            running: 0,
            paused: BTreeSet::new(),
            kept: VecDeque::new(),
            cancel: None,
            deaths: Deaths::default(),
            restored: false,
            held_by: None,
            parked_for: None,
            quota_now: None,
            end: None,
            end_names_places: false,
            events: 0,
            max_events: MAX_RUN_EVENTS,
            bytes: 0,
            max_bytes: MAX_RUN_BYTES,
            shares_budget: false,
        }
    }

    pub(crate) fn set_input(&mut self, input: &Json) {
        // Runs that an older version has begun keep the values that they had.
        let about = self.about.iter().flat_map(|about| {
            let version = about.version.map_or(Json::Null, Json::from);
            [("name", Json::from(&*self.graph.name)), ("version", version)]
        });
        self.flow_root = Json::object([("input", input.clone())].into_iter().chain(about));
    }

    /// Returns the whole input of the run, after it has begun.
    pub(crate) fn input(&self) -> Option<&Json> {
        self.flow_root.get("input")
    }

    /// Returns the duration of the run in milliseconds, after it has ended. The last event shows the same duration.
    pub(crate) fn duration_ms(&self) -> Option<u64> {
        self.ended.map(|ended| ended.saturating_sub(self.began))
    }

    /// Returns the outputs of every node of the flow itself, by the names of the nodes in the present version.
    pub(crate) fn recorded_outputs(&self) -> Json {
        let graph = &self.graph;
        let Some(scope) = self.scopes.get(&ScopeId::ROOT) else { return Json::Null };
        let nodes = graph.body(scope.body).nodes.iter().zip(&scope.tasks);
        let recorded = nodes.filter_map(|(node, task)| Some((graph.name_of(*node).0.clone(), task.output.clone()?)));
        Json::object(recorded)
    }

    /// Returns true if the run's events exceed the maximum number or bytes.
    pub(crate) fn is_too_large(&self) -> bool {
        self.events > self.max_events || self.bytes > self.max_bytes
    }

    /// Returns the outcome of the run, if it has ended.
    pub fn end(&self) -> Option<&RunEnd> {
        self.end.as_ref()
    }

    pub(crate) fn scope(&self, scope: ScopeId) -> &Scope {
        &self.scopes[&scope]
    }

    /// Returns the task, if its scope is live and was begun.
    pub(crate) fn find(&self, key: TaskKey) -> Option<&Task> {
        let scope = self.scopes.get(&key.scope)?;
        scope.tasks.get(scope.slot(&self.graph, key.node))
    }

    pub(crate) fn task(&self, key: TaskKey) -> &Task {
        let scope = &self.scopes[&key.scope];
        &scope.tasks[scope.slot(&self.graph, key.node)]
    }

    /// Returns true if the task still runs this attempt (its number and its number of resumes). The driver ignores
    /// answers of a withdrawn attempt.
    pub(crate) fn is_running(&self, key: TaskKey, attempt: (u32, u32)) -> bool {
        let running = |task: &Task| task.phase == Phase::Running && (task.attempt, task.resumes) == attempt;
        self.find(key).is_some_and(running)
    }

    /// Returns true if the task has called a child that has not ended.
    pub(crate) fn waits_for_child(&self, key: TaskKey) -> bool {
        let pause = self.find(key).and_then(|task| task.details.as_ref()).and_then(|details| details.pause.as_ref());
        pause.is_some_and(|pause| matches!(pause.until.as_slice(), [Wake::Flow(_)]))
    }

    /// Returns the reason why no driver resumes the run automatically: processes that drove only this run died too
    /// often, or the store was restored from an older copy. `None`: a driver may resume it.
    pub(crate) fn park_reason(&self) -> Option<ParkReason> {
        match self.restored {
            true => Some(ParkReason::Restored),
            false => (self.deaths.lone >= MAX_LONE_DEATHS).then_some(ParkReason::CrashLoop),
        }
    }

    /// Returns the quota because of which tasks of the run wait. `None`: no task waits because of a quota.
    pub(crate) fn paused_by(&self) -> Option<&QuotaHold> {
        self.held_by.as_ref().filter(|_| !self.queue.is_empty())
    }

    /// Returns true if the run is a suspect: its process has died so often, without progress of the run, that the run
    /// may be the cause. A suspect has to be driven alone.
    pub(crate) fn is_suspect(&self) -> bool {
        self.deaths.resumed >= MAX_IDLE_RESUMES
    }

    /// Returns true if the run's process drives no other run, as far as the run knows.
    pub(crate) fn is_alone(&self) -> bool {
        self.deaths.alone
    }

    /// Returns the innermost cycle of a node whose cycles repeat their nodes.
    pub(crate) fn cycle_of(&self, node: NodeIx) -> Option<CycleIx> {
        self.graph.node(node).cycle.filter(|_| self.loops)
    }

    /// Returns true if an edge begins another pass of its cycle. No task waits for such an edge.
    pub(crate) fn goes_back(&self, edge: EdgeIx) -> bool {
        self.loops && self.graph.edge(edge).goes_back
    }

    /// Returns true if a task is the entry of a cycle in another pass than the first one.
    pub(crate) fn begins_further_pass(&self, key: TaskKey) -> bool {
        let cycle = self.cycle_of(key.node).filter(|cycle| self.graph.cycle(*cycle).entry == key.node);
        cycle.is_some_and(|cycle| self.round(key.scope, cycle).pass > 0)
    }

    /// Returns the current pass of a cycle.
    pub(crate) fn round(&self, scope: ScopeId, cycle: CycleIx) -> &Round {
        &self.scope(scope).rounds[self.graph.cycle(cycle).slot as usize]
    }

    /// Returns true if the task may have an output that the run keeps from the run that it repeats: the task is in the flow
    /// itself, and all of its cycles are in their first pass.
    pub(crate) fn may_keep_output(&self, key: TaskKey) -> bool {
        key.scope == ScopeId::ROOT
            && self.graph.cycles_from(self.cycle_of(key.node)).all(|cycle| self.round(key.scope, cycle).pass == 0)
    }

    /// Returns the passes that contain a task: those of bodies, and those of cycles by their entries, as in
    /// `process[3].coder[1]`.
    pub(crate) fn path_of(&self, key: TaskKey) -> ScopePath {
        let path = self.scope(key.scope).path.clone();
        let pass = |cycle| self.round(key.scope, cycle).pass;
        with_cycles(path, &self.graph, self.cycle_of(key.node), pass)
    }

    /// Returns the address of a task: `approve`, or `process[3].approve`.
    pub fn address(&self, key: TaskKey) -> String {
        self.path_of(key).address(&self.graph.node(key.node).id)
    }

    /// Returns the task at an address. A task of an earlier pass of a cycle is not found.
    pub fn task_at(&self, address: &str) -> Option<TaskKey> {
        let (path, node) = address.rsplit_once('.').unwrap_or(("", address));
        // The scope of an undo has the path of the pass whose task it undoes.
        let fits = |scope: &Scope| match self.loops {
            true => path.starts_with(scope.path.as_str()),
            false => scope.path.as_str() == path,
        };
        self.scopes.iter().filter(|(_, scope)| fits(scope)).find_map(|(scope, found)| {
            let nodes = found.nodes(&self.graph);
            let node = *nodes.iter().find(|ix| self.graph.node(**ix).id.as_str() == node)?;
            let key = TaskKey { scope: *scope, node };
            (self.path_of(key).as_str() == path).then_some(key)
        })
    }

    /// Returns the live pass through the body that contains `node`, searching from `scope` outwards.
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

    /// Returns the name of a task in the idempotency keys of its calls: its address, and how often the task, or a task
    /// around it, was undone before. After an undo the same call is another one. The task of an undo has the number of the
    /// task that it undoes.
    pub(crate) fn key_address(&self, key: TaskKey) -> String {
        let address = self.address(key);
        if self.undone.is_empty() {
            return address;
        }
        let undoing = self.scope(key.scope).undoing.as_ref();
        let counted = undoing.map_or(&address, |undoing| &undoing.undoable.address);
        let ends = counted.match_indices('[').map(|(at, _)| at).chain([counted.len()]);
        match ends.filter_map(|end| self.undone.get(&counted[..end])).sum::<u64>() {
            0 => address,
            times => format!("{address}{UNDONE_MARK}{times}"),
        }
    }

    /// Returns true if the run has ended but for the undos of its tasks.
    pub(crate) fn is_undoing(&self) -> bool {
        self.scopes.get(&ScopeId::ROOT).is_some_and(|scope| scope.undos.is_some())
    }

    /// Returns the outermost owner around a scope whose policy has retries.
    pub(crate) fn retried_owner(&self, scope: ScopeId) -> Option<TaskKey> {
        let owners = std::iter::successors(self.scope(scope).owner, |owner| self.scope(owner.scope).owner);
        owners.filter(|owner| self.graph.node(owner.node).policy.retry.may_repeat()).last()
    }

    /// Returns the reply of a `once` call that the same task has made in an earlier attempt of an owner around it.
    pub(crate) fn once_reply(&self, task: TaskKey, key: &str) -> Option<&Reply> {
        self.once_replies.get(&self.retried_owner(task.scope)?)?.get(key)
    }

    /// Returns the pass through the body that `owner` owns, searching from `scope` outwards.
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

/// Adds the passes of a cycle and of those around it to the path of their scope.
pub(crate) fn with_cycles(
    path: ScopePath,
    graph: &Graph,
    innermost: Option<CycleIx>,
    pass: impl Fn(CycleIx) -> u32,
) -> ScopePath {
    let cycles: Vec<_> = graph.cycles_from(innermost).collect();
    cycles.into_iter().rev().fold(path, |path, cycle| {
        let entry = path.address(&graph.node(graph.cycle(cycle).entry).id);
        ScopePath::from(format!("{entry}[{}]", pass(cycle)))
    })
}

impl Scope {
    /// Returns the nodes of the scope's tasks, in the order of the tasks.
    pub(crate) fn nodes<'s>(&'s self, graph: &'s Graph) -> &'s [NodeIx] {
        match &self.undoing {
            Some(undoing) => std::slice::from_ref(&undoing.undoable.undo),
            None => &graph.body(self.body).nodes,
        }
    }

    /// Returns the index of a node's task.
    pub(crate) fn slot(&self, graph: &Graph, node: NodeIx) -> usize {
        let only = self.undoing.as_ref().filter(|undoing| undoing.undoable.undo == node);
        only.map_or(graph.node(node).slot as usize, |_| 0)
    }
}

/// Two states are equal if all their fields are equal. The limits of events and bytes do not count, nor does the answer of
/// the quotas.
impl PartialEq for RunState {
    fn eq(&self, other: &RunState) -> bool {
        let Self {
            graph,
            later,
            policy,
            flow_root,
            about,
            loops,
            nested,
            seed,
            hides_seed,
            deadline,
            began,
            ended,
            scopes,
            next_scope,
            moved_at,
            gone,
            once_replies,
            undone,
            queue,
            running,
            paused,
            kept,
            cancel,
            deaths,
            restored,
            held_by,
            parked_for,
            quota_now: _,
            end,
            end_names_places,
            events,
            max_events: _,
            bytes,
            max_bytes: _,
            shares_budget: _,
        } = self;
        Arc::ptr_eq(graph, &other.graph)
            && later.len() == other.later.len()
            && (policy, flow_root, seed, deadline) == (&other.policy, &other.flow_root, &other.seed, &other.deadline)
            && (about, began, ended) == (&other.about, &other.began, &other.ended)
            && (loops, nested, hides_seed) == (&other.loops, &other.nested, &other.hides_seed)
            && (scopes, next_scope, queue) == (&other.scopes, &other.next_scope, &other.queue)
            && (moved_at, gone) == (&other.moved_at, &other.gone)
            && (once_replies, undone) == (&other.once_replies, &other.undone)
            && (running, paused, kept) == (&other.running, &other.paused, &other.kept)
            && (cancel, deaths) == (&other.cancel, &other.deaths)
            && (end, end_names_places) == (&other.end, &other.end_names_places)
            && (restored, held_by, parked_for) == (&other.restored, &other.held_by, &other.parked_for)
            && (events, bytes) == (&other.events, &other.bytes)
    }
}
