//! Cases that the manifest's examples cannot show: captured values, and large or odd values. The engine's tests run the
//! examples in the sandbox.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_contract::{Manifest, MarkKind};
use flowcell_sdk::{
    Given,
    testing::{self, Outcome},
};
use serde_json::{Value, json};

fn run(node_type: &str, input: Value) -> Outcome {
    testing::run(crate::run_node, node_type, Given { input, ..Given::default() })
}

fn failure(node_type: &str, input: Value) -> flowcell_sdk::Failure {
    match run(node_type, input) {
        Outcome::Failure(failure) => failure,
        other => panic!("{node_type}: {other:?}"),
    }
}

#[test]
fn expressions_read_captured_values_and_locals_override_them() {
    let vars = json!({ "flow.input.f": 10, "item": "shadowed", "values.x": "shadowed", "nodes[\"a-b\"].n": 5 });
    let captured = |tag: &str, raw: Value| json!({ tag: raw, "vars": vars });
    let rows = [
        (
            "data.filter",
            json!({ "list": [1, 2, 3], "when": captured("expr", json!("item * flow.input.f > 15")) }),
            json!({ "list": [2, 3] }),
        ),
        (
            "data.map",
            json!({ "list": [1, 2], "template": captured("template", json!({ "n": "{{ item + nodes['a-b'].n }}" })) }),
            json!({ "list": [{ "n": 6 }, { "n": 7 }] }),
        ),
        (
            "data.reduce",
            json!({ "list": [1, 2], "initial": 0, "expr": captured("expr", json!("acc + item * flow.input.f")) }),
            json!({ "value": 30 }),
        ),
        (
            "data.template",
            json!({ "template": captured("template", json!("{{ flow.input.f }} {{ x }} {{ values.x }}")), "values": { "x": 1 } }),
            json!({ "text": "10 1 1" }),
        ),
    ];
    for (node_type, input, output) in rows {
        assert_eq!(run(node_type, input), Outcome::Output(output), "{node_type}");
    }
}

/// In a strict flow, each node type names the missing value, and the list item that lacks it.
#[test]
fn strict_fields_fail_at_missing_values() {
    let captured = |tag: &str, raw: &str| json!({ tag: raw, "vars": { "a.skipped": true }, "strict": true });
    let list = json!([{ "x": 1 }, {}]);
    let rows = [
        ("data.filter", json!({ "list": list, "when": captured("expr", "item.x > 0") }), "item 1: `item.x` is missing"),
        (
            "data.filter",
            json!({ "list": list, "when": captured("expr", "a.b") }),
            "item 0: `a.b` is missing: `a` was skipped",
        ),
        (
            "data.map",
            json!({ "list": list, "template": captured("template", "{{ item.x }}") }),
            "item 1: `item.x` is missing",
        ),
        ("data.reduce", json!({ "list": list, "expr": captured("expr", "item.x") }), "item 1: `item.x` is missing"),
        (
            "data.template",
            json!({ "template": captured("template", "Hi {{ nmae }}"), "values": { "name": "Ada" } }),
            "`nmae` is missing",
        ),
    ];
    for (node_type, input, message) in rows {
        let failure = failure(node_type, input);
        assert_eq!(failure.code, "missing_value", "{node_type}");
        assert!(failure.message.starts_with(message), "{node_type}: {}", failure.message);
        assert!(failure.message.contains("the flow is strict"), "{node_type}: {}", failure.message);
    }
    let tested = json!({ "list": list, "when": captured("expr", "item.x is defined") });
    assert_eq!(run("data.filter", tested), Outcome::Output(json!({ "list": [{ "x": 1 }] })));
}

/// Checks the manifest: every field with expressions is marked, because the host captures values only for marked
/// fields.
#[test]
fn fields_with_expressions_are_marked() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    let marks = manifest.nodes.iter().flat_map(|node| node.marks.iter().map(|mark| (&*node.name, mark)));
    let mut kinds: Vec<_> = marks.map(|(name, mark)| (name, mark.path.join("."), mark.kind)).collect();
    kinds.sort_by_key(|(name, _, _)| *name);
    let wanted = [
        ("data.filter", "when", MarkKind::Condition),
        ("data.map", "template", MarkKind::Template),
        ("data.reduce", "expr", MarkKind::Condition),
        ("data.template", "template", MarkKind::Template),
    ];
    assert_eq!(kinds, wanted.map(|(name, path, kind)| (name, path.to_owned(), kind)));
}

#[test]
fn reduce_without_an_expression_adds_the_items() {
    let rows = [
        (json!([i64::MAX, 1]), json!(9_223_372_036_854_775_808_u64)),
        (json!([u64::MAX, -1]), json!(18_446_744_073_709_551_614_u64)),
        (json!([1, 0.5]), json!(1.5)),
        (json!([1, -1]), json!(0)),
        (json!([{ "a": 1 }, { "a": 2 }]), json!({ "a": 2 })),
        (json!([null]), json!(null)),
    ];
    for (list, value) in rows {
        assert_eq!(run("data.reduce", json!({ "list": list })), Outcome::Output(json!({ "value": value })));
    }
    let mixed = failure("data.reduce", json!({ "list": [[1], { "a": 1 }] }));
    assert!(mixed.message.contains("give an `expr`"), "{mixed}");
    let lossy = failure("data.reduce", json!({ "list": [u64::MAX, 1] }));
    assert!(lossy.message.contains("more digits than can be kept exactly"), "{lossy}");
}

#[test]
fn y13_paths_of_parts_are_plain_keys_and_bounded() {
    let set = |path: &str| run("data.set", json!({ "object": { "a": [0] }, "path": path, "value": 1 }));
    for path in ["__proto__.x", "constructor.prototype.x", "toString.x"] {
        let Outcome::Output(output) = set(path) else { panic!("{path} is a key like others") };
        let pointer = format!("/object/{}", path.replace('.', "/"));
        assert_eq!((output.pointer(&pointer), &output["object"]["a"]), (Some(&json!(1)), &json!([0])), "{path}");
        assert_eq!(output["object"].as_object().unwrap().len(), 2, "{path}");
    }
    for path in ["a[999999999]", "a[10001]", "b[0][999999999]", "a[4294967296]"] {
        assert_eq!(
            failure("data.set", json!({ "object": { "a": [0] }, "path": path, "value": 1 })).code,
            "invalid_input"
        );
    }
}

#[test]
fn set_extends_lists_within_a_limit() {
    let grown = |path: &str| run("data.set", json!({ "object": { "a": [0] }, "path": path, "value": 1 }));
    let Outcome::Output(output) = grown("a[10000]") else { panic!("a list grows by 10000") };
    assert_eq!(output["object"]["a"].as_array().unwrap().len(), 10_001);
    let refused = [
        "a[10001]",
        "a[18446744073709551616]",
        "a[-1]",
        "a[]",
        "a[0",
        "a[0]b",
        "",
        ".",
        "a.",
        "[0]",
        "a.b",
        "b.c.d[0]e",
    ];
    for path in refused {
        let refused = failure("data.set", json!({ "object": { "a": [0] }, "path": path, "value": 1 }));
        assert_eq!(refused.code, "invalid_input", "{path}");
    }
    let long = vec!["a"; 101].join(".");
    assert!(failure("data.set", json!({ "object": {}, "path": long, "value": 1 })).message.contains("100 steps"));
}

#[test]
fn invalid_json_fails_with_its_line_and_column() {
    let failure = failure("data.json.parse", json!({ "text": "{\n  \"a\": nope\n}" }));
    assert_eq!((&*failure.code, failure.details), ("invalid_json", Some(json!({ "line": 2, "column": 9 }))));
}

#[test]
fn json_with_too_many_digits_is_refused() {
    let refused = failure("data.json.parse", json!({ "text": "{\n  \"id\": 12345678901234567890123}" }));
    assert_eq!((&*refused.code, refused.details), ("invalid_json", Some(json!({ "line": 2, "column": 9 }))));
}

#[test]
fn the_errors_and_the_work_of_validation_are_bounded() {
    let large = json!({ "value": "x".repeat(1 << 20), "schema": { "type": "number" } });
    let Outcome::Output(output) = run("data.validate", large) else { panic!("it is checked") };
    assert!(output["errors"][0].as_str().unwrap().chars().count() <= 501);
    let many = json!({ "value": vec!["x"; 1000], "schema": { "items": { "type": "number" } } });
    let Outcome::Output(output) = run("data.validate", many) else { panic!("it is checked") };
    assert_eq!(output["errors"].as_array().unwrap().len(), 100);
    let slow = json!({ "value": "a".repeat(50_000) + "!", "schema": { "pattern": "^(a+)+$" } });
    let Outcome::Output(output) = run("data.validate", slow) else { panic!("it is checked") };
    assert_eq!(output["valid"], json!(false));
    for reference in ["file:///etc/passwd", "https://example.com/schema", "other.json#/a", "#/nowhere"] {
        let input = json!({ "value": 1, "schema": { "$ref": reference } });
        assert_eq!(failure("data.validate", input).code, "invalid_schema", "{reference}");
    }
}

/// A file value stands for its content. A node that would read or write the members of the file value itself fails.
#[test]
fn file_values_are_refused_where_their_content_is_needed() {
    let file = json!({ "kind": "file", "fileId": "abc", "size": 9, "mime": "application/json" });
    let rows = [
        ("data.pick", json!({ "object": file, "keys": ["total"] }), "`object`"),
        ("data.set", json!({ "object": file, "path": "a", "value": 1 }), "`object`"),
        ("data.merge", json!({ "objects": [{ "a": 1 }, file] }), "`objects[1]`"),
        ("data.json.stringify", json!({ "value": file }), "`value`"),
        ("data.validate", json!({ "value": file, "schema": { "required": ["total"] } }), "`value`"),
    ];
    for (node_type, input, named) in rows {
        let failure = failure(node_type, input);
        assert_eq!(failure.code, "invalid_input", "{node_type}");
        assert!(failure.message.contains(named) && failure.message.contains("file.content"), "{failure:?}");
    }
    // A file value that is only passed on stays unchanged.
    let set = run("data.set", json!({ "object": {}, "path": "a.b", "value": file }));
    assert_eq!(set, Outcome::Output(json!({ "object": { "a": { "b": file } } })));
}
