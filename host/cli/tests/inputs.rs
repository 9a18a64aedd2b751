//! Tests the inputs of tasks that the program shows: of every node type, at every place of a node, and without secrets.

#![cfg(unix)]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use crate::kit::{self, flowcell, output_of, stderr, stdout};

/// Returns one node of each type: its type, its fields, and the expected input of its component. `null` means that a
/// field reaches the component unevaluated, so that only the digest is checked.
fn every_type() -> Vec<(&'static str, &'static str, Value)> {
    let agent = "input: { prompt: 'Say {{ flow.input.t }}' }, grants: { model: ['scripted/*'] }";
    let prompt = || json!({ "prompt": "Say text" });
    vec![
        ("agent.classify", agent, prompt()),
        ("agent.coder", agent, prompt()),
        ("agent.plan", agent, prompt()),
        ("agent.reviewer", agent, prompt()),
        ("agent.run", agent, prompt()),
        ("agent.summarize", agent, prompt()),
        ("control.fail", "input: { message: 'no {{ flow.input.t }}' }", json!({ "message": "no text" })),
        (
            "control.foreach",
            "input: { list: '{{ flow.input.list }}' }, body: { nodes: [{ id: each, type: control.noop, input: { value: '{{ control_foreach.item }}' } }] }",
            json!({ "list": [1, 2] }),
        ),
        ("control.gate", "input: { prompt: 'Is it {{ flow.input.t }}?' }", json!({ "prompt": "Is it text?" })),
        ("control.if", "input: { condition: 'flow.input.n == 3' }", Value::Null),
        (
            "control.loop",
            "input: { while: 'control_loop.iteration < flow.input.n' }, body: { nodes: [{ id: pass, type: control.noop, input: { value: '{{ control_loop.iteration }}' } }] }",
            Value::Null,
        ),
        ("control.merge", "input: { mode: all }", json!({ "mode": "all" })),
        ("control.noop", "input: { value: '{{ flow.input }}' }", json!({ "value": input() })),
        (
            "control.respond",
            "input: { status: 201, body: '{{ flow.input.o }}' }",
            json!({ "status": 201, "body": { "a": 0.1 } }),
        ),
        ("control.scope", "body: { nodes: [{ id: within, type: control.noop }] }", json!({})),
        (
            "control.subflow",
            "input: { name: child, input: { of: '{{ flow.input.n }}' } }",
            json!({ "name": "child", "input": { "of": 3 } }),
        ),
        (
            "control.switch",
            "input: { value: '{{ flow.input.n }}', cases: [{ route: three, when: 'value == 3' }] }",
            Value::Null,
        ),
        ("control.wait", "input: { ms: '{{ flow.input.n }}' }", json!({ "ms": 3 })),
        ("data.filter", "input: { list: '{{ flow.input.list }}', when: 'item > 1' }", Value::Null),
        ("data.flatten", "input: { list: ['{{ flow.input.list }}', 3] }", json!({ "list": [[1, 2], 3] })),
        ("data.group", "input: { list: '{{ flow.input.list }}', by: item }", Value::Null),
        ("data.json.parse", "input: { text: '[{{ flow.input.n }}]' }", json!({ "text": "[3]" })),
        ("data.json.stringify", "input: { value: '{{ flow.input.o }}' }", json!({ "value": { "a": 0.1 } })),
        ("data.map", "input: { list: '{{ flow.input.list }}', template: '{{ item }}' }", Value::Null),
        (
            "data.merge",
            "input: { objects: ['{{ flow.input.o }}', { b: 1 }] }",
            json!({ "objects": [{ "a": 0.1 }, { "b": 1 }] }),
        ),
        ("data.object", "input: { a: '{{ flow.input.n }}' }", json!({ "a": 3 })),
        (
            "data.pick",
            "input: { object: '{{ flow.input.o }}', keys: [a] }",
            json!({ "object": { "a": 0.1 }, "keys": ["a"] }),
        ),
        (
            "data.query",
            "input: { input: '{{ flow.input.o }}', query: '.a + $n', vars: { n: '{{ flow.input.n }}' } }",
            json!({ "input": { "a": 0.1 }, "query": ".a + $n", "vars": { "n": 3 } }),
        ),
        ("data.reduce", "input: { list: '{{ flow.input.list }}', expr: 'acc + item', initial: 0 }", Value::Null),
        (
            "data.set",
            "input: { object: '{{ flow.input.o }}', path: b, value: '{{ flow.input.n }}' }",
            json!({ "object": { "a": 0.1 }, "path": "b", "value": 3 }),
        ),
        ("data.sort", "input: { list: '{{ flow.input.list }}' }", json!({ "list": [1, 2] })),
        ("data.template", "input: { template: 'It is {{ flow.input.t }}' }", Value::Null),
        ("data.unique", "input: { list: '{{ flow.input.list }}' }", json!({ "list": [1, 2] })),
        (
            "data.validate",
            "input: { value: '{{ flow.input.n }}', schema: { type: integer } }",
            json!({ "value": 3, "schema": { "type": "integer" } }),
        ),
        ("file.content", "input: { file: '{{ flow.input.t }}' }", json!({ "file": "text" })),
        (
            "file.list",
            "input: { path: '{{ flow.input.t }}' }, grants: { files: { read: ['**'] } }",
            json!({ "path": "text" }),
        ),
        (
            "file.read",
            "input: { path: '{{ flow.input.t }}' }, grants: { files: { read: ['**'] } }",
            json!({ "path": "text" }),
        ),
        (
            "file.write",
            "input: { path: '{{ flow.input.t }}', content: '{{ flow.input.n }}!' }, grants: { files: { write: ['**'] } }",
            json!({ "path": "text", "content": "3!" }),
        ),
        (
            "http.request",
            "input: { url: 'http://127.0.0.1:1/{{ flow.input.t }}', query: { n: '{{ flow.input.n }}' } }, grants: { http: ['http://127.0.0.1:1'] }",
            json!({ "url": "http://127.0.0.1:1/text", "query": { "n": 3 } }),
        ),
        (
            "report.fetch_dummy_data",
            "input: { start_date: '{{ flow.input.t }}', end_date: x }",
            json!({ "start_date": "text", "end_date": "x" }),
        ),
        ("report.summarize_text", "input: { text: '{{ flow.input.t }}' }", json!({ "text": "text" })),
        ("script.inspect", "input: { source: '{{ flow.input.t }}' }", json!({ "source": "text" })),
        ("script.run", "input: { source: 'export async function run() { return 1 }' }", Value::Null),
        ("system.cache.get", "input: { key: '{{ flow.input.t }}' }", json!({ "key": "text" })),
        (
            "system.cache.set",
            "input: { key: '{{ flow.input.t }}', value: '{{ flow.input.n }}' }",
            json!({ "key": "text", "value": 3 }),
        ),
        (
            "system.log",
            "input: { level: info, message: '{{ flow.input.t }}' }",
            json!({ "level": "info", "message": "text" }),
        ),
        (
            "system.metrics",
            "input: { name: parcels, value: '{{ flow.input.n }}' }",
            json!({ "name": "parcels", "value": 3 }),
        ),
        ("system.state.get", "input: { key: '{{ flow.input.t }}' }", json!({ "key": "text" })),
        (
            "system.state.set",
            "input: { key: '{{ flow.input.t }}', value: '{{ flow.input.list }}' }",
            json!({ "key": "text", "value": [1, 2] }),
        ),
    ]
}

fn input() -> Value {
    json!({ "t": "text", "n": 3, "list": [1, 2], "o": { "a": 0.1 } })
}

fn shown(folder: &Path, run: &str, task: &str) -> Value {
    let output = output_of(folder, &["runs", "show", run, task, "--json"]);
    assert!(output.status.success(), "{task}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn exported(folder: &Path, run: &str) -> Value {
    let output = output_of(folder, &["runs", "export", run]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

const CHILD: &str = "
flow: { name: child, input: { of: 0 } }
nodes: [{ id: inner, type: control.noop, input: { value: '{{ flow.input.of * 2 }}' } }]
";

#[test]
fn the_input_of_every_node_type_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types: Vec<Value> = serde_json::from_str(&stdout(&output_of(folder, &["nodes", "--json"]))).unwrap();
    let types: BTreeSet<_> = types.iter().map(|node| node["type"].as_str().unwrap().to_owned()).collect();
    let table = every_type();
    let known: BTreeSet<_> = table.iter().map(|(node, ..)| (*node).to_owned()).collect();
    assert_eq!(known, types, "each node type that ships has a row");
    let node = |(node, rest, _): &(&str, &str, Value)| {
        let id = node.replace('.', "_");
        format!("  - {{ id: {id}, type: {node}, {rest}, policy: {{ continueOnError: true }} }}\n")
    };
    let nodes: String = table.iter().map(node).collect();
    let flow = format!("flow: {{ name: every, input: {}, outputs: {{}} }}\nnodes:\n{nodes}", input());
    fs::write(folder.join("every.yaml"), flow).unwrap();
    fs::write(folder.join("child.yaml"), CHILD).unwrap();
    fs::create_dir(folder.join("files")).unwrap();
    let more = ["--files", "files", "--allow-private", "127.0.0.1:1"];
    let run = output_of(folder, &[&["run", "every.yaml", "--run-id", "r", "--quiet"][..], &more].concat());
    assert_eq!(run.status.code(), Some(3), "it waits at its gate: {}", stderr(&run));
    let parked = shown(folder, "r", "control_gate");
    assert_eq!((&parked["attempts"][0]["status"], parked["attempts"].as_array().unwrap().len()), (&"paused".into(), 1));
    // Another process does the rest.
    assert!(output_of(folder, &["answer", "r", "control_gate", "yes"]).status.success());
    let run = output_of(folder, &[&["runs", "resume", "r", "--quiet"][..], &more].concat());
    assert!(run.status.success(), "{}", stderr(&run));
    for (node, _, expected) in &table {
        let page = shown(folder, "r", &node.replace('.', "_"));
        assert_eq!(page["nodeType"], **node);
        let attempts = page["attempts"].as_array().unwrap();
        assert!(!attempts.is_empty(), "{node}");
        for attempt in attempts {
            assert_eq!(attempt["inputDigest"], "matches", "{node}: {attempt}");
        }
        if !expected.is_null() {
            assert_eq!(attempts[0]["input"], *expected, "{node}");
        }
    }
    // Tasks in bodies and in a called flow.
    assert_eq!(shown(folder, "r", "control_foreach[1].each")["attempts"][0]["input"], json!({ "value": 2 }));
    assert_eq!(shown(folder, "r", "control_loop[2].pass")["attempts"][0]["input"], json!({ "value": 2 }));
    assert_eq!(shown(folder, "r", "control_loop")["attempts"].as_array().unwrap().len(), 4);
    let below = shown(folder, "r", "control_subflow/inner");
    assert_eq!(
        (&below["attempts"][0]["input"], &below["runId"]),
        (&json!({ "value": 6 }), &"r.control_subflow.1".into())
    );
    // The agent's request, and the query of the HTTP request.
    let agent = shown(folder, "r", "agent_summarize");
    let sent = &agent["attempts"][0]["calls"][0]["preview"];
    assert!(sent["messages"][0]["content"].to_string().contains("Say text"), "{agent}");
    assert!(sent["system"].as_str().is_some_and(|system| !system.is_empty()), "{agent}");
    let request = shown(folder, "r", "http_request")["attempts"][0].clone();
    assert_eq!(request["calls"][0]["preview"]["query"], "n=3");
    // No server answers the request, and the model of the tests answers the agent.
    assert!(request["error"]["code"].is_string() && request["calls"][0]["error"].is_object(), "{request}");
    assert!(request.get("output").is_none() && request["calls"][0].get("reply").is_none(), "{request}");
    assert!(request["ended"].as_u64() >= request["began"].as_u64(), "{request}");
    let (call, output) = (&agent["attempts"][0]["calls"][0], &agent["attempts"][0]["output"]);
    assert!(call["reply"].is_object() || call["replyCut"]["bytes"].as_u64() > Some(4 << 10), "{agent}");
    assert!(output.is_object() && agent["attempts"][0].get("error").is_none(), "{agent}");
    assert!(exported(folder, "r")["inputs"].as_array().unwrap().iter().all(|input| input.get("output").is_none()));
    // The exported document has all inputs.
    let document = exported(folder, "r");
    let inputs = document["inputs"].as_array().unwrap();
    assert!(inputs.iter().all(|input| input["inputDigest"] == "matches"), "{inputs:?}");
    let tasks: BTreeSet<_> = inputs.iter().map(|input| input["task"].as_str().unwrap()).collect();
    assert!(table.iter().all(|(node, ..)| tasks.contains(&*node.replace('.', "_"))), "{tasks:?}");
    assert_eq!(document["children"][0]["inputs"][0]["input"], json!({ "value": 6 }));
}

#[test]
fn people_are_shown_the_input_with_long_values_cut_and_where_else_a_node_ran() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flow = "
flow: { name: long, input: { text: '', list: [] } }
nodes:
  - { id: all, type: control.noop, input: { value: { text: '{{ flow.input.text }}', list: '{{ flow.input.list }}' } } }
  - { id: never, type: control.noop, when: 'false' }
  - id: each
    type: control.foreach
    input: { list: [1, 2] }
    body: { nodes: [{ id: one, type: control.noop }, { id: odd, type: control.noop, when: 'each.item == 1' }] }
";
    fs::write(folder.join("long.yaml"), flow).unwrap();
    let list: Vec<u32> = (0..5_000).collect();
    let text = format!("\u{1b}[2J{}", "x".repeat(10_000));
    fs::write(folder.join("in.json"), json!({ "text": text, "list": list }).to_string()).unwrap();
    let run = output_of(folder, &["run", "long.yaml", "--run-id", "r", "--quiet", "--input-file", "in.json"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let behind = output_of(folder, &["runs", "show", "r", "all", "--from", "7"]);
    assert_eq!(behind.status.code(), Some(2), "{}", stderr(&behind));
    assert!(stderr(&behind).contains("attempt 7 does not exist"), "{}", stderr(&behind));
    let output = output_of(folder, &["runs", "show", "r", "all"]);
    let seen = stdout(&output);
    assert!(seen.starts_with("all  control.noop\n  attempt 1  succeeded  input matches its digest\n"), "{seen}");
    assert!(seen.contains("⟨cut: 10004 bytes⟩") && seen.contains("⟨cut: shows 30 of 5000 items⟩"), "{seen}");
    assert!(seen.contains("flowcell runs show r 'all' --json") && seen.len() < 4_000, "{seen}");
    assert!(!seen.contains('\u{1b}'), "{seen}");
    assert_eq!(shown(folder, "r", "all")["attempts"][0]["input"]["value"], json!({ "text": text, "list": list }));
    let tasks = "`flowcell runs show r` shows the tasks of the run";
    for (task, problem, why) in [
        ("one", "has begun no attempt at `one`", "the addresses of the node include each[0].one, each[1].one"),
        ("each[2].one", "has begun no attempt at `each[2].one`", "each[0].one, each[1].one"),
        ("nothing", "has no node at `nothing`", tasks),
        ("all/inner", "has begun no attempt at `all/inner`", tasks),
        ("never", "the run `r` skipped `never`, which therefore has no input", tasks),
        ("each[1].odd", "the run `r` skipped `each[1].odd`", "the addresses of the node include each[0].odd"),
    ] {
        let output = output_of(folder, &["runs", "show", "r", task]);
        assert_eq!(output.status.code(), Some(2), "{task}");
        assert!(stderr(&output).contains(problem) && stderr(&output).contains(why), "{}", stderr(&output));
    }
}

#[test]
fn a_secret_is_in_no_input() {
    const CANARY: &str = "canary-5f2a-canary";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let flow = "
flow: { name: secret }
nodes:
  - id: call
    type: http.request
    input: { method: POST, url: 'http://127.0.0.1:1/pay?order=7', json: { item: 7 } }
    grants: { http: ['http://127.0.0.1:1'], secrets: [{ name: api-token }] }
    policy: { continueOnError: true }
";
    fs::write(folder.join("secret.yaml"), flow).unwrap();
    let set = ["secret", "set", "api-token", "--for", "http://127.0.0.1:1", "--from-env", "CANARY"];
    let output = flowcell(folder).args(set).env("CANARY", CANARY).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let run = output_of(folder, &["run", "secret.yaml", "--run-id", "r", "--quiet", "--allow-private", "127.0.0.1:1"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let shown = shown(folder, "r", "call");
    let call = &shown["attempts"][0]["calls"][0];
    assert_eq!((&call["about"]["secrets"], &call["preview"]["query"]), (&json!(["api-token"]), &"order=7".into()));
    assert_eq!(call["preview"]["body"], r#"{"item":7}"#);
    for everything in [
        shown.to_string(),
        exported(folder, "r").to_string(),
        stdout(&output_of(folder, &["runs", "show", "r", "call"])),
    ] {
        assert!(!everything.contains(CANARY), "{everything}");
    }
    // Events contain neither the query nor the body of a request.
    let told = kit::events(folder, "r").into_iter().find(|event| event["type"] == "call:start").unwrap();
    assert!(!told.to_string().contains("order=7") && !told.to_string().contains("preview"), "{told}");
}

const EVALUATED: &str = "
flow: { name: sums, input: { n: 2 }, outputs: { all: '{{ each.items }}' } }
nodes:
  - { id: first, type: control.noop, input: { value: '{{ flow.input.n * 10 }}' } }
  - { id: each, type: control.foreach, input: { list: [1, 2]}, body: [one] }
  - { id: one, type: control.noop, input: { value: '{{ each.item + first.value }}' } }
  - { id: ask, type: control.gate, input: { prompt: 'Go on?', choices: [yes] } }
  - { id: never, type: control.noop, when: first.value > 100 }
edges: [{ from: first, to: each }, { from: first, to: never }, { from: each, to: ask }]
";

/// The store has an owner meanwhile, and keeps it.
#[test]
fn an_expression_is_evaluated_with_the_values_of_a_task() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sums.yaml"), EVALUATED).unwrap();
    let parked = output_of(folder.path(), &["run", "sums.yaml", "--run-id", "r", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    let _owner = kit::Owner::start(folder.path(), &["drive"], "driving the runs");
    let table = [
        (&["first.value + 1", "--run", "r", "--task", "each"][..], "21"),
        (
            &["{{ each.item }} of {{ each.index }}: {{ first.value }}", "--run", "r", "--task", "each[1].one"],
            "\"2 of 1: 20\"",
        ),
        (&["first.value > 100", "--run", "r", "--task", "never"], "false"),
        (
            &["inbound.items", "--run", "r", "--task", "ask"],
            "[\n  {\n    \"value\": 21\n  },\n  {\n    \"value\": 22\n  }\n]",
        ),
        (&["never.skipped", "--run", "r"], "true"),
        (&["flow.input.n", "--flow", "sums.yaml"], "2"),
        (&["flow.input", "--flow", "sums.yaml", "--input", r#"{"n": 3}"#], "{\n  \"n\": 3\n}"),
        (&["flow.input.a | upper", "--input", r#"{"a": "x"}"#], "\"X\""),
        (&["1 + 1"], "2"),
    ];
    for (arguments, value) in table {
        let output = output_of(folder.path(), &[&["eval"], arguments].concat());
        assert_eq!(stdout(&output).trim_end(), value, "{arguments:?}: {}", stderr(&output));
    }
    let refused = [
        (&["first.value", "--flow", "sums.yaml"][..], "has an output only in a run"),
        (&["one.value", "--run", "r", "--task", "ask"], "expression:1:1"),
        (&["fisrt.value", "--run", "r", "--task", "ask"], "did you mean `first`?"),
        (&["1", "--run", "r", "--task", "none"], "has no node at `none`"),
        (&["1", "--run", "none"], "no run `none`"),
        (&["1", "--task", "ask"], "--run"),
        (&["1", "--input", "[1]"], "not a JSON object"),
        (&["1", "--input", "@none.json"], "cannot read the input"),
        (&["1", "--flow", "none.yaml"], "none.yaml"),
        (&["each.item - 'x'", "--run", "r", "--task", "each[0].one"], "the expression"),
    ];
    for (arguments, why) in refused {
        let output = output_of(folder.path(), &[&["eval"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why) && output.stdout.is_empty(), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn expressions_are_read_from_lines() {
    use std::{io::Write, process::Stdio};
    let folder = tempfile::tempdir().unwrap();
    let mut command = flowcell(folder.path());
    command
        .args(["eval", "--input", r#"{"n": 4}"#])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"flow.input.n\n\n{{ bad\nflow.input.n + 1\r\n'no end'").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("4\n5\n\"no end\"\n", Some(2)),
        "{}",
        stderr(&output)
    );
    let mut command = flowcell(folder.path());
    command.args(["eval"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may refuse the line before it has read it.
    _ = child.stdin.take().unwrap().write_all("x".repeat(200_000).as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("use at most"), "{}", stderr(&output));
}

/// An unreadable store ends the command with the exit code of the store, whatever standard input has.
#[test]
fn an_unreadable_store_ends_the_evaluation_of_lines() {
    use std::{io::Write, process::Stdio};
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sums.yaml"), EVALUATED).unwrap();
    output_of(folder.path(), &["run", "sums.yaml", "--run-id", "r", "--quiet"]);
    let database = rusqlite::Connection::open(folder.path().join(".flowcell/flowcell.db")).unwrap();
    assert_eq!(database.execute("UPDATE runs SET record = '{' WHERE run = 'r'", []).unwrap(), 1);
    drop(database);
    for lines in ["flow.input.n\nflow.input.n\n", "{{ bad\nflow.input.n\n"] {
        let mut command = flowcell(folder.path());
        command.args(["eval", "--run", "r"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
        let output = child.wait_with_output().unwrap();
        let shown = stderr(&output);
        assert_eq!((output.status.code(), shown.matches("cannot read").count()), (Some(74), 1), "{lines}: {shown}");
    }
}
