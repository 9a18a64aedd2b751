//! The short forms of a flow give the same graph as the long ones.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fmt::Write as _;

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{Diagnostic, NoContext, Source, graph::Graph};
use proptest::prelude::*;

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(include_str!("catalog.yaml")).unwrap(), &Digest("00".into()));
    catalog
}

fn printed(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect()
}

fn load(text: &str) -> Graph {
    let source = Source { name: "flow.yaml".into(), text: text.to_owned() };
    let checked = flowcell_flow::load(&source, &catalog(), &NoContext);
    assert!(checked.graph.is_some(), "{text}{}", printed(&checked.diagnostics));
    checked.graph.unwrap()
}

fn assert_same(short: &str, long: &str) {
    assert_eq!(format!("{:#?}", load(short)), format!("{:#?}", load(long)), "{short}\n{long}");
}

const NODES: &str = "flow: { name: pair }\nnodes:\n\
    - { id: check-it, type: test.if, input: { condition: \"flow.input.a == 1\" } }\n\
    - { id: route, type: test.route, input: { cases: \"{{ flow.input.cases }}\" } }\n\
    - { id: ask, type: test.gate, input: { prompt: a, choices: [go, stop] } }\n\
    - { id: a, type: test.noop }\n- { id: b, type: test.noop }\n- { id: c, type: test.noop }\n";

#[test]
fn edges_in_text_give_the_graph_of_the_long_form() {
    for (short, long) in [
        ("\"a -> b -> c\"", "{ from: a, to: b }, { from: b, to: c }"),
        ("\"a->b: error\"", "{ from: a, to: b, on: error }"),
        ("\"a -> b: end\", \"a -> b: success\"", "{ from: a, to: b, on: end }, { from: a, to: b }"),
        (
            "\"check-it -> a: then\", \"check-it -> b: else\"",
            "{ from: check-it, to: a, when: { equals: { var: 'nodes[\"check-it\"].condition', value: true } } }, \
             { from: check-it, to: b, when: { equals: { var: 'nodes[\"check-it\"].condition', value: false } } }",
        ),
        // A computed list of cases may have any route.
        (
            "\"route -> a: very: urgent\", \"route -> b: default\"",
            "{ from: route, to: a, when: { equals: { var: route.route, value: 'very: urgent' } } }, \
             { from: route, to: b, when: { equals: { var: route.route, value: default } } }",
        ),
        ("\"ask -> a: go\"", "{ from: ask, to: a, when: { equals: { var: ask.response.choice, value: go } } }"),
    ] {
        assert_same(&format!("{NODES}edges: [{short}]"), &format!("{NODES}edges: [{long}]"));
    }
}

/// More edges in one text than a flow may have are refused, and take no memory in proportion to the text.
#[test]
fn long_chains_are_refused() {
    for edges in [format!("[\"{}a\"]", "a->".repeat(150_000)), format!("[{}]", "\"a->b\",".repeat(60_000))] {
        let source = Source { name: "chain.yaml".into(), text: format!("{NODES}edges: {edges}") };
        let checked = flowcell_flow::load(&source, &catalog(), &NoContext);
        assert!(checked.graph.is_none());
        let message = "the flow has 6 nodes and 50001 or more edges";
        assert_eq!(checked.diagnostics[0].message, message, "{}", printed(&checked.diagnostics));
    }
    let after = "a, ".repeat(60_000);
    let text = format!("flow: {{ name: after }}\nnodes: [{{ id: a, type: test.noop, after: [{after}] }}]");
    let checked = flowcell_flow::load(&Source { name: "after.yaml".into(), text }, &catalog(), &NoContext);
    assert_eq!(checked.diagnostics[0].code, "too_large");
}

/// Edges of a random graph without cycles: pairs of nodes, the first of which has the lower number.
fn edges() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
    proptest::collection::btree_map((0..11_usize, 1..12_usize), any::<bool>(), 0..24).prop_map(|edges| {
        let ascending = edges.into_iter().filter(|((from, to), _)| from < to);
        ascending.map(|((from, to), by_after)| (from, to, by_after)).collect()
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn random_graphs_are_the_same_in_both_forms(edges in edges(), kinds in proptest::collection::vec(0..4_usize, 24)) {
        let (mut short, mut long) = (String::from("flow: { name: random }\nnodes:\n"), String::new());
        long.push_str(&short);
        // Edges of `after` precede those of `edges`, in the order of the nodes.
        let by_after = |node| edges.iter().filter(move |(_, to, by_after)| *to == node && *by_after);
        let (mut short_edges, mut long_edges) = (String::new(), String::new());
        for node in 0..12 {
            let before: Vec<_> = by_after(node).map(|(from, ..)| format!("n{from}")).collect();
            writeln!(short, "- {{ id: n{node}, type: test.noop, after: [{}] }}", before.join(", ")).unwrap();
            writeln!(long, "- {{ id: n{node}, type: test.noop }}").unwrap();
            by_after(node).for_each(|(from, to, _)| writeln!(long_edges, "- {{ from: n{from}, to: n{to} }}").unwrap());
        }
        for ((from, to, _), kind) in edges.iter().filter(|(.., by_after)| !by_after).zip(kinds) {
            let on = ["success", "error", "end", ""][kind];
            let (label, member) = match on {
                "" => (String::new(), String::new()),
                on => (format!(": {on}"), format!(", on: {on}")),
            };
            writeln!(short_edges, "- \"n{from} -> n{to}{label}\"").unwrap();
            writeln!(long_edges, "- {{ from: n{from}, to: n{to}{member} }}").unwrap();
        }
        assert_same(&format!("{short}edges:\n{short_edges}"), &format!("{long}edges:\n{long_edges}"));
    }
}
