//! Explains flows, and checks expressions that stand in them. `BLESS=1` rewrites the expected files.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod golden;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use flowcell_contract::Catalog;
use flowcell_flow::{
    Checked, NoContext, Probe, ProbeError, Severity, Source, Start, explain::explain, graph::Graph, probe,
};
use golden::{cases, compare, printed, source};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn catalog() -> Catalog {
    golden::catalog(&["catalog.yaml", "another-pack.yaml", "http-pack.yaml"].map(folder))
}

fn load(source: &Source) -> Checked {
    flowcell_flow::load(source, &catalog(), &NoContext)
}

fn graph_of(text: &str) -> Graph {
    let checked = load(&Source { name: "flow.yaml".into(), text: text.into() });
    checked.graph.unwrap_or_else(|| panic!("{}", printed(&checked.diagnostics)))
}

/// These flows have joins, bodies, cycles, undos, grants, defaults and conditions.
#[test]
fn flows_have_the_expected_explanations() {
    let mut wrong = Vec::new();
    for case in cases(&folder("valid")).into_iter().chain(cases(&folder("explained"))) {
        let Some(graph) = load(&source(&case)).graph else { continue };
        let whole = explain(&graph, None).unwrap();
        assert_eq!(whole.nodes.len(), graph.nodes.len(), "{}", case.display());
        for node in &graph.nodes {
            let one = explain(&graph, Some(node.id.as_str())).unwrap();
            assert_eq!(one.nodes, [whole.nodes.iter().find(|one| one.id == node.id.as_str()).unwrap().clone()]);
        }
        let name = case.with_extension("txt");
        wrong.extend(compare(&folder("explained").join(name.file_name().unwrap()), &whole.to_string()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(explain(&graph_of("flow: { name: a }\nnodes: []\n"), Some("nothing")), None);
}

/// The explanation shows a value and its origin, but no text can move the cursor or turn the reading direction.
#[test]
fn an_explanation_shows_hostile_texts_cut_and_without_control_characters() {
    let long = "x".repeat(100_000);
    let text = format!(
        "flow: {{ name: hostile, input: {{ \"a\u{202e}b\": 1 }}, outputs: {{ k: \"{{{{ flow.input['a\u{202e}b'] }}}}\" }} }}
nodes:
  - {{ id: a, type: test.noop, input: {{ value: {{ \"{long}\": \"\\e[2J\u{202e}\" }} }} }}
"
    );
    let shown = explain(&graph_of(&text), None).unwrap().to_string();
    assert!(shown.len() < 2_000, "{} bytes", shown.len());
    assert!(!shown.contains(['\u{202e}', '\u{1b}']), "{shown}");
}

/// A sentence lists at most 12 ids, so that the text grows with the size of the flow only.
#[test]
fn an_explanation_of_a_wide_flow_is_small() {
    let nodes = 1_900;
    let mut text =
        "flow: { name: wide }\nnodes:\n  - { id: last, type: test.noop, join: any, cancelRest: true }\n".to_owned();
    (0..nodes).for_each(|index| _ = writeln!(text, "  - {{ id: n{index}, type: test.noop }}"));
    text += "edges:\n";
    (0..nodes).for_each(|index| _ = writeln!(text, "  - {{ from: n{index}, to: last }}"));
    let graph = graph_of(&text);
    let shown = serde_json::to_string(&explain(&graph, None).unwrap()).unwrap();
    assert!(shown.contains("`n11` and 1888 more"), "{}", &shown[..400]);
    assert!(shown.len() < 3_000_000, "{} bytes", shown.len());
}

const FLOW: &str = "
flow: { name: probed, input: { n: 1 }, outputs: { o: '{{ b.value }}' } }
nodes:
  - { id: a, type: test.noop, undo: back }
  - { id: b, type: test.noop }
  - { id: later, type: test.noop }
  - { id: back, type: test.noop }
  - id: each
    type: test.each
    input: { list: [1] }
    body: { nodes: [{ id: inner, type: test.noop }] }
  - { id: again, type: test.loop, input: { while: again.last }, body: { nodes: [{ id: step, type: test.noop }] } }
edges: [{ from: a, to: b }, { from: b, to: later }, { from: b, to: each }, { from: each, to: again }]
";

/// Expressions with the node in whose place they stand. `-` is the place of the outputs.
const EXPRESSIONS: &[(&str, &str)] = &[
    ("b", "{{ a.value }} and {{ flow.input.n + 1 }}"),
    ("b", "a.value | default(flow.input.n)"),
    ("b", "inbound.value ~ run.id ~ now ~ uuid()"),
    ("b", "b.value"),
    ("b", "later.value"),
    ("b", "aa.value"),
    ("b", "flow.input.m"),
    ("b", "flow.inptu.n"),
    ("b", "secrets.token"),
    ("b", "each.item"),
    ("inner", "each.item + each.index + a.value"),
    ("inner", "inner.value"),
    ("again", "again.last"),
    ("back", "undo.output.value"),
    ("back", "b.value"),
    ("-", "{{ later.value }}{{ each }}"),
    ("-", "inner.value"),
    ("-", "inbound"),
    ("-", "1 +"),
    ("-", "{{ 1 + }} {{ a.vlue }}"),
    ("-", "a.value |"),
    ("-", "a.value | upr"),
    ("-", ""),
    ("-", "hello world"),
    ("-", "{% if a %}"),
    ("-", "\"\u{202e}\\u001b\""),
    ("missing", "1"),
];

#[test]
fn expressions_have_the_names_and_errors_of_their_place() {
    let source = Source { name: "flow.yaml".into(), text: FLOW.into() };
    let mut shown = String::new();
    for (node, expression) in EXPRESSIONS {
        let node = Some((*node).to_owned()).filter(|node| node != "-");
        let place = node.clone().unwrap_or("outputs".into());
        let at = Probe { node, expression: (*expression).to_owned() };
        let result = match probe(&source, &catalog(), &NoContext, &Start::default(), &at) {
            Ok(probed) => {
                let bound = match &at.node {
                    Some(id) => &probed.graph.nodes.iter().find(|node| node.id.as_str() == id).unwrap().input,
                    None => probed.graph.outputs.as_ref().unwrap(),
                };
                format!("{:?}\n{}", bound.references, printed(&probed.warnings))
            }
            Err(ProbeError::Expression(found)) => printed(&found),
            Err(error) => format!("{error:?}\n"),
        };
        let _ = writeln!(shown, "{place}: {expression}\n{result}");
    }
    let wrong = compare(&folder("explained/probes.txt"), &shown);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    let broken = Source { name: "flow.yaml".into(), text: FLOW.replace("from: a, to: b", "from: a, to: c") };
    let at = Probe { node: None, expression: "1".into() };
    let refused = probe(&broken, &catalog(), &NoContext, &Start::default(), &at);
    assert!(
        matches!(&refused, Err(ProbeError::Flow(found)) if found.iter().any(|one| one.code == "unknown_node")),
        "{refused:?}"
    );
}

/// An expression that stands in a flow leaves the rest of the graph as it is.
#[test]
fn a_probe_changes_only_the_input_of_its_node() {
    let source = Source { name: "flow.yaml".into(), text: FLOW.into() };
    let before = graph_of(FLOW);
    let at = Probe { node: Some("b".into()), expression: "a.value".into() };
    let mut after = probe(&source, &catalog(), &NoContext, &Start::default(), &at).unwrap().graph;
    let b = after.nodes.iter().position(|node| node.id.as_str() == "b").unwrap();
    assert_eq!(after.nodes[b].input.expr.as_path().unwrap().to_string(), "a.value");
    after.nodes[b].input = before.nodes[b].input.clone();
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
}

/// Every edit that a diagnostic offers removes this diagnostic.
#[test]
fn fixes_of_diagnostics_correct_the_mistake() {
    let mut fixed = 0;
    for case in cases(&folder("invalid")) {
        let source = source(&case);
        for found in load(&source).diagnostics {
            let Some(fix) = &found.fix else { continue };
            assert_eq!(fix.line, found.location.line);
            let mut lines: Vec<String> = source.text.split('\n').map(str::to_owned).collect();
            let line: Vec<char> = lines[fix.line - 1].chars().collect();
            let (before, after) = (&line[..fix.column - 1], &line[fix.column - 1 + fix.len..]);
            lines[fix.line - 1] =
                before.iter().chain(fix.text.chars().collect::<Vec<_>>().iter()).chain(after).collect();
            let text = lines.join("\n");
            let same =
                |other: &flowcell_flow::Diagnostic| other.message == found.message && other.severity == Severity::Error;
            let again = load(&Source { name: source.name.clone(), text: text.clone() }).diagnostics;
            let count = |list: &[flowcell_flow::Diagnostic]| list.iter().filter(|other| same(other)).count();
            let before = load(&source).diagnostics;
            assert!(count(&again) < count(&before) || found.severity == Severity::Warning, "{found}\n{fix:?}\n{text}");
            fixed += 1;
        }
    }
    assert!(fixed >= 10, "only {fixed} diagnostics have a fix");
}
