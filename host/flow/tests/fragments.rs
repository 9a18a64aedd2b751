//! Flows with fragments and vars give the same graph as their written-out forms.

use std::fmt::Write as _;

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{Checked, Diagnostic, NoContext, Source, graph::Graph};
use proptest::prelude::*;

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (pack, text) in [
        ("00", include_str!("catalog.yaml")),
        ("01", include_str!("http-pack.yaml")),
        ("02", include_str!("control-pack.yaml")),
        ("03", include_str!("data-pack.yaml")),
    ] {
        catalog.add(Manifest::parse(text).unwrap(), &Digest(pack.into()));
    }
    catalog
}

fn check(text: &str) -> Checked {
    flowcell_flow::load(&Source { name: "flow.yaml".into(), text: text.to_owned() }, &catalog(), &NoContext)
}

fn printed(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect()
}

fn load(text: &str) -> Graph {
    let checked = check(text);
    assert!(checked.graph.is_some(), "{text}\n{}", printed(&checked.diagnostics));
    checked.graph.unwrap()
}

fn assert_same(short: &str, long: &str) {
    let [one, other] = [short, long].map(|text| format!("{:#?}", load(text)));
    let differs = one.lines().zip(other.lines()).position(|(one, other)| one != other);
    let around =
        |graph: &str, at: usize| graph.lines().skip(at.saturating_sub(8)).take(12).collect::<Vec<_>>().join("\n");
    if let Some(at) = differs.or((one != other).then_some(0)) {
        panic!("{short}\n{long}\n{}\nis not\n{}", around(&one, at), around(&other, at));
    }
}

/// Returns the codes and lines of the diagnostics.
fn found(text: &str) -> Vec<(&'static str, usize)> {
    check(text).diagnostics.iter().map(|diagnostic| (diagnostic.code, diagnostic.location.line)).collect()
}

/// A literal argument that a fragment passes on has to fit the parameter of the other fragment, too.
#[test]
fn literal_arguments_are_checked_through_all_fragments() {
    let text = |count: &str| {
        format!(
            "flow: {{ name: f, input: {{ n: x }} }}\nfragments:\n  outer:\n    params: {{ n: {{}}, all: {{}} }}\n    nodes:\n    \
             - {{ id: one, use: inner, with: {{ n: \"{{{{ params.n }}}}\" }} }}\n    \
             - {{ id: two, use: inner, with: {{ n: \"{{{{ params.all.first }}}}\" }} }}\n  \
             inner:\n    params: {{ n: {{ type: string }} }}\n    \
             nodes: [{{ id: a, type: test.noop, input: {{ value: \"{{{{ params.n }}}}\" }} }}]\n\
             nodes: [{{ id: u, use: outer, with: {{ n: {count}, all: {{ first: {count} }} }} }}]\n"
        )
    };
    assert_eq!(found(&text("5")), [("wrong_argument", 6), ("wrong_argument", 7)]);
    let message = check(&text("5")).diagnostics[0].message.clone();
    assert!(message.contains("5 is not of type \"string\"") && message.contains("(in the use `u`"), "{message}");
    assert_eq!(found(&text("five")), []);
    assert_eq!(found(&text("\"{{ flow.input.n }}\"")), []);
}

#[test]
fn names_change_in_all_parts_of_a_fragment() {
    let short = r#"
flow: { name: f }
fragments:
  part:
    params: { list: { type: array }, kind: { default: test.noop }, limit: { default: { timeoutMs: 7 } } }
    nodes:
      - { id: a, type: test.list, undo: undo-a }
      - { id: undo-a, type: test.noop, input: { value: "{{ undo.task }} {{ a.list }}" } }
      - id: each
        type: test.each
        after: a
        input: { list: "{{ params.list }}", as: b }
        body: [inner, last]
        bodyOutput: "{{ [b, each.index, inner] }}"
      - { id: inner, type: test.template, input: { template: "{{ b.x }} {{ a.list }} {{ values }}", values: { a: 1 } } }
      - { id: last, type: test.if, after: inner, input: { condition: { exists: inner.text } }, when: "b and a.list" }
      - { id: b, type: "{{ params.kind }}", when: { equals: { var: "nodes['c-d'].value", value: "{{ a.list }}" } } }
      - { id: c-d, type: test.noop, policy: { timeoutMs: "{{ params.limit.timeoutMs }}" }, input: { value: "{a.list} a" } }
      - id: loop
        type: test.loop
        after: [b]
        input: { while: "loop.iteration < 2 and b.value" }
        body: { nodes: [{ id: x, type: test.noop }, { id: y, type: test.noop, input: { value: "{{ x.value ~ inbounds.x }}" } }], edges: [x -> y] }
    edges:
      - "a -> c-d: error"
      - { from: each, to: c-d, when: "each.items and nodes['a'].list" }
      - c-d -> b
    output: { a: "{{ a }}", p: "{{ params }}" }
nodes:
  - { id: first, type: test.noop }
  - { id: u, use: part, with: { list: "{{ first.value }}" }, after: first, when: "first.value", policy: { continueOnError: true } }
edges: []
"#;
    let long = r#"
flow: { name: f }
nodes:
  - { id: first, type: test.noop }
  - id: u
    type: control.scope
    after: first
    when: "first.value"
    policy: { continueOnError: true }
    input: { value: { list: "{{ first.value }}", kind: test.noop, limit: { timeoutMs: 7 } }, as: params }
    bodyOutput: { a: "{{ u_a }}", p: "{{ params }}" }
    body:
      nodes:
        - { id: u_a, type: test.list, undo: u_undo-a }
        - { id: u_undo-a, type: test.noop, input: { value: "{{ undo.task }} {{ u_a.list }}" } }
        - id: u_each
          type: test.each
          after: u_a
          input: { list: "{{ params.list }}", as: b }
          body: [u_inner, u_last]
          bodyOutput: "{{ [b, u_each.index, u_inner] }}"
        - { id: u_inner, type: test.template, input: { template: "{{ b.x }} {{ a.list }} {{ values }}", values: { a: 1 } } }
        - { id: u_last, type: test.if, after: u_inner, input: { condition: { exists: "u_inner.text" } }, when: "b and u_a.list" }
        - { id: u_b, type: test.noop, when: { equals: { var: "nodes[\"u_c-d\"].value", value: "{{ u_a.list }}" } } }
        - { id: u_c-d, type: test.noop, policy: { timeoutMs: 7 }, input: { value: "{a.list} a" } }
        - id: u_loop
          type: test.loop
          after: [u_b]
          input: { while: "u_loop.iteration < 2 and u_b.value" }
          body: { nodes: [{ id: u_x, type: test.noop }, { id: u_y, type: test.noop, input: { value: "{{ u_x.value ~ inbounds.u_x }}" } }], edges: [u_x -> u_y] }
      edges:
        - "u_a -> u_c-d: error"
        - { from: u_each, to: u_c-d, when: "u_each.items and u_a.list" }
        - u_c-d -> u_b
edges: []
"#;
    assert_same(short, long);
}

#[test]
fn vars_become_a_node_before_all_others() {
    let short = r#"
flow: { name: v, vars: { a: "{{ flow.input.x ~ run.id }}", b: 1 }, outputs: "{{ vars.b }}" }
nodes:
  - { id: one, type: test.noop, input: { value: "{{ [vars.a, inbound] }}" }, undo: back }
  - { id: back, type: test.noop, input: { value: "{{ vars.b }}" } }
  - { id: two, type: test.noop, after: one }
  - { id: go, type: test.noop, after: { }  }
  - { id: each, type: test.each, input: { list: [] }, body: [in-1, in-2] }
  - { id: in-1, type: test.noop, input: { value: "{{ nodes.vars.a }}" } }
  - { id: in-2, type: test.noop, after: in-1 }
  - { id: turn, type: test.noop, after: back-again, input: { value: "{{ vars }}" } }
  - { id: back-again, type: test.noop, after: turn, when: "turn.value" }
edges: []
"#
    .replace("  - { id: go, type: test.noop, after: { }  }\n", "");
    let edges = ["one", "each", "turn"].map(|to| format!("{{ from: vars, to: {to}, inbound: false }}")).join(", ");
    let long = short
        .replace("vars: { a: \"{{ flow.input.x ~ run.id }}\", b: 1 }, ", "")
        .replace(
            "nodes:\n",
            "nodes:\n  - { id: vars, type: data.object, input: { a: \"{{ flow.input.x ~ run.id }}\", b: 1 } }\n",
        )
        .replace("edges: []", &format!("edges: [{edges}]"));
    assert_same(&short, &long);
}

#[test]
fn hostile_fragments_are_refused_in_little_time() {
    let flow = "flow: { name: f }\nnodes: [{ id: u, use: f0 }]\n";
    // Each fragment uses the next one ten times.
    let mut text = format!("{flow}fragments:\n");
    for at in 0..12 {
        let uses: String = (0..10).map(|use_at| format!("{{ id: u{use_at}, use: f{} }}, ", at + 1)).collect();
        let _ = writeln!(text, "  f{at}: {{ nodes: [{uses}] }}");
    }
    text += "  f12: { nodes: [{ id: a, type: test.noop }] }\n";
    let checked = check(&text);
    assert!(
        checked.diagnostics[0].message.contains("the use `u` of `f0` adds 2111111111110"),
        "{}",
        checked.diagnostics[0]
    );
    assert_eq!(found(&text), [("too_large", 2)]);
    // A chain of fragments is as deep as its bodies.
    let too_deep = [("too_deep", 2)];
    for (length, expected) in [(16, &[] as &[_]), (17, &too_deep), (256, &too_deep)] {
        let mut text = format!("{flow}fragments:\n");
        (1..length).for_each(|at| _ = writeln!(text, "  f{}: {{ nodes: [{{ id: u, use: f{at} }}] }}", at - 1));
        let _ = writeln!(text, "  f{}: {{ nodes: [{{ id: a, type: test.noop }}] }}", length - 1);
        assert_eq!(found(&text), expected, "{length} fragments");
    }
    // Bodies in a fragment around a use count, too.
    for (bodies, expected) in [(14, &[] as &[_]), (15, &too_deep)] {
        let inner = (0..bodies).fold("{ id: u, use: f1 }".to_owned(), |inner, at| {
            format!("{{ id: e{at}, type: test.each, input: {{ list: [] }}, body: {{ nodes: [{inner}] }} }}")
        });
        let last = "f1: { nodes: [{ id: a, type: test.noop }] }";
        let text = format!("{flow}fragments:\n  f0: {{ nodes: [{inner}] }}\n  {last}\n");
        assert_eq!(found(&text), expected, "{bodies} bodies");
    }
    // A large text in a fragment is copied by each use.
    let uses: String = (0..2_000).map(|at| format!("  - {{ id: u{at}, use: f0 }}\n")).collect();
    let value = "{{ a.value }}".repeat(1_000);
    let text = format!(
        "flow: {{ name: f }}\nfragments: {{ f0: {{ nodes: [{{ id: a, type: test.noop, input: {{ value: \"{value}\" }} }}] }} }}\nnodes:\n{uses}"
    );
    assert_eq!(found(&text), [("too_large", 4)]);
    // An argument is copied by each part that must be literal, and so are its keys.
    let nodes: String = (0..9_900).map(|at| format!("{{ id: a{at}, type: \"{{{{ params.t }}}}\" }}, ")).collect();
    let key = "k".repeat(900);
    for argument in [
        format!("\"{}\"", "t".repeat(3 << 20)),
        format!("{{ {} }}", (0..1_000).map(|at| format!("{key}{at}: 1, ")).collect::<String>()),
        format!("[{}]", "1, ".repeat(1_000)),
    ] {
        let text = format!(
            "flow: {{ name: f }}\nfragments: {{ f0: {{ params: {{ t: {{}} }}, nodes: [{nodes}] }} }}\nnodes:\n  \
             - {{ id: u, use: f0, with: {{ t: {argument} }} }}\n"
        );
        assert_eq!(found(&text), [("too_large", 4)]);
    }
    // As many uses as fit give one diagnostic.
    let uses: String = (0..4_999).map(|at| format!("  - {{ id: u{at}, use: f0 }}\n")).collect();
    let text = format!(
        "flow: {{ name: f }}\nfragments: {{ f0: {{ nodes: [{{ id: a, type: test.noop, input: {{ value: \"{{{{ b }}}}\" }} }}] }} }}\nnodes:\n{uses}"
    );
    let checked = check(&text);
    assert_eq!(checked.diagnostics.len(), 1);
    let named = "(in the uses `u0`, `u1`, `u2` and 4996 more of the fragment `f0`)";
    assert!(checked.diagnostics[0].message.ends_with(named), "{}", checked.diagnostics[0]);
}

/// A schema that takes too much work has its own code. It is not told as a value that does not match.
#[test]
fn costly_schemas_of_parameters_are_reported() {
    let way = "{ type: object, required: [y], properties: { x: { $ref: '#/$defs/t' } } }, ".repeat(6);
    let schema = format!(
        "type: object, properties: {{ x: {{ $ref: '#/$defs/t' }} }}, \
         $defs: {{ t: {{ oneOf: [{way}{{ type: integer }}] }} }}"
    );
    let value = (0..20).fold("s".to_owned(), |inner, _| format!("{{ x: {inner}, y: 1 }}"));
    for (default, with, line) in
        [(String::new(), format!(", with: {{ p: {value} }}"), 5), (format!(", default: {value}"), String::new(), 3)]
    {
        let part = format!("{{ params: {{ p: {{ {schema}{default} }} }}, nodes: [{{ id: a, type: test.noop }}] }}");
        let text =
            format!("flow: {{ name: f }}\nfragments:\n  part: {part}\nnodes:\n  - {{ id: u, use: part{with} }}\n");
        assert_eq!(found(&text), [("schema_too_costly", line)]);
    }
}

/// Vars beyond the limit are not looked up, so that their number costs no time, and are not reported as unknown.
#[test]
fn vars_beyond_the_limit_are_left_out() {
    let vars: String = (0..30_000).map(|at| format!("v{at}: 1, ")).collect();
    let outputs = "'{{ vars.v29999 }}', ".repeat(30_000);
    let node = "nodes: [{ id: a, type: test.noop }]";
    let text = format!("flow: {{ name: f, vars: {{ {vars} }}, outputs: [{outputs}] }}\n{node}");
    assert_eq!(found(&text), [("too_large", 1)]);
}

#[test]
fn numbers_of_vars_fragments_and_parameters_are_limited() {
    let nodes = "nodes: [{ id: a, type: test.noop }]";
    let many = |count: usize, member: &str| (0..count).map(|at| format!("m{at}: {member}, ")).collect::<String>();
    let part = |params: usize| format!("{{ params: {{ {} }}, {nodes} }}", many(params, "{ default: 1 }"));
    for (most, flow) in [
        (
            256,
            Box::new(|count| {
                format!("flow: {{ name: f, vars: {{ {} }}, outputs: '{{{{ vars }}}}' }}\n{nodes}", many(count, "1"))
            }) as Box<dyn Fn(usize) -> String>,
        ),
        (256, Box::new(|count| format!("flow: {{ name: f }}\n{nodes}\nfragments: {{ {} }}", many(count, &part(0))))),
        (
            64,
            Box::new(|count| {
                format!("flow: {{ name: f }}\nfragments: {{ p: {} }}\nnodes: [{{ id: u, use: p }}]", part(count))
            }),
        ),
    ] {
        assert!(check(&flow(most)).graph.is_some(), "{most}");
        let codes: Vec<_> = found(&flow(most + 1)).into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, ["too_large"]);
    }
}

#[derive(Clone, Debug)]
enum Value {
    /// The output of an earlier node.
    Node(usize),
    Param(usize),
    Input,
    Literal(u8),
}

#[derive(Clone, Debug)]
enum Planned {
    Plain(Vec<Value>, Option<Value>),
    /// A use of a fragment by its number, modulo the number of fragments that may be used, with the arguments of `p0` and
    /// `p1`. Without the second one the parameter has its default.
    Use(usize, Value, Option<Value>),
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..6usize).prop_map(Value::Node),
        (0..2usize).prop_map(Value::Param),
        Just(Value::Input),
        (0..9u8).prop_map(Value::Literal),
    ]
}

fn graph() -> impl Strategy<Value = Vec<Planned>> {
    let plain = (prop::collection::vec(value(), 0..4), prop::option::of(value()));
    let node = prop_oneof![
        plain.prop_map(|(values, when)| Planned::Plain(values, when)),
        (0..4usize, value(), prop::option::of(value()))
            .prop_map(|(name, first, second)| Planned::Use(name, first, second)),
    ];
    prop::collection::vec(node, 1..5)
}

/// Writes graphs. A graph may use the fragments with lower numbers.
struct Text<'a> {
    fragments: &'a [Vec<Planned>],
    is_long: bool,
}

impl Text<'_> {
    fn id(prefix: &str, at: usize) -> String {
        format!("{prefix}n{at}")
    }

    /// Returns the expression of a value in the node `at` of a graph.
    fn expression(value: &Value, prefix: &str, at: usize, has_params: bool) -> String {
        match value {
            Value::Node(node) if at > 0 => {
                format!("{}.value", Text::id(prefix, node % at))
            }
            Value::Param(param) if has_params => format!("params.p{param}"),
            Value::Literal(literal) => format!("{literal}"),
            _ => "flow.input.x".to_owned(),
        }
    }

    /// Writes a graph whose nodes follow each other.
    fn graph(&self, graph: &[Planned], number: usize, prefix: &str) -> String {
        let has_params = number < self.fragments.len();
        let mut nodes = Vec::new();
        for (at, node) in graph.iter().enumerate() {
            let id = Text::id(prefix, at);
            let expression = |value: &Value| Text::expression(value, prefix, at, has_params);
            let bound = |value: &Value| match value {
                Value::Literal(literal) => literal.to_string(),
                value => format!("'{{{{ {} }}}}'", expression(value)),
            };
            let after = if at > 0 { format!(", after: {}", Text::id(prefix, at - 1)) } else { String::new() };
            nodes.push(match node {
                Planned::Use(fragment, first, second) if number > 0 => {
                    let fragment = fragment % number;
                    let (first, second) = (bound(first), second.as_ref().map(&bound));
                    match self.is_long {
                        false => {
                            let second = second.map(|second| format!(", p1: {second}")).unwrap_or_default();
                            format!("{{ id: {id}{after}, use: f{fragment}, with: {{ p0: {first}{second} }} }}")
                        }
                        true => {
                            let inner = format!("{id}_");
                            let body = self.graph(&self.fragments[fragment], fragment, &inner);
                            let second = second.unwrap_or("[d]".to_owned());
                            let last = Text::expression(&Value::Node(self.fragments[fragment].len() - 1), &inner, usize::MAX, true);
                            format!(
                                "{{ id: {id}{after}, type: control.scope, input: {{ value: {{ p0: {first}, p1: {second} }}, as: params }}, \
                                 body: {{ nodes: {body} }}, bodyOutput: {{ value: '{{{{ {last} }}}}' }} }}"
                            )
                        }
                    }
                }
                Planned::Use(..) => format!("{{ id: {id}{after}, type: test.noop }}"),
                Planned::Plain(values, when) => {
                    let values: Vec<_> = values.iter().map(bound).collect();
                    let when = when.as_ref().map(|when| format!(", when: '{} is defined'", expression(when)));
                    let values = values.join(", ");
                    format!("{{ id: {id}{after}, type: test.noop, input: {{ value: [{values}] }}{} }}", when.unwrap_or_default())
                }
            });
        }
        format!("[{}]", nodes.join(", "))
    }

    fn flow(&self, graph: &[Planned]) -> String {
        let mut text = "flow: { name: f }\n".to_owned();
        if !self.is_long {
            text += "fragments:\n";
            for (number, fragment) in self.fragments.iter().enumerate() {
                let nodes = self.graph(fragment, number, "");
                let last = fragment.len() - 1;
                let _ = writeln!(
                    text,
                    "  f{number}: {{ params: {{ p0: {{}}, p1: {{ default: [d] }} }}, nodes: {nodes}, output: {{ value: '{{{{ n{last}.value }}}}' }} }}"
                );
            }
        }
        text + "nodes: " + &self.graph(graph, self.fragments.len(), "")
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A flow with fragments that use each other gives the graph of the form that is written out by hand.
    #[test]
    fn random_fragments_give_the_graph_of_the_written_out_form(
        fragments in prop::collection::vec(graph(), 1..4),
        flow in graph(),
    ) {
        let [short, long] = [false, true].map(|is_long| Text { fragments: &fragments, is_long }.flow(&flow));
        assert_same(&short, &long);
    }

    /// Vars give the graph of a flow with a node that all first nodes follow.
    #[test]
    fn random_vars_give_the_graph_of_the_written_out_form(
        edges in prop::collection::btree_set((0..8usize, 0..8usize), 0..10),
        vars in prop::collection::btree_map("[a-c]{1,2}", 0..9u8, 1..4),
    ) {
        // Edges lead to later nodes only, so that the graph has no cycle.
        let edges: Vec<_> = edges.into_iter().filter(|(from, to)| from < to).collect();
        let first = vars.keys().next().unwrap();
        let nodes: String = (0..8)
            .map(|at| format!("  - {{ id: n{at}, type: test.noop, input: {{ value: '{{{{ vars.{first} }}}}' }} }}\n"))
            .collect();
        let members: Vec<_> = vars.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let members = members.join(", ");
        let mut listed: Vec<_> = edges.iter().map(|(from, to)| format!("{{ from: n{from}, to: n{to} }}")).collect();
        let short = format!("flow: {{ name: f, vars: {{ {members} }} }}\nnodes:\n{nodes}edges: [{}]", listed.join(", "));
        let is_start = |node: &usize| edges.iter().all(|(_, to)| to != node);
        listed.extend((0..8).filter(is_start).map(|to| format!("{{ from: vars, to: n{to}, inbound: false }}")));
        let long = format!(
            "flow: {{ name: f }}\nnodes:\n  - {{ id: vars, type: data.object, input: {{ {members} }} }}\n{nodes}edges: [{}]",
            listed.join(", ")
        );
        assert_same(&short, &long);
    }
}
