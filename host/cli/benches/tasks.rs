//! Measures a sandboxed task through the whole runtime, compared with a bare wasmtime call of the same component with
//! the same settings. Each call has 1 KiB of JSON in and out, a fresh instance, and a result recorded in memory. Also
//! measures a durable run of a chain of tasks, compared with the sum of the same run in memory and two waits for the
//! disk, and a chain in a scope, whose nodes can be undone, compared with the same chain without. Prints microseconds and
//! ratios.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    fmt::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell::{Host, Json, LoadedFlow, RunOptions, RunStatus, Source};
use futures_util::{FutureExt, StreamExt, stream};

#[path = "../../engine/benches/attempt/bare.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bare;
#[path = "../../engine/tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;

/// The allocator of the command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each figure is the best result of this number of rounds. Rounds of bare calls and rounds of runs alternate.
const ROUNDS: usize = 10;
const FAN_OUT: usize = 10_000;
const AT_A_TIME: usize = 64;
const CHAIN: usize = 100;
/// The number of chains in each round. One chain is too short to be measured.
const CHAINS: usize = 20;

fn main() {
    let text = "x".repeat(1_000);
    let item = format!(r#"{{"text":"{text}","list":[1,2,3]}}"#);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hostile.wasm"), guests::HOSTILE.as_slice()).unwrap();
    let host = Host::builder().packs(folder.path()).build().unwrap();
    let item_value: Json = serde_json::from_str(&item).unwrap();

    let bare = Arc::new(bare::Bare::new(&guests::HOSTILE, "hostile.copy", &item));
    let threads = std::thread::available_parallelism().unwrap().get();
    let guests = runtime(threads);
    let caller = runtime(1);
    let call = || {
        let bare = bare.clone();
        guests.spawn(async move { bare.call().await }).map(|joined| joined.unwrap())
    };
    let bare_calls = |count: usize, at_a_time: usize| {
        let calls = stream::repeat_with(&call).take(count).buffer_unordered(at_a_time);
        timed(|| caller.block_on(calls.for_each(|()| async {})))
    };
    let run_on = |host: &Host, flow: &LoadedFlow, input: &Json| {
        let options = RunOptions { input: input.clone(), without_events: true, ..RunOptions::default() };
        let runner = host.runner(flow, options).unwrap();
        timed(|| {
            let result = caller.block_on(runner.run());
            assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
        })
    };

    let run = |flow: &LoadedFlow, input: &Json| run_on(&host, flow, input);

    let chain = load(&host, &chain_flow(CHAIN));
    let input = Json::object([("item", item_value.clone())]);
    let chains = || (0..CHAINS).map(|_| run(&chain, &input)).sum();
    let bare_chains = || (0..CHAINS).map(|_| bare_calls(CHAIN, 1)).sum();
    let (ours, theirs) = best(chains, bare_chains);
    report(&format!("chain of {CHAIN}"), CHAIN * CHAINS, ours, theirs);

    let scoped = load(&host, &scope_flow(CHAIN));
    let plain_chains = || (0..CHAINS).map(|_| run(&chain, &input)).sum();
    let (scope, plain) = best(|| (0..CHAINS).map(|_| run(&scoped, &input)).sum(), plain_chains);
    let ratio = scope.as_secs_f64() / plain.as_secs_f64();
    println!("chain of {CHAIN} in a scope with undos: {scope:.2?}, without {plain:.2?}, ratio {ratio:.2}");

    let keeping = Host::builder().packs(folder.path()).state_dir(folder.path().join("state")).build().unwrap();
    let one = load(&host, &chain_flow(1));
    let (kept, memory) = best(|| run_on(&keeping, &chain, &input), || run(&chain, &input));
    let (kept_one, memory_one) = best(|| run_on(&keeping, &one, &input), || run(&one, &input));
    let forces = kept_one.saturating_sub(memory_one);
    let ratio = kept.as_secs_f64() / (memory + forces).as_secs_f64();
    println!(
        "chain of {CHAIN}, durable: {kept:.2?}, in memory {memory:.2?} and two forces {forces:.2?}, ratio {ratio:.2}"
    );

    let list = Json::object([("list", Json::array(std::iter::repeat_n(item_value, FAN_OUT)))]);
    let fan_out = load(&host, FAN_OUT_FLOW);
    let (ours, theirs) = best(|| run(&fan_out, &list), || bare_calls(FAN_OUT, AT_A_TIME));
    report(&format!("fan-out of {FAN_OUT}, {AT_A_TIME} at a time"), FAN_OUT, ours, theirs);
}

const FAN_OUT_FLOW: &str = "
flow: { name: fan-out, input: { list: [] }, policy: { maxConcurrency: 64 } }
nodes:
  - { id: all, type: control.foreach, input: { list: '{{ flow.input.list }}', concurrency: 64 }, body: [one] }
  - { id: one, type: hostile.copy, input: '{{ all.item }}' }
edges: []
";

/// Returns a chain of nodes. Each receives the whole output of the previous one.
fn chain_flow(length: usize) -> String {
    let mut nodes = String::from("flow: { name: chain, input: { item: null } }\nnodes:\n");
    let mut edges = String::from("edges:\n");
    for at in 0..length {
        let from = if at == 0 { "flow.input.item".to_owned() } else { format!("n{}", at - 1) };
        writeln!(nodes, "  - {{ id: n{at}, type: hostile.copy, input: '{{{{ {from} }}}}' }}").unwrap();
        if at > 0 {
            writeln!(edges, "  - {{ from: n{}, to: n{at} }}", at - 1).unwrap();
        }
    }
    nodes + &edges
}

/// Returns the same chain as the body of a scope. Another node undoes each node.
fn scope_flow(length: usize) -> String {
    let (head, edges) =
        chain_flow(length).split_once("edges:\n").map(|(head, edges)| (head.to_owned(), edges.to_owned())).unwrap();
    let mut nodes = head.replace("nodes:\n", "nodes:\n  - id: scope\n    type: control.scope\n    body:\n");
    let mut body = String::new();
    for at in 0..length {
        nodes = nodes.replace(&format!("id: n{at}, "), &format!("id: n{at}, undo: u{at}, "));
        writeln!(body, "      - n{at}\n      - u{at}").unwrap();
        writeln!(nodes, "  - {{ id: u{at}, type: hostile.copy, input: '{{{{ undo.output }}}}' }}").unwrap();
    }
    nodes.replace("    body:\n", &format!("    body:\n{body}")) + "edges:\n" + &edges
}

fn load(host: &Host, text: &str) -> LoadedFlow {
    host.load_source(Source { name: "bench.yaml".into(), text: text.into() }).unwrap()
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).event_interval(1).enable_time().build().unwrap()
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Returns the best time of each of the two measurements.
fn best(ours: impl Fn() -> Duration, theirs: impl Fn() -> Duration) -> (Duration, Duration) {
    let rounds = (0..ROUNDS).map(|_| (ours(), theirs()));
    rounds.fold((Duration::MAX, Duration::MAX), |best, round| (best.0.min(round.0), best.1.min(round.1)))
}

fn report(name: &str, tasks: usize, ours: Duration, bare: Duration) {
    let each = |total: Duration| total.as_secs_f64() * 1e6 / tasks as f64;
    println!("{name}: {:.1} µs a task, bare {:.1} µs, ratio {:.2}", each(ours), each(bare), each(ours) / each(bare));
}
