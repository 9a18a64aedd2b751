//! Tests `http.request` with a server.

use std::{fs, path::Path, process::Output};

use serde_json::{Value, json};

use crate::{
    kit::{output_of, stderr, stdout},
    outside::server::{Server, answer},
};

/// Runs a flow with one request to this server.
fn run(folder: &Path, server: &Server, node: &str, grant: &str) -> Output {
    let flow = format!(
        "flow: {{ name: one, input: {{ server: '{}' }} }}\nnodes:\n  - id: ask\n    type: http.request\n    {node}\n    \
         grants: {{ http: ['{grant}'] }}\n",
        server.origin()
    );
    fs::write(folder.join("one.yaml"), flow).unwrap();
    output_of(folder, &["run", "one.yaml", "--json", "--run-id", "r1", "--allow-private", &server.address.to_string()])
}

fn outputs(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    let result: Value = serde_json::from_str(&stdout(output)).unwrap();
    result["outputs"]["ask"].clone()
}

fn error(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    let result: Value = serde_json::from_str(&stdout(output)).unwrap();
    result["error"].clone()
}

#[test]
fn a_request_arrives_and_its_answer_comes_back() {
    let server = Server::start(|_, _| answer("201 Created", &[("content-type", "application/json")], r#"{"id":7}"#));
    let folder = tempfile::tempdir().unwrap();
    let node = "input: { method: POST, url: '{{ flow.input.server }}/v1/orders', query: { q: 'a b' }, headers: { x-mark: m }, json: { item: 7 } }";
    let output = run(folder.path(), &server, node, &server.origin());
    let headers = json!({ "content-length": "8", "content-type": "application/json" });
    assert_eq!(outputs(&output), json!({ "status": 201, "headers": headers, "body": { "id": 7 } }));
    let seen = &server.seen()[0];
    assert!(seen.head.starts_with("POST /v1/orders?q=a%20b HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!((seen.header("x-mark"), seen.header("content-type")), (Some("m"), Some("application/json")));
    assert!(seen.header("idempotency-key").is_some());
    assert_eq!(seen.body, r#"{"item":7}"#);
}

#[test]
fn bytes_become_a_file() {
    let server = Server::start(|_, _| answer("200 OK", &[("content-type", "image/png")], "\u{1}png"));
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &server, "input: { url: '{{ flow.input.server }}' }", &server.origin());
    let body = outputs(&output)["body"].clone();
    assert_eq!((&body["kind"], &body["mime"], &body["size"]), (&json!("file"), &json!("image/png"), &json!(4)));
}

#[test]
fn a_busy_server_gets_a_retry_with_the_same_key_when_it_asks() {
    let busy = |_: &_, before| match before {
        0 => answer("503 Busy", &[("retry-after", "0")], "later"),
        _ => answer("200 OK", &[], "done"),
    };
    let server = Server::start(busy);
    let folder = tempfile::tempdir().unwrap();
    let node = "input: { method: POST, url: '{{ flow.input.server }}' }\n    policy: { retry: { maxAttempts: 3, backoffMs: 1 } }";
    let output = run(folder.path(), &server, node, &server.origin());
    assert_eq!(outputs(&output)["status"], 200);
    let keys: Vec<_> = server.seen().iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn an_unexpected_status_is_an_error_with_the_body() {
    let server =
        Server::start(|_, _| answer("404 Not Found", &[("content-type", "application/json")], r#"{"why":"gone"}"#));
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &server, "input: { url: '{{ flow.input.server }}' }", &server.origin());
    let error = error(&output);
    assert_eq!(error["code"], "http_status");
    assert_eq!(error["details"], json!({ "status": 404, "body": { "why": "gone" } }));
}

#[test]
fn a_request_without_a_grant_is_not_sent() {
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &server, "input: { url: '{{ flow.input.server }}' }", "https://api.example.com");
    let error = error(&output);
    assert_eq!(error["code"], "denied");
    assert!(error["message"].as_str().unwrap().contains("grants"), "{error}");
    assert!(server.seen().is_empty());
}

/// Returns JSON with `count` rows, each of at least 40 bytes.
fn rows(count: usize) -> String {
    let rows: Vec<_> = (0..count).map(|row| format!(r#"{{"row":{row},"text":"{}"}}"#, "x".repeat(32))).collect();
    format!(r#"{{"before":1,"rows":[{}]}}"#, rows.join(","))
}

#[test]
fn json_is_a_value_up_to_3_mib_and_a_file_that_a_node_reads_above() {
    // 132 KiB was once a file value that no node could read. 5 MiB is still a file value.
    let row = |row: usize| json!({ "row": row, "text": "x".repeat(32) });
    // The last body has 2.4 MB, and more values than an output may have.
    let numbers = || format!(r#"{{"rows":[{}]}}"#, vec!["1"; 1_200_000].join(","));
    let bodies = [
        (rows(2_500), 2_498, row(2_498), false),
        (rows(100_000), 99_998, row(99_998), true),
        (numbers(), 1_199_998, json!(1), true),
    ];
    for (body, from, expected, is_file) in bodies {
        let server = Server::start(move |_, _| answer("200 OK", &[("content-type", "application/json")], &body));
        let folder = tempfile::tempdir().unwrap();
        let flow = format!(
            r#"
flow: {{ name: large, outputs: {{ kind: "{{{{ get.body.kind }}}}", rows: "{{{{ some.content }}}}", more: "{{{{ some.more }}}}" }} }}
nodes:
  - {{ id: get, type: http.request, input: {{ url: '{origin}' }}, grants: {{ http: ['{origin}'] }} }}
  - {{ id: some, type: file.content, input: {{ file: "{{{{ get.body }}}}", as: json, at: /rows, from: {from}, limit: 1 }} }}
edges: [{{ from: get, to: some }}]
"#,
            origin = server.origin(),
        );
        fs::write(folder.path().join("large.yaml"), flow).unwrap();
        let address = server.address.to_string();
        let output = output_of(folder.path(), &["run", "large.yaml", "--json", "--allow-private", &address]);
        assert!(output.status.success(), "{}", stderr(&output));
        let outputs = serde_json::from_str::<Value>(&stdout(&output)).unwrap()["outputs"].clone();
        assert_eq!(outputs["kind"], if is_file { json!("file") } else { Value::Null });
        assert_eq!(outputs["rows"], json!([expected]));
        assert_eq!(outputs["more"], true);
    }
}

/// The values of this JSON, parsed one by one into a tree, would need many times the memory that an attempt may use.
#[test]
fn json_that_fits_into_an_output_is_read_whole() {
    let list = |count: usize| format!("[{}2]", "1,".repeat(count));
    let members = |count: usize| {
        let members: Vec<_> = (0..count).map(|key| format!(r#""k{key}": 1, "#)).collect();
        format!(r#"{{ {}"last": 2 }}"#, members.concat())
    };
    for (body, last) in [(list(998_990), "[-1]"), (members(300_000), ".last")] {
        let server = Server::start(move |_, _| answer("200 OK", &[("content-type", "application/json")], &body));
        let folder = tempfile::tempdir().unwrap();
        let flow = format!(
            r#"
flow: {{ name: large, outputs: {{ last: "{{{{ all.content{last} }}}}", more: "{{{{ all.more }}}}" }} }}
nodes:
  - {{ id: get, type: http.request, input: {{ url: '{origin}' }}, grants: {{ http: ['{origin}'] }} }}
  - {{ id: all, type: file.content, input: {{ file: "{{{{ get.body }}}}", as: json }} }}
edges: [{{ from: get, to: all }}]
"#,
            origin = server.origin(),
        );
        fs::write(folder.path().join("large.yaml"), flow).unwrap();
        let address = server.address.to_string();
        let output = output_of(folder.path(), &["run", "large.yaml", "--json", "--allow-private", &address]);
        assert!(output.status.success(), "{}", stderr(&output));
        let outputs = serde_json::from_str::<Value>(&stdout(&output)).unwrap()["outputs"].clone();
        assert_eq!(outputs, json!({ "last": 2, "more": false }));
    }
}

#[test]
fn expressions_cannot_use_a_file_value_as_its_content() {
    let body = rows(100_000);
    let server = Server::start(move |_, _| answer("200 OK", &[("content-type", "application/json")], &body));
    let table = [
        ("data.template", "template: 'got {{ get.body }}'"),
        ("data.filter", "list: [1], when: 'item in get.body.rows'"),
        ("control.if", "condition: { exists: get.body.rows }"),
        ("data.pick", "object: { a: 1 }, keys: ['{{ get.body.rows[0].text }}']"),
    ];
    for (node_type, input) in table {
        let folder = tempfile::tempdir().unwrap();
        let flow = format!(
            r#"
flow: {{ name: large }}
nodes:
  - {{ id: get, type: http.request, input: {{ url: '{origin}' }}, grants: {{ http: ['{origin}'] }} }}
  - {{ id: use, type: {node_type}, input: {{ {input} }} }}
edges: [{{ from: get, to: use }}]
"#,
            origin = server.origin(),
        );
        fs::write(folder.path().join("large.yaml"), flow).unwrap();
        let address = server.address.to_string();
        let output = output_of(folder.path(), &["run", "large.yaml", "--json", "--allow-private", &address]);
        let error = error(&output);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("`get.body` is one") && message.contains("`file.content`"), "{node_type}: {error}");
    }
}
