//! Ended runs for benchmarks, written directly to an embedded store.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Tenant};
use flowcell_flow::graph::FlowPolicy;
use flowcell_runtime::{
    RunStatus,
    fact::{Fact, RunEnd},
    ports::{Durable, Entry, Journal, Pin, Record, StoredStatus, Unit},
    sqlite::SqliteStore,
};

/// Number of runs between two waits for the disk.
const BATCH: u64 = 10_000;

/// Writes the runs of a tenant from number 0 on, and waits until they are on stable storage.
pub(crate) fn fill(store: &SqliteStore, tenant: &Tenant, count: u64) {
    for number in 0..count {
        entries(tenant, number).into_iter().for_each(|entry| store.append(entry));
        if number % BATCH == BATCH - 1 {
            store.settle().unwrap();
        }
    }
    store.settle().unwrap();
}

/// Returns the start and the end of a tenant's run with this number. Of a hundred runs six fail, with one of 300 codes.
pub(crate) fn entries(tenant: &Tenant, number: u64) -> [Entry; 2] {
    let ts = 1_700_000_000_000 + number;
    let labels = [("team", if number.is_multiple_of(3) { "billing" } else { "ops" })];
    let record = Record {
        flow: format!("flow-{}", number % 50).into(),
        pin: Pin("pin".into()),
        policy: FlowPolicy::default(),
        depth: 0,
        parent: None,
        root: "".into(),
        again: None,
        called: None,
        repeats: None,
        answers: Default::default(),
        request: None,
        version: Some(1),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        trigger: (number % 100 == 7).then(|| "nightly".into()),
        moves: Vec::new(),
    };
    let outputs = Json::object::<&str>([]);
    let (end, status) = match number % 100 {
        0..6 => {
            let failure = Failure::new(&format!("code_{}", number / 100 % 300), "the card was declined");
            (RunEnd::Failed { outputs, failure, task: Some("pay".into()) }, RunStatus::Failed)
        }
        _ => (RunEnd::Succeeded { outputs }, RunStatus::Succeeded),
    };
    let entry = |first_seq, fact, record, status| Entry {
        tenant: tenant.clone(),
        run: format!("run-{number}").as_str().into(),
        unit: Arc::new(Unit { first_seq, ts: ts + first_seq * (number % 100_000), facts: vec![fact] }),
        record,
        writes: None,
        rows: Vec::new(),
        status: Some(status),
        force: false,
        durable: Arc::<Durable>::default(),
        delivered: None,
    };
    [
        entry(0, Fact::PhaseStarted, Some(record), StoredStatus::Active),
        entry(1, Fact::RunEnded { end: Box::new(end) }, None, StoredStatus::Ended(status)),
    ]
}
