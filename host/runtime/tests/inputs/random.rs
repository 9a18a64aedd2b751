//! Random values in expressions: `uuid()`, `random()` and `shuffle()`.

use std::collections::BTreeSet;

use flowcell_runtime::RunStatus;

use super::{Process, block};

/// A flow with random values in each place that has them. `begins` and the items fail once.
const FLOW: &str = "
flow:
  name: f
  outputs: { id: '{{ uuid() }}', all: '{{ nodes }}' }
nodes:
  - id: begins
    type: t.flaky
    input: { id: '{{ uuid() }}', text: '{{ uuid() }} {{ uuid() }}', list: ['{{ uuid() }}'] }
    policy: { retry: { maxAttempts: 2, backoffMs: 86400000, jitter: none } }
  - id: each
    type: t.each
    input: { list: [1, 2, 3], id: '{{ uuid() }}' }
    body:
      nodes:
        - id: i
          type: t.flaky
          input: { id: '{{ uuid() }}' }
          policy: { retry: { maxAttempts: 2, backoffMs: 1000, jitter: none } }
    bodyOutput: { id: '{{ uuid() }}' }
  - { id: same, type: t.noop, input: { id: '{{ begins.id }}' }, config: { id: '{{ uuid() }}' } }
edges: [{ from: begins, to: each }, { from: begins, to: same }]
";

/// Returns the texts in a value that look like a UUID.
fn uuids(text: &str) -> Vec<String> {
    let parts = text.split(|sign: char| !sign.is_ascii_hexdigit() && sign != '-');
    parts.filter(|part| part.len() == 36 && part.matches('-').count() == 4).map(str::to_owned).collect()
}

/// Returns the input and the config that each attempt of a run got, in the order of their addresses.
fn given(process: &Process, run: &str) -> Vec<((String, u32), String)> {
    let given = process.nodes.0.lock().unwrap();
    let of_run = given.iter().filter(|((of, ..), _)| of == run);
    let mut given: Vec<_> = of_run
        .map(|((_, address, attempt, resumes), (input, config))| {
            ((format!("{address}.{resumes}"), *attempt), format!("{input} {config}"))
        })
        .collect();
    given.sort();
    given
}

#[test]
fn each_place_task_pass_and_run_has_its_own_values() {
    let process = Process::new(FLOW);
    let runs = ["r", "s"].map(|run| block(process.begin(run).run()));
    assert!(runs.iter().all(|result| result.status == RunStatus::Succeeded), "{runs:?}");
    let mut values = BTreeSet::new();
    for (run, result) in ["r", "s"].iter().zip(&runs) {
        let given = given(&process, run);
        for ((address, attempt), text) in &given {
            let found = uuids(text);
            let places = if address.starts_with("begins") { 4 } else { 1 + usize::from(address.starts_with("same")) };
            assert_eq!(found.len(), places, "{address}: {text}");
            // Every attempt of a task has the same values.
            let first = given.iter().find(|((other, _), _)| other == address).unwrap();
            assert_eq!(&first.1, text, "{address} {attempt}");
            values.extend(found);
        }
        assert_eq!(given.iter().filter(|((_, attempt), _)| *attempt == 2).count(), 4, "{given:?}");
        let outputs = result.outputs.to_text();
        let of_output = uuids(&outputs);
        values.extend(of_output);
        let same = |node: &str| result.outputs.get("all").and_then(|all| all.get(node)?.get("id").cloned()).unwrap();
        assert_eq!(same("begins"), same("same"));
    }
    // In each run: four of `begins`, one of the config of `same`, one of `each`, three of its items and three of its
    // passes, and that of the output. The inputs that the outputs repeat are the same values.
    assert_eq!(values.len(), 2 * (4 + 1 + 1 + 3 + 3 + 1), "{values:?}");
    for run in ["r", "s"] {
        assert!(process.shown(&*process.journal, run).iter().all(|line| !line.ends_with("Differs")));
    }
}

/// A process that goes on with a run gives a task the values that it had in the earlier process.
#[test]
fn a_resumed_run_has_the_values_that_it_had() {
    let hands_on = "type: t.noop, input: { id: '{{ begins.id }}' }, config: { id: '{{ uuid() }}' }";
    let asks = "type: t.ask, input: { id: '{{ begins.id }}', own: '{{ uuid() }}' }";
    let flow = FLOW.replace(hands_on, asks).replace("type: t.flaky", "type: t.noop");
    let process = Process { stands: true, ..Process::new(&flow) };
    assert_eq!(process.run("r"), RunStatus::Parked);
    let before = given(&process, "r");
    assert_eq!(process.resume("r", "same"), RunStatus::Succeeded);
    let text = |given: &[((String, u32), String)], of: &str| {
        given.iter().find(|((address, _), _)| address == of).map(|(_, text)| text.clone())
    };
    let (first, again) = (text(&before, "same.0"), text(&given(&process, "r"), "same.1"));
    assert!(first.is_some() && first == again, "{first:?} {again:?}");
    assert_eq!(uuids(&first.unwrap()).len(), 2);
    assert!(process.shown(&*process.journal, "r").iter().all(|line| !line.ends_with("Differs")));
}

/// Two edges with the same condition toss two coins, and a condition has another one than the input.
#[test]
fn each_condition_decides_by_its_own_values() {
    let nodes: Vec<String> = (0..40).map(|n| format!("  - {{ id: n{n}, type: t.noop, input: {{}} }}")).collect();
    let edges: Vec<String> = (0..40).map(|n| format!("{{ from: a, to: n{n}, when: 'random() < 0.5' }}")).collect();
    let flow = format!(
        "flow: {{ name: f }}\nnodes:\n  - {{ id: a, type: t.noop, input: {{}} }}\n{}\nedges: [{}]\n",
        nodes.join("\n"),
        edges.join(", ")
    );
    let process = Process::new(&flow);
    assert_eq!((process.run("r"), process.run("s")), (RunStatus::Succeeded, RunStatus::Succeeded));
    let ran =
        |run: &str| -> BTreeSet<String> { given(&process, run).into_iter().map(|((address, _), _)| address).collect() };
    // The probability of fewer than five nodes, or of more than 35, is below one in 10 million.
    assert!((5..=36).contains(&ran("r").len()) && (5..=36).contains(&ran("s").len()), "{:?}", ran("r"));
    assert_ne!(ran("r"), ran("s"));
    // A person who looks at the run later sees the same decisions, since they are facts.
    assert_eq!(process.shown(&*process.journal, "r").len(), ran("r").len());
}

/// A node may have the name of a function: the call is the function, and the name without a call is the node.
#[test]
fn a_node_may_have_the_name_of_a_function() {
    let process = Process::new(
        "
flow: { name: f }
nodes:
  - { id: random, type: t.noop, input: { id: '{{ uuid() }}' } }
  - { id: b, type: t.noop, input: { r: '{{ random(6) < 6 }} {{ random.id }}' } }
edges: [{ from: random, to: b }]
",
    );
    assert_eq!(process.run("r"), RunStatus::Succeeded);
    let given = given(&process, "r");
    let id = &uuids(&given[1].1)[0];
    assert!(given[0].1.starts_with(&format!(r#"{{"r":"true {id}"}}"#)), "{given:?}");
}

/// What was undone is done anew with other values. A node that was not undone keeps its value, since its calls have the same
/// keys.
#[test]
fn a_task_has_other_values_after_its_undo() {
    let process = Process::new(
        "
flow: { name: f }
nodes:
  - id: s
    type: t.scope
    input: { list: [1] }
    policy: { retry: { maxAttempts: 2, backoffMs: 0, on: any } }
    body: [undone, release, kept, bad]
  - { id: undone, type: t.noop, undo: release, input: { id: '{{ uuid() }}' } }
  - { id: release, type: t.noop, input: { id: '{{ undo.input.id }}', own: '{{ uuid() }}' } }
  - { id: kept, type: t.noop, input: { id: '{{ uuid() }}' } }
  - { id: bad, type: t.fail, input: {} }
edges: [{ from: undone, to: bad }, { from: kept, to: bad }]
",
    );
    let result = block(process.begin("r").run());
    assert_eq!(result.status, RunStatus::Failed);
    let outputs = |node: &str| -> Vec<Vec<String>> {
        let of_node = |event: &&flowcell_runtime::Event| {
            event.kind == "task:complete" && event.data.get("nodeId").and_then(|id| id.as_str()) == Some(node)
        };
        let output = |event: &flowcell_runtime::Event| uuids(&event.data.to_text());
        result.events.iter().filter(of_node).map(output).collect()
    };
    let (undone, release, kept) = (outputs("undone"), outputs("release"), outputs("kept"));
    assert_eq!((undone.len(), release.len(), kept.len()), (2, 2, 2));
    assert_ne!(undone[0], undone[1]);
    assert_eq!(kept[0], kept[1]);
    for attempt in 0..2 {
        assert_eq!(release[attempt][0], undone[attempt][0], "the undo gets the recorded value");
    }
    assert_ne!(release[0][1], release[1][1]);
}
