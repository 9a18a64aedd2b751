//! Processes that are stopped or killed, and the runs that they had claimed.

use std::{process::Command, sync::Arc, time::Duration};

use flowcell_contract::{Json, Value};
use flowcell_runtime::{
    FlowRunner, Pinned, RunCommand, RunStatus,
    fact::Write,
    ports::{Change, Durable, Entry, Journal, Leases, Pin, Sessions, StateStore},
    shared::SharedRuns,
    sql::{Options, SharedStore},
};

use super::{process::Process, wait_for};
use crate::{
    flows::{ASKS, answered, graph, options, tenant},
    stores::backend::Backend,
    stores::units::{entry, everything, unit},
};

const LEASE: Duration = Duration::from_millis(3_000);

fn url(backend: &Backend) -> String {
    let Backend::Server(server, database) = backend else { panic!("no server") };
    server.url(database)
}

fn open(backend: &Backend) -> Arc<SharedStore> {
    Arc::new(SharedStore::open(&url(backend), Options { lease: LEASE, ..Options::default() }).unwrap())
}

/// Returns the number of owners, with those whose lease has ended by itself.
fn owners(backend: &Backend) -> i64 {
    let Backend::Server(server, database) = backend else { panic!("no server") };
    server.number(database, "SELECT count(*) FROM flowcell_owners")
}

/// Appends a unit, and waits until it is durable or refused. Returns true if it is durable.
fn write(store: &SharedStore, run: &str, seq: u64, durable: &Arc<Durable>) -> bool {
    let until = unit(seq).next_seq();
    store.append(Entry { force: true, durable: durable.clone(), ..entry(run, unit(seq)) });
    let done = || (durable.next_seq() >= until || durable.is_refused()).then(|| !durable.is_refused());
    wait_for("the end of a write", done)
}

/// R14: stops a process for longer than its lease, takes its run over, and lets the process continue. Returns an error
/// if the process can still write to the run. `unfenced` turns the check of the claim off.
fn stop_and_go_on(backend: &Backend, unfenced: bool) -> Result<(), String> {
    let mut zombie = Process::start(&url(backend), LEASE, unfenced);
    assert_eq!(zombie.command("claim r"), "claimed");
    assert_eq!(zombie.command("write r 0"), "durable");
    let store = open(backend);
    assert!(store.claim(&tenant(), &"r".into()).unwrap().is_none(), "the run is driven");
    zombie.signal("STOP");
    let lease = wait_for("the end of the lease", || store.claim(&tenant(), &"r".into()).unwrap());
    // The lease has ended by itself: the process lives, so no other process has ended the lease.
    if owners(backend) < 2 {
        return Err("the lease of the stopped process was ended".into());
    }
    let before = everything(&*store, "r");
    zombie.signal("CONT");
    let said = zombie.command("write r 1");
    if said != "refused" {
        return Err(format!("the stopped process says `{said}`"));
    }
    if everything(&*store, "r") != before {
        return Err("the stopped process has written".into());
    }
    // The new driver goes on, and so does the process that was stopped, with other runs.
    assert!(write(&store, "r", 1, &Arc::default()));
    assert_eq!(zombie.command("claim s"), "claimed");
    assert_eq!(zombie.command("write s 0"), "durable");
    assert_eq!(zombie.command("claim r"), "driven");
    drop(lease);
    assert_eq!(everything(&*store, "r").len(), 2);
    Ok(())
}

pub(crate) fn r14_a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing(backend: &Backend) {
    stop_and_go_on(backend, false).unwrap();
}

/// R34: without the check of the claim, the test above fails. So it can detect a missing check.
pub(crate) fn r34_without_fences_a_stopped_process_is_noticed_to_write(backend: &Backend) {
    assert_eq!(stop_and_go_on(backend, true).unwrap_err(), "the stopped process says `durable`");
}

/// The store refuses a write once the epoch of the claim in the database has changed, even if the process still
/// believes that it owns the run.
pub(crate) fn a_run_claimed_by_another_process_is_not_written(backend: &Backend) {
    let store = open(backend);
    let (lease, durable) = (store.claim(&tenant(), &"r".into()).unwrap().unwrap(), Arc::default());
    assert!(write(&store, "r", 0, &durable));
    backend.execute("", "UPDATE flowcell_runs SET epoch = epoch + 1");
    assert!(!write(&store, "r", 1, &durable));
    assert_eq!(everything(&*store, "r").len(), 1);
    // Later writes are refused too, until the run is claimed again.
    assert!(!write(&store, "r", 1, &Arc::default()));
    assert!(store.claim(&tenant(), &"r".into()).unwrap().is_none(), "it is driven here");
    drop(lease);
    let _lease = wait_for("a new claim", || store.claim(&tenant(), &"r".into()).unwrap());
    assert!(write(&store, "r", 1, &Arc::default()));
    // A process without a claim cannot append.
    assert!(!write(&store, "unclaimed", 0, &Arc::default()));
    assert_eq!(store.find(&tenant(), &"unclaimed".into()).unwrap(), None);
}

/// If the store refuses the writes of a process, the process reports the run as running, and its progress is lost.
pub(crate) fn a_refused_driver_reports_the_run_as_running(backend: &Backend) {
    let store = backend.open_with(Options { lease: LEASE, ..Options::default() });
    let block_on = |runner: FlowRunner| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(runner.run())
    };
    let prepare = || {
        let flow = Pinned { graph: graph(ASKS), pin: Pin("f".into()) };
        FlowRunner::new(flow, store.world(ASKS), answered("r")).unwrap()
    };
    let flow = Pinned { graph: graph(ASKS), pin: Pin("f".into()) };
    let parked = block_on(FlowRunner::new(flow, store.world(ASKS), options("r")).unwrap());
    assert_eq!(parked.status, RunStatus::Parked);
    let before = everything(&*store.journal, "r");
    let lost = prepare();
    backend.execute("", "UPDATE flowcell_runs SET epoch = epoch + 1");
    assert_eq!(block_on(lost).status, RunStatus::Running);
    assert_eq!(everything(&*store.journal, "r"), before);
    let lost = prepare();
    backend.execute("", "UPDATE flowcell_runs SET epoch = epoch + 1");
    let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(asked.block_on(lost.ask(RunCommand::Cancel)).is_err());
    assert_eq!(block_on(prepare()).status, RunStatus::Succeeded);
}

/// A process that is killed has a lease of 10 minutes, and a program that it has started lives on. Its run is taken over
/// at once, by work that looks for runs and by a claim of the run.
pub(crate) fn a_run_of_a_process_that_was_killed_on_this_machine_is_taken_over_at_once(backend: &Backend) {
    let long = Duration::from_secs(600);
    let store = SharedStore::open(&url(backend), Options { lease: long, ..Options::default() }).unwrap();
    let mut processes = ["r", "s"].map(|run| {
        let mut process = Process::start(&url(backend), long, false);
        assert_eq!(process.command(&format!("claim {run}")), "claimed");
        assert_eq!(process.command(&format!("write {run} 0")), "durable");
        process
    });
    let tool = processes[0].command("tool");
    processes[0].signal("KILL");
    let found = wait_for("the run", || store.work(&tenant(), 0, 10).unwrap().pop());
    let kill = |pid: &str| Command::new("kill").arg(pid).status().unwrap().success();
    assert!(kill(&tool), "the program still runs");
    assert_eq!(found.run.as_str(), "r", "the other process lives");
    let lease = store.claim(&tenant(), &"r".into()).unwrap().unwrap();
    assert!(write(&store, "r", 1, &Arc::default()));
    drop((lease, found));
    assert!(store.claim(&tenant(), &"s".into()).unwrap().is_none());
    processes[1].signal("KILL");
    wait_for("the claim", || store.claim(&tenant(), &"s".into()).unwrap());
    assert_eq!(owners(backend), 1);
}

/// A process of another machine, or of a container with other files, is taken over after its lease.
pub(crate) fn a_run_of_a_dead_process_is_taken_over(backend: &Backend) {
    let other = tempfile::tempdir().unwrap();
    let mut process = Process::start_in(Some(&other.path().join("files")), &url(backend), LEASE, false);
    assert_eq!(process.command("claim r"), "claimed");
    assert_eq!(process.command("write r 0"), "durable");
    let store = open(backend);
    assert!(store.work(&tenant(), 0, 10).unwrap().is_empty());
    process.signal("KILL");
    let found = wait_for("the run", || store.work(&tenant(), 0, 10).unwrap().pop());
    assert!(found.run.as_str() == "r" && owners(backend) >= 2);
    let lease = store.claim(&tenant(), &"r".into()).unwrap().unwrap();
    drop(found);
    assert!(write(&store, "r", 1, &Arc::default()));
    drop(lease);
}

/// Two processes write state from the same version. The store refuses one of the writes, and the writes of every run
/// that may have read the refused value.
pub(crate) fn a_refused_state_write_stops_the_runs_that_read_it(backend: &Backend) {
    let (one, two) = (open(backend), open(backend));
    let set = |store: &SharedStore, run: &str, value: u64, durable: &Arc<Durable>| {
        let write = Write { key: "k".into(), value: Value::from(Json::from(value)), expected: None };
        let writes = Some(store.stage(&tenant(), &"f".into(), vec![write]).unwrap());
        let (id, title) = (run.to_owned(), String::new());
        let rows = vec![Change::Session { root: id.clone(), id, parent: None, title }];
        store.append(Entry { writes, rows, durable: durable.clone(), ..entry(run, unit(0)) });
    };
    let ends: [Arc<Durable>; 3] = Default::default();
    let _leases = ["a", "b"].map(|run| one.claim(&tenant(), &run.into()).unwrap().unwrap());
    let _lease = two.claim(&tenant(), &"c".into()).unwrap().unwrap();
    set(&two, "c", 2, &ends[2]);
    two.force();
    wait_for("the first write", || (ends[2].next_seq() > 0).then_some(()));
    // As if it had been seen before that.
    backend.execute("", "UPDATE flowcell_state SET version = 5");
    backend.execute("", "UPDATE flowcell_state SET version = 1");
    set(&one, "a", 1, &ends[0]);
    backend.execute("", "UPDATE flowcell_state SET version = 5");
    one.append(Entry { durable: ends[1].clone(), ..entry("b", unit(0)) });
    one.force();
    wait_for("refusal", || (ends[0].is_refused() && ends[1].is_refused()).then_some(()));
    assert_eq!(StateStore::get(&*one, &tenant(), "f", "k").unwrap().unwrap().1, 5);
    assert!(everything(&*one, "a").is_empty() && everything(&*one, "b").is_empty());
    let has_session = |id| one.session(&tenant(), id).unwrap().is_some();
    assert_eq!(["a", "c"].map(has_session), [false, true], "rows beside the journal are refused with their unit");
}
