//! A cluster of three nodes, whose nodes and processes are killed.

use std::collections::BTreeSet;

use crate::{
    nodes::{chain, ledger},
    processes::Process,
    server::{Cluster, free_port, tables, wait_until},
    supervisor::{Host, fresh},
};

/// The calls of a run, each of which lasts 50 ms.
const CALLS: usize = 20;
/// The runs that begin before each kill.
const RUNS: usize = 2;

#[test]
fn runs_survive_kills_of_nodes_and_of_the_process() {
    let Some(mut cluster) = Cluster::of_three() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (url, file) = (cluster.url(&tables().unwrap(), free_port()), folder.path().join("ledger"));
    let body = chain(&["type: t.call, input: { ms: 50 }"; CALLS]);
    let mut process = Process::start(&url, folder.path());
    let mut runs = Vec::new();
    for node in 0..cluster.0.len() {
        for _ in 0..RUNS {
            let run = fresh("cluster");
            process.accept(&run, &body);
            runs.push(run);
        }
        let before = ledger(&file).len();
        wait_until("the runs begin", || ledger(&file).len() > before);
        cluster.0[node].kill();
        if node == 1 {
            process.kill();
            process = Process::start(&url, folder.path());
        }
        // Without a node that stores everything of it, no run makes progress.
        wait_until("the runs go on", || ledger(&file).len() >= before + RUNS * CALLS / 2);
        cluster.0[node].start();
    }
    process.kill();
    let host = Host::at(&url, folder.path());
    for run in &runs {
        host.wait_for(run, "succeeded");
        assert_eq!(host.listed(run).as_deref(), Some("succeeded"));
        let facts = host.facts(run);
        assert_eq!(facts.iter().filter(|fact| *fact == "CallEnded").count(), CALLS, "{facts:?}");
    }
    let keys: BTreeSet<_> = ledger(&file).into_iter().collect();
    assert_eq!(keys.len(), runs.len() * CALLS, "each operation has one key");
}
