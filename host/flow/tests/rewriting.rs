//! `after` and the edges of fragments and bodies in both forms.

use std::fmt::Write as _;

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{
    NoContext, Source,
    graph::Graph,
    rewrite::{EdgeForm, Kept, Rewritten, is_same, rewrite_edges},
};
use proptest::prelude::*;

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (pack, text) in [("00", include_str!("catalog.yaml")), ("01", include_str!("control-pack.yaml"))] {
        catalog.add(Manifest::parse(text).unwrap(), &Digest(pack.into()));
    }
    catalog
}

fn source(text: &str) -> Source {
    Source { name: "flow.yaml".into(), text: text.to_owned() }
}

fn load(text: &str) -> Graph {
    let checked = flowcell_flow::load(&source(text), &catalog(), &NoContext);
    assert!(checked.graph.is_some(), "{text}\n{:#?}", checked.diagnostics);
    checked.graph.unwrap()
}

/// Rewrites a flow, and checks that the graph is the same, and that a second time changes nothing.
fn rewritten(text: &str, form: EdgeForm) -> Rewritten {
    let graph = load(text);
    let rewritten = rewrite_edges(&source(text), form, &graph);
    let after = load(&rewritten.text);
    assert!(is_same(&graph, &after), "{text}\n{}", rewritten.text);
    let again = rewrite_edges(&source(&rewritten.text), form, &after);
    assert_eq!((&again.text, again.changed), (&rewritten.text, 0), "{text}");
    rewritten
}

fn long(text: &str) -> String {
    rewritten(text, EdgeForm::Long).text
}

const FLOW: &str = "flow: { name: f }\n";
const A: &str = "- { id: a, type: test.noop }\n";

/// The long form has the edges of `after` at the front of the list `edges`. Comments stay, and all other text.
#[test]
fn after_moves_to_the_front_of_the_edges() {
    for (name, short, expected) in [
        (
            "braces, without a list",
            format!(
                "{FLOW}nodes:\n{A}- {{ id: b, after: a, type: test.noop }}\n- {{ id: c, type: test.noop, after: [a, b] }}\n"
            ),
            format!(
                "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop }}\n- {{ id: c, type: test.noop }}\nedges:\n  \
                 - {{ from: a, to: b }}\n  - {{ from: a, to: c }}\n  - {{ from: b, to: c }}\n"
            ),
        ),
        (
            "lines, a list, and comments",
            format!(
                "{FLOW}nodes:\n  {A}  - id: b\n    after: a # why\n    type: test.noop\n  - after:\n      - a\n      - b\n    id: c\n    \
                 type: test.noop\n    # last\n\nedges: # all\n  # first\n  -   \"b -> c: end\"\n"
            ),
            format!(
                "{FLOW}nodes:\n  {A}  - id: b\n    # why\n    type: test.noop\n  - id: c\n    type: test.noop\n    # last\n\n\
                 edges: # all\n  -   {{ from: a, to: b }}\n  -   {{ from: a, to: c }}\n  -   {{ from: b, to: c }}\n  # first\n  \
                 -   {{ from: b, to: c, on: end }}\n"
            ),
        ),
        (
            "a list in brackets",
            format!(
                "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop, after: a }}\nedges: [\n  \"a -> b: end\", # end\n]\n"
            ),
            format!(
                "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop }}\nedges: [\n  {{ from: a, to: b }},\n  \
                 {{ from: a, to: b, on: end }}, # end\n]\n"
            ),
        ),
        (
            "an empty list, before the nodes",
            format!("{FLOW}edges: []\nnodes:\n{A}- {{ id: b, type: test.noop, after: a }}\n"),
            format!("{FLOW}edges: [{{ from: a, to: b }}]\nnodes:\n{A}- {{ id: b, type: test.noop }}\n"),
        ),
        (
            "nodes before other members, with a text in lines, and no line break at the end",
            format!(
                "nodes:\n{A}- id: b\n  type: test.noop\n  after: a\n  input:\n    value: |\n      edges:\n      x\n\n# The flow\n{}",
                FLOW.trim_end()
            ),
            format!(
                "nodes:\n{A}- id: b\n  type: test.noop\n  input:\n    value: |\n      edges:\n      x\nedges:\n  - {{ from: a, to: b }}\n\n\
                 # The flow\n{}",
                FLOW.trim_end()
            ),
        ),
        (
            "the last line, without a line break",
            format!("{FLOW}nodes:\n{A}- id: b\n  type: test.noop\n  after: a"),
            format!("{FLOW}nodes:\n{A}- id: b\n  type: test.noop\nedges:\n  - {{ from: a, to: b }}"),
        ),
        (
            "carriage returns",
            format!("{FLOW}nodes:\n{A}- id: b\n  type: test.noop\n  after: a\n").replace('\n', "\r\n"),
            format!("{FLOW}nodes:\n{A}- id: b\n  type: test.noop\nedges:\n  - {{ from: a, to: b }}\n")
                .replace('\n', "\r\n"),
        ),
        (
            "bodies",
            format!(
                "{FLOW}nodes:\n{A}- id: each\n  type: test.each\n  after: a\n  input: {{ list: [] }}\n  body:\n    nodes:\n      \
                 - {{ id: x, type: test.noop }}\n      - {{ id: y, type: test.noop, after: x }}\n- id: other\n  type: test.each\n  \
                 input: {{ list: [] }}\n  body: {{ nodes: [{{ id: p, type: test.noop }}, {{ id: q, type: test.noop, after: p }}] }}\n  \
                 after: each\n"
            ),
            format!(
                "{FLOW}nodes:\n{A}- id: each\n  type: test.each\n  input: {{ list: [] }}\n  body:\n    nodes:\n      \
                 - {{ id: x, type: test.noop }}\n      - {{ id: y, type: test.noop }}\n    edges:\n      - {{ from: x, to: y }}\n\
                 - id: other\n  type: test.each\n  input: {{ list: [] }}\n  \
                 body: {{ nodes: [{{ id: p, type: test.noop }}, {{ id: q, type: test.noop }}], edges: [{{ from: p, to: q }}] }}\n\
                 edges:\n  - {{ from: a, to: each }}\n  - {{ from: each, to: other }}\n"
            ),
        ),
        (
            "JSON",
            r#"{"flow":{"name":"f"},"nodes":[{"id":"a","type":"test.noop"},{"id":"b","after":["a"],"type":"test.noop"},
                {"id":"c","type":"test.noop","after":"b"}]}"#
                .to_owned(),
            r#"{"flow":{"name":"f"},"nodes":[{"id":"a","type":"test.noop"},{"id":"b","type":"test.noop"},
                {"id":"c","type":"test.noop"}], "edges": [{"from":"a","to":"b"}, {"from":"b","to":"c"}]}"#
                .to_owned(),
        ),
    ] {
        let found = rewritten(&short, EdgeForm::Long);
        assert_eq!(found.text, expected, "{name}");
        assert_eq!(found.kept, [], "{name}");
        rewritten(&found.text, EdgeForm::Short);
    }
}

/// A key with a comment inside stays, and the keys before it, because their edges precede its own. The command names them.
#[test]
fn keys_with_comments_stay() {
    let text = format!(
        "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop, after: a }}\n- id: c\n  type: test.noop\n  after: [a, # why\n    b]\n\
         - {{ id: d, type: test.noop, after: c }}\nedges:\n- b -> d # end\n"
    );
    let found = rewritten(&text, EdgeForm::Long);
    let expected = text.replace(", after: c }", " }").replace("- b -> d", "- { from: c, to: d }\n- { from: b, to: d }");
    assert_eq!((found.text, found.changed), (expected, 2));
    assert_eq!(found.kept, [4, 7].map(|line| Kept { line, new_line: line }));
    // Lines of the new text differ behind an item that became two.
    let text = format!(
        "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop }}\n- {{ id: c, type: test.noop }}\nedges:\n- a -> b -> c\n\
         - >-\n  a -> c\n"
    );
    let found = rewritten(&text, EdgeForm::Long);
    assert_eq!(found.kept, [Kept { line: 9, new_line: 10 }], "{}", found.text);
}

/// Edges of fragments are rewritten, those of uses in fragments among them. A label of a node whose type a parameter
/// gives stays.
#[test]
fn fragments_are_rewritten() {
    let text = "flow: { name: f }\n\
        fragments:\n  \
          outer: # one\n    \
            params: { kind: {}, when: { type: boolean } }\n    \
            nodes:\n      \
              - { id: check-it, type: test.if, input: { condition: \"params.when\" } }\n      \
              - { id: any, type: \"{{ params.kind }}\", input: { condition: \"params.when\" }, after: check-it }\n      \
              - { id: last, type: test.noop }\n      \
              - id: sub\n        use: inner\n        after: [last]\n    \
            edges:\n      \
              - \"check-it -> last: then\" # then\n      \
              - \"any -> last: else\"\n    \
            output: \"{{ last }}\"\n  \
          inner: { nodes: [{ id: p, type: test.noop }, { id: q, type: test.noop, after: p }] }\n\
        nodes:\n\
        - { id: one, use: outer, with: { kind: test.if, when: true } }\n\
        - { id: two-b, use: outer, after: one, with: { kind: test.if, when: false } }\n";
    let found = rewritten(text, EdgeForm::Long);
    let then = "{ equals: { var: \"nodes[\\\"check-it\\\"].condition\", value: true } }";
    let expected = text
        .replace(", after: check-it }", " }")
        .replace("        after: [last]\n", "")
        .replace(
            "      - \"check-it -> last: then\" # then\n",
            &format!(
                "      - {{ from: check-it, to: any }}\n      - {{ from: last, to: sub }}\n      \
                 - {{ from: check-it, to: last, when: {then} }} # then\n"
            ),
        )
        .replace("{ id: q, type: test.noop, after: p }]", "{ id: q, type: test.noop }], edges: [{ from: p, to: q }]")
        .replace("use: outer, after: one,", "use: outer,")
        + "edges:\n  - { from: one, to: two-b }\n";
    assert_eq!(found.text, expected);
    assert_eq!(found.kept, [Kept { line: 14, new_line: 15 }], "the port of a node of any type");
    let short = rewritten(&found.text, EdgeForm::Short);
    assert!(!short.text.contains("from:"), "{}", short.text);
    assert_eq!(long(&short.text), found.text);
}

/// A fragment that nothing uses is rewritten as far as the types of its nodes are known.
#[test]
fn unused_fragments_are_rewritten() {
    let text = "flow: { name: f }\nfragments:\n  part:\n    nodes:\n    - { id: a, type: test.noop }\n    \
                - { id: b, type: test.unknown, after: a }\n    edges: [\"a -> b: error\", \"b -> a: else\"]\n\
                nodes: [{ id: c, type: test.noop }]\n";
    let expected = text
        .replace(", after: a", "")
        .replace("[\"a -> b: error\",", "[{ from: a, to: b }, { from: a, to: b, on: error },");
    let found = rewritten(text, EdgeForm::Long);
    assert_eq!((found.text, found.kept), (expected, vec![Kept { line: 7, new_line: 7 }]));
}

/// The order of the edges of one body is a part of the graph; the order among bodies is not.
#[test]
fn the_order_in_a_body_counts() {
    let body = |edges: &str| {
        format!("body: {{ nodes: [{{ id: x, type: test.noop }}, {{ id: y, type: test.noop }}], edges: [{edges}] }}")
    };
    let text = |first: &str, edges: &str, inner: &str| {
        format!(
            "{FLOW}nodes:\n{A}- {{ id: b, type: test.noop{first} }}\n- {{ id: each, type: test.each, input: {{ list: [] }}, {} }}\n\
             edges: [{edges}]\n",
            body(inner)
        )
    };
    let graph = |first: &str, edges: &str, inner: &str| load(&text(first, edges, inner));
    let before = graph(", after: a", "a -> each", "x -> y");
    assert!(is_same(&before, &graph("", "a -> b, a -> each", "x -> y")));
    assert!(!is_same(&before, &graph("", "a -> each, a -> b", "x -> y")));
    assert!(!is_same(&before, &graph("", "a -> b, a -> each", "\"x -> y: end\"")));
    assert!(!is_same(&before, &graph("", "a -> b", "x -> y")));
}

/// A random graph: for each node, the nodes before it, whether `after` names them, and whether it owns a body.
fn nodes() -> impl Strategy<Value = Vec<(Vec<usize>, bool, bool)>> {
    let node = (proptest::collection::btree_set(0..8_usize, 0..3), any::<bool>(), any::<bool>());
    let node = node.prop_map(|(before, by_after, owns)| (before.into_iter().collect(), by_after, owns));
    proptest::collection::vec(node, 1..8)
}

/// Writes a graph. `styles` chooses between nodes in braces and in lines.
fn written(
    nodes: &[(Vec<usize>, bool, bool)],
    prefix: &str,
    indent: &str,
    styles: u8,
    inner: Option<&[(Vec<usize>, bool, bool)]>,
) -> String {
    let (mut text, mut edges) = (format!("{indent}nodes:\n"), String::new());
    for (number, (before, by_after, owns)) in nodes.iter().enumerate() {
        let before: Vec<_> =
            before.iter().filter(|before| **before < number).map(|before| format!("{prefix}{before}")).collect();
        let body = inner.filter(|_| *owns).map(|inner| {
            let body = written(inner, &format!("{prefix}{number}_"), &format!("{indent}      "), styles, None);
            format!("{indent}    type: test.each\n{indent}    input: {{ list: [] }}\n{indent}    body:\n{body}")
        });
        let after = (*by_after && !before.is_empty()).then(|| before.join(", "));
        match (body, styles & (1 << (number % 8)) == 0) {
            (None, true) => {
                let after = after.map(|after| format!(", after: [{after}]")).unwrap_or_default();
                writeln!(text, "{indent}  - {{ id: {prefix}{number}, type: test.noop{after} }} # {number}").unwrap();
            }
            (body, _) => {
                let after = after.map(|after| format!("{indent}    after: [{after}] # after\n")).unwrap_or_default();
                let rest = body.unwrap_or_else(|| format!("{indent}    type: test.noop\n"));
                write!(text, "{indent}  - id: {prefix}{number}\n{after}{rest}").unwrap();
            }
        }
        for before in before.iter().filter(|_| !by_after) {
            writeln!(edges, "{indent}  - {before} -> {prefix}{number}").unwrap();
        }
    }
    if edges.is_empty() { text } else { format!("{text}{indent}edges:\n{edges}") }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 64, ..Default::default() })]

    /// The long form of any flow with bodies and a fragment has no `after` and no texts; the short form of it has no maps. All
    /// have the same graph, and the long form comes back.
    #[test]
    fn random_flows_are_the_same_in_both_forms(outer in nodes(), inner in nodes(), part in nodes(), styles in any::<u8>()) {
        let fragment = written(&part, "p", "    ", styles, Some(&inner));
        let graph = written(&outer, "n", "", styles, Some(&inner));
        let text = format!(
            "flow: {{ name: random }}\nfragments:\n  part:\n{fragment}{graph}"
        ).replacen("\nnodes:\n", "\nnodes:\n  - { id: use-it, use: part }\n", 1);
        let long = rewritten(&text, EdgeForm::Long);
        prop_assert!(!long.text.contains("after:") && !long.text.contains("->"), "{}", long.text);
        prop_assert_eq!(long.kept, []);
        prop_assert_eq!(long.text.matches("# after").count(), text.matches("# after").count());
        let short = rewritten(&long.text, EdgeForm::Short);
        prop_assert!(!short.text.contains("from:"), "{}", short.text);
        prop_assert_eq!(rewritten(&short.text, EdgeForm::Long).text, long.text);
    }
}
