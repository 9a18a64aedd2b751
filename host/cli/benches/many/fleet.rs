//! Measures actions on many runs, in a small store and in one with many other runs: runs are cancelled by a job, removed
//! by age, and removed with their tenant.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use flowcell::{Filter, Host, Reader, Runs, contract::Tenant};
use flowcell_runtime::sqlite::{SqliteStore, stop_process};

use super::{ended::fill, flowcell, parked::park, scaled};

/// The number of runs on which each command acts, in the small store and in the large one.
const RUNS: [u64; 2] = [scaled(10_000) as u64, scaled(100_000) as u64];
/// The number of runs of the large store on which no command acts.
const OTHERS: u64 = scaled(800_000) as u64;

/// The times of the commands.
struct Times {
    cancel: Duration,
    gc: Duration,
    delete: Duration,
}

/// Returns one of the times.
type TimeOf = fn(&Times) -> Duration;

pub(super) fn fleet(folder: &Path) {
    let small = act(&folder.join("small"), 0, RUNS[0]);
    let large = act(&folder.join("large"), OTHERS, RUNS[1]);
    let all = OTHERS + 2 * RUNS[1];
    let parts: [(&str, TimeOf); 3] = [
        ("a job that cancels", |times| times.cancel),
        ("`runs gc` of", |times| times.gc),
        ("`tenant delete` with", |times| times.delete),
    ];
    for (name, time) in parts {
        let each = |times: &Times, runs: u64| time(times).as_secs_f64() * 1e6 / runs as f64;
        let (small, each_of_large) = (each(&small, RUNS[0]), each(&large, RUNS[1]));
        println!(
            "{name} {} runs in a store of {all}: {:.1} s, {each_of_large:.0} µs a run; {} runs in a store of {}: \
             {small:.0} µs a run, ratio {:.2}",
            RUNS[1],
            time(&large).as_secs_f64(),
            RUNS[0],
            2 * RUNS[0],
            each_of_large / small
        );
    }
}

/// Makes a store with `others` ended runs, `runs` parked ones, and a tenant with `runs` ended ones, and acts on the runs.
fn act(state: &Path, others: u64, runs: u64) -> Times {
    std::fs::create_dir(state).unwrap();
    let cache = state.join("cache");
    // Returns the time and the number of printed lines.
    let execute = |arguments: &[&str]| {
        let mut command = flowcell(&cache, state);
        command.current_dir(state).args(arguments).stdout(Stdio::piped());
        let since = Instant::now();
        let output = command.output().unwrap();
        let time = since.elapsed();
        assert!(output.status.success(), "{arguments:?}");
        (time, output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
    };
    execute(&["tenant", "create", "acme"]);
    let since = Instant::now();
    let store = SqliteStore::open(state, stop_process).unwrap();
    fill(&store, &Tenant::local(), others);
    fill(&store, &Tenant::from("acme"), runs);
    drop(store);
    park(&Host::builder().state_dir(state).build().unwrap(), usize::try_from(runs).unwrap());
    println!("a store of {} runs was made in {:.0} s", others + 2 * runs, since.elapsed().as_secs_f64());

    let (count, keep) = (runs.to_string(), others.to_string());
    let (cancel, _) =
        execute(&["runs", "bulk", "cancel", "--status", "parked", "--max-runs", &count, "--rate", "10000", "--yes"]);
    assert_eq!(number(state, "local", Some("cancelled")), runs);
    let (gc, removed) = execute(&["runs", "gc", "--keep", &keep]);
    assert_eq!(removed, runs);
    execute(&["tenant", "disable", "acme"]);
    let (delete, _) = execute(&["tenant", "delete", "acme", "--yes"]);
    assert_eq!(number(state, "acme", None), 0);
    Times { cancel, gc, delete }
}

/// Returns the number of runs of a tenant, or of those with a status.
fn number(state: &Path, tenant: &str, status: Option<&str>) -> u64 {
    let filter = Filter { status: status.map(str::to_owned), limit: usize::MAX >> 1, ..Filter::default() };
    Reader::open(state).unwrap().runs(&Tenant::from(tenant), &filter).unwrap().len() as u64
}
