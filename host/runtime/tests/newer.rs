//! A run that is repeated in another version of its flow: its outputs are those of a fresh run of that version, and the
//! nodes that it keeps do not run again, also if its process dies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod edited;
mod moved;
mod renamed;

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Arc, Mutex},
    task::Poll,
};

use flowcell_contract::{
    Attempt, Calls, Catalog, Digest, Failure, FanOut, FlowCall, Json, Manifest, NodeRunner, Pause, Question, RunId,
    Step, StepResult, Tenant, Value, Wake,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{
    FlowRunner, Flows, NoFlows, NoStart, OpenError, OtherVersion, Part, Pinned, PlannedNode, Reason, RenameError,
    Renamed, Renames, Repeat, RetryPlan, RunOptions, RunResult, RunStatus, World,
    fact::Fact,
    ports::{Journal, Pin},
};
use futures_util::future::{self, BoxFuture};

const MANIFEST: &str = "
name: t
version: 1.0.0
nodes:
  - { type: t.noop, title: Returns its input, input: { type: object }, config: { type: object } }
  - { type: t.same, title: Does the same, input: { type: object }, config: { type: object } }
  - { type: t.fail, title: Fails, input: { type: object } }
  - { type: t.ask, title: Asks, input: { type: object } }
  - { type: t.call, title: Calls a flow, input: { type: object } }
  - { type: t.each, title: Runs its body for each item, input: { type: object }, traits: [body],
      body: { variables: [item, index, count] } }
";

/// Runs the nodes, and records the run and the address of each attempt.
#[derive(Default)]
struct Nodes(Mutex<BTreeSet<(String, String)>>);

impl NodeRunner for Nodes {
    fn run(&self, attempt: Attempt, _: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let address = attempt.scope.address(&attempt.node_id);
        self.0.lock().unwrap().insert((attempt.run_id.to_string(), address));
        Box::pin(future::ready(answer(&attempt)))
    }
}

fn answer(attempt: &Attempt) -> StepResult {
    let input = attempt.input.json();
    let pause = |wake: Wake| Ok(Step::Pause(Pause { until: vec![wake], state: Value::null() }));
    let woken = attempt.woken.as_ref().map(|woken| woken.json().get("value").cloned().unwrap_or_default());
    match (&*attempt.node_type, woken) {
        ("t.fail", _) => Err(Failure::new("planned", "it fails")),
        ("t.ask", None) => {
            pause(Wake::Answer(Question { prompt: "Well?".into(), allow_text: true, ..Question::default() }))
        }
        ("t.call", None) => pause(Wake::Flow(FlowCall { name: "child".into(), input: input.clone().into() })),
        ("t.each", None) => {
            let items = Value::from(input.get("list").cloned().unwrap());
            pause(Wake::Each(FanOut { items, concurrency: Some(2), stop_on_failure: false, max_failures: None }))
        }
        (_, Some(value)) => Ok(Step::Done(value.into())),
        _ => Ok(Step::Done(attempt.input.clone())),
    }
}

/// The flows by their pins, and the pin of `child` for each caller.
#[derive(Clone, Default)]
struct Shelf {
    graphs: HashMap<String, Arc<Graph>>,
    children: HashMap<String, String>,
}

impl Flows for Shelf {
    fn resolve(&self, _: &str, caller: &Pin) -> Result<Pinned, Failure> {
        let pin = self.children.get(&*caller.0).map_or("child", String::as_str);
        let pin = Pin(pin.into());
        Ok(Pinned { graph: self.pinned(&pin)?, pin })
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        self.graphs.get(&*pin.0).cloned().map_or_else(|| NoFlows.pinned(pin), Ok)
    }
}

fn graph(text: &str) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let checked = flowcell_flow::load(&Source { name: "f.yaml".into(), text: text.into() }, &catalog, &NoContext);
    Arc::new(checked.graph.unwrap_or_else(|| panic!("{text}\n{:?}", checked.diagnostics)))
}

/// Simulated processes on one journal, with the versions of one flow.
struct Story {
    journal: Arc<dyn Journal>,
    nodes: Arc<Nodes>,
    shelf: Shelf,
}

impl Story {
    /// The versions have the pins `v1`, `v2` and so on.
    fn new(versions: &[&str]) -> Story {
        let journal = World::in_memory(Arc::new(Nodes::default()), Arc::new(NoFlows)).journal;
        let named = versions.iter().enumerate().map(|(at, text)| (format!("v{}", at + 1), graph(text)));
        let shelf = Shelf { graphs: named.collect(), children: HashMap::new() };
        Story { journal, nodes: Arc::default(), shelf }
    }

    /// Returns the world of a new process.
    fn world(&self) -> Arc<World> {
        let mut world = World::in_memory(self.nodes.clone(), Arc::new(self.shelf.clone()));
        world.journal = self.journal.clone();
        Arc::new(world)
    }

    fn version(&self, number: u32) -> OtherVersion {
        let pin = Pin(format!("v{number}").into());
        OtherVersion { flow: Pinned { graph: self.shelf.pinned(&pin).unwrap(), pin }, version: Some(number) }
    }

    fn run(&self, version: u32, run: &str, answers: &[&str]) -> RunResult {
        let runner = FlowRunner::new(self.version(version).flow, self.world(), options(run, answers)).unwrap();
        block(runner.run())
    }

    fn again(&self, before: &str, version: u32, run: &str, repeat: Repeat) -> FlowRunner {
        FlowRunner::retry_in(self.world(), &before.into(), self.version(version), repeat, options(run, &[])).unwrap()
    }

    fn plan(&self, before: &str, version: u32, repeat: &Repeat) -> RetryPlan {
        FlowRunner::plan_retry_in(&self.world(), &before.into(), &self.version(version), repeat).unwrap()
    }

    fn resume(&self, run: &str) -> RunResult {
        block(FlowRunner::resume(self.world(), run.into(), RunOptions::default()).unwrap().run())
    }

    /// Returns the addresses of the nodes that ran in a run.
    fn ran(&self, run: &str) -> BTreeSet<String> {
        let ran = self.nodes.0.lock().unwrap();
        ran.iter().filter(|(of, _)| of == run).map(|(_, address)| address.clone()).collect()
    }
}

fn options(run: &str, answers: &[&str]) -> RunOptions {
    let yes = || Json::object([("content", Json::from("yes"))]);
    let answers = answers.iter().map(|gate| ((*gate).to_owned(), yes())).collect();
    RunOptions { run_id: Some(run.into()), answers, ..RunOptions::default() }
}

fn from(node: &str) -> Repeat {
    Repeat { from: Some(node.into()), ..Repeat::default() }
}

/// The names by the earlier ones: `a=b c=d`.
fn renames(pairs: &str) -> Renames {
    let pairs = pairs.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(old, new)| (old.into(), new.into())).collect()
}

fn shown(renamed: &[Renamed]) -> Vec<String> {
    renamed.iter().map(|node| format!("{}={}", node.node, node.name)).collect()
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Drives a run until its future was polled this number of times. Then the process is dead. Returns true if the run
/// ended before.
fn die_after(polls: u32, runner: FlowRunner) -> bool {
    let mut left = polls;
    let mut running = Box::pin(runner.run());
    block(future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match running.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }))
}

fn names(nodes: &[flowcell_contract::NodeId]) -> Vec<&str> {
    nodes.iter().map(flowcell_contract::NodeId::as_str).collect()
}

/// Returns the nodes that run, each with its reason.
fn reasons(plan: &RetryPlan) -> Vec<String> {
    plan.runs.iter().map(|planned| format!("{}: {}", planned.node.as_str(), planned.reason.text())).collect()
}

fn flow(nodes: &str, edges: &str) -> String {
    format!("flow: {{ name: f, input: {{ n: 7 }} }}\nnodes:\n{nodes}\nedges: [{edges}]\n")
}

#[test]
fn a_failed_run_goes_on_in_the_version_that_repairs_it() {
    let old = flow(
        "  - { id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }
  - { id: b, type: t.noop, input: { x: '{{ a.x + 1 }}' } }
  - { id: bad, type: t.fail, input: { x: '{{ b.x }}' } }
  - { id: end, type: t.noop, input: { x: '{{ bad.x }}' } }
  - { id: old, type: t.noop, input: {} }",
        "{ from: a, to: b }, { from: b, to: bad }, { from: bad, to: end }",
    );
    // The nodes have other places in the file, and there is a new one.
    let new = flow(
        "  - { id: end, type: t.noop, input: { x: '{{ bad.x }}' } }
  - { id: bad, type: t.noop, input: { x: '{{ b.x }}' } }
  - { id: more, type: t.noop, input: { x: '{{ end.x }}' } }
  - { id: b, type: t.noop, input: { x: '{{ a.x + 1 }}' }, policy: { timeoutMs: 5 } }
  - { id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }",
        "{ from: end, to: more }, { from: bad, to: end }, { from: b, to: bad }, { from: a, to: b }",
    );
    let story = Story::new(&[&old, &new]);
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Failed);
    let plan = story.plan("r", 2, &Repeat::default());
    assert_eq!(names(&plan.kept), ["b", "a"]);
    let expected = ["end: it comes after `bad`", "bad: the type or its pack changed", "more: it is new"];
    assert_eq!(reasons(&plan), expected);
    assert_eq!((names(&plan.gone), plan.version), (vec!["old"], Some(2)));
    assert!(story.journal.find(&Tenant::local(), &"again".into()).unwrap().is_none(), "the plan begins nothing");
    let again = block(story.again("r", 2, "again", Repeat::default()).run());
    assert_eq!((again.status, &again.outputs), (RunStatus::Succeeded, &story.run(2, "fresh", &[]).outputs));
    assert_eq!(story.ran("again"), ["bad", "end", "more"].map(str::to_owned).into());
    let record = story.journal.find(&Tenant::local(), &"again".into()).unwrap().unwrap();
    assert_eq!((record.version, &*record.pin.0, record.repeats), (Some(2), "v2", Some("r".into())));
    // The retry of the retry keeps what both have done.
    let third = block(story.again("again", 2, "third", from("more")).run());
    assert_eq!((third.status, &third.outputs), (RunStatus::Succeeded, &again.outputs));
    assert_eq!(story.ran("third"), ["more"].map(str::to_owned).into());
}

#[test]
fn each_part_of_a_node_counts_but_its_own_timeouts() {
    let base = "id: a, type: t.noop, input: { x: 1 }, config: { c: 1 }";
    let cases = [
        ("id: a, type: t.noop, input: { x: 1 }, config: { c: 1 }, policy: { timeoutMs: 9 }", None),
        ("id: a, type: t.same, input: { x: 1 }, config: { c: 1 }", Some(Part::Type)),
        ("id: a, type: t.noop, input: { x: 2 }, config: { c: 1 }", Some(Part::Input)),
        ("id: a, type: t.noop, input: { x: '{{ 1 }}' }, config: { c: 1 }", None),
        ("id: a, type: t.noop, input: { x: '{{ flow.input.n }}' }, config: { c: 1 }", Some(Part::Input)),
        ("id: a, type: t.noop, input: { x: 1 }, config: { c: 2 }", Some(Part::Config)),
        ("id: a, type: t.noop, input: { x: 1 }, config: { c: 1 }, when: 'flow.input.n == 7'", Some(Part::When)),
        ("id: a, type: t.noop, input: { x: 1 }, config: { c: 1 }, join: all", Some(Part::Join)),
    ];
    let with = |node: &str| {
        flow(&format!("  - {{ id: s, type: t.noop, input: {{}} }}\n  - {{ {node} }}"), "{ from: s, to: a }")
    };
    for (node, part) in cases {
        let story = Story::new(&[&with(base), &with(node)]);
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Succeeded);
        let found = story.plan("r", 2, &Repeat::default()).runs.pop().map(|planned| planned.reason);
        assert_eq!(found, part.map(|part| Reason::Changed { part }), "{node}");
    }
    // An edge, a body, a strict flow and a default that the node reads.
    let each = |inner: &str| {
        let body = format!("{{ nodes: [{{ id: i, type: t.noop, input: {{ {inner} }} }}] }}");
        flow(&format!("  - {{ id: a, type: t.each, input: {{ list: [1, 2] }}, body: {body} }}"), "")
    };
    let reads = |default: &str| {
        with("id: a, type: t.noop, input: { x: '{{ flow.input.k }}' }").replace("n: 7", &format!("n: 7{default}"))
    };
    let cases = [
        (with(base), with(base).replace("to: a }", "to: a, on: end }"), Part::Edges),
        (with(base), with(base).replace("to: a }", "to: a, when: 'true' }"), Part::Edges),
        (each("x: 1"), each("x: 2"), Part::Body),
        (with(base), with(base).replace("name: f", "name: f, strict: true"), Part::Strict),
        (reads(""), reads(", k: 1"), Part::FlowInput),
    ];
    for (old, new, part) in cases {
        let story = Story::new(&[&old, &new]);
        assert_eq!(story.run(1, "r", &[]).status, RunStatus::Succeeded, "{old}");
        let found = story.plan("r", 2, &Repeat::default()).runs.pop().map(|planned| planned.reason);
        assert_eq!(found, Some(Reason::Changed { part }), "{new}");
    }
    // The given input counts, and not the other default.
    let story = Story::new(&[&reads(", k: 1"), &reads(", k: 2")]);
    story.run(1, "r", &[]);
    assert_eq!(names(&story.plan("r", 2, &Repeat::default()).kept), ["s", "a"]);
}

#[test]
fn an_approval_does_not_count_for_a_changed_node() {
    let text = |pay: &str| {
        flow(
            &format!(
                "  - {{ id: a, type: t.noop, input: {{}} }}
  - {{ id: ask, type: t.ask, input: {{}} }}
  - {{ id: pay, type: {pay} }}"
            ),
            "{ from: a, to: ask }, { from: ask, to: pay }",
        )
    };
    let story = Story::new(&[&text("t.fail, input: {}"), &text("t.noop, input: { amount: 1 }")]);
    assert_eq!(story.run(1, "r", &["ask"]).status, RunStatus::Failed);
    let plan = story.plan("r", 2, &Repeat::default());
    assert_eq!(names(&plan.kept), ["a"]);
    assert_eq!(plan.runs[0].reason, Reason::AsksAgain);
    assert_eq!(block(story.again("r", 2, "asks", Repeat::default()).run()).status, RunStatus::Parked);
    let keeps = Repeat { keep_answers: true, ..from("pay") };
    assert_eq!(block(story.again("r", 2, "keeps", keeps).run()).status, RunStatus::Succeeded);
    assert_eq!(story.ran("keeps"), ["pay"].map(str::to_owned).into());
    // A decision that only an earlier run of the chain has counts as well.
    let plan = story.plan("keeps", 2, &from("pay"));
    assert_eq!(reasons(&plan)[0], "ask: it asks again, since a node that depends on its answer runs again");
    let none = Repeat { keep_answers: true, ..from("ask") };
    let refused = FlowRunner::plan_retry_in(&story.world(), &"r".into(), &story.version(2), &none);
    assert!(matches!(refused, Err(OpenError::NoNode(NoStart::KeepsNothing { .. }))), "{refused:?}");
    let refused = FlowRunner::plan_retry_in(&story.world(), &"r".into(), &story.version(2), &from("b"));
    assert!(matches!(refused, Err(OpenError::NoNode(NoStart::Unknown(_)))), "{refused:?}");
}

/// Returns a flow whose second node fails in the first version. Its first node calls a flow that has two versions.
fn story_of_call() -> Story {
    let text = flow(
        "  - { id: a, type: t.call, input: { x: 1 } }
  - { id: bad, type: t.fail, input: {} }",
        "{ from: a, to: bad }",
    );
    let child = |x: &str| format!("flow: {{ name: child }}\nnodes: [{{ id: i, type: t.noop, input: {{ x: {x} }} }}]\n");
    let mut story = Story::new(&[&text, &text.replace("t.fail", "t.noop")]);
    for (pin, x) in [("child", "1"), ("child-2", "2")] {
        story.shelf.graphs.insert(pin.into(), graph(&child(x)));
    }
    story
}

#[test]
fn a_node_runs_again_if_a_flow_that_it_called_changed() {
    let mut story = story_of_call();
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Failed);
    assert_eq!(names(&story.plan("r", 2, &Repeat::default()).kept), ["a"]);
    story.shelf.children.insert("v2".into(), "child-2".into());
    let plan = story.plan("r", 2, &Repeat::default());
    assert_eq!(plan.runs[0].reason, Reason::Changed { part: Part::Called });
    let again = block(story.again("r", 2, "again", Repeat::default()).run());
    assert_eq!(again.outputs, story.run(2, "fresh", &[]).outputs, "the new run calls the flow of its version");
}

#[test]
fn a_node_that_was_kept_runs_again_if_the_flow_that_it_called_changed() {
    let mut story = story_of_call();
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Failed);
    // This run keeps the output of `a`, and does not run it.
    assert_eq!(block(story.again("r", 1, "s", from("bad")).run()).status, RunStatus::Failed);
    assert_eq!(names(&story.plan("s", 2, &Repeat::default()).kept), ["a"]);
    story.shelf.children.insert("v2".into(), "child-2".into());
    let plan = story.plan("s", 2, &Repeat::default());
    assert_eq!(plan.runs[0].reason, Reason::Changed { part: Part::Called });
}

#[test]
fn the_same_id_continues_only_the_same_retry() {
    let text = |kind: &str| {
        flow(
            &format!("  - {{ id: a, type: t.noop, input: {{}} }}\n  - {{ id: b, type: {kind}, input: {{}} }}"),
            "{ from: a, to: b }",
        )
    };
    let story = Story::new(&[&text("t.fail"), &text("t.noop")]);
    story.run(1, "r", &[]);
    block(story.again("r", 2, "again", Repeat::default()).accept()).unwrap();
    assert!(!story.again("r", 2, "again", Repeat::default()).is_new());
    for (version, repeat) in [(1, Repeat::default()), (2, from("a"))] {
        let other =
            FlowRunner::retry_in(story.world(), &"r".into(), story.version(version), repeat, options("again", &[]));
        assert!(matches!(other.err(), Some(OpenError::OtherRepeat(_))));
    }
    let plain = FlowRunner::retry(story.world(), &"r".into(), Repeat::default(), options("again", &[]));
    assert!(matches!(plain.err(), Some(OpenError::OtherRepeat(_))));
    assert_eq!(story.resume("again").status, RunStatus::Succeeded);
    assert_eq!(story.ran("again"), ["b"].map(str::to_owned).into());
}

#[test]
fn an_older_program_cannot_read_the_record_of_such_a_run() {
    let text = flow("  - { id: a, type: t.noop, input: {} }", "");
    let story = Story::new(&[&text, &text]);
    story.run(1, "r", &[]);
    block(story.again("r", 2, "again", Repeat::default()).accept()).unwrap();
    let again = story.journal.find(&Tenant::local(), &RunId::from("again")).unwrap().unwrap().again.unwrap();
    let text = serde_json::to_value(&again).unwrap();
    // Older programs require `from`.
    assert!(text.get("from").is_none() && text["inVersion"]["kept"] == serde_json::json!(["a"]), "{text}");
    let older = serde_json::json!({ "run": "r", "from": "a" });
    assert_eq!(serde_json::from_value::<flowcell_runtime::ports::Again>(older).unwrap().from, Some("a".into()));
}
