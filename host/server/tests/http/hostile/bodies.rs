//! Bodies that pretend to be something else.

use std::fs;

use serde_json::json;

use crate::client::{Served, ask};

#[test]
fn h6_what_a_body_calls_a_file_is_no_file_of_the_server() {
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
    let beside = json!({ "flow": flow, "files": files });
    assert_eq!(served.post("/v1/runs", &beside).fault(), (400, "bad_request".to_owned()));
    let ran = served.post("/v1/runs?wait=true", &plain);
    assert_eq!((ran.status, &ran.json()["status"]), (201, &json!("succeeded")), "{ran:?}");
    let events = served.get("/v1/runs/f/events");
    assert!(events.body.contains("canary.txt") && !events.body.contains("the-canary"), "{events:?}");
    assert_eq!(fs::read_to_string(&canary).unwrap(), "the-canary");
}
