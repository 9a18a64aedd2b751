//! The memory of a server that drives a tree of runs.

use serde_json::{Value, json};

use crate::{
    client::ask,
    samples::hello,
    server::process::{memory, serve},
};

/// Limit of the memory that the tree may add, in KiB. Each run of a tree is far below 1 MiB.
const MAX_TREE_KIB: u64 = 96 * 1024;
/// The number of child runs from which on the tree counts as nearly full. The limit of a tree is 272.
const NEARLY_FULL: f64 = 240.0;

/// Returns a flow that calls another flow four times.
fn calling_flow(name: &str, called: &str) -> Value {
    json!({
        "flow": { "name": name },
        "nodes": [
            { "id": "each", "type": "control.foreach", "input": { "list": [0, 1, 2, 3] }, "body": ["call"] },
            { "id": "call", "type": "control.subflow", "input": { "name": called } },
        ],
    })
}

#[test]
fn t1_a_tree_of_runs_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, address) = serve(folder.path(), &[]);
    let post = |path: &str, body: &Value| {
        let answer = ask(address, "POST", path, &[], &body.to_string());
        assert_eq!(answer.status, 201, "{path}: {answer:?}");
    };
    let leaf = json!({ "flow": { "name": "f15" }, "nodes": [{ "id": "a", "type": "control.noop" }] });
    post("/v1/flows", &json!({ "flow": leaf }));
    for index in (0..15).rev() {
        post("/v1/flows", &json!({ "flow": calling_flow(&format!("f{index}"), &format!("f{}", index + 1)) }));
    }
    let canary = || post("/v1/runs?wait=true", &json!({ "flow": hello() }));
    canary();
    let before = memory(child.id(), "VmRSS").unwrap();
    post("/v1/runs", &json!({ "flow": "f0", "runId": "tree" }));
    let below = || {
        canary();
        let metrics = ask(address, "GET", "/metrics", &[], "").body;
        let below = metrics.lines().find_map(|line| line.strip_prefix("flowcell_runs_below ")).expect("no such metric");
        below.parse::<f64>().unwrap()
    };
    let full = std::iter::repeat_with(below).take(2_000).find(|below| *below >= NEARLY_FULL);
    assert!(full.is_some(), "the tree has {} runs", below());
    // The tree goes on for a while at its limit.
    (0..20).for_each(|_| assert!(below() <= 272.0));
    let peak = memory(child.id(), "VmHWM").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(peak - before < MAX_TREE_KIB, "{} KiB at first, and {peak} KiB with the tree", before);
}
