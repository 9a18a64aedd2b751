//! Compares runs of a server while its store is copied with runs of the same server alone.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flowcell::{Host, contract::Tenant};
use flowcell_runtime::sqlite::{SqliteStore, stop_process};
use flowcell_server::{Limits, identity::Local};
use serde_json::json;

use super::{THREE, client::Served, ended::fill, percentile, post::Connection};

/// The number of ended runs in the store.
const STORED: u64 = if cfg!(debug_assertions) { 20_000 } else { 60_000 };
/// The number of copies. Each one is compared with the time before it.
const COPIES: usize = 5;

pub(crate) fn backup() {
    let folder = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), stop_process).unwrap();
    fill(&store, &Tenant::local(), STORED);
    drop(store);
    let size = std::fs::metadata(folder.path().join("flowcell.db")).unwrap().len() >> 20;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(16).state_dir(folder.path()).build().unwrap();
    let state = folder.path().to_owned();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    assert_eq!(served.post("/v1/flows", &json!({ "flow": THREE })).status, 201);
    run_for(&served, 1, || thread::sleep(Duration::from_secs(1)));
    for connections in [1, 8] {
        let (mut copying, mut ratios, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for copy in 0..COPIES {
            let target = copies.path().join(format!("{connections}-{copy}"));
            let since = Instant::now();
            let mut during = run_for(&served, connections, || copy_store(&state, &target));
            let took = since.elapsed();
            let mut before = run_for(&served, connections, || thread::sleep(took));
            ratios.push(during.len() as f64 / before.len() as f64);
            copying.push(took);
            beside.push(percentile(&mut during, 50));
            alone.push(percentile(&mut before, 50));
            std::fs::remove_dir_all(target).unwrap();
        }
        ratios.sort_by(f64::total_cmp);
        let us = |times: &mut [Duration]| percentile(times, 50).as_nanos() as f64 / 1e3;
        println!(
            "{connections} connections while a store of {size} MiB is copied in {:.1} s: {:+.1} % runs; a run takes {:.0} µs, and \
             {:.0} µs alone",
            percentile(&mut copying, 50).as_secs_f64(),
            (ratios[COPIES / 2] - 1.0) * 100.0,
            us(&mut beside),
            us(&mut alone)
        );
    }
}

/// Starts runs over some connections, one after another each, until the work is done. Returns their times.
fn run_for(served: &Served, connections: usize, work: impl FnOnce()) -> Vec<Duration> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = (0..connections).map(|_| {
            scope.spawn(|| {
                let (mut connection, mut times) = (Connection::open(served), Vec::new());
                while !is_done.load(Ordering::Acquire) {
                    times.push(connection.timed(r#"{"flow":"three"}"#));
                }
                times
            })
        });
        let running: Vec<_> = running.collect();
        work();
        is_done.store(true, Ordering::Release);
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Copies the store with the real program, as the manual advises for a server whose cores are busy.
fn copy_store(state: &Path, target: &Path) {
    let mut command = Command::new("nice");
    command.args(["-n", "10", env!("CARGO_BIN_EXE_flowcell")]);
    command.args(["store", "backup"]).arg(target).arg("--state").arg(state).env_remove("FLOWCELL_STORE");
    assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
}
