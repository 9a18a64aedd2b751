//! Flows that a server stores with their versions, and their use through the routes under `/api`.

use serde_json::{Value, json};

use crate::{client::Served, samples::hello};

fn greets(word: &str) -> Value {
    let mut flow = hello();
    flow["nodes"][0]["input"]["template"] = json!(format!("{word} {{{{ flow.input.who }}}}"));
    flow
}

#[test]
fn a_flow_is_stored_with_its_versions_and_run_by_name() {
    let served = Served::local();
    let first = served.post("/v1/flows", &json!({ "flow": greets("Hello") }));
    assert_eq!((first.status, first.header("location")), (201, Some("/v1/flows/hello")), "{first:?}");
    let second = served.post("/v1/flows", &json!({ "flow": greets("Servus") })).json();
    assert_eq!((&second["name"], &second["version"]), (&json!("hello"), &json!(2)));
    assert_eq!((&first.json()["source"], first.json().get("digest")), (&json!("folder"), None));
    let beside = served.post("/v1/flows", &json!({ "flow": greets("Hi"), "files": { "a.md": "text" } }));
    assert_eq!(beside.fault(), (422, "invalid_file".to_owned()), "the store is not shared");
    assert_eq!(served.get("/v1/flows").json()["flows"][0]["version"], 2);
    assert_eq!(served.get("/v1/flows/hello/versions").json()["versions"], json!([1, 2]));
    assert!(served.get("/v1/flows/hello/versions/1").json()["text"].as_str().unwrap().contains("Hello"));
    let said = |body: Value| served.post("/v1/runs?wait=true", &body).json()["outputs"]["say"]["text"].clone();
    assert_eq!(said(json!({ "flow": "hello" })), "Servus world");
    assert_eq!(said(json!({ "flow": "hello", "version": 1, "input": { "who": "Ada" } })), "Hello Ada");
    let wrong = [
        (json!({ "flow": "nobody" }), (404, "flow_not_found")),
        (json!({ "flow": "hello", "version": 3 }), (404, "flow_not_found")),
        (json!({ "flow": hello(), "version": 1 }), (400, "bad_request")),
    ];
    for (body, (status, code)) in wrong {
        assert_eq!(served.post("/v1/runs", &body).fault(), (status, code.to_owned()), "{body}");
    }
    assert_eq!(served.ask("DELETE", "/v1/flows/hello", "").status, 204);
    for path in ["/v1/flows/hello", "/v1/flows/hello/versions", "/v1/flows/hello/versions/1", "/v1/flows/a%2Fb"] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    let invalid = json!({ "flow": { "flow": { "name": "x" }, "nodes": [{ "id": "a", "type": "no.such" }] } });
    assert_eq!(served.post("/v1/flows", &invalid).fault(), (422, "invalid_flow".to_owned()));
    assert_eq!(served.get("/v1/flows").json(), json!({ "flows": [] }));
}

#[test]
fn the_server_has_the_routes_of_the_earlier_flow_engine() {
    let served = Served::local();
    let flow = json!({ "name": "report", "inputs": ["who"],
        "steps": [{ "id": "say", "tool": "data.template", "params": { "template": "$inputs.who" } }] });
    let created = served.post("/api/create_flow", &json!({ "flow": flow }));
    let done = json!({ "success": true, "data": { "message": "Flow created" }, "error": null });
    assert_eq!((created.status, created.json()), (201, done));
    let ran = served.post("/api/run_flow", &json!({ "flow_name": "report", "inputs": { "who": "Ada" } }));
    assert_eq!((ran.status, &ran.json()["success"]), (200, &json!(true)), "{ran:?}");
    assert_eq!(served.get("/api/flow_runs/report").json()["data"]["runs"][0]["step_id"], "say");
    assert_eq!(served.get("/v1/flows/report").json()["version"], 1);
    assert_eq!(served.post("/api/run_flow", &json!({ "flow_name": "none" })).json()["error"]["code"], "NOT_FOUND");
}

#[test]
fn flows_are_listed_by_page() {
    let served = Served::local();
    let folder = served.folder().join("flows");
    std::fs::create_dir_all(&folder).unwrap();
    let describe = "x".repeat(3_500_000);
    for name in ["a", "b", "c", "d", "e", "f"] {
        let flow = json!({ "flow": { "name": name, "description": describe }, "nodes": [{ "id": "n", "type": "control.noop" }] });
        std::fs::write(folder.join(format!("{name}.json")), flow.to_string()).unwrap();
    }
    let (mut names, mut pages, mut path) = (Vec::new(), 0, "/v1/flows".to_owned());
    loop {
        let answer = served.get(&path);
        assert!(answer.body.len() <= 17 << 20, "{}", answer.body.len());
        let page = answer.json();
        names.extend(page["flows"].as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/flows?cursor={next}");
    }
    assert_eq!((names.concat().as_str(), pages), ("abcdef", 2));
    let refused = served.get("/api/flows");
    assert_eq!(refused.fault(), (413, "too_large".into()));
    assert!(refused.body.contains("GET /v1/flows"), "{refused:?}");
}
