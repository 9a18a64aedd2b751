//! The SQLite store: the data that it stores, the writes that it refuses, and its reaction to damage.

mod earlier;
mod export;
mod large;
mod large_files;
mod older;
#[cfg(unix)]
mod private;
mod sweep;
mod unit_index;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::{Json, RunId};
use flowcell_flow::graph::Graph;
use flowcell_runtime::{
    FlowRunner, OpenError, Pinned, RunOptions, RunResult, RunStatus, World,
    ports::{Entry, Filter, Journal, Pin, Removing, Runs, StateStore, StoredStatus, Sweep, Timers, Unit},
    sqlite::{OpenStoreError, Reader, SqliteStore, remove_store, stop_process},
};
use futures_util::future::BoxFuture;

use crate::flows::{ASKS, COUNTS, FlowMap, Nodes, answered, graph, options, tenant};

/// A clock that advances by a millisecond with each reading, so that no two decisions have the same time.
struct Ticking(AtomicU64);

impl Timers for Ticking {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn wait(&self, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn world(store: &Arc<SqliteStore>, graph: &Arc<Graph>) -> Arc<World> {
    let mut world = World::in_memory(Arc::new(Nodes), Arc::new(FlowMap(graph.clone())));
    world.journal = store.clone();
    world.state = store.clone();
    world.timers = Arc::new(Ticking(AtomicU64::new(1)));
    Arc::new(world)
}

fn open(folder: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(folder, stop_process).unwrap())
}

/// Opens the database of a store directly.
fn database(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("flowcell.db")).unwrap()
}

fn prepare(store: &Arc<SqliteStore>, nodes: &str, options: RunOptions) -> Result<FlowRunner, OpenError> {
    let graph = graph(nodes);
    FlowRunner::new(Pinned { graph: graph.clone(), pin: Pin("f".into()) }, world(store, &graph), options)
}

fn run(store: &Arc<SqliteStore>, nodes: &str, options: RunOptions) -> RunResult {
    let runner = prepare(store, nodes, options).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(runner.run())
}

/// Removes a run. Ends it before, if it has not ended.
fn forget(store: &SqliteStore, run: &str) {
    store.settle().unwrap();
    let has_ended = store.reader().run(&tenant(), &run.into()).unwrap().unwrap().0.has_ended();
    if !has_ended {
        let first_seq = everything(store.reader(), run).last().map_or(0, |unit| unit.next_seq());
        let last = Unit { first_seq, ..large::outputs([Json::Null]).remove(0) };
        let status = Some(StoredStatus::Ended(RunStatus::Succeeded));
        store.append(Entry { status, ..large::entry(run, last) });
    }
    assert_eq!(store.remove(&tenant(), &[run.into()], Removing::Each).unwrap().kept, []);
}

fn everything(reader: &Reader, run: &str) -> Vec<Arc<Unit>> {
    reader.read(&tenant(), &run.into(), 0, usize::MAX >> 1).unwrap()
}

#[test]
fn a_parked_run_goes_on_in_another_process_and_a_finished_one_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let parked = run(&open(folder.path()), ASKS, options("r"));
    assert_eq!(parked.status, RunStatus::Parked);
    let ended = run(&open(folder.path()), ASKS, answered("r"));
    assert_eq!(ended.status, RunStatus::Succeeded);
    let kinds: Vec<_> =
        ended.events.iter().map(|event| event.kind).filter(|kind| kind.starts_with("harness")).collect();
    assert_eq!(kinds, ["harness:start", "harness:parked", "harness:resumed", "harness:complete"]);
    let again = run(&open(folder.path()), ASKS, answered("r"));
    assert_eq!((again.status, &again.outputs, again.events.len()), (ended.status, &ended.outputs, ended.events.len()));
    let state = open(folder.path()).get(&tenant(), "f", "count").unwrap();
    assert_eq!(state.map(|(value, version)| (value.text().to_owned(), version)), Some(("1".to_owned(), 1)));
}

#[test]
fn a_store_with_an_owner_is_not_removed() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("store");
    remove_store(&folder).unwrap();
    assert!(!folder.exists(), "a missing folder stays missing");
    let owner = open(&folder);
    run(&owner, COUNTS, options("r"));
    assert!(matches!(remove_store(&folder), Err(OpenStoreError::Owned { .. })));
    assert!(!everything(owner.reader(), "r").is_empty());
    drop(owner);
    remove_store(&folder).unwrap();
    assert!(!folder.exists());
}

#[test]
fn the_same_id_with_another_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    run(&store, COUNTS, options("r"));
    let other = RunOptions { input: Json::object([("a", Json::from(2_u64))]), ..options("r") };
    let refused = prepare(&store, COUNTS, other).err().unwrap();
    assert_eq!(refused.to_string(), "the run `r` exists, and its input is another");
}

#[test]
fn r13_a_second_owner_is_refused_at_once_and_a_reader_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    run(&store, COUNTS, options("r"));
    let began = Instant::now();
    let refused = SqliteStore::open(folder.path(), stop_process).err().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    let owner = format!("process {}", std::process::id());
    assert!(matches!(&refused, OpenStoreError::Owned { owner: told, .. } if *told == owner), "{refused}");
    let rows =
        Reader::open(folder.path()).unwrap().runs(&tenant(), &Filter { limit: 10, ..Filter::default() }).unwrap();
    assert_eq!(rows.iter().map(|row| (row.run_id.as_str(), &*row.status)).collect::<Vec<_>>(), [("r", "succeeded")]);
}

#[test]
fn a_store_of_a_later_version_and_one_that_is_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let file = folder.path().join("flowcell.db");
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let refused = [SqliteStore::open(folder.path(), stop_process).err(), Reader::open(folder.path()).err()];
    assert!(refused.iter().all(|error| matches!(error, Some(OpenStoreError::Newer { found: 1_000, .. }))));
    fs::write(&file, "x".repeat(10_000)).unwrap();
    let refused = SqliteStore::open(folder.path(), stop_process).err().unwrap();
    assert!(refused.to_string().ends_with("file is not a database"), "{refused}");
}

/// A changed byte anywhere in a row of a journal is detected: every seventh byte is tried. The damage is reported for
/// its run, and other runs stay readable.
#[test]
fn r6_damage_is_noticed_and_harms_no_other_run() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        run(&open(folder.path()), COUNTS, options(name));
    }
    let connection = database(folder.path());
    let whole = everything(&Reader::open(folder.path()).unwrap(), "b");
    let rows: Vec<(i64, String)> = {
        let mut select = connection.prepare("SELECT first_seq, body FROM units WHERE run = 1").unwrap();
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    assert!(!rows.is_empty());
    for (first_seq, body) in &rows {
        for at in (0..body.len()).step_by(7).filter(|at| body.is_char_boundary(*at) && body.is_char_boundary(at + 1)) {
            let flipped = char::from(body.as_bytes()[at] ^ 1);
            let damaged = format!("{}{flipped}{}", &body[..at], &body[at + 1..]);
            let put = |text: &str| {
                let sql = "UPDATE units SET body = ? WHERE run = 1 AND first_seq = ?";
                assert_eq!(connection.execute(sql, rusqlite::params![text, first_seq]).unwrap(), 1);
            };
            put(&damaged);
            let reader = Reader::open(folder.path()).unwrap();
            let told = reader.read(&tenant(), &"a".into(), 0, 1_000).unwrap_err().to_string();
            assert!(told.starts_with("the journal of run `a` is damaged"), "{told}");
            assert_eq!(everything(&reader, "b"), whole);
            put(body);
        }
    }
    connection.execute("DELETE FROM units WHERE run = 1 AND first_seq = ?", [rows[0].0]).unwrap();
    let told = prepare(&open(folder.path()), COUNTS, options("a")).err().unwrap().to_string();
    assert!(told.contains("damaged") || told.contains("does not fit"), "{told}");
}

/// If the last units of a journal are lost, however many, this is detected: on reading from any position, on resuming
/// the run, and after an append to the rest.
#[test]
fn a_journal_that_has_lost_its_end_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        run(&open(folder.path()), ASKS, options(name));
    }
    let connection = database(folder.path());
    let whole = everything(&Reader::open(folder.path()).unwrap(), "a");
    let end = whole.last().unwrap().next_seq();
    assert!(whole.len() > 3);
    for (kept, lost) in whole.iter().enumerate().rev() {
        connection.execute("DELETE FROM units WHERE run = 1 AND first_seq >= ?", [lost.first_seq]).unwrap();
        let reader = Reader::open(folder.path()).unwrap();
        for (from, limit) in [(0, 1_000), (0, kept + 1), (lost.first_seq, 1), (end, 1)] {
            let told = reader.read(&tenant(), &"a".into(), from, limit).unwrap_err().to_string();
            let here = lost.first_seq;
            let why = format!("its events from {here} are missing");
            assert_eq!(told, format!("the journal of run `a` is damaged: {why}"));
        }
        assert_eq!(reader.read(&tenant(), &"a".into(), 0, kept).unwrap(), whole[..kept]);
        let store = open(folder.path());
        let told = prepare(&store, ASKS, options("a")).err().unwrap().to_string();
        assert!(told.starts_with("the journal of run `a` is damaged"), "{told}");
    }
    let store = open(folder.path());
    let more = large::outputs([Json::Null]).remove(0);
    store.append(large::entry("a", Unit { first_seq: end, ..more }));
    drop(store);
    let reader = Reader::open(folder.path()).unwrap();
    let told = reader.read(&tenant(), &"a".into(), 0, 1_000).unwrap_err().to_string();
    assert!(told.starts_with("the journal of run `a` is damaged: the events from"), "{told}");
    assert_eq!(run(&open(folder.path()), ASKS, answered("b")).status, RunStatus::Succeeded);
}

/// The write-ahead log of the database is cut at many positions near its end. The journals then have a prefix of their
/// units.
#[test]
fn r5_a_torn_log_leaves_a_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for name in ["a", "b", "c"] {
        run(&store, COUNTS, options(name));
    }
    let copy = |name: &str| fs::read(folder.path().join(name)).unwrap_or_default();
    let (database, log) = (copy("flowcell.db"), copy("flowcell.db-wal"));
    let all: Vec<_> = ["a", "b", "c"].map(|name| everything(store.reader(), name)).into();
    assert!(log.len() > 20_000, "the runs are in the log");
    let torn = tempfile::tempdir().unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for cut in (log.len() - 3 * 4_120..log.len()).step_by(97).chain([log.len()]) {
        for file in ["flowcell.db-wal", "flowcell.db-shm"] {
            let _ = fs::remove_file(torn.path().join(file));
        }
        fs::write(torn.path().join("flowcell.db"), &database).unwrap();
        fs::write(torn.path().join("flowcell.db-wal"), &log[..cut]).unwrap();
        let store = open(torn.path());
        let mut before_was_whole = true;
        let mut length = 0;
        for (name, whole) in ["a", "b", "c"].iter().zip(&all) {
            let left = everything(store.reader(), name);
            assert!(whole.starts_with(&left), "what is left is no prefix");
            assert!(before_was_whole || left.is_empty(), "a later run was kept and an earlier one was not");
            before_was_whole = left.len() == whole.len();
            length += left.len();
        }
        lengths.insert(length);
    }
    assert_eq!(lengths.last(), Some(&all.iter().map(Vec::len).sum()), "the whole log is the whole journal");
    assert!(lengths.len() > 1, "no cut cost anything");
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// The disk refuses a commit: nothing is acknowledged, and the store stops the process.
#[test]
fn a_failed_commit_acknowledges_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let full = "CREATE TRIGGER full BEFORE INSERT ON units BEGIN SELECT raise(ABORT, 'disk full'); END";
    database(folder.path()).execute_batch(full).unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), |_| STOPPED.store(true, Ordering::SeqCst)).unwrap());
    let runner = prepare(&store, COUNTS, options("r")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // The stop comes from the writer's thread; the run is never acknowledged, so that only the stop ends the wait.
    let acknowledged = runtime.block_on(async {
        let stopped = async {
            while !STOPPED.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = runner.run() => true,
            () = stopped => false,
        }
    });
    assert!(!acknowledged);
    assert_eq!(store.find(&tenant(), &RunId::from("r")).unwrap(), None);
}
