//! Golden stores: stores with runs in flight that a released version of the program wrote, as SQL. Each version of the
//! store's format has one, and its runs go on to the right outputs.
//!
//! `BLESS=1 cargo test -p flowcell-runtime --test runtime golden::` writes the store of the present version, if it is
//! missing. Commit it with the migration that makes the version, and change no golden store after that.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod dump;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    task::Poll,
};

use flowcell_contract::{
    Attempt, Calls, Catalog, Digest, Failure, FanOut, FlowCall, Json, Manifest, NodeRunner, Pause, Question, Step,
    StepResult, Tenant, Value, Wake,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{
    FlowRunner, Flows, NoFlows, OtherVersion, Pinned, Repeat, RunOptions, RunResult, RunStatus, World,
    fact::Fact,
    ports::{Filter, Journal, Pin, Runs},
    sqlite::{Reader, SqliteStore, stop_process},
};
use futures_util::future::{self, BoxFuture};

use crate::clock::Clock;

const MANIFEST: &str = "
name: t
version: 1.0.0
nodes:
  - { type: t.noop, title: Returns its input, input: { type: object } }
  - { type: t.fail, title: Fails, input: { type: object } }
  - { type: t.hang, title: Never ends, input: { type: object } }
  - { type: t.ask, title: Asks, input: { type: object } }
  - { type: t.wait, title: Waits for a time, input: { type: object } }
  - { type: t.call, title: Calls a flow, input: { type: object } }
  - { type: t.each, title: Runs its body for each item, input: { type: object }, traits: [body],
      body: { variables: [item, index, count] } }
";

/// The flows by their pins. A golden store refers to their nodes by number, so that no flow may change.
const FLOWS: [(&str, &str); 8] = [
    (
        "gate",
        "nodes: [{ id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }, { id: ask, type: t.ask, input: {} },
        { id: b, type: t.noop, input: { x: '{{ a.x }}', said: '{{ ask.response.content }}' } }]
edges: [{ from: a, to: ask }, { from: ask, to: b }]",
    ),
    (
        "timer",
        "nodes: [{ id: wait, type: t.wait, input: {} }, { id: b, type: t.noop, input: { x: 1 } }]
edges: [{ from: wait, to: b }]",
    ),
    (
        "fails",
        "nodes: [{ id: a, type: t.noop, input: { x: 1 } }, { id: bad, type: t.fail, input: {} },
        { id: b, type: t.noop, input: { x: '{{ a.x }}' } }]
edges: [{ from: a, to: bad }, { from: bad, to: b }]",
    ),
    (
        "repaired",
        "nodes: [{ id: b, type: t.noop, input: { x: '{{ a.x }}' } }, { id: bad, type: t.ask, input: {} },
        { id: a, type: t.noop, input: { x: 1 } }]
edges: [{ from: a, to: bad }, { from: bad, to: b }]",
    ),
    (
        "parent",
        "nodes: [{ id: sub, type: t.call, input: { n: 3 } },
        { id: b, type: t.noop, input: { x: '{{ sub.outputs.b.x }}' } }]
edges: [{ from: sub, to: b }]",
    ),
    (
        "each",
        "nodes: [{ id: all, type: t.each, input: { list: [1, 2] }, body: { nodes: [
        { id: ask, type: t.ask, input: {} }, { id: i, type: t.noop, input: { x: '{{ all.item }}' } }],
        edges: [{ from: ask, to: i }] } }]
edges: []",
    ),
    (
        "hangs",
        "nodes: [{ id: a, type: t.noop, input: { x: 1 } }, { id: h, type: t.hang, input: {} },
        { id: b, type: t.noop, input: { x: '{{ a.x + 1 }}' } }]
edges: [{ from: a, to: h }, { from: h, to: b }]",
    ),
    (
        "done",
        "nodes: [{ id: a, type: t.noop, input: { x: '{{ flow.input.n }}' } }]
edges: []",
    ),
];

/// Runs the nodes. A node that never ends does so only when the store is written.
struct Nodes {
    writes: bool,
}

thread_local! {
    /// The seeds of the attempts of the last node of the run `gate`, on the thread of a test.
    static SEEDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the seed of the first attempt of the last node of the run `gate`, as older versions computed it.
fn older_seed(run: u64) -> u64 {
    let mix = |seed: u64| {
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    mix(run ^ mix(2 ^ mix(1)))
}

impl NodeRunner for Nodes {
    fn run(&self, attempt: Attempt, _: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        if (attempt.run_id.as_str(), attempt.node_id.as_str()) == ("gate", "b") {
            SEEDS.with_borrow_mut(|seeds| seeds.push(attempt.seed));
        }
        let input = attempt.input.json();
        let pause = |wake: Wake| Ok(Step::Pause(Pause { until: vec![wake], state: Value::null() }));
        let woken = attempt.woken.as_ref().map(|woken| woken.json().get("value").cloned().unwrap_or_default());
        let question = || Question { prompt: "Well?".into(), allow_text: true, ..Question::default() };
        let result = match (&*attempt.node_type, woken) {
            ("t.hang", _) if self.writes => return Box::pin(future::pending()),
            ("t.fail", _) => Err(Failure::new("planned", "it fails")),
            ("t.ask", None) => pause(Wake::Answer(question())),
            ("t.ask", Some(answer)) => Ok(Step::Done(Json::object([("response", answer)]).into())),
            ("t.wait", None) => pause(Wake::After(1_000)),
            ("t.call", None) => pause(Wake::Flow(FlowCall { name: "gate".into(), input: input.clone().into() })),
            ("t.each", None) => {
                let items = Value::from(input.get("list").cloned().unwrap());
                pause(Wake::Each(FanOut { items, concurrency: None, stop_on_failure: true, max_failures: None }))
            }
            (_, Some(value)) => Ok(Step::Done(value.into())),
            _ => Ok(Step::Done(attempt.input.clone())),
        };
        Box::pin(future::ready(result))
    }
}

struct Shelf;

impl Flows for Shelf {
    fn resolve(&self, name: &str, _: &Pin) -> Result<Pinned, Failure> {
        let pin = Pin(name.into());
        Ok(Pinned { graph: self.pinned(&pin)?, pin })
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        let found = FLOWS.iter().find(|(name, _)| *name == &*pin.0);
        let Some((name, text)) = found else { return NoFlows.pinned(pin) };
        let mut catalog = Catalog::default();
        catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
        // The repaired version has the name of the flow that it repairs.
        let name = if *name == "repaired" { "fails" } else { name };
        let text = format!("flow: {{ name: {name}, input: {{ n: 7 }} }}\n{text}\n");
        let checked = flowcell_flow::load(&Source { name: "f.yaml".into(), text }, &catalog, &NoContext);
        Ok(Arc::new(checked.graph.unwrap_or_else(|| panic!("{name}: {:?}", checked.diagnostics))))
    }
}

fn world(store: &Arc<SqliteStore>, writes: bool) -> Arc<World> {
    let mut world = World::in_memory(Arc::new(Nodes { writes }), Arc::new(Shelf));
    world.journal = store.clone();
    world.state = store.clone();
    world.timers = Arc::new(Clock::new(writes));
    Arc::new(world)
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn open(folder: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(folder, stop_process).unwrap())
}

fn options(run: &str) -> RunOptions {
    RunOptions { run_id: Some(run.into()), patience: Some(std::time::Duration::ZERO), ..RunOptions::default() }
}

/// Fills a store with runs in flight, each of the flow of its name.
fn fill(store: &Arc<SqliteStore>) {
    let runner = |run: &str| {
        FlowRunner::new(Shelf.resolve(run, &Pin("".into())).unwrap(), world(store, true), options(run)).unwrap()
    };
    for (run, status) in [
        ("gate", RunStatus::Parked),
        ("timer", RunStatus::Parked),
        ("fails", RunStatus::Failed),
        ("parent", RunStatus::Parked),
        ("each", RunStatus::Parked),
        ("done", RunStatus::Succeeded),
    ] {
        assert_eq!(block(runner(run).run()).status, status, "{run}");
    }
    let flow = Shelf.resolve("repaired", &Pin("".into())).unwrap();
    let other = OtherVersion { flow, version: Some(2) };
    let again = FlowRunner::retry_in(world(store, true), &"fails".into(), other, Repeat::default(), options("again"));
    assert_eq!(block(again.unwrap().run()).status, RunStatus::Parked);
    // The process of this run dies while a node runs.
    let mut running = Box::pin(runner("hangs").run());
    block(future::poll_fn(|context| {
        let read = store.reader().read(&Tenant::local(), &"hangs".into(), 0, 100).unwrap();
        let begun = read.iter().flat_map(|unit| &unit.facts).filter(|fact| matches!(fact, Fact::AttemptStarted { .. }));
        if begun.count() == 2 {
            return Poll::Ready(());
        }
        assert!(running.as_mut().poll(context).is_pending());
        context.waker().wake_by_ref();
        Poll::Pending
    }));
}

fn answers(gates: &[&str]) -> RunOptions {
    let yes = || Json::object([("content", Json::from("yes"))]);
    let answers = gates.iter().map(|gate| ((*gate).to_owned(), yes())).collect();
    RunOptions { answers, by_hand: true, ..RunOptions::default() }
}

fn resume(store: &Arc<SqliteStore>, run: &str, gates: &[&str]) -> RunResult {
    block(FlowRunner::resume(world(store, false), run.into(), answers(gates)).unwrap().run())
}

/// Goes on with all runs of [`fill`], and compares their outputs. `is_present`: this version has begun them.
fn check(store: &Arc<SqliteStore>, has_other_versions: bool, is_present: bool) {
    let outputs = [
        ("gate", vec!["ask"], r#""b":{"x":7,"said":"yes"}"#),
        ("timer", vec![], r#""b":{"x":1}"#),
        ("parent", vec!["sub/ask"], r#""b":{"x":3}"#),
        ("each", vec!["all[0].ask", "all[1].ask"], r#"{"x":1}"#),
        ("hangs", vec![], r#""b":{"x":2}"#),
        ("done", vec![], r#""a":{"x":7}"#),
    ];
    let again = has_other_versions.then(|| ("again", vec!["bad"], r#""b":{"x":1}"#));
    for (run, gates, expected) in outputs.into_iter().chain(again) {
        let ended = resume(store, run, &gates);
        let outputs = ended.outputs.to_text();
        assert_eq!(ended.status, RunStatus::Succeeded, "{run}: {outputs} {:?}", ended.error);
        assert!(outputs.contains(expected), "{run}: {outputs}");
    }
    let begun = store.reader().read(&Tenant::local(), &"gate".into(), 0, 1).unwrap();
    let Fact::RunStarted { seed, hides_seed, .. } = begun[0].facts[0] else { panic!("{begun:?}") };
    let drawn = SEEDS.with_borrow_mut(std::mem::take);
    assert_eq!((drawn.len(), drawn[0] == older_seed(seed)), (1, !hides_seed), "{drawn:?}");
    assert_eq!(hides_seed, is_present, "the runs of older versions keep their seeds");
    let again = FlowRunner::retry(
        world(store, false),
        &"fails".into(),
        Repeat { from: Some("bad".into()), ..Repeat::default() },
        options("once-more"),
    );
    assert_eq!(block(again.unwrap().run()).status, RunStatus::Failed);
    let rows = store.reader().runs(&Tenant::local(), &Filter { limit: 100, ..Filter::default() }).unwrap();
    let all: BTreeMap<_, _> = rows.iter().map(|row| (row.run_id.as_str(), &*row.status)).collect();
    assert_eq!((all["fails"], all["once-more"], all["parent"]), ("failed", "failed", "succeeded"));
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn database(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("flowcell.db")).unwrap()
}

fn version(database: &rusqlite::Connection) -> u32 {
    database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn the_runs_of_each_golden_store_go_on() {
    let fresh = tempfile::tempdir().unwrap();
    fill(&open(fresh.path()));
    let present = version(&database(fresh.path()));
    let own = golden().join(format!("store-{present}.sql"));
    if std::env::var("BLESS").is_ok_and(|bless| bless == "1") && !own.exists() {
        fs::write(&own, dump::dump(&database(fresh.path()))).unwrap();
    }
    assert!(own.exists(), "the version {present} of the store has no golden store; BLESS=1 writes {}", own.display());
    let mut files: Vec<_> = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "sql"));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.len() <= 200 * 1024, "{} has more than 200 KiB", file.display());
        let folder = tempfile::tempdir().unwrap();
        database(folder.path()).execute_batch(&text).unwrap();
        let written = version(&database(folder.path()));
        let store = open(folder.path());
        assert_eq!(version(&database(folder.path())), present, "{} is upgraded", file.display());
        check(&store, written >= 13, false);
        drop(store);
        // Everything that the runs recorded stays readable.
        let reader = Reader::open(folder.path()).unwrap();
        assert!(!reader.read(&Tenant::local(), &"gate".into(), 0, 1_000).unwrap().is_empty());
    }
    // The same runs go on in a store that was not copied.
    check(&open(fresh.path()), true, true);
}

#[test]
fn a_store_of_a_later_version_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path()));
    let later = version(&database(folder.path())) + 1;
    database(folder.path()).pragma_update(None, "user_version", later).unwrap();
    let before = dump::dump(&database(folder.path()));
    let refused = [SqliteStore::open(folder.path(), stop_process).err(), Reader::open(folder.path()).err()];
    for refused in refused {
        let told = refused.unwrap().to_string();
        let expected = format!("has version {later}, but this version of Flowcell reads at most {}", later - 1);
        assert!(told.contains(&expected) && told.ends_with("use the version that wrote it, or a later one"), "{told}");
    }
    assert_eq!(dump::dump(&database(folder.path())), before);
}
