//! Facts about the run in expressions: `run`, `task`, `tenant`, `now`, `flow.name` and `flow.version`.

use flowcell_contract::Json;
use flowcell_runtime::{FlowRunner, Pinned, RunOptions, RunStatus, ports::Pin};

use super::{Changed, Process, WHOLE, block};

/// A flow in which each node sees the facts. `begins` fails once, so that its second attempt is at a later time.
const FLOW: &str = "
flow:
  name: f
  outputs: { at: '{{ now }}', run: '{{ run.id }}', sees: '{{ nodes.after }}' }
nodes:
  - id: begins
    type: t.flaky
    input: { now: '{{ now }}', run: '{{ run }}', task: '{{ task.id }}', of: '{{ tenant }} {{ flow.name }} {{ flow.version }}', flow: '{{ flow }}' }
    policy: { retry: { maxAttempts: 2, backoffMs: 86400000, maxBackoffMs: 86400000, jitter: none } }
  - id: each
    type: t.each
    when: \"now > '1970-01-02' and task.id == 'each'\"
    input: { list: [1, 2] }
    body: { nodes: [{ id: i, type: t.noop, input: { task: '{{ task.id }}' } }] }
  - { id: after, type: t.noop, input: { now: '{{ now }}', started: '{{ run.started }}' } }
  - { id: never, type: t.noop, when: \"now < '1970-01-02'\", input: {} }
edges: [{ from: begins, to: each }, { from: each, to: after }, { from: begins, to: never }]
";

fn begin(process: &Process, run: &str) -> FlowRunner {
    let flow = Pinned { graph: process.flow.clone(), pin: Pin("f".into()) };
    let labels = [("team".to_owned(), "billing".to_owned())].into();
    let options = RunOptions { run_id: Some(run.into()), version: Some(3), labels, ..RunOptions::default() };
    FlowRunner::new(flow, process.world(), options).unwrap()
}

/// Returns the input that an attempt got.
fn given(process: &Process, address: &str, attempt: u32) -> Json {
    let of = ("r".to_owned(), address.to_owned(), attempt, 0);
    Json::parse(&process.nodes.0.lock().unwrap()[&of].0).unwrap()
}

#[test]
fn all_attempts_of_a_task_see_the_same_facts() {
    let process = Process::new(FLOW);
    let result = block(begin(&process, "r").run());
    assert_eq!(result.status, RunStatus::Succeeded, "{result:?}");
    let first = r#"{"now":"1970-01-01T00:00:00.001Z","run":{"id":"r","started":"1970-01-01T00:00:00.001Z","labels":{"team":"billing"}},"task":"begins","of":"local f 3","flow":{"input":{},"name":"f","version":3}}"#;
    assert_eq!(given(&process, "begins", 1).to_text(), first);
    assert_eq!(given(&process, "begins", 2).to_text(), first, "the time is that of the task, not of the attempt");
    assert_eq!(given(&process, "each[1].i", 1).to_text(), r#"{"task":"each[1].i"}"#);
    // Waits move the clock of the test, also those for time limits.
    let after = given(&process, "after", 1);
    let times = ["now", "started"].map(|name| after.get(name).and_then(Json::as_str).unwrap().to_owned());
    assert!(times[0].as_str() > "1970-01-02T" && times[1] == "1970-01-01T00:00:00.001Z", "{times:?}");
    let output = |name: &str| result.outputs.get(name).cloned();
    assert_eq!((output("run"), output("sees")), (Some("r".into()), Some(after)));
    assert!(output("at").unwrap().as_str().unwrap() >= times[0].as_str(), "{result:?}");
    assert!(process.nodes.0.lock().unwrap().keys().all(|(_, address, ..)| address != "never"));
    // What is rendered again from the journal is the same.
    assert!(process.shown(&*process.journal, "r").iter().all(|line| !line.ends_with("Differs")));
}

#[test]
fn a_pass_sees_the_time_at_which_its_owner_went_on() {
    let process = Process::new(
        "
flow: { name: f }
nodes:
  - id: l
    type: t.loop
    input: { times: 2, at: '{{ now }}', while: 'l.last != 7' }
    body: { nodes: [{ id: i, type: t.flaky, input: {}, policy: { retry: { maxAttempts: 2, backoffMs: 1000, jitter: none } } }] }
edges: []
",
    );
    assert_eq!(process.run("r"), RunStatus::Succeeded);
    let nodes = process.nodes.0.lock().unwrap().clone();
    let at = |resumes: u32| Json::parse(&nodes[&("r".to_owned(), "l".to_owned(), 1, resumes)].0).unwrap();
    let times = [0, 1, 2].map(|resumes| at(resumes).get("at").cloned().unwrap().to_text());
    assert!(times[0] == "\"1970-01-01T00:00:00.001Z\"" && times.is_sorted() && times[1] != times[2], "{times:?}");
    assert!(process.shown(&*process.journal, "r").iter().all(|line| !line.ends_with("Differs")));
}

#[test]
fn a_run_of_an_older_version_has_its_times_only() {
    let process = Process::new(FLOW);
    block(begin(&process, "r").run());
    let older = Changed::of(&*process.journal, "r", |facts| {
        let mut facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
        for fact in facts.as_array_mut().unwrap() {
            let started = fact.get_mut("RunStarted").and_then(serde_json::Value::as_object_mut);
            started.map(|started| started.remove("about").expect("the run knows about itself"));
        }
        facts.to_string()
    });
    let shown = serde_json::to_value(process.inputs(&older, "r", "begins", WHOLE)).unwrap();
    let run = serde_json::json!({ "id": null, "started": "1970-01-01T00:00:00.001Z", "labels": {} });
    let input = serde_json::json!({
        "now": "1970-01-01T00:00:00.001Z", "run": run, "task": "begins", "of": "  ", "flow": { "input": {} },
    });
    assert_eq!(shown["attempts"][0]["input"], input);
}

#[test]
fn a_field_for_facts_gets_them() {
    let process = Process::new(
        "
flow: { name: f }
nodes:
  - id: run
    type: t.each
    input: { list: [1] }
    body: { nodes: [{ id: i, type: t.told, input: { run: '{{ run.index }}' }, undo: back }, { id: back, type: t.told }] }
  - { id: fails, type: t.fail }
edges: [{ from: run, to: fails }]
",
    );
    let result = block(begin(&process, "r").run());
    assert_eq!(result.status, RunStatus::Failed, "{result:?}");
    let facts = |task: &str| {
        format!(
            r#""of":{{"run":{{"id":"r","started":"1970-01-01T00:00:00.001Z","labels":{{"team":"billing"}}}},"flow":{{"name":"f","version":3}},"task":{{"id":"{task}","pass":null}},"tenant":"local"}}}}"#
        )
    };
    assert_eq!(given(&process, "run[0].i", 1).to_text(), format!(r#"{{"run":0,{}"#, facts("run[0].i")));
    assert_eq!(given(&process, "run[0].back", 1).to_text(), format!("{{{}", facts("run[0].back")));
    // What is rendered again from the journal is the same.
    assert!(process.shown(&*process.journal, "r").iter().all(|line| !line.ends_with("Differs")));
}
