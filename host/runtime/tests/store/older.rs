//! Stores that older versions of the program have written.

use std::{fs, io::Write, path::Path};

use flowcell_runtime::{
    RunStatus,
    ports::{Filter, Journal, Runs, StateStore},
    sqlite::{OpenStoreError, Reader, SqliteStore, stop_process},
};

use super::{ASKS, COUNTS, answered, database, everything, forget, open, options, run, tenant};

/// Copies the content of a store into a new store of version 1.
fn as_version_1(from: &Path, to: &Path) {
    let old = database(to);
    old.execute_batch(include_str!("version-1.sql")).unwrap();
    old.execute("ATTACH ? AS new", [from.join("flowcell.db").to_str().unwrap()]).unwrap();
    let tables = [
        ("runs", "id, tenant, run, flow, depth, parent, record, standing, due, created, updated, next_seq", ", 1"),
        ("units", "run, first_seq, facts, ts, body, checksum", ""),
        ("state", "tenant, flow, key, value, version", ""),
        ("blobs", "tenant, hash, mime, bytes", ""),
    ];
    for (table, columns, more) in tables {
        let from = columns.strip_suffix(", next_seq").unwrap_or(columns);
        let sql = format!("INSERT INTO {table} ({columns}) SELECT {from}{more} FROM new.{table}");
        old.execute(&sql, []).unwrap();
    }
}

/// Creates a store with a parked run `r`, an ended run `e` and a removed run. Returns the folder of this store and the
/// folder of its copy in version 1.
fn version_1() -> (tempfile::TempDir, tempfile::TempDir) {
    let (new, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(new.path());
    run(&store, COUNTS, options("gone"));
    run(&store, COUNTS, options("e"));
    assert_eq!(run(&store, ASKS, options("r")).status, RunStatus::Parked);
    forget(&store, "gone");
    drop(store);
    as_version_1(new.path(), old.path());
    (new, old)
}

fn version(folder: &Path) -> u32 {
    database(folder).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn r24_a_store_of_version_1_is_upgraded_and_its_runs_go_on() {
    let (new, old) = version_1();
    assert_eq!(version(old.path()), 1);
    let store = open(old.path());
    assert_eq!(version(old.path()), version(new.path()));
    let before = Reader::open(new.path()).unwrap();
    for run in ["r", "e"] {
        assert!(!everything(&before, run).is_empty());
        assert_eq!(everything(store.reader(), run), everything(&before, run));
        assert!(store.reader().read(&tenant(), &run.into(), 1_000, 1).unwrap().is_empty());
    }
    assert_eq!(store.get(&tenant(), "f", "count").unwrap().unwrap().1, 3);
    assert!(store.reader().find(&tenant(), &"gone".into()).unwrap_err().to_string().contains("was removed"));
    assert_eq!(run(&store, ASKS, answered("r")).status, RunStatus::Succeeded);
    assert_eq!(store.reader().read(&tenant(), &"gone".into(), 0, 100).unwrap(), []);
    drop(store);
    let damaged = "UPDATE units SET body = replace(body, 'RunStarted', 'RunStartet') WHERE first_seq = 0";
    assert_eq!(database(old.path()).execute(damaged, []).unwrap(), 2);
    let told = Reader::open(old.path()).unwrap().read(&tenant(), &"e".into(), 0, 100).unwrap_err().to_string();
    assert_eq!(told, "the journal of run `e` is damaged: the checksum at event 0 is wrong");
}

#[test]
fn a_reader_upgrades_a_store_without_an_owner() {
    let (_new, old) = version_1();
    let mut lock = fs::File::create(old.path().join("owner.lock")).unwrap();
    lock.lock().unwrap();
    lock.write_all(b"process 1").unwrap();
    let refused = Reader::open(old.path()).err().unwrap();
    assert!(matches!(&refused, OpenStoreError::Owned { owner, .. } if owner == "process 1"), "{refused}");
    assert_eq!(version(old.path()), 1);
    lock.unlock().unwrap();
    let reader = Reader::open(old.path()).unwrap();
    let rows = reader.runs(&tenant(), &Filter { limit: 10, ..Filter::default() }).unwrap();
    assert_eq!(rows.iter().map(|row| row.run_id.as_str()).collect::<Vec<_>>(), ["r", "e"]);
    assert!(!everything(&reader, "e").is_empty());
    // The lock is free again.
    drop(SqliteStore::open(old.path(), stop_process).unwrap());
}
