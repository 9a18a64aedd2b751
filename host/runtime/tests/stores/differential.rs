//! Executes the same random operations on every kind of store, and checks that all stores return the same results.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Json, Tenant, Value};
use flowcell_runtime::{
    RunStatus,
    fact::Write,
    limits::MAX_INLINE_BYTES,
    ports::{Changed, Entry, Filter, Record, Removable, StageError, Staged, StoredStatus, Unit},
    sql::Dialect,
};
use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    backend::{Backend, Store},
    units::{entry, outputs, record},
};
use crate::flows::tenant;

/// Number of tried sequences of operations, multiplied by `FLOWCELL_TEST_SCALE`.
const CASES: u32 = 12;

const RUNS: [&str; 4] = ["a", "a.child", "B", "b "];
const KEYS: [&str; 4] = ["k", "K", "k\u{0}", "é "];

#[derive(Clone, Debug)]
enum Operation {
    /// Appends one unit to a run, with values of these sizes in bytes, and optionally sets the status of the run.
    Append {
        run: usize,
        sizes: Vec<usize>,
        status: Option<StoredStatus>,
    },
    /// Writes state together with a unit of a run. Each write has a key, a value, and optionally the expected version.
    Write {
        run: usize,
        flow: bool,
        keys: Vec<(usize, u64, Option<u64>)>,
    },
    Cache {
        key: usize,
        value: u64,
        expires: Option<u64>,
    },
    Blob {
        content: u8,
    },
    Force,
    /// Closes the store and opens it again, as another process would.
    Reopen,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let size = prop_oneof![4 => 0_usize..50, 1 => MAX_INLINE_BYTES - 3..MAX_INLINE_BYTES + 3];
    let status = prop_oneof![
        Just(StoredStatus::Active),
        (prop::option::of(0_u64..100), any::<bool>())
            .prop_map(|(due, needs_attention)| StoredStatus::Parked { due, needs_attention }),
        prop::sample::select(vec![RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled])
            .prop_map(StoredStatus::Ended),
    ];
    let key = (0..KEYS.len(), 0_u64..9, prop::option::of(0_u64..4));
    let operation = prop_oneof![
        6 => (0..RUNS.len(), vec(size, 1..4), prop::option::of(status))
            .prop_map(|(run, sizes, status)| Operation::Append { run, sizes, status }),
        4 => (0..RUNS.len(), any::<bool>(), vec(key, 1..4))
            .prop_map(|(run, flow, keys)| Operation::Write { run, flow, keys }),
        2 => (0..KEYS.len(), 0_u64..9, prop::option::of(0_u64..20))
            .prop_map(|(key, value, expires)| Operation::Cache { key, value, expires }),
        2 => any::<u8>().prop_map(|content| Operation::Blob { content }),
        1 => Just(Operation::Force),
        1 => Just(Operation::Reopen),
    ];
    vec(operation, 1..25)
}

/// A store under test, and the length of the journal of each run.
struct Subject {
    backend: Backend,
    store: Option<Store>,
    ends: BTreeMap<usize, u64>,
}

impl Subject {
    fn new(backend: Backend) -> Subject {
        let store = Some(backend.open());
        Subject { backend, store, ends: BTreeMap::new() }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn append(&mut self, run: usize, facts: Unit, status: Option<StoredStatus>, writes: Option<Staged>) {
        // The child is there only after its parent.
        if run == 1 && !self.ends.contains_key(&0) {
            self.append(0, outputs([Json::Null]).remove(0), None, None);
        }
        let end = self.ends.entry(run).or_default();
        let unit = Unit { first_seq: *end, ts: 1_000 + *end, ..facts };
        *end = unit.next_seq();
        let mut entry = Entry { status, writes, ..entry(RUNS[run], unit) };
        if run == 1 && entry.record.is_some() {
            entry.record = Some(Record { parent: Some(RUNS[0].into()), depth: 1, ..record(RUNS[1]) });
        }
        let store = self.store();
        if run == 1 {
            // It is written under the claim of its parent, which another process had until now.
            store.hold(RUNS[0]);
            let _ = store.journal.find(&tenant(), &RUNS[1].into());
        }
        store.append(entry);
    }

    /// Executes an operation. Returns the versions of the written state, or the key whose version was not the expected
    /// one.
    fn apply(&mut self, operation: &Operation) -> Result<Vec<u64>, String> {
        match operation.clone() {
            Operation::Append { run, sizes, status } => {
                let facts = sizes.into_iter().map(|size| Json::from("x".repeat(size)));
                let facts = outputs(facts).into_iter().flat_map(|unit| unit.facts).collect();
                self.append(run, Unit { first_seq: 0, ts: 0, facts }, status, None);
            }
            Operation::Write { run, flow, keys } => {
                let write = |(key, value, expected): (usize, u64, Option<u64>)| Write {
                    key: KEYS[key].into(),
                    value: Value::from(Json::from(value)),
                    expected,
                };
                let writes = keys.into_iter().map(write).collect();
                let flow: Arc<str> = if flow { "f".into() } else { "F".into() };
                let staged = match self.store().state.stage(&tenant(), &flow, writes) {
                    Ok(staged) => staged,
                    Err(StageError::Conflict(key)) => return Err(key),
                    Err(StageError::Store(error)) => panic!("{error}"),
                };
                let versions = staged.writes.iter().map(|(_, version)| *version).collect();
                self.append(run, outputs([Json::Null]).remove(0), None, Some(staged));
                return Ok(versions);
            }
            Operation::Cache { key, value, expires } => {
                self.store().cache.set(&tenant(), KEYS[key], Value::from(Json::from(value)), expires);
            }
            Operation::Blob { content } => {
                self.store().blobs.put(&tenant(), Arc::from([content]), "text/plain");
            }
            Operation::Force => self.store().journal.force(),
            Operation::Reopen => {
                if self.backend.lasts() {
                    self.store().let_go();
                    self.store = None;
                    self.store = Some(self.backend.open());
                }
            }
        }
        Ok(Vec::new())
    }

    /// Waits until everything is durable. Returns the journals, the records of the runs, the state, and the blobs.
    fn answers(&self) -> Answers {
        let store = self.store();
        store.settle();
        let tenant = tenant();
        let mut state = Vec::new();
        for flow in ["f", "F"] {
            for key in KEYS {
                let found = store.state.get(&tenant, flow, key).unwrap();
                state.push(found.map(|(value, version)| (value.text().to_owned(), version)));
            }
        }
        let journals = RUNS.map(|run| store.journal.read(&tenant, &run.into(), 0, 10_000).unwrap());
        let records = RUNS.map(|run| store.journal.find(&tenant, &run.into()).unwrap());
        let blob = |content| {
            let blob = flowcell_contract::BlobRef { file_id: hash(content), size: 1, mime: "text/plain".into() };
            store.blobs.get(&tenant, &blob).unwrap().map(|bytes| bytes.to_vec())
        };
        let blobs = (0..=u8::MAX).filter_map(blob).collect();
        assert!(store.journal.read(&Tenant::from("other"), &"a".into(), 0, 1).unwrap().is_empty());
        (journals.to_vec(), records.to_vec(), state, blobs)
    }

    /// Returns the results of the queries that list runs.
    fn lists(&self) -> Vec<String> {
        let runs = self.store().runs();
        let mut told = Vec::new();
        let all = Filter { limit: 10, ..Filter::default() };
        told.extend(runs.runs(&tenant(), &all).unwrap().iter().map(|row| format!("{row:?}")));
        told.extend(RUNS.map(|run| format!("{:?}", runs.run(&tenant(), &run.into()).unwrap())));
        told.extend(RUNS.map(|run| format!("{:?}", runs.children(&tenant(), &run.into()).unwrap())));
        let old = Removable { ended_before: Some(1_010), keep_latest: Some(1), ..Removable::default() };
        told.push(format!("{:?}", runs.removable(&tenant(), &old).unwrap()));
        told.push(format!("{:?}", runs.ended(&tenant(), 1_005, None, 5).unwrap()));
        told.push(format!("{:?}", runs.next_due(&tenant()).unwrap()));
        for live in [false, true] {
            let first = Changed { since: 1_002, live, limit: 2, ..Changed::default() };
            let page = runs.changed(&tenant(), &first).unwrap();
            let after = page.last().map(|row| Changed { after: Some(row.run_id.clone()), since: row.updated, ..first });
            let next = after.map(|after| runs.changed(&tenant(), &after).unwrap());
            told.push(format!("{page:?} {next:?}"));
        }
        told
    }

    fn cache(&self) -> Vec<Option<String>> {
        let get = |key: &str, now| self.store().cache.get(&tenant(), key, now).map(|value| value.text().to_owned());
        KEYS.iter().flat_map(|key| [0, 5, 10, 19, 20].map(|now| get(key, now))).collect()
    }
}

type State = Vec<Option<(String, u64)>>;
type Answers = (Vec<Vec<Arc<Unit>>>, Vec<Option<Record>>, State, Vec<Vec<u8>>);

fn hash(content: u8) -> Arc<str> {
    use sha2::Digest;
    sha2::Sha256::digest([content]).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Executes the operations on every store, and compares the results with those of the store in memory. The store in
/// memory has no lists of runs, so lists are compared with those of SQLite.
fn compare(operations: &[Operation]) {
    let servers = [Dialect::MySql, Dialect::Postgres].into_iter().filter_map(Backend::server);
    let mut subjects: Vec<_> =
        [Backend::Memory, Backend::sqlite()].into_iter().chain(servers).map(Subject::new).collect();
    for operation in operations {
        let told: Vec<_> = subjects.iter_mut().map(|subject| subject.apply(operation)).collect();
        assert!(told.iter().all(|other| *other == told[0]), "{operation:?}: {told:?}");
    }
    let answers: Vec<_> = subjects.iter().map(Subject::answers).collect();
    for other in &answers[1..] {
        assert_eq!(*other, answers[0]);
    }
    let lists: Vec<_> = subjects[1..].iter().map(Subject::lists).collect();
    for other in &lists[1..] {
        assert_eq!(*other, lists[0]);
    }
    let caches: Vec<_> =
        subjects.iter().filter(|subject| subject.store().server.is_some()).map(Subject::cache).collect();
    for other in &caches {
        assert_eq!(*other, subjects[0].cache());
    }
}

pub(crate) fn scale() -> u32 {
    std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

proptest! {
    #![proptest_config(Config { cases: CASES * scale(), failure_persistence: None, max_shrink_iters: 40, ..Config::default() })]

    #[test]
    fn every_store_gives_the_same_answers(operations in operations()) {
        compare(&operations);
    }
}
