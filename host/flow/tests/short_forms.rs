//! The short forms of a flow give the same graph as the long ones.

use std::{fmt::Write as _, sync::Arc};

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{
    Diagnostic, NoContext, Severity, Source, from_defaults,
    graph::{Graph, Retry, RetryOn},
    rewrite::{EdgeForm, rewrite_edges},
};
use proptest::prelude::*;

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (pack, text) in [("00", include_str!("catalog.yaml")), ("01", include_str!("http-pack.yaml"))] {
        catalog.add(Manifest::parse(text).unwrap(), &Digest(pack.into()));
    }
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

/// Each node gets the defaults that it does not set itself. Grants reach only types of this program that ask for them.
#[test]
fn defaults_reach_nodes_that_set_none_of_their_own() {
    let graph = load(
        "flow:\n  name: defaults\n  defaults:\n    \
         grants: { http: ['https://a.example'], secrets: [{ name: token }], files: { read: ['data/**'] } }\n    \
         policy: { timeoutMs: 1000, totalTimeoutMs: 9000, continueOnError: true, retry: { maxAttempts: 3, factor: 4 } }\n\
         nodes:\n\
         - { id: all, type: http.request, input: { url: 'https://a.example/v1' } }\n\
         - id: own\n  type: http.request\n  input: { url: 'https://b.example' }\n  \
           grants: { http: ['https://b.example'] }\n  \
           policy: { timeoutMs: 5, continueOnError: false, retry: { maxAttempts: 2 } }\n\
         - { id: some, type: http.cached, grants: { http: [] }, policy: { totalTimeoutMs: 7 } }\n\
         - { id: third, type: test.send, grants: { http: ['https://c.example'] } }\n\
         - id: each\n  type: test.each\n  input: { list: [] }\n  \
           body: { nodes: [{ id: inner, type: http.cached }], edges: [] }\n",
    );
    let shown: Vec<_> = graph
        .nodes
        .iter()
        .map(|node| {
            let policy = &node.policy;
            let total = policy.total_timeout_ms.unwrap_or_default();
            let retry = (policy.retry.max_attempts, policy.retry.factor);
            let grants = serde_json::to_string(&*node.grants).unwrap();
            (grants, policy.timeout_ms, total, policy.continue_on_error, retry)
        })
        .collect();
    let (http, token, files) =
        (r#""http":["https://a.example"]"#, r#""secrets":[{"name":"token"}]"#, r#""files":{"read":["data/**"]}"#);
    let expected = [
        (format!("{{{http},{token}}}"), 1000, 9000, true, (3, 4.0)),
        (r#"{"http":["https://b.example"]}"#.to_owned(), 5, 9000, false, (2, 4.0)),
        (format!(r#"{{"http":[],{files}}}"#), 1000, 7, true, (3, 4.0)),
        (r#"{"http":["https://c.example"]}"#.to_owned(), 1000, 9000, true, (3, 4.0)),
        ("{}".to_owned(), 1000, 9000, true, (3, 4.0)),
        (format!("{{{http},{token},{files}}}"), 1000, 9000, true, (3, 4.0)),
    ];
    assert_eq!(shown, expected);
    let labels: Vec<_> = graph.nodes.iter().map(|node| from_defaults(node).unwrap().join(" ")).collect();
    let policy = "policy.timeoutMs policy.totalTimeoutMs policy.continueOnError policy.retry";
    let expected = [
        format!("grants.http grants.secrets {policy}"),
        "policy.totalTimeoutMs".to_owned(),
        "grants.files policy.timeoutMs policy.continueOnError policy.retry".to_owned(),
        policy.to_owned(),
        policy.to_owned(),
        format!("grants.http grants.secrets grants.files {policy}"),
    ];
    assert_eq!(labels, expected);
    assert_eq!(from_defaults(&load(NODES).nodes[0]), None);
}

/// Default grants cost as much as if each node had them in its text, so they have the limit of a text.
#[test]
fn default_grants_are_limited_by_the_number_of_nodes() {
    let origins: String = (0..2_000).map(|n| format!("'https://h{n}.example', ")).collect();
    let text = |nodes: usize| {
        let nodes: String =
            (0..nodes).map(|n| format!("- {{ id: n{n}, type: http.cached, grants: {{ files: {{}} }} }}\n")).collect();
        format!("flow: {{ name: wide, defaults: {{ grants: {{ http: [{origins}] }} }} }}\nnodes:\n{nodes}")
    };
    load(&text(60));
    let source = Source { name: "wide.yaml".into(), text: text(10_000) };
    let checked = flowcell_flow::load(&source, &catalog(), &NoContext);
    assert_eq!(checked.diagnostics[0].code, "too_large", "{}", printed(&checked.diagnostics));
}

/// Nodes share the rules of the default `retry`. Those that a node's own `retry` completes share their codes with them.
#[test]
fn nodes_share_the_default_rules_of_a_retry() {
    let graph = load(
        "flow:\n  name: shared\n  defaults:\n    policy: { retry: { maxAttempts: 3, rules: \
         [{ on: [down, 'acme_*'], backoffMs: 7 }, { on: [late], maxAttempts: 9 }] } }\n\
         nodes:\n\
         - { id: plain, type: test.noop }\n\
         - { id: timed, type: test.noop, policy: { timeoutMs: 5 } }\n\
         - { id: own, type: test.noop, policy: { retry: { maxAttempts: 2, factor: 4 } } }\n\
         - { id: off, type: test.noop, policy: { retry: { rules: [] } } }\n\
         - { id: other, type: test.noop, policy: { retry: { rules: [{ on: [down] }] } } }\n",
    );
    let rules = |node: usize| &graph.nodes[node].policy.retry.rules;
    let codes = |node: usize, rule: usize| match &rules(node)[rule].on {
        RetryOn::Codes(codes) => codes,
        on => panic!("{on:?}"),
    };
    assert!(Arc::ptr_eq(rules(0), rules(1)));
    assert!((0..2).all(|rule| Arc::ptr_eq(codes(0, rule), codes(2, rule))));
    let settings = |rule: &Retry| (rule.max_attempts, rule.factor, rule.backoff_ms);
    let shown: Vec<Vec<_>> = (0..5).map(|node| rules(node).iter().map(settings).collect()).collect();
    let default = vec![(3, 2.0, 7), (9, 2.0, 500)];
    let expected = [default.clone(), default, vec![(2, 4.0, 7), (9, 4.0, 500)], vec![], vec![(3, 2.0, 500)]];
    assert_eq!(shown, expected);
}

/// Texts about a flow list the default rules for each node, so their size is limited by the number of nodes.
#[test]
fn default_rules_are_limited_by_the_number_of_nodes() {
    let codes = |rule: usize| (0..64).map(|n| format!("code{rule}-{n:050}, ")).collect::<String>();
    let rules: String = (0..16).map(|rule| format!("{{ on: [{}], maxAttempts: 5 }}, ", codes(rule))).collect();
    let text = |nodes: usize| {
        let nodes: String = (0..nodes)
            .map(|n| format!("- {{ id: n{n}, type: test.noop, policy: {{ retry: {{ maxAttempts: 2 }} }} }}\n"))
            .collect();
        format!("flow: {{ name: ruled, defaults: {{ policy: {{ retry: {{ rules: [{rules}] }} }} }} }}\nnodes:\n{nodes}")
    };
    assert_eq!(load(&text(200)).nodes[199].policy.retry.rules.len(), 16);
    let source = Source { name: "ruled.yaml".into(), text: text(9_000) };
    let checked = flowcell_flow::load(&source, &catalog(), &NoContext);
    let [found] = checked.diagnostics.iter().filter(|found| found.severity == Severity::Error).collect::<Vec<_>>()[..]
    else {
        panic!("{}", printed(&checked.diagnostics));
    };
    assert_eq!(found.code, "too_large");
    assert!(found.message.starts_with("the default retry rules have "), "{found}");
    assert!(found.message.ends_with(" bytes, which is too much for 9000 nodes"), "{found}");
}

fn rewritten(text: &str, form: EdgeForm) -> String {
    let source = Source { name: "flow.yaml".into(), text: text.to_owned() };
    rewrite_edges(&source, form, &load(text)).text
}

/// Only the edges change. Comments, other text and the order stay, and edges that the other form cannot express.
#[test]
fn rewriting_keeps_comments_and_the_graph() {
    let long = format!(
        "# Top\n{NODES}- id: each # owner\n  type: test.each\n  input: {{ list: [] }}\n  body:\n    nodes:\n    \
         - {{ id: x, type: test.noop }}\n    - {{ id: y, type: test.noop, after: x }}\n    - {{ id: z, type: test.noop }}\n    \
         edges:\n    - from: y\n      to: z   # inner\n\
         edges: # all\n  - {{ from: a, to: b }} # first\n\n  # Between\n  -   {{ to: c, \"from\": 'b', on: error}}\n  \
         - {{ from: check-it, to: a, when: {{ equals: {{ var: 'nodes[\"check-it\"].condition', value: false }} }} }}\n  \
         - {{ from: route, to: a, when: {{ equals: {{ var: route.route, value: \"it's: #1\" }} }} }}\n  \
         - {{ from: route, to: b, when: {{ equals: {{ var: route.route, value: error }} }} }}\n  \
         - {{ from: ask, to: c, when: \"ask.response.choice == 'go'\" }}\n  \
         - {{ from: ask, # why\n      to: b }}\n  - a -> each\n  - {{ from: each, to: c, on: end }} # é\n"
    );
    let short = rewritten(&long, EdgeForm::Short);
    let expected = long
        .replace("from: y\n      to: z   # inner", "y -> z   # inner")
        .replace("{ from: a, to: b } # first", "a -> b # first")
        .replace("{ to: c, \"from\": 'b', on: error}", "\"b -> c: error\"")
        .replace(
            "{ from: check-it, to: a, when: { equals: { var: 'nodes[\"check-it\"].condition', value: false } } }",
            "\"check-it -> a: else\"",
        )
        .replace(
            "{ from: route, to: a, when: { equals: { var: route.route, value: \"it's: #1\" } } }",
            "\"route -> a: it's: #1\"",
        )
        .replace("{ from: each, to: c, on: end }", "\"each -> c: end\"");
    assert_eq!(short, expected);
    assert_same(&short, &long);
    assert_same(&rewritten(&short, EdgeForm::Long), &long);
    let chain = format!("{NODES}edges:\n  - a -> b -> c # end\n  - \"ask -> a: go\"\n");
    let long = rewritten(&chain, EdgeForm::Long);
    let expected = "edges:\n  - { from: a, to: b }\n  - { from: b, to: c } # end\n  \
                    - { from: ask, to: a, when: { equals: { var: ask.response.choice, value: go } } }\n";
    assert_eq!(long, format!("{NODES}{expected}"));
    assert_same(&chain, &long);
}

/// Items whose short form would give another graph, or none, keep their form and are named. The others are rewritten.
#[test]
fn items_that_have_no_short_form_are_named() {
    let route = "{ from: route, to: a, when: { equals: { value: go, var: route.route } } }";
    for (item, kept, short) in [
        (route, vec![10], route),
        ("{ from: a, to: b }\n- { to: b, from: a }", vec![10, 11], "{ from: a, to: b }\n- { to: b, from: a }"),
        ("!!map { from: a, to: b }", vec![10], "!!map { from: a, to: b }"),
        ("!!map\n  from: a\n  to: b", vec![11], "!!map\n  from: a\n  to: b"),
        ("{ from: a, to: b, on: error }", vec![], "\"a -> b: error\""),
    ] {
        let text = |item: &str, last: &str| format!("{NODES}edges:\n- {item}\n- {last}\n");
        let source = Source { name: "flow.yaml".into(), text: text(item, "{ from: b, to: c }") };
        let found = rewrite_edges(&source, EdgeForm::Short, &load(&source.text));
        let lines: Vec<_> = found.kept.iter().map(|kept| kept.line).collect();
        assert_eq!((&found.text, &lines), (&text(short, "b -> c"), &kept), "{item}");
        assert_same(&found.text, &source.text);
    }
}

/// A flow may have thousands of edges in one line. Each is rewritten, and comes back.
#[test]
fn edges_in_one_line_are_rewritten() {
    let nodes: String = (0..150).map(|n| format!("- {{ id: n{n}, type: test.noop }}\n")).collect();
    let pairs = || (0..150).flat_map(|from| (from + 1..150).rev().map(move |to| (from, to)));
    let long: Vec<_> = pairs().map(|(from, to)| format!("{{ from: n{from}, to: n{to} }}")).collect();
    let short: Vec<_> = pairs().map(|(from, to)| format!("n{from} -> n{to}")).collect();
    let text = |edges: &[String]| format!("flow: {{ name: dense }}\nnodes:\n{nodes}edges: [{}]\n", edges.join(", "));
    let written = rewritten(&text(&long), EdgeForm::Short);
    assert_eq!(written, text(&short));
    assert_eq!(rewritten(&written, EdgeForm::Long), text(&long));
}

/// Neighbours that follow each other become a chain. A condition, a comment, a blank line, another list and a long line end it.
#[test]
fn neighbours_become_chains() {
    let nodes = format!("{NODES}- {{ id: {}, type: test.noop }}\n", "n".repeat(64));
    let wide = "n".repeat(64);
    for (long, short) in [
        ("\n- { from: a, to: b }\n- {from: b, to: c}\n- { from: c, to: route }\n", "\n- a -> b -> c -> route\n"),
        ("\n- a -> b\n- b -> c # why\n- c -> route\n", "\n- a -> b -> c # why\n- c -> route\n"),
        ("\n- a -> b\n# why\n- { from: b, to: c }\n", "\n- a -> b\n# why\n- b -> c\n"),
        ("\n- { from: a, to: b }\n\n- { from: b, to: c }\n", "\n- a -> b\n\n- b -> c\n"),
        ("\n- { from: a, to: b }\n- { from: b, to: c, on: error }\n", "\n- a -> b\n- \"b -> c: error\"\n"),
        ("\n- { from: a, to: b, on: end }\n- { from: b, to: c }\n", "\n- \"a -> b: end\"\n- b -> c\n"),
        ("\n- { from: a, to: b }\n- { from: a, to: c }\n", "\n- a -> b\n- a -> c\n"),
        ("[{ from: a, to: b }, { from: b, to: c }, \"c->ask\"]\n", "[a -> b -> c -> ask]\n"),
        ("[\"a -> b\", 'b -> c']\n", "[\"a -> b -> c\"]\n"),
        // A pass of a cycle is no part of a chain: the number belongs to the edge.
        (
            "\n- { from: a, to: b }\n- { from: b, to: a, when: flow.input.again, maxPasses: 3 }\n",
            "\n- a -> b\n- { from: b, to: a, when: flow.input.again, maxPasses: 3 }\n",
        ),
        // Nor is an edge that only orders its nodes.
        (
            "\n- { from: a, to: b }\n- { from: b, to: c, inbound: false }\n- { from: c, to: route }\n",
            "\n- a -> b\n- { from: b, to: c, inbound: false }\n- c -> route\n",
        ),
        (
            "\n- { from: a, to: b, inbound: false }\n- { from: b, to: c }\n",
            "\n- { from: a, to: b, inbound: false }\n- b -> c\n",
        ),
        (
            &format!("\n- {wide} -> a -> b\n- b -> check-it -> c\n- c -> ask\n- ask -> route\n"),
            &format!("\n- {wide} -> a -> b -> check-it -> c -> ask\n- ask -> route\n"),
        ),
    ] {
        let (long, short) = (format!("{nodes}edges: {long}"), format!("{nodes}edges: {short}"));
        let written = rewritten(&long, EdgeForm::Short);
        assert_eq!(written, short);
        assert_eq!(rewritten(&short, EdgeForm::Short), short, "a second time changes nothing");
        assert_same(&written, &long);
        assert_same(&rewritten(&short, EdgeForm::Long), &long);
    }
}

#[test]
fn rewriting_json_gives_json() {
    let nodes = r#"{ "flow": { "name": "json" }, "nodes": [{ "id": "a", "type": "test.noop" }, { "id": "b", "type": "test.noop" },
        { "id": "c", "type": "test.noop" }],"#;
    let long = format!(
        r#"{nodes} "edges": [{{"from":"a","to":"b"}}, {{"from":"b","to":"c"}}, {{"from":"a","to":"c","on":"error"}}] }}"#
    );
    let short = rewritten(&long, EdgeForm::Short);
    assert_eq!(short, format!(r#"{nodes} "edges": ["a -> b -> c", "a -> c: error"] }}"#));
    assert_eq!(rewritten(&short, EdgeForm::Long), long);
    let unchained = format!(r#"{nodes} "edges": ["a -> b", "b -> c", "a -> c: error"] }}"#);
    assert_eq!(rewritten(&unchained, EdgeForm::Long), long);
    assert!(serde_json::from_str::<serde_json::Value>(&short).is_ok());
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
        // The text of the long form comes back, except for `on: success`, which is the default.
        let long = format!("{long}edges:\n{long_edges}").replace(", on: success", "");
        let short = rewritten(&long, EdgeForm::Short);
        assert_same(&short, &long);
        prop_assert!(!short.contains("from:"), "{}", short);
        prop_assert_eq!(rewritten(&short, EdgeForm::Long), long);
    }
}
