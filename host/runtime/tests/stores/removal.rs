//! The removal of runs: the store decides which of them may go, also while other processes claim and repeat them.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use flowcell_contract::RunId;
use flowcell_runtime::{
    RunStatus,
    ports::{Durable, Entry, Record, Removed, Removing, StoredStatus, Undeletable},
};

use super::{
    backend::{Backend, Store},
    units::{entry, everything, record, unit, with_status},
};
use crate::flows::tenant;

const ENDED: StoredStatus = StoredStatus::Ended(RunStatus::Failed);
/// Number of runs for which two threads race.
const RACES: usize = 60;

/// Returns the entry of a new run that repeats another one.
fn repeating(run: &str, repeated: &str, status: StoredStatus) -> Entry {
    let again = Record { repeats: Some(repeated.into()), ..record(run) };
    Entry { record: Some(again), ..with_status(run, unit(0), status) }
}

fn removed(runs: &[&str]) -> Removed {
    Removed { runs: runs.iter().map(|run| RunId::from(*run)).collect(), kept: Vec::new() }
}

pub(crate) fn runs_that_are_needed_stay(backend: &Backend) {
    let store = backend.open();
    let parked = StoredStatus::Parked { due: None, needs_attention: true };
    store.append(with_status("active", unit(0), StoredStatus::Active));
    store.append(with_status("asks", unit(0), parked));
    store.append(with_status("top", unit(0), ENDED));
    let below = |run: &str, parent: &str, depth| Record { parent: Some(parent.into()), depth, ..record(run) };
    store.append(Entry { record: Some(below("c", "top", 1)), ..with_status("c", unit(0), ENDED) });
    store.append(Entry { record: Some(below("d", "c", 2)), ..with_status("d", unit(0), StoredStatus::Active) });
    store.append(with_status("first", unit(0), ENDED));
    store.append(repeating("second", "first", ENDED));
    store.append(repeating("third", "second", parked));
    store.append(with_status("free", unit(0), ENDED));
    store.settle();
    store.let_go();
    store.settle();
    let not_ended = |run: &str, status: &str| Undeletable::NotEnded { run: run.into(), status: status.into() };
    let repeated = |run: &str| Undeletable::Repeated { run: run.into(), by: "third".into() };
    let kept = [
        Undeletable::Unknown("none".into()),
        not_ended("active", "running"),
        not_ended("asks", "needs_attention"),
        Undeletable::EndsBelow("top".into()),
        Undeletable::Called { run: "c".into(), parent: "top".into() },
        repeated("first"),
        repeated("second"),
    ];
    let all = ["none", "active", "asks", "top", "c", "first", "second", "free"];
    let runs: Vec<RunId> = all.iter().map(|run| RunId::from(*run)).collect();
    let refused = store.sweep.remove(&tenant(), &runs, Removing::AllOrNone).unwrap();
    assert_eq!(refused, Removed { runs: Vec::new(), kept: kept.to_vec() });
    assert_eq!(everything(&*store.journal, "free").len(), 1);
    assert_eq!(store.remove(&all), Removed { kept: kept.to_vec(), ..removed(&["free"]) });
    // The last needs end.
    store.append(with_status("third", unit(1), ENDED));
    store.hold("top");
    store.append(with_status("d", unit(1), ENDED));
    store.let_go();
    store.settle();
    assert_eq!(store.remove(&["first", "second", "third", "top"]), removed(&["first", "second", "third", "top"]));
    assert_eq!(store.remove(&["first"]).kept, [Undeletable::Unknown("first".into())]);
    assert!(everything(&*store.journal, "d").is_empty());
}

/// Returns the stores of two processes. A store in memory or in a folder has one process.
fn two_processes(backend: &Backend) -> [Arc<Store>; 2] {
    let one = Arc::new(backend.open());
    let other = if let Backend::Server(..) = backend { Arc::new(backend.open()) } else { one.clone() };
    [one, other]
}

/// One process removes runs while another one begins to repeat them. Either the run is gone and the repetition does not
/// begin, or the repetition has begun and the run stays.
pub(crate) fn a_run_is_removed_or_repeated(backend: &Backend) {
    let [one, other] = two_processes(backend);
    let names: Vec<String> = (0..RACES).map(|index| format!("r{index}")).collect();
    names.iter().for_each(|run| one.append(with_status(run, unit(0), ENDED)));
    one.settle();
    one.let_go();
    one.settle();
    let barrier = Arc::new(Barrier::new(2));
    let repeating = {
        let (other, names, barrier) = (other.clone(), names.clone(), barrier.clone());
        thread::spawn(move || -> Vec<bool> {
            let repeat = |run: &String| {
                let durable = Arc::<Durable>::default();
                barrier.wait();
                let again = repeating(&format!("{run}-again"), run, StoredStatus::Active);
                other.append(Entry { durable: durable.clone(), ..again });
                // A later unit of a refused run is refused, too.
                other.append(Entry { durable: durable.clone(), ..entry(&format!("{run}-again"), unit(1)) });
                other.settle();
                assert_eq!(durable.is_refused(), durable.next_seq() < 2);
                !durable.is_refused()
            };
            names.iter().map(repeat).collect()
        })
    };
    let remove = |run: &String| {
        barrier.wait();
        one.remove(&[run])
    };
    let removals: Vec<Removed> = names.iter().map(remove).collect();
    let begun = repeating.join().unwrap();
    for ((run, removal), has_begun) in names.iter().zip(removals).zip(begun) {
        let by = RunId::from(format!("{run}-again"));
        let repeated = Undeletable::Repeated { run: run.as_str().into(), by: by.clone() };
        let expected = if has_begun { Removed { runs: Vec::new(), kept: vec![repeated] } } else { removed(&[run]) };
        assert_eq!(removal, expected);
        let units = [run, by.as_str()].map(|run| everything(&*one.journal, run).len());
        assert_eq!(units, if has_begun { [1, 2] } else { [0, 0] });
    }
}

/// One process removes ended runs while another one claims them, to read them or to go on. A claimed run stays.
pub(crate) fn a_run_is_removed_or_claimed(backend: &Backend) {
    let Backend::Server(..) = backend else { return };
    let [one, other] = two_processes(backend);
    let names: Vec<String> = (0..RACES).map(|index| format!("r{index}")).collect();
    names.iter().for_each(|run| one.append(with_status(run, unit(0), ENDED)));
    one.settle();
    one.let_go();
    one.settle();
    let barrier = Arc::new(Barrier::new(2));
    let claiming = {
        let (other, names, barrier) = (other.clone(), names.clone(), barrier.clone());
        thread::spawn(move || {
            for run in names {
                barrier.wait();
                let lease = other.leases.claim(&tenant(), &run.as_str().into()).unwrap();
                let before = everything(&*other.journal, &run).len();
                barrier.wait();
                assert!(lease.is_some());
                assert_eq!(everything(&*other.journal, &run).len(), before, "a claimed run was removed");
            }
        })
    };
    for run in &names {
        barrier.wait();
        let removal = one.remove(&[run]);
        barrier.wait();
        if let [why] = &removal.kept[..] {
            assert_eq!(*why, Undeletable::Driven(run.as_str().into()));
            assert_eq!(everything(&*one.journal, run).len(), 1);
        } else {
            assert_eq!(removal, removed(&[run]));
        }
    }
    claiming.join().unwrap();
}
