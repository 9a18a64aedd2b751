//! Measures the cost of a call and of a node in each store, compared with the cost of a bare commit of the same
//! database.
//!
//! A chain of calls is one attempt that makes a hundred calls, one after another. The store must have committed each
//! call before the call leaves the host, so each call waits for a commit. A chain of nodes is a hundred nodes that only
//! compute; the run waits only for the commits of its beginning and its end. Finally, one, two and four processes share
//! one store on a database server. Each of these processes runs eight chains of calls at the same time.
//!
//! `cargo bench -p flowcell-runtime --bench stores -- failover` measures the promotion of a replica instead.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run has nothing to say")]

#[path = "search/ended.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod ended;
#[path = "stores/failover.rs"]
mod failover;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/stores/servers.rs"]
mod servers;

use std::{
    collections::HashMap,
    fmt::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{
    Admission, Attempt, Call, Caller, Calls, Capability, Catalog, Digest, Effect, Failure, Json, Manifest, NodeRunner,
    Outgoing, Step, StepResult, Value,
};
use flowcell_flow::{NoContext, Source, graph::Graph};
use flowcell_runtime::{
    FlowRunner, NoFlows, Pinned, RunOptions, RunStatus, World,
    ports::Pin,
    sql::{Dialect, Options, SharedStore},
    sqlite::{SqliteStore, stop_process},
};
use futures_util::future::{self, BoxFuture};
use sqlx::{Connection, Executor};

/// The number of calls or nodes of a chain.
const STEPS: usize = 100;
/// How often each measurement is repeated. The fastest repetition counts.
const ROUNDS: usize = 5;
/// Number of concurrent chains of a process.
const TOGETHER: usize = 8;
/// The time for which each process runs chains.
const MEASURED: Duration = Duration::from_secs(4);

const MANIFEST: &str = "
name: bench
version: 1.0.0
nodes:
  - { type: bench.noop, title: Hands its value on, input: { type: object } }
  - { type: bench.calls, title: Makes calls, input: { type: object } }
";

struct Nodes;

impl NodeRunner for Nodes {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        Box::pin(async move {
            if &*attempt.node_type == "bench.calls" {
                for step in 0..STEPS as u64 {
                    let args = Json::object([("step", Json::from(step))]).into();
                    calls.call(Call { interface: "outside".into(), function: "step".into(), args }).await?;
                }
            }
            Ok(Step::Done(attempt.input))
        })
    }
}

/// A capability whose calls return at once.
struct Outside;

impl Capability for Outside {
    fn admit(&self, _: &Call, _: &Caller) -> Result<Admission, Failure> {
        Ok(Admission::new(Effect::Idempotent, Json::Null))
    }

    fn perform(&self, _: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        Box::pin(future::ready(Ok(Value::null())))
    }
}

fn load(text: String) -> Arc<Graph> {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let checked = flowcell_flow::load(&Source { name: "bench.yaml".into(), text }, &catalog, &NoContext);
    Arc::new(checked.graph.unwrap())
}

fn calls() -> Arc<Graph> {
    load("flow: { name: calls }\nnodes: [{ id: all, type: bench.calls }]\nedges: []\n".into())
}

fn nodes() -> Arc<Graph> {
    let (mut text, mut edges) = (String::from("flow: { name: nodes }\nnodes:\n"), String::from("edges:\n"));
    for node in 0..STEPS {
        writeln!(text, "  - {{ id: n{node}, type: bench.noop, input: {{ value: {node} }} }}").unwrap();
        if node > 0 {
            writeln!(edges, "  - {{ from: n{}, to: n{node} }}", node - 1).unwrap();
        }
    }
    load(text + &edges)
}

fn world(put: impl FnOnce(&mut World)) -> Arc<World> {
    let mut world = World::in_memory(Arc::new(Nodes), Arc::new(NoFlows));
    world.capabilities = Arc::new(HashMap::from([("outside".into(), Arc::new(Outside) as Arc<dyn Capability>)]));
    put(&mut world);
    Arc::new(world)
}

fn in_server(url: &str) -> Arc<World> {
    let store = Arc::new(SharedStore::open(url, Options::default()).unwrap());
    world(|world| {
        world.journal = store.clone();
        world.state = store.clone();
        world.blobs = store.clone();
        world.leases = store;
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn run(world: &Arc<World>, graph: &Arc<Graph>) {
    let flow = Pinned { graph: graph.clone(), pin: Pin("bench".into()) };
    let options = RunOptions { without_events: true, ..RunOptions::default() };
    let result = FlowRunner::new(flow, world.clone(), options).unwrap().run().await;
    assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
}

/// Executes `round` [`ROUNDS`] times. Returns the shortest duration in µs.
fn fastest(mut round: impl FnMut()) -> f64 {
    let time = |round: &mut dyn FnMut()| {
        let began = Instant::now();
        round();
        began.elapsed().as_secs_f64() * 1e6
    };
    (0..ROUNDS).map(|_| time(&mut round)).fold(f64::INFINITY, f64::min)
}

/// Measures and prints the cost of a call and of a node in a store. `commit` is the time of a bare commit in µs; `None`
/// for the store in memory.
fn measure(name: &str, world: &Arc<World>, commit: Option<f64>) {
    let runtime = runtime();
    let of = |graph: Arc<Graph>| fastest(|| runtime.block_on(run(world, &graph))) / STEPS as f64;
    let (call, node) = (of(calls()), of(nodes()));
    let beside = commit.map_or(String::new(), |commit| {
        format!("; a bare commit {commit:.0} µs, a call costs {:.2} of it", call / commit)
    });
    println!("{name}: {call:.0} µs a call ({:.0} a second), {node:.1} µs a node{beside}", 1e6 / call);
}

/// Returns the time in µs of a bare SQLite commit of one small row.
fn bare_sqlite(folder: &std::path::Path) -> f64 {
    let database = rusqlite::Connection::open(folder.join("bare.db")).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    database.pragma_update(None, "synchronous", "full").unwrap();
    database.execute("CREATE TABLE bare (body TEXT)", []).unwrap();
    let insert = || _ = database.execute("INSERT INTO bare VALUES (?)", ["x".repeat(200)]).unwrap();
    fastest(|| (0..STEPS).for_each(|_| insert())) / STEPS as f64
}

/// Returns the time in µs of a bare commit of one small row on a database server.
macro_rules! bare_server {
    ($connection:ty, $url:expr, $insert:expr) => {{
        let runtime = runtime();
        let mut link = runtime.block_on(<$connection>::connect($url)).unwrap();
        runtime.block_on(link.execute("CREATE TABLE bare (body VARCHAR(250))")).unwrap();
        let mut insert = async || {
            let mut transaction = link.begin().await.unwrap();
            sqlx::query($insert).bind("x".repeat(200)).execute(&mut *transaction).await.unwrap();
            transaction.commit().await.unwrap();
        };
        fastest(|| {
            for _ in 0..STEPS {
                runtime.block_on(insert());
            }
        }) / STEPS as f64
    }};
}

const URL: &str = "FLOWCELL_BENCH_URL";

/// The main function of a measured process: runs chains for [`MEASURED`], and prints the number of steps per second.
fn work(url: &str) {
    let (world, graph) = (in_server(url), calls());
    let runtime = runtime();
    // All processes are measured at the same time: each waits for a line on its input.
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    let began = Instant::now();
    let chain = || async {
        let mut runs = 0;
        while began.elapsed() < MEASURED {
            run(&world, &graph).await;
            runs += 1;
        }
        runs
    };
    let runs: usize = runtime.block_on(future::join_all((0..TOGETHER).map(|_| chain()))).into_iter().sum();
    println!("{}", (runs * STEPS) as f64 / began.elapsed().as_secs_f64());
}

/// Starts this number of processes on one store. Returns the number of steps per second of all processes together.
fn together(url: &str, processes: usize) -> f64 {
    use std::io::{BufRead, BufReader, Write as _};
    let start = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        (child, said)
    };
    let mut all: Vec<_> = (0..processes).map(start).collect();
    all.iter_mut().for_each(|(child, _)| writeln!(child.stdin.as_mut().unwrap(), "begin").unwrap());
    let rate = |(mut child, mut said): (std::process::Child, BufReader<_>)| {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(child.wait().unwrap().success());
        line.trim().parse::<f64>().unwrap()
    };
    all.into_iter().map(rate).sum()
}

fn main() {
    if let Ok(url) = std::env::var(URL) {
        return work(&url);
    }
    if std::env::args().any(|argument| argument == "failover") {
        return failover::failover();
    }
    measure("memory", &world(|_| ()), None);
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), stop_process).unwrap());
    let in_sqlite = world(|world| {
        world.journal = store.clone();
        world.state = store.clone();
        world.blobs = store;
    });
    measure("SQLite", &in_sqlite, Some(bare_sqlite(folder.path())));
    for (name, dialect) in [("MariaDB", Dialect::MySql), ("PostgreSQL", Dialect::Postgres)] {
        let Some(server) = servers::server(dialect) else { continue };
        let url = server.url(&server.database());
        let commit = match dialect {
            Dialect::MySql => bare_server!(sqlx::MySqlConnection, &url, "INSERT INTO bare VALUES (?)"),
            Dialect::Postgres => bare_server!(sqlx::PgConnection, &url, "INSERT INTO bare VALUES ($1)"),
        };
        measure(name, &in_server(&url), Some(commit));
        let one = together(&url, 1);
        print!("{name}: {TOGETHER} chains at a time in one process make {one:.0} calls a second");
        for processes in [2, 4] {
            let rate = together(&url, processes);
            print!(", in {processes} processes {rate:.0} ({:.2})", rate / one);
        }
        println!();
    }
}
