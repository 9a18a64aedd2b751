//! Tests code written for WASI: its use of the standard interfaces is granted, guarded and recorded like any other
//! call.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::LazyLock,
};

use serde_json::{Value, json};

use crate::{
    guests,
    kit::{output_of, stderr, stdout},
    outside::server::{Server, answer},
};

static PACKS: LazyLock<PathBuf> = LazyLock::new(|| guests::build("ported", ""));

/// Runs a flow of one node with further arguments.
fn run(folder: &Path, node: &str, more: &[&str]) -> Output {
    fs::write(folder.join("one.yaml"), format!("flow: {{ name: one }}\nnodes:\n  - {{ id: it, {node} }}\n")).unwrap();
    let packs = PACKS.to_str().unwrap();
    output_of(folder, &[&["run", "one.yaml", "--json", "--run-id", "r1", "--packs", packs], more].concat())
}

fn result(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

fn fetch(folder: &Path, node_type: &str, urls: &Value, body: &str, server: &Server, grant: &str) -> Output {
    let grants = if grant.is_empty() { String::new() } else { format!(", grants: {{ http: ['{grant}'] }}") };
    let node = format!("type: {node_type}, input: {{ urls: {urls}, body: '{body}' }}{grants}");
    run(folder, &node, &["--allow-private", &server.address.to_string()])
}

#[test]
fn requests_are_recorded_as_calls() {
    let large = "x".repeat(200_000);
    let server = Server::start(move |seen, _| match seen.head.contains("/large") {
        true => answer("200 OK", &[("content-type", "application/x-something")], &large),
        false => answer("201 Created", &[("content-type", "text/plain")], &seen.body),
    });
    let folder = tempfile::tempdir().unwrap();
    let origin = server.origin();
    let urls = json!([format!("{origin}/echo?a=b"), format!("{origin}/large")]);
    let output = fetch(folder.path(), "ported.fetch", &urls, "hello", &server, &origin);
    let came = result(&output);
    let answers = &came["outputs"]["it"]["answers"];
    assert_eq!(answers[0], json!({ "status": 201, "size": 5, "body": "hello" }), "{came}");
    assert_eq!((&answers[1]["status"], &answers[1]["size"]), (&json!(200), &json!(200_000)), "{came}");
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.header("idempotency-key").is_some() && seen.body == "hello"), "{seen:?}");
    let events = stdout(&output_of(folder.path(), &["runs", "events", "r1"]));
    assert_eq!(events.matches("\"call:start\"").count(), 2, "{events}");
}

#[test]
fn requests_without_a_grant_or_a_manifest_entry_are_not_made() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let urls = json!([server.origin()]);
    for (node_type, grant, says) in [
        ("ported.fetch", "https://api.example.com", "grants: { http: ["),
        ("ported.unasked", "", "- { name: http, reason:"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = fetch(folder.path(), node_type, &urls, "", &server, grant);
        let error = result(&output)["error"].clone();
        assert_eq!(error["code"], "ported_failed", "{error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    assert!(server.seen().is_empty());
}

#[test]
fn n11_n12_odd_requests_end_in_an_error_and_nothing_is_sent() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let odd = [
        ("headers: [[x-many, y]], times: 1000000", ""),
        (&format!("headers: [[x-long, {}]]", "y".repeat(1 << 20)), ""),
        ("headers: [[content-length, '7']]", ""),
        ("headers: [[transfer-encoding, chunked]]", ""),
        ("headers: [[trailer, host]]", ""),
        ("headers: [[x-lines, \"a\\r\\nb\"]]", ""),
        ("timeout: 0", "ConnectionTimeout"),
    ];
    for (odd, says) in odd {
        let folder = tempfile::tempdir().unwrap();
        let origin = server.origin();
        let node =
            format!("type: ported.fetch, input: {{ urls: ['{origin}'], {odd} }}, grants: {{ http: ['{origin}'] }}");
        let output = run(folder.path(), &node, &["--allow-private", &server.address.to_string()]);
        let (odd, came) = (&odd[..odd.len().min(60)], result(&output));
        assert_eq!(came["status"], "failed", "{odd}: {came}");
        assert!(came["error"]["message"].as_str().unwrap().contains(says), "{odd}: {came}");
    }
    assert!(server.seen().is_empty(), "{:?}", server.seen());
    let folder = tempfile::tempdir().unwrap();
    let origin = server.origin();
    let node = format!(
        "type: ported.fetch, input: {{ urls: ['{origin}'], timeout: {} }}, grants: {{ http: ['{origin}'] }}",
        i64::MAX
    );
    let output = run(folder.path(), &node, &["--allow-private", &server.address.to_string()]);
    assert_eq!(result(&output)["status"], "succeeded", "a timeout of centuries is cut: {}", stderr(&output));
}

#[test]
fn n18_a_read_only_file_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("kept.txt"), "kept").unwrap();
    fs::write(own.join("other.txt"), "other").unwrap();
    let node = "type: ported.spoil, input: { file: kept.txt, other: other.txt }, \
                grants: { files: { read: ['*.txt'], write: ['else/**'] } }";
    let came = result(&run(folder.path(), node, &["--files", own.to_str().unwrap()]));
    let ways = came["outputs"]["it"].as_object().unwrap_or_else(|| panic!("{came}"));
    assert!(ways.len() == 7 && ways.values().all(|refused| *refused == true), "{came}");
    let left = |name: &str| fs::read_to_string(own.join(name)).unwrap();
    assert_eq!((left("kept.txt"), left("other.txt")), ("kept".into(), "other".into()));
}

#[test]
fn file_accesses_are_recorded_and_stay_in_the_tenants_folder() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir_all(own.join("notes/deep")).unwrap();
    fs::write(own.join("notes/a.txt"), "one\n").unwrap();
    fs::write(own.join("notes/deep/b.txt"), "two\n").unwrap();
    fs::write(own.join("secret.txt"), "three\n").unwrap();
    let files = ["--files", own.to_str().unwrap()];
    let node = |from: &str, grants: &str| {
        format!("type: ported.tidy, input: {{ from: {from}, to: out/all.txt }}, grants: {{ files: {grants} }}")
    };
    let all = "{ read: ['notes/**', 'out/**'], write: ['out/**'] }";
    let output = run(folder.path(), &node("/notes", all), &files);
    let came = result(&output);
    let found = json!(["/notes/a.txt: one", "/notes/deep/b.txt: two"]);
    assert_eq!(came["outputs"]["it"], json!({ "found": found, "size": 41, "outside": false, "gone": true }), "{came}");
    assert_eq!(fs::read_to_string(own.join("out/all.txt")).unwrap(), "/notes/a.txt: one\n/notes/deep/b.txt: two\n");

    // An unreadable file looks missing. A forbidden write fails the attempt, and the error has the grant to add.
    let alone = |grants: &str| {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &node(".", grants), &files);
        (result(&output)["error"].clone(), stderr(&output))
    };
    let (error, said) = alone("{ read: ['out/**'], write: ['out/**'] }");
    assert_eq!(error, Value::Null, "{said}");
    let (error, _) = alone("{ read: ['notes/**'] }");
    assert!(error["message"].as_str().unwrap().contains("grants: { files: { write:"), "{error}");
}
