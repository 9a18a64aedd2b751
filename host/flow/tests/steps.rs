//! Checks flows of the steps dialect: `steps/invalid/*` against their diagnostics, `steps/valid/*` against their
//! graphs. `BLESS=1` rewrites the expected files.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Json, Manifest};
use flowcell_flow::{Checked, Diagnostic, Graph, NoContext, Severity, Source, about, steps::step_label};
use proptest::prelude::*;

use crate::golden::{self, cases, compare, printed, source};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/steps").join(name)
}

fn catalog() -> Catalog {
    golden::catalog(&["pack.yaml", "another-pack.yaml"].map(folder))
}

fn load(path: &Path) -> Checked {
    flowcell_flow::load(&source(path), &catalog(), &NoContext)
}

fn load_text(text: String) -> Checked {
    flowcell_flow::load(&Source { name: "flow.json".into(), text }, &catalog(), &NoContext)
}

/// Returns the values with which expressions are evaluated: an output for each step, by id, an input, and facts.
fn roots(graph: &Graph) -> Json {
    let result =
        |id: &str| Json::parse(&format!(r#"{{ "text": "of {id}", "rows": [{{ "text": "row of {id}" }}] }}"#)).unwrap();
    let nodes = graph.nodes.iter().map(|node| (node.id.to_string(), result(node.id.as_str())));
    let input = Json::parse(r#"{ "start_date": "monday", "end_date": null, "day": 1, "name": "Ada" }"#).unwrap();
    let flow = Json::object([("input", input), ("name", Json::from("f")), ("version", Json::from(3_u64))]);
    let facts = r#"{ "run": { "id": "r", "started": "1970-01-01T00:00:00Z", "labels": { "team": "billing" } },
        "task": { "id": "t" }, "tenant": "local", "now": "1970-01-01T00:00:01Z" }"#;
    let facts = Json::parse(facts).unwrap().as_object().unwrap().clone();
    let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value));
    Json::object([("nodes".to_owned(), Json::object(nodes)), ("flow".to_owned(), flow)].into_iter().chain(facts))
}

/// Describes those parts of a graph that the dialect decides, and the rendered inputs of its nodes.
fn described(graph: &Graph) -> String {
    let mut text = String::new();
    let schema = graph.input_schema.clone().map(Json::from).unwrap_or_default();
    writeln!(text, "{} {:?}\ninputSchema {schema}", graph.name, graph.description).unwrap();
    for edge in &graph.edges {
        writeln!(text, "{} -> {} {:?}", graph.node(edge.from).id, graph.node(edge.to).id, edge.on).unwrap();
    }
    let roots = roots(graph);
    for node in &graph.nodes {
        let references: Vec<_> = node.input.references.iter().map(|reference| format!("{reference:?}")).collect();
        writeln!(text, "\n{}: {} {:?}", node.id, node.node_type.name, step_label(node).unwrap()).unwrap();
        writeln!(text, "  reads {}", references.join(" ")).unwrap();
        writeln!(text, "  given {}", node.input.expr.render(&roots).unwrap()).unwrap();
        writeln!(text, "  grants {}", serde_json::to_string(&node.grants).unwrap()).unwrap();
    }
    writeln!(text, "\noutput {}", graph.outputs.as_ref().unwrap().expr.render(&roots).unwrap()).unwrap();
    text
}

#[test]
fn invalid_flows_give_the_expected_diagnostics() {
    let mut wrong = Vec::new();
    for case in cases(&folder("invalid")) {
        let checked = load(&case);
        assert!(!checked.diagnostics.is_empty(), "{} has no diagnostic", case.display());
        let errors = checked.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        assert_eq!(checked.graph.is_none(), errors, "{}", case.display());
        wrong.extend(compare(&case.with_extension("err"), &printed(&checked.diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn valid_flows_give_the_expected_graphs() {
    let mut wrong = Vec::new();
    for case in cases(&folder("valid")) {
        let checked = load(&case);
        // Texts that only contain a reference stay literal, with a warning.
        let of_text = |diagnostic: &&Diagnostic| diagnostic.code != "reference_as_text";
        let diagnostics: Vec<_> = checked.diagnostics.iter().filter(of_text).cloned().collect();
        assert_eq!(printed(&diagnostics), "", "{}", case.display());
        wrong.extend(compare(&case.with_extension("txt"), &described(&checked.graph.unwrap())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_show_missing_values_as_the_flow_writes_them() {
    let flow = |reference: &str| {
        let text = format!(
            r#"{{ "name": "a", "steps": [{{ "id": "one", "tool": "desk.note" }},
               {{ "id": "two", "tool": "desk.note", "params": {{ "x": "{reference}" }} }}] }}"#
        );
        load_text(text).graph.unwrap()
    };
    let roots = Json::parse(
        r#"{ "nodes": { "one": { "null": null, "rows": [] } }, "flow": { "input": { "a": 1 } }, "run": { "labels": {} } }"#,
    );
    let given = |reference: &str| flow(reference).nodes[1].input.expr.render(roots.as_ref().unwrap());
    let missing = ["$ctx.one.nothing", "$ctx.one.null.more", "$ctx.one.rows.0", "$inputs.b", "$inputs.a.deeper"];
    for reference in missing.into_iter().chain(["$facts.run.labels.team"]) {
        let error = given(reference).unwrap_err();
        assert!(error.message.contains(&format!("`{reference}`")), "{reference}: {error}");
    }
    assert_eq!(given("$ctx.one.null").unwrap().to_text(), r#"{"x":null}"#);
    assert_eq!(given("$inputs.a").unwrap().to_text(), r#"{"x":1}"#);
}

/// When a later step saves its result under a used name, the name refers to that result from then on.
#[test]
fn a_later_result_replaces_an_earlier_one_of_the_same_name() {
    let checked = load(&folder("invalid/warnings.yaml"));
    let graph = checked.graph.unwrap();
    let roots = Json::parse(r#"{ "nodes": { "a": 1, "b": 2 }, "flow": { "input": {} } }"#).unwrap();
    assert_eq!(graph.nodes[1].input.expr.render(&roots).unwrap().to_text(), r#"{"x":1}"#);
    assert_eq!(graph.outputs.unwrap().expr.render(&roots).unwrap().to_text(), "2");
}

#[test]
fn about_returns_name_and_description() {
    let said = about(&Source { name: "x.json".into(), text: fs::read_to_string(folder("valid/report.json")).unwrap() });
    assert_eq!((said.name.as_deref(), said.description.is_some()), (Some("report"), true));
}

/// Flows at the size limit and beyond are checked in less than quadratic time.
#[test]
fn large_flows_are_checked() {
    let chain = |count: usize, reference: &str| -> String {
        let step = |n: usize| format!("  - {{ id: s{n}, tool: desk.note, params: {{ x: {reference} }} }}\n");
        let steps: String = (0..count).map(step).collect();
        format!("name: chain\nsteps:\n  - {{ id: first, tool: desk.note }}\n{steps}")
    };
    for (text, sound) in [
        (chain(9_000, "$ctx.first"), true),
        (chain(11_000, "$ctx.first"), false),
        (chain(9_000, "$ctx.frist"), false),
        (chain(1, &format!("[{}]", "$ctx.first.a, ".repeat(50_000))), true),
    ] {
        let checked = load_text(text);
        assert_eq!(checked.graph.is_some(), sound, "{}", printed(&checked.diagnostics));
    }
}

/// Generates keys that are special in other contexts. An expression in a key has a warning.
fn keys() -> impl Strategy<Value = String> {
    "[a-z{}$.]{1,6}".prop_filter("an expression", |key: &String| !key.contains("{{"))
}

/// Generates values with texts that are special in other contexts.
fn literals() -> impl Strategy<Value = serde_json::Value> {
    let text = "[{}%#$.\"'\\\\a-c \n]{0,12}".prop_filter("a reference", |text: &String| !text.starts_with('$'));
    let leaf = prop_oneof![
        text.prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(keys(), inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    #[test]
    fn literals_render_unchanged(params in prop::collection::btree_map(keys(), literals(), 0..4), output in literals()) {
        prop_assume!(!output.is_null());
        let params: serde_json::Map<_, _> = params.into_iter().collect();
        let flow = serde_json::json!({
            "name": "literals", "steps": [{ "id": "a", "tool": "desk.note", "params": params.clone() }], "output": output.clone(),
        });
        let checked = load_text(flow.to_string());
        prop_assert_eq!(printed(&checked.diagnostics), "");
        let graph = checked.graph.unwrap();
        let given = graph.nodes[0].input.expr.render(&flowcell_expr::NoRoots).unwrap();
        prop_assert_eq!(given.to_serde(), serde_json::Value::Object(params));
        let given = graph.outputs.unwrap().expr.render(&flowcell_expr::NoRoots).unwrap();
        prop_assert_eq!(given.to_serde(), output);
    }

    #[test]
    fn no_mutation_of_a_flow_makes_the_checker_panic(case in 0..16usize, at in any::<prop::sample::Index>(), with in "[a-zé${}\\[\\]:,\"'=~/. \t\r\n-]{0,6}") {
        let cases = [cases(&folder("valid")), cases(&folder("invalid"))].concat();
        let mut text: Vec<char> = fs::read_to_string(&cases[case % cases.len()]).unwrap().chars().collect();
        let at = at.index(text.len());
        text.splice(at..(at + 3).min(text.len()), with.chars());
        let text: String = text.into_iter().collect();
        prop_assert_eq!(load_text(text.clone()).diagnostics, load_text(text).diagnostics);
    }
}

#[test]
fn short_names_are_plain_and_unique_in_a_pack() {
    let manifest = |nodes: &str| Manifest::parse(&format!("name: a\nversion: 1.0.0\nnodes:\n{nodes}"));
    let node = |name: &str, short: &str| format!("  - {{ type: a.{name}, shortName: \"{short}\", title: A }}\n");
    assert!(manifest(&(node("x", "one") + &node("y", "two"))).is_ok());
    let refused = |nodes: &str| manifest(nodes).unwrap_err().message;
    assert_eq!(refused(&(node("x", "one") + &node("y", "one"))), "two node types have the short name `one`");
    for short in ["", "a.b", "two words", "ä", &"x".repeat(65)] {
        assert!(refused(&node("x", short)).contains("is not a short name"), "{short}");
    }
}
