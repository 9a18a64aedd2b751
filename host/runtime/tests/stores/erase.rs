//! The removal of a tenant: its rows go, those of others stay, and nothing is written for it afterwards.

use flowcell_contract::{BlobRef, Json, Tenant, Value};
use flowcell_runtime::{
    fact::Write,
    limits::{MAX_ERASED_ROWS, MAX_ERASED_RUNS, MAX_INLINE_BYTES},
    ports::{Entry, Erase, Lease, Record, StepStatus},
};

use super::{
    backend::{Backend, Store},
    sessions::{ROOT, begun, session},
    units::{entry, record, text, unit},
};

/// A tenant, one whose name begins with that name, and one that differs from it only in its case.
const NAMES: [&str; 3] = ["acme", "acme-2", "ACME"];

/// Returns the removal of tenants of a store. A store in memory has none.
fn erase(store: &Store) -> Option<&dyn Erase> {
    match (&store.sqlite, &store.server) {
        (Some(store), _) => Some(&**store),
        (_, Some(store)) => Some(&**store),
        _ => None,
    }
}

/// Appends a unit to a run of a tenant, which this process claims until the result is dropped.
fn append(store: &Store, tenant: &str, entry: Entry) -> Option<Lease> {
    let tenant = Tenant::from(tenant);
    let lease = store.leases.claim(&tenant, &entry.run).unwrap();
    store.journal.append(Entry { tenant, ..entry });
    lease
}

/// Writes rows of every kind for a tenant: more runs and documents than one commit of a removal removes. Returns the
/// claims of its runs.
fn fill(store: &Store, name: &str) -> Vec<Lease> {
    let tenant = Tenant::from(name);
    let mut leases = Vec::new();
    for n in 0..=MAX_ERASED_RUNS {
        let mut of = record("r");
        of.labels = [("team".into(), "a".into())].into();
        leases.extend(append(store, name, Entry { record: Some(of), ..entry(&format!("r{n}"), unit(0)) }));
    }
    let below = Record { parent: Some("r0".into()), depth: 1, ..record("r0") };
    leases.extend(append(store, name, Entry { record: Some(below), ..entry("r0.child", unit(0)) }));
    let rows = vec![session(ROOT, None), begun(ROOT, StepStatus::Postponed, Json::from("x"))];
    leases.extend(append(store, name, Entry { rows, ..entry("t", unit(0)) }));
    let write = Write { key: "k".into(), value: Value::from(text(MAX_INLINE_BYTES + 1)), expected: None };
    let staged = store.state.stage(&tenant, &"f".into(), vec![write]).unwrap();
    leases.extend(append(store, name, Entry { writes: Some(staged), ..entry("s", unit(0)) }));
    store.blobs.put(&tenant, b"the same for all".as_slice().into(), "text/plain");
    store.cache.set(&tenant, "c", Value::from(Json::from(name)), None);
    for n in 0..=MAX_ERASED_ROWS {
        assert!(store.documents.write(&tenant, "file", &format!("{n:04}"), Some(&Json::from(name)), 0).unwrap());
    }
    store.settle();
    leases
}

/// Returns a text of the data of a tenant.
fn content(store: &Store, name: &str) -> String {
    let tenant = Tenant::from(name);
    let runs = ["r0", "r0.child", "t", "s"].map(|run| {
        (store.journal.find(&tenant, &run.into()), store.journal.read(&tenant, &run.into(), 0, 9).unwrap().len())
    });
    let state = store.state.get(&tenant, "f", "k").unwrap().map(|(value, _)| value.text().len());
    let sessions = store.sessions.sessions(&tenant, ROOT).unwrap();
    let documents = store.documents.list(&tenant, "file", "", MAX_ERASED_ROWS * 2).unwrap().len();
    let cached = store.cache.get(&tenant, "c", 0);
    let blob = store.blobs.get(&tenant, &same_blob()).unwrap().is_some();
    format!("{runs:?} {state:?} {sessions:?} {documents} {cached:?} {blob}")
}

fn same_blob() -> BlobRef {
    use sha2::{Digest, Sha256};
    let hash = hex::encode(Sha256::digest(b"the same for all"));
    BlobRef { file_id: hash.into(), size: 16, mime: "text/plain".into() }
}

fn erase_all(erase: &dyn Erase, tenant: &Tenant) -> u64 {
    let mut parts = 0;
    while erase.erase_some(tenant).unwrap() > 0 {
        parts += 1;
    }
    parts
}

pub(crate) fn a_removed_tenant_leaves_nothing_and_others_keep_all(backend: &Backend) {
    let store = backend.open();
    let Some(erase) = erase(&store) else { return };
    let leases: Vec<Lease> = NAMES.iter().flat_map(|name| fill(&store, name)).collect();
    drop(leases);
    store.settle();
    let others = |store: &Store| [content(store, NAMES[1]), content(store, NAMES[2])];
    let (kept, gone) = (others(&store), Tenant::from(NAMES[0]));
    let rows = erase.rows_of(&gone).unwrap();
    assert_eq!(rows["runs"], MAX_ERASED_RUNS as u64 + 4, "{rows:?}");
    assert_eq!(rows["registry"], MAX_ERASED_ROWS as u64 + 1, "{rows:?}");
    for table in ["labels", "state", "flow_states", "sessions", "blobs"] {
        assert!(rows.contains_key(table), "{table} {rows:?}");
    }
    assert!(erase_all(erase, &gone) >= 8, "the rows of a kind are removed in parts");
    assert_eq!(erase.rows_of(&gone).unwrap(), Default::default());
    assert_eq!(others(&store), kept);
    assert_eq!(erase.next_tenant(&Tenant::from("")).unwrap().as_ref().map(Tenant::as_str), Some("ACME"));
    assert_eq!(erase.next_tenant(&Tenant::from("ACME")).unwrap().as_ref().map(Tenant::as_str), Some("acme-2"));
    assert_eq!(erase.next_tenant(&Tenant::from("acme-2")).unwrap(), None);
    // The store is whole, and a new tenant may have the name.
    erase.readmit(&gone);
    let leases = fill(&store, NAMES[0]);
    assert_eq!(erase.rows_of(&gone).unwrap(), rows);
    drop(leases);
}

pub(crate) fn writes_for_a_removed_tenant_are_refused(backend: &Backend) {
    let store = backend.open();
    let (Some(erase), gone) = (erase(&store), Tenant::from(NAMES[0])) else { return };
    let leases = fill(&store, NAMES[0]);
    if store.server.is_some() {
        let refused = erase.erase_some(&gone).unwrap_err().to_string();
        assert!(refused.contains("runs of the tenant are driven"), "{refused}");
        drop(leases);
        store.settle();
    }
    erase_all(erase, &gone);
    // A driver that has not heard of the removal goes on.
    let late = entry("r1", unit(1));
    let durable = late.durable.clone();
    store.journal.append(Entry { tenant: gone.clone(), ..late });
    store.settle();
    assert!(durable.is_refused());
    if store.sqlite.is_some() {
        let new = entry("new", unit(0));
        let durable = new.durable.clone();
        store.journal.append(Entry { tenant: gone.clone(), ..new });
        store.blobs.put(&gone, b"late".as_slice().into(), "text/plain");
        let refused = store.documents.write(&gone, "usage", "1", Some(&Json::Null), 0).unwrap_err().to_string();
        assert!(refused.contains("was removed"), "{refused}");
        store.settle();
        assert!(durable.is_refused());
    }
    assert_eq!(erase.rows_of(&gone).unwrap(), Default::default());
}

pub(crate) fn a_removal_that_was_cut_off_goes_on_in_another_process(backend: &Backend) {
    let store = backend.open();
    let Some(erasing) = erase(&store) else { return };
    let leases: Vec<Lease> = NAMES.iter().flat_map(|name| fill(&store, name)).collect();
    drop(leases);
    store.settle();
    let gone = Tenant::from(NAMES[0]);
    let mut parts = 0;
    while erasing.erase_some(&gone).unwrap() > 0 && parts < 3 {
        parts += 1;
    }
    let left = erasing.rows_of(&gone).unwrap();
    drop(store);
    let store = backend.open();
    let erasing = erase(&store).unwrap();
    assert_eq!(erasing.rows_of(&gone).unwrap(), left);
    erase_all(erasing, &gone);
    assert_eq!(erasing.rows_of(&gone).unwrap(), Default::default());
    assert!(!erasing.rows_of(&Tenant::from(NAMES[1])).unwrap().is_empty());
}

/// Only the embedded store has a file of its own.
pub(crate) fn the_file_has_no_bytes_of_a_removed_tenant(backend: &Backend) {
    let (Backend::Folder(folder), store) = (backend, backend.open()) else { return };
    let word = "a-word-that-only-the-removed-tenant-has";
    let tenant = Tenant::from(NAMES[0]);
    let leases = fill(&store, NAMES[0]);
    drop(leases);
    let json = Json::from(word.repeat(100));
    assert!(store.documents.write(&tenant, "file", "word", Some(&json), 0).unwrap());
    store.blobs.put(&tenant, word.repeat(1_000).into_bytes().into(), "text/plain");
    store.settle();
    // These bytes are removed before the tenant is: their pages are free, and not overwritten.
    assert!(store.documents.write(&tenant, "file", "word", None, 1).unwrap());
    let erase = erase(&store).unwrap();
    erase_all(erase, &tenant);
    assert!(erase.purge().unwrap());
    for file in ["flowcell.db", "flowcell.db-wal"] {
        let bytes = std::fs::read(folder.path().join(file)).unwrap_or_default();
        assert!(!bytes.windows(word.len()).any(|part| part == word.as_bytes()), "{file}");
    }
}
