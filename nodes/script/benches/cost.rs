//! Measures the cost of scripts, in three comparisons. A trivial script is compared with a component that does nothing.
//! A script that computes is compared with the same JavaScript engine compiled for this machine. A hundred concurrent
//! scripts that each await ten services are compared with one such script. Prints the times in milliseconds, and their
//! ratios.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use boa_engine::{Context, Source as Text};
use flowcell::{
    Host, LoadedFlow, RunOptions, RunStatus, Source,
    contract::{Admission, Call, Caller, Capability, Effect, Failure, Json, Outgoing, Value},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use serde_json::json;

/// The memory allocator that the command line uses, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of times that each measurement is repeated. The shortest time counts.
const ROUNDS: usize = 10;
/// The time that a service takes to answer.
const SERVICE: Duration = Duration::from_millis(20);
const SCRIPTS: usize = 100;
const COMPUTING: &str = "let n = 0; for (let i = 0; i < 1000000; i++) n = (n * 31 + i) % 65521; n";

/// A service that answers after [`SERVICE`].
struct Slow;

impl Capability for Slow {
    fn admit(&self, _: &Call, _: &Caller) -> Result<Admission, Failure> {
        Ok(Admission::new(Effect::Idempotent, Json::Null))
    }

    fn perform(&self, _: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        async { tokio::time::sleep(SERVICE).await }.map(|()| Ok(Value::from(Json::from(1u32)))).boxed()
    }
}

fn main() {
    let host = Host::builder().capability("services", Arc::new(Slow)).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let run = |flow: &LoadedFlow| {
        let runner = host.runner(flow, RunOptions { without_events: true, ..RunOptions::default() }).unwrap();
        async { assert_eq!(runner.run().await.status, RunStatus::Succeeded) }
    };
    let best = |flow: &LoadedFlow| fastest(|| runtime.block_on(run(flow)));

    let nothing = load(&host, json!({ "id": "a", "type": "control.noop" }));
    let trivial = load(&host, script("1"));
    report("trivial script", best(&trivial), "empty component", best(&nothing));

    let computing = load(&host, script(&format!("eval({COMPUTING:?})")));
    let native = fastest(|| drop(Context::default().eval(Text::from_bytes(COMPUTING)).unwrap()));
    report("computing", best(&computing), "native", native);

    let ten = "Promise.all([...Array(10).keys()].map(n => services.slow(n)))";
    let awaiting = load(&host, script(ten));
    let all = || stream::repeat_with(|| run(&awaiting)).take(SCRIPTS).buffer_unordered(SCRIPTS).for_each(|()| async {});
    let hundred = fastest(|| runtime.block_on(all()));
    report("100 scripts of ten services", hundred, "one such script", best(&awaiting));
}

fn script(expression: &str) -> serde_json::Value {
    let source = format!("export const run = async services => {expression};");
    json!({ "id": "a", "type": "script.run", "input": { "source": source }, "grants": { "services": ["*"] } })
}

fn load(host: &Host, node: serde_json::Value) -> LoadedFlow {
    let text = json!({ "flow": { "name": "bench" }, "nodes": [node] }).to_string();
    host.load_source(Source { name: "bench.json".into(), text }).unwrap()
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).map(round).min().unwrap()
}

fn report(name: &str, took: Duration, other: &str, than: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{name}: {:.2} ms, {other} {:.2} ms, ratio {:.1}", ms(took), ms(than), ms(took) / ms(than));
}
