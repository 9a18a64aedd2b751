//! Compares an attempt of the engine with a direct call of the same component through wasmtime. Both use 1 KiB of JSON
//! as input and output, and a fresh instance for each attempt or call. Prints the microseconds of both, and their
//! ratio.
//!
//! `cargo bench -p flowcell-engine --bench attempt -- control.noop '{"value":1}' old.wasm new.wasm` compares attempts of
//! a node type in two builds of its pack instead.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{
    Attempt, Call, Calls, Digest, Failure, Grants, NodeId, NodeRunner, RunId, ScopePath, Tenant, Value,
};
use flowcell_engine::{Config, Engine};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};

#[path = "attempt/bare.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bare;
#[path = "../tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;

const ROUNDS: u32 = 5;
const ATTEMPTS: u32 = 4_000;
/// The number of rounds of each of two builds of a pack, which take turns. The fastest round of each counts.
const TURNS: u32 = 25;

struct NoCalls;

impl Calls for NoCalls {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        async { Ok(Value::null()) }.boxed()
    }
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [node, input, old, new] => compare(node, input, [old, new]),
        _ => compare_with_bare_calls(),
    }
}

fn compare_with_bare_calls() {
    let input = format!(r#"{{"text":"{}","list":[1,2,3]}}"#, "x".repeat(1000));
    let engine = Engine::new(Config::default()).unwrap();
    let pack = engine.add_pack(guests::HOSTILE.as_slice(), "hostile.wasm").unwrap();
    engine.prepare(&pack.digest).unwrap();
    let bare = Arc::new(bare::Bare::new(&guests::HOSTILE, "hostile.copy", &input));
    let calls: Arc<dyn Calls> = Arc::new(NoCalls);
    let attempt = attempt(pack.digest, "hostile.copy");
    let run = || engine.run(Attempt { input: Value::parse(input.as_str()).unwrap(), ..attempt.clone() }, calls.clone());

    let threads = std::thread::available_parallelism().unwrap().get();
    // The bare calls run on threads of their own too, so that the comparison leaves out the switch of threads.
    let guests = runtime(threads);
    let run_bare = || {
        let bare = bare.clone();
        guests.spawn(async move { bare.call().await }).map(|joined| joined.unwrap())
    };
    let caller = runtime(1);
    let (mut one, mut one_bare, mut many, mut many_bare) = (Duration::MAX, Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        one_bare = one_bare.min(timed(|| caller.block_on(in_turn(1, run_bare))));
        one = one.min(timed(|| caller.block_on(in_turn(1, || run().map(|step| drop(step.unwrap()))))));
        many_bare = many_bare.min(timed(|| caller.block_on(in_turn(64, run_bare))));
        many = many.min(timed(|| caller.block_on(in_turn(64, || run().map(|step| drop(step.unwrap()))))));
    }
    report("one after the other", one, one_bare);
    report(&format!("64 at a time, {threads} threads"), many, many_bare);
}

/// Returns an attempt of a node without its input.
fn attempt(pack: Digest, node_type: &str) -> Attempt {
    Attempt {
        tenant: Tenant::local(),
        run_id: RunId::from("r1"),
        flow: "bench".into(),
        node_id: NodeId::from("n1"),
        node_type: node_type.into(),
        pack,
        scope: ScopePath::root(),
        attempt: 1,
        resumes: 0,
        input: Value::null(),
        config: Value::null(),
        state: None,
        woken: None,
        has_body: false,
        grants: Arc::new(Grants::default()),
        now_ms: 0,
        seed: 1,
        alone: false,
    }
}

/// Compares attempts of a node in two builds of its pack, and bare calls of the two.
fn compare(node: &str, input: &str, packs: [&String; 2]) {
    let engine = Engine::new(Config::default()).unwrap();
    let calls: Arc<dyn Calls> = Arc::new(NoCalls);
    let caller = runtime(1);
    let builds = packs.map(|path| {
        let bytes = std::fs::read(path).unwrap();
        // The path names the build, and takes the place of a digest.
        let pack = engine.add_built_in(bytes.clone(), Digest(path.as_str().into()), path).unwrap();
        engine.prepare(&pack.digest).unwrap();
        (bytes.len(), attempt(pack.digest, node), bare::Bare::new(&bytes, node, input))
    });
    let mut best = [[Duration::MAX; 2]; 2];
    for _ in 0..TURNS {
        for ((_, attempt, bare), best) in builds.iter().zip(&mut best) {
            let run = || {
                let attempt = Attempt { input: Value::parse(input).unwrap(), ..attempt.clone() };
                engine.run(attempt, calls.clone()).map(|step| drop(step.unwrap()))
            };
            best[0] = best[0].min(timed(|| caller.block_on(in_turn(1, run))));
            best[1] = best[1].min(timed(|| caller.block_on(in_turn(1, || bare.call()))));
        }
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(ATTEMPTS);
    for (index, name) in ["attempt", "bare call"].into_iter().enumerate() {
        let [old, new] = [each(best[0][index]), each(best[1][index])];
        println!("{node}, {name}: {old:.2} us, then {new:.2} us, ratio {:.3}", new / old);
    }
    println!(
        "size: {} bytes, then {} bytes, {:+} KiB",
        builds[0].0,
        builds[1].0,
        (builds[1].0 as i64 - builds[0].0 as i64) >> 10
    );
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).event_interval(1).enable_time().build().unwrap()
}

async fn in_turn<F: Future<Output = ()>>(at_a_time: usize, work: impl FnMut() -> F) {
    stream::repeat_with(work).take(ATTEMPTS as usize).buffer_unordered(at_a_time).for_each(|()| async {}).await;
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn report(name: &str, engine: Duration, bare: Duration) {
    let each = |total: Duration| total.as_secs_f64() * 1e6 / f64::from(ATTEMPTS);
    println!("{name}: {:.1} us, bare {:.1} us, ratio {:.2}", each(engine), each(bare), each(engine) / each(bare));
}
