//! Measures runs whose nodes make one external call each, which is answered at once.

use std::{
    fmt::Write,
    future::ready,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use flowcell::{
    Host, Json, LoadedFlow, RunOptions, RunStatus,
    contract::{Admission, Call, Caller, Capability, Effect, Failure, Outgoing, Value},
};
use futures_util::future::{BoxFuture, join_all};
use rusqlite::Connection;

use super::{ROUNDS, bare, guests, load, median, medians, ms, runtime, timed};

const CHAIN_LENGTH: usize = 100;
const LONG_CHAIN_LENGTH: usize = 1_000;
const CHAINS_AT_ONCE: usize = 64;
/// Additional time of a commit on the slower disk.
const COMMIT_DELAY: Duration = Duration::from_millis(1);

/// The bytes that the bare store writes for each step: about as many as a step of the chain takes in the journal.
pub(super) const BODY_BYTES: usize = 1_200;
/// The size at which SQLite begins its log anew.
const LOG_BYTES: usize = 5 << 20;
const ERRAND_BODY: &str = r#"{"url":"https://api.example.com/errands","errand":"parcels"}"#;

/// A capability that answers at once, and records the times of its calls.
#[derive(Default)]
struct Answers(Mutex<Vec<Instant>>);

impl Capability for Answers {
    fn admit(&self, _: &Call, _: &Caller) -> Result<Admission, Failure> {
        let about = Json::object([("url", Json::from("https://api.example.com/errands"))]);
        Ok(Admission::new(Effect::Idempotent, about))
    }

    fn perform(&self, _: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        self.0.lock().unwrap().push(Instant::now());
        let reply = r#"{"status":200,"headers":[["content-type","application/json"]],"body":{"text":"{\"ok\":true}"}}"#;
        Box::pin(ready(Ok(Value::parse(reply).unwrap())))
    }
}

/// A host, and the implementation of its `http` capability.
struct World {
    host: Host,
    answers: Arc<Answers>,
}

impl World {
    fn new(packs: &Path, state: Option<PathBuf>) -> World {
        let answers = Arc::new(Answers::default());
        let builder = Host::builder().packs(packs).capability("http", answers.clone());
        let builder = state.into_iter().fold(builder, |builder, state| builder.state_dir(state));
        World { host: builder.build().unwrap(), answers }
    }

    fn slow_down(&self, each: Duration) {
        self.host.store().unwrap().slow_down(each);
    }

    fn commits(&self) -> u64 {
        self.host.store().map_or(0, |store| store.commits())
    }
}

/// Returns a chain of nodes that make one call each.
fn chain(length: usize) -> String {
    let mut nodes = format!("flow: {{ name: errands, input: {ERRAND_BODY} }}\nnodes:\n");
    let mut edges = String::from("edges:\n");
    for at in 0..length {
        let input = "{ url: '{{ flow.input.url }}', errand: '{{ flow.input.errand }}' }";
        let grants = "{ http: ['https://api.example.com'] }";
        writeln!(nodes, "  - {{ id: n{at}, type: courier.send, input: {input}, grants: {grants} }}").unwrap();
        if at > 0 {
            writeln!(edges, "  - {{ from: n{}, to: n{at} }}", at - 1).unwrap();
        }
    }
    nodes + &edges
}

/// Builds the component of the nodes.
fn courier() -> Vec<u8> {
    let manifest = guests::root().join("tests/guests/courier/Cargo.toml");
    guests::build(&["--release", "--manifest-path", manifest.to_str().unwrap()], "release/courier.wasm")
}

/// Returns the folder of the packs.
fn packs(folder: &Path) -> PathBuf {
    let packs = folder.join("packs");
    std::fs::create_dir(&packs).unwrap();
    std::fs::write(packs.join("courier.wasm"), courier()).unwrap();
    packs
}

pub(super) async fn run(host: &Host, flow: &LoadedFlow) {
    let runner = host.runner(flow, RunOptions { without_events: true, ..RunOptions::default() }).unwrap();
    let result = tokio::spawn(runner.run()).await.unwrap();
    assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
}

/// A bare database with the settings of the store's database.
pub(super) struct BareStore(Connection);

impl BareStore {
    pub(super) fn new(folder: &Path) -> BareStore {
        let connection = Connection::open(folder.join("bare.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.pragma_update(None, "synchronous", "full").unwrap();
        connection.execute_batch("CREATE TABLE units (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT").unwrap();
        let store = BareStore(connection);
        // Grow the log to its full size: overwriting it costs the disk less than extending it.
        store.commit(&"x".repeat(LOG_BYTES), Duration::ZERO);
        store
    }

    pub(super) fn commit(&self, body: &str, slower: Duration) {
        self.0.prepare_cached("INSERT INTO units (body) VALUES (?)").unwrap().execute([body]).unwrap();
        if !slower.is_zero() {
            std::thread::sleep(slower);
        }
    }
}

/// Compares a chain of calls with as many bare commits and bare calls of the same component. Also measures a long
/// chain, whose first and last steps should cost the same.
pub(super) fn calls(folder: &Path) {
    let packs = packs(folder);
    // Run as the command line runs one run.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let body = "x".repeat(BODY_BYTES);
    let kept = World::new(&packs, Some(folder.join("state")));
    let memory = World::new(&packs, None);
    let short = load(&kept.host, &chain(CHAIN_LENGTH));
    let long = load(&kept.host, &chain(LONG_CHAIN_LENGTH));
    let bare = bare::Bare::new(&courier(), "courier.send", ERRAND_BODY);
    let store = BareStore::new(folder);
    for (disk, slower) in [("", Duration::ZERO), (", commits 1 ms longer", COMMIT_DELAY)] {
        kept.slow_down(slower);
        let ours = || timed(|| runtime.block_on(run(&kept.host, &short)));
        let theirs = || {
            timed(|| {
                runtime.block_on(async {
                    for _ in 0..CHAIN_LENGTH {
                        bare.call().await;
                        store.commit(&body, slower);
                    }
                });
            })
        };
        // The first run fills the caches and the store's log.
        runtime.block_on(run(&kept.host, &long));
        let before = kept.commits();
        let (ours, theirs) = medians(ours, theirs);
        let commits = (kept.commits() - before) as f64 / (CHAIN_LENGTH * ROUNDS) as f64;
        println!(
            "chain of {CHAIN_LENGTH} calls{disk}: {:.0} µs a step, a bare commit and a bare call {:.0} µs, ratio {:.2}; \
             {commits:.2} commits a step",
            each(ours),
            each(theirs),
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
        if slower.is_zero() {
            let (calls, commits) = medians(
                || timed(|| runtime.block_on(run(&memory.host, &short))),
                || timed(|| (0..CHAIN_LENGTH).for_each(|_| store.commit(&body, slower))),
            );
            println!(
                "chain of {CHAIN_LENGTH} calls in memory: {:.0} µs a step; a bare commit {:.0} µs",
                each(calls),
                each(commits)
            );
        }
        let quarters = (0..ROUNDS).map(|_| {
            kept.answers.0.lock().unwrap().clear();
            runtime.block_on(run(&kept.host, &long));
            let times = kept.answers.0.lock().unwrap();
            let quarter = LONG_CHAIN_LENGTH / 4;
            let first = times[quarter - 1] - times[0];
            let last = times[LONG_CHAIN_LENGTH - 1] - times[LONG_CHAIN_LENGTH - quarter];
            (first, last)
        });
        let (first, last): (Vec<_>, Vec<_>) = quarters.unzip();
        let (first, last) = (median(first), median(last));
        println!(
            "chain of {LONG_CHAIN_LENGTH} calls{disk}: first quarter {:.1} ms, last quarter {:.1} ms, ratio {:.2}",
            ms(first),
            ms(last),
            last.as_secs_f64() / first.as_secs_f64()
        );
    }
}

fn each(lap: Duration) -> f64 {
    lap.as_secs_f64() * 1e6 / CHAIN_LENGTH as f64
}

/// Compares many chains of calls at once with one chain, and with as many chains on a store in memory.
pub(super) fn together(folder: &Path) {
    let packs = packs(folder);
    let runtime = runtime();
    let kept = World::new(&packs, Some(folder.join("state")));
    let memory = World::new(&packs, None);
    let flow = load(&kept.host, &chain(CHAIN_LENGTH));
    let in_memory = load(&memory.host, &chain(CHAIN_LENGTH));
    let steps = |world: &World, flow: &LoadedFlow, runs: usize| {
        let all = || runtime.block_on(join_all((0..runs).map(|_| run(&world.host, flow))));
        (CHAIN_LENGTH * runs) as f64 / timed(|| drop(all())).as_secs_f64()
    };
    for (disk, slower) in [("", Duration::ZERO), (", commits 1 ms longer", COMMIT_DELAY)] {
        kept.slow_down(slower);
        // The first runs fill the caches and the store's log.
        steps(&kept, &flow, 10);
        steps(&memory, &in_memory, 10);
        let laps = (0..ROUNDS).map(|_| {
            let one = steps(&kept, &flow, 1);
            let before = kept.commits();
            let many = steps(&kept, &flow, CHAINS_AT_ONCE);
            let commits = (kept.commits() - before) as f64 / (CHAIN_LENGTH * CHAINS_AT_ONCE) as f64;
            (one, many, commits, steps(&memory, &in_memory, CHAINS_AT_ONCE))
        });
        let laps: Vec<_> = laps.collect();
        let part = |part: fn(&(f64, f64, f64, f64)) -> f64| median(laps.iter().map(part).collect());
        let (one, many) = (part(|lap| lap.0), part(|lap| lap.1));
        let (commits, memory) = (part(|lap| lap.2), part(|lap| lap.3));
        println!(
            "{CHAINS_AT_ONCE} chains of calls at once{disk}: {many:.0} steps/s, one {one:.0}, ratio {:.1}; in memory {memory:.0}, \
             {:.0} %; {commits:.3} commits a step",
            many / one,
            many / memory * 100.0
        );
    }
}
