//! Measures the runtime without WebAssembly: the node runner of this file returns the input of a node as its output.
//! Each node has at most one incoming edge. Its input has one expression, whose value is used unchanged, not as a part
//! of a text.
//!
//! Prints tasks per second on one core, and compares the cost of a task in a large and in a small fan-out.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run has nothing to say")]

use std::{fmt::Write, future, sync::Arc, time::Instant};

use flowcell_contract::{
    Attempt, Calls, Catalog, Digest, FanOut, Json, Manifest, NodeRunner, Pause, Step, StepResult, Value, Wake,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{FlowRunner, NoFlows, Pinned, PolicyOverride, RunOptions, RunStatus, World, ports::Pin};
use futures_util::future::BoxFuture;

const MANIFEST: &str = "
name: bench
version: 1.0.0
nodes:
  - { type: bench.noop, title: Hands its value on, input: { type: object } }
  - { type: bench.each, title: Runs its body, input: { type: object }, traits: [body], body: { variables: [item, index, count] } }
";

struct Noop;

impl NodeRunner for Noop {
    fn run(&self, attempt: Attempt, _calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let each = &*attempt.node_type == "bench.each";
        let step = match attempt.woken {
            None if each => Step::Pause(Pause {
                until: vec![Wake::Each(FanOut {
                    items: Value::from(attempt.input.json().get("list").cloned().unwrap_or_default()),
                    concurrency: Some(8),
                    stop_on_failure: true,
                    max_failures: None,
                })],
                state: Value::null(),
            }),
            Some(woken) => Step::Done(woken),
            None => Step::Done(attempt.input),
        };
        Box::pin(future::ready(Ok(step)))
    }
}

fn load(text: String) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let source = Source { name: "bench.yaml".into(), text };
    let checked = flowcell_flow::load(&source, &catalog, &NoContext);
    for diagnostic in &checked.diagnostics {
        eprintln!("{diagnostic}");
    }
    Arc::new(checked.graph.unwrap())
}

/// Returns a flow with this number of nodes, as chains of ten. The input of each node has one expression. Each node but
/// the first of its chain has one incoming edge.
fn chains(tasks: usize) -> Arc<Graph> {
    let mut text = String::from("flow: { name: bench, input: { value: 1 } }\nnodes:\n");
    let mut edges = String::from("edges:\n");
    for task in 0..tasks {
        let binding = if task % 10 == 0 { "flow.input.value".into() } else { format!("n{}.value", task - 1) };
        writeln!(text, "  - {{ id: n{task}, type: bench.noop, input: {{ value: \"{{{{ {binding} }}}}\" }} }}").unwrap();
        if task % 10 != 0 {
            writeln!(edges, "  - {{ from: n{}, to: n{task} }}", task - 1).unwrap();
        }
    }
    load(text + &edges)
}

fn foreach(items: usize) -> (Arc<Graph>, Json) {
    let text = "
flow: { name: bench, input: { list: [] } }
nodes:
  - { id: all, type: bench.each, input: { list: \"{{ flow.input.list }}\" }, body: [one] }
  - { id: one, type: bench.noop, input: { value: \"{{ all.item }}\" } }
edges: []
";
    let list = Json::array((0..items as u64).map(Json::from));
    (load(text.into()), Json::object([("list", list)]))
}

/// Runs the flow once. Returns the time in seconds.
fn time(graph: &Arc<Graph>, input: &Json) -> f64 {
    let world = Arc::new(World::in_memory(Arc::new(Noop), Arc::new(NoFlows)));
    let policy = PolicyOverride { max_concurrency: Some(64), ..PolicyOverride::default() };
    let options = RunOptions { input: input.clone(), policy, without_events: true, ..RunOptions::default() };
    let flow = Pinned { graph: graph.clone(), pin: Pin("bench".into()) };
    let runner = FlowRunner::new(flow, world, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let began = Instant::now();
    let result = runtime.block_on(runner.run());
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
    seconds
}

/// Returns the shortest time of several runs in seconds, since other work of the machine only makes runs longer.
fn best(rounds: usize, graph: &Arc<Graph>, input: &Json) -> f64 {
    (0..rounds).map(|_| time(graph, input)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let tasks = 10_000;
    let seconds = best(10, &chains(tasks), &Json::Null);
    println!(
        "noop tasks, one core: {:.0} tasks/s ({:.2} µs a task)",
        tasks as f64 / seconds,
        seconds * 1e6 / tasks as f64
    );
    let per_item = |items: usize, rounds| {
        let (graph, input) = foreach(items);
        best(rounds, &graph, &input) * 1e6 / items as f64
    };
    let (small, large) = (per_item(100, 200), per_item(10_000, 10));
    println!(
        "foreach, 100 items: {small:.2} µs an item; 10,000 items: {large:.2} µs an item; ratio {:.2}",
        large / small
    );
}
