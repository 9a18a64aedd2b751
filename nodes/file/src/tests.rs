//! What is asked of the host, and what becomes of its answers, played by a script.
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
fn a_file_is_read_in_the_form_that_is_asked_for() {
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
fn what_is_written_depends_on_what_it_is() {
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
fn a_folder_is_listed_from_the_top_unless_it_is_named() {
    let entries = json!([{ "path": "a", "kind": "folder", "size": 0, "modifiedMs": 5 }]);
    let played = play("file.list", json!({}), entries.clone());
    assert_eq!(played.outcome, Outcome::Output(json!({ "count": 1, "entries": entries })));
    assert_eq!(played.of("files.list"), [&json!({ "path": "." })]);
}

#[test]
fn a_failure_of_the_call_is_the_failure_of_the_node() {
    let script = Script::new().fail(Failure::new("denied", "not granted"));
    let played = script.play(crate::run_node, "file.list", Given::default());
    assert!(matches!(played.outcome, Outcome::Failure(failure) if failure.code == "denied"));
}

#[test]
fn the_manifest_asks_for_what_it_uses() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    for node in manifest.nodes {
        let asked: Vec<_> = node.capabilities.iter().map(|asked| &*asked.name).collect();
        assert_eq!(asked, ["files"], "{}", node.name);
    }
}
