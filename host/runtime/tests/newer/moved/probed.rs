//! Expressions with the values of runs that have moved: an expression has the meaning of the version of its place.

use flowcell_flow::{Probe, Start};
use flowcell_runtime::{
    inputs::{Moment, ProbedValues},
    ports::Record,
};

use super::*;

/// A gate between `a` and `pay`. In the other version a new node is between the gate and `pay`.
fn versions() -> [String; 2] {
    let nodes = |pay: &str| {
        format!(
            "  - {{ id: a, type: t.noop, input: {{ x: '{{{{ flow.input.n }}}}' }} }}
  - {{ id: one, type: t.ask, input: {{}} }}
  - {{ id: pay, type: t.noop, input: {{ x: {pay} }} }}"
        )
    };
    let fee = "\n  - { id: fee, type: t.noop, input: { y: '{{ a.x + 1 }}' } }";
    let gone = "\n  - { id: gone, type: t.noop, input: { x: 5 } }";
    let edges = ["{ from: a, to: one }, { from: one, to: pay }", "{ from: a, to: one }, { from: one, to: fee }"];
    [
        flow(&(nodes("1") + gone), edges[0]),
        flow(&(nodes("'{{ fee.y }}'") + fee), &format!("{}, {{ from: fee, to: pay }}", edges[1])),
    ]
}

fn record(story: &Story) -> Record {
    story.journal.find(&Tenant::local(), &"r".into()).unwrap().unwrap()
}

/// Loads the graphs of a run, with an expression in each version in which it has no errors. Returns these versions,
/// too.
fn graphs_with(record: &Record, texts: &[String], node: Option<&str>, expression: &str) -> (RunGraphs, Vec<bool>) {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let probe = Probe { node: node.map(str::to_owned), expression: expression.into() };
    let mut valid = Vec::new();
    let graphs = RunGraphs::load(record, |pin| {
        let text = &texts[usize::from(&*pin.0 == "v2")];
        let source = Source { name: "f.yaml".into(), text: text.clone() };
        let probed = flowcell_flow::probe(&source, &catalog, &NoContext, &Start::default(), &probe);
        valid.push(probed.is_ok());
        Ok(probed.map_or_else(|_| graph(text), |probed| Arc::new(probed.graph)))
    });
    (graphs.unwrap(), valid)
}

fn read(story: &Story, graphs: &RunGraphs, record: &Record, address: Option<&str>) -> ProbedValues {
    let of = (&Tenant::local(), &RunId::from("r"));
    ProbedValues::read(&*story.journal, graphs, record, of, address).unwrap().unwrap()
}

#[test]
fn an_expression_stands_in_the_version_of_its_task() {
    let texts = versions();
    let story = Story::new(&texts.each_ref().map(String::as_str));
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    story.migrate("r", 2).unwrap();
    assert_eq!(story.resume_with("r", &["one"]).status, RunStatus::Succeeded);
    let record = record(&story);
    for (address, expression, valid, version, value) in [
        // These stay, with the inputs of the version before the move.
        (Some("a"), "flow.input.n + 1", [true, true], 0, Some(8_u64)),
        (Some("one"), "a.x", [true, true], 0, Some(7)),
        // These began in the version after the move.
        (Some("pay"), "fee.y * 2", [false, true], 1, Some(16)),
        (Some("pay"), "one ~ ''", [true, true], 1, None),
        (Some("fee"), "a.x", [false, true], 1, Some(7)),
        (None, "fee.y", [false, true], 1, Some(8)),
        (None, "a.x", [true, true], 1, Some(7)),
        // The version before the move knows this node, and the one after it does not.
        (None, "gone.x", [true, false], 1, None),
    ] {
        let (graphs, found) = graphs_with(&record, &texts, address, expression);
        let values = read(&story, &graphs, &record, address);
        assert_eq!((found.as_slice(), values.version()), (&valid[..], version), "{address:?}: {expression}");
        if let Some(value) = value {
            assert_eq!(values.evaluate().unwrap(), Json::from(value), "{address:?}: {expression}");
        }
    }
}

#[test]
fn a_record_from_before_the_move_has_the_values_of_before_the_move() {
    let texts = versions();
    let story = Story::new(&texts.each_ref().map(String::as_str));
    assert_eq!(story.run(1, "r", &[]).status, RunStatus::Parked);
    let before = record(&story);
    story.migrate("r", 2).unwrap();
    assert_eq!(story.resume_with("r", &["one"]).status, RunStatus::Succeeded);
    for (address, expression) in [(None, "{{ a.x }}"), (Some("a"), "{{ flow.input.n }}")] {
        let (graphs, _) = graphs_with(&before, &texts, address, expression);
        let values = read(&story, &graphs, &before, address);
        assert_eq!((values.version(), values.evaluate().unwrap().to_text()), (0, "7".into()), "{address:?}");
        assert_eq!(values.moment() == &Moment::End, address.is_none());
    }
}
