//! Measures filtered pages and counts in an embedded store of a million runs, and the removal of a tenth of them, as
//! retention and the removal of a tenant do it.
//!
//! `FLOWCELL_BENCH_RUNS` is the number of runs. Each time of a page or count is the fastest of some rounds.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run has nothing to say")]

use std::time::{Duration, Instant};

use flowcell_contract::Tenant;
use flowcell_runtime::{
    limits::{MAX_COUNT_READS, MAX_READ_RUNS},
    ports::{Erase, Filter, Group, Journal, Removable, Removing, Runs, Sweep},
    sqlite::{SqliteStore, stop_process},
};

#[path = "search/ended.rs"]
mod ended;

/// Number of measurements, of which the fastest counts.
const ROUNDS: usize = 5;
/// Number of runs that one commit of retention removes.
const REMOVED_AT_ONCE: usize = 50;

fn fastest(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let since = Instant::now();
        work();
        since.elapsed()
    };
    (0..ROUNDS).map(time).min().unwrap()
}

fn main() {
    let count = std::env::var("FLOWCELL_BENCH_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000_u64);
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), stop_process).unwrap();
    let since = Instant::now();
    ended::fill(&store, &Tenant::local(), count);
    println!("{count} runs written: {:.0} runs/s", count as f64 / since.elapsed().as_secs_f64());

    let text = |text: &str| Some(text.to_owned());
    let labels = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let all = Filter::default;
    let filters = [
        ("no filter", all()),
        ("flow", Filter { flow: text("flow-7"), ..all() }),
        ("status failed", Filter { status: text("failed"), ..all() }),
        ("status active", Filter { status: text("active"), ..all() }),
        ("flow, status failed", Filter { flow: text("flow-2"), status: text("failed"), ..all() }),
        ("error, rare", Filter { error: text("code_7"), ..all() }),
        ("label", Filter { labels: labels("team", "billing"), ..all() }),
        ("label, error", Filter { labels: labels("team", "billing"), error: text("code_7"), ..all() }),
        ("trigger", Filter { trigger: text("nightly"), ..all() }),
        ("text, in one error", Filter { text: text("decl"), error: text("code_7"), ..all() }),
        ("text that no failed run has", Filter { text: text("refused"), status: text("failed"), ..all() }),
        ("duration that few runs have", Filter { min_duration_ms: Some(99_999), ..all() }),
    ];
    let reader = store.reader();
    println!("| filter | page of 50 | count by status |\n|---|---|---|");
    for (name, filter) in filters {
        let page = Filter { limit: 50, ..filter.clone() };
        let page = fastest(|| drop(reader.search(&Tenant::local(), &page, MAX_READ_RUNS).unwrap()));
        let count = fastest(|| drop(reader.count(&Tenant::local(), &filter, &Group::Status, MAX_COUNT_READS).unwrap()));
        println!("| {name} | {:.2} ms | {:.1} ms |", page.as_secs_f64() * 1e3, count.as_secs_f64() * 1e3);
    }

    let (local, acme, tenth) = (Tenant::local(), Tenant::from("acme"), count / 10);
    let since = Instant::now();
    remove(&store, &local, Removable { keep_latest: Some(count - tenth), ..Removable::default() }, tenth);
    report("removed by retention", tenth, since.elapsed());
    ended::fill(&store, &acme, tenth);
    let since = Instant::now();
    let mut slowest = Duration::ZERO;
    loop {
        let part = Instant::now();
        if store.erase_some(&acme).unwrap() == 0 {
            break;
        }
        slowest = slowest.max(part.elapsed());
    }
    report("removed with their tenant", tenth, since.elapsed());
    println!("the slowest part of the removal of the tenant: {:.1} ms", slowest.as_secs_f64() * 1e3);
}

/// Removes ended runs as retention does: other runs that still need them are looked for first.
fn remove(store: &SqliteStore, tenant: &Tenant, wanted: Removable, expected: u64) {
    let reader = store.reader();
    let runs = reader.removable(tenant, &wanted).unwrap();
    assert_eq!(runs.len() as u64, expected);
    for run in &runs {
        let repeated = Filter { retry_of: Some(run.clone()), limit: 1, ..Filter::default() };
        assert!(reader.runs(tenant, &repeated).unwrap().is_empty());
        assert!(store.left_below(tenant, run).unwrap().is_empty());
        assert!(store.children_of(tenant, run).unwrap().is_empty());
    }
    for batch in runs.chunks(REMOVED_AT_ONCE) {
        assert_eq!(store.remove(tenant, batch, Removing::Each).unwrap().kept, []);
    }
}

fn report(what: &str, runs: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    println!("{runs} runs {what}: {seconds:.1} s, {:.0} µs a run", seconds * 1e6 / runs as f64);
}
