//! A run before each of its events: the row and the end that the store had then.

use std::sync::Arc;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{
    RunOptions, RunResult, RunStatus,
    earlier::EarlierRun,
    ports::{Journal, RunRow, Runs},
    sqlite::SqliteStore,
};

use super::{everything, open, run};
use crate::flows::{options, tenant};

fn row(store: &Arc<SqliteStore>) -> (RunRow, u64) {
    store.settle().unwrap();
    store.reader().run(&tenant(), &"r".into()).unwrap().unwrap()
}

fn earlier(store: &Arc<SqliteStore>, end: u64) -> EarlierRun {
    let (id, record) = (RunId::from("r"), store.find(&tenant(), &"r".into()).unwrap().unwrap());
    EarlierRun::read(store.reader(), (&tenant(), &id), (row(store).0, &record), end).unwrap()
}

fn answering(gates: &[&str]) -> RunOptions {
    let yes = || Json::object([("content", Json::from("yes"))]);
    RunOptions { answers: gates.iter().map(|gate| ((*gate).to_owned(), yes())).collect(), ..options("r") }
}

#[test]
fn a_run_before_an_event_has_the_row_that_the_store_had() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let flow = "  - { id: one, type: t.ask }\n  - { id: two, type: t.ask }";
    // Each run ends with a park or with the end, and the store then has a row to compare with.
    let (mut rows, mut last) = (Vec::new(), None::<RunResult>);
    for gates in [&[][..], &["one"], &["two"]] {
        last = Some(run(&store, flow, answering(gates)));
        rows.push(row(&store));
    }
    let last = last.unwrap();
    assert_eq!(last.status, RunStatus::Succeeded, "{last:?}");
    let found = |row: &(RunRow, u64)| (row.0.status.clone(), row.0.waits_for.as_ref().map(|wait| wait.others));
    let expected = [("parked", Some(1)), ("parked", Some(0)), ("succeeded", None)];
    assert_eq!(
        rows.iter().map(found).collect::<Vec<_>>(),
        expected.map(|(status, others)| (status.to_owned(), others))
    );
    for (row, next) in &rows {
        let earlier = earlier(&store, *next);
        assert_eq!((&earlier.row, earlier.events), (row, *next));
    }
    let all = rows[2].1;
    let kinds: Vec<_> = last.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds.len() as u64, all);
    for end in 0..=all + 1 {
        let counted = end.min(all) as usize;
        let expected = match kinds[..counted].last() {
            Some(&"harness:parked") => "parked",
            _ if kinds[..counted].contains(&"harness:complete") => "succeeded",
            _ => "active",
        };
        let earlier = earlier(&store, end);
        assert_eq!((earlier.row.status.as_str(), earlier.events), (expected, counted as u64), "before {end}");
        assert_eq!(earlier.end.is_some(), expected == "succeeded", "before {end}");
        assert!(earlier.row.waits_for.is_some() == (expected == "parked"), "before {end}");
    }
    assert!(everything(store.reader(), "r").iter().any(|unit| unit.facts.len() > 1), "an event lies within a unit");
}
