//! The calls to the host, and the results of its answers, played by a script.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_contract::Manifest;
use flowcell_sdk::{
    Failure, Given,
    testing::{Outcome, Played, Script},
};
use serde_json::{Value, json};

fn play(node_type: &str, input: Value, reply: Value) -> Played {
    Script::new().reply(reply).play(crate::run_node, node_type, Given { input, ..Given::default() })
}

#[test]
fn a_file_is_read_as_text_as_json_or_as_a_file_value() {
    let file = json!({ "kind": "file", "fileId": "abc" });
    let table = [
        (json!({ "path": "a" }), json!("[1]"), "text", json!("[1]")),
        (json!({ "path": "a", "as": "json" }), json!("[1]"), "text", json!([1])),
        (json!({ "path": "a", "as": "file" }), file.clone(), "file", file),
    ];
    for (input, reply, form, content) in table {
        let played = play("file.read", input.clone(), reply);
        assert_eq!(played.outcome, Outcome::Output(json!({ "content": content })), "{input}");
        assert_eq!(played.of("files.read"), [&json!({ "path": "a", "as": form })]);
    }
    let odd = play("file.read", json!({ "path": "a", "as": "json" }), json!("{"));
    assert!(matches!(odd.outcome, Outcome::Failure(failure) if failure.code == "invalid_json"));
}

#[test]
fn texts_values_and_file_values_are_written() {
    let file = json!({ "kind": "file", "fileId": "abc" });
    let table = [
        (json!("x"), json!({ "path": "a", "text": "x" })),
        (json!({ "a": [1] }), json!({ "path": "a", "text": "{\"a\":[1]}\n" })),
        (json!(null), json!({ "path": "a", "text": "null\n" })),
        (file.clone(), json!({ "path": "a", "file": file })),
    ];
    for (content, asked) in table {
        let played = play("file.write", json!({ "path": "a", "content": content }), json!(9));
        assert_eq!(played.outcome, Outcome::Output(json!({ "path": "a", "size": 9 })), "{content}");
        assert_eq!(played.of("files.write"), [&asked]);
    }
}

#[test]
fn list_without_a_path_lists_the_top_folder() {
    let entries = json!([{ "path": "a", "kind": "folder", "size": 0, "modifiedMs": 5 }]);
    let played = play("file.list", json!({}), entries.clone());
    assert_eq!(played.outcome, Outcome::Output(json!({ "count": 1, "entries": entries })));
    assert_eq!(played.of("files.list"), [&json!({ "path": "." })]);
}

#[test]
fn a_failed_call_fails_the_node() {
    let script = Script::new().fail(Failure::new("denied", "not granted"));
    let played = script.play(crate::run_node, "file.list", Given::default());
    assert!(matches!(played.outcome, Outcome::Failure(failure) if failure.code == "denied"));
}

#[test]
fn the_manifest_requests_the_capabilities_that_the_nodes_use() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    for node in manifest.nodes {
        let asked: Vec<_> = node.capabilities.iter().map(|asked| &*asked.name).collect();
        let used: &[&str] = if &*node.name == "file.content" { &[] } else { &["files"] };
        assert_eq!(asked, used, "{}", node.name);
    }
}

#[test]
fn a_file_value_is_read_in_pieces_and_in_parts() {
    let file = json!({ "kind": "file", "fileId": "abc" });
    let read = |bytes: Vec<u8>, rest: Value| {
        let mut input = json!({ "file": file });
        for (key, value) in rest.as_object().unwrap() {
            input[key] = value.clone();
        }
        let given = Given { input, ..Given::default() };
        match Script::new().file("abc", bytes).play(crate::run_node, "file.content", given).outcome {
            Outcome::Output(output) => Ok(output),
            Outcome::Failure(failure) => Err(format!("{}: {}", failure.code, failure.message)),
            other => panic!("{other:?}"),
        }
    };
    // Larger than one chunk, so that a line crosses the boundary between two chunks.
    let lines: String = (0..200_000).map(|number| format!("line {number}\r\n")).collect();
    let list = format!("{{\"before\": [1], \"items\": [{}]}}", vec!["{\"a\": 1}"; 200_000].join(","));
    let some = |from: u64| vec![json!({ "a": 1 }); from as usize];
    let table = [
        (
            lines.clone(),
            json!({ "as": "lines", "from": 131_071, "limit": 1 }),
            Ok(json!({ "content": ["line 131071"], "more": true })),
        ),
        (
            lines.clone(),
            json!({ "as": "lines", "from": 199_999 }),
            Ok(json!({ "content": ["line 199999"], "more": false })),
        ),
        (lines, json!({}), Ok(Value::Null)),
        (
            list.clone(),
            json!({ "as": "json", "at": "/items", "from": 199_998, "limit": 5 }),
            Ok(json!({ "content": some(2), "more": false })),
        ),
        (
            list.clone(),
            json!({ "as": "json", "at": "/items", "limit": 3 }),
            Ok(json!({ "content": some(3), "more": true })),
        ),
        (list.clone(), json!({ "as": "json", "at": "/before/0" }), Ok(json!({ "content": 1, "more": false }))),
        (list.clone(), json!({ "as": "json", "at": "/items/200000" }), Err("path_not_found")),
        (list.clone(), json!({ "as": "json", "limit": 1 }), Err("path_not_found: `from` and `limit` need a list")),
        (list + "x", json!({ "as": "json", "at": "/before" }), Err("invalid_json")),
        (spaced(5 << 20), json!({ "as": "json" }), Ok(json!({ "content": [1, 2], "more": false }))),
        (spaced(17 << 20), json!({ "as": "json" }), Err("output_too_large")),
        (numbers(2_200_000), json!({ "as": "json" }), Err("output_too_large")),
        (numbers(999_001), json!({ "as": "json" }), Err("output_too_large")),
        (numbers(999_001), json!({ "as": "json", "limit": 999_000 }), Err("output_too_large")),
        (numbers(2_200_000), json!({ "as": "json", "limit": 2_100_000 }), Err("output_too_large")),
        (
            numbers(2_200_000),
            json!({ "as": "json", "from": 2_199_998 }),
            Ok(json!({ "content": [1, 1], "more": false })),
        ),
        (
            r#"{ "a": 1, "b": [ 1.50, "a " ], "a": 2 }"#.into(),
            json!({ "as": "json" }),
            Ok(json!({ "content": { "a": 2, "b": [1.5, "a "] }, "more": false })),
        ),
        ("[1, 99999999999999999999]".into(), json!({ "as": "json" }), Err("invalid_json")),
        ("x".repeat((3 << 20) + 1), json!({}), Err("file_too_large")),
        (
            "x".repeat((3 << 20) + 1),
            json!({ "as": "lines" }),
            Err("file_too_large: line 0 has more than 3145728 bytes; read JSON with"),
        ),
        ("a".into(), json!({ "limit": 1 }), Err("invalid_input")),
        ("a".into(), json!({ "at": "/a" }), Err("invalid_input")),
    ];
    for (bytes, rest, expected) in table {
        let found = read(bytes.clone().into_bytes(), rest.clone());
        match expected {
            Ok(Value::Null) => assert_eq!(found.unwrap()["content"], bytes),
            Ok(expected) => assert!(found == Ok(expected), "{rest}"),
            Err(told) => {
                let failure = found.unwrap_err();
                assert!(failure.starts_with(told), "{rest}: {failure}");
            }
        }
    }
    assert!(read(vec![0xff], json!({})).unwrap_err().starts_with("not_text"));
    let other = Given { input: json!({ "file": { "kind": "file", "fileId": "other" } }), ..Given::default() };
    let missing = Script::new().play(crate::run_node, "file.content", other);
    assert!(matches!(missing.outcome, Outcome::Failure(failure) if failure.code == "file_not_found"));
}

/// A list with this many bytes of whitespace in it.
fn spaced(bytes: usize) -> String {
    format!("[1,{}2]", " ".repeat(bytes))
}

/// A list of this many numbers.
fn numbers(count: usize) -> String {
    format!("[{}]", vec!["1"; count].join(","))
}
