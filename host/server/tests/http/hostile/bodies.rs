//! Bodies that have a wrong type, or that look small but need much memory.

use std::{
    fs,
    io::{BufReader, Write},
};

use serde_json::json;

use super::neighbours::behind;
use crate::client::{Served, ask, connect, read, request};

#[test]
fn h6_a_path_in_a_body_does_not_read_a_file_of_the_server() {
    let served = Served::local();
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("canary.txt");
    fs::write(&canary, "the-canary").unwrap();
    let files = json!([{ "filepath": canary, "path": canary, "originalFilename": "x", "mimetype": "text/plain" }]);
    let flow = json!({ "flow": { "name": "files", "input": { "files": [] } },
        "nodes": [{ "id": "a", "type": "data.template", "input": { "template": "{{ flow.input.files }}" } }] });
    let plain = json!({ "flow": flow, "input": { "files": files }, "runId": "f" });
    let multipart = [("Content-Type", "multipart/form-data; boundary=x")];
    let pretending = ask(served.address, "POST", "/v1/runs", &multipart, &plain.to_string());
    assert_eq!(pretending.fault(), (415, "unsupported_media_type".to_owned()));
    let why = "the body has the media type `multipart/form-data`; send it with `content-type: application/json`";
    assert_eq!(pretending.json()["error"]["message"], why);
    let beside = json!({ "flow": flow, "files": files });
    assert_eq!(served.post("/v1/runs", &beside).fault(), (400, "bad_request".to_owned()));
    let ran = served.post("/v1/runs?wait=true", &plain);
    assert_eq!((ran.status, &ran.json()["status"]), (201, &json!("succeeded")), "{ran:?}");
    let events = served.get("/v1/runs/f/events");
    assert!(events.body.contains("canary.txt") && !events.body.contains("the-canary"), "{events:?}");
    assert_eq!(fs::read_to_string(&canary).unwrap(), "the-canary");
}

/// Each nested list takes two bytes of text and about a hundred bytes of memory.
#[test]
fn h5_bodies_with_too_many_values_are_refused_before_parsing() {
    let served = Served::local();
    let lists = format!("{{\"input\":{{\"a\":[{}[]]}}}}", "[],".repeat(250_000));
    let text = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    for path in ["/v1/runs", "/v1/validate", "/v1/flows", "/v1/runs/x/gates/y/reply", "/api/run_flow", "/mcp"] {
        let answer = ask(served.address, "POST", path, &text, &lists);
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        assert!(answer.body.contains("1000000 JSON values"), "{path}: {answer:?}");
    }
    // Brackets inside a string do not count as values.
    let long = json!({ "flow": { "flow": { "name": "a" }, "nodes": [] }, "input": { "text": "[,".repeat(300_000) } });
    assert_eq!(served.post("/v1/runs?wait=true", &long).status, 201);
}

#[test]
fn a_proxy_gets_the_answer_to_a_body_that_is_refused_before_it_was_read() {
    let (served, token) = behind(&["127.0.0.1"]);
    let token = format!("Bearer {token}");
    let headers = [("Authorization", token.as_str())];
    let (address, large) = (served.address, "x".repeat(40 << 20));
    let mut stream = connect(address);
    // The answer comes after the body, so the proxy can send all of it, and the connection stays usable.
    stream.write_all(request(address, "POST", "/v1/validate", &headers, &large).as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    assert_eq!(read(&mut stream).fault(), (413, "too_large".to_owned()));
    stream.get_mut().write_all(request(address, "GET", "/healthz", &[], "").as_bytes()).unwrap();
    assert_eq!(read(&mut stream).status, 200);
}
