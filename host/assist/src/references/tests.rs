//! References, definitions and renaming of the nodes of all examples.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::kit::{CATALOG, Examples, at_cursor, document, examples};

fn checked(name: &str, text: &str) -> Graph {
    graph(name, text, &CATALOG, &Examples).unwrap_or_else(|| panic!("{name} has errors:\n{text}"))
}

/// Returns the ids of a flow with the byte of each definition.
fn ids(text: &str) -> Vec<(String, usize)> {
    let root = read(text);
    let flow = Flow::new(text, &root, &CATALOG);
    flow.nodes.iter().map(|node| (node.id.clone(), node.id_range.start)).collect()
}

#[test]
fn a_renamed_node_keeps_the_graph_of_every_example() {
    let mut renamed_nodes = 0;
    for source in examples() {
        let before = graph(&source.name, &source.text, &CATALOG, &Examples);
        // An example that names a file or a secret of another place has errors here.
        let Some(before) = before else { continue };
        for (id, at) in ids(&source.text) {
            // An id of the same length keeps the places in expressions, so that whole graphs can be compared.
            let same_length = format!("Zq{}", "j".repeat(id.len().saturating_sub(2)));
            for new in [same_length.as_str(), "zz-renamed-zz"] {
                let renamed = match rename(&document(&source.text), &source.name, at, new, &Examples) {
                    Ok(renamed) => renamed,
                    // A body reads the variables of its owner by a name without dashes.
                    Err(error) if new.contains('-') => {
                        assert!(error.contains("choose another id"), "{}: {id}: {error}", source.name);
                        continue;
                    }
                    Err(error) => panic!("{}: {id}: {error}", source.name),
                };
                let text = apply(&source.text, &renamed.edits);
                let after = checked(&source.name, &text);
                assert_eq!(shape(&before), shape(&after), "{}: {id} -> {new}\n{text}", source.name);
                if new.len() == id.len() {
                    assert!(is_same_but_ids(&before, &after), "{}: {id} -> {new}\n{text}", source.name);
                    let written = format!("{after:?}").replace(new, &id);
                    assert_eq!(written, format!("{before:?}"), "{}: {id} -> {new}", source.name);
                    let at = ids(&text).into_iter().find(|(found, _)| found == new).unwrap().1;
                    let back = rename(&document(&text), &source.name, at, &id, &Examples).unwrap();
                    assert_eq!(apply(&text, &back.edits), source.text, "{}: {id}", source.name);
                }
                renamed_nodes += 1;
            }
        }
    }
    assert!(renamed_nodes > 150, "only {renamed_nodes} nodes");
}

/// Compares the ends of edges and the references of expressions, by index.
fn is_same_but_ids(before: &Graph, after: &Graph) -> bool {
    let edges = |graph: &Graph| graph.edges.iter().map(|edge| (edge.from, edge.to, edge.on)).collect::<Vec<_>>();
    let reads = |graph: &Graph| {
        graph
            .nodes
            .iter()
            .map(|node| (node.input.references.clone(), node.when.as_ref().map(|when| when.references.clone())))
            .collect::<Vec<_>>()
    };
    edges(before) == edges(after) && reads(before) == reads(after)
}

const FLOW: &str = "# The node say speaks.
flow: { name: a, input: { say: 1 }, outputs: { text: \"{{ say.value ~ nodes['say'].value }}\" } }
nodes:
  - { id: say, type: control.noop, input: { value: 'say it, {{ flow.input.say }}' } }
  - id: then
    type: data.template
    after: say
    when: { equals: { var: say.value, value: say } }
    input: { values: { say: 2 }, template: \"{{ say }} {{ inbounds.say.value }}\" }
  - { id: last, type: control.noop, input: { value: \"{{ nodes.say.value | default(say) }}\" } }
edges:
  - say -> last
  - { from: then, to: last, when: \"say.value is defined and 'say' != ''\" }
";

#[test]
fn names_that_only_look_like_the_id_stay_and_are_listed() {
    let at = FLOW.find("id: say").unwrap() + 5;
    let renamed = rename(&document(FLOW), "a.yaml", at, "speak", &Examples).unwrap();
    let text = apply(FLOW, &renamed.edits);
    let expected = FLOW
        .replace("{{ say.value ~ nodes['say'].value }}", "{{ speak.value ~ nodes['speak'].value }}")
        .replace("id: say", "id: speak")
        .replace("after: say", "after: speak")
        .replace("var: say.value", "var: speak.value")
        .replace("inbounds.say", "inbounds.speak")
        .replace("{{ nodes.say.value | default(say) }}", "{{ nodes.speak.value | default(speak) }}")
        .replace("- say -> last", "- speak -> last")
        .replace("\"say.value is", "\"speak.value is");
    assert_eq!(text, expected);
    let left: Vec<_> = renamed.left.iter().map(|range| FLOW[..range.start].matches('\n').count() + 1).collect();
    assert_eq!(left, [1, 4, 4, 8, 9, 13]);
    assert_eq!(references(&document(FLOW), at).len(), 10);
}

#[test]
fn ids_that_mean_something_else_are_refused() {
    let at = FLOW.find("id: say").unwrap() + 5;
    let refused = |new: &str| rename(&document(FLOW), "a.yaml", at, new, &Examples).unwrap_err();
    assert!(refused("last").contains("already"));
    assert!(refused("flow").contains("another meaning"));
    for new in ["", "1a", "a b", "ä", "\u{202e}a", &"a".repeat(65)] {
        assert!(refused(new).contains("starts with a letter"), "{new}");
    }
    assert!(rename(&document(FLOW), "a.yaml", 0, "x", &Examples).unwrap_err().contains("no id of a node"));
    let (text, at) = at_cursor(
        "flow: { name: a }\nnodes:\n  - { id: e§ach, type: control.foreach, input: { list: [1] }, body: [inner], bodyOutput: '{{ each.index }}' }\n  - { id: inner, type: control.noop, input: { value: '{{ item }}' } }\n",
    );
    assert!(rename(&document(&text), "a.yaml", at, "item", &Examples).is_err(), "the item has this name");
}

#[test]
fn definitions_are_nodes_flows_and_files() {
    let find = |text: &str| {
        let (text, at) = at_cursor(text);
        definition(&document(&text), at).map(|found| match found {
            Definition::Node(range) => text[range].to_owned(),
            Definition::Flow(name) => format!("flow {name}"),
            Definition::File(path) => format!("file {path}"),
        })
    };
    let found = |text: &str, expected: &str| assert_eq!(find(text).as_deref(), Some(expected), "{text}");
    found("nodes: [{ id: a, type: control.noop }]\nedges: [a -> §a]", "a");
    found("nodes: [{ id: a, type: control.noop }, { id: b, type: x, when: 'a§.b' }]", "a");
    found("nodes: [{ id: a, type: control.subflow, input: { name: he§llo } }]", "flow hello");
    found("nodes: [{ id: a, type: control.gate, promptFile: p§.md }]", "file p.md");
    assert_eq!(find("nodes: [{ id: a, type: control§.noop }]"), None);
}

#[test]
fn test_cases_are_renamed_by_their_addresses() {
    let text = "cases:\n  - answers: { say: 'yes', 'each[1].say': 'no', other/say: x }\n    given: { say: { output: { say: 1 } } }\n    calls: [{ node: say, method: GET }]\n    expect: { route: [say, 'say', saying], outputs: { say: say } }\n";
    let renamed = |has_outputs| apply(text, &rename_in_cases(text, "say", "speak", has_outputs));
    let expected = "cases:\n  - answers: { speak: 'yes', 'each[1].speak': 'no', other/say: x }\n    given: { speak: { output: { say: 1 } } }\n    calls: [{ node: speak, method: GET }]\n    expect: { route: [speak, 'speak', saying], outputs: { say: say } }\n";
    assert_eq!(renamed(true), expected);
    assert_eq!(renamed(false), expected.replace("outputs: { say:", "outputs: { speak:"));
    assert!(rename_in_cases("cases: [{ given: [", "say", "speak", true).is_empty());
}
