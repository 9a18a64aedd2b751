//! The places in the details of failures: a node cannot write them itself.

use std::fs;

use serde_json::{Value, json};

use crate::flows::fragments::flowcell;

/// A node that writes each place itself.
const FORGED: &str = "{ id: forge, type: control.fail, input: { message: m, details: { keep: 1, body: b, child: c, \
                      undone: u, own: o } } }";

/// The members that the host moves.
fn own() -> Value {
    json!({ "body": "b", "child": "c", "undone": "u", "own": "o" })
}

/// Runs a flow that handles the failure of its node `n`, beside a flow `child` with `child_nodes`. Returns the details that
/// the handler sees.
fn details(node: &str, child_nodes: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let flow = format!(
        "flow: {{ name: f, outputs: '{{{{ caught.value }}}}' }}\nnodes:\n  - {node}\n  - {{ id: caught, type: \
         control.noop, input: {{ value: '{{{{ inbound.error.details }}}}' }} }}\nedges: ['n -> caught: error']\n"
    );
    fs::write(folder.path().join("f.yaml"), &flow).unwrap();
    fs::write(folder.path().join("child.yaml"), format!("flow: {{ name: child }}\nnodes: [{child_nodes}]\n")).unwrap();
    let options = ["run", "f.yaml", "--quiet", "--store", "memory:", "--run-id", "r"];
    let (code, given, talk) = flowcell(folder.path(), &options);
    assert_eq!(code, Some(0), "{flow}\n{talk}");
    serde_json::from_str(&given).unwrap()
}

#[test]
fn nodes_cannot_write_the_places_of_failures() {
    let undone = "{ id: done, type: control.noop, undo: back }, { id: back, type: control.noop }";
    let after = FORGED.replace("id: forge,", "id: forge, after: done,");
    let in_scope = |nodes: &str| format!("{{ id: n, type: control.scope, body: {{ nodes: [{nodes}] }} }}");
    let call = "{ id: n, type: control.subflow, input: { name: child } }";
    let cases = [
        (
            "in the same body the details are the node's own",
            FORGED.replace("id: forge", "id: n"),
            FORGED.to_owned(),
            json!({ "keep": 1, "body": "b", "child": "c", "undone": "u", "own": "o" }),
        ),
        (
            "out of a body",
            in_scope(FORGED),
            FORGED.to_owned(),
            json!({ "keep": 1, "own": own(), "body": { "pass": 0, "node": "forge", "task": "n[0].forge" } }),
        ),
        (
            "out of a body with undos",
            in_scope(&format!("{undone}, {after}")),
            FORGED.to_owned(),
            json!({ "keep": 1, "own": own(), "body": { "pass": 0, "node": "forge", "task": "n[0].forge" },
                "undone": { "count": 1, "tasks": ["n[0].done"] } }),
        ),
        (
            "out of a called flow",
            call.to_owned(),
            FORGED.to_owned(),
            json!({ "keep": 1, "own": own(), "child": { "run": "r.n.1", "task": "forge" } }),
        ),
        (
            "out of a called flow with undos",
            call.to_owned(),
            format!("{undone}, {after}"),
            json!({ "keep": 1, "own": own(), "undone": { "count": 1, "tasks": ["done"] },
                "child": { "run": "r.n.1", "task": "forge" } }),
        ),
        (
            "places of the host stay, out of a body in a called flow in a body",
            in_scope("{ id: call, type: control.subflow, input: { name: child } }"),
            in_scope(FORGED),
            json!({ "keep": 1, "own": own(),
                "body": { "pass": 0, "node": "call", "task": "n[0].call",
                    "inner": { "pass": 0, "node": "forge", "task": "n[0].forge" } },
                "child": { "run": "r.n[0].call.1", "task": "n" } }),
        ),
    ];
    for (name, node, child, expected) in cases {
        assert_eq!(details(&node, &child), expected, "{name}");
    }
}
