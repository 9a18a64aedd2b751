//! Completions in broken and hostile texts, and at places that have rules of their own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::{
    apply,
    kit::{CATALOG, EXAMPLES, Numbers, at_cursor, diagnose, document},
};

/// Returns the labels that are offered at `§`.
fn offered(text: &str) -> Vec<String> {
    let (text, at) = at_cursor(text);
    complete(&document(&text), at).into_iter().map(|completion| completion.label).collect()
}

#[test]
fn broken_texts_are_completed() {
    let starts = |text: &str, expected: &[&str]| {
        let found = offered(text);
        assert_eq!(found.iter().map(String::as_str).take(expected.len()).collect::<Vec<_>>(), expected, "{text}");
    };
    starts("§", &["flow", "nodes", "edges"]);
    starts("flow: { name: a }\nno§", &["nodes"]);
    starts("flow: { name: a }\nnodes:\n  - §", &["id", "type"]);
    starts("flow: { name: a }\nnodes:\n  - id: x\n    type: control.no§", &["control.noop"]);
    starts("nodes: [{ id: x, type: control.if, input: { § } }]", &["condition"]);
    starts(
        "nodes:\n  - id: x\n    type: control.foreach\n    input:\n      onItemError: §\n  - id: y",
        &["fail", "collect"],
    );
    starts(
        "flow: { name: a, input: { who: { first: Ada } } }\nnodes: [{ id: x, type: control.noop, input: { value: \"{{ flow.input.§",
        &["who"],
    );
    starts(
        "flow: { name: a, input: { who: { first: Ada } } }\nnodes: [{ id: x, type: control.noop, input: { value: \"{{ flow.input.who.§ }}\" } }]",
        &["first"],
    );
    starts(
        "nodes:\n  - { id: a, type: control.if, input: { condition: true } }\n  - { id: b, type: control.noop, after: a, when: § }",
        &["a"],
    );
    starts(
        "nodes:\n  - { id: a, type: control.if, input: { condition: true } }\n  - { id: b, type: control.noop }\nedges:\n  - \"a -> b: §\"",
        &["then", "else", "error"],
    );
    starts(
        "nodes:\n  - { id: a, type: control.noop }\n  - { id: b, type: control.noop }\nedges:\n  - { from: a, to: § }",
        &["b"],
    );
    starts("flow: { name: a }\nnodes:\n  - { id: c, type: control.subflow, input: { name: hel§ } }", &["hello"]);
    assert!(offered("# comm§ent\nflow: { name: a }").is_empty());
}

#[test]
fn the_scheme_of_a_webhook_decides_its_keys() {
    let with = |webhook: &str| {
        let trigger = format!("{{ id: t, webhook: {{ {webhook} }} }}");
        offered(&format!("flow: {{ name: a, triggers: [{trigger}] }}\nnodes: [{{ id: x, type: control.noop }}]\n"))
    };
    // Every webhook may say how it is answered.
    let with_keys = |webhook: &str| {
        let mut keys = with(webhook);
        assert_eq!(keys.extract_if(.., |key| key.starts_with("respond")).count(), 2, "{webhook}");
        keys
    };
    assert_eq!(with_keys("secret: k, §"), ["scheme"]);
    assert_eq!(with_keys("secret: k, scheme: github, §"), ["id"]);
    assert_eq!(with_keys("secret: k, scheme: basic, §"), ["user", "id"]);
    let hmac = ["header", "algorithm", "encoding", "prefix", "signed", "timestamp", "id"];
    assert_eq!(with_keys("secret: k, scheme: hmac, §"), hmac);
    assert_eq!(with("secret: k, scheme: §")[..2], ["standard", "github"]);
}

/// Conditions are compared with the routes of a switch, the choices of a gate, and the values that a schema lists.
#[test]
fn values_that_a_condition_compares_are_offered() {
    let with = |when: &str| {
        offered(&format!(
            "flow: {{ name: a, inputSchema: {{ type: object, properties: {{ size: {{ enum: [big, small] }} }} }} }}\nnodes:\n  - {{ id: go, \
             type: control.switch, input: {{ cases: [{{ route: inland, when: 'true' }}, {{ route: border, when: 'true' }}] }} \
             }}\n  - {{ id: ask, type: control.gate, input: {{ prompt: Q, choices: [a, b] }}, after: go }}\n  - {{ id: x, type: \
             control.noop, after: ask, when: {when} }}\n"
        ))
    };
    let routes = ["inland", "border", "default"];
    assert_eq!(with("{ equals: { var: go.route, value: § } }"), routes);
    assert_eq!(with("{ equals: { var: go.route, value: '§' } }"), routes);
    assert_eq!(with("{ in: { var: go.route, values: [inland, bo§] } }"), ["border"]);
    assert_eq!(with("{ not: { equals: { var: ask.response.choice, value: § } } }"), ["a", "b"]);
    assert_eq!(with("{ equals: { var: flow.input.size, value: § } }"), ["big", "small"]);
    assert_eq!(with("go.route == \"§\""), routes);
    assert_eq!(with("\"'§' != nodes.ask.response.choice\""), ["a", "b"]);
    assert_eq!(with("'go.route == §'")[..3], routes);
    assert!(with("{ equals: { var: go.value, value: § } }").is_empty());
    assert!(with("go.route ~ \"§\"").is_empty());
    let (text, at) = at_cursor(
        "nodes: [{ id: c, type: control.if, input: { condition: true } }, { id: x, type: control.noop, after: c, when: 'c.condition == §' }]",
    );
    assert_eq!(complete(&document(&text), at)[0].edit.text, "true");
}

#[test]
fn a_node_that_waits_for_its_body_is_offered_no_timeout_of_its_own() {
    let with = |node: &str| {
        offered(&format!(
            "flow: {{ name: a }}\nfragments: {{ f: {{ nodes: [{{ id: y, type: control.noop }}] }} }}\nnodes: [{{ id: x, {node}, policy: \
             {{ § }} }}]\n"
        ))
    };
    let whole = ["totalTimeoutMs", "continueOnError", "retry"];
    assert_eq!(with("type: control.scope, body: { nodes: [{ id: z, type: control.noop }] }"), whole);
    assert_eq!(with("use: f"), whole);
    assert_eq!(with("type: control.noop")[0], "timeoutMs");
}

#[test]
fn the_keys_of_a_granted_secret_are_offered() {
    let with = |grants: &str| {
        offered(&format!("flow: {{ name: a }}\nnodes: [{{ id: x, type: http.request, grants: {{ {grants} }} }}]\n"))
    };
    assert_eq!(with("secrets: [{ § }]"), ["name", "header", "prefix", "for"]);
    assert_eq!(with("secrets: [{ name: k, § }]"), ["header", "prefix", "for"]);
    assert_eq!(with("secrets: { § }"), ["name", "header", "prefix", "for"]);
    assert_eq!(with("§"), ["http", "secrets", "credentials"]);
}

const FRAGMENTS: &str = "flow: { name: a, vars: { rate: 2, fee: \"{{ flow.input.x }}\" } }
fragments:
  notify:
    params: { channel: { type: string }, urgent: { enum: [low, high], default: low } }
    nodes:
      - { id: line, type: data.template, input: { template: \"{{ params.channel }}\" } }
      - { id: post, type: control.noop, after: line, input: { value: INSIDE } }
nodes:
  - { id: pay, type: control.noop, input: { value: OUTSIDE } }
  - { id: tell, use: USE, after: pay, with: { ARGUMENTS } }
";

/// A fragment is a graph of its own, with its parameters, and its uses take them as arguments.
#[test]
fn vars_fragments_and_their_uses_are_completed() {
    let with = |place: &str, word: &str| {
        let mut text = FRAGMENTS.replace(place, word);
        for (other, word) in [("INSIDE", "1"), ("OUTSIDE", "1"), ("USE", "notify"), ("ARGUMENTS", "channel: ops")] {
            text = text.replace(other, word);
        }
        offered(&text)
    };
    let has = |found: &[String], names: &[&str]| names.iter().all(|name| found.iter().any(|found| found == name));
    let inside = with("INSIDE", "\"{{ § }}\"");
    assert!(has(&inside, &["line", "params", "vars", "flow"]) && !has(&inside, &["pay"]), "{inside:?}");
    let outside = with("OUTSIDE", "\"{{ § }}\"");
    assert!(has(&outside, &["vars"]) && !has(&outside, &["line"]) && !has(&outside, &["params"]), "{outside:?}");
    assert_eq!(with("OUTSIDE", "\"{{ vars.§ }}\""), ["rate", "fee"]);
    assert_eq!(with("INSIDE", "\"{{ params.§ }}\""), ["channel", "urgent"]);
    assert_eq!(with("USE", "§"), ["notify"]);
    assert_eq!(with("ARGUMENTS", "§"), ["channel", "urgent"]);
    assert_eq!(with("ARGUMENTS", "channel: ops, urgent: §"), ["low", "high"]);
    let values = with("ARGUMENTS", "channel: §");
    assert!(has(&values, &["{{ pay }}", "{{ vars }}"]), "{values:?}");
    let keys = offered(&FRAGMENTS.replace("USE, after: pay, with: { ARGUMENTS }", "notify, §").replace("INSIDE", "1"));
    assert!(keys[0] == "with" && !has(&keys, &["input"]) && !has(&keys, &["type"]), "{keys:?}");
}

/// Completions in a quoted text are escaped.
#[test]
fn functions_are_written_for_the_quotes_around_them() {
    for (quote, escaped) in [("'", "replace(''"), ("\"", "replace('")] {
        let text = format!(
            "flow: {{ name: a }}\nnodes: [{{ id: x, type: control.noop, input: {{ value: {quote}{{{{ flow.input.a | \
             repl§ }}}}{quote} }} }}]"
        );
        let (text, at) = at_cursor(&text);
        let found = complete(&document(&text), at).into_iter().find(|found| found.label == "replace").unwrap();
        let written = apply(&text, &[found.edit]);
        assert!(written.contains(escaped), "{written}");
        let value: serde_json::Value = serde_yaml::from_str(&written).unwrap();
        let value = value["nodes"][0]["input"]["value"].as_str().unwrap();
        assert!(value.starts_with("{{ flow.input.a | replace('") && value.ends_with(" }}"), "{written}");
    }
}

/// Returns a flow with an expression in its last node, `x`.
fn with_expression(nodes: &str, expression: &str) -> String {
    format!(
        "flow: {{ name: a, input: {{ q: {{ 'a\"b': 1, \"c'd\": 2, 'e f': 3, plain: 4 }} }} }}\nnodes:\n{nodes}  - {{ id: x, type: \
         control.noop, input: {{ value: '{{{{ {expression} }}}}' }} }}\n"
    )
}

#[test]
fn names_that_would_end_their_quotes_are_not_offered() {
    assert_eq!(offered(&with_expression("", "flow.input.q[\"§\"]")), ["e f", "plain"]);
    assert_eq!(offered(&with_expression("", "flow.input.q.§")), ["plain"]);
}

#[test]
fn only_optional_arguments_are_offered_by_their_names() {
    assert_eq!(offered(&with_expression("", "flow.input.q | truncate(§=1)")), ["length", "end", "words"]);
    assert_eq!(offered(&with_expression("", "1 | money(\"EUR\", §=1)")), ["point", "group"]);
    // All arguments of `join` are optional.
    let found = complete_at(&with_expression("", "[1] | joi§"));
    assert_eq!(found[0].edit.text, "join");
}

/// Returns the completions at `§`.
fn complete_at(text: &str) -> Vec<Completion> {
    let (text, at) = at_cursor(text);
    complete(&document(&text), at)
}

#[test]
fn facts_and_recorded_members_are_offered_where_they_have_values() {
    let node = "  - { id: a, type: control.if, input: { condition: true } }\n";
    let after = |expression: &str| with_expression(node, expression).replace("id: x,", "id: x, after: a,");
    let members = offered(&after("a.§"));
    for name in ["condition", "skipped", "cancelled", "failed", "attempts", "error"] {
        assert!(members.iter().any(|member| member == name), "{name} of {members:?}");
    }
    assert_eq!(offered(&after("task.§")), ["id", "pass"]);
    assert!(offered(&after("§")).contains(&"inbound".to_owned()));
    // An edge that only orders its nodes leads no value to them.
    let ordered = |inbound: bool| {
        let edge = format!("edges: [{{ from: a, to: x, inbound: {inbound} }}]\n");
        offered(&(with_expression(node, "§") + &edge))
    };
    assert!(ordered(true).contains(&"inbounds".to_owned()));
    let found = ordered(false);
    assert!(found.contains(&"a".to_owned()) && !found.iter().any(|name| name.starts_with("inbound")), "{found:?}");
}

#[test]
fn the_members_of_a_template_have_the_schemas_of_their_values() {
    let text = |template: &str| {
        format!(
            "nodes:\n  - {{ id: a, type: control.if, input: {{ condition: true }} }}\n  - {{ id: b, type: data.template, after: \
             a, input: {{ template: '{{{{ {template} }}}}', values: {{ own: {{ first: 1 }}, of: '{{{{ a }}}}', template: {{ \
             t: 1 }}, plain: x }} }} }}\n"
        )
    };
    assert_eq!(offered(&text("own.§")), ["first"]);
    assert_eq!(offered(&text("of.cond§")), ["condition"]);
    assert_eq!(offered(&text("values.own.§")), ["first"]);
    // The field of the same name is another value.
    assert_eq!(offered(&text("template.§")), ["t"]);
    assert!(offered(&text("§")).starts_with(&["values".into(), "own".into(), "of".into()]));
    assert!(offered(&text("plain.§")).is_empty());
}

#[test]
fn expressions_that_are_too_large_are_read_up_to_the_limit() {
    let long = "é".repeat(flowcell_expr::limits::EXPRESSION_BYTES);
    let (text, at) = at_cursor(&with_expression("", &format!("\"{long}\" ~ flow.§")));
    assert!(complete(&document(&text), at).is_empty());
    let short = "é".repeat(1_000);
    assert_eq!(offered(&with_expression("", &format!("\"{short}\" ~ flow.inp§"))), ["input"]);
}

/// All ids fit at first, and one of them after further letters.
#[test]
fn ends_of_edges_beyond_the_limit_are_found_by_their_letters() {
    let count = MAX_COMPLETIONS + 150;
    let nodes: Vec<_> = (0..count).map(|number| format!("{{ id: n{number}, type: control.noop }}")).collect();
    let text = |edge: &str| format!("nodes: [{}]\nedges: [{edge}]\n", nodes.join(", "));
    let last = format!("n{}", count - 1);
    for edge in ["{ from: n0, to: § }", "'n0 -> §'", "{ from: n0, to: n§ }"] {
        assert_eq!(offered(&text(edge)).len(), MAX_COMPLETIONS, "{edge}");
    }
    for edge in ["{ from: n0, to: N34§ }", "'n0 -> n34§'", "'n0 -> n34§ -> n1'"] {
        let found = offered(&text(edge));
        assert!(found.contains(&last) && found.len() == 11, "{edge}: {found:?}");
    }
}

#[test]
fn hostile_texts_and_places_offer_nothing_or_something() {
    let deep = "{ a: ".repeat(5_000);
    let texts = [
        "",
        "\u{feff}",
        "a: \u{202e}x",
        "- - - -",
        "{{{{",
        "a: \"\\u",
        "nodes: [{ id: x, input: { value: \"{{ 'é",
        &deep,
    ];
    for text in texts {
        for at in (0..=text.len().min(40)).chain([text.len(), usize::MAX]) {
            complete(&document(text), at);
        }
    }
    // Many members, parameters, owners and conditions.
    let many = |part: &dyn Fn(usize) -> String| (0..20_000).map(part).collect::<Vec<_>>().join(", ");
    let members = many(&|number| format!("m{number}: 1"));
    let params = format!("fragments: {{ f: {{ params: {{ {members} }}, nodes: [] }} }}\n");
    let texts = [
        format!("{params}nodes: [{{ id: a, use: f, with: {{ {members}, § }} }}]"),
        format!("{params}nodes: [{{ id: a, use: f, with: {{ § }} }}]"),
        format!(
            "fragments: {{ f: {{ nodes: [{{ id: a, type: control.noop, input: {{ value: '{{{{ params.§ }}}}' }} }}], params: {{ {members} }} }} }}"
        ),
        format!(
            "flow: {{ input: {{ {members} }} }}\nnodes: [{{ id: a, type: control.noop, input: {{ value: '{{{{ flow.input.§ }}}}' }} }}]"
        ),
        format!(
            "fragments: {{ f: {{ params: {{ p: {{ enum: [{}] }} }}, nodes: [] }} }}\nnodes: [{{ id: a, use: f, with: {{ p: § }} }}]",
            many(&|number| format!("e{number}"))
        ),
    ];
    for text in texts {
        let (text, at) = at_cursor(&text);
        complete(&document(&text), at);
    }
    let owners =
        many(&|number| format!("{{ id: n{number}, type: control.scope, body: [n{}], when: 'n1.x' }}", number + 1));
    let (text, at) = at_cursor(&format!(
        "nodes: [{owners}, {{ id: n20000, type: control.noop, input: {{ value: '{{{{ § }}}}' }} }}]"
    ));
    complete(&document(&text), at);
    // Owners that contain each other, whose lists are followed through each other.
    let each = |id: &str, body: &str| {
        format!(
            "{{ id: {id}, type: control.foreach, input: {{ list: '{{{{ flow.input.x }}}}', as: {id}i }}, body: [{body}] }}"
        )
    };
    let (text, at) = at_cursor(&format!(
        "flow: {{ name: a, input: {{ x: [1] }} }}\nnodes: [{}, {}, {{ id: q, type: control.noop, input: {{ value: '{{{{ § }}}}' }} }}]",
        each("a0", "a1"),
        each("a1", "a0, q"),
    ));
    complete(&document(&text), at);
    // A cycle through all nodes. Each node reads another one.
    let read = |number: usize| {
        format!("{{ id: n{number}, type: control.noop, input: {{ value: '{{{{ n{}.value }}}}' }} }}", number / 2)
    };
    let nodes = (0..5_000).map(read).collect::<Vec<_>>().join(", ");
    let chain = (1..5_000).map(|number| format!("'n{} -> n{number}'", number - 1)).collect::<Vec<_>>().join(", ");
    for edge in ["{ from: n2500, to: §, when: 'true' }", "'§ -> n2500: error'"] {
        let (ring, at) = at_cursor(&format!("nodes: [{nodes}]\nedges: [{chain}, 'n4999 -> n0: error', {edge}]\n"));
        complete(&document(&ring), at);
    }
    let root = crate::reading::read(&text);
    let flow = crate::flow::Flow::all(&text, &root, &CATALOG).next().unwrap();
    let inner = flow.nodes[flow.find("q").unwrap()].owner;
    assert_eq!(flow.owners_from(inner).len(), 2, "each owner once");
    let huge = "a".repeat(flowcell_flow::limits::DOCUMENT_BYTES + 1);
    assert!(complete(&document(&huge), 5).is_empty());
}

#[test]
fn beginnings_of_examples_are_completed() {
    let mut numbers = Numbers(3);
    let all = &*EXAMPLES;
    for _ in 0..200 {
        let text = &all[numbers.below(all.len())].text;
        let end = text.floor_char_boundary(numbers.below(text.len()));
        complete(&document(&text[..end]), end);
    }
}

/// Prints the times of requests in flows of three lengths: `cargo test -p flowcell-assist --release -- --ignored
/// --nocapture`.
#[test]
#[ignore = "measures"]
fn times_of_requests() {
    for lines in [50, 500, 5_000] {
        let text = long_flow(lines);
        assert!(diagnose("a.yaml", &text).is_empty(), "{:?}", diagnose("a.yaml", &text).first());
        let mut numbers = Numbers(1);
        let places: Vec<_> = (0..200).map(|_| text.floor_char_boundary(numbers.below(text.len()))).collect();
        let measure = |name: &str, request: &dyn Fn(usize)| {
            let mut times: Vec<_> = places
                .iter()
                .map(|at| {
                    let begin = std::time::Instant::now();
                    request(*at);
                    begin.elapsed()
                })
                .collect();
            times.sort();
            println!("{lines} lines, {name}: median {:?}, p99 {:?}", times[100], times[197]);
        };
        measure("completion", &|at| drop(complete(&document(&text), at)));
        measure("hover", &|at| drop(crate::hover::hover(&document(&text), at)));
        measure("diagnostics", &|_| drop(diagnose("a.yaml", &text)));
        let source = flowcell_flow::Source { name: "a.yaml".into(), text: text.clone() };
        measure("packs", &|_| drop(flowcell_flow::packs(&source)));
    }
}

/// Returns a flow with this number of lines: a chain of nodes with an edge each.
fn long_flow(lines: usize) -> String {
    let count = lines / 5;
    let mut text = "flow: { name: long, strict: true, input: { n: 1 } }\nnodes:\n".to_owned();
    for node in 0..count {
        let before =
            if node == 0 { "flow.input.n".to_owned() } else { format!("n{}.value + n{}.value", node - 1, node / 2) };
        let before = if node == 1 { "n0.value".to_owned() } else { before };
        text += &format!("  - id: n{node}\n    type: control.noop\n    input:\n      value: \"{{{{ {before} }}}}\"\n");
    }
    text += "edges:\n";
    for node in 1..count {
        text += &format!("  - {{ from: n{}, to: n{node} }}\n", node - 1);
    }
    text
}
