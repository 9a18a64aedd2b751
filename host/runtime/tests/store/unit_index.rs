//! The index of units: the units of a run are found even if units of other runs are between them or were removed.

use std::sync::Arc;

use flowcell_contract::Json;
use flowcell_runtime::{
    ports::{Journal, Runs, Unit},
    sqlite::Reader,
};

use super::{
    everything, forget,
    large::{entry, outputs},
    open,
};
use crate::flows::tenant;

/// The number of units of the run that is removed.
const GONE: usize = 150;
/// The number of units that two runs then append in turn.
const AFTER: usize = 200;

#[test]
fn units_are_found_wherever_they_are_and_whatever_was_removed() {
    // Around as many as are noted at a time.
    for before in [1, 100, 127, 128, 129, 300] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let units = outputs((0..1_000_u64).map(Json::from));
        let append = |run: &str, at: usize| store.append(entry(run, units[at].clone()));
        (0..before).for_each(|at| append("a", at));
        (0..GONE).for_each(|at| append("gone", at));
        forget(&store, "gone");
        for at in 0..AFTER {
            append("b", at);
            append("a", before + at);
        }
        store.settle().unwrap();
        let all = before + AFTER;
        let check = |reader: &Reader, all: usize| {
            assert_eq!(everything(reader, "a"), shared(&units[..all]), "{before}");
            assert_eq!(everything(reader, "b"), shared(&units[..AFTER]), "{before}");
            for from in [0, 1, 126, 127, 128, 129, before, all - 2, all].map(|from| from.min(all)) {
                let page = reader.read(&tenant(), &"a".into(), from as u64, 3).unwrap();
                assert_eq!(page, shared(&units[from..(from + 3).min(all)]), "{before}, from {from}");
            }
            assert_eq!(reader.run(&tenant(), &"a".into()).unwrap().unwrap().1, all as u64);
        };
        check(store.reader(), all);
        drop(store);
        // The next process finds where the journal goes on.
        let store = open(folder.path());
        store.append(entry("a", units[all].clone()));
        store.settle().unwrap();
        check(&Reader::open(folder.path()).unwrap(), all + 1);
    }
}

fn shared(units: &[Unit]) -> Vec<Arc<Unit>> {
    units.iter().cloned().map(Arc::new).collect()
}
