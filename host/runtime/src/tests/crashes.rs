//! Random graphs, with a power failure after a given number of appends. Every earlier observation from outside stays
//! true, every outcome is recorded once, and the run ends as the naive reference says.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, atomic::Ordering},
};

use flowcell_contract::{Attempt, Call, Calls, Json, NodeRunner, RunId, Step, StepResult, Tenant, Value};
use flowcell_flow::graph::{FlowPolicy, Graph};
use futures_util::future::{self, BoxFuture, Either};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{
    disk::{AsText, Disk},
    driving::VirtualTimers,
    graphs::{Plan, PlannedBody, lower, perform, race},
    outside::{self, Outside},
    readiness::{Counter, scale, scope},
    reference::{self, End},
    reference_loops, undos,
};
use crate::{
    Channel, Event, FlowRunner, Flows, NoFlows, Pinned, Quotas, RunCommand, RunGraphs, RunOptions, RunResult,
    RunStatus, Waiting, World,
    decide::Entropy,
    fact::{BlockReason, Fact, Resolution},
    inputs::{InputDigest, Visited, each_attempt},
    ports::{Journal, Pin, Unit},
    publish::Projector,
};

/// Number of runs that a test run crashes, times `FLOWCELL_TEST_SCALE`.
const RUNS: u32 = 40_000;

/// Nodes that follow their plans, and record that they ran.
struct Workers {
    plans: HashMap<String, Vec<Plan>>,
    /// The attempts that ran: flow, scope, node, attempt, resumes.
    ran: Mutex<Vec<(RunId, String, String, u32)>>,
    /// The last input of each attempt, as text: run, address, attempt, resumes.
    given: Mutex<HashMap<(RunId, String, u32, u32), String>>,
}

impl NodeRunner for Workers {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let index: usize = attempt.node_id.as_str()[1..].parse().unwrap();
        let plan = self.plans[&*attempt.flow][index].clone();
        let of = (attempt.run_id.clone(), attempt.scope.address(&attempt.node_id), attempt.attempt, attempt.resumes);
        self.given.lock().unwrap().insert(of, attempt.input.json().to_text());
        let ran = (attempt.run_id, attempt.scope.to_string(), attempt.node_id.to_string(), attempt.attempt);
        self.ran.lock().unwrap().push(ran);
        Box::pin(async move {
            match plan {
                Plan::Count => return count(&*calls).await,
                Plan::InTurn(functions) => return outside::in_turn(&*calls, functions).await,
                Plan::InPassing(functions) => return outside::in_passing(&*calls, functions).await,
                Plan::Agent => return outside::as_agent(&*calls).await,
                Plan::Concurrently(functions) => return outside::concurrently(&*calls, functions).await,
                _ => {}
            }
            perform(&plan, attempt.attempt, attempt.woken.as_ref(), attempt.state.as_ref()).unwrap()
        })
    }
}

async fn count(calls: &dyn Calls) -> StepResult {
    let call = |function: &str, args: Vec<(&str, Json)>| {
        calls.call(Call { interface: "state".into(), function: function.into(), args: Json::object(args).into() })
    };
    let key = || ("key", Json::from("count"));
    let found = call("get", vec![key()]).await?;
    let number = |name: &str| found.json().get(name).and_then(Json::as_u64).unwrap_or(0);
    let value = Json::from(number("value") + 1);
    call("set-if", vec![key(), ("value", value), ("expected", Json::from(number("version")))]).await?;
    Ok(Step::Done(Value::null()))
}

/// The events that a watcher outside the process has seen, over all processes that have driven the run.
#[derive(Default)]
struct Witness(Mutex<BTreeMap<(RunId, u64), Event>>);

impl Channel for Witness {
    fn on_event(&self, event: &Event) {
        let seen = self.0.lock().unwrap().insert((event.run_id.clone(), event.seq), event.clone());
        assert!(seen.is_none(), "an event was told twice: {event:?}");
    }
}

/// A flow with everything outside its process (disk, clock, watcher, capability), which stays the same when a new
/// process drives the flow.
pub(super) struct Story {
    graphs: HashMap<String, Arc<Graph>>,
    workers: Arc<Workers>,
    pub(super) disk: Arc<Disk>,
    pub(super) clock: VirtualTimers,
    witness: Arc<Witness>,
    pub(super) outside: Arc<Outside>,
    /// The quotas of the world. `None`: there are none.
    pub(super) quotas: Option<Arc<dyn Quotas>>,
    lives: u32,
}

impl Story {
    pub(super) fn new(flow: &PlannedBody, seed: u64, permits: u32, lies: bool) -> Story {
        let policy = FlowPolicy { fail_fast: false, max_concurrency: permits, ..FlowPolicy::default() };
        let main = lower(flow, policy);
        let mut child = lower(&child(), FlowPolicy::default());
        child.graph.name = "child".into();
        let plans = HashMap::from([("planned".to_owned(), main.plans), ("child".to_owned(), child.plans)]);
        let graphs = [main.graph, child.graph].map(|graph| (graph.name.to_string(), Arc::new(graph)));
        let disk = Arc::new(Disk::new(seed, lies));
        Story {
            outside: Arc::new(Outside::new(disk.clone(), seed)),
            disk,
            graphs: HashMap::from(graphs),
            workers: Arc::new(Workers { plans, ran: Mutex::default(), given: Mutex::default() }),
            clock: VirtualTimers::default(),
            witness: Arc::default(),
            quotas: None,
            lives: 0,
        }
    }

    fn world(&self) -> Arc<World> {
        let mut world = World::in_memory(self.workers.clone(), Arc::new(FlowMap(self.graphs.clone())));
        world.timers = Arc::new(self.clock.clone());
        world.journal = self.disk.clone();
        world.state = self.disk.clone();
        world.capabilities = outside::capabilities(&self.outside);
        world.quotas = self.quotas.clone();
        Arc::new(world)
    }

    /// Runs the flow in a new process, as the command line does when a user repeats the same command. The power fails
    /// after this number of appends. Returns `None` if it failed before the run ended or parked.
    pub(super) fn live(&mut self, fails_after: u64) -> Option<RunResult> {
        self.lives += 1;
        let world = self.world();
        let nodes = self.graphs["planned"].nodes.iter();
        let yes = Json::object([("content", Json::from("yes"))]);
        let options = RunOptions {
            run_id: Some("run-1".into()),
            channels: vec![self.witness.clone()],
            answers: nodes.map(|node| (node.id.to_string(), yes.clone())).collect(),
            // The random graphs do not cause the deaths of the process.
            by_hand: true,
            without_events: true,
            ..RunOptions::default()
        };
        let flow = Pinned { graph: self.graphs["planned"].clone(), pin: Pin("planned".into()) };
        self.disk.power(fails_after);
        let runner = FlowRunner::new(flow, world, options).unwrap();
        self.powered(runner.run())
    }

    /// Polls a future to its end. Returns its result, or `None` if the power failed before.
    fn powered<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let disk = self.disk.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let power = future::poll_fn(|context| disk.poll(context));
            match future::select(Box::pin(what), power).await {
                Either::Left((result, _)) => Some(result),
                Either::Right(_) => None,
            }
        })
    }

    /// Decides like a person who looks up in the ledger whether the calls with an unknown end happened.
    fn decide(&self, waiting: &[Waiting]) {
        for waiting in waiting {
            let Waiting::Decision { address, reason } = waiting else { continue };
            let resolution = match **reason {
                BlockReason::Ambiguous { attempt, ordinal, .. } => {
                    let effect = self.outside.effect_of(&self.key(address, attempt, ordinal));
                    let reply = |number| Resolution::Reply(Value::from(Json::from(number as u64)));
                    effect.map_or(Resolution::Repeat, reply)
                }
                BlockReason::UndoFailed { .. } if self.lives.is_multiple_of(2) => Resolution::Fail("it stays".into()),
                BlockReason::UndoFailed { .. } => Resolution::Output(Value::null()),
                BlockReason::Nondeterministic { .. } => panic!("{address}: {reason}"),
            };
            self.disk.power(u64::MAX);
            let runner = FlowRunner::resume(self.world(), "run-1".into(), RunOptions::default()).unwrap();
            let asked = runner.ask(RunCommand::Resolve { task: address.clone(), resolution });
            self.powered(asked).unwrap().unwrap();
        }
    }

    /// Allows calls and writes to agent runs, like people. A person who is not sure about a message sends it again.
    fn answer_people(&self, waiting: &[Waiting]) {
        for waiting in waiting {
            let requests = match waiting {
                Waiting::Answer { address, asked, .. } => {
                    let answer = Json::object([("content", Json::from("allow"))]);
                    vec![RunCommand::Reply { gate: address.clone(), answer, question: asked.clone() }]
                }
                Waiting::Message { address, agent_run } => {
                    let write = |to: &str, message: &str| RunCommand::Write {
                        to: to.to_owned(),
                        message: Some(message.to_owned()),
                        value: Value::from(Json::from(message)),
                    };
                    vec![write(address, "m1"), write(agent_run, "m1"), write(agent_run, "m2")]
                }
                _ => continue,
            };
            for request in requests {
                self.disk.power(u64::MAX);
                let runner = FlowRunner::resume(self.world(), "run-1".into(), RunOptions::default()).unwrap();
                self.powered(runner.ask(request)).unwrap().unwrap();
            }
        }
    }

    /// Returns the key of a call.
    fn key(&self, address: &str, attempt: u32, call: u32) -> String {
        let run = self.run_of(address);
        let units = self.disk.runs().into_iter().find(|(other, _)| *other == run).unwrap().1;
        let place = address.rsplit_once('/').map_or(address, |(_, inner)| inner);
        let (scope, node) = place.rsplit_once('.').unwrap_or(("", place));
        let is = |event: &&Event| {
            let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default();
            let number = |key: &str| event.data.get(key).and_then(Json::as_u64);
            let numbers = (number("attempt"), number("call"));
            event.kind == "call:start"
                && (text("scope"), text("taskId")) == (scope, node)
                && numbers == (Some(attempt.into()), Some(call.into()))
        };
        let events = self.events(&run, &units);
        events.iter().rev().find(is).and_then(|found| found.data.get("key")?.as_str()).unwrap().to_owned()
    }

    fn run_of(&self, address: &str) -> RunId {
        let Some((task, _)) = address.split_once('/') else { return "run-1".into() };
        let runs = self.disk.runs().into_iter().map(|(run, _)| run);
        let child = runs.filter(|run| run.as_str().starts_with(&format!("run-1.{task}.")));
        child.max_by_key(|run| run.to_string()).unwrap()
    }

    /// Checks the disk after every life.
    pub(super) fn check(&self) {
        let told = self.witness.0.lock().unwrap();
        for (run, units) in self.disk.runs() {
            let events = self.events(&run, &units);
            for (seq, event) in events.iter().enumerate() {
                assert_eq!(event.seq, seq as u64, "the numbers have gaps");
            }
            let of_run = told.range((run.clone(), 0)..=(run.clone(), u64::MAX));
            for ((_, seq), event) in of_run {
                assert_eq!(events.get(*seq as usize), Some(event), "what was told is not what happened");
            }
            let facts: Vec<_> = units.iter().flat_map(|unit| &unit.facts).collect();
            undos::check(&self.graph_of(&run), facts.iter().copied());
            outside::check_agents(&events);
            outside::check_ends(&facts);
            let ends = |fact: &&Fact| matches!(fact, Fact::RunEnded { .. });
            if let Some(end) = facts.iter().position(ends) {
                assert_eq!(end, facts.len() - 1, "something happened after the end");
            }
            let graph = &self.graphs[if run.as_str() == "run-1" { "planned" } else { "child" }];
            let mut passes = 0;
            let outcomes = facts.iter().filter_map(|fact| match fact {
                Fact::CyclePassStarted { .. } => {
                    passes += 1;
                    None
                }
                Fact::TaskSucceeded { task, .. } | Fact::TaskFailed { task, .. } | Fact::TaskSkipped { task, .. } => {
                    // A task on a cycle has an outcome in each pass.
                    Some((*task, graph.node(task.node).cycle.map(|_| passes)))
                }
                _ => None,
            });
            let outcomes: Vec<_> = outcomes.collect();
            assert_eq!(outcomes.iter().collect::<BTreeSet<_>>().len(), outcomes.len(), "an outcome twice");
        }
        self.outside.check();
        let lost = told.keys().find(|(run, _)| self.disk.runs().iter().all(|(kept, _)| kept != run));
        assert_eq!(lost, None, "a run that somebody has seen is gone");
    }

    fn graph_of(&self, run: &RunId) -> Arc<Graph> {
        self.graphs[if run.as_str() == "run-1" { "planned" } else { "child" }].clone()
    }

    fn events(&self, run: &RunId, units: &[Arc<Unit>]) -> Vec<Event> {
        let projector = || Projector::new(Tenant::local(), run.clone(), self.graph_of(run));
        let mut whole = projector();
        let events: Vec<_> = units.iter().flat_map(|unit| whole.project(unit)).collect();
        // A reader of only the later events sees the same.
        let (passed_over, wanted) = units.split_at(units.len() / 2);
        let mut later = projector();
        passed_over.iter().for_each(|unit| later.pass_over(unit));
        let wanted: Vec<_> = wanted.iter().flat_map(|unit| later.project(unit)).collect();
        assert!(events.ends_with(&wanted), "what was passed over is missed");
        events
    }

    /// Checks that the shown inputs of ended attempts are the inputs that the attempts got, in whichever process they
    /// ran.
    fn check_inputs(&self) {
        for (run, units) in self.disk.runs() {
            let graph = self.graph_of(&run);
            let record = self.disk.find(&Tenant::local(), &run).unwrap().unwrap();
            let as_text = AsText(units);
            let mut visit = |visited: &Visited<'_>| {
                let (address, (attempt, resumes), rendered) = (visited.address(), visited.number(), visited.render());
                let of = (run.clone(), address, attempt, resumes);
                let was_in_doubt = matches!(visited.status, "failed" | "cancelled" | "abandoned");
                match rendered.digest {
                    InputDigest::Matches => {
                        let (input, _) = rendered.parts.ok().unwrap();
                        assert_eq!(Some(input.text()), self.workers.given.lock().unwrap().get(&of).map(String::as_str));
                    }
                    // The attempt ended before that life began it again.
                    InputDigest::NotRecorded if was_in_doubt => {}
                    other => panic!("{of:?} {}: {other:?}", visited.status),
                }
                ControlFlow::Continue(())
            };
            let graphs = RunGraphs::load(&record, |_| Ok(graph.clone())).unwrap();
            each_attempt(&as_text, &graphs, &record, (&Tenant::local(), &run), (None, u64::MAX), &mut visit).unwrap();
        }
    }

    /// Returns the events of a type that a watcher has seen.
    pub(super) fn told(&self, kind: &str) -> Vec<Event> {
        self.witness.0.lock().unwrap().values().filter(|event| event.kind == kind).cloned().collect()
    }

    /// Returns the attempts whose outcome was durable: none of them may be made again.
    fn finished(&self) -> BTreeSet<(RunId, String, String, u32)> {
        let mut finished = BTreeSet::new();
        for (run, units) in self.disk.runs() {
            for event in self.events(&run, &units) {
                if matches!(event.kind, "task:complete" | "task:failed" | "task:retry") {
                    let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
                    let attempt = event.data.get("attempt").and_then(Json::as_u64).unwrap_or(0) as u32;
                    finished.insert((run.clone(), text("scope"), text("taskId"), attempt));
                }
            }
        }
        finished
    }

    /// Returns the number of successes of the counting tasks.
    pub(super) fn counted(&self, flow: &str) -> u64 {
        let counts = |fact: &&Fact| match fact {
            Fact::TaskSucceeded { task, .. } => self.workers.plans[flow][task.node.0 as usize] == Plan::Count,
            _ => false,
        };
        let of_flow = |run: &RunId| (run.as_str() == "run-1") == (flow == "planned");
        let runs = self.disk.runs();
        let facts = runs.iter().filter(|(run, _)| of_flow(run)).flat_map(|(_, units)| units);
        facts.flat_map(|unit| &unit.facts).filter(counts).count() as u64
    }
}

pub(super) struct FlowMap(pub(super) HashMap<String, Arc<Graph>>);

impl Flows for FlowMap {
    fn resolve(&self, name: &str, _: &Pin) -> Result<Pinned, flowcell_contract::Failure> {
        let pin = Pin(name.into());
        Ok(Pinned { graph: self.pinned(&pin)?, pin })
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, flowcell_contract::Failure> {
        self.0.get(&*pin.0).cloned().map_or_else(|| NoFlows.pinned(pin), Ok)
    }
}

fn child() -> PlannedBody {
    let nodes = [Plan::Count, Plan::After(20), Plan::InTurn(&["once"])].map(super::graphs::Planned::new).into();
    PlannedBody { nodes, edges: vec![(0, 1, flowcell_flow::graph::On::Success)], ..PlannedBody::default() }
}

/// Makes some of the nodes ask, count, or call a flow. Scopes get one attempt, because these tests know tasks by addresses.
pub(super) fn vary_plans(flow: &mut PlannedBody, dice: &mut Counter) {
    for planned in &mut flow.nodes {
        if let Plan::Scope(attempts) = &mut planned.plan {
            *attempts = 1;
        }
        if planned.plan == Plan::Done {
            planned.plan = match dice.draw() % 12 {
                8 => Plan::InTurn(&["idempotent", "once", "idempotent"]),
                11 => Plan::Agent,
                10 => Plan::InPassing(&["idempotent", "once"]),
                9 => Plan::Concurrently(&["once", "idempotent", "at-least-once", "once"]),
                0 => Plan::Ask,
                1 | 2 => Plan::Count,
                3 => Plan::Call("child"),
                _ => Plan::Done,
            };
        }
        if let Some(body) = &mut planned.body {
            vary_plans(body, dice);
        }
    }
}

pub(super) fn run_story(flow: &PlannedBody, seed: u64, permits: u32, lies: bool) -> Story {
    tell(Story::new(flow, seed, permits, lies), flow, seed)
}

/// Runs a flow again after each power failure, until it ends.
pub(super) fn tell(mut story: Story, flow: &PlannedBody, seed: u64) -> Story {
    let mut dice = Counter(seed);
    for life in 0.. {
        assert!(life < 1_000, "the run does not end");
        let (finished, ran) = (story.finished(), story.workers.ran.lock().unwrap().len());
        let result = story.live(1 + dice.draw() % 12 + life);
        story.check();
        for attempt in &story.workers.ran.lock().unwrap()[ran..] {
            assert!(!finished.contains(attempt), "an attempt with an outcome was made again: {attempt:?}");
        }
        let Some(result) = result else { continue };
        story.clock.0.fetch_max(result.quota.as_ref().map_or(0, |hold| hold.until), Ordering::Relaxed);
        if result.status == RunStatus::Parked {
            story.answer_people(&result.waiting);
            continue;
        }
        if result.status == RunStatus::NeedsAttention {
            story.decide(&result.waiting);
            continue;
        }
        // This check costs as much as all others together.
        if seed.is_multiple_of(8) {
            story.check_inputs();
        }
        let has_failed = result.status == RunStatus::Failed;
        assert!(has_failed || result.status == RunStatus::Succeeded, "{:?}", result.status);
        let (ends, may_end_so) = match flow.max_passes {
            Some(max) => {
                let (ends, unhandled, _) = reference_loops::run(flow, max);
                (ends, unhandled == has_failed)
            }
            None => {
                let (ends, _) = reference::run(flow);
                let may = reference::may_fail(flow, &ends, has_failed);
                (ends, may)
            }
        };
        assert!(may_end_so, "{:?}", result.error);
        let losers = reference::losers(flow, &ends);
        for (node, end) in ends.iter().enumerate() {
            let output = result.outputs.get(&format!("n{node}"));
            let is = |key: &str| output.and_then(|output| output.get(key)).and_then(Json::as_bool) == Some(true);
            if is("cancelled") && losers.contains(&node) {
                continue;
            }
            let actual = if is("skipped") {
                End::Skipped
            } else if is("failed") {
                End::Failed
            } else {
                End::Succeeded
            };
            let heard = output.and_then(|output| output.get("heard"));
            let both = Json::array(["m1", "m2"].map(Json::from));
            assert!(heard.is_none_or(|heard| *heard == both), "n{node} has heard {heard:?}");
            // Only sinks are outputs of the flow.
            assert!(output.is_none() || actual == *end, "n{node} ended as {actual:?}, not as {end:?}: {output:?}");
        }
        break;
    }
    story
}

/// Crashes `RUNS` runs, an equal part on each core.
#[test]
fn r4_r33_nothing_acknowledged_is_lost() {
    let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap());
    let config = Config { cases: (RUNS * scale()).div_ceil(cores), failure_persistence: None, ..Config::default() };
    let check = &|core: u32| {
        let mut config = config.clone();
        // With the same seed, each core would crash the same runs.
        if let RngSeed::Fixed(seed) = &mut config.rng_seed {
            *seed = seed.wrapping_add(core.into());
        }
        TestRunner::new(config).run(&(scope(1), any::<u64>(), 1..6u32), |(mut flow, seed, permits)| {
            vary_plans(&mut flow, &mut Counter(seed ^ 1));
            let flow = if seed % 3 == 0 { race(flow) } else { flow };
            let story = run_story(&flow, seed, permits, false);
            for flow in ["planned", "child"] {
                let state = story.disk.state_of(flow, "count").unwrap_or(0);
                prop_assert_eq!(state, story.counted(flow), "state and outcomes of `{}` disagree", flow);
            }
            Ok(())
        })
    };
    std::thread::scope(|threads| {
        let running: Vec<_> = (0..cores).map(|core| threads.spawn(move || check(core))).collect();
        running.into_iter().for_each(|thread| thread.join().unwrap().unwrap_or_else(|error| panic!("{error}")));
    });
}
