//! Whole stores: copies from each kind of store to each other kind, checks and backups.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use flowcell_contract::{Json, Value};
use flowcell_runtime::{
    fact::Write,
    limits::MAX_INLINE_BYTES,
    ports::{DocumentStore, Entry, Filter, MARK, Record, StepStatus, StoredStatus},
    rows::copy_and_check::{Amount, CopyableStore, back_up as back_up_server, check, copy},
    sql::Dialect,
    sqlite::{BackupError, NewCopy, Reader, SqliteStore, stop_process},
};
use tempfile::TempDir;

use super::{
    backend::{Backend, Store},
    sessions::{ROOT, begun, session},
    suite::run,
    units::{entry, everything, outputs, record, text, unit, with_status},
};
use crate::flows::{COUNTS, options, tenant};

/// Returns a store with data of every kind, such as runs, state, sessions, documents and blobs.
fn filled(backend: &Backend) -> Store {
    let store = backend.open();
    let large = Json::array([text(MAX_INLINE_BYTES), text(MAX_INLINE_BYTES + 1), Json::from("ü\u{0}")]);
    let units = outputs((0..20_u64).map(Json::from).chain([large.clone()]));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    store.append(with_status("r", unit(21), StoredStatus::Parked { due: Some(9), needs_attention: true }));
    let below = Record { parent: Some("r".into()), depth: 1, ..record("r") };
    store.append(Entry { record: Some(below), ..entry("r.child", unit(0)) });
    store.append(entry("gone", unit(0)));
    let rows =
        vec![session("a", None), session("b", Some("a")), begun("b", StepStatus::Postponed, Json::from("ü\u{0}"))];
    store.append(Entry { rows, ..entry("t", unit(0)) });
    let write = |key: &str, value| Write { key: key.into(), value: Value::from(value), expected: None };
    store.documents.write(&tenant(), "token", "é\u{0}", Some(&large), 0).unwrap();
    store.documents.write(&tenant(), "token", "é\u{0}", Some(&Json::from("ü\u{0}")), 1).unwrap();
    let writes = vec![write("k", Json::Null), write("k", large), write("é\u{0} ", Json::from(1_u64))];
    let staged = store.state.stage(&tenant(), &"f".into(), writes).unwrap();
    store.append(Entry { writes: Some(staged), ..entry("s", unit(0)) });
    store.blobs.put(&tenant(), b"a file".as_slice().into(), "text/plain");
    store.forget("gone");
    store.settle();
    store.let_go();
    store.settle();
    store
}

#[test]
fn a_pinned_reader_shows_one_moment() {
    let backend = Backend::sqlite();
    let Backend::Folder(folder) = &backend else { unreachable!() };
    let store = filled(&backend);
    let (pinned, free) = (Reader::open(folder.path()).unwrap(), Reader::open(folder.path()).unwrap());
    pinned.pin_snapshot().unwrap();
    let units = |reader: &Reader| everything(reader, "r").len();
    let before = units(&pinned);
    store.append(entry("r", unit(22)));
    store.documents.write(&tenant(), "token", "new", Some(&Json::Null), 0).unwrap();
    store.forget("s");
    store.settle();
    assert_eq!((units(&pinned), units(&free)), (before, before + 1));
    let document = |reader: &Reader| DocumentStore::get(reader, &tenant(), "token", "new").unwrap();
    assert!(document(&pinned).is_none() && document(&free).is_some());
    assert!(!everything(&pinned, "s").is_empty() && everything(&free, "s").is_empty());
}

fn whole(store: &Store) -> &dyn CopyableStore {
    match (&store.sqlite, &store.server) {
        (Some(store), _) => &**store,
        (_, Some(store)) => &**store,
        _ => panic!("a store in memory is not copied"),
    }
}

/// Returns the content of a store as texts, to compare stores.
fn content(store: &Store) -> Vec<String> {
    let mut content = Vec::new();
    for run in ["r", "r.child", "s", "gone"] {
        let key = (tenant(), run.into());
        content.push(format!("{:?}", store.journal.find(&key.0, &key.1).map_err(|error| error.to_string())));
        content.push(format!("{:?}", everything(&*store.journal, run)));
        content.push(format!("{:?}", store.runs().run(&key.0, &key.1).unwrap()));
        content.push(format!("{:?}", store.runs().children(&key.0, &key.1).unwrap()));
    }
    content.push(format!("{:?}", store.runs().runs(&tenant(), &Filter { limit: 9, ..Filter::default() }).unwrap()));
    content.push(format!("{:?}", store.sessions.sessions(&tenant(), ROOT).unwrap()));
    content.push(format!("{:?}", store.sessions.states(&tenant(), ROOT).unwrap()));
    content.push(format!("{:?}", store.documents.list(&tenant(), "token", "", 9).unwrap()));
    for key in ["k", "é\u{0} "] {
        let found = store.state.get(&tenant(), "f", key).unwrap();
        content.push(format!("{:?}", found.map(|(value, version)| (value.text().to_owned(), version))));
    }
    content
}

fn backends() -> Vec<Backend> {
    let servers = [Dialect::MySql, Dialect::Postgres].into_iter().filter_map(Backend::server);
    [Backend::sqlite()].into_iter().chain(servers).collect()
}

#[test]
fn a_copy_has_the_content_of_the_original() {
    for from in backends() {
        let original = filled(&from);
        let expected = content(&original);
        for to in backends() {
            let made = to.open();
            let amount = copy(whole(&original), whole(&made)).unwrap();
            assert_eq!(
                amount,
                Amount { runs: 5, units: 25, values: 2, blobs: 3, sessions: 2, steps: 1, registered: 1 }
            );
            assert_eq!(content(&made), expected);
            let checked = check(whole(&made)).unwrap();
            assert_eq!((checked.amount, checked.damage), (amount, Vec::<String>::new()));
            assert!(copy(whole(&original), whole(&made)).unwrap_err().to_string().contains("not empty"));
            // It can be gone on with.
            made.append(entry("r", unit(22)));
            made.settle();
            assert_eq!(everything(&*made.journal, "r").len(), 23);
        }
    }
}

#[test]
fn damage_is_found_wherever_it_is() {
    for backend in backends() {
        let store = filled(&backend);
        backend.execute(
            "UPDATE units SET ts = ts + 1 WHERE first_seq = 3; DELETE FROM blobs WHERE length(bytes) = 65539;
                UPDATE blobs SET bytes = x'31' WHERE length(bytes) = 6",
            "UPDATE flowcell_units SET ts = ts + 1 WHERE first_seq = 3",
        );
        if store.server.is_some() {
            backend.execute("", "DELETE FROM flowcell_blobs WHERE size = 65539");
            backend.execute("", "UPDATE flowcell_blobs SET bytes = '1' WHERE size = 6");
        }
        let damage = check(whole(&store)).unwrap().damage;
        let has = |what: &str| damage.iter().any(|told| told.contains(what));
        assert!(has("the journal of run `r` is damaged: the checksum at event 3 is wrong"), "{damage:?}");
        assert!(has("the state `k` of the flow `f` is damaged"), "{damage:?}");
        assert!(has("has another content"), "{damage:?}");
        assert_eq!(damage.len(), 3, "{damage:?}");
    }
}

#[test]
fn r31_a_backup_is_a_store() {
    let backend = Backend::sqlite();
    let store = filled(&backend);
    let folder = tempfile::tempdir().unwrap();
    back_up(&backend, folder.path());
    let copy = SqliteStore::open(folder.path(), stop_process).unwrap();
    assert!(check(&copy).unwrap().damage.is_empty());
    assert_eq!(everything(&copy, "r"), everything(&*store.journal, "r"));
    assert!(matches!(NewCopy::begin(folder.path()), Err(BackupError::NotEmpty(_))));
}

#[test]
fn t11_a_restored_copy_has_no_progress_of_triggers() {
    let backend = Backend::sqlite();
    let store = filled(&backend);
    let marks =
        |store: &Store| [MARK, "token"].map(|kind| store.documents.get(&tenant(), kind, "k").unwrap().is_some());
    for kind in [MARK, "token"] {
        assert!(store.documents.write(&tenant(), kind, "k", Some(&Json::Null), 0).unwrap());
    }
    let (saved, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    back_up(&backend, beside.path());
    drop(store);
    back_up(&backend, saved.path());
    let Backend::Folder(folder) = &backend else { unreachable!() };
    let bring_back =
        |saved: &TempDir| std::fs::copy(saved.path().join("flowcell.db"), folder.path().join("flowcell.db")).unwrap();
    // Nothing has come after it yet.
    bring_back(&saved);
    let store = backend.open();
    assert_eq!(marks(&store), [true, true]);
    run(&store, COUNTS, options("later"));
    drop(store);
    bring_back(&saved);
    let store = backend.open();
    assert_eq!(marks(&store), [false, true]);
    assert!(check(whole(&store)).unwrap().damage.is_empty());
    assert!(store.documents.write(&tenant(), MARK, "k", Some(&Json::Null), 0).unwrap());
    drop(store);
    assert_eq!(marks(&backend.open()), [true, true]);
    // The owner might have written after the copy beside it without an increment.
    bring_back(&beside);
    assert_eq!(marks(&backend.open()), [false, true]);
}

/// Other processes go on writing and removing after the snapshot. The copy shows none of it, whichever table is read
/// last.
#[test]
fn a_backup_of_a_server_shows_the_moment_of_its_snapshot() {
    for backend in backends().into_iter().filter(|backend| matches!(backend, Backend::Server(..))) {
        let original = filled(&backend);
        let expected = content(&original);
        let to = Backend::sqlite();
        let (pinned, made) = (backend.open(), to.open());
        whole(&pinned).pin_snapshot().unwrap();
        original.append(entry("r", unit(22)));
        original.append(entry("later", unit(0)));
        original.forget("s");
        original.blobs.put(&tenant(), b"a later file".as_slice().into(), "text/plain");
        assert!(original.documents.write(&tenant(), "token", "later", Some(&Json::Null), 0).unwrap());
        original.settle();
        assert_ne!(content(&original), expected);
        let amount = back_up_server(whole(&pinned), whole(&made)).unwrap();
        assert_eq!((amount.runs, amount.units, amount.blobs, amount.registered), (5, 25, 3, 1));
        assert_eq!(content(&made), expected);
        assert!(check(whole(&made)).unwrap().damage.is_empty());
        let refused = whole(&pinned).take_over(Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("the store shows a snapshot"), "{refused}");
        assert_eq!(content(&pinned), expected);
    }
}

/// The owner writes between the steps of the copy, which is larger than one step. The copy ends, and shows one moment:
/// all writes before it, and a prefix of the others.
#[test]
fn a_copy_beside_a_busy_writer_shows_one_moment() {
    let backend = Backend::sqlite();
    let store = backend.open();
    let Backend::Folder(folder) = &backend else { unreachable!() };
    let filler = |byte: u8| vec![byte; 1 << 20];
    (0..8).for_each(|byte| _ = store.blobs.put(&tenant(), filler(byte).into(), "text/plain"));
    store.append(entry("before", unit(0)));
    store.settle();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            for number in 0.. {
                for run in ["x", "y"] {
                    store.append(entry(&format!("{run}{number:05}"), unit(0)));
                    store.settle();
                }
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for _ in 0..3 {
            let place = tempfile::tempdir().unwrap();
            let copy = NewCopy::begin(place.path()).unwrap();
            copy.copy_database(folder.path()).unwrap();
            let checked = copy.check().unwrap();
            assert_eq!((checked.damage, checked.amount.blobs), (Vec::<String>::new(), 8));
            let made = SqliteStore::open(copy.folder(), stop_process).unwrap();
            let runs = made.kept_runs(0, 100_000).unwrap();
            let names: Vec<&str> = runs.iter().map(|run| run.run.as_str()).collect();
            assert_eq!(names[0], "before");
            let expected = (0..).flat_map(|number| ["x", "y"].map(|run| format!("{run}{number:05}")));
            assert!(names[1..].iter().copied().zip(expected).all(|(name, expected)| *name == *expected), "{names:?}");
        }
    });
}

/// Sets a flag when it is dropped, so that a failed assertion ends the other thread, too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Backs up the store of a folder.
fn back_up(backend: &Backend, to: &Path) {
    let Backend::Folder(folder) = backend else { unreachable!() };
    let copy = NewCopy::begin(to).unwrap();
    copy.copy_database(folder.path()).unwrap();
    assert!(copy.check().unwrap().damage.is_empty());
    copy.finish().unwrap();
}
