//! Whole stores: copies from each kind of store to each other kind, checks and backups.

use flowcell_contract::{Json, Value};
use flowcell_runtime::{
    fact::Write,
    limits::MAX_INLINE_BYTES,
    ports::{Entry, Filter, MARK, Record, StepStatus, StoredStatus},
    rows::copy_and_check::{Amount, CopyableStore, check, copy},
    sql::Dialect,
    sqlite::{SqliteStore, stop_process},
};

use super::{
    backend::{Backend, Store},
    flows::{COUNTS, options, tenant},
    sessions::{ROOT, begun, session},
    suite::run,
    units::{entry, everything, outputs, record, text, unit, with_status},
};

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
    store.sqlite.as_ref().unwrap().back_up(folder.path()).unwrap();
    let copy = SqliteStore::open(folder.path(), stop_process).unwrap();
    assert!(check(&copy).unwrap().damage.is_empty());
    assert_eq!(everything(&copy, "r"), everything(&*store.journal, "r"));
    assert!(store.sqlite.as_ref().unwrap().back_up(folder.path()).is_err());
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
    let saved = tempfile::tempdir().unwrap();
    store.sqlite.as_ref().unwrap().back_up(saved.path()).unwrap();
    drop(store);
    let Backend::Folder(folder) = &backend else { unreachable!() };
    let bring_back = || std::fs::copy(saved.path().join("flowcell.db"), folder.path().join("flowcell.db")).unwrap();
    // Nothing has come after it yet.
    bring_back();
    let store = backend.open();
    assert_eq!(marks(&store), [true, true]);
    run(&store, COUNTS, options("later"));
    drop(store);
    bring_back();
    let store = backend.open();
    assert_eq!(marks(&store), [false, true]);
    assert!(check(whole(&store)).unwrap().damage.is_empty());
    assert!(store.documents.write(&tenant(), MARK, "k", Some(&Json::Null), 0).unwrap());
    drop(store);
    assert_eq!(marks(&backend.open()), [true, true]);
}
