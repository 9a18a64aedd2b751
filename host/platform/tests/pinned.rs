//! Flows that runs have pinned.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use flowcell_platform::{Host, RunOptions, Source, graph::Graph};

const FLOW: &str = "flow: { name: f }\nnodes: [{ id: a, type: control.noop }]\n";

/// Stores a new run.
fn store(host: &Host, run: &str) {
    let flow = host.load_source(Source { name: "f.yaml".into(), text: FLOW.into() }).unwrap();
    let runner = host.runner(&flow, RunOptions { run_id: Some(run.into()), ..RunOptions::default() }).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(runner.accept()).unwrap();
}

/// Opens a stored run. Returns its flow.
fn open(host: &Host, run: &str) -> Arc<Graph> {
    host.resume(&run.into(), RunOptions::default()).unwrap().graph().clone()
}

#[test]
fn a_pinned_flow_is_checked_once_for_each_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder()
        .cache_dir(concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
        .instances(4)
        .state_dir(folder.path())
        .build()
        .unwrap();
    let other = host.for_tenant("other".into());
    for (host, run) in [(&host, "a"), (&host, "b"), (&other, "a")] {
        store(host, run);
    }
    let first = open(&host, "a");
    assert!(Arc::ptr_eq(&first, &open(&host, "b")));
    assert!(!Arc::ptr_eq(&first, &open(&other, "a")));
}
