//! Joins whose branches end in any order: the result does not depend on timing.

use std::fs;

use serde_json::{Value, json};

use crate::kit;

/// Flows with the inputs `slow` and `quick`, two times, and their outputs or the code of their error.
const FLOWS: [(&str, &str, &str); 6] = [
    (
        "an `all` join with a skipped branch is skipped when the other branch has ended",
        r#"
nodes:
  - { id: check, type: control.if, input: { condition: "flow.input.never" } }
  - { id: stock, type: control.wait, input: { ms: "{{ flow.input.slow }}" } }
  - { id: both, type: control.merge }
  - { id: other, type: control.wait, input: { ms: "{{ flow.input.quick }}" } }
  - { id: report, type: data.template, input: { template: "{{ stock.waitedMs is defined }}" } }
edges: ["check -> both: then", stock -> both -> report, other -> report]"#,
        r#"{ "report": { "text": "true" } }"#,
    ),
    (
        "a node whose edge has a failing condition fails when its other edges are settled",
        r#"
nodes:
  - { id: a, type: control.wait, input: { ms: "{{ flow.input.quick }}" } }
  - { id: b, type: control.wait, input: { ms: "{{ flow.input.slow }}" } }
  - { id: j, type: control.noop }
  - { id: report, type: control.noop, input: { value: "{{ [inbound.error.code, b.waitedMs is defined] }}" } }
edges: [{ from: a, to: j, when: "flow.input.none > 3" }, "b -> j", "j -> report: error"]"#,
        r#"{ "report": { "value": ["condition_error", true] } }"#,
    ),
    (
        "of two failing conditions the first in the flow is reported",
        r#"
nodes:
  - { id: a, type: control.wait, input: { ms: "{{ flow.input.quick }}" } }
  - { id: b, type: control.wait, input: { ms: "{{ flow.input.slow }}" } }
  - { id: j, type: control.noop, join: all }
  - { id: report, type: control.noop, input: { value: "{{ 'from `a`' in inbound.error.message }}" } }
edges:
  - { from: a, to: j, when: "flow.input.none > 3" }
  - { from: b, to: j, when: "flow.input.none > 4" }
  - "j -> report: error""#,
        r#"{ "report": { "value": true } }"#,
    ),
    (
        "a condition that fails on an edge out of a cycle fails its target after the last pass",
        r#"
nodes:
  - { id: count, type: control.noop, input: { value: "{{ (count.value | default(0)) + 1 }}" } }
  - { id: pause, type: control.wait, input: { ms: "{{ flow.input.slow }}" } }
  - { id: out, type: control.noop }
  - { id: report, type: control.noop, input: { value: "{{ [inbound.error.code, count.value] }}" } }
edges:
  - count -> pause
  - { from: pause, to: count, when: "count.value < 3" }
  - { from: count, to: out, when: "flow.input.none > 3" }
  - "out -> report: error""#,
        r#"{ "report": { "value": ["condition_error", 3] } }"#,
    ),
    (
        "a condition on an edge out of a cycle that fails in the first pass only leads out later",
        r#"
nodes:
  - { id: count, type: control.noop, input: { value: "{{ (count.value | default(0)) + 1 }}" } }
  - { id: more, type: control.noop, input: { value: "{{ count.value if count.value > 1 else null }}" } }
  - { id: report, type: control.noop, input: { value: "{{ more.value }}" } }
edges:
  - count -> more
  - { from: more, to: count, when: "count.value < 3" }
  - { from: more, to: report, when: "more.value > 1" }"#,
        r#"{ "report": { "value": 2 } }"#,
    ),
    (
        "an `all` join without a branch that fires is skipped",
        r#"
nodes:
  - { id: check, type: control.if, input: { condition: "flow.input.never" } }
  - { id: wait, type: control.wait, input: { ms: "{{ flow.input.slow }}" } }
  - { id: last, type: control.noop, join: all, input: { value: 1 } }
  - { id: report, type: control.noop, join: settled, input: { value: "{{ last.skipped }}" } }
edges: ["check -> last: then", { from: wait, to: last, when: "false" }, last -> report, wait -> report]"#,
        r#"{ "report": { "value": true } }"#,
    ),
];

#[test]
fn the_order_in_which_branches_end_does_not_change_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, flow, expected) in FLOWS {
        let head = "flow:\n  name: joins\n  input: { slow: 0, quick: 0, never: false }\n  outputs: { report: \"{{ report }}\" }";
        fs::write(folder.path().join("joins.yaml"), format!("{head}{flow}\n")).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        for (slow, quick) in [("9000", "10"), ("10", "9000"), ("10", "10")] {
            let mut command = kit::flowcell(folder.path());
            command.args([
                "test",
                "joins.yaml",
                "--json",
                "-i",
                &format!("slow={slow}"),
                "-i",
                &format!("quick={quick}"),
            ]);
            let output = command.output().unwrap();
            let came: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!(kit::stderr(&output)));
            if came["outputs"] != expected {
                wrong.push(format!("{name}, {slow} and {quick} ms: {came}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
