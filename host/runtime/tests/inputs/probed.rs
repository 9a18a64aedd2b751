//! Expressions with the values of a recorded run: they equal what the components got.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Catalog, Digest, Json, Manifest, RunId, Tenant};
use flowcell_flow::{NoContext, Probe, Source, Start};
use flowcell_runtime::{
    RunGraphs, RunStatus,
    fact::AboutRun,
    inputs::{Moment, ProbedValues},
};

use super::{MANIFEST, Process, graph};

/// Nodes at every kind of place. The member `v` of each input is the expression that the test evaluates again. The flow
/// fails at its end, so that `pay` is undone.
const FLOW: &str = "
flow: { name: f, input: { n: 7, go: true }, outputs: { o: '{{ nodes }}' } }
nodes:
  - { id: first, type: t.noop, input: { v: '{{ flow.input.n / 3 }} at {{ now }} of {{ run.id }} in {{ task.id }}' } }
  - { id: flaky, type: t.flaky, input: { v: '{{ inbound.v }}, {{ first.v }}' }, policy: { retry: { maxAttempts: 3, backoffMs: 1000 } } }
  - { id: each, type: t.each, input: { list: [1, 2], v: '{{ inbounds }}' }, body: [item, inner] }
  - { id: item, type: t.noop, input: { v: '{{ each.item }} {{ each.index }} {{ first.v }}' } }
  - { id: inner, type: t.noop, input: { v: '{{ item.v }} {{ task.id }}' } }
  - { id: l, type: t.loop, input: { times: 2, while: l.last, v: '{{ each }}' }, body: [pass] }
  - { id: pass, type: t.noop, input: { v: '{{ l.iteration }} {{ l.last }}' } }
  - { id: never, type: t.noop, when: flow.input.n == 8, input: { v: '{{ first.v }}' } }
  - { id: again, type: t.noop, input: { v: '{{ again.v }} {{ flow.input.n }}' } }
  - { id: pay, type: t.noop, input: { v: '{{ again.v }}' }, undo: back }
  - { id: back, type: t.noop, input: { v: '{{ undo.output }} {{ undo.task }} {{ first.v }}' } }
  - { id: end, type: t.fail, input: { v: '{{ pay.v }}' } }
edges:
  - { from: first, to: flaky }
  - { from: flaky, to: each }
  - { from: item, to: inner }
  - { from: each, to: l }
  - { from: flaky, to: never }
  - { from: l, to: again }
  - { from: again, to: again, when: again.v | length < 8, maxPasses: 9 }
  - { from: again, to: pay }
  - { from: pay, to: end }
";

fn graphs(process: &Process, node: Option<&str>, expression: &str) -> RunGraphs {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let source = Source { name: "f.yaml".into(), text: FLOW.into() };
    let probe = Probe { node: node.map(str::to_owned), expression: expression.into() };
    let probed = flowcell_flow::probe(&source, &catalog, &NoContext, &Start::default(), &probe).unwrap();
    let record = process.journal.find(&Tenant::local(), &"r".into()).unwrap().unwrap();
    let graph = Arc::new(probed.graph);
    RunGraphs::load(&record, |_| Ok(graph.clone())).unwrap()
}

fn probed(process: &Process, address: Option<&str>, expression: &str) -> Option<ProbedValues> {
    let node = address.map(|address| address.rsplit_once('.').map_or(address, |(_, node)| node));
    let graphs = graphs(process, node, expression);
    let record = process.journal.find(&Tenant::local(), &"r".into()).unwrap().unwrap();
    let of = (&Tenant::local(), &RunId::from("r"));
    ProbedValues::read(&*process.journal, &graphs, &record, of, address).unwrap()
}

/// Returns the expression of each node, as its flow writes it.
fn expressions() -> BTreeMap<String, String> {
    let nodes = FLOW.lines().filter_map(|line| {
        let id = line.split_once("{ id: ")?.1.split(',').next()?;
        let written = line.split_once("v: '")?.1.split('\'').next()?;
        Some((id.to_owned(), written.to_owned()))
    });
    nodes.collect()
}

#[test]
fn an_expression_has_the_value_that_the_component_got() {
    let process = Process::new(FLOW);
    assert_eq!(process.run("r"), RunStatus::Failed);
    let (expressions, given) = (expressions(), process.nodes.0.lock().unwrap().clone());
    // The latest attempt of each task counts.
    let mut latest: BTreeMap<&str, ((u32, u32), &str)> = BTreeMap::new();
    for ((_, address, attempt, resumes), (input, _)) in &given {
        let number = (*attempt, *resumes);
        let known = latest.entry(address).or_insert((number, input));
        *known = (*known).max((number, input));
    }
    assert!(latest.len() >= 12, "{latest:?}");
    for (address, ((attempt, _), input)) in &latest {
        let node = address.rsplit_once('.').map_or(*address, |(_, node)| node);
        let values = probed(&process, Some(address), &expressions[node]).unwrap_or_else(|| panic!("{address}"));
        let expected = Json::parse(input).unwrap().get("v").cloned().unwrap();
        assert_eq!(values.evaluate().unwrap(), expected, "{address}");
        assert!(matches!(values.moment(), Moment::Task { attempt: at, .. } if at == attempt), "{address}");
    }
    let addresses: Vec<_> = latest.keys().collect();
    for address in ["each[1].inner", "l[1].pass", "back"] {
        assert!(addresses.iter().any(|known| known.ends_with(address)), "{addresses:?}");
    }
}

#[test]
fn a_skipped_task_and_the_end_of_a_run_have_values_and_others_have_none() {
    let process = Process::new(FLOW);
    process.run("r");
    let skipped = probed(&process, Some("never"), "flow.input.n == 8 or first.v").unwrap();
    assert_eq!(skipped.moment(), &Moment::Ended { status: "skipped" });
    assert!(skipped.evaluate().unwrap().as_str().is_some_and(|text| text.starts_with("2.33")));
    let end = probed(&process, None, "{{ never.skipped }} {{ end.error.code }} {{ flow.input.n }}").unwrap();
    assert_eq!((end.moment(), end.evaluate().unwrap()), (&Moment::End, Json::from("true planned 7")));
    assert!(probed(&process, Some("each[7].item"), "each.item").is_none(), "no such pass");
    let begun = Process {
        stands: true,
        ..Process::new("flow: { name: f }\nnodes: [{ id: first, type: t.hang, input: {} }]\n")
    };
    assert!(begun.journal.find(&Tenant::local(), &"r".into()).unwrap().is_none());
}

/// An expression of a person may do no more work than a few costly ones of a flow, and its value has a bounded size.
#[test]
fn a_costly_expression_fails_and_delays_nobody() {
    let text = "a".repeat(1 << 20);
    let about = || AboutRun { run: "eval".into(), tenant: Tenant::local(), version: None, labels: Default::default() };
    let evaluate = |expression: &str| {
        let mut catalog = Catalog::default();
        catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
        let source = Source { name: "f.yaml".into(), text: "flow: { name: f }\nnodes: []\n".into() };
        let probe = Probe { node: None, expression: expression.into() };
        let probed = flowcell_flow::probe(&source, &catalog, &NoContext, &Start::default(), &probe);
        let graph = probed.map_err(|error| format!("{error:?}"))?.graph;
        let input = Json::object([("s", Json::from(text.as_str())), ("n", Json::from(2_u64))]);
        ProbedValues::at_start(Arc::new(graph), input, about(), 0)
            .evaluate()
            .map_err(|failure| failure.message.to_string())
    };
    assert_eq!(evaluate("(flow.input.n + 1) ~ run.id").map(|value| value.to_text()), Ok("\"3eval\"".into()));
    let often = "{{ flow.input.s | upper | length }}".repeat(100);
    for (expression, why) in [
        (often.as_str(), "too much work"),
        ("range(flow.input.n * 1000000000) | list | length", ""),
        ("flow.input.s * 10000", ""),
        ("[flow.input.s, flow.input.s] | join | replace('a', flow.input.s) | length", ""),
    ] {
        let refused = evaluate(expression).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    assert!(evaluate(&deep).is_err());
    assert_eq!(graph("flow: { name: f }\nnodes: []\n").nodes.len(), 0);
}
