//! Explains flows, checks expressions that stand in them, and makes the edits that diagnostics offer.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use flowcell_contract::Catalog;
use flowcell_flow::{
    Checked, NoContext, Probe, ProbeError, Severity, Source, Start, explain::explain, graph::Graph, probe,
};

use crate::golden::{self, cases, printed, source};

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

/// Sentences of the explanations of flows: a flow, one of its nodes or `-` for the flow, and a line of its text.
const SENTENCES: &[(&str, &str, &str)] = &[
    ("order", "-", "A run begins with `check`."),
    ("order", "-", "At most 4 attempts run at the same time."),
    ("order", "-", "A run ends after 60000 ms at the latest."),
    ("order", "-", "The flow is strict: a missing value fails the node that reads it."),
    ("order", "-", "total reads `check.condition`: the output of `check`"),
    ("order", "-", "fixed = 7"),
    ("order", "check", "It starts at once when the run begins."),
    ("order", "check", "If it fails, `apologise` and `ship` can handle the failure."),
    ("order", "check", "condition reads `flow.input.amount`: the input of the run, by default 5"),
    ("order", "check", "policy: timeoutMs 1000 (flow.defaults), retry 3 attempts (flow.defaults)"),
    ("cycles", "coder", "policy: timeoutMs 300000 (built-in), retry 1 attempt (built-in)"),
    ("order", "pay", "It is skipped unless its `when` holds, which reads `check.condition`, `flow.input.note`."),
    ("order", "pay", "If it fails, its failure becomes its output, and its edges fire as after a success."),
    ("order", "pay", "value reads `flow.input.other`: the input of the run, without a default"),
    ("order", "pay", "value reads `run.id`: a fact about the run"),
    ("order", "pay", "value reads `random values`: the seed of the run"),
    ("order", "pay", "If a later failure ends its scope or the flow, `refund` undoes what it has done."),
    ("order", "refund", "It undoes `pay`."),
    ("order", "refund", "value reads `undo.output`: the task that this node undoes"),
    ("order", "apologise", "It starts after `check` fails."),
    (
        "order",
        "ship",
        "It starts when all of these edges have fired: `pay` succeeds or fails (`continueOnError`), if the \
      condition of the edge holds, which reads `pay.value`; `check` succeeds or fails.",
    ),
    ("cycles", "coder", "It repeats in the cycle that begins at `coder`"),
    ("cycles", "coder", "value reads `tester.condition`: the output of `tester` in the pass before"),
    ("cycles", "poll", "It runs in each pass of the body of `each` (test.each)."),
    ("cycles", "inner", "If it fails, the pass of `each` fails."),
    ("cycles", "each", "It runs the nodes of its body: `poll` and `inner`."),
    ("cycles", "each", "list = [1,2]"),
];

#[test]
fn explanations_have_the_expected_sentences() {
    for (flow, node, sentence) in SENTENCES {
        let case =
            if *flow == "order" { folder("explained/order.yaml") } else { folder(&format!("valid/{flow}.yaml")) };
        let checked = load(&source(&case));
        let graph = checked.graph.unwrap_or_else(|| panic!("{}", printed(&checked.diagnostics)));
        let shown = explain(&graph, Some(*node).filter(|node| *node != "-")).unwrap().to_string();
        let lines: Vec<_> = shown.lines().map(str::trim).collect();
        assert!(lines.iter().any(|line| line.starts_with(sentence)), "{flow} {node}: {sentence}\n{shown}");
    }
}

#[test]
fn every_node_of_a_flow_is_explained() {
    for case in cases(&folder("valid")) {
        let Some(graph) = load(&source(&case)).graph else { continue };
        let whole = explain(&graph, None).unwrap();
        assert_eq!(whole.nodes.len(), graph.nodes.len(), "{}", case.display());
        for node in &whole.nodes {
            assert_eq!(explain(&graph, Some(&node.id)).unwrap().nodes, std::slice::from_ref(node));
            assert!(!node.runs.is_empty() && !node.costs.is_empty(), "{}: {}", case.display(), node.id);
        }
    }
    assert_eq!(explain(&graph_of("flow: { name: a }\nnodes: []\n"), Some("nothing")), None);
}

/// The explanation shows a value and its origin, but no text can move the cursor or turn the reading direction.
#[test]
fn an_explanation_shows_hostile_texts_cut_and_without_control_characters() {
    let (key, long) = ("x".repeat(1_000), "x".repeat(100_000));
    let text = format!(
        "flow: {{ name: hostile, input: {{ \"a\u{202e}b\": 1 }}, outputs: {{ k: \"{{{{ flow.input['a\u{202e}b'] }}}}\" }} }}
nodes:
  - {{ id: a, type: test.noop, input: {{ value: {{ \"{key}\": \"{long}\\u001b[2J\u{202e}\" }} }} }}
"
    );
    let shown = explain(&graph_of(&text), None).unwrap().to_string();
    assert!(shown.len() < 2_000, "{} bytes", shown.len());
    assert!(!shown.contains(['\u{202e}', '\u{1b}']), "{shown}");
}

/// A template without names of the flow is shown as it stands, and outputs that are a list have one line.
#[test]
fn templates_and_lists_are_explained_with_what_they_read() {
    let graph = graph_of(
        "flow: { name: texts, outputs: ['{{ plain.text }}', '{{ reads.text }}'] }
nodes:
  - { id: plain, type: test.template, input: { template: Hello } }
  - { id: local, type: test.template, input: { template: '{{ name }}', values: { name: Ada } } }
  - { id: reads, type: test.template, input: { template: 'a {{ plain.text }}' } }
edges: [{ from: plain, to: local }, { from: plain, to: reads }]
",
    );
    let whole = explain(&graph, None).unwrap();
    let value = |node: usize| whole.nodes[node].input[0].value.as_deref();
    assert_eq!([value(0), value(1), value(2)], [Some("\"Hello\""), Some("\"{{ name }}\""), None]);
    let sources: Vec<_> = whole.nodes[2].input[0].reads.iter().map(|read| &*read.path).collect();
    assert_eq!(sources, ["plain.text"]);
    let [outputs] = &whole.outputs[..] else { panic!("{:?}", whole.outputs) };
    let sources: Vec<_> = outputs.reads.iter().map(|read| &*read.path).collect();
    assert_eq!(sources, ["plain.text", "reads.text"]);
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
    assert!(shown.contains("`n11` and 1888 more") && shown.contains("`n11` succeeds; 1888 more."), "{}", &shown[..400]);
    assert!(shown.len() < 1_500_000, "{} bytes", shown.len());
    // Each node of a cycle names the edges that go back, and a condition names the values that it reads.
    let conditions: String = (0..150).map(|index| format!("flow.input.i{index} or ")).collect();
    let mut text = "flow: { name: round }\nnodes:\n  - { id: entry, type: test.noop }\n".to_owned();
    (0..400).for_each(|index| _ = writeln!(text, "  - {{ id: n{index}, type: test.noop, when: '{conditions}true' }}"));
    text += "edges:\n";
    (0..400).for_each(|index| {
        _ = writeln!(text, "  - {{ from: entry, to: n{index} }}");
        _ = writeln!(text, "  - {{ from: n{index}, to: entry, when: flow.input.again }}");
    });
    let shown = serde_json::to_string(&explain(&graph_of(&text), None).unwrap()).unwrap();
    assert!(shown.contains("388 more.") && shown.contains("138 more."), "{}", &shown[..2_000]);
    assert!(shown.len() < 1_500_000, "{} bytes", shown.len());
}

/// Nothing is evaluated, so members that would be large or that fail cost nothing.
#[test]
fn an_explanation_evaluates_nothing() {
    let members: String = (0..30).map(|index| format!("k{index}: \"{{{{ 'x' | padstart(1000000) }}}}\", ")).collect();
    let text = format!(
        "flow: {{ name: costly }}\nnodes:\n  - {{ id: a, type: test.noop, input: {{ value: {{ {members} }} }} }}
  - {{ id: b, type: test.noop, input: {{ value: \"{{{{ 1 / 0 }}}}\" }} }}\n"
    );
    let nodes = explain(&graph_of(&text), None).unwrap().nodes;
    let value = |node: usize| nodes[node].input[0].value.as_deref();
    assert_eq!(
        (value(0), value(1)),
        (Some("an expression that reads no value of the flow"), Some("an expression that reads no value of the flow"))
    );
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

/// Expressions with the node in whose place they stand, or `-` for the outputs, and the code of their first diagnostic.
/// An empty code: the expression is valid.
const EXPRESSIONS: &[(&str, &str, &str)] = &[
    ("b", "{{ a.value }} and {{ flow.input.n + 1 }}", ""),
    ("b", "a.value | default(flow.input.n)", ""),
    ("b", "inbound.value ~ run.id ~ now ~ uuid()", ""),
    ("b", "plain text", "bad_expression"),
    ("b", "b.value", "self_reference"),
    ("b", "later.value", "not_an_ancestor"),
    ("b", "aa.value", "unknown_name"),
    ("b", "flow.inptu.n", "unknown_name"),
    ("b", "secrets.token", "unknown_name"),
    ("b", "each.item", "not_an_ancestor"),
    ("inner", "each.item + each.index + a.value", ""),
    ("inner", "each.itm", "unknown_name"),
    ("inner", "inner.value", "self_reference"),
    ("again", "again.last", ""),
    ("back", "undo.output.value", ""),
    ("back", "later.value", "not_an_ancestor"),
    ("-", "{{ later.value }}{{ each }}", ""),
    ("-", "inner.value", "not_an_ancestor"),
    ("-", "inbound", "unknown_name"),
    ("-", "1 +", "bad_expression"),
    ("-", "{{ 1 + }} {{ a.value }}", "bad_expression"),
    ("-", "a.value | upr", "bad_expression"),
    ("-", "", "bad_expression"),
];

#[test]
fn expressions_have_the_names_and_errors_of_their_place() {
    let source = Source { name: "flow.yaml".into(), text: FLOW.into() };
    let probed = |node: &str, expression: &str| {
        let node = Some(node.to_owned()).filter(|node| node != "-");
        let at = Probe { node, expression: expression.to_owned() };
        probe(&source, &catalog(), &NoContext, &Start::default(), &at)
    };
    for (node, expression, code) in EXPRESSIONS {
        let found = match probed(node, expression) {
            Ok(probed) => probed.warnings,
            Err(ProbeError::Expression(found)) => found,
            Err(error) => panic!("{node}: {expression}: {error:?}"),
        };
        assert_eq!(found.first().map_or("", |found| found.code), *code, "{node}: {expression}: {}", printed(&found));
        assert!(found.iter().all(|found| found.location.file == "expression"));
    }
    assert_eq!(probed("missing", "1").unwrap_err(), ProbeError::UnknownNode);
    let Err(ProbeError::Expression(found)) = probed("b", "1 + aa.value") else { panic!("the name is unknown") };
    assert_eq!((found[0].location.line, found[0].location.column), (1, 5), "{}", printed(&found));
    let broken = Source { name: "flow.yaml".into(), text: FLOW.replace("from: a, to: b", "from: a, to: c") };
    let at = Probe { node: None, expression: "1".into() };
    let refused = probe(&broken, &catalog(), &NoContext, &Start::default(), &at);
    assert!(matches!(&refused, Err(ProbeError::Flow(found)) if !found.is_empty()), "{refused:?}");
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
