//! The inputs of tasks: the inputs that are rendered again from the journal equal those that the components got, for
//! every outcome of a task.

mod changed;
mod earlier;
mod facts;
mod probed;
mod random;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use flowcell_contract::{
    Attempt, Calls, Catalog, Digest, Failure, FanOut, FlowCall, Json, Manifest, NodeRunner, Pause, Question, RunId,
    Step, StepResult, Tenant, Value, Wake,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{
    FlowRunner, Flows, NoFlows, Pinned, Repeat, RunGraphs, RunOptions, RunStatus, World,
    inputs::{Input, InputDigest, TaskInputs, Window, each_attempt},
    ports::{Journal, Pin, Record},
};
use futures_util::future::{self, BoxFuture};

use changed::Changed;

use crate::clock::Clock;

const MANIFEST: &str = "
name: t
version: 1.0.0
nodes:
  - { type: t.noop, title: Hands its input on, input: { type: object }, config: { type: object } }
  - { type: t.told, title: Gets facts, input: { type: object, properties: { of: { x-flowcell: { as: facts } } } } }
  - { type: t.fail, title: Fails, input: { type: object } }
  - { type: t.flaky, title: Fails at first, input: { type: object } }
  - { type: t.ask, title: Asks, input: { type: object } }
  - { type: t.hang, title: Never answers, input: { type: object } }
  - { type: t.late, title: Answers after others, input: { type: object } }
  - { type: t.flow, title: Calls a flow, input: { type: object } }
  - { type: t.each, title: Runs its body for each item, input: { type: object }, traits: [body],
      body: { variables: [item, index, count] } }
  - { type: t.scope, title: Runs its body and undoes it, input: { type: object }, traits: [body],
      body: { variables: [item], undoes: true } }
  - type: t.loop
    title: Runs its body while it may
    traits: [body]
    body: { variables: [iteration] }
    input: { type: object, properties: { while: { x-flowcell: { as: condition, rebind: true } } } }
";

/// The run, the address, the attempt and the number of resumes that an input belongs to.
type Of = (String, String, u32, u32);

/// Runs the nodes, and records the input and the config of each attempt as text.
#[derive(Default)]
struct Nodes(Mutex<HashMap<Of, (String, String)>>);

impl NodeRunner for Nodes {
    fn run(&self, attempt: Attempt, _: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let address = attempt.scope.address(&attempt.node_id);
        let of = (attempt.run_id.to_string(), address, attempt.attempt, attempt.resumes);
        let given = (attempt.input.json().to_text(), attempt.config.json().to_text());
        self.0.lock().unwrap().insert(of, given);
        if &*attempt.node_type == "t.hang" {
            return Box::pin(future::pending());
        }
        let turns = attempt.input.json().get("turns").and_then(Json::as_u64).unwrap_or(0);
        if &*attempt.node_type == "t.late" && turns > 0 {
            return Box::pin(async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                answer(&attempt)
            });
        }
        Box::pin(future::ready(answer(&attempt)))
    }
}

/// Returns true if the event that woke an attempt is a failure.
fn has_failed(attempt: &Attempt) -> bool {
    attempt.woken.as_ref().is_some_and(|woken| woken.json().get("error").is_some())
}

fn answer(attempt: &Attempt) -> StepResult {
    let input = attempt.input.json();
    let number = |name: &str| input.get(name).and_then(Json::as_u64).unwrap_or(0);
    let pause = |wake: Wake| Ok(Step::Pause(Pause { until: vec![wake], state: Value::null() }));
    let woken = attempt.woken.as_ref().map(|woken| woken.json().get("value").cloned().unwrap_or_default());
    match (&*attempt.node_type, woken) {
        ("t.fail", _) => Err(Failure::new("planned", "it fails")),
        ("t.flaky", _) if attempt.attempt == 1 => Err(Failure::retryable("planned", "not yet")),
        ("t.ask", None) => {
            pause(Wake::Answer(Question { prompt: "Well?".into(), allow_text: true, ..Question::default() }))
        }
        ("t.flow", None) => pause(Wake::Flow(FlowCall { name: "child".into(), input: input.clone().into() })),
        ("t.scope", None) => pause(Wake::Body(Json::object([("item", Json::from(1_u64))]).into())),
        ("t.each", None) => {
            let items = Value::from(input.get("list").cloned().unwrap());
            pause(Wake::Each(FanOut { items, concurrency: Some(2), stop_on_failure: true, max_failures: None }))
        }
        ("t.loop", _) if u64::from(attempt.resumes) < number("times") => {
            let iteration = Json::object([("iteration", Json::from(attempt.resumes))]);
            pause(Wake::Body(iteration.into()))
        }
        ("t.scope", Some(_)) if has_failed(attempt) => Err(Failure::retryable("planned", "its body fails")),
        (_, Some(value)) => Ok(Step::Done(value.into())),
        _ => Ok(Step::Done(attempt.input.clone())),
    }
}

/// The flows by name. The pin of each flow is its name.
struct FlowMap(HashMap<&'static str, Arc<Graph>>);

impl Flows for FlowMap {
    fn resolve(&self, name: &str, _: &Pin) -> Result<Pinned, Failure> {
        let pin = Pin(name.into());
        Ok(Pinned { graph: self.pinned(&pin)?, pin })
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        self.0.get(&*pin.0).cloned().map_or_else(|| NoFlows.pinned(pin), Ok)
    }
}

const CHILD: &str = "
flow: { name: child, input: { of: nobody } }
nodes: [{ id: inner, type: t.noop, input: { of: '{{ flow.input.of }}', float: '{{ flow.input.float / 3 }}' } }]
";

fn graph(text: &str) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let checked = flowcell_flow::load(&Source { name: "f.yaml".into(), text: text.into() }, &catalog, &NoContext);
    Arc::new(checked.graph.unwrap_or_else(|| panic!("{:?}", checked.diagnostics)))
}

/// A simulated process, and the journal that outlives it.
struct Process {
    nodes: Arc<Nodes>,
    flow: Arc<Graph>,
    journal: Arc<dyn Journal>,
    /// True if the time stands still, so that no wait ends.
    stands: bool,
}

impl Process {
    fn new(flow: &str) -> Process {
        let world = World::in_memory(Arc::new(Nodes::default()), Arc::new(NoFlows));
        Process { nodes: Arc::default(), flow: graph(flow), journal: world.journal, stands: false }
    }

    /// Returns the world of a new process on the same journal.
    fn world(&self) -> Arc<World> {
        let shelf = FlowMap(HashMap::from([("f", self.flow.clone()), ("child", graph(CHILD))]));
        let mut world = World::in_memory(self.nodes.clone(), Arc::new(shelf));
        world.journal = self.journal.clone();
        world.timers = Arc::new(Clock::new(self.stands));
        Arc::new(world)
    }

    fn begin(&self, run: &str) -> FlowRunner {
        let flow = Pinned { graph: self.flow.clone(), pin: Pin("f".into()) };
        let options = RunOptions { run_id: Some(run.into()), ..RunOptions::default() };
        FlowRunner::new(flow, self.world(), options).unwrap()
    }

    fn run(&self, run: &str) -> RunStatus {
        block(self.begin(run).run()).status
    }

    fn resume(&self, run: &str, gate: &str) -> RunStatus {
        let yes = Json::object([("content", Json::from("yes"))]);
        let options = RunOptions { answers: [(gate.to_owned(), yes)].into(), by_hand: true, ..RunOptions::default() };
        block(FlowRunner::resume(self.world(), run.into(), options).unwrap().run()).status
    }

    fn graphs_of(&self, run: &str) -> (RunGraphs, Record) {
        let record = self.journal.find(&Tenant::local(), &run.into()).unwrap().unwrap();
        let graph = if &*record.pin.0 == "child" { graph(CHILD) } else { self.flow.clone() };
        (RunGraphs::load(&record, |_| Ok(graph.clone())).unwrap(), record)
    }

    fn inputs(&self, journal: &dyn Journal, run: &str, task: &str, window: Window) -> TaskInputs {
        let (graphs, record) = self.graphs_of(run);
        TaskInputs::read(journal, &graphs, &record, (&Tenant::local(), &run.into()), (task, window)).unwrap()
    }

    /// Returns the attempts of a run in a journal, each as the text `ADDRESS ATTEMPT.RESUMES STATUS DIGEST`. Checks
    /// that the rendered inputs are those that the components got.
    fn shown(&self, journal: &dyn Journal, run: &str) -> Vec<String> {
        let (graphs, record) = self.graphs_of(run);
        let mut lines = Vec::new();
        let mut visit = |visited: &flowcell_runtime::inputs::Visited<'_>| {
            let (address, (attempt, resumes), rendered) = (visited.address(), visited.number(), visited.render());
            let given = self.nodes.0.lock().unwrap().get(&(run.to_owned(), address.clone(), attempt, resumes)).cloned();
            let shown = rendered.parts.ok().map(|(input, config)| (input.text().to_owned(), config.text().to_owned()));
            if matches!(rendered.digest, InputDigest::Matches | InputDigest::NotRecorded | InputDigest::NotEnded) {
                assert_eq!(shown, given, "{address} {attempt}.{resumes}");
            }
            lines.push(format!("{address} {attempt}.{resumes} {} {:?}", visited.status, rendered.digest));
            ControlFlow::Continue(())
        };
        let of = (&Tenant::local(), &RunId::from(run));
        each_attempt(journal, &graphs, &record, of, (None, u64::MAX), &mut visit).unwrap();
        lines
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const WHOLE: Window = Window { from: 0, limit: 1_000, end: u64::MAX, whole_call: None, bytes: 16 << 20 };

fn flow(nodes: &str, edges: &str) -> String {
    format!("flow: {{ name: f, input: {{ n: 7, text: 'a \"b\" ü' }} }}\nnodes:\n{nodes}\nedges: [{edges}]\n")
}

#[test]
fn the_shown_input_is_the_one_that_the_component_got() {
    let cases = [
        (
            "success, with a config and a float",
            flow(
                "  - { id: a, type: t.noop, input: { x: '{{ flow.input.n / 3 }}' }, config: { c: '{{ flow.input.text }}' } }
  - { id: b, type: t.noop, input: { x: '{{ a.x * 3.3 }}', all: '{{ nodes }}', in: '{{ inbounds }}' } }",
                "{ from: a, to: b }",
            ),
            RunStatus::Succeeded,
            vec!["a 1.0 succeeded Matches", "b 1.0 succeeded Matches"],
        ),
        (
            "a failure, and what comes after it",
            flow(
                "  - { id: a, type: t.fail, input: { x: '{{ flow.input.n }}' } }
  - { id: b, type: t.noop, input: { failed: '{{ inbound }}' } }",
                "{ from: a, to: b, on: error }",
            ),
            RunStatus::Succeeded,
            vec!["a 1.0 failed Matches", "b 1.0 succeeded Matches"],
        ),
        (
            "a retry",
            flow("  - { id: a, type: t.flaky, input: { x: '{{ flow.input }}' }, policy: { retry: { maxAttempts: 2 } } }", ""),
            RunStatus::Succeeded,
            vec!["a 1.0 retried Matches", "a 2.0 succeeded Matches"],
        ),
        (
            "an attempt that takes too long",
            flow("  - { id: a, type: t.hang, input: { x: '{{ flow.input }}' }, policy: { timeoutMs: 5 } }", ""),
            RunStatus::Failed,
            vec!["a 1.0 failed Matches"],
        ),
        (
            "an attempt that is cancelled",
            flow(
                "  - { id: a, type: t.hang, input: { x: '{{ flow.input }}' } }\n  - { id: b, type: t.fail, input: {} }",
                "",
            ),
            RunStatus::Failed,
            vec!["b 1.0 failed Matches", "a 1.0 cancelled Matches"],
        ),
        (
            "an input that cannot be rendered",
            flow("  - { id: a, type: t.noop, input: { ok: 1, x: '{{ flow.input.none | required }}' } }", ""),
            RunStatus::Failed,
            vec!["a 1.0 failed NotRecorded"],
        ),
        (
            "items",
            flow(
                "  - { id: e, type: t.each, input: { list: [1, '{{ flow.input.n }}', three] },
      body: { nodes: [{ id: i, type: t.noop, input: { v: '{{ e.item }}', at: '{{ e.index }} of {{ e.count }}' } }] } }",
                "",
            ),
            RunStatus::Succeeded,
            vec![
                "e 1.0 paused Matches",
                "e[0].i 1.0 succeeded Matches",
                "e[1].i 1.0 succeeded Matches",
                "e[2].i 1.0 succeeded Matches",
                "e 1.1 succeeded Matches",
            ],
        ),
        (
            "passes, whose owner sees something else after each",
            flow(
                "  - { id: l, type: t.loop, input: { times: 2, while: 'l.last != flow.input.n' },
      body: { nodes: [{ id: i, type: t.noop, input: { last: '{{ l.last }}', at: '{{ l.iteration }}' } }] } }",
                "",
            ),
            RunStatus::Succeeded,
            vec![
                "l 1.0 paused Matches",
                "l[0].i 1.0 succeeded Matches",
                "l 1.1 paused Matches",
                "l[1].i 1.0 succeeded Matches",
                "l 1.2 succeeded Matches",
            ],
        ),
        (
            "a flow below",
            flow("  - { id: a, type: t.flow, input: { of: '{{ flow.input.text }}', float: 1.1 } }", ""),
            RunStatus::Succeeded,
            vec!["a 1.0 paused Matches", "a 1.1 succeeded Matches"],
        ),
    ];
    for (name, flow, status, expected) in cases {
        let process = Process::new(&flow);
        assert_eq!(process.run("r"), status, "{name}");
        let mut shown = process.shown(&*process.journal, "r");
        assert_eq!(shown.len(), expected.len(), "{name}: {shown:?}");
        // Attempts that end at the same time have no order.
        shown.sort();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(shown, expected, "{name}");
        let as_text = Changed::of(&*process.journal, "r", |facts| facts);
        assert_eq!(process.shown(&as_text, "r").len(), expected.len(), "{name}");
        assert!(!process.shown(&as_text, "r").iter().any(|line| line.ends_with("Differs")), "{name}");
    }
}

#[test]
fn a_long_input_has_its_digest_when_its_attempt_ends() {
    let long = "ü".repeat(200_000);
    let nodes = format!(
        "  - {{ id: a, type: t.noop, input: {{ x: '{long}' }} }}
  - {{ id: b, type: t.ask, input: {{ x: ['{{{{ a }}}}', '{{{{ a.x }}}}'] }} }}"
    );
    let process = Process { stands: true, ..Process::new(&flow(&nodes, "{ from: a, to: b }")) };
    assert_eq!(process.run("r"), RunStatus::Parked);
    assert_eq!(process.shown(&*process.journal, "r"), ["a 1.0 succeeded Matches", "b 1.0 paused Matches"]);
}

#[test]
fn the_inputs_of_a_called_flow_are_in_its_own_run() {
    let process = Process::new(&flow("  - { id: a, type: t.flow, input: { of: x, float: 1.1 } }", ""));
    assert_eq!(process.run("r"), RunStatus::Succeeded);
    let child = process.journal.children_of(&Tenant::local(), &"r".into()).unwrap().remove(0);
    assert_eq!(process.shown(&*process.journal, child.as_str()), ["inner 1.0 succeeded Matches"]);
}

#[test]
fn an_attempt_of_another_process_is_shown_before_and_after_its_end() {
    let process = Process::new(&flow(
        "  - { id: a, type: t.ask, input: { x: '{{ flow.input }}' } }
  - { id: h, type: t.noop, input: { y: '{{ a.content }}' } }",
        "{ from: a, to: h }",
    ));
    assert_eq!(process.run("r"), RunStatus::Parked);
    assert_eq!(process.shown(&*process.journal, "r"), ["a 1.0 paused Matches"]);
    assert_eq!(process.resume("r", "a"), RunStatus::Succeeded);
    let expected = ["a 1.0 paused Matches", "a 1.1 succeeded Matches", "h 1.0 succeeded Matches"];
    assert_eq!(process.shown(&*process.journal, "r"), expected);
    let inputs = process.inputs(&*process.journal, "r", "a", WHOLE);
    assert_eq!(inputs.attempts.len(), 2);
    assert!(matches!(inputs.attempts[1].input, Input::Same { .. }), "a pause changes nothing");
}

#[test]
fn a_process_that_died_leaves_an_attempt_that_has_not_ended() {
    let flow = flow("  - { id: a, type: t.hang, input: { x: '{{ flow.input }}' } }", "");
    let process = Process { stands: true, ..Process::new(&flow) };
    block(async {
        let begun = async {
            while process.nodes.0.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        future::select(Box::pin(process.begin("r").run()), Box::pin(begun)).await;
    });
    assert_eq!(process.shown(&*process.journal, "r"), ["a 1.0 running NotEnded"]);
}

#[test]
fn a_kept_output_has_no_input() {
    let process = Process::new(&flow(
        "  - { id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }
  - { id: b, type: t.noop, input: { y: '{{ a.x }}' } }",
        "{ from: a, to: b }",
    ));
    process.run("r");
    let repeat = Repeat { from: Some("b".into()), ..Repeat::default() };
    let options = RunOptions { run_id: Some("again".into()), ..RunOptions::default() };
    block(FlowRunner::retry(process.world(), &"r".into(), repeat, options).unwrap().run());
    let expected = ["a 1.0 succeeded NotRun", "b 1.0 succeeded Matches"];
    assert_eq!(process.shown(&*process.journal, "again"), expected);
}

#[test]
fn a_journal_without_digests_says_so_and_one_that_was_changed_differs() {
    let process = Process::new(&flow(
        "  - { id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }
  - { id: b, type: t.noop, input: { y: '{{ a.x }}' } }
  - { id: c, type: t.noop, input: { z: 1 } }",
        "{ from: a, to: b }, { from: b, to: c }",
    ));
    process.run("r");
    let older = Changed::of(&*process.journal, "r", |facts| {
        let mut facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
        for fact in facts.as_array_mut().unwrap() {
            let members = fact.as_object_mut().and_then(|fact| fact.values_mut().next()?.as_object_mut());
            members.map(|members| members.remove("received"));
        }
        facts.to_string()
    });
    let expected = ["a", "b", "c"].map(|node| format!("{node} 1.0 succeeded NotRecorded"));
    assert_eq!(process.shown(&older, "r"), expected);
    // The output of `a` is another one: what `b` was given cannot be made from it.
    let changed =
        Changed::of(&*process.journal, "r", |facts| facts.replace(r#""output":{"x":7}"#, r#""output":{"x":8}"#));
    let expected = ["a 1.0 succeeded Matches", "b 1.0 succeeded Differs", "c 1.0 succeeded Matches"];
    assert_eq!(process.shown(&changed, "r"), expected);
    let shown = serde_json::to_value(process.inputs(&changed, "r", "b", WHOLE)).unwrap();
    assert_eq!(shown["attempts"][0]["inputDigest"], "differs");
    assert_eq!(shown["attempts"][0]["input"], serde_json::json!({ "y": 8 }));
}

#[test]
fn many_attempts_come_in_pages_and_each_has_one_at_least() {
    let process = Process::new(&flow(
        "  - { id: l, type: t.loop, input: { times: 300, while: 'l.last != null' },
      body: { nodes: [{ id: i, type: t.noop, input: { at: '{{ l.iteration }}', big: '{{ flow.input.text }}' } }] } }",
        "",
    ));
    assert_eq!(process.run("r"), RunStatus::Succeeded);
    let (mut from, mut seen) = (0, Vec::new());
    loop {
        let page = process.inputs(&*process.journal, "r", "l", Window { from, limit: 7, ..WHOLE });
        assert!((1..=7).contains(&page.attempts.len()));
        seen.extend(page.attempts.iter().map(|attempt| attempt.resumes));
        let Some(next) = page.next else { break };
        from = next;
    }
    assert_eq!(seen, (0..=300).collect::<Vec<_>>());
    let page = process.inputs(&*process.journal, "r", "l", Window { from: 5, limit: 100, bytes: 1, ..WHOLE });
    assert_eq!((page.attempts.len(), page.next), (1, Some(6)));
    // A pass is found among many. For an address without a pass, the answer lists the passes of the node.
    let page = process.inputs(&*process.journal, "r", "l[250].i", WHOLE);
    assert_eq!(serde_json::to_value(&page).unwrap()["attempts"][0]["input"]["at"], 250);
    let page = process.inputs(&*process.journal, "r", "i", WHOLE);
    assert_eq!((page.node_type, page.elsewhere.len(), &*page.elsewhere[0]), (None, 5, "l[0].i"));
    assert_eq!(process.inputs(&*process.journal, "r", "nothing", WHOLE).elsewhere, Vec::<String>::new());
}

#[test]
fn passes_are_sorted_by_number_and_not_by_end() {
    let list = (0..12).map(|index| if index == 0 { "1000" } else { "0" }).collect::<Vec<_>>().join(", ");
    let each = format!("  - {{ id: l, type: t.each, input: {{ list: [{list}] }},\n      body: {{ nodes: [");
    let process = Process::new(&flow(&(each + "{ id: i, type: t.late, input: { turns: '{{ l.item }}' } }] } }"), ""));
    assert_eq!(process.run("r"), RunStatus::Succeeded);
    let ends = process.shown(&*process.journal, "r");
    assert!(ends[0] != "l[0].i 1.0 succeeded Matches", "{ends:?}");
    let page = process.inputs(&*process.journal, "r", "i", WHOLE);
    assert_eq!(page.elsewhere, ["l[0].i", "l[1].i", "l[2].i", "l[3].i", "l[4].i"]);
}

#[test]
fn an_input_that_cannot_be_rendered_shows_the_members_that_can() {
    let process =
        Process::new(&flow("  - { id: a, type: t.noop, input: { ok: 1, x: '{{ flow.input.none | required }}' } }", ""));
    assert_eq!(process.run("r"), RunStatus::Failed);
    let shown = serde_json::to_value(process.inputs(&*process.journal, "r", "a", WHOLE)).unwrap();
    assert_eq!(shown["attempts"][0]["input"], serde_json::json!({ "ok": 1 }));
    assert_eq!(shown["attempts"][0]["inputError"]["code"], "binding_error");
}
