//! Units, records and entries that tests append to a journal without a driver.

use std::sync::Arc;

use flowcell_contract::{Json, Value};
use flowcell_flow::graph::{FlowPolicy, NodeIx};
use flowcell_runtime::{
    fact::{Fact, ScopeId, TaskKey},
    ports::{Durable, Entry, Journal, Pin, Record, StoredStatus, Unit},
};

use crate::flows::tenant;

/// Returns the record of a top run.
pub(crate) fn record(run: &str) -> Record {
    Record {
        flow: "f".into(),
        pin: Pin("f".into()),
        policy: FlowPolicy::default(),
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
    }
}

/// Returns the entry that appends this unit to a run.
pub(crate) fn entry(run: &str, unit: Unit) -> Entry {
    Entry {
        tenant: tenant(),
        run: run.into(),
        record: (unit.first_seq == 0).then(|| record(run)),
        unit: Arc::new(unit),
        writes: None,
        rows: Vec::new(),
        status: None,
        force: false,
        durable: Arc::<Durable>::default(),
        delivered: None,
    }
}

/// Returns an entry like [`entry`] that also sets the status of the run.
pub(crate) fn with_status(run: &str, unit: Unit, status: StoredStatus) -> Entry {
    Entry { status: Some(status), ..entry(run, unit) }
}

/// Returns one unit for each value, with the fact that a task has succeeded with this output.
pub(crate) fn outputs(values: impl IntoIterator<Item = Json>) -> Vec<Unit> {
    let task = TaskKey { scope: ScopeId::ROOT, node: NodeIx(0) };
    let unit = |(seq, value)| {
        let fact = Fact::TaskSucceeded { task, output: Value::from(value), received: None };
        Unit { first_seq: seq, ts: seq, facts: vec![fact] }
    };
    (0..).zip(values).map(unit).collect()
}

/// Returns the unit with this number, whose output is the number itself.
pub(crate) fn unit(seq: u64) -> Unit {
    Unit { first_seq: seq, ts: seq, ..outputs([Json::from(seq)]).remove(0) }
}

pub(crate) fn text(bytes: usize) -> Json {
    Json::from("x".repeat(bytes))
}

/// Reads all units of a run in one call.
pub(crate) fn everything(journal: &dyn Journal, run: &str) -> Vec<Arc<Unit>> {
    journal.read(&tenant(), &run.into(), 0, usize::MAX >> 1).unwrap()
}
