//! Facts about the run in scripts and steps, and functions for dates in the sandbox.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::kit::{output_of, stderr, stdout};

/// Runs a flow, and returns its outputs.
fn outputs(folder: &Path, file: &str, text: &str) -> Value {
    fs::write(folder.join(file), text).unwrap();
    let run = ["run", file, "--store", "memory:", "--quiet", "--run-id", "r", "--label", "team=billing"];
    let output = output_of(folder, &run);
    assert!(output.status.success(), "{file}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_script_sees_the_facts_about_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "export const run = (services, facts) => ({ ...facts, day: fn.datestart(facts.run.started, 'day', 'UTC') })";
    let result = outputs(folder.path(), "whole.flow.js", script)["result"].clone();
    let started = result["run"]["started"].as_str().unwrap();
    let expected = json!({
        "run": { "id": "r", "started": started, "labels": { "team": "billing" } },
        "flow": { "name": "whole", "version": null },
        "task": { "id": "script", "pass": null },
        "tenant": "local",
        "day": format!("{}T00:00:00Z", &started[..10]),
    });
    assert_eq!(result, expected);
    // A script as a node, in a body, in a flow whose nodes have the names of facts.
    let flow = "
flow: { name: parts }
nodes:
  - id: run
    type: control.foreach
    input: { list: [1, 2] }
    body: { nodes: [{ id: task, type: script.run, input: { source: 'export const run = (_, { run, flow, task }) => [run.id, flow.name, task.id]' } }] }
    bodyOutput: '{{ task.result }}'
";
    let items = json!([["r", "parts", "run[0].task"], ["r", "parts", "run[1].task"]]);
    assert_eq!(outputs(folder.path(), "parts.yaml", flow)["run"]["items"], items);
}

#[test]
fn steps_see_the_facts_about_their_run() {
    let folder = tempfile::tempdir().unwrap();
    let flow = "
name: told
steps:
  - { id: first, tool: control.noop, params: { value: [$facts.run.id, $facts.task.id, $facts.flow.name, $facts.tenant, $facts.run.labels.team] } }
output: [$ctx.first.value, $facts.run.id]
";
    let expected = json!([["r", "first", "told", "local", "billing"], "r"]);
    assert_eq!(outputs(folder.path(), "told.yaml", flow), expected);
}

/// Each field that a node evaluates by itself knows the functions for dates, and the time.
#[test]
fn conditions_and_predicates_compare_dates() {
    let folder = tempfile::tempdir().unwrap();
    let flow = "
flow:
  name: dated
  outputs: { late: '{{ late.condition }}', route: '{{ route.route }}', passes: '{{ days.iteration }}', kept: '{{ keep.list }}', text: '{{ text.text }}' }
nodes:
  - { id: late, type: control.if, input: { condition: \"(now | datediff('2020-01-31', 'days')) > 0\" } }
  - id: route
    type: control.switch
    input:
      value: '2020-01-31T23:30:00Z'
      cases:
        - { when: \"(value | dateformat('%A')) == 'Saturday'\", route: utc }
        - { when: \"(value | dateformat('%A', 'Europe/Berlin')) == 'Saturday'\", route: berlin }
  - id: days
    type: control.loop
    input: { while: \"('2020-02-02' | datediff('2020-01-31', 'days')) > days.iteration\" }
    body: { nodes: [{ id: pass, type: control.noop, input: {} }] }
  - { id: keep, type: data.filter, input: { list: ['2020-01-31', '9999-01-01'], when: '(now | datediff(item)) > 0' } }
  - { id: text, type: data.template, input: { template: \"{{ '2020-01-31' | dateadd('P1M') }}\" } }
edges: []
";
    let expected =
        json!({ "late": true, "route": "berlin", "passes": 2, "kept": ["2020-01-31"], "text": "2020-02-29" });
    assert_eq!(outputs(folder.path(), "dated.yaml", flow), expected);
}
