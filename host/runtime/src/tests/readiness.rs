//! Random graphs with bodies and cycles. The deciders end every node as the naive reference does. Every journal folds
//! to the same state. The outstanding items are those that the facts have begun.

use std::{collections::BTreeSet, sync::Arc};

use flowcell_contract::{Json, Step, Value};
use flowcell_flow::graph::{FlowPolicy, Join, On, Reference};
use proptest::{prelude::*, test_runner::Config};

use super::{
    graphs::{Plan, Planned, PlannedBody, lower, perform, race},
    reference::{self, End},
    undos,
};
use crate::{
    command::RunCommand,
    decide::{Entropy, Input, decide},
    fact::{Fact, Resolution, RunEnd, ScopeId, TaskKey},
    outstanding::{Outstanding, outstanding},
    state::{Phase, RunState},
};

/// Number of graphs that a test run compares, times `FLOWCELL_TEST_SCALE`.
const GRAPHS: u32 = 10_000;

pub(crate) fn scale() -> u32 {
    std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

fn join() -> impl Strategy<Value = Join> {
    prop_oneof![4 => Just(Join::Settled), 2 => Just(Join::All), 2 => Just(Join::Any)]
}

fn on() -> impl Strategy<Value = On> {
    prop_oneof![6 => Just(On::Success), 1 => Just(On::Error), 1 => Just(On::End)]
}

fn leaf() -> impl Strategy<Value = Planned> {
    let plan = prop_oneof![
        8 => Just(Plan::Done),
        2 => Just(Plan::Fail),
        1 => Just(Plan::FailTimes(2)),
        1 => Just(Plan::Checkpoint),
        1 => Just(Plan::After(50)),
    ];
    (plan, join(), prop::bool::weighted(0.2)).prop_map(|(plan, join, continue_on_error)| Planned {
        join,
        continue_on_error,
        ..Planned::new(plan)
    })
}

fn owner(body: BoxedStrategy<PlannedBody>) -> impl Strategy<Value = Planned> {
    let may_fail = prop_oneof![Just(0), Just(u32::MAX), 1..5u32];
    let each = (0..5u32, 1..4u32, may_fail).prop_map(|(items, concurrency, may_fail)| Plan::Each {
        items,
        concurrency,
        may_fail,
    });
    let plan = prop_oneof![each, (0..4u32).prop_map(Plan::Loop), (1..3u32).prop_map(Plan::Scope)];
    (plan, join(), body).prop_map(|(plan, join, body)| Planned { join, body: Some(body), ..Planned::new(plan) })
}

/// Generates a scope of a few nodes. Edges mostly lead forward, some back into an `any` join.
pub(super) fn scope(depth: u32) -> BoxedStrategy<PlannedBody> {
    let undos = prop::collection::vec((any::<prop::sample::Index>(), undo()), 0..3);
    (scope_with(depth, false), undos).prop_map(|(body, undos)| add_undos(body, undos)).boxed()
}

fn undo() -> impl Strategy<Value = Plan> {
    prop_oneof![
        6 => Just(Plan::Done),
        1 => Just(Plan::Fail),
        1 => Just(Plan::FailTimes(2)),
        1 => Just(Plan::Checkpoint),
        1 => Just(Plan::After(50)),
    ]
}

/// Adds nodes that undo others.
fn add_undos(mut body: PlannedBody, undos: Vec<(prop::sample::Index, Plan)>) -> PlannedBody {
    let count = body.nodes.len();
    for (node, plan) in undos {
        let node = node.index(count);
        if body.nodes[node].undo.is_none() {
            body = body.with_undo(node, plan);
        }
    }
    body
}

/// Generates a scope of a few nodes. If `loops` is true, edges lead back to any node, and some nodes fail in their first
/// passes.
pub(super) fn scope_with(depth: u32, loops: bool) -> BoxedStrategy<PlannedBody> {
    let leaf = move || (leaf(), 0..4u32).prop_map(move |(leaf, passes)| vary(leaf, passes, loops));
    let node = match depth {
        0 => leaf().boxed(),
        _ => prop_oneof![4 => leaf(), 1 => owner(scope_with(depth - 1, loops))].boxed(),
    };
    let nodes = prop::collection::vec(node, 1..7);
    let edges = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), on()), 0..10);
    (nodes, edges).prop_map(move |(nodes, lines)| connect(nodes, lines, loops)).boxed()
}

/// Lets some of the nodes that fail do so in their first passes only.
fn vary(leaf: Planned, passes: u32, loops: bool) -> Planned {
    match leaf.plan {
        Plan::Fail if loops && passes > 0 => Planned { plan: Plan::FailPasses(passes), ..leaf },
        _ => leaf,
    }
}

fn connect(
    nodes: Vec<Planned>,
    lines: Vec<(prop::sample::Index, prop::sample::Index, On)>,
    loops: bool,
) -> PlannedBody {
    let mut body = PlannedBody { nodes, ..PlannedBody::default() };
    let mut seen = BTreeSet::new();
    for (from, to, on) in lines {
        let (from, to) = (from.index(body.nodes.len()), to.index(body.nodes.len()));
        let back = to <= from;
        if !seen.insert((from, to)) || (back && !loops && body.nodes[to].join != Join::Any) {
            continue;
        }
        // The checker reports `continueOnError` together with an error edge.
        let on = if body.nodes[from].continue_on_error && on == On::Error { On::Success } else { on };
        body.edges.push((from, to, on));
    }
    body
}

pub(super) struct Counter(pub(super) u64);

impl Entropy for Counter {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }
}

/// A run whose attempts are answered, and whose timers fire, in an order that the test chooses.
pub(super) struct Bench {
    pub(super) state: RunState,
    /// The state folded from the facts alone, beside the deciders.
    folded: RunState,
    plans: Vec<Plan>,
    now: u64,
    order: Counter,
    begun: BTreeSet<(TaskKey, u32, u32)>,
    /// The ends of the tasks of the flow itself.
    ends: Vec<Option<Phase>>,
    /// The number of times that each node of the flow itself became ready.
    pub(super) runs: Vec<u32>,
    /// The outputs that the nodes of the flow itself have read each time that they became ready, by the node and the
    /// address of the reader, and by the node that was read.
    pub(super) reads: Vec<(usize, String, usize, Json)>,
    /// True if each output is the address of its task.
    pub(super) tells_addresses: bool,
    facts: Vec<Fact>,
}

impl Bench {
    pub(super) fn new(flow: &PlannedBody, policy: FlowPolicy, seed: u64) -> Bench {
        let scripted = lower(flow, policy.clone());
        let graph = Arc::new(scripted.graph);
        let state = RunState::new(graph.clone(), policy.clone());
        let folded = RunState::new(graph, policy);
        let ends = (0..flow.nodes.len()).map(|node| flow.undo_of(node).map(|_| Phase::Skipped)).collect();
        let (runs, begun, facts) = (vec![0; flow.nodes.len()], BTreeSet::new(), Vec::new());
        Bench {
            state,
            folded,
            plans: scripted.plans,
            now: 1,
            order: Counter(seed),
            begun,
            ends,
            runs,
            facts,
            reads: Vec::new(),
            tells_addresses: false,
        }
    }

    /// Returns the ends of the nodes of the flow itself.
    pub(super) fn ends(&self) -> Vec<End> {
        let end = |phase: &Option<Phase>| match phase {
            Some(Phase::Succeeded) => End::Succeeded,
            Some(Phase::Failed) => End::Failed,
            Some(Phase::Skipped) => End::Skipped,
            other => panic!("a node ended as {other:?}"),
        };
        self.ends.iter().map(end).collect()
    }

    fn bring(&mut self, input: Input) {
        let facts = decide(&mut self.state, input, self.now, &mut self.order).unwrap();
        for fact in &facts {
            self.observe(fact);
            self.folded.apply(fact, self.now);
            self.observe_reads(fact);
        }
        self.facts.extend(facts);
        assert_eq!(self.state, self.folded, "the facts fold to another state");
        self.check_outstanding();
    }

    /// Records the beginnings and ends in a fact, without reading the state.
    fn observe(&mut self, fact: &Fact) {
        let ended = match fact {
            Fact::AttemptStarted { task } => {
                let attempt = self.begun.iter().filter(|(key, ..)| key == task).count();
                assert_eq!(attempt, 0, "two attempts of one task at once");
                let task_state = self.folded.find(*task).unwrap();
                self.begun.insert((*task, task_state.attempt + 1, 0));
                None
            }
            Fact::TaskResumed { task } => {
                let task_state = self.folded.find(*task).unwrap();
                self.begun.insert((*task, task_state.attempt, task_state.resumes + 1));
                None
            }
            Fact::TaskReady { task, .. } if task.scope == ScopeId::ROOT => {
                self.runs[task.node.0 as usize] += 1;
                None
            }
            Fact::CyclePassStarted { scope: ScopeId::ROOT, entry, .. } => {
                let graph = &self.folded.graph;
                let cycle = graph.cycle(graph.node(*entry).cycle.unwrap());
                cycle.nodes.iter().for_each(|node| self.ends[node.0 as usize] = None);
                None
            }
            Fact::TaskPaused { task, .. } | Fact::TaskRetrying { task, .. } | Fact::TaskBlocked { task, .. } => {
                Some((*task, None))
            }
            Fact::TaskSucceeded { task, .. } => Some((*task, Some(Phase::Succeeded))),
            Fact::TaskFailed { task, .. } => Some((*task, Some(Phase::Failed))),
            Fact::TaskCancelled { task, .. } => Some((*task, Some(Phase::Cancelled))),
            Fact::TaskSkipped { task, .. } => Some((*task, Some(Phase::Skipped))),
            _ => None,
        };
        let Some((task, phase)) = ended else { return };
        self.begun.retain(|(key, ..)| *key != task);
        if let Some(phase) = phase.filter(|_| task.scope == ScopeId::ROOT) {
            let before = self.ends[task.node.0 as usize].replace(phase);
            assert_eq!(before, None, "a task ended twice");
        }
    }

    /// Records the outputs that a task has read, after its fact has been folded.
    fn observe_reads(&mut self, fact: &Fact) {
        let Fact::TaskReady { task, .. } = fact else { return };
        let reader = task.node.0 as usize;
        let references = &self.folded.graph.node(task.node).input.references;
        let captured = self.folded.find(*task).unwrap().captured.as_deref();
        let values = captured.map_or(&[][..], |captured| &captured.input);
        for (reference, value) in references.iter().zip(values).filter(|_| task.scope == ScopeId::ROOT) {
            if let Reference::Node(source) = reference {
                let value = value.clone().unwrap_or_default();
                self.reads.push((reader, self.folded.address(*task), source.node.0 as usize, value));
            }
        }
    }

    fn check_outstanding(&self) {
        let attempts = outstanding(&self.state).into_iter().filter_map(|outstanding| match outstanding {
            Outstanding::Attempt { task, attempt, resumes } => Some((task, attempt, resumes)),
            _ => None,
        });
        assert_eq!(attempts.collect::<BTreeSet<_>>(), self.begun, "outstanding attempts are not the live ones");
        assert!(self.begun.len() <= self.state.policy.max_concurrency as usize, "more attempts than permits");
    }

    /// Answers attempts and lets time pass, in random order, until the run has ended.
    pub(super) fn run(&mut self) {
        self.bring(Input::Start { input: Json::Null, seed: 7, about: None });
        self.finish();
    }

    fn finish(&mut self) {
        for _ in 0..100_000 {
            if self.state.end().is_some() {
                return undos::check(&self.state.graph, &self.facts);
            }
            let mut open: Vec<_> = outstanding(&self.state);
            open.retain(|outstanding| {
                let wanted = matches!(outstanding, Outstanding::Attempt { .. } | Outstanding::Timer(..));
                wanted || matches!(outstanding, Outstanding::Decision { .. })
            });
            open.sort_by_key(|outstanding| format!("{outstanding:?}"));
            let at = self.order.draw() as usize % open.len();
            match open.swap_remove(at) {
                Outstanding::Attempt { task, attempt, resumes } => self.answer(task, attempt, resumes),
                Outstanding::Timer(crate::outstanding::Timer::Attempt { .. }, _) => {}
                Outstanding::Timer(timer, due) => {
                    self.now = self.now.max(due);
                    self.bring(Input::Due(timer));
                }
                Outstanding::Decision { task, .. } => {
                    let resolution = match self.order.draw() % 3 {
                        0 => Resolution::Repeat,
                        1 => Resolution::Fail("it stays".into()),
                        _ => Resolution::Output(flowcell_contract::Value::null()),
                    };
                    let task = self.state.address(task);
                    self.bring(Input::Command(RunCommand::Resolve { task, resolution }));
                }
                _ => unreachable!("filtered"),
            }
        }
        panic!("the run does not end");
    }

    fn answer(&mut self, task: TaskKey, attempt: u32, resumes: u32) {
        let details = self.state.find(task).unwrap().details.clone().unwrap_or_default();
        let plan = &self.plans[task.node.0 as usize];
        let mut result = perform(plan, attempt, details.woken.as_ref(), details.state.as_ref()).unwrap();
        if let (Ok(Step::Done(value)), true) = (&mut result, self.tells_addresses) {
            *value = Value::from(Json::object([("at", Json::from(self.state.address(task)))]));
        }
        self.bring(Input::Answered {
            task,
            attempt: (attempt, resumes),
            result,
            writes: Vec::new(),
            heard: Box::default(),
        });
    }
}

proptest! {
    #![proptest_config(Config { cases: GRAPHS * scale(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn r19_r33_every_node_ends_as_the_naive_reference_says(flow in scope(2), seed: u64, permits in 1..6u32) {
        let policy = FlowPolicy { fail_fast: false, max_concurrency: permits, ..FlowPolicy::default() };
        let mut bench = Bench::new(&flow, policy, seed);
        bench.run();
        let (expected, unhandled) = reference::run(&flow);
        prop_assert_eq!(bench.ends(), expected);
        prop_assert_eq!(matches!(bench.state.end(), Some(RunEnd::Failed { .. })), unhandled);
    }

    /// A race changes nothing but the ends of the branches that it cancels, once its join has opened.
    #[test]
    fn races_cancel_only_what_leads_to_them(flow in scope(2).prop_map(race), seed: u64, permits in 1..6u32) {
        let policy = FlowPolicy { fail_fast: false, max_concurrency: permits, ..FlowPolicy::default() };
        let mut bench = Bench::new(&flow, policy, seed);
        bench.run();
        let (expected, _) = reference::run(&flow);
        let losers = reference::losers(&flow, &expected);
        for (node, phase) in bench.ends.iter().enumerate() {
            let end = match phase {
                Some(Phase::Succeeded) => End::Succeeded,
                Some(Phase::Failed) => End::Failed,
                Some(Phase::Skipped) => End::Skipped,
                Some(Phase::Cancelled) if losers.contains(&node) => continue,
                other => panic!("node {node} ended as {other:?}"),
            };
            prop_assert_eq!(end, expected[node], "node {}", node);
        }
        let has_failed = matches!(bench.state.end(), Some(RunEnd::Failed { .. }));
        prop_assert!(reference::may_fail(&flow, &expected, has_failed));
    }

    #[test]
    fn r19_r33_fail_fast_and_cancel_end_every_run(flow in scope(2), races: bool, seed: u64, cancel_after in 0..40usize) {
        let flow = if races { race(flow) } else { flow };
        let mut bench = Bench::new(&flow, FlowPolicy::default(), seed);
        bench.bring(Input::Start { input: Json::Null, seed: 7, about: None });
        for _ in 0..cancel_after {
            let running = bench.begun.iter().next().copied();
            let Some((task, attempt, resumes)) = running else { break };
            bench.answer(task, attempt, resumes);
        }
        if bench.state.end().is_none() {
            let had_ended = bench.state.is_undoing();
            bench.bring(Input::Command(RunCommand::Cancel));
            bench.finish();
            let cancelled = matches!(bench.state.end(), Some(RunEnd::Cancelled { .. }));
            prop_assert_eq!(cancelled, !had_ended);
        }
        prop_assert!(bench.begun.is_empty());
        prop_assert!(outstanding(&bench.state).is_empty());
    }
}
