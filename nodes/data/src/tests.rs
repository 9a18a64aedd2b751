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
            "data.sort",
            json!({ "list": [9, 10, 11], "by": captured("expr", json!("item % flow.input.f")) }),
            json!({ "list": [10, 11, 9] }),
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
        ("data.group", json!({ "list": list, "by": captured("expr", "item.x") }), "item 1: `item.x` is missing"),
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
        ("data.flatten", "by", MarkKind::Condition),
        ("data.group", "by", MarkKind::Condition),
        ("data.map", "template", MarkKind::Template),
        ("data.reduce", "expr", MarkKind::Condition),
        ("data.sort", "by", MarkKind::Condition),
        ("data.template", "template", MarkKind::Template),
        ("data.unique", "by", MarkKind::Condition),
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

/// Numbers beyond 2^53 are not equal because floats are, and 1 equals 1.0.
#[test]
fn values_are_ordered_and_compared_exactly() {
    let (small, large) = (9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64);
    let list =
        json!([{ "b": 1, "a": 2 }, large, "a", small, [1], "B", 1.0, [], -1, { "a": 2, "b": 1.0 }, 1, null, [1, 0]]);
    let sorted =
        json!([null, -1, 1.0, 1, small, large, "B", "a", [], [1], [1, 0], { "b": 1, "a": 2 }, { "a": 2, "b": 1.0 }]);
    assert_eq!(run("data.sort", json!({ "list": list })), Outcome::Output(json!({ "list": sorted })));
    let unique = run("data.unique", json!({ "list": sorted }));
    let Outcome::Output(unique) = unique else { panic!("{unique:?}") };
    assert_eq!((&unique["removed"], unique["list"].as_array().unwrap().len()), (&json!(2), 11));
}

#[test]
fn items_with_equal_values_keep_their_order() {
    let list: Vec<_> = (0..2_000).map(|n| json!({ "k": n % 3, "n": n })).collect();
    for descending in [false, true] {
        let input = json!({ "list": list, "by": "item.k", "descending": descending });
        let Outcome::Output(output) = run("data.sort", input) else { panic!("it sorts") };
        let numbers: Vec<_> =
            output["list"].as_array().unwrap().iter().map(|item| (item["k"].as_u64(), item["n"].as_u64())).collect();
        let mut expected = numbers.clone();
        expected.sort_by_key(|(k, n)| (k.map(|k| if descending { 2 - k } else { k }), *n));
        assert_eq!(numbers, expected);
    }
    let Outcome::Output(output) = run("data.group", json!({ "list": list, "by": "item.k" })) else {
        panic!("it groups")
    };
    assert_eq!(output["groups"].as_array().unwrap().len(), 3);
    assert_eq!(output["groups"][1]["items"][2]["n"], json!(7));
}

#[test]
fn keys_of_groups_and_objects_are_plain_values() {
    let names = ["__proto__", "constructor", "toString", "", "__proto__"];
    let Outcome::Output(output) = run("data.group", json!({ "list": names, "by": "item" })) else {
        panic!("it groups")
    };
    assert_eq!(output["groups"][0], json!({ "key": "__proto__", "items": ["__proto__", "__proto__"] }));
    let objects = json!([{ "__proto__": { "x": 1 } }, { "__proto__": { "y": 2 }, "constructor": 1 }]);
    let merged = run("data.merge", json!({ "objects": objects, "deep": true }));
    assert_eq!(merged, Outcome::Output(json!({ "object": { "__proto__": { "x": 1, "y": 2 }, "constructor": 1 } })));
}

#[test]
fn deep_merges_follow_the_rule_for_lists() {
    let file = json!({ "kind": "file", "fileId": "abc", "size": 9 });
    let (low, high) = (
        json!({ "a": { "l": [{ "id": 1, "n": [1] }, "x"], "f": file, "t": 1, "e": [] } }),
        json!({ "a": { "l": [{ "id": 1.0, "n": [2] }], "f": { "more": 1 }, "t": null, "e": [1] } }),
    );
    let rows = [
        (json!("replace"), json!([{ "id": 1.0, "n": [2] }])),
        (json!("append"), json!([{ "id": 1, "n": [1] }, "x", { "id": 1.0, "n": [2] }])),
    ];
    for (lists, expected) in rows {
        let merged = run("data.merge", json!({ "objects": [low, high], "deep": true, "lists": lists }));
        let object = json!({ "a": { "l": expected, "f": { "more": 1 }, "t": null, "e": [1] } });
        assert_eq!(merged, Outcome::Output(json!({ "object": object })), "{lists}");
    }
    let by_key = |objects: Value, key: &str| json!({ "objects": objects, "deep": true, "lists": "byKey", "key": key });
    let refused = failure("data.merge", by_key(json!([low, high]), "id"));
    assert!(refused.message.starts_with("at objects[1].a.l: item 1 of the earlier list has no `id`"), "{refused}");
    let refused = failure("data.merge", by_key(json!([{ "l": [] }, { "l": [{ "k": null }] }]), "k"));
    assert!(refused.message.contains("at objects[1].l: item 0 of this list has null as `k`"), "{refused}");
    let nested = json!([{ "l": [{ "k": "a", "l": [{ "k": 1 }] }, { "k": "a" }] }, { "l": [{ "k": "a", "l": [{ "k": 1, "v": 2 }] }, { "k": "b" }, { "k": "b", "w": 1 }] }]);
    let merged = json!({ "l": [{ "k": "a", "l": [{ "k": 1, "v": 2 }] }, { "k": "a" }, { "k": "b", "w": 1 }] });
    assert_eq!(run("data.merge", by_key(nested, "k")), Outcome::Output(json!({ "object": merged })));
    let texts = run("data.merge", by_key(json!([{ "l": ["a"] }, { "l": ["b"] }]), "k"));
    assert_eq!(texts, Outcome::Output(json!({ "object": { "l": ["b"] } })));
}

#[test]
fn merges_of_many_and_deep_objects_end() {
    let many: Vec<_> = (0..1_000).map(|n| json!({ "o": { n.to_string(): n }, "l": [{ "id": n }] })).collect();
    let Outcome::Output(output) = run("data.merge", json!({ "objects": many, "deep": true, "lists": "byKey" })) else {
        panic!("it merges")
    };
    assert_eq!(output["object"]["o"].as_object().unwrap().len(), 1_000);
    let deep = (0..120).fold(json!(1), |value, _| json!({ "a": value }));
    let merged = run("data.merge", json!({ "objects": [deep, deep], "deep": true }));
    assert_eq!(merged, Outcome::Output(json!({ "object": deep })));
    let list = (0..120).fold(json!(1), |value, _| json!([value]));
    let flat = run("data.flatten", json!({ "list": list, "levels": 127 }));
    assert_eq!(flat, Outcome::Output(json!({ "list": [1] })));
    let refused = failure("data.flatten", json!({ "list": [{ "l": [] }, {}], "by": "item.l" }));
    assert!(refused.message.contains("item 1: `by` gives null, not a list"), "{refused}");
}
