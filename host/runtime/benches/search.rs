//! Measures filtered pages and counts in an embedded store of a million runs.
//!
//! `FLOWCELL_BENCH_RUNS` is the number of runs. Each figure is the fastest of some rounds.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run has nothing to say")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Json, Tenant};
use flowcell_flow::graph::FlowPolicy;
use flowcell_runtime::{
    RunStatus,
    fact::{Fact, RunEnd},
    ports::{Durable, Entry, Filter, Group, Journal, Pin, Record, Runs, StoredStatus, Unit},
    sqlite::{SqliteStore, stop_process},
};

/// Number of runs between two waits for the disk.
const BATCH: u64 = 10_000;
/// Number of measurements, of which the fastest counts.
const ROUNDS: usize = 5;

/// Returns the start and the end of the run with this number. Of a hundred runs six fail, with one of 300 codes.
fn entries(number: u64) -> [Entry; 2] {
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
        tenant: Tenant::local(),
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
    for number in 0..count {
        entries(number).into_iter().for_each(|entry| store.append(entry));
        if number % BATCH == BATCH - 1 {
            store.settle().unwrap();
        }
    }
    store.settle().unwrap();
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
        let page = fastest(|| drop(reader.runs(&Tenant::local(), &page).unwrap()));
        let count = fastest(|| drop(reader.count(&Tenant::local(), &filter, &Group::Status).unwrap()));
        println!("| {name} | {:.2} ms | {:.1} ms |", page.as_secs_f64() * 1e3, count.as_secs_f64() * 1e3);
    }
}
