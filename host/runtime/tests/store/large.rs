//! Large values, which a store moves out of the units into blobs: each is stored once, is read back byte for byte, and
//! is reported if it is missing.

use std::sync::Arc;

use flowcell_contract::{Json, Value};
use flowcell_runtime::{
    fact::{Fact, ScopeId, TaskKey, Write},
    limits::{MAX_INLINE_BYTES, MAX_READ_BYTES},
    memory::MemoryJournal,
    ports::{Entry, Journal, Record, StateStore, Unit},
    sqlite::Reader,
};
use proptest::{collection::vec, prelude::*};

use super::{database, everything, open, tenant};

/// Returns the entry that appends this unit to a run.
pub(super) fn entry(run: &str, unit: Unit) -> Entry {
    let record = Record {
        flow: "f".into(),
        pin: flowcell_runtime::ports::Pin("f".into()),
        policy: flowcell_flow::graph::FlowPolicy::default(),
        depth: 0,
        parent: None,
        root: run.into(),
        again: None,
        called: None,
        repeats: None,
        answers: Default::default(),
        request: None,
        version: None,
        labels: Default::default(),
        trigger: None,
        moves: Vec::new(),
    };
    Entry {
        tenant: tenant(),
        run: run.into(),
        record: (unit.first_seq == 0).then_some(record),
        unit: Arc::new(unit),
        writes: None,
        rows: Vec::new(),
        status: None,
        force: false,
        durable: Arc::default(),
        delivered: None,
    }
}

/// Returns one unit for each value, with the fact that a task has succeeded with this output.
pub(super) fn outputs(values: impl IntoIterator<Item = Json>) -> Vec<Unit> {
    let task = TaskKey { scope: ScopeId::ROOT, node: flowcell_flow::graph::NodeIx(0) };
    let unit = |(seq, value)| {
        let fact = Fact::TaskSucceeded { task, output: Value::from(value), received: None };
        Unit { first_seq: seq, ts: seq, facts: vec![fact] }
    };
    (0..).zip(values).map(unit).collect()
}

pub(super) fn text(bytes: usize) -> Json {
    Json::from("x".repeat(bytes))
}

fn count(connection: &rusqlite::Connection, sql: &str) -> u64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_value_that_passes_through_many_nodes_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let rows = Json::array((0..50_000_u64).map(Json::from));
    let wrapped = |node: u64| Json::object([("node", Json::from(node)), ("rows", rows.clone())]);
    let units = outputs((0..10).map(wrapped));
    let store = open(folder.path());
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    drop(store);
    let connection = database(folder.path());
    let kept: String = connection.query_row("SELECT CAST(bytes AS TEXT) FROM blobs", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, rows.to_text());
    assert_eq!(count(&connection, "SELECT count(*) FROM blobs"), 1);
    assert!(count(&connection, "SELECT max(length(body) + length(cuts)) FROM units") < 500);
    let reader = Reader::open(folder.path()).unwrap();
    let read: Vec<_> = everything(&reader, "r").iter().map(|unit| (**unit).clone()).collect();
    assert_eq!(read, units);
}

#[test]
fn a_list_of_large_items_is_kept_as_its_items() {
    let folder = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..4).map(|item| text(MAX_INLINE_BYTES + item)).collect();
    // The rest of the list is large by itself, and holds the items as holes.
    let rest = (0..20_000_u64).map(Json::from);
    let list = Json::array(items.iter().cloned().chain(rest));
    let store = open(folder.path());
    let units = outputs(items.iter().cloned().chain([list.clone(), list]));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    drop(store);
    let connection = database(folder.path());
    assert_eq!(count(&connection, "SELECT count(*) FROM blobs"), 5);
    assert_eq!(count(&connection, "SELECT count(*) FROM blobs WHERE bytes LIKE '[null,null,null,null,0,1,%'"), 1);
    let read: Vec<_> = everything(&Reader::open(folder.path()).unwrap(), "r").iter().map(|u| (**u).clone()).collect();
    assert_eq!(read, units);
}

#[test]
fn a_value_as_deep_as_json_may_be_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let deep = Json::parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).unwrap();
    let units = outputs([deep]);
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    drop(store);
    let read: Vec<_> = everything(&Reader::open(folder.path()).unwrap(), "r").iter().map(|u| (**u).clone()).collect();
    assert_eq!(read, units);
}

#[test]
fn values_that_fit_into_a_row_stay_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    // With its quotes the first is as long as can be; the facts together are longer, and still no value.
    let units = outputs([text(MAX_INLINE_BYTES - 2), text(MAX_INLINE_BYTES - 1)]);
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    drop(store);
    let connection = database(folder.path());
    assert_eq!(count(&connection, "SELECT count(*) FROM units WHERE first_seq = 0 AND cuts IS NULL"), 1);
    assert_eq!(count(&connection, "SELECT count(*) FROM units WHERE first_seq = 1 AND cuts IS NOT NULL"), 1);
    assert_eq!(count(&connection, "SELECT length(bytes) FROM blobs"), MAX_INLINE_BYTES as u64 + 1);
}

#[test]
fn a_large_state_is_kept_beside_its_row_and_shared_with_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let large = Json::object([("a", text(2 * MAX_INLINE_BYTES)), ("b", Json::array([Json::from("ü"), Json::Null]))]);
    let store = open(folder.path());
    let write = Write { key: "k".into(), value: Value::from(large.clone()), expected: None };
    let staged = store.stage(&tenant(), &"f".into(), vec![write]).unwrap();
    let unit = outputs([large.clone()]).remove(0);
    store.append(Entry { writes: Some(staged), ..entry("r", unit) });
    drop(store);
    assert_eq!(count(&database(folder.path()), "SELECT count(*) FROM blobs"), 1);
    let (value, version) = open(folder.path()).get(&tenant(), "f", "k").unwrap().unwrap();
    assert_eq!((value.text(), version), (large.to_text().as_str(), 1));
    database(folder.path()).execute("DELETE FROM blobs", []).unwrap();
    let told = open(folder.path()).get(&tenant(), "f", "k").unwrap_err().to_string();
    assert!(told.starts_with("the state `k` of the flow `f` is damaged: the blob ") && told.ends_with(" is missing"));
}

#[test]
fn units_that_are_large_together_are_read_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let units = outputs((0..5).map(|_| text(MAX_READ_BYTES / 2)));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    drop(store);
    let reader = Reader::open(folder.path()).unwrap();
    let mut pages = Vec::new();
    flowcell_runtime::each_unit(&reader, &tenant(), &"r".into(), |unit| pages.push((*unit).clone())).unwrap();
    assert_eq!(pages, units);
    assert_eq!(everything(&reader, "r").len(), 2);
}

/// A changed bit in a blob is detected, and so is a change of the position at which the blob belongs.
#[test]
fn a_damaged_or_missing_large_value_is_reported_with_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for unit in outputs([Json::Null, Json::object([("a", text(MAX_INLINE_BYTES))])]) {
        store.append(entry("r", unit));
    }
    drop(store);
    let connection = database(folder.path());
    let hash: String = connection.query_row("SELECT hash FROM blobs", [], |row| row.get(0)).unwrap();
    let told = || {
        let reader = Reader::open(folder.path()).unwrap();
        reader.read(&tenant(), &"r".into(), 0, 1_000).unwrap_err().to_string()
    };
    let whole: Vec<u8> = connection.query_row("SELECT bytes FROM blobs", [], |row| row.get(0)).unwrap();
    let put = |bytes: &[u8]| assert_eq!(connection.execute("UPDATE blobs SET bytes = ?", [bytes]).unwrap(), 1);
    for bit in (0..whole.len() * 8).step_by(20_011) {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        put(&damaged);
        let expected = format!("the journal of run `r` is damaged: at event 1: the blob {hash} has another content");
        assert_eq!(told(), expected);
    }
    put(&whole);
    assert_eq!(everything(&Reader::open(folder.path()).unwrap(), "r").len(), 2);
    let cuts: String =
        connection.query_row("SELECT cuts FROM units WHERE first_seq = 1", [], |row| row.get(0)).unwrap();
    for at in 0..cuts.len() {
        let flipped = char::from(cuts.as_bytes()[at] ^ 1);
        let damaged = format!("{}{flipped}{}", &cuts[..at], &cuts[at + 1..]);
        connection.execute("UPDATE units SET cuts = ? WHERE first_seq = 1", [damaged]).unwrap();
        assert_eq!(told(), "the journal of run `r` is damaged: the checksum at event 1 is wrong");
    }
    connection.execute("UPDATE units SET cuts = ? WHERE first_seq = 1", [cuts]).unwrap();
    connection.execute("DELETE FROM blobs", []).unwrap();
    assert_eq!(told(), format!("the journal of run `r` is damaged: at event 1: the blob {hash} is missing"));
}

/// Texts that are short, or need escapes, or are about as long as the values that a store moves into blobs.
fn texts() -> impl Strategy<Value = Json> {
    let around = MAX_INLINE_BYTES - 40..MAX_INLINE_BYTES + 40;
    let filled = (around, prop::sample::select(vec!["x", "ü", "\"", "\\", "\u{1}", "🦀", "{[", ":null"]));
    prop_oneof![
        4 => "\\PC{0,8}".prop_map(Json::from),
        1 => Just(Json::from("null")),
        2 => filled.prop_map(|(bytes, part): (usize, &str)| Json::from(part.repeat(bytes / part.len()))),
    ]
}

fn values() -> impl Strategy<Value = Json> {
    let numbers =
        (0..MAX_INLINE_BYTES / 3).prop_map(|count| Json::array((0..count as u64).map(|n| Json::from(n % 100))));
    let leaf = prop_oneof![
        1 => Just(Json::Null),
        1 => any::<bool>().prop_map(Json::from),
        2 => any::<i64>().prop_map(Json::from),
        1 => any::<f64>().prop_map(|float| flowcell_contract::Json::from(serde_json::json!(float))),
        4 => texts(),
        1 => numbers,
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let repeated = (inner.clone(), 1..3_usize).prop_map(|(value, times)| Json::array(vec![value; times]));
        let list = vec(inner.clone(), 0..4).prop_map(Json::array);
        let key = prop_oneof!["[a-d]{1,2}", "\\PC{0,4}", Just("\":".to_owned()), Just("k".repeat(MAX_INLINE_BYTES))];
        let object = prop::collection::btree_map(key, inner, 0..4).prop_map(Json::object);
        prop_oneof![list, object, repeated]
    })
}

/// Returns units as text. Units are equal even if their members are in another order, but the test also compares the
/// order.
fn as_text(units: &[Arc<Unit>]) -> Vec<String> {
    units.iter().map(|unit| serde_json::to_string(unit).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn appended_units_are_read_as_from_a_journal_in_memory(
        values in vec(values(), 1..6),
        again in vec(any::<prop::sample::Index>(), 0..4),
        from in 0..12_u64,
        limit in 0..12_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let repeated: Vec<_> = again.iter().map(|index| index.get(&values).clone()).collect();
        let memory = MemoryJournal::default();
        let store = open(folder.path());
        for (index, unit) in outputs(values.into_iter().chain(repeated)).into_iter().enumerate() {
            memory.append(entry("r", unit.clone()));
            store.append(entry("r", unit));
            // Some are written in one transaction, and some are not.
            if index % 3 == 0 {
                store.force();
            }
        }
        drop(store);
        let connection = database(folder.path());
        for sql in [
            "SELECT count(*) FROM units WHERE NOT json_valid(body)",
            "SELECT count(*) FROM blobs WHERE NOT json_valid(CAST(bytes AS TEXT))",
        ] {
            prop_assert_eq!(count(&connection, sql), 0, "{}", sql);
        }
        // Beside its output a fact has little, and a key stays where it is.
        let longest = count(&connection, "SELECT max(length(CAST(body AS BLOB))) FROM units");
        prop_assert!(longest <= MAX_INLINE_BYTES as u64 + 100);
        let store = open(folder.path());
        for (from, limit) in [(0, 100), (from, limit)] {
            let expected = memory.read(&tenant(), &"r".into(), from, limit).unwrap();
            let read = store.read(&tenant(), &"r".into(), from, limit).unwrap();
            prop_assert_eq!(as_text(&read), as_text(&expected));
        }
    }
}

#[test]
fn units_of_one_moment_that_are_committed_together_are_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut units = outputs((0..6_u64).map(Json::from));
    for (unit, ts) in units.iter_mut().zip([1, 1, 1, 2, 2, 3]) {
        unit.ts = ts;
    }
    for unit in &units {
        store.append(entry("r", unit.clone()));
        store.append(entry("other", unit.clone()));
    }
    store.force();
    drop(store);
    assert_eq!(count(&database(folder.path()), "SELECT count(*) FROM units"), 6);
    let store = open(folder.path());
    for run in ["r", "other"] {
        let read = store.read(&tenant(), &run.into(), 0, 10).unwrap();
        assert_eq!(read.iter().map(|unit| (unit.ts, unit.facts.len())).collect::<Vec<_>>(), [(1, 3), (2, 2), (3, 1)]);
        let facts = |units: &[Unit]| units.iter().flat_map(|unit| unit.facts.clone()).collect::<Vec<_>>();
        assert_eq!(facts(&read.iter().map(|unit| (**unit).clone()).collect::<Vec<_>>()), facts(&units));
    }
}

/// A JSON text from a client or server may have at most 1,000,000 values. A value that the host has built from several
/// such texts may have more, and can still be read from the store.
#[test]
fn a_value_with_more_parts_than_an_outside_text_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let many = Value::from(Json::array((0..1_000_001_u64).map(Json::from)));
    let units = outputs([many.json().clone()]);
    let write = Write { key: "k".into(), value: many.clone(), expected: None };
    let store = open(folder.path());
    let staged = store.stage(&tenant(), &"f".into(), vec![write]).unwrap();
    store.append(Entry { writes: Some(staged), ..entry("r", units[0].clone()) });
    drop(store);
    assert!(open(folder.path()).get(&tenant(), "f", "k").unwrap().unwrap().0 == many);
    let read = everything(&Reader::open(folder.path()).unwrap(), "r");
    assert!(*read[0] == units[0]);
}
