//! The sweep of an SQLite store: it removes the blobs that nothing in the store refers to any more, and no others.

use std::{path::Path, sync::Arc};

use flowcell_contract::{BlobRef, Blobs, Json, Tenant, Value};
use flowcell_runtime::{
    fact::Write,
    limits::MAX_INLINE_BYTES,
    ports::{Entry, Journal, Pin, Record, StateStore, Sweep, Swept},
    sqlite::SqliteStore,
};

use super::{
    database, everything, forget,
    large::{entry, outputs, text},
    open, tenant,
};

fn put(store: &SqliteStore, bytes: &[u8]) -> BlobRef {
    store.put(&tenant(), bytes.into(), "application/octet-stream")
}

/// Appends a new run of one unit, in which a task has succeeded with this output.
fn append(store: &SqliteStore, run: &str, output: Json) {
    store.append(entry(run, outputs([output]).remove(0)));
}

fn blobs(folder: &Path) -> u64 {
    database(folder).query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap()
}

fn swept(sizes: &[usize]) -> Swept {
    Swept { blobs: sizes.len() as u64, bytes: sizes.iter().sum::<usize>() as u64, ..Swept::default() }
}

#[test]
fn blobs_that_only_removed_runs_named_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (shared, own) = (text(MAX_INLINE_BYTES), text(MAX_INLINE_BYTES + 1));
    append(&store, "a", Json::array([shared.clone(), own]));
    append(&store, "b", Json::array([shared.clone()]));
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[]));
    assert_eq!(blobs(folder.path()), 2);
    forget(&store, "a");
    assert_eq!(store.sweep(&Tenant::from("other")).unwrap(), swept(&[]));
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[MAX_INLINE_BYTES + 3]));
    assert_eq!(everything(store.reader(), "b").len(), 1);
    // A removed blob is written again when its content is stored again.
    append(&store, "c", Json::array([text(MAX_INLINE_BYTES + 1)]));
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[]));
    assert_eq!(everything(store.reader(), "c").len(), 1);
    forget(&store, "b");
    forget(&store, "c");
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[MAX_INLINE_BYTES + 2, MAX_INLINE_BYTES + 3]));
    assert_eq!(blobs(folder.path()), 0);
}

/// A sweep spares every blob that a run refers to: the blob of its pin and the blobs that this blob refers to, files in
/// values, and files inside large values.
#[test]
fn blobs_that_a_kept_run_names_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let pack = put(&store, b"a pack");
    let pinned = put(&store, format!("{{\"packs\":{{\"p\":\"{}\"}}}}", pack.file_id).as_bytes());
    let [file, inner] = [put(&store, b"a file"), put(&store, b"another file")];
    let large = Json::array([Value::from(inner.clone()).json().clone(), text(MAX_INLINE_BYTES - 20)]);
    let record =
        Record { pin: Pin(pinned.file_id.clone()), ..entry("r", outputs([Json::Null]).remove(0)).record.unwrap() };
    let unit = outputs([Json::array([Value::from(file.clone()).json().clone(), large])]).remove(0);
    store.append(Entry { record: Some(record), ..entry("r", unit) });
    put(&store, b"an orphan");
    drop(store);
    let store = open(folder.path());
    assert_eq!(blobs(folder.path()), 6);
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[b"an orphan".len()]));
    for blob in [&pack, &pinned, &file, &inner] {
        assert!(Blobs::get(&*store, &tenant(), blob).unwrap().is_some());
    }
    assert_eq!(everything(store.reader(), "r").len(), 1);
    forget(&store, "r");
    assert_eq!(store.sweep(&tenant()).unwrap().blobs, 5);
}

#[test]
fn state_keeps_its_latest_value() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for (seq, size) in [(0, MAX_INLINE_BYTES), (1, MAX_INLINE_BYTES + 5)] {
        let write = Write { key: "k".into(), value: Value::from(text(size)), expected: None };
        let writes = store.stage(&tenant(), &"f".into(), vec![write]).unwrap();
        let unit = outputs([Json::Null, Json::Null]).remove(seq);
        store.append(Entry { writes: Some(writes), ..entry("r", unit) });
    }
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[MAX_INLINE_BYTES + 2]));
    let (value, _) = StateStore::get(&*store, &tenant(), "f", "k").unwrap().unwrap();
    assert_eq!(value.json(), &text(MAX_INLINE_BYTES + 5));
}

/// A sweep spares a blob that this process has stored, because a fact may soon refer to it. After a restart, a blob is
/// spared only if something refers to it or this process has stored it again.
#[test]
fn recently_put_blobs_are_spared() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let early = put(&store, b"early");
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[]));
    drop(store);
    let store = open(folder.path());
    // It is there already, and put again.
    let again = put(&store, b"early");
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[]));
    let unit = outputs([Value::from(again).json().clone()]).remove(0);
    store.append(entry("r", unit));
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.sweep(&tenant()).unwrap(), swept(&[]));
    assert_eq!(Blobs::get(&*store, &tenant(), &early).unwrap(), Some(Arc::from(*b"early")));
}

/// A sweep removes all unused blobs or none. If it fails, its caller gets the error.
#[test]
fn a_sweep_that_fails_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for size in 0..3 {
        append(&store, &format!("r{size}"), Json::array([text(MAX_INLINE_BYTES + size)]));
    }
    drop(store);
    let full = "CREATE TRIGGER full BEFORE DELETE ON blobs WHEN (SELECT count(*) FROM blobs) = 2
        BEGIN SELECT raise(ABORT, 'disk full'); END";
    database(folder.path()).execute_batch(full).unwrap();
    let store = SqliteStore::open(folder.path(), |_| ()).unwrap();
    (0..3).for_each(|run| forget(&store, &format!("r{run}")));
    for _ in 0..2 {
        assert_eq!(store.sweep(&tenant()).unwrap_err().to_string(), "the store accepts no more writes");
    }
    drop(store);
    database(folder.path()).execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(blobs(folder.path()), 3);
}

/// A sweep that leaves the file mostly empty shortens it, and everything else stays readable.
#[test]
fn the_file_shrinks_after_a_large_removal() {
    let folder = tempfile::tempdir().unwrap();
    let length = || folder.path().join("flowcell.db").metadata().unwrap().len();
    let store = open(folder.path());
    append(&store, "r", Json::array([text(MAX_INLINE_BYTES)]));
    for index in 0..24_u8 {
        put(&store, &vec![index; 1 << 20]);
    }
    store.settle().unwrap();
    drop(store);
    // Another process spares no blob that this one has put.
    let full = length();
    assert!(full > 24 << 20, "{full}");
    let store = open(folder.path());
    let swept = store.sweep(&tenant()).unwrap();
    assert_eq!(swept.blobs, 24);
    assert!(swept.file_bytes > 23 << 20, "{swept:?}");
    assert!(length() < 1 << 20, "{}", length());
    assert_eq!(everything(store.reader(), "r").len(), 1);
    append(&store, "s", Json::array([text(10)]));
    store.settle().unwrap();
    drop(store);
    assert_eq!(everything(open(folder.path()).reader(), "s").len(), 1);
}

/// A compaction on request shortens the file in any case, and refuses without room.
#[test]
fn a_store_is_compacted_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    append(&store, "r", Json::array([text(1_000_000)]));
    append(&store, "s", Json::array([text(MAX_INLINE_BYTES)]));
    store.settle().unwrap();
    drop(store);
    let store = open(folder.path());
    forget(&store, "r");
    assert_eq!(store.sweep(&tenant()).unwrap().file_bytes, 0, "little is free");
    let compacted = store.compact().unwrap();
    assert!(compacted.before - compacted.after > 900_000, "{compacted:?}");
    assert_eq!(everything(store.reader(), "s").len(), 1);
}
