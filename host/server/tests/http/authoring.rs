//! Layouts, descriptions and tests of flows over HTTP, and posts that expect a version.

use serde_json::{Value, json};

use crate::{
    approvals::{flow, gate},
    client::Served,
    samples::{asks, hello},
    tenants::{call, served},
};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(|node| node["id"].as_str().unwrap()).collect()
}

#[test]
fn a_text_and_a_run_have_the_same_layout() {
    let served = Served::local();
    let step = json!({ "id": "pay", "type": "control.noop", "input": {} });
    let text = flow(&[gate(), step], &[("ask", "pay")]);
    let drawn = served.post("/v1/graph", &json!({ "flow": text }));
    assert_eq!((drawn.status, drawn.header("content-type")), (200, Some("application/json")));
    let layout = drawn.json();
    assert_eq!(ids(&layout["nodes"]), ["ask", "pay"]);
    let edge = &layout["edges"][0];
    assert_eq!((&edge["from"], &edge["to"], &edge["on"]), (&json!("ask"), &json!("pay"), &json!("success")));
    assert!(layout["width"].as_i64() > Some(0) && edge["points"].as_array().unwrap().len() >= 2, "{layout}");
    served.post("/v1/runs?wait=true", &json!({ "flow": text, "runId": "r" }));
    assert_eq!(served.get("/v1/runs/r/graph").json(), layout);
    // The run keeps the version with which it began.
    served.post("/v1/flows", &json!({ "flow": asks() }));
    served.post("/v1/runs?wait=true", &json!({ "flow": "asks", "runId": "old" }));
    let mut newer = asks();
    newer["nodes"].as_array_mut().unwrap().push(json!({ "id": "more", "type": "control.noop" }));
    assert_eq!(served.post("/v1/flows", &json!({ "flow": newer })).json()["version"], 2);
    assert_eq!(ids(&served.get("/v1/runs/old/graph").json()["nodes"]), ["ok"]);
    assert_eq!(ids(&served.post("/v1/graph", &json!({ "flow": "asks" })).json()["nodes"]), ["ok", "more"]);
    assert_eq!(ids(&served.post("/v1/graph", &json!({ "flow": "asks", "version": 1 })).json()["nodes"]), ["ok"]);
}

#[test]
fn a_flow_is_inspected_and_tested_without_a_run() {
    let served = Served::local();
    let told = served.post("/v1/inspect", &json!({ "flow": hello() })).json();
    assert_eq!((&told["name"], ids(&told["nodes"])), (&json!("hello"), vec!["say"]), "{told}");
    assert_eq!(told["inputSchema"]["properties"]["who"]["default"], "world");
    let tested = served.post("/v1/test", &json!({ "flow": hello(), "input": { "who": "you" } })).json();
    assert_eq!(tested["status"], "succeeded", "{tested}");
    assert!(tested.to_string().contains("Hello you"), "{tested}");
    let parked = served.post("/v1/test", &json!({ "flow": asks() })).json();
    assert_eq!((&parked["status"], &parked["waiting"][0]["address"]), (&json!("parked"), &json!("ok")), "{parked}");
    let calls = json!({ "flow": { "name": "calls" }, "nodes": [{ "id": "get", "type": "http.request",
        "input": { "url": "https://a.test/" }, "grants": { "http": ["https://a.test"] } }] });
    let refused = served.post("/v1/test", &json!({ "flow": calls })).json();
    assert_eq!(refused["status"], "failed", "no call leaves the host: {refused}");
    let simulated = served.post("/v1/test", &json!({ "flow": calls, "simulate": ["http"] })).json();
    assert_eq!(simulated["status"], "succeeded", "{simulated}");
    assert_eq!(served.get("/v1/runs").json()["runs"], json!([]));
}

#[test]
fn broken_flows_and_wrong_bodies_are_refused() {
    let served = Served::local();
    let broken = json!({ "flow": { "name": "b" }, "nodes": [{ "id": "a", "type": "no.such" }] });
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for route in ["/v1/graph", "/v1/inspect", "/v1/test"] {
        let refused = served.post(route, &json!({ "flow": broken }));
        assert_eq!(refused.fault(), (422, "invalid_flow".to_owned()), "{route}");
        assert_eq!(refused.json()["error"]["details"]["diagnostics"][0]["code"], "unknown_type", "{refused:?}");
        assert_eq!(served.post(route, &json!({ "flow": "none" })).fault(), (404, "flow_not_found".to_owned()));
        for body in [
            json!({}),
            json!({ "flow": 7 }),
            json!({ "flow": hello(), "version": 1 }),
            json!({ "flow": hello(), "x": 1 }),
        ] {
            assert_eq!(served.post(route, &body).fault(), (400, "bad_request".to_owned()), "{route} {body}");
        }
        assert_eq!(served.post(route, &json!({ "flow": deep })).fault().0, 422, "{route}");
        let large = json!({ "flow": "x".repeat(9 << 20) });
        assert_eq!(served.post(route, &large).fault(), (413, "too_large".to_owned()), "{route}");
    }
    let unknown = json!({ "flow": hello(), "simulate": ["everything"] });
    assert_eq!(served.post("/v1/test", &unknown).fault(), (400, "bad_request".to_owned()));
    assert_eq!(served.get("/v1/runs/none/graph").fault(), (404, "run_not_found".to_owned()));
}

#[test]
fn a_post_that_expects_another_version_is_refused() {
    let (served, [a, b]) = served(&Default::default());
    let post = |token: &str, text: &str, version: Value| {
        let mut flow = hello();
        flow["flow"]["description"] = text.into();
        let mut body = json!({ "flow": flow });
        if !version.is_null() {
            body["ifVersion"] = version;
        }
        call(&served, token, "POST", "/v1/flows", &body)
    };
    assert_eq!(post(&a, "1", json!(1)).fault(), (409, "version_conflict".to_owned()), "the flow does not exist");
    assert_eq!(post(&a, "1", json!(0)).json()["version"], 1);
    let late = post(&a, "other", json!(0));
    assert_eq!(
        (late.fault(), &late.json()["error"]["details"]["version"]),
        ((409, "version_conflict".to_owned()), &json!(1))
    );
    assert_eq!(post(&a, "2", json!(1)).json()["version"], 2);
    assert_eq!(post(&a, "3", json!(1)).fault(), (409, "version_conflict".to_owned()));
    // A repeated post adds no version and loses nothing.
    assert_eq!(post(&a, "2", json!(1)).json()["version"], 2);
    assert_eq!(post(&a, "3", Value::Null).json()["version"], 3);
    assert_eq!(post(&b, "1", json!(3)).fault().0, 409, "the flow of another tenant has no version");
    for wrong in [json!(-1), json!("1"), json!(1.5), json!(4_294_967_296_u64)] {
        assert_eq!(post(&a, "4", wrong.clone()).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
}
