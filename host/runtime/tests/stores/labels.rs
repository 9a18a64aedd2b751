//! Changes of the labels of stored runs.

use std::collections::BTreeMap;

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::{graph::NodeIx, labels::LabelError, limits::LABELS};
use flowcell_runtime::{
    RunStatus,
    fact::{Fact, ScopeId, TaskKey},
    ports::{Entry, Filter, LabelChange, Move, Pin, Record, RelabelError, StoredStatus, Unit},
};

use crate::{
    flows::tenant,
    stores::{
        backend::{Backend, Store},
        suite::reopen,
        units::{entry, record},
    },
};

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn change(set: &[(&str, &str)], remove: &[&str]) -> LabelChange {
    LabelChange { set: labels(set), remove: remove.iter().map(|name| (*name).to_owned()).collect() }
}

fn unit(first_seq: u64) -> Unit {
    let task = TaskKey { scope: ScopeId::ROOT, node: NodeIx(0) };
    Unit { first_seq, ts: 5, facts: vec![Fact::AttemptStarted { task }] }
}

/// Asserts the labels of a run in its record, in its row, and in the searched rows.
#[track_caller]
fn assert_labels(store: &Store, run: &str, expected: &[(&str, &str)]) {
    let expected = labels(expected);
    let run = RunId::from(run);
    assert_eq!(store.journal.find(&tenant(), &run).unwrap().unwrap().labels, expected);
    assert_eq!(store.runs().run(&tenant(), &run).unwrap().unwrap().0.labels, expected);
    for name in ["team", "tier", "a", "b", "c", "d"] {
        for value in ["billing", "ops", "gold"] {
            let filter = Filter { labels: vec![(name.to_owned(), value.to_owned())], limit: 100, ..Filter::default() };
            let found = store.runs().runs(&tenant(), &filter).unwrap().iter().filter(|row| row.run_id == run).count();
            assert_eq!(found, usize::from(expected.get(name).is_some_and(|has| has == value)), "{name}={value}");
        }
    }
}

pub(crate) fn labels_of_stored_runs_change_and_a_move_keeps_them(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let first = Record { version: Some(1), labels: labels(&[("team", "billing")]), ..record("r") };
    store.append(Entry { record: Some(first.clone()), ..entry("r", unit(0)) });
    let ended = Some(StoredStatus::Ended(RunStatus::Succeeded));
    store.append(Entry { status: ended, ..entry("ended", unit(0)) });
    store.append(entry("gone", unit(0)));
    store.settle();
    store.forget("gone");
    store.settle();
    // A run of this process, an ended one, one that was removed, and one that does not exist.
    let runs: Vec<RunId> = ["r", "ended", "gone", "none"].map(RunId::from).to_vec();
    let unknown = |run: &str| Err(RelabelError::Unknown(run.into()));
    let changed = store.relabel(&tenant(), &runs, &change(&[("team", "ops"), ("tier", "gold")], &["absent"]));
    assert_eq!(changed, [Ok(()), Ok(()), unknown("gone"), unknown("none")]);
    assert_eq!(store.relabel(&Tenant::from("other"), &runs[..1], &change(&[], &["team"])), [unknown("r")]);
    for run in ["r", "ended"] {
        assert_labels(&store, run, &[("team", "ops"), ("tier", "gold")]);
    }
    // The driver moves the run with the record that it has read before.
    let moves = vec![Move { from: first.pin.clone(), dropped: Box::new([NodeIx(3)]), names: BTreeMap::new() }];
    let moved = Record { pin: Pin("g".into()), version: Some(2), moves, ..first };
    store.append(Entry { record: Some(moved.clone()), ..entry("r", unit(1)) });
    let store = reopen(backend, store);
    assert_labels(&store, "r", &[("team", "ops"), ("tier", "gold")]);
    let found = store.journal.find(&tenant(), &"r".into()).unwrap().unwrap();
    assert_eq!((found.version, found.moves), (Some(2), moved.moves));
    // Too many labels change nothing.
    let many: Vec<_> = (0..LABELS).map(|label| label.to_string()).collect();
    let many = LabelChange { set: many.into_iter().map(|name| (name, "x".into())).collect(), ..change(&[], &["team"]) };
    let refused = store.relabel(&tenant(), &runs[..1], &many);
    assert_eq!(refused, [Err(RelabelError::Labels(LabelError::TooMany(LABELS + 1)))]);
    assert_eq!(store.relabel(&tenant(), &runs[1..2], &change(&[], &["team", "tier"])), [Ok(())]);
    let store = reopen(backend, store);
    assert_labels(&store, "r", &[("team", "ops"), ("tier", "gold")]);
    assert_labels(&store, "ended", &[]);
}

/// On a server the callers are processes of their own, and another process has claimed the runs.
pub(crate) fn changes_of_labels_at_the_same_time_all_take_effect(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let names = ["r0", "r1", "r2"];
    names.iter().for_each(|run| store.append(entry(run, unit(0))));
    store.settle();
    let others: Vec<_> = (0..4).map(|_| store.server.is_some().then(|| backend.open())).collect();
    std::thread::scope(|scope| {
        for (name, other) in ["a", "b", "c", "d"].into_iter().zip(&others) {
            let store = other.as_ref().unwrap_or(&store);
            scope.spawn(move || {
                let mut runs: Vec<RunId> = names.map(RunId::from).to_vec();
                for round in 0..4 {
                    runs.rotate_left(1);
                    let value = if round == 3 { "gold" } else { "ops" };
                    let changed = store.relabel(&tenant(), &runs, &change(&[(name, value)], &[]));
                    assert!(changed.iter().all(Result::is_ok), "{changed:?}");
                }
            });
        }
        for seq in 1..5 {
            names.iter().for_each(|run| store.append(entry(run, unit(seq))));
        }
    });
    store.settle();
    for run in names {
        assert_labels(&store, run, &[("a", "gold"), ("b", "gold"), ("c", "gold"), ("d", "gold")]);
    }
}
