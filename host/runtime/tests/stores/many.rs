//! A store with very many runs: the runs that are ready are found page by page.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use flowcell_runtime::ports::{Filter, StoredStatus};

use super::{
    backend::Backend,
    differential::scale,
    units::{unit, with_status},
};
use crate::flows::tenant;

/// Number of runs, multiplied by `FLOWCELL_TEST_SCALE`. Of eleven runs, ten are active and one is parked.
const RUNS: u32 = 11_000;
/// Maximum number of runs in the result of one query.
const PAGE: usize = 500;
/// A generous bound for opening a store and one query, at every scale.
const BOUND: Duration = Duration::from_secs(10);

#[test]
fn r27_a_hundred_thousand_ready_runs_are_found_page_by_page() {
    let backend = Backend::sqlite();
    let store = backend.open();
    let runs = RUNS * scale().max(1);
    for run in 0..runs {
        let parked = StoredStatus::Parked { due: Some(u64::from(run)), needs_attention: false };
        let waits = if run % 11 == 0 { parked } else { StoredStatus::Active };
        store.append(with_status(&format!("r{run}"), unit(0), waits));
    }
    store.settle();
    store.let_go();
    drop(store);
    let begun = Instant::now();
    let store = backend.open();
    let store = store.runs();
    let runnable = store.runnable(&tenant(), u64::MAX >> 1, PAGE).unwrap();
    assert_eq!(runnable.len(), PAGE, "as many as were asked for");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(store.next_due(&tenant()).unwrap(), Some(0));
    assert_eq!(store.live(&tenant(), 1_000).unwrap(), 1_000, "it counts no further");
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let filter = Filter { after, limit: PAGE, ..Filter::default() };
        let begun = Instant::now();
        let page = store.runs(&tenant(), &filter).unwrap();
        assert!(page.len() <= PAGE && begun.elapsed() < BOUND, "{} in {:?}", page.len(), begun.elapsed());
        let Some(last) = page.last() else { break };
        after = Some(last.run_id.clone());
        seen.extend(page.into_iter().map(|row| row.run_id));
    }
    assert_eq!(seen.len(), runs as usize, "each run is in one page");
}
