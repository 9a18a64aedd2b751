//! Processes that start or claim the same runs at the same time.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use flowcell_runtime::{
    FlowRunner, OpenError, Pinned,
    fact::Fact,
    ports::{Entry, Pin, Record, StoredStatus},
    shared::SharedRuns,
    sql::Options,
};

use super::wait_for;
use crate::{
    flows::{COUNTS, graph, options, tenant},
    stores::backend::{Backend, Store},
    stores::units::{entry, everything, record, unit, with_status},
};

fn open(backend: &Backend) -> Arc<Store> {
    Arc::new(backend.open_with(Options::default()))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// R18: four processes start the same run a hundred times. It starts once.
pub(crate) fn r18_a_run_that_many_processes_start_starts_once(backend: &Backend) {
    let stores: Vec<_> = (0..4).map(|_| open(backend)).collect();
    let begin = |index: usize| {
        let store = stores[index % 4].clone();
        thread::spawn(move || {
            let flow = Pinned { graph: graph(COUNTS), pin: Pin("f".into()) };
            match FlowRunner::new(flow, store.world(COUNTS), options("r")) {
                Ok(runner) => block_on(runner.accept()).is_ok(),
                Err(OpenError::Driven(_)) => false,
                Err(error) => panic!("{error}"),
            }
        })
    };
    let begun: Vec<_> = (0..100).map(begin).collect();
    let accepted = begun.into_iter().map(|thread| thread.join().unwrap()).filter(|accepted| *accepted).count();
    assert!(accepted > 0);
    let units = everything(&*stores[0].journal, "r");
    let starts = units.iter().flat_map(|unit| &unit.facts).filter(|fact| matches!(fact, Fact::RunStarted { .. }));
    assert_eq!(starts.count(), 1);
}

pub(crate) fn each_run_is_offered_to_one_process(backend: &Backend) {
    let stores: Vec<_> = (0..4).map(|_| open(backend)).collect();
    for run in 0..40 {
        stores[0].append(with_status(&format!("r{run}"), unit(0), StoredStatus::Active));
    }
    let parked = StoredStatus::Parked { due: Some(7), needs_attention: false };
    stores[0].append(with_status("due", unit(0), parked));
    stores[0].settle();
    stores[0].let_go();
    stores[0].settle();
    // Each gets the requested number, as long as runs are left.
    let work = |store: &Arc<Store>, limit| store.server.as_ref().unwrap().work(&tenant(), 7, limit).unwrap();
    let first: Vec<_> = stores.iter().map(|store| work(store, 3)).collect();
    assert!(first.iter().all(|mine| mine.len() == 3));
    // Concurrently: a run that another process is about to claim is skipped, and nothing is claimed twice.
    let left = Arc::new(AtomicUsize::new(41 - 12));
    let take = |store: &Arc<Store>| {
        let (store, left) = (store.clone(), left.clone());
        thread::spawn(move || {
            let mut mine = Vec::new();
            wait_for("the rest of the work", || {
                let some = store.server.as_ref().unwrap().work(&tenant(), 7, 3).unwrap();
                assert!(some.len() <= 3);
                left.fetch_sub(some.len(), Ordering::SeqCst);
                mine.extend(some);
                (left.load(Ordering::SeqCst) == 0).then_some(())
            });
            mine
        })
    };
    let found: Vec<_> = stores.iter().map(take).collect();
    let mut found: Vec<_> = found.into_iter().map(|thread| thread.join().unwrap()).collect();
    found.extend(first);
    let runs: BTreeSet<_> = found.iter().flatten().map(|offer| offer.run.as_str().to_owned()).collect();
    assert_eq!(runs.len(), 41);
    // Runs that are not driven are given back.
    drop(found);
    stores.iter().for_each(|store| store.settle());
    assert_eq!(stores[1].server.as_ref().unwrap().work(&tenant(), 7, 100).unwrap().len(), 41);
}

/// R25, runs that may kill their process: a run is claimed again however often processes have given it up, since
/// another run may have been the cause.
pub(crate) fn r25_a_run_that_was_claimed_in_vain_is_offered_again(backend: &Backend) {
    let store = open(backend);
    store.append(with_status("r", unit(0), StoredStatus::Active));
    store.settle();
    store.let_go();
    store.settle();
    let server = store.server.as_ref().unwrap();
    for _ in 0..10 {
        assert_eq!(server.work(&tenant(), 0, 10).unwrap().len(), 1);
        store.settle();
    }
}

/// A run `r.c.g` begins on the third level of a tree in a process that has claimed the tree, but has not written to the
/// parent `r.c`. Another process has written `r.c`.
pub(crate) fn a_run_begins_below_one_that_another_process_has_written(backend: &Backend) {
    let below = |run: &str, parent: &str, depth: u32| {
        let record = Record { parent: Some(parent.into()), root: "r".into(), depth, ..record(run) };
        Entry { record: Some(record), ..entry(run, unit(0)) }
    };
    let first = open(backend);
    first.append(entry("r", unit(0)));
    first.append(below("r.c", "r", 1));
    first.settle();
    first.let_go();
    first.settle();
    drop(first);
    let second = open(backend);
    second.hold("r");
    second.journal.find(&tenant(), &"r.c".into()).unwrap();
    second.append(below("r.c.g", "r.c", 2));
    second.settle();
    assert_eq!(everything(&*second.journal, "r.c.g").len(), 1);
    // The ends of the journals above are known, too.
    second.append(entry("r.c", unit(1)));
    second.settle();
    assert_eq!(everything(&*second.journal, "r.c").len(), 2);
}

/// Another process reads the units that a process writes, in order.
pub(crate) fn events_are_read_in_any_process(backend: &Backend) {
    let (one, two) = (open(backend), open(backend));
    let reader = thread::spawn(move || {
        let mut seen = Vec::new();
        wait_for("all units", || {
            let more = two.journal.read(&tenant(), &"r".into(), seen.len() as u64, 10).unwrap();
            seen.extend(more.iter().map(|unit| unit.first_seq));
            (seen.len() == 200).then_some(())
        });
        seen
    });
    for seq in 0..200 {
        one.append(with_status("r", unit(seq), StoredStatus::Active));
        if seq % 10 == 0 {
            one.journal.force();
        }
    }
    one.journal.force();
    assert_eq!(reader.join().unwrap(), (0..200).collect::<Vec<_>>());
}
