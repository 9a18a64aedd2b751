//! Runs that a quota has paused: in two processes on one shared store, of which one goes on with each run, once; and
//! many runs at the same time.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell::{
    Filter, FlowRunner, Host, Json, QuestionRef, RunCommand, RunOptions, RunResult, RunStatus, Source,
    contract::Tenant,
    policy::{OnExhausted, PerDay, Policy},
    supervisor::{MAX_DRIVEN, RunObserver, Supervisor},
    tenants::{Tenants, callers::Callers},
};
use flowcell_runtime::sql::Dialect;
use tokio::sync::mpsc;

use super::{run_ok, servers};

/// Number of runs that are paused.
const RUNS: usize = 20;

/// Maximum time until the next run goes on. Paused runs are looked for each 5 s.
const MAX_WAIT: Duration = Duration::from_secs(120);

const ASKS: &str = "flow: { name: asks }
nodes:
  - { id: ok, type: control.gate, input: { prompt: Go on? } }
  - { id: after, type: control.noop }
edges: [{ from: ok, to: after }]
";

/// Drives the runs of the tenant, and reports each result.
struct Observer(mpsc::UnboundedSender<RunResult>);

fn tenant() -> Tenant {
    Tenant::from("paused")
}

fn policy_of(host: &Host) -> Arc<Policy> {
    Arc::new(Tenants::of(host).policy("paused").unwrap())
}

impl RunObserver for Observer {
    fn tenants(&self) -> Vec<Tenant> {
        vec![tenant()]
    }

    fn host(&self, all: &Host, tenant: &Tenant) -> Option<Host> {
        Some(all.for_tenant(tenant.clone()).with_policy(policy_of(all)))
    }

    fn ended(&self, result: &RunResult) {
        self.0.send(result.clone()).unwrap();
    }
}

/// Drives the ready runs of a store, as a server does.
async fn drive(host: Host, results: mpsc::UnboundedSender<RunResult>) {
    drive_as(host, Arc::new(Observer(results))).await;
}

async fn drive_as(host: Host, observer: Arc<dyn RunObserver>) {
    let mut supervisor = Supervisor::new(host, observer);
    loop {
        tokio::task::block_in_place(|| supervisor.refresh()).unwrap();
        supervisor.wait().await;
    }
}

/// Returns the number of events of each kind of a run.
fn kinds(host: &Host, run: &str) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let count = |event: flowcell::Event| {
        *kinds.entry(event.kind.to_owned()).or_default() += 1;
        ControlFlow::Continue(())
    };
    host.for_tenant(tenant()).each_event(&run.into(), 0, count).unwrap();
    kinds
}

#[test]
fn two_processes_go_on_with_each_paused_run_once() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let url = server.url(&server.database());
    let folder = tempfile::tempdir().unwrap();
    run_ok(folder.path(), &["store", "migrate", "--store", &url]);
    let process = || Host::builder().cache_dir(crate::kit::CACHE).instances(4).server(&url).build().unwrap();
    let hosts = [process(), process()];
    let tenants = Tenants::of(&hosts[0]);
    tenants.create("paused").unwrap();
    hosts.iter().for_each(|host| _ = Callers::of(host).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let host = hosts[0].for_tenant(tenant());
    let flow = host.load_source(Source { name: "asks.yaml".into(), text: ASKS.into() }).unwrap();
    let ids: Vec<_> = (0..RUNS).map(|run| format!("r{run}")).collect();
    for id in &ids {
        let options = RunOptions { run_id: Some(id.as_str().into()), ..RunOptions::default() };
        assert_eq!(runtime.block_on(host.runner(&flow, options).unwrap().run()).status, RunStatus::Parked);
    }
    hosts[0].usage().flush().unwrap();
    let per_day = PerDay { events: Some(1), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
    tenants.set_policy("paused", &Policy { per_day, ..Policy::default() }).unwrap();
    for host in &hosts {
        let refused = host.for_tenant(tenant()).with_policy(policy_of(host)).check_quota();
        assert!(refused.unwrap_err().to_string().contains("perDay.events"));
    }
    let answer = Json::object([("content", Json::from("yes"))]);
    for id in &ids {
        let reply = RunCommand::Reply { gate: "ok".into(), answer: answer.clone(), question: QuestionRef::default() };
        runtime.block_on(host.ask(&id.as_str().into(), reply)).unwrap();
    }
    let (told, mut results) = mpsc::unbounded_channel();
    let driving = hosts.each_ref().map(|host| runtime.spawn(drive(host.clone(), told.clone())));
    let mut next = |status: RunStatus| {
        for _ in 0..RUNS {
            let received = runtime.block_on(async { tokio::time::timeout(MAX_WAIT, results.recv()).await });
            let result = received.expect("a paused run was forgotten").unwrap();
            assert_eq!((result.status, result.quota.is_some()), (status, status == RunStatus::Parked), "{result:?}");
        }
    };
    next(RunStatus::Parked);
    let filter = Filter { error: Some("quota_exceeded".into()), limit: 100, ..Filter::default() };
    let paused = hosts[1].runs().unwrap().runs(&tenant(), &filter).unwrap();
    assert!(paused.len() == RUNS && paused.iter().all(|row| row.paused_until == row.due), "{paused:?}");
    let before: Vec<_> = ids.iter().map(|id| kinds(&hosts[1], id)).collect();
    tenants.set_policy("paused", &Policy::default()).unwrap();
    next(RunStatus::Succeeded);
    driving.iter().for_each(tokio::task::JoinHandle::abort);
    for (id, before) in ids.iter().zip(before) {
        let after = kinds(&hosts[1], id);
        let new = |kind: &str| after.get(kind).copied().unwrap_or(0) - before.get(kind).copied().unwrap_or(0);
        let seen = ["harness:resumed", "harness:renewed", "harness:complete"].map(new);
        assert_eq!(seen, [1, 1, 1], "{id}: {before:?} {after:?}");
    }
}

/// The number of runs of a tenant that [`r27_many_paused_runs_go_on_at_midnight`] pauses.
const MANY_RUNS: usize = 200;

/// Counts the runs that are driven, and the most at the same time.
#[derive(Default)]
struct Driven {
    now: AtomicUsize,
    most: AtomicUsize,
    tries: AtomicUsize,
}

struct Counting {
    driven: Arc<Driven>,
    results: Observer,
}

impl RunObserver for Counting {
    fn tenants(&self) -> Vec<Tenant> {
        self.results.tenants()
    }

    fn host(&self, all: &Host, tenant: &Tenant) -> Option<Host> {
        self.results.host(all, tenant)
    }

    fn attend(&self, _: &Tenant, runner: FlowRunner) -> Option<Pin<Box<dyn Future<Output = RunResult> + Send>>> {
        let driven = self.driven.clone();
        let now = driven.now.fetch_add(1, Ordering::SeqCst) + 1;
        driven.most.fetch_max(now, Ordering::SeqCst);
        driven.tries.fetch_add(1, Ordering::SeqCst);
        Some(Box::pin(async move {
            let result = runner.run().await;
            driven.now.fetch_sub(1, Ordering::SeqCst);
            result
        }))
    }

    fn ended(&self, result: &RunResult) {
        self.results.ended(result);
    }
}

/// The memory of this process at its maximum, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// All paused runs of a tenant are due at the same time. First their quota is still used up, and then it has renewed.
/// Prints the times; `FLOWCELL_TEST_SCALE=50` pauses 10,000 runs.
#[test]
fn r27_many_paused_runs_go_on_at_midnight() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join(".flowcell");
    let all = Host::builder().cache_dir(crate::kit::CACHE).instances(4).state_dir(&state).build().unwrap();
    let (tenants, runs) = (Tenants::of(&all), MANY_RUNS * crate::kit::scale());
    tenants.create("paused").unwrap();
    let _callers = Callers::of(&all).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let host = all.for_tenant(tenant());
    let flow = host.load_source(Source { name: "asks.yaml".into(), text: ASKS.into() }).unwrap();
    let ids: Vec<_> = (0..runs).map(|run| format!("r{run}")).collect();
    for part in ids.chunks(500) {
        let mut parking = tokio::task::JoinSet::new();
        for id in part {
            let options = RunOptions { run_id: Some(id.as_str().into()), ..RunOptions::default() };
            parking.spawn_on(host.runner(&flow, options).unwrap().run(), runtime.handle());
        }
        runtime.block_on(parking.join_all());
    }
    all.usage().flush().unwrap();
    let per_day = PerDay { events: Some(1), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
    tenants.set_policy("paused", &Policy { per_day, ..Policy::default() }).unwrap();
    all.for_tenant(tenant()).with_policy(policy_of(&all)).check_quota().unwrap_err();
    let answer = Json::object([("content", Json::from("yes"))]);
    for id in &ids {
        let reply = RunCommand::Reply { gate: "ok".into(), answer: answer.clone(), question: QuestionRef::default() };
        runtime.block_on(host.ask(&id.as_str().into(), reply)).unwrap();
    }
    let (told, mut results) = mpsc::unbounded_channel();
    let driven = Arc::new(Driven::default());
    let observer = Counting { driven: driven.clone(), results: Observer(told) };
    let driving = runtime.spawn(drive_as(all.clone(), Arc::new(observer)));
    let mut next = |what: &str, status: RunStatus| {
        let (began, tries) = (Instant::now(), driven.tries.load(Ordering::SeqCst));
        for _ in 0..runs {
            let received = runtime.block_on(async { tokio::time::timeout(MAX_WAIT, results.recv()).await });
            assert_eq!(received.expect("a paused run was forgotten").unwrap().status, status);
        }
        let tries = driven.tries.load(Ordering::SeqCst) - tries;
        let (seconds, most) = (began.elapsed().as_secs_f64(), driven.most.load(Ordering::SeqCst));
        println!("{what}: {runs} runs, {tries} tries in {seconds:.1} s, {most} at a time, peak {} KiB", peak_kib());
        assert!(most <= MAX_DRIVEN && tries <= runs, "{most} {tries}");
    };
    next("paused", RunStatus::Parked);
    let database = rusqlite::Connection::open(state.join("flowcell.db")).unwrap();
    database.execute("UPDATE runs SET due = 1 WHERE tenant = 'paused' AND standing = 'parked'", ()).unwrap();
    next("due, quota used up", RunStatus::Parked);
    tenants.set_policy("paused", &Policy::default()).unwrap();
    next("due, quota renewed", RunStatus::Succeeded);
    driving.abort();
}
