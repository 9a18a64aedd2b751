//! Runs of flows with vars and fragments.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

pub(crate) fn flowcell(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).current_dir(folder).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a flow and returns its outputs, or the code of its error.
fn run(flow: &str) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("flow.yaml"), flow).unwrap();
    let (_, given, talk) = flowcell(folder.path(), &["run", "flow.yaml", "--quiet", "--json", "--store", "memory:"]);
    let result: Value = serde_json::from_str(&given).unwrap_or_else(|_| panic!("{flow}\n{talk}"));
    match result["status"].as_str() {
        Some("succeeded") => Ok(result["outputs"].clone()),
        _ => Err(result["error"]["code"].as_str().unwrap_or(&talk).to_owned()),
    }
}

#[test]
fn runs_give_what_the_manual_says() {
    let cases = [
        (
            "the first nodes have no inbound beside vars, also at the entry of a cycle",
            r#"
flow: { name: f, vars: { a: 1 }, outputs: { one: "{{ one.value }}", count: "{{ count.value }}", two: "{{ two.value }}" } }
nodes:
  - { id: one, type: control.noop, input: { value: ["{{ inbound }}", "{{ inbounds }}", "{{ vars.a }}"] } }
  - { id: count, type: control.noop, input: { value: "{{ (count.value | default([])) + [inbound.value | default(none)] }}" } }
  - { id: two, type: control.noop, join: any, input: { value: "{{ inbound }}" } }
edges: [{ from: count, to: count, when: (count.value | length) < 2 }]"#,
            Ok(json!({ "one": [null, {}, 1], "count": [null, [null]], "two": null })),
        ),
        (
            "random values and the time are the same for all readers of a var",
            r#"
flow: { name: f, vars: { id: "{{ uuid() }}", at: "{{ now }}" }, outputs: ["{{ a.value == b.value }}", "{{ a.value[0] | length }}"] }
nodes:
  - { id: a, type: control.noop, input: { value: ["{{ vars.id }}", "{{ vars.at }}"] } }
  - { id: b, type: control.noop, after: a, input: { value: ["{{ vars.id }}", "{{ vars.at }}"] } }"#,
            Ok(json!([true, 36])),
        ),
        (
            "a var that cannot be computed fails the run",
            r#"
flow: { name: f, strict: true, vars: { a: "{{ flow.input.missing }}" } }
nodes: [{ id: one, type: control.noop, input: { value: "{{ vars.a }}" } }]"#,
            Err("missing_value"),
        ),
        (
            "an edge that only orders leaves its source out of inbound and inbounds",
            r#"
flow: { name: f, outputs: "{{ c.value }}" }
nodes:
  - { id: a, type: control.noop, input: { value: 1 } }
  - { id: b, type: control.noop, input: { value: 2 } }
  - { id: c, type: control.noop, input: { value: ["{{ inbound.value }}", "{{ inbounds }}"] } }
edges: [{ from: a, to: c, inbound: false }, b -> c]"#,
            Ok(json!([2, { "b": { "value": 2 } }])),
        ),
        (
            "each use has its own arguments, also inside another fragment and in passes of a body",
            r#"
flow: { name: f, outputs: "{{ [u.items, v] }}" }
fragments:
  outer:
    params: { list: {}, sign: { default: "+" } }
    nodes:
      - id: each
        type: control.foreach
        input: { list: "{{ params.list }}" }
        body: { nodes: [{ id: inner, use: inner, with: { a: "{{ params.sign ~ each.item }}" } }] }
  inner:
    params: { a: {}, sign: { default: "-" } }
    nodes: [{ id: t, type: data.template, input: { template: "{{ params.a }}{{ params.sign }}{{ flow.name }}" } }]
    output: "{{ t.text }}"
nodes:
  - { id: u, use: outer, with: { list: [1, 2] } }
  - { id: v, use: inner, with: { a: "{{ u.count }}" }, after: u }"#,
            Ok(json!([["+1-f", "+2-f"], "2-f"])),
        ),
        (
            "a use fails as one node, its retries see the same arguments, and its nodes are undone",
            r#"
flow: { name: f, outputs: "{{ caught.value }}" }
fragments:
  part:
    params: { id: {} }
    nodes:
      - { id: done, type: control.noop, input: { value: "{{ params.id }}" }, undo: back }
      - { id: back, type: control.noop, input: { value: "{{ undo.output.value == params.id }}" } }
      - { id: fail, type: control.fail, after: done, input: { message: "{{ params.id }}", retryable: true } }
nodes:
  - { id: u, use: part, with: { id: "{{ uuid() }}" }, policy: { retry: { maxAttempts: 2, backoffMs: 0 } } }
  - id: caught
    type: control.noop
    input: { value: ["{{ inbound.error.message == inbound.input.value.id }}", "{{ inbound.error.details.body.node }}", "{{ inbound.error.details.undone.tasks }}"] }
edges: ["u -> caught: error"]"#,
            Ok(json!([true, "u_fail", ["u[0].u_done"]])),
        ),
        (
            "a scope gives its body a value, also without a name",
            r#"
flow: { name: f, outputs: "{{ [named, plain] }}" }
nodes:
  - { id: named, type: control.scope, input: { value: [7], as: order }, body: [a], bodyOutput: "{{ [order, named.value, a.value] }}" }
  - { id: a, type: control.noop, input: { value: "{{ order[0] }}" } }
  - { id: plain, type: control.scope, body: [b] }
  - { id: b, type: control.noop, input: { value: "{{ plain.value | default('none') }}" } }"#,
            Ok(json!([[[7], [7], 7], { "value": "none" }])),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, flow, expected) in cases {
        let given = run(flow);
        if given != expected.clone().map_err(str::to_owned) {
            wrong.push(format!("{name}: {given:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `flowcell fmt` rewrites the edges of the flow and its fragments, and leaves vars and comments. Without an option it
/// writes the short form.
#[test]
fn fmt_rewrites_fragments_and_leaves_comments() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"flow: { name: f, vars: { a: 1 } } # the name
fragments:
  # A part.
  part:
    nodes: [{ id: a, type: control.noop, input: { value: "{{ vars.a }}" } }, { id: b, type: control.noop }]
    edges:
      - { from: a, to: b } # inside
nodes:
  - { id: u, use: part } # a use
  - { id: beside, use: part, after: u }
  - { id: check, type: control.if, input: { condition: "vars.a == 1" } }
  - { id: last, type: control.noop }
edges:
  - { from: u, to: check } # first
  - { from: check, to: last, when: { equals: { var: check.condition, value: true } } }
"#;
    let file = folder.path().join("f.yaml");
    fs::write(&file, text).unwrap();
    let (code, told, talk) = flowcell(folder.path(), &["fmt", "f.yaml"]);
    assert_eq!((code, told.as_str()), (Some(0), "f.yaml: 3 edges rewritten in the short form\n"), "{talk}");
    let expected = text.replace("{ from: u, to: check }", "u -> check").replace("{ from: a, to: b }", "a -> b");
    let expected = expected.replace(
        "{ from: check, to: last, when: { equals: { var: check.condition, value: true } } }",
        "\"check -> last: then\"",
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    let (code, told, talk) = flowcell(folder.path(), &["fmt", "f.yaml", "--long", "--check"]);
    assert_eq!((code, told.as_str()), (Some(2), "f.yaml: 4 edges would be rewritten in the long form\n"), "{talk}");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected, "a check changes nothing");
    flowcell(folder.path(), &["fmt", "f.yaml", "--long"]);
    let long = text
        .replace(", after: u }", " }")
        .replace("edges:\n  - { from: u", "edges:\n  - { from: u, to: beside }\n  - { from: u");
    assert_eq!(fs::read_to_string(&file).unwrap(), long);
}
