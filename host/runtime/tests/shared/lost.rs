//! Databases that lack the last commits of a process: older copies that came back, and promoted replicas.

use std::{path::Path, sync::Arc, time::Duration};

use flowcell_runtime::{
    RunStatus,
    ports::{Durable, Entry, Erase, Journal, Leases, Removing, StoredStatus, Sweep},
    sql::{Options, SharedStore},
};

use super::wait_for;
use crate::{
    flows::tenant,
    stores::backend::Backend,
    stores::units::{entry, everything, unit},
};

/// A restore adds at least this to the number of the epoch.
const RESTORED_STEP: i64 = 1 << 32;

fn open(backend: &Backend, epoch_file: Option<&Path>) -> SharedStore {
    let Backend::Server(server, database) = backend else { panic!("no server") };
    let options = Options {
        lease: Duration::from_secs(3),
        epoch_file: epoch_file.map(Into::into),
        spared: Duration::ZERO,
        ..Options::default()
    };
    SharedStore::open(&server.url(database), options).unwrap()
}

fn number(backend: &Backend, question: &str) -> i64 {
    let Backend::Server(server, database) = backend else { panic!("no server") };
    server.number(database, question)
}

/// Appends a unit to a run that the store drives, and waits until it is durable.
fn write(store: &SharedStore, run: &str, seq: u64, status: Option<StoredStatus>) {
    let durable = Arc::<Durable>::default();
    store.append(Entry { force: true, status, durable: durable.clone(), ..entry(run, unit(seq)) });
    wait_for("the end of a write", || (durable.next_seq() > seq).then_some(()));
}

/// Returns whether a process has noticed a restore, and how often.
fn restores(backend: &Backend) -> i64 {
    number(backend, "SELECT number FROM flowcell_epoch") / RESTORED_STEP
}

/// Waits until every process has checked the database and has renewed its lease.
fn wait_for_checks(backend: &Backend) {
    let until = || number(backend, "SELECT min(until) FROM flowcell_owners");
    // A renewal that was under way may have checked before.
    for _ in 0..2 {
        let before = number(backend, "SELECT max(until) FROM flowcell_owners");
        wait_for("the renewal of all leases", || (until() > before).then_some(()));
    }
}

/// Takes the last unit of the run `r` back, which then has one unit less.
fn lose_last_unit(backend: &Backend) {
    let of_r = "run = (SELECT min(id) FROM flowcell_runs)";
    let end = number(backend, "SELECT next_seq FROM flowcell_runs ORDER BY id LIMIT 1") - 1;
    let tail =
        number(backend, &format!("SELECT checksum FROM flowcell_units WHERE {of_r} AND first_seq = {}", end - 1));
    backend.execute("", &format!("DELETE FROM flowcell_units WHERE {of_r} AND first_seq = {end}"));
    backend
        .execute("", &format!("UPDATE flowcell_runs SET next_seq = {end}, tail = {tail} WHERE next_seq = {}", end + 1));
}

/// A process recognises a database without its last unit, whose loss the number of the epoch does not show. The runs are
/// parked once, and the other process accepts the database.
pub(crate) fn t11_a_database_without_the_last_unit_is_an_older_copy(backend: &Backend) {
    let (one, other) = (open(backend, None), open(backend, None));
    let _leases = [one.claim(&tenant(), &"r".into()), other.claim(&tenant(), &"o".into())].map(Result::unwrap);
    (0..3).for_each(|seq| write(&one, "r", seq, None));
    write(&other, "o", 0, None);
    wait_for_checks(backend);
    assert_eq!(restores(backend), 0);
    lose_last_unit(backend);
    wait_for("the parked runs", || {
        (number(backend, "SELECT count(*) FROM flowcell_runs WHERE attention = 1") == 2).then_some(())
    });
    wait_for_checks(backend);
    assert_eq!(restores(backend), 1, "the runs are parked once");
    assert_eq!((everything(&one, "r").len(), everything(&one, "o").len()), (3, 2));
    let lease = one.claim(&tenant(), &"s".into()).unwrap();
    write(&one, "s", 0, None);
    drop(lease);
    wait_for_checks(backend);
    assert_eq!(restores(backend), 1);
}

/// A database without the last run of a process is an older copy, too.
pub(crate) fn t11_a_database_without_the_last_run_is_an_older_copy(backend: &Backend) {
    let store = open(backend, None);
    let leases = ["r", "s"].map(|run| store.claim(&tenant(), &run.into()).unwrap());
    ["r", "s"].iter().for_each(|run| write(&store, run, 0, None));
    let last = number(backend, "SELECT max(id) FROM flowcell_runs");
    backend.execute("", &format!("DELETE FROM flowcell_units WHERE run = {last}"));
    backend.execute("", &format!("DELETE FROM flowcell_runs WHERE id = {last}"));
    wait_for("the restore", || (restores(backend) == 1).then_some(()));
    drop(leases);
}

/// The removal of the runs that a process wrote last, and of their tenant, is no restore.
pub(crate) fn a_database_without_removed_runs_is_no_older_copy(backend: &Backend) {
    let store = open(backend, None);
    for run in ["r", "s"] {
        let lease = store.claim(&tenant(), &run.into()).unwrap();
        write(&store, run, 0, Some(StoredStatus::Ended(RunStatus::Succeeded)));
        drop(lease);
    }
    store.settle().unwrap();
    assert_eq!(store.remove(&tenant(), &["s".into()], Removing::Each).unwrap().kept, []);
    wait_for_checks(backend);
    while store.erase_some(&tenant()).unwrap() > 0 {}
    wait_for_checks(backend);
    assert_eq!(restores(backend), 0);
}

/// A process that has ended recognises the older copy when it starts again, by the file beside that of the epoch.
pub(crate) fn t11_a_process_that_starts_recognises_the_loss_of_its_last_unit(backend: &Backend) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("epoch");
    let run = |from: u64| {
        let store = open(backend, Some(&file));
        let lease = store.claim(&tenant(), &"r".into()).unwrap();
        (from..from + 2).for_each(|seq| write(&store, "r", seq, None));
        drop(lease);
    };
    run(0);
    run(2);
    assert_eq!(restores(backend), 0);
    lose_last_unit(backend);
    drop(open(backend, Some(&file)));
    assert_eq!((restores(backend), number(backend, "SELECT attention FROM flowcell_runs")), (1, 1));
    drop(open(backend, Some(&file)));
    assert_eq!(restores(backend), 1);
}
