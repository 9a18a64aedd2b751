//! References, definitions and renaming of the nodes of all examples.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::kit::{CATALOG, EXAMPLES, Examples, at_cursor, document};

fn graph(name: &str, text: &str) -> Option<Graph> {
    flowcell_flow::load(&Source { name: name.to_owned(), text: text.to_owned() }, &CATALOG, &Examples).graph
}

fn checked(name: &str, text: &str) -> Graph {
    graph(name, text).unwrap_or_else(|| panic!("{name} has errors:\n{text}"))
}

/// Returns the byte behind a part of a text.
fn behind(text: &str, part: &str) -> usize {
    text.find(part).unwrap() + part.len()
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
    for source in EXAMPLES.iter() {
        // An example that names a file or a secret of another place has errors here.
        let Some(before) = graph(&source.name, &source.text) else { continue };
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
    for new in ["flow", "nodes", "inbound", "in", "none"] {
        assert!(refused(new).contains("reserved word"), "{new}");
    }
    for new in ["", "1a", "a b", "ä", "\u{202e}a", &"a".repeat(65)] {
        assert!(refused(new).contains("start with a letter"), "{new}");
    }
    assert!(rename(&document(FLOW), "a.yaml", 0, "x", &Examples).unwrap_err().contains("no id of a node"));
    let (text, at) = at_cursor(
        "flow: { name: a }\nnodes:\n  - { id: e§ach, type: control.foreach, input: { list: [1] }, body: [inner], bodyOutput: '{{ each.index }}' }\n  - { id: inner, type: control.noop, input: { value: '{{ item }}' } }\n",
    );
    assert!(rename(&document(&text), "a.yaml", at, "item", &Examples).is_err(), "the item has this name");
    // The check says nothing about a flow with errors.
    let broken = "flow: { name: a, vars: { x: 1 } }\nfragments: {}\nnodes: [{ id: a, type: unknown }]\n";
    let renamed = |text: &str, new: &str| rename(&document(text), "a.yaml", behind(text, "id: "), new, &Examples);
    for new in ["params", "vars"] {
        assert!(renamed(broken, new).unwrap_err().contains("another meaning"), "{new}");
    }
    assert!(renamed("nodes: [{ id: a, type: unknown }]\n", "vars").is_ok());
}

#[test]
fn definitions_are_nodes_flows_and_files() {
    let find = |text: &str| {
        let (text, at) = at_cursor(text);
        definition(&document(&text), at).map(|found| match found {
            Definition::Name(range) => text[range].to_owned(),
            Definition::Flow(name) => format!("flow {name}"),
            Definition::File(path) => format!("file {path}"),
            Definition::Agent(name) => format!("agent {name}"),
        })
    };
    let found = |text: &str, expected: &str| assert_eq!(find(text).as_deref(), Some(expected), "{text}");
    found("nodes: [{ id: a, type: control.noop }]\nedges: [a -> §a]", "a");
    found("nodes: [{ id: a, type: control.noop }, { id: b, type: x, when: 'a§.b' }]", "a");
    found("nodes: [{ id: a, type: control.subflow, input: { name: he§llo } }]", "flow hello");
    found("nodes: [{ id: a, type: control.gate, promptFile: p§.md }]", "file p.md");
    assert_eq!(find("nodes: [{ id: a, type: control§.noop }]"), None);
    let uses = |part: &str| {
        format!("fragments: {{ tell: {{ params: {{ who: {{}} }}, nodes: [] }} }}\nnodes: [{{ id: a, {part} }}]")
    };
    found(&uses("use: te§ll"), "tell");
    found(&uses("use: tell, with: { wh§o: 1 }"), "who");
    assert_eq!(find(&uses("use: tell, with: { oth§er: 1 }")), None);
    assert_eq!(find(&uses("use: oth§er")), None);
}

fn plan(flow: &str, at: usize, old: &str, new: &str) -> Plan {
    Plan::new(flow, &read(flow), at, (old, new))
}

#[test]
fn test_cases_are_renamed_by_their_addresses() {
    let text = "cases:
  - answers: { say: 'yes', 'each[1].say': 'no', other/say: x }
    given: { say: { output: { say: 1 } } }
    calls: [{ node: say, method: GET }]
    expect: { route: [say, 'say', saying], outputs: { say: say } }
";
    let flow = |head: &str| format!("flow: {{ name: a{head} }}\nnodes: [{{ id: say, type: control.noop }}]\n");
    let renamed = |flow: &str| apply(text, &rename_in_cases(text, &plan(flow, behind(flow, "id: "), "say", "speak")));
    let expected = text
        .replace("{ say: 'yes', 'each[1].say'", "{ speak: 'yes', 'each[1].speak'")
        .replace("given: { say:", "given: { speak:")
        .replace("node: say", "node: speak")
        .replace("[say, 'say',", "[speak, 'speak',");
    let with = flow(", outputs: { a: 1 }");
    assert_eq!(renamed(&with), expected);
    assert_eq!(renamed(&flow("")), expected.replace("outputs: { say:", "outputs: { speak:"));
    assert!(rename_in_cases("cases: [{ given: [", &plan(&with, behind(&with, "id: "), "say", "speak")).is_empty());
}

const USES: &str = "flow: { name: a, outputs: { x: \"{{ nodes['tell-it'] }}\" } }
fragments:
  outer:
    nodes: [{ id: in-use, use: inner }, { id: post, type: control.noop }]
  inner:
    nodes: [{ id: line, type: control.noop }]
nodes:
  - { id: tell-it, use: outer }
  - { id: more, use: inner, after: tell-it }
  - { id: line, type: control.noop, after: more, input: { value: \"{{ nodes['tell-it'].tell_it_post }}\" } }
  - { id: tell_it_own, type: control.noop }
";

/// The nodes in the use of a fragment have ids that begin with that of the use, also if fragments use others.
#[test]
fn test_cases_follow_the_ids_in_uses_of_fragments() {
    let cases = "cases: [{ given: { tell-it: 1, 'tell-it[0].tell_it_post': 2, tell_it_in_use_line: 3, \
                 tell_it_own: 4, 'more.more_line': 5, line: 6, tell_it_unknown: 7 } }]";
    let renamed = |part: &str, old: &str, new: &str| {
        let edits = rename_in_cases(cases, &plan(USES, behind(USES, part), old, new));
        let given = apply(cases, &edits);
        given.trim_start_matches("cases: [{ given: { ").trim_end_matches(" } }]").to_owned()
    };
    assert_eq!(
        renamed("- { id: tell-it", "tell-it", "say-it"),
        "say-it: 1, 'say-it[0].say_it_post': 2, say_it_in_use_line: 3, tell_it_own: 4, 'more.more_line': 5, line: 6, \
         tell_it_unknown: 7"
    );
    // The flow and the fragment have a node with the same id.
    assert_eq!(
        renamed("inner:\n    nodes: [{ id: line", "line", "text"),
        "tell-it: 1, 'tell-it[0].tell_it_post': 2, tell_it_in_use_text: 3, tell_it_own: 4, 'more.more_text': 5, \
         line: 6, tell_it_unknown: 7"
    );
    assert_eq!(
        renamed("- { id: line", "line", "text"),
        "tell-it: 1, 'tell-it[0].tell_it_post': 2, tell_it_in_use_line: 3, tell_it_own: 4, 'more.more_line': 5, \
         text: 6, tell_it_unknown: 7"
    );
    assert_eq!(
        renamed("nodes: [{ id: in-use", "in-use", "b"),
        "tell-it: 1, 'tell-it[0].tell_it_post': 2, tell_it_b_line: 3, tell_it_own: 4, 'more.more_line': 5, line: 6, \
         tell_it_unknown: 7"
    );
}

#[test]
fn ids_in_uses_that_stay_are_listed_and_those_of_other_graphs_are_not() {
    let left = |part: &str, new: &str| {
        let renamed = rename(&document(USES), "a.yaml", behind(USES, part), new, &Examples).unwrap();
        renamed.left.into_iter().map(|range| &USES[range]).collect::<Vec<_>>()
    };
    assert_eq!(left("- { id: tell-it", "say-it"), ["tell_it_post"]);
    assert_eq!(left("id: post", "send"), ["tell_it_post"]);
    assert!(left("inner:\n    nodes: [{ id: line", "text").is_empty());
    assert!(left("- { id: line", "text").is_empty());
}

#[test]
fn fragments_that_use_each_other_many_times_end() {
    let uses =
        |name: &str| (0..20).map(|number| format!("{{ id: u{number}, use: {name} }}")).collect::<Vec<_>>().join(", ");
    let flow = format!(
        "fragments: {{ a: {{ nodes: [{}] }}, b: {{ nodes: [{}] }} }}\nnodes: [{}]\n",
        uses("b"),
        uses("a"),
        uses("a")
    );
    let cases = "cases: [{ given: { u3: 1 } }]";
    // The ids in the uses change, and that of the flow's own node does not.
    let edits = rename_in_cases(cases, &plan(&flow, flow.find("u3").unwrap(), "u3", "x"));
    assert_eq!(edits, []);
    let edits = rename_in_cases(cases, &plan(&flow, flow.rfind("u3").unwrap(), "u3", "x"));
    assert_eq!(apply(cases, &edits), cases.replace("u3", "x"));
}

const SCRIPTS: &str = "flow: { name: a }
fragments:
  notify:
    params: { text: {} }
    nodes:
      - { id: say, type: data.template, input: { template: \"{{ params.text }}\" } }
      - { id: log, type: control.noop, after: say, input: { value: \"{{ say.text }}\" } }
nodes:
  - { id: say, type: control.noop, input: { value: 1 } }
  - { id: tell, use: notify, with: { text: \"{{ say.value }}\" }, after: say }
  - { id: run, type: script.run, after: say, input: { source: \"export function run() { return `{{ say }}` }\" } }
  - { id: own_log, type: control.noop }
";

/// Arguments of fragments are renamed, scripts are not, and each fragment has ids of its own.
#[test]
fn arguments_are_renamed_and_scripts_stay() {
    let renamed = |text: &str, part: &str| {
        let renamed = rename(&document(text), "a.yaml", behind(text, part), "speak", &Examples).unwrap();
        apply(text, &renamed.edits)
    };
    let expected = SCRIPTS
        .replace("- { id: say, type: control.noop", "- { id: speak, type: control.noop")
        .replace("{{ say.value }}\" }, after: say", "{{ speak.value }}\" }, after: speak")
        .replace("after: say, input: { source", "after: speak, input: { source");
    assert_eq!(renamed(SCRIPTS, "\nnodes:\n  - { id: "), expected);
    let expected = SCRIPTS
        .replace("- { id: say, type: data", "- { id: speak, type: data")
        .replace("after: say, input: { value: \"{{ say.text", "after: speak, input: { value: \"{{ speak.text");
    assert_eq!(renamed(SCRIPTS, "nodes:\n      - { id: "), expected);
    // A script may come from another node, and a file may not.
    let text = "nodes: [{ id: a, type: control.noop }, { id: b, type: script.run, after: a, input: { source: \"{{ a.x }}\" } }]";
    assert!(renamed(text, "id: ").contains("\"{{ speak.x }}\""));
    let text = text.replace("source:", "file:");
    assert!(renamed(&text, "id: ").contains("\"{{ a.x }}\""));
}

#[test]
fn a_renaming_names_the_error_that_it_would_make() {
    let at = behind(SCRIPTS, "- { id: tell");
    let refused = rename(&document(SCRIPTS), "a.yaml", at, "own", &Examples).unwrap_err();
    assert!(refused.contains("the flow has an error: ") && refused.contains("`own_log`"), "{refused}");
}
