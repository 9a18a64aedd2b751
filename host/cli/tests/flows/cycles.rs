//! Strange cycles of edges: nested ones, several at once, in bodies and around them, with failures, people and limits.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

/// The flow, and the outputs or the error of its run.
struct Strange {
    name: &'static str,
    flow: &'static str,
    given: Result<Value, &'static str>,
}

const COUNT: &str = "type: control.noop, input: { value: \"{{ (count.value | default(0)) + 1 }}\" }";

fn strange() -> Vec<Strange> {
    vec![
        Strange {
            name: "a node that repeats itself reads its own output",
            flow: r#"
nodes: [{ id: count, COUNT }]
edges: [{ from: count, to: count, when: count.value < 4 }]"#,
            given: Ok(json!({ "count": { "value": 4 } })),
        },
        Strange {
            name: "a skipped entry ends its cycle before the first pass",
            flow: r#"
nodes:
  - { id: start, type: control.if, input: { condition: "flow.input.never | default(false)" } }
  - { id: count, COUNT }
  - { id: last, type: control.noop, join: settled, input: { value: "{{ count.skipped | default(false) }}" } }
edges:
  - "start -> count: then"
  - { from: count, to: count, when: count.value < 4 }
  - count -> last
  - start -> last"#,
            given: Ok(
                json!({ "start": { "condition": false }, "count": { "skipped": true }, "last": { "value": true } }),
            ),
        },
        Strange {
            name: "an inner cycle begins again in each pass of the outer one",
            flow: r#"
outputs: { outer: "{{ outer.value }}", inner: "{{ inner.value }}", at: "{{ last.value }}" }
nodes:
  - { id: outer, type: control.noop, input: { value: "{{ (outer.value | default(0)) + 1 }}" } }
  - { id: inner, type: control.noop, input: { value: "{{ (inner.value | default(outer.value * 10)) + 1 }}" } }
  - { id: check, type: control.noop, input: { value: "{{ inner.value }} {{ task.id }}" } }
  - { id: last, type: control.noop, input: { value: "{{ check.value }} {{ task.id }}" } }
edges:
  - outer -> inner
  - { from: inner, to: inner, when: "inner.value % 10 < outer.value + 1" }
  - { from: inner, to: check, when: "inner.value % 10 > outer.value" }
  - { from: check, to: outer, when: outer.value < 3 }
  - { from: check, to: last, when: outer.value == 3 }"#,
            given: Ok(json!({ "outer": 3, "inner": 34, "at": "34 outer[2].check last" })),
        },
        Strange {
            name: "a node behind nested cycles reads the pass of each cycle that was left",
            flow: r#"
strict: true
outputs: { inner: "{{ out.value }}", outer: "{{ outer.value }}" }
nodes:
  - { id: outer, type: control.noop, input: { value: "{{ task.pass }}" } }
  - { id: inner, type: control.noop, input: { value: "{{ task.id }}" } }
  - { id: check, type: control.noop }
  - { id: out, type: control.noop, input: { value: "{{ inner.value }}" } }
edges:
  - outer -> inner
  - { from: inner, to: inner, when: task.pass < 1 }
  - { from: inner, to: check, when: task.pass == 0 }
  - { from: check, to: outer, when: outer.value < 1 }
  - { from: check, to: out, when: outer.value >= 1 }"#,
            given: Ok(json!({ "inner": "outer[1].inner[0].inner", "outer": 1 })),
        },
        Strange {
            name: "a node behind nested cycles reads them while the inner one goes on",
            flow: r#"
strict: true
outputs: "{{ out.value }}"
nodes:
  - { id: outer, type: control.noop, input: { value: "{{ task.pass }}" } }
  - { id: inner, type: control.noop, input: { value: "{{ task.id }}" } }
  - { id: pause, type: control.wait, input: { ms: 5 } }
  - { id: check, type: control.wait, input: { ms: 40 } }
  - { id: out, type: control.noop, input: { value: "{{ inner.value }}" } }
edges:
  - outer -> inner -> pause
  - { from: pause, to: inner, when: task.pass < 2 }
  - { from: inner, to: check, when: task.pass == 1 }
  - { from: check, to: outer, when: outer.value < 2 }
  - { from: check, to: out, when: outer.value == 1 }"#,
            given: Ok(json!("outer[1].inner[1].inner")),
        },
        Strange {
            name: "three levels of cycles, left one by one and at once",
            flow: r#"
strict: true
outputs: ["{{ slow.value }}", "{{ once.value }}"]
nodes:
  - { id: a, type: control.noop, input: { value: "{{ task.pass }}" } }
  - { id: b, type: control.noop, input: { value: "{{ task.pass }}" } }
  - { id: c, type: control.noop, input: { value: "{{ task.id }}" } }
  - { id: from-c, type: control.noop }
  - { id: from-b, type: control.noop }
  - { id: slow, type: control.noop, input: { value: "{{ c.value }}" } }
  - { id: once, type: control.noop, input: { value: "{{ c.value }} {{ b.value }} {{ a.value }}" } }
edges:
  - a -> b -> c
  - { from: c, to: c, when: task.pass < 2 }
  - { from: c, to: from-c, when: task.pass == 1 }
  - { from: c, to: once, when: task.pass == 1 and b.value == 1 and a.value == 1 }
  - { from: from-c, to: b, when: b.value < 2 }
  - { from: from-c, to: from-b, when: b.value == 1 }
  - { from: from-b, to: a, when: a.value < 2 }
  - { from: from-b, to: slow, when: a.value == 1 }"#,
            given: Ok(json!(["a[1].b[1].c[1].c", "a[1].b[1].c[1].c 1 1"])),
        },
        Strange {
            name: "an edge that leaves early fires once, with the values of its pass",
            flow: r#"
outputs: { early: "{{ early.value }}", late: "{{ late.value }}", all: "{{ count.value }}" }
nodes:
  - { id: count, COUNT }
  - { id: twice, type: control.noop, input: { value: "{{ count.value * 2 }}" } }
  - { id: early, type: control.noop, input: { value: "{{ inbound.value }} {{ count.value }} {{ twice.value }}" } }
  - { id: late, type: control.noop, join: all, input: { value: "{{ inbounds.early.value }}, {{ twice.value }}" } }
edges:
  - count -> twice
  - { from: twice, to: early, when: count.value == 2 }
  - { from: twice, to: late, when: count.value == 5 }
  - { from: twice, to: count, when: count.value < 5 }
  - early -> late"#,
            given: Ok(json!({ "early": "4 2 4", "late": "4 2 4, 10", "all": 5 })),
        },
        Strange {
            name: "two cycles one after the other",
            flow: r#"
outputs: { count: "{{ count.value }}", second: "{{ second.value }}" }
nodes:
  - { id: count, COUNT }
  - { id: second, type: control.noop, input: { value: "{{ (second.value | default(count.value)) * 2 }}" } }
edges:
  - { from: count, to: count, when: count.value < 3 }
  - { from: count, to: second, when: count.value == 3 }
  - { from: second, to: second, when: second.value < 20 }"#,
            given: Ok(json!({ "count": 3, "second": 24 })),
        },
        Strange {
            name: "a cycle in the body of a list, and its last outputs",
            flow: r#"
outputs: "{{ each.items }}"
nodes:
  - id: each
    type: control.foreach
    input: { list: [2, 4] }
    body:
      nodes: [{ id: count, COUNT }]
      edges: [{ from: count, to: count, when: count.value < each.item }]"#,
            given: Ok(json!([{ "value": 2 }, { "value": 4 }])),
        },
        Strange {
            name: "a list in a cycle, with the addresses of its tasks",
            flow: r#"
outputs: "{{ each.items }}"
nodes:
  - { id: count, COUNT }
  - id: each
    type: control.foreach
    input: { list: [a] }
    body: { nodes: [{ id: tell, type: control.noop, input: { value: "{{ task.id }} {{ count.value }}" } }] }
edges:
  - count -> each
  - { from: each, to: count, when: count.value < 2 }"#,
            given: Ok(json!([{ "value": "count[1].each[0].tell 2" }])),
        },
        Strange {
            name: "an error edge that goes back handles the failure",
            flow: r#"
outputs: { tries: "{{ count.value.n }}", code: "{{ count.value.why }}" }
input: { replies: [null, null, null, done] }
nodes:
  - id: count
    type: control.noop
    input: { value: { n: "{{ (count.value.n | default(0)) + 1 }}", why: "{{ inbound.error.code | default('') }}" } }
  - { id: try, type: control.noop, input: { value: "{{ flow.input.replies[count.value.n] | required }}" } }
edges: [count -> try, "try -> count: error"]"#,
            given: Ok(json!({ "tries": 3, "code": "binding_error" })),
        },
        Strange {
            name: "too many passes fail the entry, and its error edge handles that",
            flow: r#"
maxPasses: 3
outputs: { code: "{{ caught.value }}", passes: "{{ twice.value }}" }
nodes:
  - { id: count, COUNT }
  - { id: twice, type: control.noop, input: { value: "{{ count.value * 2 }}" } }
  - { id: caught, type: control.noop, input: { value: "{{ inbound.error.code }}" } }
edges:
  - count -> twice -> count
  - "count -> count: error"
  - "count -> caught: error""#,
            given: Ok(json!({ "code": "loop_limit", "passes": null })),
        },
        Strange {
            name: "the failure of one pass too many has the input of this pass",
            flow: r#"
maxPasses: 2
outputs: { would: "{{ caught.value }}" }
nodes: [{ id: count, COUNT }, { id: caught, type: control.noop, input: { value: "{{ inbound.input.value }}" } }]
edges: [{ from: count, to: count, when: count.value > 0 }, "count -> caught: error"]"#,
            given: Ok(json!({ "would": 3 })),
        },
        Strange {
            name: "a node and the edges from it know the pass of the innermost cycle",
            flow: r#"
outputs: { passes: "{{ inner.value }}", none: "{{ last.value }}" }
nodes:
  - { id: outer, type: control.noop, input: { value: "{{ task.pass }}" } }
  - { id: inner, type: control.noop, input: { value: "{{ (inner.value | default(outer.value)) ~ task.pass }}" } }
  - { id: last, type: control.noop, input: { value: "{{ task.pass is none }}" } }
edges:
  - outer -> inner
  - { from: inner, to: inner, when: task.pass < 2 }
  - { from: inner, to: outer, when: task.pass == 2 and outer.value < 1 }
  - { from: inner, to: last, when: task.pass == 2 and outer.value == 1 }"#,
            given: Ok(json!({ "passes": "1012", "none": true })),
        },
        Strange {
            name: "passes without a node that runs end",
            flow: r#"
outputs: { first: "{{ a.error.code }}", last: "{{ d.error.code }}" }
nodes:
  - { id: a, type: control.noop, when: "(flow.input.never | required) > 1", policy: { continueOnError: true } }
  - { id: b, type: control.noop, when: "(flow.input.never | required) > 1", policy: { continueOnError: true } }
  - { id: c, type: control.noop, when: "(flow.input.never | required) > 1", policy: { continueOnError: true } }
  - { id: d, type: control.noop, when: "(flow.input.never | required) > 1", policy: { continueOnError: true } }
edges: [a -> b -> c -> d, d -> d, d -> c, d -> b, d -> a]"#,
            given: Ok(json!({ "first": "loop_limit", "last": "condition_error" })),
        },
        Strange {
            name: "passes whose conditions fail end",
            flow: r#"
outputs: { code: "{{ a.error.code }}" }
nodes:
  - { id: a, type: control.noop, when: "(flow.input.never | required) > 1", policy: { continueOnError: true } }
edges: [{ from: a, to: a, when: "(flow.input.never | required) > 1", maxPasses: 1000000 }]"#,
            given: Ok(json!({ "code": "condition_error" })),
        },
        Strange {
            name: "too many passes fail the run",
            flow: r#"
nodes: [{ id: count, COUNT }]
edges: [{ from: count, to: count, when: count.value > 0, maxPasses: 2 }]"#,
            given: Err("loop_limit"),
        },
        Strange {
            name: "a condition of an edge back that fails is a failure of the entry",
            flow: r#"
strict: true
nodes: [{ id: count, COUNT }]
edges: [{ from: count, to: count, when: count.value.missing > 0 }]"#,
            given: Err("missing_value"),
        },
        Strange {
            name: "an unhandled failure in a later pass ends the run",
            flow: r#"
input: { values: [0, 1, 2] }
nodes:
  - { id: count, COUNT }
  - { id: read, type: control.noop, input: { value: "{{ flow.input.values[count.value] | required }}" } }
edges:
  - count -> read
  - { from: read, to: count, when: count.value < 5 }"#,
            given: Err("binding_error"),
        },
        Strange {
            name: "the entry waits for all edges from outside, and names with dashes are read from the pass before",
            flow: r#"
outputs: { value: "{{ nodes['a-b'].value }}", from: "{{ join.value }}" }
nodes:
  - { id: one, type: control.noop }
  - { id: two, type: control.noop }
  - { id: join, type: control.noop, join: all, input: { value: "{{ inbounds | length }} {{ nodes['a-b'].value | default('none') }}" } }
  - { id: a-b, type: control.noop, input: { value: "({{ join.value }})" } }
edges:
  - one -> join
  - two -> join
  - join -> a-b
  - { from: a-b, to: join, when: "(join.value | length) < 10" }"#,
            given: Ok(json!({ "value": "(1 (2 none))", "from": "1 (2 none)" })),
        },
        Strange {
            name: "people answer in each pass",
            flow: r#"
outputs: { first: "{{ ask.response.content }}", asked: "{{ count.value }}" }
nodes:
  - { id: count, COUNT }
  - { id: ask, type: control.gate, input: { prompt: "Again?", choices: ["yes", "no"] } }
edges:
  - count -> ask
  - "ask -> count: yes""#,
            given: Ok(json!({ "first": "no", "asked": 3 })),
        },
    ]
}

#[test]
fn strange_cycles_end_as_the_manual_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for Strange { name, flow, given } in strange() {
        let came = run(folder.path(), flow);
        let expected = given.map_err(str::to_owned);
        if came != expected {
            wrong.push(format!("{name}: {came:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a flow whose keys of `flow` stand beside `nodes`. Returns the outputs, or the code of the error.
fn run(folder: &Path, flow: &str) -> Result<Value, String> {
    let (mut head, mut rest) = (String::new(), String::new());
    for line in flow.replace("COUNT", COUNT).trim().lines() {
        let is_head = ["maxPasses:", "outputs:", "input:", "strict:"].iter().any(|key| line.starts_with(key));
        let part = if is_head { &mut head } else { &mut rest };
        let indent = if is_head { "  " } else { "" };
        part.push_str(&format!("{indent}{line}\n"));
    }
    fs::write(folder.join("strange.yaml"), format!("flow:\n  name: strange\n{head}{rest}")).unwrap();
    let answers = [("count[0].ask", "yes"), ("count[1].ask", "yes"), ("count[2].ask", "no")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.current_dir(folder).args(["run", "strange.yaml", "--quiet", "--json", "--store", "memory:"]);
    if flow.contains("control.gate") {
        command.args(answers.iter().flat_map(|(gate, answer)| ["--answer".to_owned(), format!("{gate}={answer}")]));
    }
    let output = command.output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{flow}: {talk}"));
    match result["status"].as_str() {
        Some("succeeded") => Ok(result["outputs"].clone()),
        _ => Err(result["error"]["code"].as_str().unwrap_or(&talk).to_owned()),
    }
}

/// A gate on a cycle asks in each pass, in another process too. An answer counts for its pass only. A retry from a node behind
/// the cycle keeps the outputs of the last pass.
#[test]
fn people_answer_one_pass_and_runs_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let ask = r#"
flow: { name: ask, outputs: { drafts: "{{ done.value }}" } }
nodes:
  - { id: draft, type: control.noop, input: { value: "{{ (draft.value | default(0)) + 1 }}" } }
  - { id: approve, type: control.gate, input: { prompt: "Draft {{ draft.value }}?", choices: ["yes", "no"] } }
  - { id: done, type: control.noop, input: { value: "{{ draft.value }}" } }
edges: [draft -> approve, "approve -> draft: no", "approve -> done: yes"]
"#;
    fs::write(folder.path().join("ask.yaml"), ask).unwrap();
    let flowcell = |arguments: &str, code: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        let output = command.current_dir(folder.path()).args(arguments.split(' ')).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {text}");
        text.into_owned()
    };
    let parked = flowcell("run ask.yaml --run-id a --answer draft[0].approve=no", 3);
    assert!(parked.contains("draft[1].approve") && parked.contains("Draft 2?"), "{parked}");
    // The first pass is over, and the third has not begun.
    flowcell("answer a draft[0].approve yes", 2);
    flowcell("answer a draft[2].approve yes", 2);
    flowcell("answer a draft[1].approve no", 0);
    let ended = flowcell("runs resume a --answer draft[2].approve=yes --quiet", 0);
    assert_eq!(serde_json::from_str::<Value>(&ended).unwrap(), json!({ "drafts": 3 }));
    let shown = flowcell("runs show a", 0);
    for pass in ["draft[0]", "draft[1]", "draft[2]"] {
        assert!(shown.lines().any(|line| line.trim() == pass), "{shown}");
    }
    let again = flowcell("runs retry a --run-id b --from done --keep-answers --quiet", 0);
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), json!({ "drafts": 3 }));
    // A cycle that was left before its last pass is repeated as a whole, or not at all.
    let left = r#"
flow: { name: left, outputs: { paid: "{{ pay.value }}", by: "{{ then.value }}" } }
nodes:
  - { id: count, type: control.noop, input: { value: "{{ (count.value | default(0)) + 1 }}" } }
  - { id: pay, type: control.noop, input: { value: "order {{ count.value }}" } }
  - { id: then, type: control.noop, input: { value: "{{ pay.value }}, {{ count.value }}" } }
edges:
  - { from: count, to: count, when: count.value < 4 }
  - { from: count, to: pay, when: count.value == 2 }
  - pay -> then
"#;
    fs::write(folder.path().join("left.yaml"), left).unwrap();
    let outputs = json!({ "paid": "order 2", "by": "order 2, 2" });
    let ended = flowcell("run left.yaml --run-id left --quiet", 0);
    assert_eq!(serde_json::from_str::<Value>(&ended).unwrap(), outputs);
    for from in ["pay", "then"] {
        let refused = flowcell(&format!("runs retry left --from {from}"), 2);
        assert!(refused.contains("before its last pass") && refused.contains("begin at `count`"), "{refused}");
    }
    let again = flowcell("runs retry left --from count --quiet", 0);
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), outputs);
}
